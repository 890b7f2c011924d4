//! Counts, results and exit statuses in programs of every kind.

use std::collections::BTreeMap;
use std::path::Path;

use spile_inject::{PtRegs, attach, attach_at_start};

use crate::image::Counting;
use crate::target::{SOURCES, Target, compile, printed, try_compile, usual};

const FUNCTIONS: [&str; 3] = ["plain", "relative", "floating"];

/// Hooks a program that waits, and compares.
fn running(program: &Path, words: &str, calls: u64) {
    let expected = printed(program, words);
    for handlers in [|c: &Counting| c.count, |c: &Counting| c.look] {
        let counting = Counting::new();
        let mut target = Target::start(program, words);
        let mut hooks = target.hooks(&FUNCTIONS, handlers(&counting));
        hooks.extend(target.hooks(&["bare"], handlers(&counting)));
        let before = target.code(&hooks);
        let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
        assert_eq!(attached.refused(), []);
        assert_ne!(target.code(&hooks), before);
        target.go();
        assert_eq!(target.until("signals"), expected);
        assert_eq!(counting.hits(), calls * 3 + 2, "{words}");
        assert_eq!((counting.skipped(), counting.strange()), (0, 0));
        attached.detach(&[]).unwrap();
        assert_eq!(target.code(&hooks), before);
        assert_eq!(target.own_maps(), [""; 0]);
        assert_eq!(target.end().code(), Some(7));
    }
}

#[test]
fn programs_of_every_kind() {
    let kinds = [
        "-O2",
        "-O0",
        "-O2 -static",
        "-O2 -static-pie",
        "-O2 -no-pie -fno-pie",
        "-O2 -fcf-protection=full",
    ];
    for kind in kinds {
        running(
            &compile(&format!("gcc {kind} -pthread"), "hooked.c"),
            "8 20000",
            160_000,
        );
    }
    if let Some(program) = try_compile("musl-gcc -O2 -static -pthread", "hooked.c") {
        running(&program, "8 20000", 160_000);
    }
}

/// Hooks a program that stands at its start, and compares. Some functions are called once.
fn from_the_start(program: &Path, words: &str, functions: (&[&str], u64), once: &[&str]) {
    let expected = printed(program, words);
    let counting = Counting::new();
    let mut target = Target::stopped(program, words);
    let mut hooks = target.hooks(functions.0, counting.look);
    hooks.extend(target.hooks(once, counting.count));
    let attached = attach_at_start(target.pid(), &counting.image(), &hooks).unwrap();
    target.release();
    assert!(target.line().starts_with("ready"));
    target.go();
    assert_eq!(target.until("signals"), expected);
    let others = (once.len() - attached.refused().len()) as u64;
    let refused = attached.refused();
    assert_eq!(counting.hits(), functions.1 + others, "{refused:?}");
    assert_eq!((counting.skipped(), counting.strange()), (0, 0));
    attached.detach(&[]).unwrap();
    assert_eq!(target.own_maps(), [""; 0]);
    assert_eq!(target.end().code(), Some(7));
}

#[test]
fn programs_from_their_start() {
    let functions = (&FUNCTIONS[..], 120_000);
    let once = ["main", "_start"];
    for kind in [
        "-O2",
        "-O2 -static",
        "-O2 -static-pie",
        "-O2 -no-pie -fno-pie",
    ] {
        let program = compile(&format!("gcc {kind} -pthread"), "hooked.c");
        from_the_start(&program, "4 10000", functions, &once);
    }
    for kind in ["-static", "-no-pie"] {
        if let Some(program) = try_compile(&format!("musl-gcc -O2 {kind} -pthread"), "hooked.c") {
            from_the_start(&program, "4 10000", functions, &once);
        }
    }
}

