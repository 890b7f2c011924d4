//! The clock of this process; and what the library's functions cost, with `SPILE_TURNS=20000` and `--release --
//! --nocapture`. Without, each runs a few times.

use std::time::Instant;

use crate::world::{RING, World, at, at_mut};

/// The address of the vDSO's `clock_gettime`.
pub(crate) fn clock() -> u64 {
    // SAFETY: the library is loaded already, and stays.
    unsafe {
        let library = libc::dlopen(
            c"linux-vdso.so.1".as_ptr(),
            libc::RTLD_NOW | libc::RTLD_NOLOAD,
        );
        assert!(!library.is_null(), "a vDSO");
        libc::dlsym(library, c"__vdso_clock_gettime".as_ptr()).addr() as u64
    }
}

/// The best of several rounds, in nanoseconds for each turn.
fn nanoseconds(what: &str, mut turn: impl FnMut()) {
    let turns = std::env::var("SPILE_TURNS").ok();
    let turns: u32 = turns.and_then(|turns| turns.parse().ok()).unwrap_or(20);
    let round = |_| {
        let begin = Instant::now();
        (0..turns).for_each(|_| turn());
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(turns)
    };
    let best = (0..30).map(round).fold(f64::MAX, f64::min);
    println!("{what:<40} {best:>8.1} ns");
}

#[test]
fn costs() {
    let world = World::new();
    let run = |name: &'static str, words: [u64; 5]| {
        let start = world.image.address();
        let function = start + world.image.function(name).expect("a handler");
        let record = start + world.image.record_offset(0).expect("a record");
        move || {
            // SAFETY: as in `World::run_as`.
            unsafe {
                let mut words = words;
                spile_native::processor::enter(function, record, words.as_mut_ptr());
            }
        }
    };
    nanoseconds("entry alone (processor)", run("processor", [0; 5]));
    for key in 0..60u64 {
        world.run("update", [0, at(&key), at(&key), 0]);
    }
    nanoseconds(
        "hash look-up, key of 8 bytes",
        run("lookup", [0, at(&7u64), 0, 0, 0]),
    );
    nanoseconds("hash look-up and atomic add", run("count", [7, 1, 0, 0, 0]));
    nanoseconds(
        "hash update of an element",
        run("update", [0, at(&7u64), at(&7u64), 0, 0]),
    );
    let words = [0, at(&777u64), at(&7u64), 0, 0];
    let (insert, delete) = (run("update", words), run("delete", words));
    nanoseconds("hash insertion and removal", || {
        insert();
        delete();
    });
    let record = [1u64; 8];
    let output = run("output", [0, at(&record), 64, 0, 0]);
    let mut ring = world.image.ring(RING).expect("a ring");
    let best = (0..500).map(|_| {
        let begin = Instant::now();
        (0..100).for_each(|_| output());
        let spent = begin.elapsed().as_secs_f64() * 1e9 / 100.0;
        assert_eq!(ring.consume(usize::MAX, |_| {}), 100);
        spent
    });
    println!(
        "{:<40} {:>8.1} ns",
        "ring output, 64 bytes",
        best.fold(f64::MAX, f64::min)
    );
    nanoseconds("clock, vDSO", run("now", [0; 5]));
    let record = world.image.record(0).expect("a record");
    let without = spile_layout::ThreadRecord { clock: 0, ..record };
    world.image.set_record(0, &without);
    nanoseconds("clock, system call", run("now", [0; 5]));
    // SAFETY: an instruction of this processor.
    nanoseconds("rdtsc alone", || unsafe {
        std::hint::black_box(std::arch::x86_64::_rdtsc());
    });
    let mut to = [0u8; 512];
    let to = at_mut(&mut to);
    nanoseconds(
        "read of 8 bytes, system call",
        run("read", [to, 8, at(&record), 0, 0]),
    );
    let text = [b'x'; 31];
    let text = [&text[..], &[0]].concat();
    nanoseconds(
        "text of 32 bytes, system call",
        run("read_text", [to, 512, at(&text[..]), 0, 0]),
    );
    let own = (world.image.address() + world.image.state().offset) as u64;
    nanoseconds(
        "copy of 8 bytes of the image",
        run("copy", [to, 8, own, 0, 0]),
    );
    nanoseconds("random number", run("random", [0; 5]));
}
