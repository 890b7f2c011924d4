//! How the code of each instruction uses registers, for their allocation.

use spile_ir::intrinsics::{ClockOp, ContextOp, Intrinsic, IntrinsicClass, SessionOp, TaskNumber};
use spile_ir::{BinOp, Block, BlockId, Event, GlobalId, Inst, SiteId, Term, Ty, UnOp, Val};
use spile_layout::GlobalLocation;

use super::operand::condition;
use crate::attach::attachment::Hook;
use crate::lower::body_context::BodyContext;
use crate::regalloc::numbers::{self, Input, Numbers, Shape};

impl BodyContext<'_> {
    /// The locations of the body's numbers in these blocks, in their order. `None` if those of the
    /// body's allocation stay.
    pub(crate) fn numbers(&self, order: &[BlockId]) -> Option<&Numbers> {
        let allocate = || {
            // See `HandlerCodegen::save_task_once`.
            let task = self.task_wanted(order) > 1;
            numbers::allocate(&Input {
                body: self.body,
                alloc: self.alloc,
                order,
                shapes: &|b| self.shapes(b, task),
                fused: &|block| self.fused(block),
            })
        };
        self.numbers.get_or_init(allocate).as_ref()
    }

    /// The shapes of a block's instructions. `task` says whether the current task is saved.
    fn shapes(&self, b: BlockId, task: bool) -> Vec<Shape> {
        let records = self.records();
        let mut seen = records.seen[b.index()];
        let insts = &self.body.blocks[b.index()].insts;
        let shape = |(inst, _): &(Inst, SiteId)| {
            let field = inst.global().and_then(|g| self.location_of(g));
            if !matches!(field, Some(GlobalLocation::Hash { field: Some(_), .. })) {
                return self.shape(inst, task);
            }
            // See `HandlerCodegen::begin_block_facts`.
            let steps = !self.alloc.resume.is_empty();
            let thread = records.thread_of(inst).filter(|_| !steps);
            let (saved, exists) = thread.map_or((false, false), |thread| seen.knows(thread));
            seen.apply_access(inst, thread);
            match inst {
                Inst::AGet { .. } | Inst::AHas { .. } if saved => Shape::Value,
                Inst::ASet { .. } | Inst::AAdd { old: None, .. } if saved && exists => {
                    Shape::Store { temps: 2 }
                }
                _ => Shape::Sequence,
            }
        };
        insts.iter().map(shape).collect()
    }

    fn shape(&self, inst: &Inst, task: bool) -> Shape {
        if self.is_folded(inst) {
            return Shape::Nothing;
        }
        let by_constant = |b: Val| matches!(b, Val::Imm(1..=0x7fff_ffff | -0x7fff_ffff..=-1));
        let scalar = |g: GlobalId| {
            matches!(
                self.location_of(g),
                Some(GlobalLocation::Scalar { ty: Ty::Long, .. })
            )
        };
        match inst {
            Inst::Copy { dst, .. } if self.body.regs[dst.index()] != Ty::Long => Shape::Sequence,
            Inst::Copy { .. } => Shape::Copy,
            Inst::Un { op: UnOp::Not, .. } => Shape::Apart { temps: 0 },
            Inst::Un { .. } => Shape::InPlace { temps: 0 },
            Inst::Bin { op, .. } if condition(*op).is_some() => Shape::Apart { temps: 0 },
            Inst::Bin {
                op: BinOp::Div | BinOp::Mod,
                b,
                ..
            } => match by_constant(*b) {
                true => Shape::InPlace { temps: 1 },
                false => Shape::Sequence,
            },
            Inst::Bin {
                op: BinOp::Shl | BinOp::Shr | BinOp::UShr,
                b,
                ..
            } => Shape::InPlace {
                temps: u8::from(!matches!(b, Val::Imm(_))),
            },
            Inst::Bin { .. } => Shape::InPlace { temps: 0 },
            Inst::Tick { n } if !self.ticking || *n == 0 => Shape::Nothing,
            Inst::GLoad { g, .. } if scalar(*g) => Shape::Value,
            Inst::GStore { g, .. } if scalar(*g) => Shape::Store { temps: 1 },
            Inst::Load { .. } if task && self.task_field(inst).is_some() => Shape::Value,
            Inst::Intr {
                dst: Some(_), f, ..
            } => self.intrinsic_shape(*f, task),
            _ => Shape::Sequence,
        }
    }

    fn intrinsic_shape(&self, f: Intrinsic, task: bool) -> Shape {
        let loaded = |which| task && self.options.offsets.number(which).is_some();
        match f.class() {
            IntrinsicClass::TaskNumber(which @ (TaskNumber::Pid | TaskNumber::Tid))
                if loaded(which) =>
            {
                Shape::Value
            }
            IntrinsicClass::Clock(ClockOp::TzOffset) => Shape::Value,
            IntrinsicClass::Context(ContextOp::CtxArg) if self.loads_arguments() => Shape::Value,
            IntrinsicClass::Session(
                SessionOp::Target | SessionOp::DirectMap | SessionOp::PageArray,
            ) => Shape::Value,
            IntrinsicClass::Session(SessionOp::InTree) => Shape::Apart { temps: 1 },
            _ => Shape::Sequence,
        }
    }

    /// Whether arguments are loaded from the context.
    pub(crate) fn loads_arguments(&self) -> bool {
        let event = self.event();
        !matches!(event, Event::Code(_)) && Hook::of(event).is_none()
    }

    /// Whether the last instruction is a comparison that only the branch reads.
    pub(crate) fn fused(&self, block: &Block) -> bool {
        let (
            Term::Branch {
                cond: Val::Reg(cond),
                ..
            },
            Some((last, _)),
        ) = (&block.term, block.insts.last())
        else {
            return false;
        };
        let compares = match last {
            Inst::Bin { op, .. } => condition(*op).is_some(),
            Inst::StrCmp { .. } => true,
            Inst::Un { op, .. } => *op == UnOp::Not,
            _ => false,
        };
        compares && last.dst() == Some(*cond) && self.uses[cond.index()] == 1
    }
}
