//! The tables of system calls against libc's numbers and the running kernel.

use std::collections::HashSet;

use super::*;
use crate::tracepoints::Tracefs;

/// A structure of programs with 64 bits.
fn structure(name: &str) -> Option<&'static Structure> {
    let mut all = tables::STRUCTURES.iter();
    all.find(|s| s.name.strip_suffix(".64").unwrap_or(s.name) == name)
}

fn call(abi: Abi, name: &str) -> &'static Syscall {
    by_name(abi, name).next().expect(name)
}

#[test]
fn calls_have_numbers_and_words_and_known_flags() {
    for abi in [Abi::X86_64, Abi::I386] {
        let rows = all(abi).len();
        assert!(rows > 350);
        let own = all(abi).iter().map(|c| c.nr).filter(|nr| *nr < SOCKETCALL);
        assert_eq!(own.max(), Some(MAX_NR));
        let numbers: HashSet<u32> = all(abi).iter().map(|c| c.nr).collect();
        assert_eq!(numbers.len(), rows, "a number stands twice");
        for call in all(abi) {
            assert_eq!(by_nr(abi, call.nr), Some(call));
            let words = call.args.last().map_or(0, |a| a.word + 1);
            assert!(words <= 6, "{}", call.name);
            for arg in call.args {
                if let ArgKind::Flags(t) | ArgKind::Choice(t) = arg.kind {
                    assert!(flag_table(t).is_some(), "{} needs table {t}", call.name);
                }
                if let ArgKind::Buf(len) | ArgKind::Sockaddr(len) = arg.kind {
                    assert!(len < words, "{}", call.name);
                }
            }
        }
    }
    assert_eq!(by_nr(Abi::X86_64, 400), None);
    assert_eq!(by_nr(Abi::X86_64, u32::MAX), None);
}

#[test]
fn numbers_are_those_of_libc() {
    for (name, nr) in [
        ("read", libc::SYS_read),
        ("execve", libc::SYS_execve),
        ("openat", libc::SYS_openat),
        ("futex", libc::SYS_futex),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("bpf", libc::SYS_bpf),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
        ("clone3", libc::SYS_clone3),
        ("futex_waitv", libc::SYS_futex_waitv),
        ("cachestat", 451),
        ("mseal", libc::SYS_mseal),
        ("file_setattr", 469),
    ] {
        if cfg!(target_arch = "x86_64") {
            assert_eq!(i64::from(call(Abi::X86_64, name).nr), nr, "{name}");
        }
    }
}

/// The numbers agree with the C library's headers, where they are installed.
#[test]
fn numbers_are_those_of_the_headers() {
    let dirs = ["/usr/include/x86_64-linux-gnu/asm", "/usr/include/asm"];
    for (abi, file) in [(Abi::X86_64, "unistd_64.h"), (Abi::I386, "unistd_32.h")] {
        let Some(text) = dirs
            .iter()
            .find_map(|d| std::fs::read_to_string(format!("{d}/{file}")).ok())
        else {
            spile_testing::skip!("no {file}");
        };
        let mut seen = 0;
        for line in text.lines() {
            let Some((name, nr)) = line
                .strip_prefix("#define __NR_")
                .and_then(|l| l.split_once(' '))
            else {
                continue;
            };
            let Ok(nr) = nr.trim().parse() else { continue };
            assert_eq!(by_nr(abi, nr).map(|c| c.name), Some(name), "{file} {nr}");
            seen += 1;
        }
        assert!(seen > 350, "{file}");
    }
}

/// The width in bits of a parameter's C type.
fn bits_of(ty: &str) -> u8 {
    const LONG: [&str; 9] = [
        "*",
        "long",
        "size_t",
        "loff_t",
        "off_t",
        "aio_context_t",
        "u64",
        "cap_user_header_t",
        "cap_user_data_t",
    ];
    match ty.trim_start_matches("const ") {
        "umode_t" => 16,
        ty if LONG.iter().any(|long| ty.contains(long)) => 64,
        _ => 32,
    }
}

