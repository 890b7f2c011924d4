//! Global subprograms: code that the verifier checks once for all argument values, not at each
//! call.
//!
//! Operations that handlers repeat become global subprograms where there are many handlers or much
//! code. A subprogram finds the CPU's block itself, and gets strings as offsets in it.
//!
//! A call costs a hit 2 to 3 ns. Inline code would cost tens of verified instructions for each
//! statement, on every path that leads to it.

use spile_ir::{Body, BodyFacts, GlobalId, Reg as IrReg, Ty, Val};

use crate::isa::asm::{Asm, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size, Src};
use crate::layout::{ErrorKind, percpu};
use crate::lower::pool::{Pool, common};
use crate::lower::text::append::APPEND_TEXT;
use crate::lower::{BodyContext, GEN, HandlerCodegen, Res, StrOperand};
use crate::plan::outlining::Op;
use crate::regalloc::{Allocation, Location};

/// The registers that hold a subprogram's arguments while it runs; r7 is the CPU's block.
const NUMBERS: [Reg; 3] = [R6, R8, R9];
/// A subprogram's first argument as an operand.
pub(in crate::lower) const FIRST: Val = Val::Reg(IrReg(0));
/// Result of an array operation on a full array.
pub(in crate::lower) const FULL: i32 = 1;
/// This bit of a string argument marks a constant.
const CONSTANT: i32 = 1 << 30;

