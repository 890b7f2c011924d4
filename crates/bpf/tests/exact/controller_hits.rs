//! Hits in the threads of a controller that holds locks.

use spile_bpf::target::{Features, Target};
use spile_ir::reader;
use spile_layout::percpu;
use spile_runtime::shared::state::StateMemory;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::machine::{Kernel, options};

/// A handler that needs the locks of two globals.
fn script(event: &str) -> String {
    format!(
        "limits maxtrylock=3\nsite @0 \"\"\nglobal g0 \"a\" long shared lock @0\nglobal g1 \"b\" long shared lock @0\n\
         handler \"x\" points 1 {event} @0 {{\n  regs r0: long\n  b0:\n    r0 = gload g0\n    r0 = \
         add r0, 1\n    gstore g0, r0\n    gstore g1, r0\n    ret\n}}\n"
    )
}

#[test]
fn own_hits_are_counted_apart_and_not_waited_for() {
    let all = options();
    let older = |bpf_loop| Target {
        features: Features {
            may_goto: false,
            bpf_loop,
            ..all.features
        },
        ..all.clone()
    };
    let (before_6_9, before_5_17) = (older(true), older(false));
    let shared = Target {
        share: Some(true),
        ..all.clone()
    };
    // An interrupt may have caused a hit at a tracepoint; a page fault is the thread's own.
    let events = [
        ("tracepoint(\"x\")", percpu::SKIP_HELD),
        ("tracepoint(\"page_fault_user\")", percpu::SKIP_OWN),
    ];
    for (event, own) in events {
        for options in [&all, &before_6_9, &before_5_17, &shared] {
            let program = reader::read(&script(event)).expect("a program");
            let kernel = Kernel::with(&program, options).unwrap_or_else(|why| panic!("{why}"));
            let locks = kernel.locks();
            let [first, second] = locks[..] else {
                panic!("{locks:?}")
            };
            let (state, timeout) = (&kernel.state, Duration::from_secs(10));
            let counts = || [own, percpu::SKIP_LOCK].map(|at| kernel.header(at));
            kernel.run(&[]);
            assert_eq!((counts(), kernel.hits(0)), ([0, 0], 1));
            // With the second lock held, the first one is released.
            for lock in [first, second] {
                assert!(state.lock(lock, timeout));
                kernel.run(&[]);
                state.unlock(lock);
            }
            assert_eq!((counts(), kernel.hits(0)), ([2, 0], 1));
            // A holder in another process is waited for.
            let other = (u64::from(std::process::id()) + 1) << 32;
            state.shared(second).store(other, Ordering::SeqCst);
            kernel.run(&[]);
            state.unlock(second);
            assert_eq!((counts(), kernel.hits(0)), ([2, 1], 1));
            kernel.run(&[]);
            assert_eq!((counts(), kernel.hits(0)), ([2, 1], 2));
            assert!(free(state, &locks));
        }
    }
}

fn free(state: &StateMemory, locks: &[u32]) -> bool {
    let word = |at: &u32| state.shared(*at).load(Ordering::SeqCst);
    locks.iter().all(|at| word(at) == 0)
}
