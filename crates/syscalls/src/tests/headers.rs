//! Values of flags and fields of structures against the headers for programs, as the C compiler reads them.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::super::{Structure, tables};

/// Headers that one program can include: the kernel's, and the C library's for what the kernel does not
/// export. Those that are not installed are left out.
const PROGRAMS: [&str; 2] = [
    "linux/fcntl.h linux/mman.h asm/mman.h linux/sched.h linux/futex.h linux/prctl.h asm/prctl.h \
     linux/ptrace.h linux/keyctl.h linux/bpf.h linux/perf_event.h linux/fs.h linux/stat.h linux/mount.h \
     linux/fanotify.h linux/inotify.h linux/eventpoll.h linux/eventfd.h linux/timerfd.h linux/memfd.h \
     linux/random.h linux/seccomp.h linux/kcmp.h linux/kexec.h linux/membarrier.h linux/mempolicy.h \
     linux/quota.h linux/reboot.h linux/resource.h linux/time.h linux/timex.h linux/wait.h linux/io_uring.h \
     linux/fadvise.h linux/falloc.h linux/capability.h linux/securebits.h linux/ipc.h linux/msg.h \
     linux/sem.h linux/shm.h linux/signal.h asm/siginfo.h linux/module.h linux/ioprio.h linux/pidfd.h \
     linux/close_range.h linux/net.h linux/elf.h linux/tcp.h linux/in6.h",
    "sys/socket.h netinet/in.h netinet/tcp.h sys/epoll.h sys/eventfd.h sys/timerfd.h sys/signalfd.h \
     sys/inotify.h sys/mman.h fcntl.h sched.h sys/swap.h sys/mount.h sys/wait.h sys/resource.h unistd.h \
     sys/shm.h sys/sem.h sys/msg.h signal.h sys/timex.h sys/ptrace.h time.h sys/quota.h sys/random.h \
     sys/stat.h sys/time.h sys/uio.h sys/file.h",
];

/// Names that the C library gives other values in 64-bit programs.
const OTHERS: [&str; 3] = ["F_GETLK64", "F_SETLK64", "F_SETLKW64"];

