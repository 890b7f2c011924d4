//! Instruction selection: the code of one handler.
//!
//! In: the body of a handler, the location of each of its registers, and the plan of the shared
//! memory. Out: a function of the assembler, and the subprograms that it calls. The attach kind of
//! a handler and the place of a global are decided elsewhere: in [`crate::attach`] and
//! [`crate::plan`].
//!
//! | module | what it lowers |
//! |---|---|
//! | `mod` | operands, blocks, jumps |
//! | [`handler`] | numbers, calls, errors, loops, a handler's beginning and end, shared subprograms |
//! | [`data`] | globals, arrays, aggregates, `foreach` |
//! | [`text`] | strings, formats, output |
//! | [`event`] | the event's context, the current task, the machine |
//! | `syscalls` | numbers, arguments and results of system calls, and their text |
//!
//! # Registers
//! `r7` is this CPU's block while the body runs. Numbers live in `r6`, `r8`, `r9`, on the
//! stack or in the frame (see [`crate::regalloc`]); `r0`-`r5` are free inside an instruction.
//! The top 72 bytes of the stack hold the context, the generation, the system call's number, five
//! scratch words and the current task.
//!
//! # Strings
//! A string fills its slot: zeros follow its bytes, up to the slot's width. Copies, comparisons and
//! hashes therefore work on whole words and never look for the end.
//!
//! # The verifier
//! The verifier follows every path. Paths that leave different constants in registers would
//! multiply; such values go through a scratch word of the CPU's block, which makes them unknown
//! numbers.

pub(crate) mod data;
pub(crate) mod event;
pub(crate) mod handler;
mod syscalls;
pub(crate) mod text;

use std::cell::OnceCell;

use spile_ir::{
    BinOp, Block, BlockId, Body, BodyFacts, HandlerId, Inst, Program, SiteId, Term, Ty, Val,
};

pub(crate) use self::syscalls::{of_number, reads_number, unlinked_number};
pub(crate) use crate::layout::RING;
pub(crate) use crate::lower::event::usermem::USER_TEXT;
pub(crate) use crate::lower::handler::calls::{fields as rethrown_fields, saved_max};
pub(crate) use crate::lower::handler::pool::Pool;
pub(crate) use crate::lower::text::memory::{field_types, reads_into_text};
pub(crate) use crate::lower::text::output::piece_size as output_piece;

use crate::isa::asm::{Asm, Label, Section, SourceLine};
use crate::isa::insn::Reg::*;
use crate::isa::insn::{Cond, Reg, Size, Src};
use crate::layout::ErrorKind;
use crate::plan::StateLayout;
use crate::regalloc::{Allocation, Location};
use crate::target::Options;

/// The result of lowering; the error says why an instruction cannot be compiled.
pub(crate) type Res<T = ()> = Result<T, String>;

/// Stack slot of the context.
pub(crate) const CTX: i16 = -8;
/// Stack slot of the generation, 0 or 1.
pub(crate) const GEN: i16 = -16;
/// Stack slot of the system call's number.
pub(crate) const NR: i16 = -24;
/// Scratch stack slots.
pub(crate) const TMP: [i16; 5] = [-32, -40, -48, -56, -64];
/// Stack slot of the current task, where the handler saves it.
pub(crate) const TASK: i16 = -72;
/// Stack slots of the addresses of thread records, below those of numbers.
pub(crate) const THREAD_RECORDS: [i16; spile_ir::storage::ThreadIdRegs::COUNT] = [-248, -256];
/// Stack slot of the verdict on a packet, for handlers that decide. A hit that is turned away
/// leaves the earlier verdict.
pub(crate) const VERDICT: i16 = -264;
/// Displacements below this limit fit in an instruction.
const REACH: u32 = 32_000;
/// Loops over at most this number of words are unrolled without an early exit.
const UNROLL: u32 = 16;

/// A string operand.
#[derive(Debug, Clone)]
pub(crate) enum StrOperand {
    /// A slot of this CPU's block.
    Slot { off: u32, width: u32 },
    /// A constant.
    Const { bytes: spile_ir::Bytes },
}

