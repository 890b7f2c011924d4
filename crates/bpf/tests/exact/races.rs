//! Attached programs on several busy CPUs: counts are exact, locked values are never torn, skipped
//! hits are counted.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpid, test_kill_process};
use spile_ir::interp::{Cell, Value};
use spile_ir::{Program, reader};
use spile_layout::percpu;
use spile_runtime::shared::grace::GracePeriod;

use crate::machine::{Contents, Kernel, Outcome, go_to};

/// Serialises the tests: all of them count the same system call of this process.
static ONE: Mutex<()> = Mutex::new(());

/// `kill`: with signal 0 it has no effect for any first argument.
const NR: u32 = 62;

/// A handler of this process's calls: the argument is in r0, the code is block b2.
fn handler(regs: &str, code: &str) -> String {
    format!(
        "handler \"sys\" points 1 sys_enter({NR}) @0 {{\n  regs r0: long, r1: long{regs}\n  b0:\n    \
         r1 = intr pid()\n    r1 = eq r1, {}\n    branch r1, b2, b1\n  b1:\n    ret\n  b2:\n    \
         r0 = intr sys_arg(0)\n{code}}}\n",
        getpid().as_raw_nonzero()
    )
}

const HEAD: &str = "limits maxskipped=1000000000 maxerrors=100\nsite @0 \"\"\nsite @1 \"x\"\n";

/// Limit on the time that a test works towards its condition.
const PATIENCE: Duration = Duration::from_secs(120);

/// State that the two calling threads share.
#[derive(Default)]
struct Work {
    /// The condition holds: workers end once they have made their minimum of calls.
    enough: AtomicBool,
    /// Number of workers that ended.
    ended: AtomicU64,
    /// Number of calls.
    calls: AtomicU64,
}

/// Stops the workers even if the main thread panics.
struct Stop<'w>(&'w Work);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.enough.store(true, Ordering::SeqCst);
    }
}

/// Makes calls on one CPU, spread over `keys` arguments: `least`, and more until the condition
/// holds.
fn hammer(cpu: u64, least: u64, keys: u64, work: &Work) {
    go_to(cpu);
    let mut n = 0u64;
    while n < least || !work.enough.load(Ordering::SeqCst) {
        let key = 1 + (n.wrapping_mul(7) + cpu) % keys;
        // The process need not exist.
        let _ = Pid::from_raw(key as i32).map(test_kill_process);
        n += 1;
    }
    work.calls.fetch_add(n, Ordering::SeqCst);
    work.ended.fetch_add(1, Ordering::SeqCst);
}

