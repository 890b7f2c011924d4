//! Modules, functions, blocks and instructions, as plain data.
//!
//! A function is in SSA form with block parameters: each value has one definition, and a jump hands
//! values to the parameters of its target. [`crate::verify`] lists the invariants, [`crate::text`]
//! the text form.
//!
//! # Loops
//! The first block of each loop is its *header* and has a bound ([`LoopBound`]): how often the
//! header may be reached before the function leaves the loop. All loops are thus finite without a
//! proof. A host chooses how to run a loop: as a jump back, or in the kernel as a callback that is
//! called again and again ([`crate::repeat`]), which the kernel's verifier follows once and not at
//! each iteration.

use spile_cast::Cast;

use crate::helpers::Helper;
use crate::op::{AluOp, AtomicOp, Cond, ExtOp, Size, Width};

macro_rules! ids {
    ($($(#[$m:meta])* $ty:ident;)*) => {$(
        $(#[$m])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $ty(pub u32);

        impl $ty {
            /// The location in its table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A value: a virtual register of 64 bits with one definition. Index in [`LirFunc::values`].
    Value;
    /// Index in [`LirFunc::blocks`].
    BlockId;
    /// Index in [`LirFunc::slots`].
    SlotId;
}

/// The second operand of arithmetic, comparisons and stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A value.
    Value(Value),
    /// A constant, extended with its sign to the width of the operation.
    Imm(i32),
}

impl From<Value> for Operand {
    fn from(v: Value) -> Operand {
        Operand::Value(v)
    }
}

impl From<i32> for Operand {
    fn from(n: i32) -> Operand {
        Operand::Imm(n)
    }
}

/// Something whose address code takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryOperand {
    /// A byte of a stack slot.
    Slot(SlotId, u32),
    /// A byte of this processor's area.
    Cpu(u32),
    /// A byte of the shared state memory.
    State(u32),
    /// A map, by name. Only helpers use the address.
    Map(String),
    /// A function of the module, by name. Only helpers that call it use the address.
    Func(String),
    /// A byte of constant data, by name.
    Data(String, u32),
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LirInst {
    /// `dst = imm`.
    Const { dst: Value, imm: i64 },
    /// `dst = a op b`.
    Alu {
        dst: Value,
        width: Width,
        op: AluOp,
        a: Value,
        b: Operand,
    },
    /// `dst` = the low `size` bytes of `a`, extended or swapped.
    Ext {
        dst: Value,
        op: ExtOp,
        size: Size,
        a: Value,
    },
    /// `dst` = memory at `base + off`, extended with zeros or with its sign.
    Load {
        dst: Value,
        size: Size,
        signed: bool,
        base: Value,
        off: i16,
    },
    /// Memory at `base + off` = `src`.
    Store {
        size: Size,
        base: Value,
        off: i16,
        src: Operand,
    },
    /// An atomic operation on memory at `base + off`. `dst` is the old value, for operations that
    /// give it; `expected` belongs to [`AtomicOp::CmpXchg`] only.
    Atomic {
        dst: Option<Value>,
        op: AtomicOp,
        width: Width,
        base: Value,
        off: i16,
        expected: Option<Value>,
        src: Value,
    },
    /// `dst = a`, and `a <= max` (unsigned), which the code promises. The kernel's verifier learns
    /// the bound; the interpreter stops if the promise is broken; other code may give any number up
    /// to `max` then.
    Bound { dst: Value, a: Value, max: u32 },
    /// `dst = a`, about which the kernel's verifier knows nothing, so that paths with different
    /// constants become one. Verifiers before Linux 6.8 still know a zero. Not for addresses.
    Opaque { dst: Value, a: Value },
    /// `dst` = the address of a location.
    Addr { dst: Value, location: MemoryOperand },
    /// Calls a helper of the host.
    Helper {
        dst: Option<Value>,
        helper: Helper,
        args: Vec<Value>,
    },
    /// Calls a function of the module or of the host.
    Call {
        dst: Value,
        func: String,
        args: Vec<Value>,
    },
    /// Calls `func(index, context)` with indexes from 0, until it returns something other than 0 or
    /// `times` (unsigned) calls are done; `dst` = the number of calls. A host limits `times`.
    Repeat {
        dst: Value,
        times: Value,
        func: String,
        context: Value,
    },
}

/// The target of a jump, with the values for its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JumpTarget {
    /// The block.
    pub block: BlockId,
    /// A value for each parameter.
    pub args: Vec<Value>,
}

/// The end of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LirTerm {
    /// Goes on in another block.
    Jump(JumpTarget),
    /// Goes to `then` if `a cond b`, else to `els`.
    Branch {
        cond: Cond,
        width: Width,
        a: Value,
        b: Operand,
        then: JumpTarget,
        els: JumpTarget,
    },
    /// Returns.
    Ret(Operand),
}

/// How a host that has callbacks for loops runs a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopForm {
    /// By a callback.
    Callback,
    /// By jumps back, because a callback needs a frame too many or costs more than it saves. The
    /// kernel's verifier follows each iteration then, and the loop may carry addresses.
    Inline,
    /// By jumps back out of which the code comes itself within the bound, which it promises. A host
    /// that stops any loop at last (Linux 6.9, `may_goto`) does not count. Its verifier follows one
    /// iteration, if it does not know what changes between iterations.
    Open,
}

/// The bound of a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopBound {
    /// The largest number of runs of the header's instructions, at least 1.
    pub max: u32,
    /// How a host that has callbacks for loops runs it.
    pub form: LoopForm,
    /// The target that replaces a further run. The arguments may be parameters
    /// of the header.
    pub exhausted: JumpTarget,
}

