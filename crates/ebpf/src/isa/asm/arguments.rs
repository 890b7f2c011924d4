//! Arguments of calls, and values in new virtual registers.

use std::sync::Arc;

use spile_cast::Cast;

use super::{Asm, AsmFunction, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::{R0, R1, R2, R3, R4, R5, R10};
use crate::isa::insn::{AluOp, AtomicOp, Reg, Size, Src};

/// The registers of arguments.
pub const ARGUMENTS: [Reg; 5] = [R1, R2, R3, R4, R5];

/// An argument of a call.
#[derive(Debug, Clone)]
pub enum CallArg {
    /// A register or constant.
    Value(Src),
    /// The address of an offset from a register.
    At(Reg, i32),
    /// The address of an offset of the shared area.
    Shared(u32),
    /// The address of a constant of the object.
    Constant(u32),
    /// The address of a stack word.
    Word(i16),
    /// A map.
    Map(Arc<str>),
    /// A subprogram, which the helper calls.
    Callback(Arc<str>),
}

impl CallArg {
    /// The address of what lies `bytes` behind an address in a block or section.
    pub fn plus(self, bytes: u32) -> CallArg {
        match self {
            CallArg::At(base, off) => CallArg::At(base, off + bytes.cast_signed()),
            CallArg::Shared(off) => CallArg::Shared(off + bytes),
            CallArg::Constant(off) => CallArg::Constant(off + bytes),
            CallArg::Word(off) => CallArg::Word(off + bytes.fit::<i16>()),
            arg @ (CallArg::Value(_) | CallArg::Map(_) | CallArg::Callback(_)) => arg,
        }
    }
}

impl From<Reg> for CallArg {
    fn from(reg: Reg) -> CallArg {
        CallArg::Value(reg.into())
    }
}

impl From<i32> for CallArg {
    fn from(n: i32) -> CallArg {
        CallArg::Value(n.into())
    }
}

impl From<u32> for CallArg {
    fn from(n: u32) -> CallArg {
        CallArg::Value(n.into())
    }
}

impl From<Src> for CallArg {
    fn from(src: Src) -> CallArg {
        CallArg::Value(src)
    }
}

impl Asm {
    /// A copy of a value, in a new virtual register.
    pub fn copy(&mut self, src: impl Into<Src>) -> Reg {
        let reg = self.new_reg();
        self.mov(reg, src);
        reg
    }

    /// The result of arithmetic, in a new virtual register.
    pub fn alu_of(&mut self, op: AluOp, a: impl Into<Src>, b: impl Into<Src>) -> Reg {
        let reg = self.copy(a);
        self.alu(op, reg, b);
        reg
    }

    /// The word at an address, in a new virtual register.
    pub fn word(&mut self, base: Reg, off: i16) -> Reg {
        self.read(Size::DW, base, off)
    }

    /// The memory at an address, zero-extended, in a new virtual register.
    pub fn read(&mut self, size: Size, base: Reg, off: i16) -> Reg {
        let reg = self.new_reg();
        self.load(size, reg, base, off);
        reg
    }

    /// The parameters of a subprogram, in new virtual registers.
    pub fn parameters<const N: usize>(&mut self) -> [Reg; N] {
        std::array::from_fn(|i| self.copy(ARGUMENTS[i]))
    }

    /// Returns a value.
    pub fn ret(&mut self, src: impl Into<Src>) {
        self.mov(R0, src);
        self.exit();
    }

    /// Stores `new` if the word at an address is `old`. Returns what the word was.
    pub fn compare_exchange(&mut self, (base, off): (Reg, i16), old: i32, new: Reg) -> Reg {
        self.mov(R0, old);
        self.atomic(AtomicOp::CmpXchg, base, off, new);
        self.copy(R0)
    }

    /// Calls a helper. The result is in a new virtual register.
    pub fn call_with(&mut self, helper: Helper, args: &[CallArg]) -> Reg {
        self.set_arguments(args);
        self.call(helper);
        self.copy(R0)
    }

    /// Inserts the code of a function instead of a call ([`Asm::insert`]). The result is in a new virtual
    /// register.
    pub fn insert_with(&mut self, function: &AsmFunction, args: &[CallArg]) -> Reg {
        self.set_arguments(args);
        self.insert(function);
        self.copy(R0)
    }

    /// Calls a function of the kernel by its id in the kernel's BTF. The result is in a new virtual
    /// register.
    pub fn call_kfunc_with(&mut self, id: u32, args: &[CallArg]) -> Reg {
        self.set_arguments(args);
        self.call_kfunc(id);
        self.copy(R0)
    }

    /// Calls a subprogram of the object. The result is in a new virtual register.
    pub fn call_sub_with(&mut self, name: impl Into<Arc<str>>, args: &[CallArg]) -> Reg {
        self.set_arguments(args);
        self.call_sub(name);
        self.copy(R0)
    }

    /// Calls a subprogram at most `times` times, until it returns 1 (`bpf_loop`). Its parameters are the
    /// index and the stack address at `context`.
    pub fn repeat_call(&mut self, times: CallArg, callback: impl Into<Arc<str>>, context: i16) {
        let callback = CallArg::Callback(callback.into());
        let args = [times, callback, CallArg::Word(context), 0.into()];
        self.set_arguments(&args);
        self.call(Helper::Loop);
    }

    fn set_arguments(&mut self, args: &[CallArg]) {
        for (arg, reg) in args.iter().zip(ARGUMENTS) {
            self.set(reg, arg);
        }
    }

    /// `reg` = what an argument stands for.
    pub fn set(&mut self, reg: Reg, arg: &CallArg) {
        match arg {
            CallArg::Value(src) if *src == Src::Reg(reg) => {}
            CallArg::Value(src) => self.mov(reg, *src),
            CallArg::At(base, off) => self.sum(reg, *base, *off),
            CallArg::Shared(off) => self.ld_data(reg, Section::Bss, *off),
            CallArg::Constant(off) => self.ld_data(reg, Section::Rodata, *off),
            CallArg::Word(off) => self.sum(reg, R10, i32::from(*off)),
            CallArg::Map(name) => self.ld_map(reg, name.clone()),
            CallArg::Callback(name) => self.ld_func(reg, name.clone()),
        }
    }

    /// What an argument stands for, in a new virtual register.
    pub fn address_of(&mut self, arg: &CallArg) -> Reg {
        let reg = self.new_reg();
        self.set(reg, arg);
        reg
    }

    /// A constant in its cheapest form.
    pub fn constant(&mut self, n: i64) -> Src {
        match i32::try_from(n) {
            Ok(n) => Src::Imm(n),
            Err(_) => {
                let reg = self.new_reg();
                self.imm(reg, n);
                reg.into()
            }
        }
    }

    /// `reg` = `base` + `off`.
    pub fn sum(&mut self, reg: Reg, base: Reg, off: i32) {
        self.mov(reg, base);
        if off != 0 {
            self.add(reg, off);
        }
    }
}
