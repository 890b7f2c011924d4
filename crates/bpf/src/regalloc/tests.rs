//! Registers that are live together never share a location.

use spile_ebpf::isa::insn::Reg as MachineReg;
use spile_ebpf::isa::sequences::set_of;
use spile_ir::analysis::liveness::Liveness;
use spile_ir::testgen::{self, Config};
use spile_ir::{BinOp, BlockId, Body, Inst, Reg, Ty, Val, opt};

use super::numbers::{self, Input, Shape};
use super::{Location, POOL, STACK_END, Unallocated};

/// The bytes of a location: kind, first, number.
fn bytes(locations: &[Location], body: &Body, r: Reg) -> Option<(u8, i64, i64)> {
    Some(match locations[r.index()] {
        Location::None => return None,
        Location::Reg(reg) => (0, i64::from(reg.number()), 1),
        Location::Stack(off) => (1, i64::from(off), 8),
        Location::Frame(off) => (2, i64::from(off), i64::from(body.regs[r.index()].size())),
    })
}

fn apart(locations: &[Location], body: &Body, a: Reg, b: Reg) {
    let (Some(x), Some(y)) = (bytes(locations, body, a), bytes(locations, body, b)) else {
        return;
    };
    let overlap = x.0 == y.0 && x.1 < y.1 + y.2 && y.1 < x.1 + x.2;
    assert!(!overlap, "{a} at {x:?} and {b} at {y:?}\n{body:?}");
}

fn check_alloc(body: &Body) {
    let alloc = Unallocated::new(body)
        .expect("well-formed")
        .allocate(STACK_END);
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
                after[..i]
                    .iter()
                    .for_each(|b| apart(&alloc.locations, body, *a, *b));
            }
            if let Some(dst) = inst.dst() {
                let others = after.iter().filter(|r| **r != dst);
                others.for_each(|r| apart(&alloc.locations, body, dst, *r));
                // A string is built while its operands are read.
                let text = |r: Reg| body.regs[r.index()] != Ty::Long;
                inst.for_each_use(|v| match v {
                    Val::Reg(r) if r != dst && text(r) && text(dst) => {
                        apart(&alloc.locations, body, dst, r)
                    }
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

/// A shape for an instruction.
fn shape(inst: &Inst) -> Shape {
    match inst {
        Inst::Copy {
            src: Val::Str(_), ..
        } => Shape::Sequence,
        Inst::Copy { .. } => Shape::Copy,
        Inst::Un { .. } => Shape::InPlace { temps: 0 },
        Inst::Bin { op, .. } => match op {
            BinOp::Add | BinOp::Sub => Shape::InPlace { temps: 0 },
            BinOp::Shl | BinOp::Shr => Shape::InPlace { temps: 1 },
            BinOp::Eq | BinOp::Lt => Shape::Apart { temps: 1 },
            _ => Shape::Sequence,
        },
        Inst::GLoad { .. } => Shape::Value,
        Inst::GStore { val, .. } if !matches!(val, Val::Str(_)) => Shape::Store { temps: 2 },
        Inst::Tick { .. } => Shape::Nothing,
        _ => Shape::Sequence,
    }
}

fn shapes(body: &Body, b: BlockId) -> Vec<Shape> {
    let text = |r: Reg| body.regs[r.index()] != Ty::Long;
    let of = |inst: &Inst| {
        let mut texts = inst.dst().is_some_and(text);
        inst.for_each_use(|v| texts |= matches!(v, Val::Reg(r) if text(r)));
        if texts { Shape::Sequence } else { shape(inst) }
    };
    let insts = body.blocks[b.index()].insts.iter();
    insts.map(|(inst, _)| of(inst)).collect()
}

/// Numbers that are live together share no location; those that live across a sequence, or that it
/// reads, are in no register that it clobbers; and temporary registers are nobody else's.
fn check_numbers(body: &Body) {
    let alloc = Unallocated::new(body)
        .expect("well-formed")
        .allocate(STACK_END);
    let input = Input {
        body,
        alloc: &alloc,
        order: &alloc.order,
        shapes: &|b| shapes(body, b),
        fused: &|_| false,
    };
    let Some(numbers) = numbers::allocate(&input) else {
        return;
    };
    let number = |r: &Reg| body.regs[r.index()] == Ty::Long;
    let register = |r: Reg| match numbers.locations[r.index()] {
        Location::Reg(reg) => Some(reg),
        _ => None,
    };
    for id in &alloc.order {
        let block = &body.blocks[id.index()];
        let mut set = alloc.live.live_out(block);
        alloc.live.step_term(block, &mut set);
        let items = block.insts.iter().zip(shapes(body, *id)).enumerate();
        for (i, ((inst, _), shape)) in items.collect::<Vec<_>>().into_iter().rev() {
            let dst = inst.dst();
            let across: Vec<Reg> = set.iter().filter(number).collect();
            for (i, a) in across.iter().enumerate() {
                across[..i]
                    .iter()
                    .for_each(|b| apart(&numbers.locations, body, *a, *b));
            }
            let mut busy: Vec<Reg> = across.into_iter().filter(|r| Some(*r) != dst).collect();
            inst.for_each_use(|v| match v {
                Val::Reg(r) if number(&r) => busy.push(r),
                _ => {}
            });
            let temps = numbers.temps[id.index()][i];
            assert_eq!(temps.is_none(), shape == Shape::Sequence, "{inst:?}");
            let busy: Vec<_> = busy.into_iter().filter_map(register).collect();
            match temps {
                None => assert!(busy.iter().all(|r| POOL.contains(r)), "{inst:?}: {busy:?}"),
                Some(temps) => {
                    let own = dst.filter(number).and_then(register);
                    let all = MachineReg::ALL.into_iter();
                    let temps: Vec<_> = all.filter(|r| temps & set_of(*r) != 0).collect();
                    let free = |t| !busy.contains(t) && own != Some(*t);
                    assert!(temps.iter().all(free), "{inst:?}: {temps:?}");
                }
            }
            alloc.live.step(block, inst, &mut set);
        }
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
        for handler in &program.handlers {
            check_alloc(&handler.body);
            check_numbers(&handler.body);
        }
    }
}