/// The values of those names that a program with these headers knows, and whether they have 32 bits.
/// `None` without a compiler.
fn values(headers: &str, names: &HashSet<&str>) -> Option<HashMap<String, (i64, bool)>> {
    let include = |header| format!("#if __has_include(<{header}>)\n#include <{header}>\n#endif\n");
    let mut start = "#define _GNU_SOURCE\n#include <stddef.h>\n#include <stdint.h>\n".to_owned();
    start.extend(headers.split_ascii_whitespace().map(include));
    start.push_str("int printf(const char *, ...);\nint main(void) {\n");
    let mut names: Vec<&str> = names.iter().copied().collect();
    let folder = std::env::temp_dir().join(format!("spile-flags-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, program) = (folder.join("flags.c"), folder.join("flags"));
    // Lines with unknown names go, until the compiler takes the rest.
    while !names.is_empty() {
        let print =
            |n: &&str| format!("printf(\"{n} %lld %d\\n\", (long long)({n}), sizeof({n}) == 4);\n");
        let text: String = names.iter().map(print).collect();
        std::fs::write(&source, format!("{start}{text}}}\n")).expect("a source");
        let mut compiler = Command::new("cc");
        compiler.args(["-w", "-fmax-errors=0", "-o"]).arg(&program);
        let output = compiler.arg(&source).stdin(Stdio::null()).output().ok()?;
        if output.status.success() {
            break;
        }
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = |error: &str| {
            let (line, rest) = error.strip_prefix(source.to_str()?)?[1..].split_once(':')?;
            rest.contains("error:")
                .then(|| line.parse::<usize>().ok())?
        };
        let wrong: HashSet<usize> = errors.lines().filter_map(line).collect();
        assert!(!wrong.is_empty(), "{errors}");
        let first = start.lines().count() + 1;
        let lines = names.iter().zip(first..);
        let known = lines.filter(|(_, line)| !wrong.contains(line));
        names = known.map(|(name, _)| *name).collect();
    }
    let output = Command::new(&program).output().expect("it runs").stdout;
    std::fs::remove_dir_all(&folder).expect("removed");
    let value = |line: &str| {
        let mut words = line.split(' ');
        let (name, value) = (words.next()?, words.next()?.parse().ok()?);
        Some((name.to_owned(), (value, words.next()? == "1")))
    };
    Some(
        String::from_utf8_lossy(&output)
            .lines()
            .filter_map(value)
            .collect(),
    )
}

#[test]
fn flags_have_the_values_of_the_headers() {
    let is_name = |name: &&str| {
        let mut chars = name.bytes();
        !name.as_bytes()[0].is_ascii_digit()
            && chars.all(|c| c.is_ascii_alphanumeric() || c == b'_')
    };
    let flags = tables::FLAGS.iter().flat_map(|table| table.flags);
    let mut names: HashSet<&str> = flags.map(|flag| flag.name).filter(is_name).collect();
    names.retain(|name| !OTHERS.contains(name));
    let mut known = HashMap::new();
    for headers in PROGRAMS {
        let Some(found) = values(headers, &names) else {
            spile_testing::skip!("no C compiler");
        };
        names.retain(|name| !found.contains_key(*name));
        known.extend(found);
    }
    let mut wrong = Vec::new();
    for table in tables::FLAGS {
        for flag in table.flags {
            let Some((value, int)) = known.get(flag.name) else {
                continue;
            };
            // A set of signals has a bit for each.
            let value = match table.name {
                "sigset" => 1 << (value - 1),
                _ => *value,
            };
            let same = |other: i64| match int {
                true => other as i32 == value as i32,
                false => other == value,
            };
            // One of the entries of a name has its value.
            let entries = table.flags.iter().filter(|other| other.name == flag.name);
            if !entries.map(|other| other.value).any(same) {
                wrong.push(format!("{} {}: {value:#x}", table.name, flag.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(known.len() > 1300, "{}", known.len());
}

/// Structures of the tables with the C types that they describe, and the headers that declare them.
const STRUCTURES: [(&str, &str, &str); 9] = [
    ("stack", "stack_t", "linux/signal.h"),
    ("sysinfo", "struct sysinfo", "linux/sysinfo.h"),
    ("tms", "struct tms", "linux/times.h"),
    ("timex", "struct timex", "linux/timex.h"),
    ("sched_attr", "struct sched_attr", "linux/sched/types.h"),
    ("dqblk", "struct if_dqblk", "linux/quota.h"),
    ("dqinfo", "struct if_dqinfo", "linux/quota.h"),
    ("siginfo", "siginfo_t", "linux/signal.h"),
    ("user_desc", "struct user_desc", "asm/ldt.h"),
];

/// Claims about the fields of the structures that programs with longs of `word` bits have.
fn claims(word: &str) -> (String, usize) {
    let mut source = "#include <stddef.h>\n".to_owned();
    let mut fields = 0;
    for (name, ty, header) in STRUCTURES {
        source.push_str(&format!("#include <{header}>\n"));
        let own = |s: &&Structure| {
            [name.to_owned(), format!("{name}.{word}")].contains(&s.name.to_owned())
        };
        let of = tables::STRUCTURES.iter().find(own).expect(name);
        for (before, field) in of.texts.iter().flat_map(|text| text.fields) {
            // The name of the field stands in front of it.
            let Some(text) = before.strip_suffix('=').filter(|_| field.bits % 8 == 0) else {
                continue;
            };
            let start = text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let member = &text[start.map_or(0, |at| at + 1)..];
            let (offset, bits) = (field.offset, field.bits);
            source.push_str(&format!(
                "_Static_assert(offsetof({ty}, {member}) == {offset}, \"{name}\");\n\
                 _Static_assert(8 * sizeof((({ty} *)0)->{member}) == {bits}, \"{name}\");\n"
            ));
            fields += 1;
        }
    }
    (source, fields)
}

#[test]
fn fields_are_where_the_headers_have_them() {
    if !cfg!(target_arch = "x86_64") {
        spile_testing::skip!("the structures are those of x86-64 and i386");
    }
    for word in ["64", "32"] {
        let (source, fields) = claims(word);
        let mut compiler = Command::new("cc");
        compiler.args([&format!("-m{word}"), "-w", "-fsyntax-only", "-x", "c", "-"]);
        // Debian has the headers of both kinds of programs there.
        compiler.args(["-idirafter", "/usr/include/x86_64-linux-gnu"]);
        let piped = compiler
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut compiler) = piped else {
            spile_testing::skip!("no C compiler");
        };
        let mut input = compiler.stdin.take().expect("piped");
        input
            .write_all(source.as_bytes())
            .expect("the compiler reads");
        drop(input);
        let output = compiler.wait_with_output().expect("it ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{word}: {errors}");
        assert!(fields > 50, "{word}: {fields}");
    }
}
