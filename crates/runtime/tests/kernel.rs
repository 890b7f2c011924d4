//! Sessions with kernel handlers on the running kernel: from IR text through the compiler to exact
//! numbers. Skipped if BPF is not allowed.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spile_bpf::target::{Features, InterruptKfuncs, KernelOffsets, Target as Machine};
use spile_ir::Program;
use spile_runtime::io::output;
use spile_runtime::{Error, Outcome, Session, SessionHost, SessionOptions, TargetProcess};

/// A call without effect that hardly any program makes: skipped hits of others are counted, too.
const NR: i64 = libc::SYS_sched_get_priority_min;
/// Number of `getsid`, whose call ends a session.
const STOP: i64 = libc::SYS_getsid;

/// Serialises the sessions: they share this process's number, and its descriptors are counted.
static ONE: Mutex<()> = Mutex::new(());

/// The machine of the tests without kernel BTF, so that helpers are used.
fn machine() -> Machine {
    Machine {
        host: spile_ir::HostKind::Kernel,
        cpus: spile_kernel::machine::possible_cpus()
            .last()
            .map_or(1, |c| c + 1),
        ring_bytes: 1 << 18,
        timing: true,
        lines: true,
        offsets: KernelOffsets::default(),
        features: Features::SINCE_6_9,
        syscalls: &[],
        functions: Default::default(),
        share: None,
        abi: spile_abi::HOST,
        resident: false,
    }
}

/// Makes `calls` calls in each of `threads` threads once the probes are armed, then the call that
/// ends the session. The test is skipped if BPF is not allowed.
fn run(text: &str, threads: usize, calls: usize) -> (Outcome, String) {
    run_until(text, threads, calls, "    intr exit()")
}

/// Runs with other code for the last call.
fn run_until(text: &str, threads: usize, calls: usize, last: &str) -> (Outcome, String) {
    run_on(machine(), text, threads, calls, last)
}

/// Runs with code compiled for another machine.
fn run_on(
    machine: Machine,
    text: &str,
    threads: usize,
    calls: usize,
    last: &str,
) -> (Outcome, String) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stop = handler("stop", STOP, last);
    let program: Program = spile_ir::reader::read(&format!("{text}{stop}")).unwrap();
    let object = spile_bpf::compile(&program, &machine).unwrap();
    let work = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&work);
    let armed = move |_: &[String]| {
        let call = move || {
            for _ in 0..calls {
                // SAFETY: the call asks for a number and has no effect.
                unsafe { libc::syscall(NR, 0) };
            }
        };
        let all = move || {
            let workers: Vec<_> = (0..threads).map(|_| std::thread::spawn(call)).collect();
            workers.into_iter().for_each(|w| w.join().unwrap());
            // SAFETY: the call asks for a number and has no effect.
            unsafe { libc::syscall(STOP, 0) };
        };
        *slot.lock().unwrap() = Some(std::thread::spawn(all));
    };
    let options = SessionOptions {
        target: TargetProcess::Pid(std::process::id()),
        output: output::OutputTarget::Memory,
        timeout: Some(Duration::from_secs(300)),
        armed: Some(Box::new(armed)),
        display_globals: true,
        quiet: true,
        ..SessionOptions::default()
    };
    let mut session = match Session::new(program, Some(SessionHost::kernel(&object)), options) {
        Ok(session) => session,
        Err(e @ (Error::Privileges | Error::NoBpf)) => spile_testing::skip(e),
        Err(e) => panic!("{e}"),
    };
    let outcome = session.run().unwrap();
    let text = String::from_utf8(session.take_output()).unwrap();
    drop(session);
    assert_eq!(bpf_descriptors(), 0);
    if let Some(work) = work.lock().unwrap().take() {
        work.join().unwrap();
    }
    (outcome, text)
}

/// Number of programs, maps and links that this process holds; nothing else keeps them alive.
fn bpf_descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = all.filter_map(|e| std::fs::read_link(e.path()).ok());
    links
        .filter(|l| l.to_string_lossy().starts_with("anon_inode:bpf"))
        .count()
}

