//! The tables of system calls against libc's numbers and the running kernel.

mod headers;

use std::collections::HashSet;
use std::fmt::Write as _;

use spile_abi::{AARCH64, HOST, X86_64};
use spile_kernel::tracepoints::Tracefs;

use super::model::{COMPAT, IPC, SOCKETCALL};
use super::*;

/// The highest number of the kernel's own tables.
const MAX_NR: u32 = 469;

/// A structure of programs with 64 bits.
fn structure(name: &str) -> Option<&'static Structure> {
    let mut all = tables::STRUCTURES.iter();
    all.find(|s| s.name.strip_suffix(".64").unwrap_or(s.name) == name)
}

/// The calls of a table that `syscall.NAME` selects, of 32-bit programs or others.
fn selected(compat: bool, name: &str) -> impl Iterator<Item = &'static Syscall> {
    let of_name = move |c: &&Syscall| [c.name, c.probe, c.point].contains(&name);
    let own = of(&X86_64).iter().filter(move |c| c.is_compat() == compat);
    own.filter(of_name)
}

fn native(name: &str) -> &'static Syscall {
    selected(false, name).next().expect(name)
}

fn compat(name: &str) -> &'static Syscall {
    selected(true, name).next().expect(name)
}

fn numbered(calls: &'static [Syscall], nr: u32) -> Option<&'static Syscall> {
    calls.iter().find(|call| call.nr == nr)
}

/// A single choice by name; a number if it has none.
fn show_choice(of: &FlagTable, value: i64) -> String {
    match of.flags.iter().find(|flag| flag.value == value) {
        Some(flag) => flag.name.to_owned(),
        None if of.decimal => value.to_string(),
        None => format!("{value:#x}"),
    }
}

/// A set of flags joined by `|`, with unnamed bits in hexadecimal, or in octal where the table says
/// so. A flag whose bits are all in another flag that is set is left out.
fn show_set(of: &FlagTable, value: i64) -> String {
    let mut text = String::new();
    let mut rest = value;
    let there = |flag: &Flag| value & flag.mask == flag.value;
    for flag in of.flags.iter().filter(|flag| there(flag)) {
        let within = |other: &Flag| {
            other.mask != flag.mask && other.mask & flag.mask == flag.mask && there(other)
        };
        if of
            .flags
            .iter()
            .any(|other| other.value != 0 && within(other))
        {
            continue;
        }
        rest &= !flag.mask;
        if !text.is_empty() {
            text.push('|');
        }
        text.push_str(flag.name);
    }
    let permissions = rest & of.octal.cast_signed();
    let number = rest & of.number.cast_signed();
    let high = rest & !permissions & !number;
    let mut add = |number: &str| {
        let bar = if text.is_empty() { "" } else { "|" };
        let _ = write!(text, "{bar}{number}");
    };
    if high != 0 {
        add(&format!("{high:#x}"));
    }
    if of.number != 0 {
        add(&number.to_string());
    }
    if permissions != 0 {
        add(&format!("0{permissions:o}"));
    }
    if text.is_empty() {
        text.push_str(if of.octal == 0 { "0x0" } else { "0" });
    }
    text
}

#[test]
fn calls_have_numbers_and_words() {
    for (calls, least) in [(of(&X86_64), 800), (of(&AARCH64), 300)] {
        assert!(calls.len() > least);
        assert!(
            calls.is_sorted_by(|a, b| a.nr < b.nr),
            "a number stands twice"
        );
        let last = |end| calls.iter().map(|c| c.nr).filter(move |nr| *nr < end).max();
        assert_eq!(last(COMPAT), Some(MAX_NR));
        for call in calls {
            let words = call.args.last().map_or(0, |a| a.word + 1);
            assert!(words <= 6, "{}", call.name);
            for arg in call.args {
                if let ArgKind::Buf(len) | ArgKind::Sockaddr(len) = arg.kind {
                    assert!(len < words, "{}", call.name);
                }
            }
        }
    }
    for call in of(HOST) {
        assert_eq!(by_nr(call.nr), Some(call));
    }
    assert_eq!(by_nr(400), None);
    assert_eq!(by_nr(u32::MAX), None);
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
            assert_eq!(i64::from(native(name).nr), nr, "{name}");
        }
    }
}

