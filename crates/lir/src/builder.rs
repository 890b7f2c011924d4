//! Builds functions from Rust, with expressions, variables and structured control flow.
//!
//! ```
//! use spile_lir::builder::build;
//!
//! let count = build("count", "The number of bytes in front of the first NUL.", ["text"], |f, [text]| {
//!     let n = f.var("n", 0);
//!     f.repeat(4096, || {
//!         let byte = (text + n).load_u8(0);
//!         f.break_if(byte.eq(0));
//!         n.set(n + 1);
//!     });
//!     f.ret(n);
//! });
//! println!("{count}");
//! ```
//! A [`Scalar`] is a value or a constant, and writes instructions as it is combined. A [`Var`] can be
//! changed; the builder makes block parameters of it. Code after a jump is dropped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops;

use spile_cast::Cast;

use crate::func::{
    BlockId, JumpTarget, LirBlock, LirFunc, LirInst, LirTerm, LoopBound, LoopForm, MemoryOperand,
    Operand, SlotId, Value,
};
use crate::helpers::Helper;
use crate::op::{AluOp, Cond, ExtOp, Size, Width};
use crate::simplify::simplify;

mod atomic;

/// A function under construction. Methods that take code as closures are thin, since each use of one is
/// compiled by itself.
pub struct Builder(RefCell<BuilderState>);

/// An `if` whose code is being written.
struct OpenIf {
    /// The variables in front of it.
    before: Vec<(Operand, String)>,
    /// The block for a comparison that does not hold.
    no: BlockId,
    /// The block behind it, and its parameters.
    join: BlockId,
    params: Vec<Value>,
}

/// A loop whose code is being written.
struct OpenLoop {
    header: BlockId,
    exit: BlockId,
    /// Number of variables that existed in front of it.
    vars: usize,
}

struct BuilderState {
    func: LirFunc,
    /// How often each name was used again. Values without a name have numbers.
    names: HashMap<String, u32>,
    /// The block that receives instructions; none after a jump.
    current: Option<BlockId>,
    /// The content of each variable, and its name.
    vars: Vec<(Operand, String)>,
    loops: Vec<OpenLoop>,
    loops_made: u32,
    counter: u32,
}

/// A value or a constant.
#[derive(Clone, Copy)]
pub struct Scalar<'b> {
    f: &'b Builder,
    v: Operand,
}

/// A variable.
#[derive(Clone, Copy)]
pub struct Var<'b> {
    f: &'b Builder,
    index: usize,
}

/// The end of a piece of code, to which the code can go.
#[derive(Clone, Copy)]
pub struct BlockExit<'b> {
    f: &'b Builder,
    block: BlockId,
    vars: usize,
}

/// A comparison.
#[derive(Clone, Copy)]
pub struct Comparison<'b> {
    cond: Cond,
    width: Width,
    a: Scalar<'b>,
    b: Scalar<'b>,
}

/// A type that instructions accept as an operand.
pub trait IntoOperand<'b> {
    /// The operand.
    fn val(self, f: &'b Builder) -> Scalar<'b>;
}

impl<'b> IntoOperand<'b> for Scalar<'b> {
    fn val(self, _: &'b Builder) -> Scalar<'b> {
        self
    }
}

impl<'b> IntoOperand<'b> for Var<'b> {
    fn val(self, _: &'b Builder) -> Scalar<'b> {
        self.get()
    }
}