/// A handler of a system call of this process; the code is its block 1, and block 2 ends it.
fn handler(name: &str, nr: i64, code: &str) -> String {
    format!(
        "handler \"{name}\" points 1 sys_enter({nr}) @1 {{
  regs r0: long, r1: long, r2: long
  b0:
    r0 = intr pid()
    r1 = intr target()
    r0 = eq r0, r1
    branch r0, b1, b2
  b1:
{code}
    jump b2
  b2:
    ret
}}
"
    )
}

const HEAD: &str = "site @0 \"\"\nsite @1 \"keyword at x.stp:1:1\"\nfmt f0 \"%d\\n\"\n";

#[test]
fn counters_and_statistics_are_exact_while_a_timer_clears() {
    let text = format!(
        "{HEAD}
global g0 \"n\" long percpu double @0
global g1 \"s\" [long] stats(sum) max 100 percpu double @0
global g2 \"total\" long controller @0
global g3 \"rounds\" long controller @0
global g4 \"over\" long shared @0
func fn0 \"add\" () {{
  regs r0: long, r1: long
  iters 1
  b0:
    iter i0 g1[]
    jump b1
  b1:
    next i0 [r0] b2, b3
  b2:
    r1 = stat_get sum g1[r0]
    gadd g2, r1
    jump b1
  b3:
    gclear g1
    gadd g3, 1
    ret
}}
{}handler \"timer\" points 1 timer(5000000, 0) @1 {{
  regs r0: long, r1: long
  b0:
    call fn0()
    r0 = gload g3
    r0 = gt r0, 2
    r1 = gload g4
    r0 = and r0, r1
    branch r0, b1, b2
  b1:
    intr exit()
    jump b2
  b2:
    ret
}}
handler \"end\" points 1 end(0) @1 {{
  regs r0: long
  b0:
    call fn0()
    r0 = gload g0
    print out f0(r0)
    r0 = gload g2
    print out f0(r0)
    ret
}}
",
        handler(
            "sys",
            NR,
            "    gadd g0, 1\n    r2 = intr tid()\n    stat_add g1[r2], 2"
        )
    );
    // The timer ends the session, after some runs and all calls.
    let (outcome, text) = run_until(&text, 3, 200_000, "    gstore g4, 1");
    assert_eq!(text, "600000\n1200000\n", "{outcome:?}");
    assert!(
        outcome.losses.is_clean() && outcome.exit_code == 0,
        "{outcome:?}"
    );
}

#[test]
fn shared_arrays_are_locked_and_read_at_the_end() {
    let text = format!(
        "limits maxskipped=1000000000
{HEAD}
global g0 \"last\" [long] long max 100 shared lock display @0
global g1 \"count\" long shared lock display @0
{}",
        handler(
            "sys",
            NR,
            "    r2 = aget g0[7]\n    r2 = add r2, 1\n    aset g0[7], r2\n    \
             r2 = gload g1\n    r2 = add r2, 1\n    gstore g1, r2"
        )
    );
    let (outcome, text) = run(&text, 3, 100_000);
    let skipped = outcome.losses.skipped;
    // Hits that a lock skipped are not counted, but accounted for.
    let counted = 300_000 - skipped.total();
    assert_eq!(
        text,
        format!("last[7]={counted}\ncount={counted}\n"),
        "{outcome:?}"
    );
}

