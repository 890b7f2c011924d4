//! `spile profile --noise` on the live kernel names what takes the processor from a computing
//! thread.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

mod common;
use common::profile;

fn noise(args: &[&str]) -> (Option<i32>, String, String) {
    profile("--noise", args)
}

/// Takes a processor for some milliseconds now and then, until it is stopped; returns how often,
/// and its processor time.
fn disturb(cpu: usize, stop: &AtomicBool) -> (u64, u64) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
    let mut times = 0;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(3) {
            std::hint::spin_loop();
        }
        times += 1;
        std::thread::sleep(Duration::from_millis(30));
    }
    let had = clock_gettime(ClockId::ThreadCPUTime);
    (
        times,
        had.tv_sec as u64 * 1_000_000_000 + had.tv_nsec as u64,
    )
}

#[test]
fn disturbing_processes_are_named() {
    let allowed = sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|c| allowed.is_set(*c)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let disturber = std::thread::Builder::new()
        .name("disturber".to_owned())
        .spawn(move || disturb(cpu, &ended));
    let (code, out, err) = noise(&["-d", "2", "--json", "--cpus", &cpu.to_string()]);
    stop.store(true, Ordering::Relaxed);
    let (times, had) = disturber.unwrap().join().unwrap();
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let noise: Value = serde_json::from_str(&out).unwrap();
    let cpus = noise["cpus"].as_array().unwrap();
    assert_eq!(cpus.len(), 1, "{out}");
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap();
    let causes = cpus[0]["causes"].as_array().unwrap();
    // All noise has a cause.
    let explained: u64 = causes.iter().map(|c| number(c, "ns")).sum();
    assert_eq!(explained, number(&cpus[0], "ns"), "{out}");
    assert!(explained <= number(&cpus[0], "wall"), "{out}");
    let found = causes.iter().find(|c| c["name"] == "disturber");
    let found = found.unwrap_or_else(|| panic!("{times} times: {out}"));
    assert_eq!(found["kind"], "thread");
    assert_eq!(number(found, "pid"), u64::from(std::process::id()));
    assert!(number(found, "count") > 0);
    // (Interrupts during it count for it on the kernel's clock, and so does the time to leave it.)
    let ns = number(found, "ns");
    assert!(ns > 0 && ns <= had + had / 4, "{ns} of {had}: {out}");
}

#[test]
fn the_report_is_printed_and_bad_lists_are_refused() {
    let (code, out, err) = noise(&["-d", "0.3", "--threshold", "2000"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for word in ["ppm", "gaps over 2.00 us", "What interrupted", "How long"] {
        assert!(out.contains(word), "{out}");
    }
    assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
    for list in ["x", "99999", "3-1"] {
        let (code, _, err) = noise(&["--cpus", list]);
        assert_eq!(code, Some(1), "{list}");
        assert!(err.contains("--cpus"), "{err}");
    }
}
