//! Registers that are live together never share a location.

use spile_ir::analysis::liveness::Liveness;
use spile_ir::testgen::{self, Config};
use spile_ir::{BlockId, Body, Reg, Ty, Val, opt};

use super::{Allocation, Location, allocate};

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
    let alloc = allocate(body).expect("well-formed");
    for r in (0..body.regs.len() as u32).map(Reg) {
        match alloc.locations[r.index()] {
            Location::Reg(_) | Location::Stack(_) => assert_eq!(body.regs[r.index()], Ty::Long),
            Location::Frame(off) => {
                assert!(off % 8 == 0 && off + body.regs[r.index()].size() <= alloc.frame);
            }
            Location::None => {}
        }
    }
    let live = Liveness::new(body);
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
                // A string is built while its operands are read.
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
fn live_registers_have_different_locations() {
    for seed in 0..300 {
        let mut program = testgen::program(
            seed,
            Config {
                kernel: true,
                size: 20 + (seed as u32 % 5) * 30,
            },
        );
        if seed % 2 == 1 {
            opt::optimise(&mut program, true);
        }
        program.handlers.iter().for_each(|h| check_alloc(&h.body));
    }
}