impl<'b> IntoOperand<'b> for i32 {
    fn val(self, f: &'b Builder) -> Scalar<'b> {
        Scalar {
            f,
            v: Operand::Imm(self),
        }
    }
}

impl<'b> IntoOperand<'b> for u64 {
    fn val(self, f: &'b Builder) -> Scalar<'b> {
        f.constant(self)
    }
}

/// Builds a function. `code` gets the parameters, and ends with [`Builder::ret`] on each path; a
/// path without one returns 0.
pub fn build<const N: usize>(
    name: &str,
    contract: &str,
    params: [&str; N],
    code: impl for<'b> FnOnce(&'b Builder, [Scalar<'b>; N]),
) -> LirFunc {
    let builder = Builder::new(name, contract);
    let params = builder.begin(params);
    code(&builder, params);
    builder.finish()
}

impl BuilderState {
    fn unique(&mut self, name: &str) -> String {
        if let Some(uses) = self.names.get_mut(name) {
            *uses += 1;
            return format!("{name}.{uses}");
        }
        self.names.insert(name.to_owned(), 0);
        name.to_owned()
    }

    fn value(&mut self, name: &str) -> Value {
        let name = self.unique(name);
        self.func.value(name)
    }

    fn temp(&mut self) -> Value {
        self.counter += 1;
        self.func.value(self.counter.to_string())
    }

    fn block(&mut self, name: &str, params: Vec<Value>) -> BlockId {
        self.func.blocks.push(LirBlock {
            name: name.to_owned(),
            params,
            bound: None,
            insts: Vec::new(),
            term: LirTerm::Ret(Operand::Imm(0)),
        });
        BlockId(self.func.blocks.len().fit::<u32>() - 1)
    }

    /// A new block with a parameter for each of the first variables.
    fn merge(&mut self, name: &str, vars: usize) -> (BlockId, Vec<Value>) {
        let names: Vec<String> = self.vars[..vars].iter().map(|v| v.1.clone()).collect();
        let params: Vec<Value> = names.iter().map(|n| self.value(n)).collect();
        (self.block(name, params.clone()), params)
    }

    fn emit(&mut self, inst: LirInst) {
        if let Some(block) = self.current {
            self.func.blocks[block.index()].insts.push(inst);
        }
    }

    fn materialize(&mut self, v: Operand) -> Value {
        match v {
            Operand::Value(v) => v,
            Operand::Imm(n) => {
                let dst = self.temp();
                self.emit(LirInst::Const { dst, imm: n.into() });
                dst
            }
        }
    }

    /// Ends the present block.
    fn end(&mut self, term: LirTerm) {
        if let Some(block) = self.current.take() {
            self.func.blocks[block.index()].term = term;
        }
    }

    /// Jumps to a block that has the first variables as its parameters.
    fn jump(&mut self, block: BlockId, vars: usize) {
        if self.current.is_none() {
            return;
        }
        let vars: Vec<Operand> = self.vars[..vars].iter().map(|v| v.0).collect();
        let args = vars.into_iter().map(|v| self.materialize(v)).collect();
        self.end(LirTerm::Jump(JumpTarget { block, args }));
    }

    /// Ends a piece of code by a jump, and forgets the variables that it declared.
    fn close(&mut self, to: BlockId, vars: usize) {
        self.jump(to, vars);
        self.vars.resize(vars, (Operand::Imm(0), String::new()));
    }

    /// Goes on in a block, with the variables as its parameters.
    fn enter(&mut self, block: BlockId, params: &[Value]) {
        self.current = Some(block);
        self.vars.truncate(params.len());
        for (var, param) in self.vars.iter_mut().zip(params) {
            var.0 = Operand::Value(*param);
        }
    }
}

impl Builder {
    fn new(name: &str, contract: &str) -> Builder {
        Builder(RefCell::new(BuilderState {
            func: LirFunc {
                name: name.to_owned(),
                contract: contract.to_owned(),
                slots: Vec::new(),
                values: Vec::new(),
                blocks: Vec::new(),
            },
            names: HashMap::new(),
            current: None,
            vars: Vec::new(),
            loops: Vec::new(),
            loops_made: 0,
            counter: 0,
        }))
    }

    /// Begins the function's first block, with the parameters.
    fn begin<const N: usize>(&self, params: [&str; N]) -> [Scalar<'_>; N] {
        let mut state = self.0.borrow_mut();
        let params = params.map(|p| state.value(p));
        let entry = state.block("entry", params.to_vec());
        state.current = Some(entry);
        params.map(|v| self.val(v))
    }

    fn finish(self) -> LirFunc {
        self.ret(0);
        let mut func = self.0.into_inner().func;
        simplify(&mut func);
        func
    }

    fn val(&self, v: Value) -> Scalar<'_> {
        Scalar {
            f: self,
            v: Operand::Value(v),
        }
    }

    /// Writes an instruction that defines a value.
    fn def(&self, make: impl FnOnce(Value) -> LirInst) -> Scalar<'_> {
        let mut state = self.0.borrow_mut();
        let dst = state.temp();
        state.emit(make(dst));
        drop(state);
        self.val(dst)
    }