/// An image is near a program or near its libraries.
#[test]
fn libraries() {
    let mut target = Target::start(&usual(), "5 100");
    let counting = Counting::new();
    // Further away than a jump reaches.
    let function = target.hook_of("/libc.so", "pthread_create", counting.count);
    let mut hooks = target.hooks(&FUNCTIONS, counting.count);
    assert!(function.address.abs_diff(hooks[0].address) > 1 << 31);
    hooks.push(function);
    let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
    assert_eq!(attached.refused(), []);
    assert_eq!(attached.hooked(), hooks.len());
    target.go();
    target.until("signals");
    assert_eq!(counting.hits(), 1505);
    attached.detach(&[]).unwrap();
    assert_eq!(target.own_maps(), [""; 0]);
    assert_eq!(target.end().code(), Some(7));
}

#[test]
fn arguments_and_identities() {
    let counting = Counting::new();
    let mut target = Target::start(&usual(), "6 1000");
    let hooks = target.hooks(&["plain"], counting.look);
    let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
    target.go();
    target.until("signals");
    assert_eq!(counting.hits(), 6000);
    assert_eq!(counting.sum(), 6 * (0..1000).sum::<u64>());
    // Threads whose structure was free again share a record.
    let counts: Vec<u64> = counting.by_slot().into_iter().filter(|n| *n > 0).collect();
    assert!(counts.iter().all(|n| n % 1000 == 0), "{counts:?}");
    let records = counting.records();
    let used = records.iter().filter(|r| r.owner != 0);
    for record in used {
        assert_eq!(record.tgid, target.pid());
        assert_eq!(record.ppid, std::process::id());
        assert_eq!((record.busy, record.cookie), (0, 7));
        // SAFETY: no pointers.
        assert_eq!(record.uid, unsafe { libc::getuid() });
        assert!(record.comm.starts_with(b"program-"));
        assert_ne!(record.random, 0);
    }
    attached.detach(&[]).unwrap();
    target.end();
}

/// Children by each way have their own numbers.
#[test]
fn children_are_counted() {
    for (words, exact) in [
        ("fork", false),
        ("rawfork", false),
        ("vfork", true),
        // Its child has the numbers of its parent.
        ("vfork", false),
        ("fork", true),
    ] {
        let mut counting = Counting::new();
        if exact {
            counting = counting.exact();
        }
        let mut target = Target::start(&usual(), &format!("2 100 {words}"));
        let hooks = target.hooks(&["plain"], counting.look);
        let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
        target.go();
        target.until("signals");
        assert_eq!((counting.hits(), counting.strange()), (2200, 0), "{words}");
        attached.detach(&[]).unwrap();
        assert_eq!(target.end().code(), Some(7));
    }
}

#[test]
fn more_threads_than_records() {
    let counting = Counting::with_slots(4);
    let program = usual();
    let expected = printed(&program, "100 2000");
    let mut target = Target::start(&program, "100 2000");
    let hooks = target.hooks(&FUNCTIONS, counting.look);
    let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
    target.go();
    assert_eq!(target.until("signals"), expected);
    assert_eq!(
        (counting.hits(), counting.strange(), counting.skipped()),
        (600_000, 0, 0)
    );
    attached.detach(&[]).unwrap();
    assert_eq!(target.end().code(), Some(7));
}

#[test]
fn signals_within_handlers() {
    let program = usual();
    let expected = printed(&program, "8 100000");
    let counting = Counting::new();
    let mut target = Target::start(&program, "8 100000 signals");
    let mut hooks = target.hooks(&FUNCTIONS, counting.look);
    hooks.extend(target.hooks(&["signalled"], counting.look));
    let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
    target.go();
    let lines = target.until("signals");
    assert_eq!(lines[0], expected[0]);
    let signals: u64 = lines[1].split(' ').nth(1).unwrap().parse().unwrap();
    // Signals whose handler ran within ours are skipped, and nothing else.
    assert!(
        counting.skipped() > 0 && counting.skipped() < signals,
        "{signals}"
    );
    assert_eq!(counting.hits() + counting.skipped(), 2_400_000 + signals);
    assert_eq!(counting.strange(), 0);
    attached.detach(&[]).unwrap();
    assert_eq!(target.own_maps(), [""; 0]);
    assert_eq!(target.end().code(), Some(7));
}

