//! The code generator of a function, and its operands.

use std::ops::Deref;

use spile_cast::Cast;
use spile_ebpf::isa::asm::{Asm, Label};
use spile_ebpf::isa::insn::Reg::*;
use spile_ebpf::isa::insn::{Reg, Size, Src};
use spile_ebpf::isa::sequences::RegMask;
use spile_ir::{BlockId, SiteId, Ty, Val};

use super::body_context::BodyContext;
use super::data::thread_record_facts::RecordState;
use super::operand::StrOperand;
use super::out_of_line::OutOfLine;
use super::pool::Pool;
use super::slots::{BLOCK, TMP};
use crate::error::Res;
use crate::regalloc::Location;
use crate::regalloc::numbers::Numbers;

/// The code generator of one function: a program, or a subprogram of a handler. It has the fields of
/// its [`BodyContext`].
pub(crate) struct HandlerCodegen<'a> {
    pub asm: &'a mut Asm,
    pub pool: &'a mut Pool,
    /// Facts about the body.
    pub ctx: &'a BodyContext<'a>,
    /// The location of each register in this function.
    pub locations: &'a [Location],
    /// The final locations of numbers and the temporary registers, behind the leading tests.
    pub numbers: Option<&'a Numbers>,
    /// The registers that are free for the current instruction, unless those of calls are.
    pub temps: Option<RegMask>,
    /// The label of each block.
    pub labels: Vec<Label>,
    /// The label at which the handler ends.
    pub done: Label,
    /// The script position of the current instruction.
    pub site: SiteId,
    /// The catch block of the current block.
    pub catch: Option<BlockId>,
    /// The current block.
    pub cur_block: BlockId,
    pub out_of_line: Vec<OutOfLine>,
    /// Calls of error subprograms that failure paths jump to, with their names.
    pub error_tails: Vec<(&'static str, Label)>,
    /// The global that the current instruction accesses.
    pub current: Option<spile_ir::GlobalId>,
    /// Whether the current task is in its stack slot.
    pub task_saved: bool,
    /// Whether the system call's number is computed at its use.
    pub late_number: bool,
    /// Whether this is the code of a global subprogram.
    pub in_subprogram: bool,
    /// Facts about thread records at the current instruction; `None` before the first block.
    pub(crate) record_state: Option<RecordState>,
}

impl<'a> Deref for HandlerCodegen<'a> {
    type Target = BodyContext<'a>;

    fn deref(&self) -> &BodyContext<'a> {
        self.ctx
    }
}

