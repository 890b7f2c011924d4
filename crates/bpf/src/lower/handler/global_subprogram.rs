//! Global subprograms: code that the verifier checks once for all argument values, not at each
//! call.
//!
//! Operations that handlers repeat become global subprograms where there are many handlers or much
//! code. A subprogram finds the per-CPU area itself, and gets strings as offsets in it.
//!
//! A call costs a hit 2 to 3 ns. Inline code would cost tens of verified instructions for each
//! statement, on every path that leads to it.

use spile_ebpf::isa::asm::{Asm, CallArg, Label, Section};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::Reg::{R1, R10};
use spile_ebpf::isa::insn::{AluOp, Cond, Reg, Size, Src};
use spile_ebpf::isa::sequences::{CALLER_SAVED, RegMask};
use spile_ir::{Body, BodyFacts, GlobalId, Reg as IrReg, Ty, Val};
use spile_layout::{ErrorKind, percpu};

use crate::error::Res;
use crate::lower::body_context::BodyContext;
use crate::lower::codegen::HandlerCodegen;
use crate::lower::operand::StrOperand;
use crate::lower::pool::common;
use crate::lower::slots::{BLOCK, GEN, block_at};
use crate::lower::text::append::APPEND_TEXT;
use crate::regalloc::{Allocation, Location};

/// The registers that a subprogram's code may use: all but the per-CPU area and the stack.
pub(crate) const FREE: RegMask = CALLER_SAVED | 1 << 6 | 1 << 8 | 1 << 9;
/// A subprogram's first argument as an operand.
pub(crate) const FIRST: Val = Val::Reg(IrReg(0));
/// Result of an array operation on a full array.
pub(crate) const FULL: i32 = 1;
/// This bit of a string argument marks a constant.
const CONSTANT: i32 = 1 << 30;