/// The numbers agree with the kernel's headers, where they are installed.
#[test]
fn numbers_are_those_of_the_headers() {
    let dirs = [
        "/usr/include/x86_64-linux-gnu/asm",
        "/usr/include/asm",
        "/usr/include/asm-generic",
    ];
    for (calls, base, file) in [
        (of(&X86_64), 0, "unistd_64.h"),
        (of(&X86_64), COMPAT, "unistd_32.h"),
        (of(&AARCH64), 0, "unistd.h"),
    ] {
        let texts = dirs
            .iter()
            .map(|d| std::fs::read_to_string(format!("{d}/{file}")));
        // The last of them is asm-generic's, of which aarch64's are made.
        let Some(text) = texts.filter_map(Result::ok).next_back() else {
            spile_testing::skip!("no {file}");
        };
        let mut seen = 0;
        let defined = |line: &'static str| {
            let line = line.strip_prefix("#define __NR")?;
            let (name, nr) = line.split_once(' ')?;
            let name = name.strip_prefix("3264").unwrap_or(name);
            Some((name.strip_prefix('_')?, nr.trim().parse::<u32>().ok()?))
        };
        for (name, nr) in text.leak().lines().filter_map(defined) {
            // No calls, and those of other processors.
            let others = ["syscalls", "arch_specific_syscall", "sync_file_range2"];
            if others.contains(&name) || file == "unistd.h" && name.ends_with("time64") {
                continue;
            }
            let found = numbered(calls, base + nr).map(|c| c.name);
            // The names of some for 64 bits.
            let name = match name {
                "fstatat" if base == 0 => "newfstatat",
                name => name,
            };
            assert_eq!(found, Some(name), "{file} {nr}");
            seen += 1;
        }
        assert!(seen > 290, "{file}");
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
    for call in of(&X86_64).iter().filter(|c| !c.is_compat()) {
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
                ArgKind::Int(32) | ArgKind::Choice(_) => bits_of(ty) == 64,
                ArgKind::Flags(t) if t.name == "mempolicy_mode" => bits_of(ty) == 64,
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
    let open = native("openat");
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
    let write = native("write");
    assert_eq!(form(write, "buf_uaddr"), Some((1, ArgForm::Value)));
    assert_eq!(form(write, "buf_str"), Some((1, ArgForm::Text)));
    let sleep = native("nanosleep");
    assert_eq!(form(sleep, "req_str"), Some((0, ArgForm::Text)));
    assert_eq!(form(sleep, "req_uaddr"), Some((0, ArgForm::Value)));
    assert_eq!(form(write, "count_str"), Some((2, ArgForm::TextOnly)));
    let kill = native("kill");
    assert_eq!(form(kill, "sig_name"), Some((1, ArgForm::SignalName)));
    assert_eq!(form(kill, "sig_str"), Some((1, ArgForm::Text)));
    let xattr = native("setxattr");
    assert_eq!(form(xattr, "name_str"), Some((1, ArgForm::Text)));
    assert_eq!(form(xattr, "name_uaddr"), Some((1, ArgForm::Address)));
}

/// The variables besides the arguments.
#[test]
fn further_variables_are_those_of_the_call() {
    let value = |call: &'static Syscall, variable: &str| {
        let mut all = call.variables.iter();
        all.find(|v| v.name == variable).map(|v| v.value)
    };
    let utime = "_struct_utimbuf_actime(buf_uaddr)";
    assert_eq!(value(native("utime"), "actime"), Some(utime));
    let short = "_struct_compat_utimbuf_actime(buf_uaddr)";
    assert_eq!(value(compat("utime"), "actime"), Some(short));
    assert_eq!(value(native("shmat"), "first"), None);
    assert_eq!(value(compat("shmat"), "first"), Some("shmid"));
    // It is an argument of `dup3`.
    assert_eq!(value(native("dup2"), "flags"), Some("0"));
    assert_eq!(value(native("dup3"), "flags"), None);
    let data = native("ptrace").variables;
    assert!(data.iter().all(|v| v.at_return && !v.text), "{data:?}");
}