    /// A constant.
    pub fn constant(&self, imm: u64) -> Scalar<'_> {
        self.def(|dst| LirInst::Const {
            dst,
            imm: imm.cast_signed(),
        })
    }

    /// A constant with a sign.
    pub fn number(&self, n: i32) -> Scalar<'_> {
        self.constant(i64::from(n).cast_unsigned())
    }

    /// The value, or `most` if it is larger (unsigned).
    pub fn at_most<'b>(&'b self, value: impl IntoOperand<'b>, most: i32) -> Scalar<'b> {
        let limited = self.var("limited", value);
        self.if_(limited.gt(most), || limited.set(most));
        limited.get()
    }

    /// A variable.
    pub fn var<'b>(&'b self, name: &str, init: impl IntoOperand<'b>) -> Var<'b> {
        let init = init.val(self).v;
        let mut state = self.0.borrow_mut();
        state.vars.push((init, name.to_owned()));
        Var {
            f: self,
            index: state.vars.len() - 1,
        }
    }

    /// The address of a new stack slot.
    pub fn slot(&self, bytes: u32) -> Scalar<'_> {
        let slot = {
            let slots = &mut self.0.borrow_mut().func.slots;
            slots.push(bytes.next_multiple_of(8));
            SlotId(slots.len().fit::<u32>() - 1)
        };
        self.addr(MemoryOperand::Slot(slot, 0))
    }

    /// The address of a location.
    pub fn addr(&self, location: MemoryOperand) -> Scalar<'_> {
        self.def(|dst| LirInst::Addr { dst, location })
    }

    /// The address of constant data.
    pub fn data(&self, name: &str) -> Scalar<'_> {
        self.addr(MemoryOperand::Data(name.to_owned(), 0))
    }

    /// Calls a helper that has a result.
    pub fn helper<'b>(&'b self, helper: Helper, args: &[Scalar<'b>]) -> Scalar<'b> {
        let args = args.iter().map(|a| a.value()).collect();
        self.def(|dst| LirInst::Helper {
            dst: Some(dst),
            helper,
            args,
        })
    }

    /// Calls a function of the module.
    pub fn call<'b>(&'b self, func: &str, args: &[Scalar<'b>]) -> Scalar<'b> {
        let args = args.iter().map(|a| a.value()).collect();
        self.def(|dst| LirInst::Call {
            dst,
            func: func.to_owned(),
            args,
        })
    }

    /// Calls a function of the module, `func(index, context)`, until it returns something other than 0, at
    /// most that number of times: a loop whose code other functions share.
    pub fn repeat_call<'b>(&'b self, times: impl IntoOperand<'b>, func: &str, context: Scalar<'b>) {
        let (times, context) = (times.val(self).value(), context.value());
        self.def(|dst| LirInst::Repeat {
            dst,
            times,
            func: func.to_owned(),
            context,
        });
    }

    /// Returns.
    pub fn ret<'b>(&'b self, v: impl IntoOperand<'b>) {
        let v = v.val(self).v;
        self.0.borrow_mut().end(LirTerm::Ret(v));
    }

    /// Runs code if a comparison holds.
    pub fn if_<'b>(&'b self, test: Comparison<'b>, then: impl FnOnce()) {
        self.if_else(test, then, || {});
    }

    /// Runs one of two pieces of code.
    pub fn if_else<'b>(&'b self, test: Comparison<'b>, then: impl FnOnce(), els: impl FnOnce()) {
        if let Some(open) = self.begin_then(test) {
            then();
            self.begin_else(&open);
            els();
            self.end_if(&open);
        }
    }

    /// Branches, and begins the code for a comparison that holds. `None` if the location is never reached.
    fn begin_then(&self, test: Comparison<'_>) -> Option<OpenIf> {
        let a = test.a.value();
        let mut state = self.0.borrow_mut();
        state.current?;
        state.counter += 1;
        let n = state.counter;
        let before = state.vars.clone();
        let [yes, no] = ["then", "else"].map(|name| state.block(&format!("{name}{n}"), vec![]));
        let (join, params) = state.merge(&format!("join{n}"), before.len());
        let target = |block| JumpTarget {
            block,
            args: Vec::new(),
        };
        state.end(LirTerm::Branch {
            cond: test.cond,
            width: test.width,
            a,
            b: test.b.v,
            then: target(yes),
            els: target(no),
        });
        state.current = Some(yes);
        Some(OpenIf {
            before,
            no,
            join,
            params,
        })
    }

    fn begin_else(&self, open: &OpenIf) {
        let mut state = self.0.borrow_mut();
        state.jump(open.join, open.before.len());
        state.vars.clone_from(&open.before);
        state.current = Some(open.no);
    }

    fn end_if(&self, open: &OpenIf) {
        let mut state = self.0.borrow_mut();
        state.close(open.join, open.before.len());
        state.enter(open.join, &open.params);
    }

    /// Runs code that can go to its end from anywhere inside.
    pub fn block<'b>(&'b self, code: impl FnOnce(BlockExit<'b>)) {
        if let Some((exit, params)) = self.begin_block() {
            code(exit);
            let mut state = self.0.borrow_mut();
            state.close(exit.block, exit.vars);
            state.enter(exit.block, &params);
        }
    }

    fn begin_block(&self) -> Option<(BlockExit<'_>, Vec<Value>)> {
        let mut state = self.0.borrow_mut();
        state.current?;
        state.counter += 1;
        let (n, vars) = (state.counter, state.vars.len());
        let (block, params) = state.merge(&format!("after{n}"), vars);
        let exit = BlockExit {
            f: self,
            block,
            vars,
        };
        Some((exit, params))
    }

    /// Runs code again and again, until it breaks, at most `max` times.
    pub fn repeat(&self, max: u32, code: impl FnOnce()) {
        self.loop_(max, LoopForm::Callback, code);
    }

    /// The same without a callback: for loops with few and short iterations, and in functions that
    /// have no frame left ([`LoopForm::Inline`]).
    pub fn repeat_inline(&self, max: u32, code: impl FnOnce()) {
        self.loop_(max, LoopForm::Inline, code);
    }

    /// The same where the code breaks within the bound always, by variables that are [`Scalar::opaque`]
    /// at first ([`LoopForm::Open`]).
    pub fn repeat_open(&self, max: u32, code: impl FnOnce()) {
        self.loop_(max, LoopForm::Open, code);
    }

    fn loop_(&self, max: u32, form: LoopForm, code: impl FnOnce()) {
        if let Some(exit_params) = self.begin_loop(max, form) {
            code();
            self.end_loop(&exit_params);
        }
    }

    /// Begins a loop; returns the parameters of the block behind it.
    fn begin_loop(&self, max: u32, form: LoopForm) -> Option<Vec<Value>> {
        let mut state = self.0.borrow_mut();
        state.current?;
        state.loops_made += 1;
        let (n, vars) = (state.loops_made, state.vars.len());
        let (header, params) = state.merge(&format!("loop{n}"), vars);
        let (exit, exit_params) = state.merge(&format!("end{n}"), vars);
        state.jump(header, vars);
        state.func.blocks[header.index()].bound = Some(LoopBound {
            max,
            form,
            exhausted: JumpTarget {
                block: exit,
                args: params.clone(),
            },
        });
        state.enter(header, &params);
        state.loops.push(OpenLoop { header, exit, vars });
        Some(exit_params)
    }

    fn end_loop(&self, exit_params: &[Value]) {
        let mut state = self.0.borrow_mut();
        if let Some(OpenLoop { header, exit, vars }) = state.loops.pop() {
            state.close(header, vars);
            state.enter(exit, exit_params);
        }
    }

    /// Leaves the innermost loop. Outside of loops it does nothing.
    pub fn break_(&self) {
        let mut state = self.0.borrow_mut();
        if let Some((exit, vars)) = state.loops.last().map(|l| (l.exit, l.vars)) {
            state.jump(exit, vars);
        }
    }

    /// Begins the innermost loop again. Outside of loops it does nothing.
    pub fn continue_(&self) {
        let mut state = self.0.borrow_mut();
        if let Some((header, vars)) = state.loops.last().map(|l| (l.header, l.vars)) {
            state.jump(header, vars);
        }
    }

    /// Leaves the innermost loop if a comparison holds.
    pub fn break_if<'b>(&'b self, test: Comparison<'b>) {
        self.if_(test, || self.break_());
    }

    /// Returns a value if a comparison holds.
    pub fn ret_if<'b>(&'b self, test: Comparison<'b>, v: impl IntoOperand<'b>) {
        self.if_(test, || self.ret(v));
    }
}