/// A handler's registers are those of the function; those of its stack, too.
#[test]
fn registers_of_handlers() {
    let mut target = Target::start(&usual(), "1 1");
    let counting = Counting::new();
    let hook = target.hook("bare", counting.copy);
    let attached = attach(target.pid(), &counting.image(), &[hook]).unwrap();
    target.go();
    target.until("signals");
    let found = counting.registers();
    let register = |which: PtRegs| found[which as usize];
    let rest = [
        (PtRegs::Rax, 1),
        (PtRegs::Rbx, 2),
        (PtRegs::Rcx, 3),
        (PtRegs::Rdx, 4),
        (PtRegs::Rsi, 5),
        (PtRegs::Rbp, 6),
        (PtRegs::Rdi, 7),
        (PtRegs::R8, 8),
        (PtRegs::R9, 9),
        (PtRegs::R10, 10),
        (PtRegs::R11, 11),
        (PtRegs::R12, 12),
        (PtRegs::R13, 13),
        (PtRegs::R14, 14),
        (PtRegs::R15, 15),
        (PtRegs::Rip, hook.address),
        (PtRegs::Cs, 0x33),
        (PtRegs::Ss, 0x2b),
        (PtRegs::OrigRax, u64::MAX),
        (PtRegs::Eflags, 0xad7),
    ];
    for (which, value) in rest {
        assert_eq!(register(which), value, "{which:?}");
    }
    let maps = target.maps();
    let stack = maps.lines().find(|l| l.ends_with("[stack]")).unwrap();
    let (start, end) = stack.split(' ').next().unwrap().split_once('-').unwrap();
    let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
    assert!((number(start)..number(end)).contains(&register(PtRegs::Rsp)));
    assert_eq!(counting.hits(), 2);
    attached.detach(&[]).unwrap();
    target.end();
}

/// All functions of a program and of its C library, with signals and children.
#[test]
fn all_functions() {
    let program = compile("gcc -O2 -static -pthread", "hooked.c");
    for words in ["8 2000", "8 20000 signals", "2 100 fork", "2 100 vfork"] {
        let expected = printed(&program, words);
        let counting = Counting::new();
        let mut target = Target::start(&program, words);
        let hooks = target.all_hooks(&FUNCTIONS, counting.count);
        let before = target.code(&hooks);
        let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
        let mut reasons = BTreeMap::new();
        for (_, why) in attached.refused() {
            *reasons.entry(why.to_string()).or_insert(0) += 1;
        }
        println!(
            "{} of {}, stopped {:?}: {reasons:?}",
            attached.hooked(),
            hooks.len(),
            attached.stopped()
        );
        assert!(attached.hooked() * 10 > hooks.len() * 9);
        target.go();
        let lines = target.until("signals");
        let sum = |lines: &[String]| lines.iter().find(|l| l.starts_with("sum")).cloned();
        assert_eq!(sum(&lines), sum(&expected));
        assert!(counting.hits() > 100);
        println!("stopped {:?}", attached.detach(&[]).unwrap());
        assert_eq!(target.code(&hooks), before);
        assert_eq!(target.own_maps(), [""; 0]);
        assert_eq!(target.end().code(), Some(7));
    }
}

/// Go has small stacks that move, signals on a stack of their own, and no thread structure that tells a number.
#[test]
fn go_programs() {
    if std::env::var_os(SOURCES).is_some() {
        skip!("the other user compiles nothing with Go");
    }
    let program = compile("go build", "hooked.go");
    from_the_start(&program, "5 1000", (&["main.plain"], 5000), &[]);
    let expected = printed(&program, "20 10000");
    let counting = Counting::new();
    let mut target = Target::start(&program, "20 10000");
    let hooks = target.hooks(&["main.plain"], counting.look);
    let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
    target.go();
    assert_eq!(target.until("signals"), expected);
    assert_eq!(
        (counting.hits(), counting.strange(), counting.skipped()),
        (200_000, 0, 0)
    );
    attached.detach(&[]).unwrap();
    assert_eq!(target.own_maps(), [""; 0]);
    assert_eq!(target.end().code(), Some(7));
}
