//! Plans: nothing overlaps, everything is aligned and in bounds.

use spile_ir::marks::Marks;
use spile_ir::storage::Storage;
use spile_ir::testgen::{self, Config};
use spile_ir::{Hist, Program, ProgramFacts, StatsSpec, reader};
use spile_lir::library::append::DIGITS;

use super::values::agg_layout;
use super::{CriticalParams, HostParams, LayoutInputs, StateLayout};
use crate::{GlobalLocation, PerCpuArray, counters, percpu, shared};

/// Pieces of memory: offset, length, name.
type Pieces = Vec<(u32, u32, String)>;

fn disjoint(mut pieces: Pieces, end: u32) {
    pieces.sort();
    for (at, size, what) in &pieces {
        assert!(
            at % 8 == 0 && at + size <= end,
            "{what} at {at}, {size} bytes, of {end}"
        );
    }
    for pair in pieces.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
    }
}

fn check_plan(program: &Program, needs: &LayoutInputs, frame: u32, cpus: u32) {
    let host = HostParams {
        cpus,
        timing: false,
        frame,
        critical: Some(CriticalParams {
            interrupts_off: false,
            key_lists: false,
        }),
    };
    let facts = ProgramFacts::new(program);
    let plan = StateLayout::with(program, (&facts, &Marks::default()), &host, needs);
    let plan = plan.expect("a plan");
    let (mut block, mut common): (Pieces, Pieces) = Default::default();
    block.push((0, percpu::END, "header".into()));
    common.push((0, shared::END, "session".into()));
    let s = &plan.scratch;
    let max = plan.max_string;
    for (at, size, what) in [
        (s.out_pos, 8, "out_pos"),
        (s.err_id, 8, "err_id"),
        (s.err_aux, 8, "err_aux"),
        (s.text_pos, 8, "text_pos"),
        (s.ticks, 8, "ticks"),
        (s.start, 8, "start"),
        (s.tmp, 64, "tmp"),
        (s.digits, DIGITS, "digits"),
        (s.frame, frame, "frame"),
        (s.err_text, max, "err_text"),
        (s.text, 3 * max, "text"),
        (s.out, s.out_size, "out"),
    ] {
        block.push((at, size, what.into()));
    }
    for handler in plan.layout.handlers.iter().flatten() {
        block.push((
            handler.counters,
            counters::HITS + 8,
            format!("{:?}", handler.id),
        ));
    }
    let (mut key, mut value) = (8, max);
    for (global, layout) in program.globals.iter().zip(&plan.layout.globals) {
        let Some(layout) = layout else {
            assert_eq!(global.storage, Storage::Controller, "{}", global.name);
            continue;
        };
        let name = global.name.to_string();
        if let Some(lock) = layout.lock {
            common.push((lock, 8, format!("lock of {name}")));
        }
        match &layout.location {
            GlobalLocation::Scalar { offset, ty } => common.push((*offset, ty.size(), name)),
            GlobalLocation::Stats { offset, agg } => common.push((*offset, agg.size, name)),
            GlobalLocation::Hash {
                map,
                key_size,
                value: v,
                seq,
                max,
                field,
                ..
            } => {
                let spec = plan
                    .tables
                    .iter()
                    .find(|m| m.name == *map)
                    .expect("its map");
                let size = match field {
                    Some(field) => {
                        assert!(
                            8 + 8 * field.bit == field.offset && field.offset + 8 <= field.record
                        );
                        field.record
                    }
                    None => v.size() + if *seq { 8 } else { 0 },
                };
                assert_eq!((spec.key_size, spec.value_size), (*key_size, size));
                assert_eq!(spec.max_entries, *max);
                (key, value) = (key.max(*key_size), value.max(size));
            }
            GlobalLocation::PerCpuScalar {
                offset,
                gen_stride,
                value,
            } => {
                let generations = if *gen_stride > 0 { 2 } else { 1 };
                block.push((*offset, value.size() * generations, name));
            }
            GlobalLocation::PerCpuArray(array) => {
                let PerCpuArray {
                    cache,
                    gen_stride,
                    slots,
                    slot_size,
                    maps,
                    key_size,
                    value: v,
                    colocated,
                    spilt,
                    large,
                    ..
                } = array;
                let generations = if array.double() { 2 } else { 1 };
                assert!(slots.is_power_of_two() || (*slots == 0 && spilt.is_none()));
                assert!(spilt.is_none() || large.is_none());
                assert!(8 + key_size + colocated.size <= *slot_size);
                assert!(*gen_stride == 0 || *gen_stride == slots * slot_size);
                assert!(colocated.offset + v.size() <= colocated.size && colocated.offset % 8 == 0);
                key = key.max(*key_size);
                if let Some(of) = colocated.host {
                    let of = plan.layout.globals[of.index()]
                        .as_ref()
                        .expect("a location");
                    let GlobalLocation::PerCpuArray(PerCpuArray { maps: its, .. }) = &of.location
                    else {
                        panic!("{name} colocated with {of:?}");
                    };
                    assert_eq!(its, maps);
                    continue;
                }
                if let Some(at) = (*spilt).or(large.map(|large| large.spare)) {
                    block.push((at, 8 * generations, format!("spilt {name}")));
                }
                block.push((*cache, slots * slot_size * generations, name));
            }
        }
    }
    block.push((s.key, key, "key".into()));
    block.push((s.value, value, "value".into()));
    disjoint(block, plan.layout.cpu_stride);
    disjoint(common, plan.layout.shared_size);
    let mut names: Vec<_> = plan.tables.iter().map(|m| &m.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), plan.tables.len(), "names of maps");
}