impl StrOperand {
    /// Bytes of the operand's slot.
    pub fn width(&self) -> u32 {
        match self {
            StrOperand::Slot { width, .. } => *width,
            StrOperand::Const { bytes } => Ty::str_for_len(bytes.len()).size(),
        }
    }

    /// Word `i` of a constant, padded with zeros.
    fn const_word(bytes: &[u8], i: u32) -> u64 {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes.iter().skip(i as usize * 8)) {
            *to = *from;
        }
        u64::from_ne_bytes(word)
    }
}

/// Code that is emitted behind the handler, off the straight path.
pub(crate) enum OutOfLine {
    /// The failure path of an instruction.
    Fail(crate::lower::handler::errors::FailurePath),
    /// A miss in the cache of a per-CPU array.
    Miss(crate::lower::data::aggregates::CacheMiss),
    /// A back edge of a resumable loop.
    BackEdge(crate::lower::handler::resumable_loop::BackEdge),
}

/// The code generator of one handler.
pub(crate) struct HandlerCodegen<'a> {
    pub asm: &'a mut Asm,
    pub program: &'a Program,
    pub options: &'a Options,
    pub plan: &'a StateLayout,
    pub pool: &'a mut Pool,
    pub handler: HandlerId,
    pub body: &'a Body,
    /// Summary of what the body contains.
    pub facts: &'a BodyFacts,
    pub alloc: &'a Allocation,
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
    /// The number of reads of each register.
    uses: Vec<u32>,
    /// The global that the current instruction accesses.
    pub current: Option<spile_ir::GlobalId>,
    /// Whether `Tick` has to count.
    pub ticking: bool,
    /// Whether the current task is in its stack slot.
    pub task_saved: bool,
    /// Whether the system call's number is computed at its use.
    pub late_number: bool,
    /// For each register, how the controller writes its text if it may read the text later.
    pub deferred: Vec<Option<crate::layout::Quote>>,
    /// Whether this is the code of a global subprogram.
    pub in_subprogram: bool,
    /// Facts about thread records in the whole body.
    records: OnceCell<crate::lower::data::thread_record::RecordFacts>,
    /// Facts about thread records at the current instruction; `None` before the first block.
    record_state: Option<crate::lower::data::thread_record::RecordState>,
    /// Whether each register has several definitions.
    several: Vec<bool>,
    fields: OnceCell<crate::lower::event::task_fields::TaskFields>,
    kinds: OnceCell<Vec<ErrorKind>>,
}