/// A basic block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LirBlock {
    /// Unique in the function.
    pub name: String,
    /// Parameters; those of the first block are the function's.
    pub params: Vec<Value>,
    /// The bound, if the block is the header of a loop.
    pub bound: Option<LoopBound>,
    /// Instructions.
    pub insts: Vec<LirInst>,
    /// The end.
    pub term: LirTerm,
}

/// A function. It has one result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LirFunc {
    /// Unique in the module.
    pub name: String,
    /// Its effect, arguments, bounds and cost: the lines above it in the text form.
    pub contract: String,
    /// Sizes of the stack slots in bytes.
    pub slots: Vec<u32>,
    /// Names of the values, unique in the function.
    pub values: Vec<String>,
    /// Blocks; the function begins with the first one.
    pub blocks: Vec<LirBlock>,
}

/// Constant bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstantData {
    /// Unique in the module.
    pub name: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A function of the host that functions of the module call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extern {
    /// Unique among all functions of the module.
    pub name: String,
    /// Number of parameters, at most 5.
    pub params: usize,
}

/// Functions and constants that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Module {
    /// Functions of the host.
    pub externs: Vec<Extern>,
    /// Constants.
    pub data: Vec<ConstantData>,
    /// Functions.
    pub funcs: Vec<LirFunc>,
}

/// A module of one function.
impl From<LirFunc> for Module {
    fn from(func: LirFunc) -> Module {
        Module::from(vec![func])
    }
}

/// A module of functions alone.
impl From<Vec<LirFunc>> for Module {
    fn from(funcs: Vec<LirFunc>) -> Module {
        Module {
            funcs,
            ..Module::default()
        }
    }
}

impl Module {
    /// The module with functions of the host, each with its number of parameters.
    pub fn with_externs(mut self, externs: &[(&str, usize)]) -> Module {
        let declared = |(name, params): &(&str, usize)| Extern {
            name: (*name).into(),
            params: *params,
        };
        self.externs.extend(externs.iter().map(declared));
        self
    }

    /// The module with a constant.
    pub fn with_data(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Module {
        self.data.push(ConstantData {
            name: name.into(),
            bytes: bytes.into(),
        });
        self
    }

    /// The function with this name.
    pub fn func(&self, name: &str) -> Option<&LirFunc> {
        self.funcs.iter().find(|f| f.name == name)
    }

    /// The number of parameters of a function of the module or of the host.
    pub fn params(&self, name: &str) -> Option<usize> {
        let params = self.func(name).map(|f| f.params().len());
        params.or_else(|| Some(self.externs.iter().find(|e| e.name == name)?.params))
    }

    /// The names of functions whose address code takes.
    pub fn callbacks(&self) -> impl Iterator<Item = &str> {
        let insts = self.funcs.iter().flat_map(|f| &f.blocks);
        let insts = insts.flat_map(|b| &b.insts);
        insts.filter_map(|inst| match inst {
            LirInst::Addr {
                location: MemoryOperand::Func(name),
                ..
            } => Some(name.as_str()),
            _ => None,
        })
    }

    /// The constant with this name.
    pub fn data(&self, name: &str) -> Option<&ConstantData> {
        self.data.iter().find(|d| d.name == name)
    }
}

impl LirFunc {
    /// The parameters.
    pub fn params(&self) -> &[Value] {
        self.blocks.first().map_or(&[], |b| &b.params)
    }