#[test]
fn names_of_probe_points_lead_to_calls() {
    let names = |compat, name| {
        let base = if compat { COMPAT } else { 0 };
        let own = selected(compat, name).map(move |c| c.nr - base);
        own.collect::<Vec<_>>()
    };
    let (socketcall, ipc) = (SOCKETCALL - COMPAT, IPC - COMPAT);
    assert_eq!(names(false, "pread"), [17]);
    assert_eq!(names(false, "pread64"), [17]);
    assert_eq!(names(true, "fstat"), [28, 108, 197]);
    assert_eq!(names(true, "connect"), [362, socketcall + 3]);
    assert_eq!(names(true, "msgrcv"), [401, ipc + 12, ipc + 28]);
    assert_eq!(names(true, "send"), [socketcall + 9]);
    assert!(names(false, "recv").is_empty());
    assert_eq!(native("mmap").ret, ResultForm::Hex);
    assert_eq!(native("exit_group").ret, ResultForm::Never);
}

#[test]
fn compat_words_are_short() {
    let pread = numbered(of(&X86_64), COMPAT + 180).expect("pread64");
    assert_eq!(pread.args[3].kind, ArgKind::Pair(NumberBase::Signed));
    let fallocate = numbered(of(&X86_64), COMPAT + 324).expect("fallocate");
    assert_eq!(
        fallocate.args.iter().map(|a| a.word).collect::<Vec<_>>(),
        [0, 1, 2, 4]
    );
    assert_eq!(
        numbered(of(&X86_64), COMPAT + 3).expect("read").args[2].kind,
        ArgKind::Uint(32)
    );
    assert_eq!(
        numbered(of(&X86_64), 0).expect("read").args[2].kind,
        ArgKind::Uint(64)
    );
    assert_eq!(
        numbered(of(&X86_64), COMPAT + 162).expect("nanosleep").args[0].kind,
        ArgKind::Timespec(32)
    );
    assert_eq!(
        numbered(of(&X86_64), COMPAT + 407).expect("time64").args[2].kind,
        ArgKind::Timespec(64)
    );
}

#[test]
fn flags_are_found_by_name() {
    let set = |table, value| show_set(flag_table(table).expect(table), value);
    let choice = |table, value| show_choice(flag_table(table).expect(table), value);
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
    let mut decided = 0;
    for call in of(&X86_64).iter().chain(of(&AARCH64)) {
        if let Some(variants) = call.variants {
            decided += 1;
            assert!(usize::from(variants.word) < call.args.len());
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
            }
        }
    }
    assert!(decided > 10);
}

/// Sizes are those of the C library's structures on x86-64.
#[test]
fn structures_have_the_sizes_of_libc() {
    use std::mem::size_of;
    let size = |name: &str| structure(name).map(|s| usize::from(s.size));
    assert_eq!(size("rlimit"), Some(size_of::<libc::rlimit>()));
    assert_eq!(size("timevals"), Some(2 * size_of::<libc::timeval>()));
    assert_eq!(size("timespecs"), Some(2 * size_of::<libc::timespec>()));
    assert_eq!(size("iovec"), Some(size_of::<libc::iovec>()));
}

#[test]
fn flags_of_processors_differ() {
    let set = |abi, table, value| show_set(flag_table_of(abi, table).expect(table), value);
    assert_eq!(set(&X86_64, "open", 0x10000), "O_RDONLY|O_DIRECTORY");
    assert_eq!(set(&AARCH64, "open", 0x10000), "O_RDONLY|O_DIRECT");
    assert_eq!(set(&AARCH64, "prot", 0x11), "PROT_READ|PROT_BTI");
    let flags = flag_table_of(&AARCH64, "map").expect("a table").flags;
    assert!(flags.iter().all(|flag| flag.name != "MAP_32BIT"));
    let openat = of(&AARCH64).iter().find(|call| call.name == "openat");
    let kind = openat.expect("a call").args[2].kind;
    assert!(matches!(kind, ArgKind::Flags(table) if table.name == "open@aarch64"));
}
