//! Values of flags and fields of structures against the headers for programs, as the C compiler reads them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use spile_abi::{AARCH64, Abi, HOST, X86_64};

use super::super::{FlagTable, Structure, flag_table_of, tables};

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

/// The headers of aarch64 for other machines, in Debian's package `libc6-dev-arm64-cross`.
const CROSS: &str = "/usr/aarch64-linux-gnu/include";

/// A C compiler for a processor, with its arguments; `None` if it or its headers are not installed.
fn compiler(abi: &Abi) -> Option<Vec<&'static str>> {
    let compiler = match abi.name == HOST.name {
        true => vec!["cc", "-fmax-errors=0"],
        false => vec![
            "clang",
            "--target=aarch64-linux-gnu",
            "-ferror-limit=0",
            "-nostdlibinc",
            "-isystem",
            CROSS,
        ],
    };
    let headers = abi.name == HOST.name || abi.name == AARCH64.name && Path::new(CROSS).is_dir();
    let version = || Command::new(compiler[0]).arg("--version").output();
    (headers && version().is_ok()).then_some(compiler)
}

/// Gives a source to a compiler; its output and errors.
fn compile(compiler: &[&str], options: &[&str], source: &str) -> Output {
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(options);
    command.args(["-w", "-x", "c", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    let source = source.as_bytes().to_vec();
    let writer = std::thread::spawn(move || input.write_all(&source).expect("it reads"));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("written");
    output
}

/// The values of those names that a program with these headers knows, and whether they have 32 bits, from
/// strings in the compiler's assembly code: upper and lower half, and the size.
fn values(compiler: &[&str], headers: &str, names: &HashSet<&str>) -> HashMap<String, (i64, bool)> {
    let include = |header| format!("#if __has_include(<{header}>)\n#include <{header}>\n#endif\n");
    let mut start = "#define _GNU_SOURCE\n#include <stddef.h>\n#include <stdint.h>\n".to_owned();
    start.extend(headers.split_ascii_whitespace().map(include));
    start.push_str("void all(void) {\n");
    let mut names: Vec<&str> = names.iter().copied().collect();
    // Lines with unknown names go, until the compiler takes the rest.
    let output = loop {
        let line = |n: &&str| {
            let words = ["(long long)({n}) >> 32", "(int)({n})", "sizeof({n})"];
            let words = words.map(|w| format!("\"i\"({})", w.replace("{n}", n)));
            format!(
                "__asm__(\".ascii \\\"->{n} %c0 %c1 %c2\\\"\" :: {});\n",
                words.join(", ")
            )
        };
        let text: String = names.iter().map(line).collect();
        let output = compile(compiler, &["-S", "-o", "-"], &format!("{start}{text}}}\n"));
        if output.status.success() {
            break output.stdout;
        }
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = |error: &str| {
            let (line, rest) = error.strip_prefix("<stdin>:")?.split_once(':')?;
            rest.contains("error:")
                .then(|| line.parse::<usize>().ok())?
        };
        let wrong: HashSet<usize> = errors.lines().filter_map(line).collect();
        let first = start.lines().count() + 1;
        let lines = names.iter().zip(first..);
        let known = lines.filter(|(_, line)| !wrong.contains(line));
        let known: Vec<&str> = known.map(|(name, _)| *name).collect();
        assert!(known.len() < names.len(), "{errors}");
        names = known;
    };
    let value = |line: &str| {
        let (_, text) = line.split_once("->")?;
        let mut words = text.trim_end().trim_end_matches('"').split(' ');
        let name = words.next()?.to_owned();
        let [high, low, size] = [(); 3].map(|()| words.next()?.parse::<i64>().ok());
        let value = (high? << 32) | (low? & 0xffff_ffff);
        Some((name, (value, size? == 4)))
    };
    let text = String::from_utf8_lossy(&output);
    text.lines().filter_map(value).collect()
}

/// Compares the flags of a processor with its headers.
fn compare(abi: &Abi) {
    let Some(compiler) = compiler(abi) else {
        spile_testing::skip!("no C compiler with headers of {}", abi.name);
    };
    let names = tables::FLAGS
        .iter()
        .map(|table| table.name.split('@').next());
    let names: BTreeSet<&str> = names.flatten().collect();
    let own = names.iter().filter_map(|name| flag_table_of(abi, name));
    let own: Vec<&FlagTable> = own.collect();
    let is_name = |name: &&str| {
        let mut chars = name.bytes();
        !name.as_bytes()[0].is_ascii_digit()
            && chars.all(|c| c.is_ascii_alphanumeric() || c == b'_')
    };
    let flags = own.iter().flat_map(|table| table.flags);
    let mut names: HashSet<&str> = flags.map(|flag| flag.name).filter(is_name).collect();
    names.retain(|name| !OTHERS.contains(name));
    let mut known = HashMap::new();
    for headers in PROGRAMS {
        let found = values(&compiler, headers, &names);
        names.retain(|name| !found.contains_key(*name));
        known.extend(found);
    }
    let mut wrong = Vec::new();
    for table in own {
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

#[test]
fn flags_have_the_values_of_the_headers() {
    compare(HOST);
}

#[test]
fn flags_of_aarch64_have_the_values_of_its_headers() {
    compare(&AARCH64);
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

/// Claims about the fields of a processor's structures that programs with longs of `word` bits have.
fn claims(abi: &Abi, word: &str) -> (String, usize) {
    let mut source = "#include <stddef.h>\n".to_owned();
    let mut fields = 0;
    let own = |header: &str| abi.name == X86_64.name || !header.starts_with("asm/");
    for (name, ty, header) in STRUCTURES.into_iter().filter(|(_, _, h)| own(h)) {
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
    for (abi, word) in [(&X86_64, "64"), (&X86_64, "32"), (&AARCH64, "64")] {
        let (source, fields) = claims(abi, word);
        let Some(compiler) = compiler(abi) else {
            spile_testing::skip!("no C compiler with headers of {}", abi.name);
        };
        let size = format!("-m{word}");
        // Debian has the headers of both kinds of programs there.
        let x86 = [&*size, "-idirafter", "/usr/include/x86_64-linux-gnu"];
        let mut options = vec!["-fsyntax-only"];
        options.extend(x86.iter().filter(|_| abi.name == X86_64.name));
        let output = compile(&compiler, &options, &source);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {word}: {errors}", abi.name);
        assert!(fields > 50, "{word}: {fields}");
    }
}