/// Attaches, makes at least `least` calls on each of two CPUs, and continues until `enough` returns
/// true. Then detaches and passes the number of calls to `check`.
fn run(
    text: &str,
    least: u64,
    keys: u64,
    mut enough: impl FnMut(&mut Kernel<'_>) -> bool,
    check: impl FnOnce(&Kernel<'_>, Outcome, u64),
) {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let program: Program = reader::read(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut kernel = Kernel::new(&program).unwrap_or_else(|why| panic!("{why}"));
    let links = kernel.host.loaded().attach().expect("attached");
    let work = Work::default();
    let end = Instant::now() + PATIENCE;
    std::thread::scope(|s| {
        let stop = Stop(&work);
        for cpu in 0..2 {
            let work = &work;
            s.spawn(move || hammer(cpu, least, keys, work));
        }
        while work.ended.load(Ordering::SeqCst) < 2 {
            assert!(Instant::now() < end, "not enough in {PATIENCE:?}");
            if enough(&mut kernel) {
                work.enough.store(true, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        drop(stop);
    });
    drop(links);
    kernel.state.set_running(false);
    assert!(GracePeriod::choose().wait(&kernel.state));
    let outcome = kernel.outcome();
    assert_eq!(outcome.errors, [], "errors");
    check(&kernel, outcome, work.calls.load(Ordering::SeqCst));
}

fn number(outcome: &Outcome, g: usize) -> u64 {
    match &outcome.globals[g] {
        Some(Contents::One(Cell::Scalar(v))) => v.as_long() as u64,
        other => panic!("{other:?}"),
    }
}

fn array(outcome: &Outcome, g: usize) -> Vec<(Vec<Value>, i64)> {
    match &outcome.globals[g] {
        Some(Contents::Elements(all)) => all
            .iter()
            .map(|(k, c)| (k.clone(), c.value().as_long()))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn drains_lose_nothing() {
    let text = HEAD.to_string()
        + "global g0 \"n\" long percpu double @0\n\
           global g1 \"a\" [long] stats(sum, min, max) max 8000 percpu double @0\n\
           global g2 \"b\" [long, long] long max 8000 percpu double @0\n"
        + &handler(
            "",
            "    gadd g0, 1\n    stat_add g1[r0], r0\n    aadd g2[r0, 7], 2\n    ret\n",
        );
    let keys = 3000;
    let grace = GracePeriod::choose();
    let mut drains = 0;
    let drain = |kernel: &mut Kernel<'_>| {
        let old = kernel.state.flip();
        assert!(grace.wait(&kernel.state));
        kernel.drain(old);
        drains += 1;
        drains > 10
    };
    run(&text, 60_000, keys, drain, |kernel, outcome, calls| {
        assert_eq!(kernel.hits(0), calls);
        assert_eq!(number(&outcome, 0), calls);
        let counts = array(&outcome, 1);
        let sums = array(&outcome, 2);
        let got = counts.iter().map(|e| e.1).sum::<i64>() + sums.iter().map(|e| e.1).sum::<i64>();
        // An addition without memory is counted, and has the value 1 or 2.
        let missing = 3 * calls - got as u64;
        let no_memory = kernel.header(percpu::NO_MEMORY);
        assert!(
            (no_memory..=2 * no_memory).contains(&missing),
            "{missing} missing, {no_memory} without memory"
        );
        assert!(counts.len() as u64 == keys || no_memory > 0);
    });
}

/// Two processors that insert the same keys at the same time make one element for each key: there
/// is no space for more.
#[test]
fn large_arrays_have_each_key_once() {
    let keys = 6000;
    let text = HEAD.to_string()
        + &format!(
            "global g0 \"a\" [long] long max {keys} percpu double @0\n\
             global g1 \"b\" [long, long] stats(sum) max {keys} percpu double @0\n"
        )
        + &handler(
            "",
            "    aadd g0[r0], 1\n    stat_add g1[7, r0], r0\n    ret\n",
        );
    let grace = GracePeriod::choose();
    let mut drains = 0;
    let drain = |kernel: &mut Kernel<'_>| {
        let old = kernel.state.flip();
        assert!(grace.wait(&kernel.state));
        kernel.drain(old);
        drains += 1;
        drains > 60
    };
    run(&text, 60_000, keys, drain, |kernel, outcome, calls| {
        assert_eq!(kernel.hits(0), calls);
        let all: Vec<_> = (0..2).map(|g| array(&outcome, g)).collect();
        for elements in &all {
            let numbers = elements.iter().map(|(k, _)| k[k.len() - 1].as_long());
            assert!(numbers.eq(1..=keys as i64), "each key once");
        }
        let sum = |g: usize| all[g].iter().map(|e| e.1).sum::<i64>() as u64;
        assert_eq!((sum(0), sum(1)), (calls, calls));
        assert_eq!(kernel.header(percpu::NO_MEMORY), 0);
    });
}

#[test]
fn compound_updates_are_never_torn() {
    // `if (!(k in a)) a[k] = n++`; each key's token moves between b and c; a string is
    // written as two equal copies and read back.
    let text = HEAD.to_string()
        + "str s0 \"a text of more than sixteen bytes, written whole or not at all: one\"\n\
           str s1 \"another one of such texts, to be told from the first in every word\"\n\
           global g0 \"a\" [long] long max 100 shared lock @0\n\
           global g1 \"n\" long shared lock @0\n\
           global g2 \"b\" [long] long max 100 shared lock @0\n\
           global g3 \"c\" [long] long max 100 shared lock @0\n\
           global g4 \"s\" str136 shared lock @0\n\
           global g5 \"t\" str136 shared lock @0\n\
           global g6 \"torn\" long shared lock @0\n"
        + &handler(
            ", r2: long, r3: str136, r4: str136",
            "    r2 = ahas g0[r0]\n    branch r2, b4, b3\n  b3:\n    r2 = gadd g1, 1\n    \
             aset g0[r0], r2\n    aset g2[r0], r0\n    jump b7\n  b4:\n    r2 = ahas g2[r0]\n    \
             branch r2, b5, b6\n  b5:\n    r2 = aget g2[r0]\n    adel g2[r0]\n    aset g3[r0], r2\n    jump b7\n  \
             b6:\n    r2 = aget g3[r0]\n    adel g3[r0]\n    aset g2[r0], r2\n    jump b7\n  b7:\n    \
             r3 = gload g4\n    r4 = gload g5\n    r2 = str_ne r3, r4\n    r2 = gadd g6, r2\n    \
             r2 = and r0, 1\n    branch r2, b8, b9\n  b8:\n    gstore g4, s0\n    gstore g5, s0\n    ret\n  \
             b9:\n    gstore g4, s1\n    gstore g5, s1\n    ret\n",
        );
    run(
        &text,
        40_000,
        50,
        |_| true,
        |kernel, outcome, calls| {
            let skipped = [percpu::SKIP_LOCK, percpu::SKIP_OWN, percpu::SKIP_REENTRANT]
                .map(|at| kernel.header(at))
                .into_iter()
                .sum::<u64>();
            assert_eq!(kernel.hits(0) + skipped, calls);
            // A token can be missing if the kernel had no memory for its element.
            if kernel.header(percpu::NO_MEMORY) > 0 {
                return;
            }
            let a = array(&outcome, 0);
            let mut given: Vec<i64> = a.iter().map(|e| e.1).collect();
            given.sort_unstable();
            assert!(given.into_iter().eq(0..a.len() as i64), "each number once");
            assert_eq!(number(&outcome, 1), a.len() as u64);
            let mut tokens = array(&outcome, 2);
            tokens.extend(array(&outcome, 3));
            tokens.sort();
            let keys = a.iter().map(|(k, _)| (k.clone(), k[0].as_long()));
            assert!(
                tokens.iter().cloned().eq(keys),
                "each token once: {tokens:?}"
            );
            assert_eq!(outcome.globals[4], outcome.globals[5]);
            assert_eq!(number(&outcome, 6), 0, "torn texts");
        },
    );
}

#[test]
fn counters_shared_by_cpus_are_atomic() {
    let text = HEAD.to_string()
        + "global g0 \"n\" long shared @0\nglobal g1 \"a\" [long] long max 100 shared @0\n"
        + &handler(
            ", r2: long",
            "    r2 = gadd g0, 1\n    aadd g1[r0], 1\n    ret\n",
        );
    run(
        &text,
        100_000,
        3,
        |_| true,
        |kernel, outcome, calls| {
            assert_eq!(kernel.hits(0), calls);
            assert_eq!(number(&outcome, 0), calls);
            let all = array(&outcome, 1);
            let no_memory = kernel.header(percpu::NO_MEMORY);
            let sum = all.iter().map(|e| e.1).sum::<i64>() as u64;
            assert_eq!(sum + no_memory, calls);
        },
    );
}

/// Interrupts inside of handlers are skipped and counted; nothing is lost.
#[test]
fn interrupts_do_not_disturb() {
    let text = HEAD.to_string()
        + "global g0 \"sys\" long percpu double @0\n\
           global g1 \"ticks\" long percpu double @0\n\
           global g2 \"a\" [long] stats(sum, variance) max 5000 percpu double @0\n\
           global g3 \"locked\" [long] long max 5000 shared lock @0\n"
        + &handler(
            ", r2: long",
            "    gadd g0, 1\n    stat_add g2[r0], 1\n    r2 = aget g3[1]\n    r2 = add r2, 1\n    \
             aset g3[1], r2\n    ret\n",
        )
        + "handler \"tick\" points 1 perf(1, 0, period 110000) @0 {\n  regs r0: long\n  b0:\n    \
           gadd g1, 1\n    stat_add g2[1], 1\n    stat_add g2[9000], 1\n    r0 = aget g3[1]\n    \
           r0 = add r0, 1\n    aset g3[1], r0\n    ret\n}\n";
    run(
        &text,
        60_000,
        2000,
        |kernel| kernel.hits(1) > 100,
        |kernel, outcome, calls| {
            let (sys, ticks) = (kernel.hits(0), kernel.hits(1));
            let skipped = kernel.header(percpu::SKIP_LOCK) + kernel.header(percpu::SKIP_OWN);
            let turned_away = kernel.header(percpu::SKIP_REENTRANT);
            let all = sys + skipped + turned_away;
            assert!(sys <= calls && calls <= all, "{sys} of {calls}, {skipped}");
            assert_eq!(number(&outcome, 0), sys);
            assert_eq!(number(&outcome, 1), ticks);
            let counts = array(&outcome, 2);
            let no_memory = kernel.header(percpu::NO_MEMORY) as i64;
            let sum = counts.iter().map(|e| e.1).sum::<i64>();
            assert_eq!(sum + no_memory, (sys + 2 * ticks) as i64);
            assert_eq!(array(&outcome, 3)[0].1 as u64, sys + ticks);
        },
    );
}