impl HandlerCodegen<'_> {
    /// Whether this code calls a function for an operation. Global subprograms themselves do not.
    pub(in crate::lower) fn outlined(&self, op: Op) -> bool {
        self.plan.outlining.shares(op, None) && !self.in_subprogram
    }

    /// Defines the subprogram `name` unless the object has it. It returns 0 unless `code` sets a
    /// result and exits.
    pub(in crate::lower) fn define_global(
        &mut self,
        name: &str,
        params: &[&'static str],
        code: impl FnOnce(&mut HandlerCodegen<'_>) -> Res,
    ) -> Res {
        if self.pool.subs.contains_key(name) {
            return Ok(());
        }
        let mut asm = Asm::new(name, params);
        asm.mark_separate();
        for (to, from) in NUMBERS.iter().zip([R1, R2, R3]).take(params.len()) {
            asm.mov(*to, from);
        }
        let body = Body {
            regs: vec![Ty::Long; NUMBERS.len()],
            ..Body::default()
        };
        let alloc = Allocation {
            locations: NUMBERS.map(Location::Reg).to_vec(),
            ..Allocation::default()
        };
        let facts = BodyFacts::default();
        let plan = self.plan;
        let ctx = BodyContext::for_body(self.ctx.object, self.handler, &body, &facts, &alloc);
        let mut sub = HandlerCodegen::new(&mut asm, self.pool, &ctx);
        sub.in_subprogram = true;
        sub.current = self.current;
        let done = sub.done;
        plan.cpu_block(sub.asm, R7, done);
        code(&mut sub)?;
        sub.emit_out_of_line()?;
        sub.asm.bind(done);
        sub.asm.mov(R0, 0);
        sub.asm.exit();
        let function = asm.finish().map_err(|e| e.to_string())?;
        self.pool.subs.insert(name.into(), function);
        Ok(())
    }

    /// In a subprogram: returns if an argument is larger than `most`, which gives the verifier its
    /// bound.
    pub(in crate::lower) fn bound_argument(&mut self, reg: Reg, most: u32) {
        let done = self.done;
        self.asm.jump_if(Cond::Gt, reg, most as i32, done);
    }

    /// In a subprogram: returns `result`.
    pub(in crate::lower) fn return_value(&mut self, result: impl Into<Src>) {
        self.asm.mov(R0, result);
        self.asm.exit();
    }

    /// Whether a slot can be passed to a subprogram.
    fn in_reach(&self, off: u32, width: u32) -> bool {
        off + width <= self.plan.scratch.out && width <= self.plan.max_string
    }

    // Records.

    /// Sends an error record of this shape: without a field, with the address in `err_aux`, or with
    /// the text in `err_text`. Ends the handler. The failure paths share the call: the verifier then
    /// follows two instructions of each, and the program is shorter.
    pub(in crate::lower) fn error_global(&mut self, record: u32, field: Option<Ty>) -> Res {
        let name = match field {
            None => "error",
            Some(Ty::Long) => "error_at",
            Some(Ty::Str(_)) => "error_text",
        };
        self.define_global(name, &["record"], |g| {
            g.error_piece(Src::Reg(R6), field)?;
            g.count_error();
            Ok(())
        })?;
        let tail = self.error_tails.iter().find(|(other, _)| *other == name);
        let tail = match tail {
            Some((_, label)) => *label,
            None => {
                let label = self.asm.label();
                self.error_tails.push((name, label));
                label
            }
        };
        self.asm.mov(R1, record as i32);
        self.asm.jump(tail);
        Ok(())
    }

    /// Emits the calls for all failure paths, in front of the handler's end.
    pub(in crate::lower) fn emit_error_tails(&mut self) {
        for (name, label) in std::mem::take(&mut self.error_tails) {
            self.asm.bind(label);
            self.asm.call_sub(name);
            self.asm.jump(self.done);
        }
    }

    /// A mask that covers all positions in the output buffer, including its end.
    fn out_mask(&self) -> i32 {
        (self.plan.scratch.out_size + 1).next_power_of_two() as i32 - 1
    }

    /// `r4` = position behind the header of a new record of at most `room` bytes.
    pub(in crate::lower) fn begin_global(&mut self, record: u32, room: i32) -> Res {
        let size = self.plan.scratch.out_size as i32;
        self.define_global("begin", &["record", "limit"], |g| {
            let (fits, flush) = (g.asm.label(), g.asm.label());
            g.load(R4, g.plan.scratch.out_pos);
            g.asm.jump_if(Cond::Gt, R4, R8, flush);
            g.asm.jump_if(Cond::Le, R4, size - 16, fits);
            g.asm.bind(flush);
            g.flush();
            g.asm.mov(R4, 0);
            g.asm.bind(fits);
            g.piece_number(Src::Reg(R6));
            g.asm.add(R4, 8);
            g.return_value(R4);
            Ok(())
        })?;
        self.asm.mov(R1, record as i32);
        self.asm.mov(R2, size - room);
        self.asm.call_sub("begin");
        self.position();
        Ok(())
    }

    /// `r4` = the position that a subprogram returned. The mask changes nothing; it bounds the
    /// value for the verifier.
    fn position(&mut self) {
        self.asm.mov(R4, R0);
        self.asm.alu(AluOp::And, R4, self.out_mask());
    }

    /// Appends a string of the CPU's block to the output at position r4, and moves r4 behind it.
    /// Returns false if no subprogram does this for `text`.
    pub(in crate::lower) fn put_global(&mut self, text: &StrOperand) -> Res<bool> {
        let StrOperand::Slot { off, width } = *text else {
            return Ok(false);
        };
        if !self.in_reach(off, width) {
            return Ok(false);
        }
        let (out, size) = (self.plan.scratch.out, self.plan.scratch.out_size);
        self.define_global("put", &["position", "text", "width"], |g| {
            g.bound_argument(R6, size);
            g.bound_argument(R8, g.plan.scratch.out);
            g.bound_argument(R9, g.plan.max_string);
            g.asm.mov(R3, R7);
            g.asm.add(R3, R8);
            g.asm.mov(R8, R6);
            g.asm.add(R6, R7);
            g.asm.add(R6, out as i32);
            g.asm.mov(R1, R6);
            g.asm.add(R1, 8);
            g.asm.mov(R2, R9);
            g.asm.call(Helper::ProbeReadKernelStr);
            // r0: bytes with the NUL; at least 1, because the source is our own memory.
            g.asm.add(R0, -1);
            g.asm.store(Size::DW, R6, 0, R0);
            g.asm.add(R0, 15);
            g.asm.alu(AluOp::And, R0, -8);
            g.asm.add(R0, R8);
            g.asm.exit();
            Ok(())
        })?;
        self.asm.mov(R1, R4);
        self.asm.mov(R2, off as i32);
        self.asm.mov(R3, width as i32);
        self.asm.call_sub("put");
        self.position();
        Ok(true)
    }

    // Text.

    /// Calls [`HandlerCodegen::begin_text`] as a subprogram.
    pub(in crate::lower) fn begin_text_global(&mut self, width: u32) -> Res {
        let zeros = self.pool.byte_run(0);
        self.define_global("text_begin", &["width"], |g| {
            g.bound_argument(R6, g.plan.max_string);
            g.store(g.plan.scratch.text_pos, 0);
            g.block_addr(R1, g.plan.scratch.text);
            g.asm.mov(R2, R6);
            g.asm.ld_data(R3, Section::Rodata, zeros);
            g.asm.call(Helper::ProbeReadKernel);
            Ok(())
        })?;
        self.asm.mov(R1, width as i32);
        self.asm.call_sub("text_begin");
        Ok(())
    }

    /// Calls [`HandlerCodegen::end_text`] as a subprogram. Returns false if the slot is out of
    /// reach.
    pub(in crate::lower) fn end_text_global(&mut self, off: u32, width: u32) -> Res<bool> {
        if !self.in_reach(off, width) || width == 0 {
            return Ok(false);
        }
        self.define_global("text_end", &["to", "width"], |g| {
            let done = g.done;
            g.bound_argument(R6, g.plan.scratch.out);
            g.asm.jump_if(Cond::Eq, R8, 0, done);
            g.bound_argument(R8, g.plan.max_string);
            g.asm.add(R6, R7);
            g.asm.mov(R1, R6);
            g.asm.mov(R2, R8);
            g.block_addr(R3, g.plan.scratch.text);
            g.asm.call(Helper::ProbeReadKernel);
            // A string that fills its last byte is truncated.
            g.asm.add(R6, R8);
            g.asm.load(Size::B, R1, R6, -1);
            g.asm.jump_if(Cond::Eq, R1, 0, done);
            g.asm.store(Size::B, R6, -1, 0);
            g.count(percpu::TRUNCATED);
            Ok(())
        })?;
        self.asm.mov(R1, off as i32);
        self.asm.mov(R2, width as i32);
        self.asm.call_sub("text_end");
        Ok(true)
    }

    /// `r1` = a string as an argument of [`HandlerCodegen::append_global`]. Returns false if it has
    /// no such form.
    pub(in crate::lower) fn text_number(&mut self, text: &StrOperand) -> bool {
        let number = match text {
            StrOperand::Slot { off, width } if self.in_reach(*off, *width) => *off as i32,
            StrOperand::Slot { .. } => return false,
            StrOperand::Const { .. } if text.width() > self.plan.max_string => return false,
            StrOperand::Const { bytes } => self.pool.constant(bytes) as i32 | CONSTANT,
        };
        self.asm.mov(R1, number);
        true
    }

    /// Appends string r1 of r2 bytes and width r3 to the text being built.
    pub(in crate::lower) fn append_global(&mut self) -> Res {
        self.use_append_text()?;
        self.define_global("text_append", &["text", "size", "width"], |g| {
            let (found, slot) = (g.asm.label(), g.asm.label());
            g.bound_argument(R8, g.plan.max_string);
            g.asm.jump_if(Cond::Lt, R6, CONSTANT, slot);
            g.asm.alu(AluOp::And, R6, (1 << 28) - 1);
            g.asm.ld_data(R2, Section::Rodata, 0);
            g.asm.jump(found);
            g.asm.bind(slot);
            g.bound_argument(R6, g.plan.scratch.out);
            g.asm.mov(R2, R7);
            g.asm.bind(found);
            g.asm.add(R2, R6);
            g.asm.mov(R1, R7);
            g.asm.mov(R3, R8);
            g.asm.mov(R4, R9);
            g.asm.call_sub(APPEND_TEXT);
            Ok(())
        })?;
        self.asm.call_sub("text_append");
        Ok(())
    }

    // Arrays.

    /// Does something to the element of the key in the key buffer, with a number: here, or in a function
    /// if handlers share this. `code` gets the number, and the places to go to if the array is full and
    /// if there is no memory. Raises the overflow error if the array is full.
    pub(in crate::lower) fn with_element(
        &mut self,
        name: &str,
        g: GlobalId,
        val: Val,
        code: impl Fn(&mut HandlerCodegen<'_>, Val, (Option<Label>, Label)) -> Res,
    ) -> Res {
        let full = self.full_label(g);
        if !self.outlined(Op::Write) {
            let skip = self.asm.label();
            code(self, val, (full, skip))?;
            self.asm.bind(skip);
            return Ok(());
        }
        self.use_in(val, R1)?;
        let name = format!("{name}_{}", g.0);
        self.call_global_or_full(full, &name, &["value"], |sub, full| {
            code(sub, FIRST, (full, sub.done))
        })
    }

    /// `r0` = what `code` finds out about the element of the key in the key buffer: here, or in a function
    /// if handlers share this.
    pub(in crate::lower) fn read_element(
        &mut self,
        name: &str,
        g: GlobalId,
        code: impl Fn(&mut HandlerCodegen<'_>) -> Res,
    ) -> Res {
        if !self.outlined(Op::Read) {
            return code(self);
        }
        let name = format!("{name}_{}", g.0);
        self.define_global(&name, &[], |sub| {
            code(sub)?;
            sub.asm.exit();
            Ok(())
        })?;
        self.asm.call_sub(name);
        Ok(())
    }

    /// Defines and calls a subprogram that can find an array full; goes to `full` in this case.
    pub(in crate::lower) fn call_global_or_full(
        &mut self,
        full: Option<Label>,
        name: &str,
        params: &[&'static str],
        code: impl FnOnce(&mut HandlerCodegen<'_>, Option<Label>) -> Res,
    ) -> Res {
        self.define_global(name, params, |sub| {
            let inside = full.map(|_| sub.asm.label());
            code(sub, inside)?;
            let done = sub.done;
            sub.asm.jump(done);
            if let Some(inside) = inside {
                sub.asm.bind(inside);
                sub.return_value(FULL);
            }
            Ok(())
        })?;
        self.asm.call_sub(name);
        if let Some(full) = full {
            self.asm.jump_if(Cond::Eq, R0, FULL, full);
        }
        Ok(())
    }

    /// The jump target for a full array; `None` if the array wraps.
    pub(in crate::lower) fn full_label(&mut self, g: GlobalId) -> Option<Label> {
        let wraps = matches!(
            self.program.globals.get(g.index()).map(|g| &g.kind),
            Some(spile_ir::GlobalKind::Array { wrap: true, .. })
        );
        (!wraps).then(|| self.fail_label(ErrorKind::Overflow(g)))
    }

    /// `a[key] = string`, for a string of the element's width.
    pub(in crate::lower) fn set_text_global(&mut self, g: GlobalId, val: Val, width: u32) -> Res {
        let text = self.text(val)?;
        let off = match text {
            StrOperand::Slot { off, width: w } if w == width && self.in_reach(off, w) => off,
            _ => {
                let off = self.plan.scratch.text;
                self.copy_text(off, width, &text)?;
                off
            }
        };
        self.asm.mov(R1, off as i32);
        let full = self.full_label(g);
        let name = format!("set_{}", g.0);
        self.call_global_or_full(full, &name, &["text"], |sub, full| {
            let skip = sub.done;
            sub.bound_argument(R6, sub.plan.scratch.out);
            sub.hash_element(g, full, skip)?;
            sub.asm.mov(R2, width as i32);
            sub.asm.mov(R3, R7);
            sub.asm.add(R3, R6);
            sub.asm.call(Helper::ProbeReadKernel);
            Ok(())
        })
    }

    /// The slot at `off` = the string at the key, of the same width.
    pub(in crate::lower) fn get_text_global(
        &mut self,
        g: GlobalId,
        map: &str,
        skip: i16,
        (off, width): (u32, u32),
    ) -> Res<bool> {
        if !self.in_reach(off, width) {
            return Ok(false);
        }
        let zeros = self.pool.byte_run(0);
        let name = format!("get_{}", g.0);
        self.define_global(&name, &["to"], |sub| {
            let none = sub.asm.label();
            sub.bound_argument(R6, sub.plan.scratch.out);
            sub.asm.add(R6, R7);
            sub.look_up(map)?;
            sub.asm.jump_if(Cond::Eq, R0, 0, none);
            sub.asm.mov(R1, R6);
            sub.asm.mov(R2, width as i32);
            sub.asm.mov(R3, R0);
            sub.asm.add(R3, i32::from(skip));
            sub.asm.call(Helper::ProbeReadKernel);
            sub.return_value(0);
            sub.asm.bind(none);
            sub.asm.mov(R1, R6);
            sub.asm.mov(R2, width as i32);
            sub.asm.ld_data(R3, Section::Rodata, zeros);
            sub.asm.call(Helper::ProbeReadKernel);
            Ok(())
        })?;
        self.asm.mov(R1, off as i32);
        self.asm.call_sub(name);
        Ok(true)
    }

    /// Whether a subprogram adds to this statistic or per-CPU array.
    pub(in crate::lower) fn adds_global(&self, g: GlobalId) -> bool {
        self.plan.outlining.shares(Op::Add, Some(g)) && !self.in_subprogram
    }

    /// `a[key] <<< number` or `a[key] += number`, for a per-CPU array.
    pub(in crate::lower) fn per_cpu_global(
        &mut self,
        g: GlobalId,
        val: Val,
        generations: bool,
    ) -> Res {
        let full = self.full_label(g);
        self.per_cpu_or(full, g, val, generations)
    }

    /// Adds to a per-CPU array as [`HandlerCodegen::per_cpu_global`] does, with an explicit target
    /// for a full array.
    pub(in crate::lower) fn per_cpu_or(
        &mut self,
        full: Option<Label>,
        g: GlobalId,
        val: Val,
        generations: bool,
    ) -> Res {
        self.use_in(val, R1)?;
        match generations {
            true => self.asm.load(Size::DW, R2, R10, GEN),
            false => self.asm.mov(R2, 0),
        }
        let name = format!("add_{}", g.0);
        self.call_global_or_full(full, &name, &["value", "generation"], |sub, full| {
            if generations {
                sub.asm.alu(AluOp::And, R8, 1);
                sub.asm.store(Size::DW, R10, GEN, R8);
            }
            sub.array_add_here(g, FIRST, full)
        })
    }

    // Numbers, the task.

    /// `r0` = the result of a function of the run-time library that gets numbers only, in r1 and the
    /// registers behind it. It is called if handlers share the operation, else its code stands here.
    /// Clobbers r1 to r5 in both cases.
    pub(in crate::lower) fn run_library(&mut self, op: Op, name: &str) -> Res {
        if !self.outlined(op) {
            let code = self.pool.inline(name)?;
            self.asm.insert(code);
            return Ok(());
        }
        let routine = |_: &mut Pool| Ok((common(name)?, Vec::new()));
        self.pool.routine(name, Some(self.plan), routine)?;
        self.asm.call_sub(name);
        Ok(())
    }

    /// The slot = the current task's name.
    pub(in crate::lower) fn execname_global(&mut self, off: u32, width: u32) -> Res<bool> {
        if width != 16 || !self.in_reach(off, width) {
            return Ok(false);
        }
        self.define_global("execname", &["to"], |g| {
            g.bound_argument(R6, g.plan.scratch.out);
            g.asm.add(R6, R7);
            g.execname_to(|_| (R6, 0));
            Ok(())
        })?;
        self.asm.mov(R1, off as i32);
        self.asm.call_sub("execname");
        Ok(true)
    }
}