#[test]
fn parts_of_a_layout_do_not_overlap() {
    for seed in 0..300 {
        let program = testgen::program(
            seed,
            Config {
                kernel: true,
                size: 60,
            },
        );
        let frame = (seed as u32 % 7) * 9000 / 8 * 8;
        for cpus in [1, 2, 64, 130] {
            check_plan(
                &program,
                &LayoutInputs {
                    piece: 100 * seed as u32,
                    saved: 8 * seed as u32,
                    ..LayoutInputs::default()
                },
                frame,
                cpus,
            );
        }
    }
}

#[test]
fn statistics_have_space_for_requested_fields_only() {
    let full = StatsSpec {
        sum: true,
        min: true,
        max: true,
        variance: true,
        hist: Some(Hist::Log),
    };
    let agg = agg_layout(&full);
    let (hist, buckets) = agg.hist.expect("histogram");
    let mut pieces: Pieces = vec![
        (agg.count, 8, "count".into()),
        (hist, 8 * buckets, "hist".into()),
    ];
    for (at, size) in [(agg.sum, 8), (agg.min, 8), (agg.max, 8), (agg.sumsq, 16)] {
        pieces.push((at.expect("kept"), size, "word".into()));
    }
    disjoint(pieces, agg.size);
    assert_eq!(agg_layout(&StatsSpec::default()).size, 8);
}

/// Counters of many handlers, and many globals.
#[test]
fn counters_of_many_handlers_have_locations() {
    let mut text = "site @0 \"\"\n".to_string();
    for g in 0..400 {
        let kind = ["long", "stats(sum, min, max)"][g % 2];
        text += &format!("global g{g} \"g{g}\" {kind} percpu double @0\n");
    }
    for h in 0..1200 {
        text += &format!("handler \"h{h}\" points 1 tracepoint(\"x\") @0 {{\n  b0:\n    ret\n}}\n");
    }
    check_plan(
        &reader::read(&text).expect("reads"),
        &LayoutInputs::default(),
        0,
        2,
    );
}

/// Histograms of many statistics exceed the range of displacements.
#[test]
fn histograms_beyond_the_displacement_range_have_locations() {
    let mut text = "site @0 \"\"\n".to_string();
    for g in 0..24 {
        text += &format!("global g{g} \"h{g}\" stats(hist_linear 0 2000 4) percpu double @0\n");
    }
    check_plan(
        &reader::read(&text).expect("reads"),
        &LayoutInputs::default(),
        0,
        2,
    );
}