    /// A new value with this name.
    pub fn value(&mut self, name: impl Into<String>) -> Value {
        self.values.push(name.into());
        Value(self.values.len().fit::<u32>() - 1)
    }
}

/// The values that an instruction reads, shared or to be changed.
macro_rules! uses {
    ($inst:expr, $f:ident, $iter:ident, $value:ident) => {
        match $inst {
            LirInst::Const { .. } | LirInst::Addr { .. } => {}
            LirInst::Alu { a, b, .. } => {
                $f(a);
                b.$value().map(&mut $f);
            }
            LirInst::Ext { a, .. } | LirInst::Bound { a, .. } | LirInst::Opaque { a, .. } => $f(a),
            LirInst::Load { base, .. } => $f(base),
            LirInst::Store { base, src, .. } => {
                $f(base);
                src.$value().map(&mut $f);
            }
            LirInst::Atomic {
                base,
                expected,
                src,
                ..
            } => {
                $f(base);
                expected.$iter().for_each(&mut $f);
                $f(src);
            }
            LirInst::Helper { args, .. } | LirInst::Call { args, .. } => args.$iter().for_each($f),
            LirInst::Repeat { times, context, .. } => {
                $f(times);
                $f(context);
            }
        }
    };
}

/// The value that an instruction defines, borrowed as the instruction is: by `as_ref` or `as_mut`.
macro_rules! defined {
    ($inst:expr, $borrow:ident) => {
        match $inst {
            LirInst::Const { dst, .. }
            | LirInst::Alu { dst, .. }
            | LirInst::Ext { dst, .. }
            | LirInst::Load { dst, .. }
            | LirInst::Bound { dst, .. }
            | LirInst::Opaque { dst, .. }
            | LirInst::Addr { dst, .. }
            | LirInst::Call { dst, .. }
            | LirInst::Repeat { dst, .. } => Some(dst),
            LirInst::Atomic { dst, .. } | LirInst::Helper { dst, .. } => dst.$borrow(),
            LirInst::Store { .. } => None,
        }
    };
}

impl LirInst {
    /// The value that it defines.
    pub fn dst(&self) -> Option<Value> {
        defined!(self, as_ref).copied()
    }

    /// The value that it defines, to be changed.
    pub fn dst_mut(&mut self) -> Option<&mut Value> {
        defined!(self, as_mut)
    }

    /// Visits the values that it reads.
    pub fn for_each_use(&self, mut f: impl FnMut(&Value)) {
        uses!(self, f, iter, value)
    }

    /// Visits the values that it reads, to change them.
    pub fn for_each_use_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        uses!(self, f, iter_mut, value_mut)
    }
}

impl Operand {
    /// The value, if it is one.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Operand::Value(v) => Some(v),
            Operand::Imm(_) => None,
        }
    }

    /// The value, to change it.
    pub fn value_mut(&mut self) -> Option<&mut Value> {
        match self {
            Operand::Value(v) => Some(v),
            Operand::Imm(_) => None,
        }
    }
}

impl LirTerm {
    /// The targets.
    pub fn targets(&self) -> Vec<&JumpTarget> {
        match self {
            LirTerm::Jump(to) => vec![to],
            LirTerm::Branch { then, els, .. } => vec![then, els],
            LirTerm::Ret(_) => Vec::new(),
        }
    }

    /// The targets, to change them.
    pub fn targets_mut(&mut self) -> Vec<&mut JumpTarget> {
        match self {
            LirTerm::Jump(to) => vec![to],
            LirTerm::Branch { then, els, .. } => vec![then, els],
            LirTerm::Ret(_) => Vec::new(),
        }
    }

    /// Visits the values that it reads itself, without the arguments of its targets.
    pub fn for_each_use(&self, mut f: impl FnMut(&Value)) {
        match self {
            LirTerm::Jump(_) => {}
            LirTerm::Branch { a, b, .. } => {
                f(a);
                b.value().map(f);
            }
            LirTerm::Ret(v) => drop(v.value().map(f)),
        }
    }

    /// The same, to change them.
    pub fn for_each_use_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        match self {
            LirTerm::Jump(_) => {}
            LirTerm::Branch { a, b, .. } => {
                f(a);
                b.value_mut().map(f);
            }
            LirTerm::Ret(v) => drop(v.value_mut().map(f)),
        }
    }
}

impl LirBlock {
    /// Visits the values that its instructions, its end and the arguments of its edges read, to change
    /// them.
    pub fn for_each_use_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        for inst in &mut self.insts {
            inst.for_each_use_mut(&mut f);
        }
        self.term.for_each_use_mut(&mut f);
        let args = self.edges_mut().into_iter().flat_map(|t| &mut t.args);
        args.for_each(f);
    }

    /// All edges out of the block: those of its end, and the one of its bound.
    pub fn edges(&self) -> Vec<&JumpTarget> {
        let mut edges = self.term.targets();
        edges.extend(self.bound.iter().map(|b| &b.exhausted));
        edges
    }

    /// All edges out of the block, to change them.
    pub fn edges_mut(&mut self) -> Vec<&mut JumpTarget> {
        let mut edges = self.term.targets_mut();
        edges.extend(self.bound.iter_mut().map(|b| &mut b.exhausted));
        edges
    }
}
