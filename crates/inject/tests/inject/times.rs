//! What hooks cost. Nothing is asserted about durations: the numbers are printed.

use std::time::{Duration, Instant};

use spile_inject::{FunctionHook, PtRegs, attach, attach_at_start};

use crate::image::Counting;
use crate::target::{Target, usual};

fn nanoseconds(hooked: impl Fn(&Target) -> Option<(Counting, Vec<FunctionHook>)>) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let mut target = Target::start(&usual(), "1 1 time");
        let what = hooked(&target);
        let attached = what
            .as_ref()
            .map(|(c, hooks)| attach(target.pid(), &c.image(), hooks).unwrap());
        target.go();
        let lines = target.until("nanoseconds");
        let line = lines
            .last()
            .unwrap()
            .split(' ')
            .next_back()
            .unwrap()
            .to_owned();
        best = best.min(line.parse().unwrap());
        if let Some(attached) = attached {
            attached.detach(&[]).unwrap();
            assert_eq!(what.unwrap().0.hits(), 40 * 20_000 + 1);
        }
        target.end();
    }
    best
}

#[test]
fn nanoseconds_a_hit() {
    let with = |reads: u32, exact: bool| {
        nanoseconds(|target| {
            let counting = Counting::new();
            let counting = if exact { counting.exact() } else { counting };
            let mut hook = target.hook("plain", counting.count);
            hook.reads = reads;
            Some((counting, vec![hook]))
        })
    };
    let none = nanoseconds(|_| None);
    let kinds = [
        ("counted", with(0, false)),
        ("counted, first argument", with(PtRegs::Rdi.bit(), false)),
        ("counted, all registers", with(PtRegs::ALL, false)),
        ("counted, exact identity", with(0, true)),
    ];
    println!("a call without a hook: {none} ns");
    for (what, time) in kinds {
        println!("{what}: {:.1} ns more", time - none);
    }
}

#[test]
fn times_of_a_round() {
    for (what, words) in [("a thread that waits", "0 1"), ("8 busy ones", "8 0")] {
        let target = Target::start(&usual(), words);
        let counting = Counting::new();
        let hooks = target.hooks(&["plain", "relative", "floating"], counting.count);
        let mut all = Vec::new();
        for _ in 0..50 {
            let since = Instant::now();
            let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
            let (stopped, attaching) = (attached.stopped(), since.elapsed());
            let since = Instant::now();
            let back: Duration = attached.detach(&[]).unwrap();
            all.push((attaching, stopped, since.elapsed(), back));
        }
        all.sort();
        println!(
            "attach, stopped, detach, stopped: {:?}, {what}",
            all[all.len() / 4]
        );
        target.end();
    }
}

#[test]
fn time_at_the_start() {
    let mut all = Vec::new();
    for _ in 0..20 {
        let counting = Counting::new();
        let mut target = Target::stopped(&usual(), "1 1");
        let hooks = target.hooks(&["main"], counting.count);
        let since = Instant::now();
        let attached = attach_at_start(target.pid(), &counting.image(), &hooks).unwrap();
        all.push(since.elapsed());
        target.release();
        assert!(target.line().starts_with("ready"));
        assert_eq!(counting.hits(), 1);
        attached.detach(&[]).unwrap();
        target.kill();
    }
    all.sort();
    println!("attach at the start: {:?}", all[all.len() / 2]);
}
