//! Large arrays: all additions are there, and keys are where the layout says.

use std::collections::BTreeMap;

use spile_bpf::target::{Features, Target};
use spile_ir::interp::Cell;
use spile_ir::reader;
use spile_layout::{GlobalLocation, LargeLayout, PerCpuArray};

use crate::directed::script;
use crate::machine::{Contents, HostKind, Kernel, Outcome, options};

/// The number of elements that makes an array large, plus one.
const MAX: u32 = 4097;

/// Adds the second argument to keys that contain the first, or a part of it.
fn text() -> String {
    let array = |g: u32, keys: &str, value: &str| {
        format!("global g{g} \"a{g}\" [{keys}] {value} max {MAX} percpu double @0\n")
    };
    script(
        &[
            array(0, "long", "long"),
            array(1, "long, long", "stats(sum)"),
            array(2, "str16, long, long", "long"),
            array(3, "long, str16", "stats()"),
        ]
        .concat(),
        ", r2: long, r3: str16",
        "r2 = and r0, 3\n    r3 = intr execname()\n    aadd g0[r0], r1\n    \
         stat_add g1[r2, r0], r1\n    aadd g2[r3, r0, r2], r1\n    stat_add g3[r0, r3], r1",
    )
}

/// Pseudo-random numbers (xorshift).
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Keys of several patterns: consecutive, far apart, spread.
fn keys(kind: u64, seed: &mut u64) -> Vec<u64> {
    let one = |n: u64| match kind {
        0 => n,
        1 => n << 6,
        2 => n << 20,
        3 => n << 40,
        4 => 0xffff_8881_0000_0000 + 192 * n,
        5 => ((n / 16) << 32) | (n % 16),
        _ => random(&mut *seed),
    };
    (0..u64::from(MAX)).map(one).collect()
}

/// The hosts, and for the kernel also loops as kernels before `may_goto` have them.
fn on_hosts() -> [(HostKind, Target); 3] {
    let old = Target {
        features: Features {
            may_goto: false,
            ..options().features
        },
        ..options()
    };
    [
        (HostKind::Kernel, options()),
        (HostKind::Kernel, old),
        (HostKind::Process, options()),
    ]
}

fn array<'k>(kernel: &'k Kernel<'_>, g: usize) -> (&'k PerCpuArray, LargeLayout) {
    match kernel.location(g) {
        Some(GlobalLocation::PerCpuArray(array)) => (array, array.large.expect("a large array")),
        other => panic!("{other:?}"),
    }
}

/// For each key, the sum that was added, or the count if no sum is kept.
fn added(outcome: &Outcome, g: usize, at: usize) -> BTreeMap<i64, i64> {
    let Some(Contents::Elements(all)) = &outcome.globals[g] else {
        panic!("{:?}", outcome.globals[g]);
    };
    let number = |cell: &Cell| match cell {
        Cell::Stats(stat) if g == 1 => stat.sum as i64,
        cell => cell.value().as_long(),
    };
    all.iter()
        .map(|(k, cell)| (k[at].as_long(), number(cell)))
        .collect()
}

#[test]
fn sums_are_complete() {
    let program = reader::read(&text()).expect("a program");
    for (host, options) in on_hosts() {
        let mut kernel = host.load_with(&program, &options);
        let mut seed = 88_172_645_463_325_252;
        let mut want: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        let keys = keys(6, &mut seed);
        for n in 0..30_000u64 {
            // On all processors, in no particular order; generations of all sizes.
            if n % 64 == 0 {
                host.go_to(n / 64);
            }
            let chance = random(&mut seed);
            if chance.is_multiple_of(3000) {
                let old = kernel.state.flip();
                kernel.drain(old);
            }
            let key = keys[(chance >> 20) as usize % keys.len()];
            kernel.run(&[key, n % 10]);
            let (sum, count) = want.entry(key as i64).or_default();
            *sum += (n % 10) as i64;
            *count += 1;
        }
        let outcome = kernel.outcome();
        let sums: BTreeMap<i64, i64> = want.iter().map(|(k, v)| (*k, v.0)).collect();
        let counts: BTreeMap<i64, i64> = want.iter().map(|(k, v)| (*k, v.1)).collect();
        assert!(added(&outcome, 0, 0) == sums, "a number as key");
        assert!(added(&outcome, 1, 1) == sums, "two numbers");
        assert!(added(&outcome, 2, 1) == sums, "a text and two numbers");
        assert!(added(&outcome, 3, 0) == counts, "a number and a text");
    }
}

/// A key's cells, and no others, lead to its slot; a full array accepts no more keys.
#[test]
fn keys_are_in_their_cells() {
    let program = reader::read(&text()).expect("a program");
    for (kind, (host, options)) in (0..7).flat_map(|kind| on_hosts().map(move |o| (kind, o))) {
        let mut kernel = host.load_with(&program, &options);
        let keys = keys(kind, &mut 4711);
        for _ in 0..2 {
            for key in &keys {
                kernel.run(&[*key, 1]);
            }
        }
        for g in 0..4 {
            let (array, large) = array(&kernel, g);
            let mut map = kernel.host.table(&array.maps[0]);
            let memory = map.get(&[0; 4]).expect("memory").expect("memory");
            let half = |at: u32| {
                let bytes = memory[at as usize..][..4].try_into();
                u32::from_ne_bytes(bytes.expect("4 bytes"))
            };
            let word = |at: u32| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
            let live = word(LargeLayout::LIVE);
            assert_eq!((live, word(LargeLayout::GIVEN)), (MAX.into(), MAX.into()));
            let mut found = 0;
            for slot in 1..=MAX {
                let at = large.slots_offset() + (slot - 1) * large.slot_size;
                let key: Vec<u64> = (0..array.key_size / 8).map(|i| word(at + 8 * i)).collect();
                let cells = large.probe_cells(&key);
                let contents = cells.map(|(cell, tag)| (half(LargeLayout::CELLS + 4 * cell), tag));
                let mut taken = contents.take_while(|(content, _)| *content != 0);
                found += u32::from(taken.any(|(content, tag)| content == tag | slot));
            }
            assert_eq!(found, MAX, "keys {kind} of array {g}");
        }
        kernel.run(&[0xdead_0000_beef, 1]);
        let outcome = kernel.outcome();
        assert_eq!(outcome.errors.len(), 1, "{:?}", outcome.errors);
        let want: BTreeMap<i64, i64> = keys.iter().map(|k| (*k as i64, 2)).collect();
        assert!(added(&outcome, 0, 0) == want && added(&outcome, 1, 1) == want);
    }
}