impl<'b> BlockExit<'b> {
    /// Goes there.
    pub fn leave(self) {
        self.f.0.borrow_mut().jump(self.block, self.vars);
    }

    /// Goes there if a comparison holds.
    pub fn leave_if(self, test: Comparison<'b>) {
        self.f.if_(test, || self.leave());
    }
}

impl<'b> Var<'b> {
    /// The present value.
    pub fn get(self) -> Scalar<'b> {
        let vars = &self.f.0.borrow().vars;
        debug_assert!(self.index < vars.len(), "the variable's block has ended");
        Scalar {
            f: self.f,
            v: vars.get(self.index).map_or(Operand::Imm(0), |v| v.0),
        }
    }

    /// Changes the variable.
    pub fn set(self, v: impl IntoOperand<'b>) {
        let v = v.val(self.f).v;
        if let Some(var) = self.f.0.borrow_mut().vars.get_mut(self.index) {
            var.0 = v;
        }
    }
}

impl<'b> Scalar<'b> {
    fn value(self) -> Value {
        self.f.0.borrow_mut().materialize(self.v)
    }

    /// Arithmetic.
    pub fn alu(self, width: Width, op: AluOp, b: impl IntoOperand<'b>) -> Scalar<'b> {
        let (a, b) = (self.value(), b.val(self.f).v);
        self.f.def(|dst| LirInst::Alu {
            dst,
            width,
            op,
            a,
            b,
        })
    }

    fn compare(self, cond: Cond, b: impl IntoOperand<'b>) -> Comparison<'b> {
        Comparison {
            cond,
            width: Width::W64,
            a: self,
            b: b.val(self.f),
        }
    }

    fn load(self, size: Size, signed: bool, off: i16) -> Scalar<'b> {
        let base = self.value();
        self.f.def(|dst| LirInst::Load {
            dst,
            size,
            signed,
            base,
            off,
        })
    }

    /// The word at this address.
    pub fn load_u64(self, off: i16) -> Scalar<'b> {
        self.load(Size::U64, false, off)
    }