/// The kernel describes the parameters of its system calls in tracefs.
#[test]
fn parameters_are_those_of_the_running_kernel() {
    let fs = match Tracefs::open() {
        Ok(fs) => fs,
        Err(why) => spile_testing::skip!("{why}"),
    };
    let mut checked = 0;
    for call in all(Abi::X86_64) {
        let path = format!("events/syscalls/sys_enter_{}/format", call.entry);
        let Ok(text) = fs.read(&path) else { continue };
        let fields: Vec<(&str, &str)> = text
            .lines()
            .skip_while(|l| !l.contains("__syscall_nr"))
            .skip(1)
            .filter_map(|l| {
                l.trim()
                    .strip_prefix("field:")?
                    .split(';')
                    .next()?
                    .rsplit_once(' ')
            })
            .collect();
        let ours: Vec<&str> = call.args.iter().map(|a| a.kernel_name).collect();
        let theirs: Vec<&str> = fields.iter().map(|f| f.1).collect();
        assert_eq!(ours, theirs, "{}", call.name);
        for (arg, (ty, _)) in call.args.iter().zip(&fields) {
            // Declared long for historical reasons, and used as an int: descriptors, pids, counts.
            // Modes have 32 bits in programs, of which the kernel takes 16.
            let narrowed = match arg.kind {
                ArgKind::Int(32) | ArgKind::Choice(_) | ArgKind::Flags("mempolicy_mode") => {
                    bits_of(ty) == 64
                }
                ArgKind::Mode => bits_of(ty) == 16,
                ArgKind::Packed(of) if of.name == "file_mode" => bits_of(ty) == 16,
                _ => false,
            };
            assert!(
                narrowed || bits_of(ty) == arg.bits,
                "{} {}: {ty}",
                call.name,
                arg.name
            );
        }
        checked += 1;
    }
    if checked == 0 {
        spile_testing::skip!("no events/syscalls");
    }
}

#[test]
fn variables_of_a_call_have_words_and_forms() {
    let open = call(Abi::X86_64, "openat");
    let form = |call: &Syscall, name| call.variable(name).map(|(a, f)| (a.word, f));
    assert_eq!(form(open, "dfd"), Some((0, ArgForm::Value)));
    assert_eq!(form(open, "dfd_str"), Some((0, ArgForm::Text)));
    assert_eq!(form(open, "filename"), Some((1, ArgForm::Text)));
    assert_eq!(
        form(open, "filename_unquoted"),
        Some((1, ArgForm::Unquoted))
    );
    assert_eq!(form(open, "filename_uaddr"), Some((1, ArgForm::Address)));
    assert_eq!(form(open, "flags"), Some((2, ArgForm::Value)));
    assert_eq!(form(open, "flags_str"), Some((2, ArgForm::Text)));
    assert_eq!(form(open, "nope"), None);
    let write = call(Abi::X86_64, "write");
    assert_eq!(form(write, "buf_uaddr"), Some((1, ArgForm::Value)));
    assert_eq!(form(write, "buf_str"), Some((1, ArgForm::Text)));
    let sleep = call(Abi::X86_64, "nanosleep");
    assert_eq!(form(sleep, "req_str"), Some((0, ArgForm::Text)));
    assert_eq!(form(sleep, "req_uaddr"), Some((0, ArgForm::Value)));
    assert_eq!(form(write, "count_str"), None);
    let kill = call(Abi::X86_64, "kill");
    assert_eq!(form(kill, "sig_name"), Some((1, ArgForm::Text)));
    let xattr = call(Abi::X86_64, "setxattr");
    assert_eq!(form(xattr, "name_str"), Some((1, ArgForm::Text)));
    assert_eq!(form(xattr, "name_uaddr"), Some((1, ArgForm::Address)));
    assert_eq!(
        open.kernel_argument("mode").map(|a| a.kind),
        Some(ArgKind::Mode)
    );
    assert_eq!(write.kernel_argument("buf").map(|a| a.word), Some(1));
}

/// The variables besides the arguments.
#[test]
fn further_variables_are_those_of_the_call() {
    let value = |abi, name, variable: &str| {
        let all = variables(call(abi, name));
        all.into_iter()
            .find(|v| v.name == variable)
            .map(|v| v.value)
    };
    let utime = "_struct_utimbuf_actime(buf_uaddr)";
    assert_eq!(value(Abi::X86_64, "utime", "actime"), Some(utime));
    let short = "_struct_compat_utimbuf_actime(buf_uaddr)";
    assert_eq!(value(Abi::I386, "utime", "actime"), Some(short));
    assert_eq!(value(Abi::X86_64, "shmat", "first"), None);
    assert_eq!(value(Abi::I386, "shmat", "first"), Some("shmid"));
    // It is an argument of `dup3`.
    assert_eq!(value(Abi::X86_64, "dup2", "flags"), Some("0"));
    assert_eq!(value(Abi::X86_64, "dup3", "flags"), None);
    let data = variables(call(Abi::X86_64, "ptrace"));
    assert!(data.iter().all(|v| v.at_return && !v.text), "{data:?}");
}