impl<'a> HandlerCodegen<'a> {
    /// A generator that emits into `asm`.
    pub(crate) fn new(
        asm: &'a mut Asm,
        pool: &'a mut Pool,
        ctx: &'a BodyContext<'a>,
    ) -> HandlerCodegen<'a> {
        asm.set_spill_words(&TMP);
        let labels = ctx.body.blocks.iter().map(|_| asm.label()).collect();
        let done = asm.label();
        HandlerCodegen {
            asm,
            pool,
            ctx,
            locations: &ctx.alloc.locations,
            numbers: None,
            temps: None,
            labels,
            done,
            site: SiteId(0),
            catch: None,
            cur_block: BlockId(0),
            out_of_line: Vec::new(),
            error_tails: Vec::new(),
            current: None,
            task_saved: false,
            late_number: false,
            in_subprogram: false,
            record_state: None,
        }
    }

    /// A generator for another function of the same handler.
    pub(crate) fn sub_codegen<'b>(&'b mut self, asm: &'b mut Asm) -> HandlerCodegen<'b> {
        HandlerCodegen::new(asm, self.pool, self.ctx)
    }

    // Operands.

    pub(crate) fn location(&self, r: spile_ir::Reg) -> Location {
        self.locations[r.index()]
    }

    pub(crate) fn ty(&self, v: Val) -> Res<Ty> {
        self.program
            .type_of(self.body, v)
            .ok_or_else(|| "an operand does not exist".into())
    }

    /// `reg` = word at an offset of the per-CPU area.
    pub(crate) fn load(&mut self, reg: Reg, off: u32) {
        let (base, disp) = self.block_operand(off, 8);
        self.asm.load(Size::DW, reg, base, disp);
    }

    /// Word at an offset of the per-CPU area = `src`.
    pub(crate) fn store(&mut self, off: u32, src: impl Into<Src>) {
        let (base, disp) = self.block_operand(off, 8);
        self.asm.store(Size::DW, base, disp, src);
    }

    /// A number in its cheapest form: an immediate, its own register, or loaded into another one.
    pub(crate) fn number(&mut self, v: Val) -> Res<Src> {
        let r = match v {
            Val::Imm(n) => return Ok(self.asm.constant(n)),
            Val::Reg(r) if self.body.regs[r.index()] == Ty::Long => r,
            Val::Reg(_) | Val::Str(_) => return Err("a string where a number belongs".into()),
        };
        Ok(match self.location(r) {
            Location::Reg(reg) => reg,
            Location::Stack(off) => self.asm.word(R10, off),
            Location::Frame(off) => self.block_word(self.plan.scratch.frame + off),
            Location::None => self.asm.copy(0),
        }
        .into())
    }

    /// Loads a number into `reg`, which the caller may then change.
    pub(crate) fn use_in(&mut self, v: Val, reg: Reg) -> Res {
        let src = self.number(v)?;
        if src != Src::Reg(reg) {
            self.asm.mov(reg, src);
        }
        Ok(())
    }

    /// `dst = src`.
    pub(crate) fn def_int(&mut self, dst: spile_ir::Reg, src: impl Into<Src>) -> Res {
        let src = src.into();
        if self.body.regs.get(dst.index()) != Some(&Ty::Long) {
            return Err("a number for a string register".into());
        }
        match self.location(dst) {
            Location::Reg(reg) if src == Src::Reg(reg) => {}
            Location::Reg(reg) => self.asm.mov(reg, src),
            Location::Stack(off) => self.asm.store(Size::DW, R10, off, src),
            Location::Frame(off) => self.store(self.plan.scratch.frame + off, src),
            Location::None => {}
        }
        Ok(())
    }

    /// A string operand.
    pub(crate) fn text(&mut self, v: Val) -> Res<StrOperand> {
        match v {
            Val::Str(s) => match self.program.strings.get(s.index()) {
                Some(bytes) => Ok(StrOperand::Const {
                    bytes: bytes.clone(),
                }),
                None => Err("a string constant does not exist".into()),
            },
            Val::Reg(r) => match (self.location(r), self.body.regs[r.index()]) {
                (Location::Frame(off), Ty::Str(width)) => Ok(StrOperand::Slot {
                    off: self.plan.scratch.frame + off,
                    width: width.into(),
                }),
                (Location::None, Ty::Str(_)) => Ok(StrOperand::literal("")),
                _ => Err("a number where a string belongs".into()),
            },
            Val::Imm(_) => Err("a number where a string belongs".into()),
        }
    }

    /// Offset and width of the slot of a string register; `None` if it is never read.
    pub(crate) fn slot(&self, dst: spile_ir::Reg) -> Res<Option<(u32, u32)>> {
        match (self.location(dst), self.body.regs[dst.index()]) {
            (Location::Frame(off), Ty::Str(w)) => {
                Ok(Some((self.plan.scratch.frame + off, w.into())))
            }
            (Location::None, Ty::Str(_)) => Ok(None),
            _ => Err("a string for a number register".into()),
        }
    }

    /// Adds 1 to a counter of the per-CPU area.
    pub(crate) fn count(&mut self, counter: u32) {
        let count = self.asm.word(BLOCK, counter.fit());
        self.asm.add(count, 1);
        self.asm.store(Size::DW, BLOCK, counter.fit(), count);
    }
}