impl<'a> HandlerCodegen<'a> {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        asm: &'a mut Asm,
        program: &'a Program,
        options: &'a Options,
        plan: &'a StateLayout,
        pool: &'a mut Pool,
        handler: HandlerId,
        alloc: &'a Allocation,
    ) -> HandlerCodegen<'a> {
        let body = &program.handlers[handler.index()].body;
        let code = (body, plan.facts.handler(handler), alloc);
        HandlerCodegen::of(asm, (program, options, plan), pool, handler, code)
    }

    /// A generator for another function of the same handler.
    fn sub_codegen<'b>(&'b mut self, asm: &'b mut Asm) -> HandlerCodegen<'b> {
        let (program, options, plan) = (self.program, self.options, self.plan);
        HandlerCodegen::new(
            asm,
            program,
            options,
            plan,
            self.pool,
            self.handler,
            self.alloc,
        )
    }

    /// A generator for any body.
    pub fn of(
        asm: &'a mut Asm,
        (program, options, plan): (&'a Program, &'a Options, &'a StateLayout),
        pool: &'a mut Pool,
        handler: HandlerId,
        (body, facts, alloc): (&'a Body, &'a BodyFacts, &'a Allocation),
    ) -> HandlerCodegen<'a> {
        let mut uses = vec![0; body.regs.len()];
        for block in alloc.order.iter().map(|b| &body.blocks[b.index()]) {
            let mut count = |v: Val| {
                if let Val::Reg(r) = v {
                    uses[r.index()] += 1;
                }
            };
            block
                .insts
                .iter()
                .for_each(|(i, _)| i.for_each_use(&mut count));
            block.term.for_each_use(&mut count);
        }
        let labels = body.blocks.iter().map(|_| asm.label()).collect();
        let done = asm.label();
        HandlerCodegen {
            asm,
            program,
            options,
            plan,
            pool,
            handler,
            body,
            facts,
            alloc,
            labels,
            done,
            site: SiteId(0),
            catch: None,
            cur_block: BlockId(0),
            out_of_line: Vec::new(),
            uses,
            current: None,
            ticking: false,
            task_saved: false,
            late_number: false,
            deferred: crate::lower::event::deferred::output_uses(program, body),
            in_subprogram: false,
            records: OnceCell::new(),
            record_state: None,
            several: several(body),
            fields: OnceCell::new(),
            kinds: OnceCell::new(),
        }
    }

    // Operands.

    fn location(&self, r: spile_ir::Reg) -> Location {
        self.alloc.locations[r.index()]
    }

    pub fn ty(&self, v: Val) -> Res<Ty> {
        self.program
            .type_of(self.body, v)
            .ok_or_else(|| "an operand does not exist".into())
    }

    /// Base and displacement for `len` bytes at an offset of the CPU's block. Loads the address
    /// into `scratch` if a displacement does not reach.
    pub fn block_operand(&mut self, scratch: Reg, off: u32, len: u32) -> (Reg, i16) {
        if off + len <= REACH {
            return (R7, off as i16);
        }
        self.block_addr(scratch, off);
        (scratch, 0)
    }

    /// `reg` = address of an offset of the CPU's block.
    pub fn block_addr(&mut self, reg: Reg, off: u32) {
        self.asm.mov(reg, R7);
        if off != 0 {
            self.asm.add(reg, off as i32);
        }
    }

    /// `reg` = word at an offset of the CPU's block.
    pub fn load(&mut self, reg: Reg, off: u32) {
        let (base, disp) = self.block_operand(reg, off, 8);
        self.asm.load(Size::DW, reg, base, disp);
    }

    /// Word at an offset of the CPU's block = `src`. Clobbers r5 if the displacement is out of
    /// range.
    pub fn store(&mut self, off: u32, src: impl Into<Src>) {
        let (base, disp) = self.block_operand(R5, off, 8);
        self.asm.store(Size::DW, base, disp, src);
    }

    /// `reg` = address in the shared block.
    pub fn shared(&mut self, reg: Reg, off: u32) {
        self.asm.ld_data(reg, Section::Bss, off);
    }

    /// A number in its cheapest form: an immediate, its own register, or loaded into `scratch`.
    pub fn use_int(&mut self, v: Val, scratch: Reg) -> Res<Src> {
        match v {
            Val::Imm(n) => match i32::try_from(n) {
                Ok(n) => return Ok(Src::Imm(n)),
                Err(_) => self.asm.imm(scratch, n),
            },
            Val::Str(_) => return Err("a string where a number belongs".into()),
            Val::Reg(r) => {
                if self.body.regs[r.index()] != Ty::Long {
                    return Err("a string where a number belongs".into());
                }
                match self.location(r) {
                    Location::Reg(reg) => return Ok(Src::Reg(reg)),
                    Location::Stack(off) => self.asm.load(Size::DW, scratch, R10, off),
                    Location::Frame(off) => self.load(scratch, self.plan.scratch.frame + off),
                    Location::None => self.asm.mov(scratch, 0),
                }
            }
        }
        Ok(Src::Reg(scratch))
    }

    /// A number in a register: its own, or `scratch`.
    pub fn use_in_reg(&mut self, v: Val, scratch: Reg) -> Res<Reg> {
        match self.use_int(v, scratch)? {
            Src::Reg(r) => Ok(r),
            Src::Imm(n) => {
                self.asm.mov(scratch, n);
                Ok(scratch)
            }
        }
    }

    /// Loads a number into `reg`, which the caller may then change.
    pub fn use_in(&mut self, v: Val, reg: Reg) -> Res {
        let src = self.use_int(v, reg)?;
        if src != Src::Reg(reg) {
            self.asm.mov(reg, src);
        }
        Ok(())
    }

    /// `dst = src`. Clobbers r5 if the displacement is out of range.
    pub fn def_int(&mut self, dst: spile_ir::Reg, src: impl Into<Src>) -> Res {
        let src = src.into();
        if self.body.regs.get(dst.index()) != Some(&Ty::Long) {
            return Err("a number for a string register".into());
        }
        match self.location(dst) {
            Location::Reg(reg) if src == Src::Reg(reg) => {}
            Location::Reg(reg) if src == Src::Reg(R0) && self.asm.retarget(R0, reg) => {}
            Location::Reg(reg) => self.asm.mov(reg, src),
            Location::Stack(off) => self.asm.store(Size::DW, R10, off, src),
            Location::Frame(off) => self.store(self.plan.scratch.frame + off, src),
            Location::None => {}
        }
        Ok(())
    }

    /// A string operand.
    pub fn text(&mut self, v: Val) -> Res<StrOperand> {
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
                (Location::None, Ty::Str(_)) => Ok(StrOperand::Const {
                    bytes: (*b"").into(),
                }),
                _ => Err("a number where a string belongs".into()),
            },
            Val::Imm(_) => Err("a number where a string belongs".into()),
        }
    }

    /// Offset and width of the slot of a string register; `None` if it is never read.
    pub fn slot(&self, dst: spile_ir::Reg) -> Res<Option<(u32, u32)>> {
        match (self.location(dst), self.body.regs[dst.index()]) {
            (Location::Frame(off), Ty::Str(w)) => {
                Ok(Some((self.plan.scratch.frame + off, w.into())))
            }
            (Location::None, Ty::Str(_)) => Ok(None),
            _ => Err("a string for a number register".into()),
        }
    }

    /// `[r7 + counter] += 1`. Clobbers r1.
    pub fn count(&mut self, counter: u32) {
        self.asm.load(Size::DW, R1, R7, counter as i16);
        self.asm.add(R1, 1);
        self.asm.store(Size::DW, R7, counter as i16, R1);
    }

    // Blocks.

    /// Emits these blocks, in that order.
    pub fn blocks(&mut self, order: &[BlockId]) -> Res {
        for (i, id) in order.iter().enumerate() {
            let label = self.labels[id.index()];
            self.asm.bind(label);
            let block = &self.body.blocks[id.index()];
            self.catch = block.catch;
            self.cur_block = *id;
            self.begin_block_facts();
            self.block(block, order.get(i + 1).copied())?;
        }
        Ok(())
    }

    fn block(&mut self, block: &Block, next: Option<BlockId>) -> Res {
        let fused = self.fused(block);
        let n = block.insts.len() - usize::from(fused);
        for (inst, site) in &block.insts[..n] {
            self.site = *site;
            self.line(*site);
            self.current = inst.global();
            self.inst(inst)?;
        }
        match &block.term {
            Term::Jump(to) => {
                self.go(*to, next);
                Ok(())
            }
            Term::Branch { cond, then, els } if fused => {
                let _ = cond;
                self.fused_branch(&block.insts[n].0, *then, *els, next)
            }
            Term::Branch { cond, then, els } => {
                // A constant condition is tested too: both targets must stay reachable for the
                // verifier.
                let cond = self.use_in_reg(*cond, R0)?;
                self.branch(Cond::Ne, cond, Src::Imm(0), (*then, *els), next);
                Ok(())
            }
            Term::Ret(_) | Term::EndHandler => {
                self.asm.jump(self.done);
                Ok(())
            }
            Term::IterNext {
                it,
                keys,
                value,
                body,
                done,
            } => self.iter_term(*it, keys, *value, (*body, *done), next),
        }
    }

    /// Attributes the following instructions to this position in the script.
    pub(super) fn line(&mut self, site: SiteId) {
        if !self.options.lines {
            return;
        }
        let Some(near) = self.program.trace(site, &[]).first().map(|s| &s.near) else {
            return;
        };
        // The text has the form `identifier 'x' at script.stp:3:4`, and older kernels show only
        // that much.
        let mut parts = near.rsplitn(3, ':');
        let mut number = || parts.next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let (column, line) = (number(), number());
        let place = parts.next().unwrap_or_default();
        if line == 0 {
            return;
        }
        let file = place.rsplit_once(" at ").map_or(place, |(_, file)| file);
        self.asm.source_line(&SourceLine {
            file: file.into(),
            text: near.clone(),
            line,
            column,
        });
    }

    fn go(&mut self, to: BlockId, next: Option<BlockId>) {
        if Some(to) != next {
            let label = self.branch_target(to);
            self.asm.jump(label);
        }
    }

    /// Jumps to the first block if the condition holds, else to the second.
    fn branch(
        &mut self,
        cond: Cond,
        a: Reg,
        b: Src,
        (then, els): (BlockId, BlockId),
        next: Option<BlockId>,
    ) {
        match cond.inverse() {
            Some(inverse) if Some(then) == next => {
                let label = self.branch_target(els);
                self.asm.jump_if(inverse, a, b, label);
            }
            _ => {
                let label = self.branch_target(then);
                self.asm.jump_if(cond, a, b, label);
                self.go(els, next);
            }
        }
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
            Inst::Bin { op, .. } => crate::lower::handler::arith::condition(*op).is_some(),
            Inst::StrCmp { .. } => true,
            Inst::Un { op, .. } => *op == spile_ir::UnOp::Not,
            _ => false,
        };
        compares && last.dst() == Some(*cond) && self.uses[cond.index()] == 1
    }

    fn fused_branch(
        &mut self,
        inst: &Inst,
        then: BlockId,
        els: BlockId,
        next: Option<BlockId>,
    ) -> Res {
        match inst {
            Inst::Bin { op, a, b, .. } => {
                let cond =
                    crate::lower::handler::arith::condition(*op).ok_or("not a comparison")?;
                let a = self.use_in_reg(*a, R0)?;
                let b = self.use_int(*b, R1)?;
                self.branch(cond, a, b, (then, els), next);
            }
            Inst::Un { a, .. } => {
                let a = self.use_in_reg(*a, R0)?;
                self.branch(Cond::Eq, a, Src::Imm(0), (then, els), next);
            }
            Inst::StrCmp { op, a, b, .. } => {
                let (a, b) = (self.text(*a)?, self.text(*b)?);
                let (yes, no) = (self.branch_target(then), self.branch_target(els));
                self.compare_texts(*op, &a, &b, yes, no)?;
            }
            _ => return Err("not a comparison".into()),
        }
        Ok(())
    }

    /// Emits one instruction.
    pub fn inst(&mut self, inst: &Inst) -> Res {
        if self.is_folded(inst) {
            return Ok(());
        }
        match inst {
            Inst::Copy { dst, src } => self.copy(*dst, *src),
            Inst::Un { dst, op, a } => self.unary(*dst, *op, *a),
            Inst::Bin {
                dst,
                op: op @ (BinOp::Div | BinOp::Mod),
                a,
                b,
            } => self.divide(*dst, *op, *a, *b),
            Inst::Bin { dst, op, a, b } => self.binary(*dst, *op, *a, *b),
            Inst::StrCmp { dst, op, a, b } => self.str_cmp(*dst, *op, *a, *b),
            Inst::Concat { dst, a, b } => self.concat(*dst, *a, *b),
            Inst::TableGet { dst, table, idx } => self.table_get(*dst, *table, *idx),
            Inst::Regex {
                dst,
                re,
                text,
                keep,
            } => self.regex(*dst, *re, *text, *keep),
            Inst::Sprint { dst, fmt, args } => self.sprint(*dst, *fmt, args),
            Inst::Print { stream, fmt, args } => self.print(*stream, *fmt, args),
            Inst::Intr { dst, f, args } => self.intrinsic(*dst, *f, args),
            Inst::GLoad { dst, g } => self.global_load(*dst, *g),
            Inst::GStore { g, val } => self.global_store(*g, *val),
            Inst::GAdd { g, val, old } => self.global_add(*g, *val, *old),
            Inst::GClear { g } => self.global_clear(*g),
            Inst::AGet { dst, g, keys } => self.array_get(*dst, *g, keys),
            Inst::ASet { g, keys, val } => self.array_set(*g, keys, *val),
            Inst::AAdd { g, keys, val, old } => self.array_add(*g, keys, *val, *old),
            Inst::AHas { dst, g, keys } => self.array_has(*dst, *g, keys),
            Inst::ADel { g, keys } => self.array_delete(*g, keys),
            Inst::StatAdd { g, keys, val } => self.stat_add(*g, keys, *val),
            Inst::StatGet {
                dst, g, keys, what, ..
            } => self.stat_get(*dst, *g, keys, *what),
            Inst::Load {
                dst,
                space,
                addr,
                size,
                signed,
            } => match self.task_field(inst) {
                Some(at) => self.task_field_load(*dst, at, (*size, *signed)),
                None => self.memory_load(*dst, *space, *addr, *size, *signed),
            },
            Inst::Raise { msg } => self.raise(*msg),
            Inst::CatchMsg { dst } => self.catch_msg(*dst),
            Inst::Tick { n } => self.tick(*n),
            Inst::Enter | Inst::Leave | Inst::Save { .. } | Inst::Restore { .. } => {
                self.activation(inst)
            }
            Inst::Rethrow => self.rethrow(),
            Inst::PrintHist { g, keys } => self.print_hist(*g, keys),
            Inst::HistGet { dst, g, keys, idx } => self.hist_get(*dst, *g, keys, *idx),
            Inst::IterNew {
                it,
                g,
                slice,
                limit,
                ..
            } => self.iter_new(*it, *g, slice, *limit),
            Inst::IterHist { it, g, keys } => self.iter_hist(*it, *g, keys),
            Inst::Call { .. } => Err("a call that is not flattened".into()),
        }
    }

    fn copy(&mut self, dst: spile_ir::Reg, src: Val) -> Res {
        if self.ty(src)? == Ty::Long {
            // Paths with different constants would stay separate for the verifier.
            let several = self.plan.outline && self.several.get(dst.index()) == Some(&true);
            if let (Val::Imm(n), true) = (src, several && self.record_state.is_some()) {
                let reg = match self.location(dst) {
                    Location::Reg(reg) => reg,
                    _ => R1,
                };
                self.asm.imm(reg, n);
                self.forget_bounds(reg);
                return self.def_int(dst, reg);
            }
            if let Location::Reg(reg) = self.location(dst) {
                return self.use_in(src, reg);
            }
            let src = self.use_int(src, R1)?;
            return self.def_int(dst, src);
        }
        let text = self.text(src)?;
        match self.slot(dst)? {
            Some((off, width)) => self.copy_text(off, width, &text),
            None => Ok(()),
        }
    }

    /// Emits the out-of-line code.
    pub fn emit_out_of_line(&mut self) -> Res {
        while let Some(out_of_line) = self.out_of_line.pop() {
            match out_of_line {
                OutOfLine::Fail(fail) => self.emit_fail(fail)?,
                OutOfLine::Miss(miss) => self.emit_miss(miss)?,
                OutOfLine::BackEdge(back) => self.emit_back_edge(back),
            }
        }
        Ok(())
    }
}

/// For each register, whether it has several definitions.
fn several(body: &Body) -> Vec<bool> {
    let mut times = vec![0u32; body.regs.len()];
    let mut write = |r: spile_ir::Reg| times[r.index()] += 1;
    for block in &body.blocks {
        block
            .insts
            .iter()
            .filter_map(|(i, _)| i.dst())
            .for_each(&mut write);
        block.term.for_each_dst(&mut write);
    }
    times.into_iter().map(|n| n > 1).collect()
}