#[test]
fn names_of_probe_points_lead_to_calls() {
    let names = |abi, name| by_name(abi, name).map(|c| c.nr).collect::<Vec<_>>();
    assert_eq!(names(Abi::X86_64, "pread"), [17]);
    assert_eq!(names(Abi::X86_64, "pread64"), [17]);
    assert_eq!(names(Abi::I386, "fstat"), [28, 108, 197]);
    assert_eq!(names(Abi::I386, "compat_nanosleep"), [162]);
    assert!(names(Abi::X86_64, "compat_nanosleep").is_empty());
    assert_eq!(names(Abi::I386, "connect"), [362, SOCKETCALL + 3]);
    assert_eq!(names(Abi::I386, "msgrcv"), [401, IPC + 12, IPC + 28]);
    assert_eq!(names(Abi::I386, "send"), [SOCKETCALL + 9]);
    assert!(names(Abi::X86_64, "recv").is_empty());
    assert_eq!(call(Abi::X86_64, "mmap").ret, ResultForm::Hex);
    assert_eq!(call(Abi::X86_64, "exit_group").ret, ResultForm::Never);
}

#[test]
fn compat_words_are_short() {
    let pread = by_nr(Abi::I386, 180).expect("pread64");
    assert_eq!(pread.args[3].kind, ArgKind::Pair(Base::Signed));
    let fallocate = by_nr(Abi::I386, 324).expect("fallocate");
    assert_eq!(
        fallocate.args.iter().map(|a| a.word).collect::<Vec<_>>(),
        [0, 1, 2, 4]
    );
    assert_eq!(
        by_nr(Abi::I386, 3).expect("read").args[2].kind,
        ArgKind::Uint(32)
    );
    assert_eq!(
        by_nr(Abi::X86_64, 0).expect("read").args[2].kind,
        ArgKind::Uint(64)
    );
    assert_eq!(
        by_nr(Abi::I386, 162).expect("nanosleep").args[0].kind,
        ArgKind::Timespec(32)
    );
    assert_eq!(
        by_nr(Abi::I386, 407).expect("time64").args[2].kind,
        ArgKind::Timespec(64)
    );
}

#[test]
fn flags_are_found_by_name() {
    let set = |table, value| flag_table(table).expect(table).show_set(value);
    let choice = |table, value| flag_table(table).expect(table).show_choice(value);
    assert_eq!(set("open", 0), "O_RDONLY");
    assert_eq!(set("open", 0x80241), "O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC");
    assert_eq!(set("open", 0x101002), "O_RDWR|O_SYNC");
    assert_eq!(set("open", 1 << 40), "O_RDONLY|0x10000000000");
    assert_eq!(set("access", 0), "F_OK");
    assert_eq!(set("ipcget", 0o1600), "IPC_CREAT|0600");
    assert_eq!(set("ipcget", 1 << 20 | 0o400), "0x100000|0400");
    assert_eq!(set("ipcget", 0), "0");
    assert_eq!(set("prot", 3), "PROT_READ|PROT_WRITE");
    assert_eq!(set("map", 0x22), "MAP_PRIVATE|MAP_ANONYMOUS");
    assert_eq!(set("prot", 0), "PROT_NONE");
    assert_eq!(set("prot", 0x300_0000), "PROT_GROWSDOWN|PROT_GROWSUP");
    // Any bit of several has the name.
    assert_eq!(set("open", 0x1000), "O_RDONLY|O_SYNC");
    assert_eq!(set("open", 0x10_0003), "O_RDONLY|O_SYNC");
    assert_eq!(set("sched", 0x4000_0001), "SCHED_RESET_ON_FORK|SCHED_FIFO");
    assert_eq!(set("sched", 0xffff_ffff), "0xffffffff");
    assert_eq!(set("msgcmd", 0x100), "IPC_64|IPC_RMID");
    assert_eq!(set("shmget", 0o600), "0x0|0600");
    assert_eq!(choice("futex", 0x81), "FUTEX_WAKE_PRIVATE");
    assert_eq!(choice("futex", 0x106), "0x106");
    assert_eq!(
        set("fork", 0x1200011),
        "CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD"
    );
    assert_eq!(set("msg", 0), "0x0");
    assert_eq!(choice("seek", 0), "SEEK_SET");
    assert_eq!(choice("rlimit", 7), "RLIMIT_NOFILE");
    assert_eq!(choice("rusage", -1), "RUSAGE_CHILDREN");
    assert_eq!(choice("seek", 77), "0x4d");
    assert_eq!(choice("ipproto", 77), "77");
}

