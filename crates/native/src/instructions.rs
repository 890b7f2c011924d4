//! What single instructions do.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, MemFlagsData, Type, Value};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::{AluOp, AtomicOp, Callee, Cond, Insn, Reg, Size, Src, Swap, Width};
use spile_layout::HIT_REGISTERS;

use crate::code::HostSymbol;
use crate::library::Primitive;
use crate::thread::at;
use crate::translate::{FunctionTranslator, TranslateError};

/// Any access may fault; none is known to be aligned.
const MEMORY: MemFlagsData = MemFlagsData::new();

fn of_size(size: Size) -> Type {
    match size {
        Size::B => I8,
        Size::H => I16,
        Size::W => I32,
        Size::DW => I64,
    }
}

fn of_width(width: Width) -> Type {
    match width {
        Width::W32 => I32,
        Width::W64 => I64,
    }
}

impl FunctionTranslator<'_> {
    /// Translates an instruction; returns whether the next one can follow it.
    pub(crate) fn instruction(&mut self, slot: usize, insn: Insn) -> Result<bool, TranslateError> {
        match insn {
            Insn::Jump {
                width,
                cond,
                dst,
                src,
                off,
            } => {
                let (a, b) = (self.low(width, dst), self.operand(width, src));
                let holds = self.condition(cond, a, b);
                let to = self.block(slot, insn, off.into())?;
                let next = self.block(slot, insn, 0)?;
                self.b.ins().brif(holds, to, &[], next, &[]);
                return Ok(false);
            }
            Insn::Goto { off } => return self.jump(slot, insn, off.into()),
            Insn::GotoLong { off } => return self.jump(slot, insn, off.into()),
            // The bounds of loops are in the code as well. This one is the verifier's.
            Insn::MayGoto { .. } => return self.jump(slot, insn, 0),
            Insn::Exit {} => {
                let result = self.get(Reg::R0);
                self.b.ins().return_(&[result]);
                return Ok(false);
            }
            Insn::LdImm64 { dst, imm, .. } => {
                let value = match self.reference(slot, insn)? {
                    Some(value) => value,
                    None => self.b.ins().iconst(I64, imm.cast_signed()),
                };
                self.set(dst, value);
            }
            Insn::Call {
                callee: Callee::Helper,
                target,
            } if target.cast_unsigned() == Helper::Loop as u32 => self.repeat(),
            Insn::Call { callee, target } => {
                if let Some(result) = self.immediate(callee, target) {
                    self.set(Reg::R0, result);
                    return Ok(true);
                }
                let function = self.called(slot, insn, callee, target)?;
                let arguments = [Reg::R1, Reg::R2, Reg::R3, Reg::R4, Reg::R5].map(|r| self.get(r));
                let call = self.b.ins().call(function, &arguments);
                let result = self.b.inst_results(call)[0];
                self.set(Reg::R0, result);
            }
            insn => self.value(insn),
        }
        Ok(true)
    }

    /// The result of a call that is a few instructions: of a primitive, or of a helper that loads from the thread's
    /// record.
    fn immediate(&mut self, callee: Callee, target: i32) -> Option<Value> {
        let helper = |helper: Helper| helper.id() == target.cast_unsigned();
        let record = |this: &mut Self| this.b.ins().get_pinned_reg(I64);
        let mut field = |ty: Type, at: i32| {
            let record = record(self);
            self.b.ins().load(ty, MEMORY, record, at)
        };
        Some(match (callee, Primitive::of(target)) {
            (Callee::Kfunc, Some(Primitive::Thread)) => record(self),
            (Callee::Kfunc, Some(Primitive::Image)) => self.symbol(HostSymbol::Image, 0),
            (Callee::Kfunc, Some(Primitive::Load)) => {
                let address = self.get(Reg::R1);
                self.b.ins().atomic_load(I64, MEMORY, address)
            }
            (Callee::Kfunc, Some(Primitive::Call)) => {
                let function = self.get(Reg::R1);
                let mut arguments =
                    [Reg::R2, Reg::R3, Reg::R4, Reg::R5, Reg::R5].map(|r| self.get(r));
                arguments[4] = self.b.ins().iconst(I64, 0);
                let convention = self.convention();
                let call = self.b.ins().call_indirect(convention, function, &arguments);
                self.b.inst_results(call)[0]
            }
            (Callee::Helper, _)
                if helper(Helper::GetSmpProcessorId) || helper(Helper::Processor) =>
            {
                let slot = field(I32, at::SLOT);
                self.b.ins().uextend(I64, slot)
            }
            (Callee::Helper, _) if helper(Helper::GetCurrentPidTgid) => field(I64, at::TID),
            (Callee::Helper, _) if helper(Helper::GetCurrentUidGid) => field(I64, at::UID),
            (Callee::Helper, _) if helper(Helper::GetAttachCookie) => field(I64, at::COOKIE),
            (Callee::Helper, _)
                if helper(Helper::GetCurrentTask) || helper(Helper::GetCurrentTaskBtf) =>
            {
                record(self)
            }
            (Callee::Helper, _) if helper(Helper::TaskPtRegs) => {
                let top = field(I64, at::STACK);
                self.b.ins().iadd_imm_s(top, -HIT_REGISTERS.cast_signed())
            }
            (Callee::Helper, _) if helper(Helper::GetCurrentComm) => {
                // Handlers have space for a name, and ask for all of it.
                let words = [0, 8].map(|offset| field(I64, at::COMM + offset));
                let to = self.get(Reg::R1);
                for (word, offset) in words.into_iter().zip([0, 8]) {
                    self.b.ins().store(MEMORY, word, to, offset);
                }
                self.b.ins().iconst(I64, 0)
            }
            _ => return None,
        })
    }

    /// Translates an instruction that only computes, or accesses memory.
    fn value(&mut self, insn: Insn) {
        match insn {
            Insn::Alu {
                width,
                op,
                dst,
                src,
            } => self.arithmetic(width, op, dst, src),
            Insn::Neg { width, dst } => {
                let value = self.low(width, dst);
                let negative = self.b.ins().ineg(value);
                self.set_wide(dst, negative);
            }
            Insn::MovSx {
                width,
                size,
                dst,
                src,
            } => {
                let value = self.get(src);
                let value = self.b.ins().ireduce(of_size(size), value);
                let value = self.b.ins().sextend(of_width(width), value);
                self.set_wide(dst, value);
            }
            Insn::Swap { to, size, dst } => {
                let value = self.get(dst);
                let value = self.narrow(size, value);
                let value = match to {
                    Swap::Le => value,
                    Swap::Be | Swap::Bswap => self.b.ins().bswap(value),
                };
                self.set_wide(dst, value);
            }
            Insn::Load {
                size,
                dst,
                base,
                off,
            } => {
                let value = self.load(size, base, off);
                self.set_wide(dst, value);
            }
            Insn::LoadSx {
                size,
                dst,
                base,
                off,
            } => {
                let value = self.load(size, base, off);
                let value = self.b.ins().sextend(I64, value);
                self.set(dst, value);
            }
            Insn::Store {
                size,
                base,
                off,
                src,
            } => {
                let value = self.operand(Width::W64, src);
                let value = self.narrow(size, value);
                let base = self.get(base);
                self.b.ins().store(MEMORY, value, base, i32::from(off));
            }
            Insn::Atomic {
                width,
                op,
                base,
                off,
                src,
            } => self.atomic(width, op, (base, off), src),
            control => unreachable!("{control} is no instruction of values"),
        }
    }

    fn load(&mut self, size: Size, base: Reg, off: i16) -> Value {
        let base = self.get(base);
        let off = i32::from(off);
        self.b.ins().load(of_size(size), MEMORY, base, off)
    }

    fn jump(&mut self, slot: usize, insn: Insn, distance: i64) -> Result<bool, TranslateError> {
        let to = self.block(slot, insn, distance)?;
        self.b.ins().jump(to, &[]);
        Ok(false)
    }

    /// The low part of a register.
    fn low(&mut self, width: Width, register: Reg) -> Value {
        let value = self.get(register);
        self.narrow(width.size(), value)
    }

    fn narrow(&mut self, size: Size, value: Value) -> Value {
        match size {
            Size::DW => value,
            _ => self.b.ins().ireduce(of_size(size), value),
        }
    }

    fn operand(&mut self, width: Width, src: Src) -> Value {
        match src {
            Src::Reg(register) => self.low(width, register),
            Src::Imm(n) => {
                let n = match width {
                    Width::W64 => i64::from(n),
                    Width::W32 => n.cast_unsigned().into(),
                };
                self.b.ins().iconst(of_width(width), n)
            }
        }
    }

    /// Sets a register to a value, extended by zeros.
    fn set_wide(&mut self, register: Reg, value: Value) {
        let value = match self.b.func.dfg.value_type(value) {
            I64 => value,
            _ => self.b.ins().uextend(I64, value),
        };
        self.set(register, value);
    }

    fn arithmetic(&mut self, width: Width, op: AluOp, dst: Reg, src: Src) {
        let b = self.operand(width, src);
        let a = match op {
            AluOp::Mov => b,
            _ => self.low(width, dst),
        };
        let ins = self.b.ins();
        let result = match op {
            AluOp::Mov => b,
            AluOp::Add => ins.iadd(a, b),
            AluOp::Sub => ins.isub(a, b),
            AluOp::Mul => ins.imul(a, b),
            AluOp::And => ins.band(a, b),
            AluOp::Or => ins.bor(a, b),
            AluOp::Xor => ins.bxor(a, b),
            AluOp::Lsh => ins.ishl(a, b),
            AluOp::Rsh => ins.ushr(a, b),
            AluOp::Arsh => ins.sshr(a, b),
            AluOp::Div | AluOp::Mod | AluOp::Sdiv | AluOp::Smod => {
                self.division(op, of_width(width), a, b)
            }
        };
        self.set_wide(dst, result);
    }

    /// The machine's division traps where that of eBPF has a result.
    fn division(&mut self, op: AluOp, ty: Type, a: Value, b: Value) -> Value {
        let [zero, one, minus_one] = [0, 1, -1].map(|n| {
            let bits = i64::from(ty.bits());
            let mask = u64::MAX >> (64 - bits);
            self.b
                .ins()
                .iconst(ty, (i64::from(n).cast_unsigned() & mask).cast_signed())
        });
        let by_zero = self.b.ins().icmp(IntCC::Equal, b, zero);
        let by_minus = self.b.ins().icmp(IntCC::Equal, b, minus_one);
        let mut safe = self.b.ins().select(by_zero, one, b);
        if matches!(op, AluOp::Sdiv | AluOp::Smod) {
            safe = self.b.ins().select(by_minus, one, safe);
        }
        let result = match op {
            AluOp::Div => self.b.ins().udiv(a, safe),
            AluOp::Mod => self.b.ins().urem(a, safe),
            AluOp::Sdiv => {
                let (quotient, negative) = (self.b.ins().sdiv(a, safe), self.b.ins().ineg(a));
                self.b.ins().select(by_minus, negative, quotient)
            }
            // The remainder by 1 is that by -1.
            _ => self.b.ins().srem(a, safe),
        };
        let by_zero_is = if matches!(op, AluOp::Div | AluOp::Sdiv) {
            zero
        } else {
            a
        };
        self.b.ins().select(by_zero, by_zero_is, result)
    }

    fn condition(&mut self, cond: Cond, a: Value, b: Value) -> Value {
        let code = match cond {
            Cond::Eq => IntCC::Equal,
            Cond::Ne => IntCC::NotEqual,
            Cond::Gt => IntCC::UnsignedGreaterThan,
            Cond::Ge => IntCC::UnsignedGreaterThanOrEqual,
            Cond::Lt => IntCC::UnsignedLessThan,
            Cond::Le => IntCC::UnsignedLessThanOrEqual,
            Cond::Sgt => IntCC::SignedGreaterThan,
            Cond::Sge => IntCC::SignedGreaterThanOrEqual,
            Cond::Slt => IntCC::SignedLessThan,
            Cond::Sle => IntCC::SignedLessThanOrEqual,
            Cond::Set => return self.b.ins().band(a, b),
        };
        self.b.ins().icmp(code, a, b)
    }

    fn atomic(&mut self, width: Width, op: AtomicOp, (base, off): (Reg, i16), src: Reg) {
        let at = self.get(base);
        let at = self.b.ins().iadd_imm_s(at, i64::from(off));
        let value = self.low(width, src);
        let rmw = match op {
            AtomicOp::Add | AtomicOp::FetchAdd => AtomicRmwOp::Add,
            AtomicOp::Or | AtomicOp::FetchOr => AtomicRmwOp::Or,
            AtomicOp::And | AtomicOp::FetchAnd => AtomicRmwOp::And,
            AtomicOp::Xor | AtomicOp::FetchXor => AtomicRmwOp::Xor,
            AtomicOp::Xchg => AtomicRmwOp::Xchg,
            AtomicOp::CmpXchg => {
                let expected = self.low(width, Reg::R0);
                let old = self.b.ins().atomic_cas(MEMORY, at, expected, value);
                self.set_wide(Reg::R0, old);
                return;
            }
        };
        let old = self
            .b
            .ins()
            .atomic_rmw(of_width(width), MEMORY, rmw, at, value);
        if op.fetches() {
            self.set_wide(src, old);
        }
    }

    /// `bpf_loop`: calls the function r2 with 0, 1, ... and r3, at most r1 times, until it returns something else than 0.
    fn repeat(&mut self) {
        let [times, function, context] = [Reg::R1, Reg::R2, Reg::R3].map(|r| self.get(r));
        let [header, again, end] = std::array::from_fn(|_| self.b.create_block());
        let i = self.b.append_block_param(header, I64);
        let done = self.b.append_block_param(end, I64);
        let zero = self.b.ins().iconst(I64, 0);
        let times = self.b.ins().ireduce(I32, times);
        let times = self.b.ins().uextend(I64, times);
        self.b.ins().jump(header, &[zero.into()]);
        self.b.switch_to_block(header);
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, i, times);
        self.b.ins().brif(more, again, &[], end, &[i.into()]);
        self.b.switch_to_block(again);
        let convention = self.convention();
        let call =
            self.b
                .ins()
                .call_indirect(convention, function, &[i, context, zero, zero, zero]);
        let stop = self.b.inst_results(call)[0];
        let next = self.b.ins().iadd_imm_u(i, 1);
        self.b
            .ins()
            .brif(stop, end, &[next.into()], header, &[next.into()]);
        self.b.switch_to_block(end);
        self.set(Reg::R0, done);
    }
}
