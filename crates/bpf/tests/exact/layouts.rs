//! Layouts: nothing overlaps, everything is aligned and in bounds; registers that are live together
//! never share a location.

use spile_bpf::layout::{GlobalPlace, PerCpuArray, counters, percpu, shared};
use spile_bpf::plan::{LayoutInputs, StateLayout, agg_layout};
use spile_bpf::regalloc::{self, Allocation, Location};
use spile_bpf::target::Options;
use spile_ir::analysis::liveness::Liveness;
use spile_ir::storage::Storage;
use spile_ir::*;

use crate::machine::{Contents, Kernel, options};
use crate::random::generate;

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

fn check_plan(program: &Program, needs: LayoutInputs, cpus: u32) {
    let mut options = options();
    options.cpus = cpus;
    let plan = StateLayout::new(
        program,
        std::rc::Rc::new(spile_ir::ProgramFacts::of(program)),
        &options,
        needs.clone(),
    )
    .expect("a plan");
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
        (s.digits, 128, "digits"),
        (s.frame, needs.frame, "frame"),
        (s.err_text, max, "err_text"),
        (s.text, 3 * max, "text"),
        (s.out, s.out_size, "out"),
    ] {
        block.push((at, size, what.into()));
    }
    for handler in plan.handlers.iter().flatten() {
        block.push((
            handler.counters,
            counters::HITS + 8,
            format!("{:?}", handler.id),
        ));
    }
    let (mut key, mut value) = (8, max);
    for (global, layout) in program.globals.iter().zip(&plan.globals) {
        let Some(layout) = layout else {
            assert_eq!(global.storage, Storage::Controller, "{}", global.name);
            continue;
        };
        let name = global.name.to_string();
        if let Some(lock) = layout.lock {
            common.push((lock, 8, format!("lock of {name}")));
        }
        match &layout.place {
            GlobalPlace::Scalar { offset, ty } => common.push((*offset, ty.size(), name)),
            GlobalPlace::Stats { offset, agg } => common.push((*offset, agg.size, name)),
            GlobalPlace::Hash {
                map,
                key_size,
                value: v,
                seq,
                max,
                field,
                ..
            } => {
                let spec = plan.maps.iter().find(|m| m.name == *map).expect("its map");
                let size = match field {
                    Some(field) => {
                        assert!(8 + 8 * field.bit == field.at && field.at + 8 <= field.record);
                        field.record
                    }
                    None => v.size() + if *seq { 8 } else { 0 },
                };
                assert_eq!((spec.key_size, spec.value_size), (*key_size, size));
                assert_eq!(spec.max_entries, *max);
                (key, value) = (key.max(*key_size), value.max(size));
            }
            GlobalPlace::PerCpuScalar {
                offset,
                gen_stride,
                value,
            } => {
                let generations = if *gen_stride > 0 { 2 } else { 1 };
                block.push((*offset, value.size() * generations, name));
            }
            GlobalPlace::PerCpuArray(array) => {
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
                assert!(colocated.at + v.size() <= colocated.size && colocated.at % 8 == 0);
                key = key.max(*key_size);
                if let Some(of) = colocated.of {
                    let of = plan.globals[of.index()].as_ref().expect("a place");
                    let GlobalPlace::PerCpuArray(PerCpuArray { maps: its, .. }) = &of.place else {
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
    disjoint(block, plan.stride);
    disjoint(common, plan.shared_size);
    assert!(plan.bss_size(&options) >= plan.shared_size + cpus * plan.stride);
    let mut names: Vec<_> = plan.maps.iter().map(|m| &m.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), plan.maps.len(), "names of maps");
}

#[test]
fn nothing_overlaps() {
    for seed in 0..300 {
        let program = generate(seed, 60);
        let frame = (seed as u32 % 7) * 9000 / 8 * 8;
        for cpus in [1, 2, 64, 130] {
            check_plan(
                &program,
                LayoutInputs {
                    frame,
                    piece: 100 * seed as u32,
                    saved: 8 * seed as u32,
                    ..LayoutInputs::default()
                },
                cpus,
            );
        }
    }
}

#[test]
fn statistics_keep_what_is_asked() {
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

/// The bytes of a location: kind, first, number.
fn bytes(alloc: &Allocation, body: &Body, r: Reg) -> Option<(u8, i64, i64)> {
    Some(match alloc.locations[r.index()] {
        Location::None => return None,
        Location::Reg(reg) => (0, reg as i64, 1),
        Location::Stack(off) => (1, i64::from(off), 8),
        Location::Frame(off) => (2, i64::from(off), i64::from(body.regs[r.index()].size())),
    })
}

fn apart(alloc: &Allocation, body: &Body, a: Reg, b: Reg) {
    let (Some(x), Some(y)) = (bytes(alloc, body, a), bytes(alloc, body, b)) else {
        return;
    };
    let overlap = x.0 == y.0 && x.1 < y.1 + y.2 && y.1 < x.1 + x.2;
    assert!(!overlap, "{a} at {x:?} and {b} at {y:?}\n{body:?}");
}

fn check_alloc(body: &Body) {
    let alloc = regalloc::allocate(body).expect("well-formed");
    for r in (0..body.regs.len() as u32).map(Reg) {
        match alloc.locations[r.index()] {
            Location::Reg(_) | Location::Stack(_) => assert_eq!(body.regs[r.index()], Ty::Long),
            Location::Frame(off) => {
                assert!(off % 8 == 0 && off + body.regs[r.index()].size() <= alloc.frame);
            }
            Location::None => {}
        }
    }
    let live = Liveness::of(body);
    for id in &alloc.order {
        let block = &body.blocks[id.index()];
        let mut set = live.live_out(block);
        live.step_term(block, &mut set);
        for (inst, _) in block.insts.iter().rev() {
            let after: Vec<Reg> = set.iter().collect();
            for (i, a) in after.iter().enumerate() {
                assert_ne!(alloc.locations[a.index()], Location::None, "{a} is alive");
                after[..i].iter().for_each(|b| apart(&alloc, body, *a, *b));
            }
            if let Some(dst) = inst.dst() {
                let others = after.iter().filter(|r| **r != dst);
                others.for_each(|r| apart(&alloc, body, dst, *r));
                // Text is built while its operands are read.
                let text = |r: Reg| body.regs[r.index()] != Ty::Long;
                inst.for_each_use(|v| match v {
                    Val::Reg(r) if r != dst && text(r) && text(dst) => apart(&alloc, body, dst, r),
                    _ => {}
                });
            }
            live.step(block, inst, &mut set);
        }
        assert!(set.iter().all(|r| live.live_in(*id).any(|x| x == r)) || block.catch.is_some());
    }
    for r in live.live_in(BlockId(0)) {
        assert!(
            alloc.undefined.contains(&r),
            "{r} is read before it is written"
        );
    }
}

#[test]
fn homes_of_living_registers_are_apart() {
    for seed in 0..300 {
        let mut program = generate(seed, 20 + (seed as u32 % 5) * 30);
        if seed % 2 == 1 {
            opt::optimise(&mut program, true);
        }
        program.handlers.iter().for_each(|h| check_alloc(&h.body));
    }
}

/// Counters of many handlers, and many globals. Handlers that do nothing have no code, unless times
/// are recorded.
#[test]
fn many_handlers_and_globals() {
    const HANDLERS: usize = 1200;
    const GLOBALS: usize = 400;
    let mut text = "site @0 \"\"\n".to_string();
    for g in 0..GLOBALS {
        let kind = ["long", "stats(sum, min, max)"][g % 2];
        text += &format!("global g{g} \"g{g}\" {kind} percpu double @0\n");
    }
    for h in 0..HANDLERS {
        let g = h % GLOBALS;
        let code = match (h % 3, g % 2) {
            (0, _) => String::new(),
            (_, 0) => format!("    gadd g{g}, {h}\n"),
            _ => format!("    stat_add g{g}[], {h}\n"),
        };
        text += &format!(
            "handler \"h{h}\" points 1 tracepoint(\"x\") @0 {{\n  b0:\n{code}    ret\n}}\n"
        );
    }
    let program = reader::read(&text).expect("reads");
    check_plan(&program, LayoutInputs::default(), 2);
    for timing in [false, true] {
        let options = Options {
            timing,
            ..options()
        };
        let mut kernel = Kernel::with(&program, &options).unwrap_or_else(|why| panic!("{why}"));
        kernel.run(&[]);
        kernel.run(&[]);
        for h in 0..HANDLERS {
            let hits = if h % 3 == 0 && !timing { 0 } else { 2 };
            assert_eq!(kernel.hits(h), hits, "{h}, {timing}");
            if timing {
                let info = kernel.info(h);
                assert!(kernel.header(info.counters + counters::TIME_SUM) > 0);
            }
        }
        for (g, contents) in kernel.outcome().globals.iter().enumerate() {
            let all = (g..HANDLERS).step_by(GLOBALS).filter(|h| h % 3 != 0);
            let sum: usize = 2 * all.sum::<usize>();
            let found = match contents {
                Some(Contents::One(interp::Cell::Stats(stat))) => stat.sum,
                Some(Contents::One(interp::Cell::Scalar(v))) => v.as_long(),
                _ => panic!("{contents:?}"),
            };
            assert_eq!(found, sum as i64, "g{g}");
        }
    }
}

/// Histograms of many statistics exceed the range of displacements.
#[test]
fn many_histograms() {
    let mut text = "site @0 \"\"\n".to_string();
    let mut code = String::new();
    for g in 0..24 {
        text += &format!("global g{g} \"h{g}\" stats(hist_linear 0 2000 4) percpu double @0\n");
        code += &format!("    stat_add g{g}[], r0\n");
    }
    text += &format!(
        "handler \"x\" points 1 tracepoint(\"x\") @0 {{\n  regs r0: long\n  b0:\n    \
         r0 = intr ctx_arg(0)\n{code}    ret\n}}\n"
    );
    let program = reader::read(&text).expect("reads");
    check_plan(&program, LayoutInputs::default(), 2);
    let mut kernel = Kernel::new(&program).unwrap_or_else(|why| panic!("{why}"));
    [0, 4, 5, 2000].iter().for_each(|n| kernel.run(&[*n]));
    for contents in kernel.outcome().globals {
        let Some(Contents::One(interp::Cell::Stats(stat))) = contents else {
            panic!("{contents:?}")
        };
        assert_eq!(stat.buckets[..4], [0, 1, 2, 0]);
        assert_eq!(stat.buckets.iter().sum::<u64>(), 4);
    }
}