    /// The byte at this address.
    pub fn load_u8(self, off: i16) -> Scalar<'b> {
        self.load(Size::U8, false, off)
    }

    /// The half-word at this address.
    pub fn load_u16(self, off: i16) -> Scalar<'b> {
        self.load(Size::U16, false, off)
    }

    /// The number of 32 bits at this address, extended with its sign.
    pub fn load_s32(self, off: i16) -> Scalar<'b> {
        self.load(Size::U32, true, off)
    }

    /// Stores a word at this address.
    pub fn store_u64(self, off: i16, v: impl IntoOperand<'b>) {
        self.store_bytes(Size::U64, off, v);
    }

    /// Stores a byte at this address.
    pub fn store_u8(self, off: i16, v: impl IntoOperand<'b>) {
        self.store_bytes(Size::U8, off, v);
    }

    /// The bytes at this address, extended with zeros.
    pub fn load_bytes(self, size: Size, off: i16) -> Scalar<'b> {
        self.load(size, false, off)
    }

    /// The bytes at this address, extended with their sign.
    pub fn load_signed(self, size: Size, off: i16) -> Scalar<'b> {
        self.load(size, true, off)
    }

    /// Stores the low bytes of a value at this address.
    pub fn store_bytes(self, size: Size, off: i16, v: impl IntoOperand<'b>) {
        let (base, src) = (self.value(), v.val(self.f).v);
        self.f.0.borrow_mut().emit(LirInst::Store {
            size,
            base,
            off,
            src,
        });
    }

    /// The same value, which is at most `max`: a promise that the kernel's verifier learns.
    pub fn bound(self, max: u32) -> Scalar<'b> {
        let a = self.value();
        self.f.def(|dst| LirInst::Bound { dst, a, max })
    }

    /// The same value, which the kernel's verifier forgets.
    pub fn opaque(self) -> Scalar<'b> {
        let a = self.value();
        self.f.def(|dst| LirInst::Opaque { dst, a })
    }

    /// The low bytes, extended with zeros or with the sign, or swapped.
    pub fn ext(self, op: ExtOp, size: Size) -> Scalar<'b> {
        let a = self.value();
        self.f.def(|dst| LirInst::Ext { dst, op, size, a })
    }

    /// The word with its bytes in the opposite order.
    pub fn swap(self) -> Scalar<'b> {
        self.ext(ExtOp::Swap, Size::U64)
    }
}