#[test]
fn structures_and_variants_fit_the_code_generator() {
    assert_eq!(variables::unknown_lines(), Vec::<&str>::new());
    let known = |kind: ArgKind| match kind {
        ArgKind::Flags(t) | ArgKind::Choice(t) => flag_table(t).is_some(),
        _ => true,
    };
    let mut decided = 0;
    for call in [Abi::X86_64, Abi::I386].iter().flat_map(|abi| all(*abi)) {
        if let Some(variants) = variants(call) {
            decided += 1;
            assert!(usize::from(variants.word) < call.args.len());
            let args = variants.cases.iter().flat_map(|case| case.args);
            for arg in args {
                assert!(known(arg.kind), "{} {:?}", call.name, arg.kind);
            }
            let values = variants.cases.iter().flat_map(|case| case.values);
            let values: Vec<&u64> = values.collect();
            let distinct: HashSet<&u64> = values.iter().copied().collect();
            assert_eq!(distinct.len(), values.len(), "{}: a value twice", call.name);
            assert!(values.len() <= 128, "{}", call.name);
        }
        for arg in call.args {
            let (ArgKind::Struct(of) | ArgKind::Braced(of) | ArgKind::Packed(of)) = arg.kind else {
                continue;
            };
            assert!(of.size <= 127, "{}", of.name);
            let last = of.texts.last().expect("a text");
            assert!(
                last.when.is_empty(),
                "{}: no text without a condition",
                of.name
            );
            for text in of.texts {
                let entries: usize = of.texts.iter().map(|t| t.when.len()).sum();
                assert!(entries + text.fields.len() < 30, "{}", of.name);
                for (_, field) in text.fields {
                    if let FieldKind::Value(kind) = field.kind {
                        assert!(known(kind), "{} {kind:?}", of.name);
                    }
                }
            }
        }
    }
    assert!(decided > 10);
}

/// Offsets and sizes are those of the C library's structures on x86-64.
#[test]
fn structures_have_the_fields_of_libc() {
    use std::mem::{offset_of, size_of};
    let field = |name: &str, before: &str| {
        let of = structure(name).unwrap_or_else(|| panic!("{name}"));
        let fields = of.texts.iter().flat_map(|t| t.fields);
        let mut fields = fields.rev();
        let found = fields.find(|(text, _)| text.ends_with(before));
        usize::from(found.unwrap_or_else(|| panic!("{name} {before}")).1.offset)
    };
    for (name, before, offset) in [
        ("stack", "ss_flags=", offset_of!(libc::stack_t, ss_flags)),
        ("stack", "ss_size=", offset_of!(libc::stack_t, ss_size)),
        ("sysinfo", "totalram=", offset_of!(libc::sysinfo, totalram)),
        ("sysinfo", "freeswap=", offset_of!(libc::sysinfo, freeswap)),
        ("sysinfo", "procs=", offset_of!(libc::sysinfo, procs)),
        ("tms", "tms_cstime=", offset_of!(libc::tms, tms_cstime)),
        ("timex", "freq=", offset_of!(libc::timex, freq)),
        ("timex", "status=", offset_of!(libc::timex, status)),
        ("timex", "constant=", offset_of!(libc::timex, constant)),
        ("timex", "tolerance=", offset_of!(libc::timex, tolerance)),
        ("timex", "tick=", offset_of!(libc::timex, tick)),
        (
            "dqblk",
            "dqb_isoftlimit=",
            offset_of!(libc::dqblk, dqb_isoftlimit),
        ),
        ("siginfo", "si_code=", offset_of!(libc::siginfo_t, si_code)),
    ] {
        assert_eq!(field(name, before), offset, "{name} {before}");
    }
    let size = |name: &str| structure(name).map(|s| usize::from(s.size));
    assert_eq!(size("rlimit"), Some(size_of::<libc::rlimit>()));
    assert_eq!(size("timevals"), Some(2 * size_of::<libc::timeval>()));
    assert_eq!(size("timespecs"), Some(2 * size_of::<libc::timespec>()));
    assert_eq!(size("iovec"), Some(size_of::<libc::iovec>()));
}