/// A timer takes an array, a number and a statistic consistently, many times. The kernel makes the
/// copies with interrupts off: in a program that turns them off itself, if the kernel supports
/// that, and on another processor.
#[test]
fn what_a_timer_takes_is_of_one_moment() {
    let text = format!(
        "limits maxskipped=1000000000 maxtrylock=1000
{HEAD}
global g0 \"a\" [long] long max 100 shared lock @0
global g1 \"n\" long shared lock @0
global g2 \"s\" stats(sum) shared lock @0
global g3 \"total\" long controller @0
global g4 \"wrong\" long controller @0
func fn0 \"take\" () {{
  regs r0: long, r1: long, r2: long, r3: long
  iters 1
  b0:
    r2 = gload g1
    gadd g3, r2
    r3 = stat_get count g2[]
    r3 = sub r3, r2
    gadd g4, r3
    iter i0 g0[]
    jump b1
  b1:
    next i0 [r0] b2, b3
  b2:
    r1 = aget g0[r0]
    r2 = sub r2, r1
    jump b1
  b3:
    gadd g4, r2
    ret
}}
handler \"timer\" points 1 timer(1000000, 0) @1 {{
  b0:
    call fn0()
    gclear g0
    gstore g1, 0
    gclear g2
    ret
}}
handler \"end\" points 1 end(0) @1 {{
  regs r0: long
  b0:
    call fn0()
    r0 = gload g3
    print out f0(r0)
    r0 = gload g4
    print out f0(r0)
    ret
}}
{}",
        handler(
            "sys",
            NR,
            "    r2 = intr tid()\n    r2 = aget g0[r2]\n    r0 = intr tid()\n    r2 = add r2, 1\n    \
             aset g0[r0], r2\n    r2 = gload g1\n    r2 = add r2, 1\n    gstore g1, r2\n    \
             stat_add g2[], 3"
        )
    );
    let btf = spile_kernel::btf::Btf::vmlinux().ok();
    let id = |name| btf.and_then(|b| b.find_func(name));
    let own = || {
        Some(InterruptKfuncs {
            save: id("bpf_local_irq_save")?,
            restore: id("bpf_local_irq_restore")?,
        })
    };
    // Invalid functions: the kernel refuses the program, and the controller takes the locks itself.
    let wrong = InterruptKfuncs {
        save: 1,
        restore: 1,
    };
    for interrupts in [None, own(), Some(wrong)] {
        let mut machine = machine();
        machine.features.interrupts = interrupts;
        let (outcome, text) = run_on(machine, &text, 3, 100_000, "    intr exit()");
        let skipped = outcome.losses.skipped;
        let counted = 300_000 - skipped.total() - skipped.own_actions;
        assert_eq!(text, format!("{counted}\n0\n"), "{outcome:?}");
        // Hits of this process while it holds a lock.
        if interrupts != Some(wrong) {
            assert_eq!(skipped.own_actions, 0, "{outcome:?}");
        }
    }
}

#[test]
fn output_keeps_its_order() {
    let text = format!(
        "{HEAD}
global g0 \"n\" long shared lock @0
{}",
        handler(
            "sys",
            NR,
            "    r2 = gload g0\n    print out f0(r2)\n    r2 = add r2, 1\n    gstore g0, r2"
        )
    );
    let (outcome, text) = run(&text, 1, 100);
    let expected: String = (0..100).map(|n| format!("{n}\n")).collect();
    assert_eq!(text, expected, "{outcome:?}");
    assert!(outcome.losses.is_clean(), "{outcome:?}");
}

#[test]
fn errors_end_the_session_and_are_counted() {
    let text = format!(
        "{HEAD}{}handler \"end\" points 1 end(0) @1 {{
  b0:
    print out f0(1)
    ret
}}
handler \"error\" points 1 error(0) @1 {{
  b0:
    print out f0(2)
    ret
}}
",
        handler("sys", NR, "    r2 = sub r0, 1\n    r2 = div r0, r2 @1")
    );
    let (outcome, text) = run(&text, 1, 10);
    assert_eq!((outcome.exit_code, &*text), (1, "2\n"), "{outcome:?}");
    assert_eq!(outcome.losses.errors, 1);
}

#[test]
fn full_arrays_are_errors() {
    for storage in ["shared", "percpu double"] {
        let text = format!(
            "{HEAD}
global g0 \"a\" [long] long max 10 {storage} @0
global g1 \"n\" long shared lock @0
{}",
            handler("sys", NR, "    r2 = gadd g1, 1\n    aadd g0[r2], 1 @1")
        );
        let (outcome, _) = run(&text, 1, 100);
        assert_eq!(
            (outcome.exit_code, outcome.losses.errors),
            (1, 1),
            "{storage}: {outcome:?}"
        );
    }
}

#[test]
fn ticks_come_from_every_cpu() {
    let text = format!(
        "{HEAD}
global g0 \"n\" long percpu double @0
handler \"tick\" points 1 perf(1, 0, period 1000000) @1 {{
  b0:
    gadd g0, 1
    ret
}}
handler \"end\" points 1 end(0) @1 {{
  regs r0: long
  b0:
    r0 = gload g0
    r0 = gt r0, 0
    print out f0(r0)
    ret
}}
"
    );
    let (_, text) = run(&text, 2, 300_000);
    assert_eq!(text, "1\n");
}