macro_rules! comparisons {
    ($($(#[$m:meta])* $name:ident = $cond:ident;)*) => {
        impl<'b> Scalar<'b> {
            $($(#[$m])* pub fn $name(self, b: impl IntoOperand<'b>) -> Comparison<'b> {
                self.compare(Cond::$cond, b)
            })*
        }

        impl<'b> Var<'b> {
            $($(#[$m])* pub fn $name(self, b: impl IntoOperand<'b>) -> Comparison<'b> {
                self.get().compare(Cond::$cond, b)
            })*
        }
    };
}

comparisons! {
    /// Equal.
    eq = Eq;
    /// Not equal.
    ne = Ne;
    /// Unsigned less.
    lt = Lt;
    /// Unsigned less or equal.
    le = Le;
    /// Unsigned greater.
    gt = Gt;
    /// Unsigned greater or equal.
    ge = Ge;
    /// Signed less.
    slt = Slt;
    /// Signed less or equal.
    sle = Sle;
    /// Signed greater.
    sgt = Sgt;
    /// Signed greater or equal.
    sge = Sge;
    /// Some bit in common.
    has = Set;
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        impl<'b, T: IntoOperand<'b>> ops::$trait<T> for Scalar<'b> {
            type Output = Scalar<'b>;

            fn $method(self, b: T) -> Scalar<'b> {
                self.alu(Width::W64, AluOp::$op, b)
            }
        }

        impl<'b, T: IntoOperand<'b>> ops::$trait<T> for Var<'b> {
            type Output = Scalar<'b>;

            fn $method(self, b: T) -> Scalar<'b> {
                self.get().alu(Width::W64, AluOp::$op, b)
            }
        }
    )*};
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Mod;
    BitAnd bitand And;
    BitOr bitor Or;
    BitXor bitxor Xor;
    Shl shl Lsh;
    Shr shr Rsh;
}