impl HandlerCodegen<'_> {
    /// Whether this code calls a function for an operation. Global subprograms themselves do not.
    pub(crate) fn outlined(&self) -> bool {
        self.plan.outlining.is_large() && !self.in_subprogram
    }

    /// Defines the subprogram `name` unless the object has it. `code` gets its parameters; the first one
    /// is also [`FIRST`]. It returns 0 unless `code` returns something else. All of it is one sequence.
    pub(crate) fn define_global<const N: usize>(
        &mut self,
        name: &str,
        params: [&'static str; N],
        code: impl FnOnce(&mut HandlerCodegen<'_>, [Reg; N]) -> Res,
    ) -> Res {
        if self.pool.subs.contains_key(name) {
            return Ok(());
        }
        let mut asm = Asm::new(name, &params);
        asm.mark_separate();
        asm.begin_sequence(FREE);
        let params = asm.parameters::<N>();
        let body = Body {
            regs: vec![Ty::Long; N],
            ..Body::default()
        };
        let alloc = Allocation {
            locations: params.map(Location::Reg).to_vec(),
            ..Allocation::default()
        };
        let facts = BodyFacts::default();
        let plan = self.plan;
        let ctx = BodyContext::for_body(self.ctx.object, self.handler, &body, &facts, &alloc);
        let mut sub = HandlerCodegen::new(&mut asm, self.pool, &ctx);
        sub.in_subprogram = true;
        sub.current = self.current;
        let done = sub.done;
        plan.cpu_block(sub.asm, BLOCK, done);
        code(&mut sub, params)?;
        sub.emit_out_of_line()?;
        sub.asm.bind(done);
        sub.asm.ret(0);
        let function = asm.finish()?;
        self.pool.subs.insert(name.into(), function);
        Ok(())
    }

    /// In a subprogram: returns if an argument is larger than `most`, which gives the verifier its
    /// bound.
    pub(crate) fn bound_argument(&mut self, reg: Reg, most: u32) {
        let done = self.done;
        self.asm.jump_if(Cond::Gt, reg, most, done);
    }

    /// Whether a slot can be passed to a subprogram.
    fn in_reach(&self, off: u32, width: u32) -> bool {
        off + width <= self.plan.scratch.out && width <= self.plan.max_string
    }

    // Records.

    /// Sends an error record of this shape: without a field, with the address in `err_aux`, or with
    /// the text in `err_text`. Ends the handler. The failure paths share the call: the verifier then
    /// follows two instructions of each, and the program is shorter.
    pub(crate) fn error_global(&mut self, record: u32, field: Option<Ty>) -> Res {
        let name = match field {
            None => "error",
            Some(Ty::Long) => "error_at",
            Some(Ty::Str(_)) => "error_text",
        };
        self.define_global(name, ["record"], |g, [record]| {
            g.error_piece(record.into(), field)?;
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
        // The tail passes the number on.
        self.asm.mov(R1, record);
        self.asm.jump(tail);
        Ok(())
    }

    /// Emits the calls for all failure paths, in front of the handler's end.
    pub(crate) fn emit_error_tails(&mut self) {
        for (name, label) in std::mem::take(&mut self.error_tails) {
            self.asm.bind(label);
            self.asm.call_sub(name);
            self.asm.jump(self.done);
        }
    }

    /// A mask that covers all positions in the output buffer, including its end.
    fn out_mask(&self) -> i32 {
        (self.plan.scratch.out_size + 1)
            .next_power_of_two()
            .cast_signed()
            - 1
    }

    /// The position behind the header of a new record of at most `capacity` bytes.
    pub(crate) fn begin_global(&mut self, record: u32, capacity: i32) -> Res<Reg> {
        let size = self.plan.scratch.out_size.cast_signed();
        self.define_global("begin", ["record", "limit"], |g, [record, limit]| {
            let [fits, flush] = g.asm.labels();
            let position = g.block_word(g.plan.scratch.out_pos);
            g.asm.jump_if(Cond::Gt, position, limit, flush);
            g.asm.jump_if(Cond::Le, position, size - 16, fits);
            g.asm.bind(flush);
            g.flush();
            g.asm.mov(position, 0);
            g.asm.bind(fits);
            g.piece_number(position, record.into());
            g.asm.add(position, 8);
            g.asm.ret(position);
            Ok(())
        })?;
        let args = [record.cast_signed(), size - capacity].map(CallArg::from);
        let position = self.asm.call_sub_with("begin", &args);
        // The mask changes nothing; it bounds the value for the verifier.
        self.asm.alu(AluOp::And, position, self.out_mask());
        Ok(position)
    }

    /// Appends a string of the per-CPU area to the output at a position, and moves the position behind it.
    /// Returns false if no subprogram does this for `text`.
    pub(crate) fn put_global(&mut self, text: &StrOperand, position: Reg) -> Res<bool> {
        let StrOperand::Slot { off, width } = *text else {
            return Ok(false);
        };
        if !self.in_reach(off, width) {
            return Ok(false);
        }
        let (out, size) = (self.plan.scratch.out, self.plan.scratch.out_size);
        let params = ["position", "text", "width"];
        self.define_global("put", params, |g, [position, text, width]| {
            g.bound_argument(position, size);
            g.bound_argument(text, g.plan.scratch.out);
            g.bound_argument(width, g.plan.max_string);
            let from = g.asm.alu_of(AluOp::Add, text, BLOCK);
            let length = g.asm.alu_of(AluOp::Add, position, BLOCK);
            g.asm.add(length, out);
            let to = g.asm.alu_of(AluOp::Add, length, 8);
            // With the NUL; at least 1, because the source is our own memory.
            let args = [to, width, from].map(CallArg::from);
            let bytes = g.asm.call_with(Helper::ProbeReadKernelStr, &args);
            g.asm.add(bytes, -1);
            g.asm.store(Size::DW, length, 0, bytes);
            g.asm.add(bytes, 15);
            g.asm.alu(AluOp::And, bytes, -8);
            g.asm.add(bytes, position);
            g.asm.ret(bytes);
            Ok(())
        })?;
        let args = [position.into(), off.into(), width.into()];
        let end = self.asm.call_sub_with("put", &args);
        self.asm.mov(position, end);
        self.asm.alu(AluOp::And, position, self.out_mask());
        Ok(true)
    }

    // Text.

    /// Calls [`HandlerCodegen::begin_text`] as a subprogram.
    pub(crate) fn begin_text_global(&mut self, width: u32) -> Res {
        let zeros = CallArg::Constant(self.pool.byte_run(0));
        self.define_global("text_begin", ["width"], |g, [width]| {
            g.bound_argument(width, g.plan.max_string);
            g.store(g.plan.scratch.text_pos, 0);
            let args = [block_at(g.plan.scratch.text), width.into(), zeros];
            g.asm.call_with(Helper::ProbeReadKernel, &args);
            Ok(())
        })?;
        let width = CallArg::from(width);
        self.asm.call_sub_with("text_begin", &[width]);
        Ok(())
    }

    /// Calls [`HandlerCodegen::end_text`] as a subprogram. Returns false if the slot is out of
    /// reach.
    pub(crate) fn end_text_global(&mut self, off: u32, width: u32) -> Res<bool> {
        if !self.in_reach(off, width) || width == 0 {
            return Ok(false);
        }
        self.define_global("text_end", ["to", "width"], |g, [to, width]| {
            let done = g.done;
            g.bound_argument(to, g.plan.scratch.out);
            g.asm.jump_if(Cond::Eq, width, 0, done);
            g.bound_argument(width, g.plan.max_string);
            g.asm.add(to, BLOCK);
            let from = block_at(g.plan.scratch.text);
            let args = [to.into(), width.into(), from];
            g.asm.call_with(Helper::ProbeReadKernel, &args);
            // A string that fills its last byte is truncated.
            g.asm.add(to, width);
            let last = g.asm.read(Size::B, to, -1);
            g.asm.jump_if(Cond::Eq, last, 0, done);
            g.asm.store(Size::B, to, -1, 0);
            g.count(percpu::TRUNCATED);
            Ok(())
        })?;
        let args = [off.cast_signed(), width.cast_signed()].map(CallArg::from);
        self.asm.call_sub_with("text_end", &args);
        Ok(true)
    }

    /// A string as an argument of [`HandlerCodegen::append_global`], if it has that form.
    pub(crate) fn text_number(&mut self, text: &StrOperand) -> Option<i32> {
        match text {
            StrOperand::Slot { off, width } if self.in_reach(*off, *width) => {
                Some(off.cast_signed())
            }
            StrOperand::Slot { .. } => None,
            StrOperand::Const { .. } if text.width() > self.plan.max_string => None,
            StrOperand::Const { bytes } => Some(self.pool.constant(bytes).cast_signed() | CONSTANT),
        }
    }

    /// Appends a string of `size` bytes to the text being built, padded to a width.
    pub(crate) fn append_global(&mut self, text: i32, size: Src, width: Src) -> Res {
        self.use_append_text()?;
        let params = ["text", "size", "width"];
        self.define_global("text_append", params, |g, [text, size, width]| {
            let [known, slot] = g.asm.labels();
            g.bound_argument(size, g.plan.max_string);
            g.asm.jump_if(Cond::Lt, text, CONSTANT, slot);
            g.asm.alu(AluOp::And, text, (1 << 28) - 1);
            let from = g.asm.new_reg();
            g.asm.ld_data(from, Section::Rodata, 0);
            g.asm.jump(known);
            g.asm.bind(slot);
            g.bound_argument(text, g.plan.scratch.out);
            g.asm.mov(from, BLOCK);
            g.asm.bind(known);
            g.asm.add(from, text);
            let args = [BLOCK, from, size, width].map(CallArg::from);
            g.asm.call_sub_with(APPEND_TEXT, &args);
            Ok(())
        })?;
        let args = [text.into(), size.into(), width.into()];
        self.asm.call_sub_with("text_append", &args);
        Ok(())
    }

    // Arrays.

    /// Does something to the element of the key in the key buffer, with a number: here, or in a function
    /// if handlers share this. `code` gets the number, and the locations to go to if the array is full and
    /// if there is no memory. Raises the overflow error if the array is full.
    pub(crate) fn with_element(
        &mut self,
        name: &str,
        g: GlobalId,
        val: Val,
        code: impl Fn(&mut HandlerCodegen<'_>, Val, (Option<Label>, Label)) -> Res,
    ) -> Res {
        let full = self.full_label(g);
        if !self.outlined() {
            let skip = self.asm.label();
            code(self, val, (full, skip))?;
            self.asm.bind(skip);
            return Ok(());
        }
        let name = format!("{name}_{}", g.0);
        let val = self.number(val)?;
        let args = [("value", val.into())];
        self.call_global_or_full(full, &name, args, |sub, _, full| {
            code(sub, FIRST, (full, sub.done))
        })
    }

    /// What `code` finds out about the element of the key in the key buffer: here, or in a function
    /// if handlers share this.
    pub(crate) fn read_element(
        &mut self,
        name: &str,
        g: GlobalId,
        code: impl Fn(&mut HandlerCodegen<'_>) -> Res<Reg>,
    ) -> Res<Reg> {
        if !self.outlined() {
            return code(self);
        }
        let name = format!("{name}_{}", g.0);
        self.define_global(&name, [], |sub, []| {
            let element = code(sub)?;
            sub.asm.ret(element);
            Ok(())
        })?;
        Ok(self.asm.call_sub_with(name, &[]))
    }

    /// Defines and calls a subprogram that can find an array full; goes to `full` in this case.
    /// `args` are its parameters' names with their values.
    pub(crate) fn call_global_or_full<const N: usize>(
        &mut self,
        full: Option<Label>,
        name: &str,
        args: [(&'static str, CallArg); N],
        code: impl FnOnce(&mut HandlerCodegen<'_>, [Reg; N], Option<Label>) -> Res,
    ) -> Res {
        let params = args.each_ref().map(|(name, _)| *name);
        self.define_global(name, params, |sub, params| {
            let inside = full.map(|_| sub.asm.label());
            code(sub, params, inside)?;
            let done = sub.done;
            sub.asm.jump(done);
            if let Some(inside) = inside {
                sub.asm.bind(inside);
                sub.asm.ret(FULL);
            }
            Ok(())
        })?;
        let result = self.asm.call_sub_with(name, &args.map(|(_, arg)| arg));
        if let Some(full) = full {
            self.asm.jump_if(Cond::Eq, result, FULL, full);
        }
        Ok(())
    }

    /// The jump target for a full array; `None` if the array wraps.
    pub(crate) fn full_label(&mut self, g: GlobalId) -> Option<Label> {
        let wraps = matches!(
            self.program.globals.get(g.index()).map(|g| &g.kind),
            Some(spile_ir::GlobalKind::Array { wrap: true, .. })
        );
        (!wraps).then(|| self.fail_label(ErrorKind::Overflow(g)))
    }

    /// `a[key] = string`, for a string of the element's width.
    pub(crate) fn set_text_global(&mut self, g: GlobalId, val: Val, width: u32) -> Res {
        let text = self.text(val)?;
        let off = match text {
            StrOperand::Slot { off, width: w } if w == width && self.in_reach(off, w) => off,
            _ => {
                let off = self.plan.scratch.text;
                self.copy_text(off, width, &text)?;
                off
            }
        };
        let full = self.full_label(g);
        let name = format!("set_{}", g.0);
        let args = [("text", off.into())];
        self.call_global_or_full(full, &name, args, |sub, [text], full| {
            let skip = sub.done;
            sub.bound_argument(text, sub.plan.scratch.out);
            let to = sub.hash_element(g, full, skip)?;
            let from = sub.asm.alu_of(AluOp::Add, BLOCK, text);
            sub.copy_memory(to.into(), width, from.into());
            Ok(())
        })
    }

    /// The slot at `off` = the string at the key, of the same width.
    pub(crate) fn get_text_global(
        &mut self,
        g: GlobalId,
        map: &str,
        skip: i16,
        (off, width): (u32, u32),
    ) -> Res<bool> {
        if !self.in_reach(off, width) {
            return Ok(false);
        }
        let name = format!("get_{}", g.0);
        self.define_global(&name, ["to"], |sub, [to]| {
            let none = sub.asm.label();
            sub.bound_argument(to, sub.plan.scratch.out);
            sub.asm.add(to, BLOCK);
            let from = sub.look_up(map)?;
            sub.asm.jump_if(Cond::Eq, from, 0, none);
            sub.asm.add(from, i32::from(skip));
            sub.copy_memory(to.into(), width, from.into());
            sub.asm.ret(0);
            sub.asm.bind(none);
            sub.zero_memory(to.into(), width);
            Ok(())
        })?;
        self.asm.call_sub_with(name, &[off.into()]);
        Ok(true)
    }

    /// Whether a subprogram adds to this statistic or per-CPU array.
    pub(crate) fn adds_global(&self, g: GlobalId) -> bool {
        self.plan.outlining.shares_adding(g) && !self.in_subprogram
    }

    /// `a[key] <<< number` or `a[key] += number`, for a per-CPU array.
    pub(crate) fn per_cpu_global(&mut self, g: GlobalId, val: Val, generations: bool) -> Res {
        let full = self.full_label(g);
        self.per_cpu_or(full, g, val, generations)
    }

    /// Adds to a per-CPU array as [`HandlerCodegen::per_cpu_global`] does, with an explicit target
    /// for a full array.
    pub(crate) fn per_cpu_or(
        &mut self,
        full: Option<Label>,
        g: GlobalId,
        val: Val,
        generations: bool,
    ) -> Res {
        let val = self.number(val)?;
        let generation = self.generation(generations);
        let args = [("value", val.into()), ("generation", generation)];
        let name = format!("add_{}", g.0);
        self.call_global_or_full(full, &name, args, |sub, [_, generation], full| {
            if generations {
                sub.asm.alu(AluOp::And, generation, 1);
                sub.asm.store(Size::DW, R10, GEN, generation);
            }
            sub.array_add_here(g, FIRST, full)
        })
    }

    /// The generation as an argument, if there are several; else 0.
    pub(crate) fn generation(&mut self, several: bool) -> CallArg {
        match several {
            true => self.asm.word(R10, GEN).into(),
            false => 0.into(),
        }
    }

    // Numbers, the task.

    /// The result of a function of the run-time library that gets numbers only. It is called if handlers
    /// share the operation, else its code stands here.
    pub(crate) fn run_library(&mut self, name: &str, args: &[CallArg]) -> Res<Reg> {
        if !self.outlined() {
            let code = self.pool.inline(name)?;
            return Ok(self.asm.insert_with(code, args));
        }
        self.pool.routine(name, Some(self.plan), |_| common(name))?;
        Ok(self.asm.call_sub_with(name, args))
    }

    /// The slot = the current task's name.
    pub(crate) fn execname_global(&mut self, off: u32, width: u32) -> Res<bool> {
        if width != 16 || !self.in_reach(off, width) {
            return Ok(false);
        }
        self.define_global("execname", ["to"], |g, [to]| {
            g.bound_argument(to, g.plan.scratch.out);
            g.asm.add(to, BLOCK);
            g.execname_to(|_| (to, 0));
            Ok(())
        })?;
        self.asm.call_sub_with("execname", &[off.into()]);
        Ok(true)
    }
}
