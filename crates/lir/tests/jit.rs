//! The way to another host: each operation of LIR has a translation to Cranelift IR, so a module
//! becomes machine code of a process. The library and random functions give the same results as in
//! the interpreter. Not done here: helpers, maps, state and per-CPU areas, which a host
//! answers by addresses and calls of its own.

use std::collections::HashMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, AtomicRmwOp, Block as ClifBlock, BlockArg, InstBuilder, MemFlagsData, Signature,
    StackSlot, StackSlotData, StackSlotKind, Type, Value as Clif,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module as _, default_libcall_names};
use proptest::collection::vec;
use proptest::prelude::*;
use spile_lir::cfg::Cfg;
use spile_lir::func::{
    BlockId, JumpTarget, LirBlock, LirFunc, LirInst, LirTerm, MemoryOperand, Module, Operand, Value,
};
use spile_lir::interp::{Machine, NoHost, RegionKind};
use spile_lir::op::{AluOp, AtomicOp, Cond, ExtOp, Size, Width};
use spile_lir::repeat::outline;
use spile_lir::verify::HostLimits;
use spile_lir::{library, testgen};

/// A module as machine code.
struct Native {
    jit: JITModule,
    functions: HashMap<String, (FuncId, usize)>,
}

impl Native {
    fn new(module: &Module) -> Native {
        let builder = JITBuilder::new(default_libcall_names()).expect("this machine is known");
        let mut jit = JITModule::new(builder);
        let mut functions = HashMap::new();
        for func in &module.funcs {
            let params = func.params().len();
            let signature = signature(&jit, params);
            let id = jit.declare_function(&func.name, Linkage::Local, &signature);
            functions.insert(func.name.clone(), (id.expect("a new name"), params));
        }
        let data: HashMap<&str, &'static [u8]> = (module.data.iter())
            .map(|d| (&*d.name, &*d.bytes.clone().leak()))
            .collect();
        let mut shared = FunctionBuilderContext::new();
        let config = jit.target_config();
        for func in &module.funcs {
            let (id, params) = functions[&func.name];
            let mut context = jit.make_context();
            context.func.signature = signature(&jit, params);
            let mut translator = Translator {
                func,
                cfg: Cfg::new(func),
                b: FunctionBuilder::new(&mut context.func, &mut shared),
                jit: &mut jit,
                functions: &functions,
                data: &data,
                values: HashMap::new(),
                blocks: Vec::new(),
                counts: HashMap::new(),
                slots: Vec::new(),
            };
            translator.function();
            translator.b.seal_all_blocks();
            translator.b.finalize(config);
            let defined = jit.define_function(id, &mut context);
            defined.unwrap_or_else(|e| panic!("{e:?}\n{func}"));
        }
        jit.finalize_definitions().expect("memory for code");
        Native { jit, functions }
    }

    fn run(&self, name: &str, args: &[u64]) -> u64 {
        let (id, params) = self.functions[name];
        assert_eq!(params, args.len());
        let code = self.jit.get_finalized_function(id);
        let mut all = [0; 5];
        all[..args.len()].copy_from_slice(args);
        let [a, b, c, d, e] = all;
        // SAFETY: the code has the C convention and takes that number of words; more arguments than
        // parameters do no harm, they are in registers.
        unsafe {
            let code: extern "C" fn(u64, u64, u64, u64, u64) -> u64 = std::mem::transmute(code);
            code(a, b, c, d, e)
        }
    }
}

fn signature(jit: &JITModule, params: usize) -> Signature {
    let mut signature = jit.make_signature();
    signature.params = vec![AbiParam::new(I64); params];
    signature.returns = vec![AbiParam::new(I64)];
    signature
}

fn ty(size: Size) -> Type {
    match size {
        Size::U8 => I8,
        Size::U16 => I16,
        Size::U32 => I32,
        Size::U64 => I64,
    }
}

struct Translator<'a, 'b> {
    func: &'a LirFunc,
    cfg: Cfg,
    b: FunctionBuilder<'b>,
    jit: &'a mut JITModule,
    functions: &'a HashMap<String, (FuncId, usize)>,
    data: &'a HashMap<&'a str, &'static [u8]>,
    values: HashMap<Value, Clif>,
    blocks: Vec<ClifBlock>,
    /// The iterations that are done, for each header.
    counts: HashMap<usize, Clif>,
    slots: Vec<StackSlot>,
}

const MEMORY: MemFlagsData = MemFlagsData::new();

impl Translator<'_, '_> {
    fn function(&mut self) {
        for size in &self.func.slots {
            let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, *size, 3);
            self.slots.push(self.b.create_sized_stack_slot(slot));
        }
        self.blocks = self
            .func
            .blocks
            .iter()
            .map(|_| self.b.create_block())
            .collect();
        for i in self.cfg.blocks().collect::<Vec<_>>() {
            let block = &self.func.blocks[i];
            let here = self.blocks[i];
            for param in &block.params {
                let v = self.b.append_block_param(here, I64);
                self.values.insert(*param, v);
            }
            self.b.switch_to_block(here);
            self.bound(i, block);
            block.insts.iter().for_each(|inst| self.inst(inst));
            self.term(i, &block.term);
        }
    }

    /// Leaves the loop if its header was reached often enough.
    fn bound(&mut self, i: usize, block: &LirBlock) {
        let Some(bound) = &block.bound else { return };
        let count = self.b.append_block_param(self.blocks[i], I64);
        self.counts.insert(i, count);
        let inside = self.b.create_block();
        let more = self
            .b
            .ins()
            .icmp_imm_u(IntCC::UnsignedLessThan, count, i64::from(bound.max));
        let (to, args) = self.target(i, &bound.exhausted);
        self.b.ins().brif(more, inside, &[], to, &args);
        self.b.switch_to_block(inside);
    }

    /// The block of a target, and its arguments with the count of a loop.
    fn target(&mut self, from: usize, to: &JumpTarget) -> (ClifBlock, Vec<BlockArg>) {
        let BlockId(index) = to.block;
        let index = index as usize;
        let mut args: Vec<BlockArg> = to.args.iter().map(|v| self.values[v].into()).collect();
        if self.func.blocks[index].bound.is_some() {
            let back = self.cfg.latches(index).any(|n| n.block() == from);
            let count = match back {
                true => self.b.ins().iadd_imm_u(self.counts[&index], 1),
                false => self.b.ins().iconst(I64, 0),
            };
            args.push(count.into());
        }
        (self.blocks[index], args)
    }

    fn operand(&mut self, operand: Operand) -> Clif {
        match operand {
            Operand::Value(v) => self.values[&v],
            Operand::Imm(n) => self.b.ins().iconst(I64, i64::from(n)),
        }
    }

    /// A value of this width.
    fn narrow(&mut self, width: Width, v: Clif) -> Clif {
        match width {
            Width::W32 => self.b.ins().ireduce(I32, v),
            Width::W64 => v,
        }
    }

    fn widen(&mut self, v: Clif) -> Clif {
        match self.b.func.dfg.value_type(v) {
            I64 => v,
            _ => self.b.ins().uextend(I64, v),
        }
    }

    fn term(&mut self, from: usize, term: &LirTerm) {
        match term {
            LirTerm::Jump(to) => {
                let (to, args) = self.target(from, to);
                self.b.ins().jump(to, &args);
            }
            LirTerm::Branch {
                cond,
                width,
                a,
                b,
                then,
                els,
            } => {
                let (a, b) = (self.values[a], self.operand(*b));
                let (a, b) = (self.narrow(*width, a), self.narrow(*width, b));
                let holds = self.condition(*cond, a, b);
                let (then, then_args) = self.target(from, then);
                let (els, els_args) = self.target(from, els);
                self.b.ins().brif(holds, then, &then_args, els, &els_args);
            }
            LirTerm::Ret(v) => {
                let v = self.operand(*v);
                self.b.ins().return_(&[v]);
            }
        }
    }

    fn condition(&mut self, cond: Cond, a: Clif, b: Clif) -> Clif {
        let cc = match cond {
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
        self.b.ins().icmp(cc, a, b)
    }

    fn inst(&mut self, inst: &LirInst) {
        let result = match inst {
            LirInst::Const { imm, .. } => self.b.ins().iconst(I64, *imm),
            LirInst::Alu {
                width, op, a, b, ..
            } => {
                let (a, b) = (self.values[a], self.operand(*b));
                let (a, b) = (self.narrow(*width, a), self.narrow(*width, b));
                let result = self.arithmetic(*op, a, b);
                self.widen(result)
            }
            LirInst::Ext { op, size, a, .. } => self.extension(*op, *size, self.values[a]),
            LirInst::Load {
                size,
                signed,
                base,
                off,
                ..
            } => {
                let base = self.values[base];
                let v = self.b.ins().load(ty(*size), MEMORY, base, i32::from(*off));
                match signed {
                    true => self.b.ins().sextend(I64, v),
                    false => self.widen(v),
                }
            }
            LirInst::Store {
                size,
                base,
                off,
                src,
            } => {
                let (base, src) = (self.values[base], self.operand(*src));
                let src = match size {
                    Size::U64 => src,
                    _ => self.b.ins().ireduce(ty(*size), src),
                };
                self.b.ins().store(MEMORY, src, base, i32::from(*off));
                return;
            }
            LirInst::Atomic { .. } => self.atomic(inst),
            LirInst::Bound { a, max, .. } => {
                let (a, max) = (self.values[a], self.b.ins().iconst(I64, i64::from(*max)));
                self.b.ins().umin(a, max)
            }
            LirInst::Opaque { a, .. } => self.values[a],
            LirInst::Addr { location, .. } => match location {
                MemoryOperand::Slot(slot, off) => {
                    let slot = self.slots[slot.index()];
                    self.b.ins().stack_addr(I64, slot, off.cast_signed())
                }
                MemoryOperand::Data(name, off) => {
                    let at = self.data[&**name].as_ptr() as i64 + i64::from(*off);
                    self.b.ins().iconst(I64, at)
                }
                of => panic!("{of} belongs to a host"),
            },
            LirInst::Helper { helper, .. } => panic!("{} belongs to a host", helper.name()),
            LirInst::Call { func, args, .. } => {
                let args: Vec<Clif> = args.iter().map(|v| self.values[v]).collect();
                self.call(func, &args)
            }
            LirInst::Repeat {
                times,
                func,
                context,
                ..
            } => self.repeat(self.values[times], func, self.values[context]),
        };
        if let Some(dst) = inst.dst() {
            self.values.insert(dst, result);
        }
    }

    fn call(&mut self, name: &str, args: &[Clif]) -> Clif {
        let (id, _) = self.functions[name];
        let callee = self.jit.declare_func_in_func(id, self.b.func);
        let call = self.b.ins().call(callee, args);
        self.b.inst_results(call)[0]
    }

    /// A loop around a call.
    fn repeat(&mut self, times: Clif, func: &str, context: Clif) -> Clif {
        let [header, again, end] = std::array::from_fn(|_| self.b.create_block());
        let i = self.b.append_block_param(header, I64);
        let done = self.b.append_block_param(end, I64);
        let zero = self.b.ins().iconst(I64, 0);
        self.b.ins().jump(header, &[zero.into()]);
        self.b.switch_to_block(header);
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, i, times);
        self.b.ins().brif(more, again, &[], end, &[i.into()]);
        self.b.switch_to_block(again);
        let stop = self.call(func, &[i, context]);
        let next = self.b.ins().iadd_imm_u(i, 1);
        self.b
            .ins()
            .brif(stop, end, &[next.into()], header, &[next.into()]);
        self.b.switch_to_block(end);
        done
    }

    fn arithmetic(&mut self, op: AluOp, a: Clif, b: Clif) -> Clif {
        let ty = self.b.func.dfg.value_type(a);
        let i = |t: &mut Self, n: i64| t.b.ins().iconst(ty, n);
        match op {
            AluOp::Add => self.b.ins().iadd(a, b),
            AluOp::Sub => self.b.ins().isub(a, b),
            AluOp::Mul => self.b.ins().imul(a, b),
            AluOp::And => self.b.ins().band(a, b),
            AluOp::Or => self.b.ins().bor(a, b),
            AluOp::Xor => self.b.ins().bxor(a, b),
            AluOp::Lsh => self.b.ins().ishl(a, b),
            AluOp::Rsh => self.b.ins().ushr(a, b),
            AluOp::Arsh => self.b.ins().sshr(a, b),
            // The machine's division traps where LIR's has a result.
            AluOp::Div | AluOp::Mod | AluOp::Sdiv | AluOp::Smod => {
                let (zero, one) = (i(self, 0), i(self, 1));
                let by_zero = self.b.ins().icmp(IntCC::Equal, b, zero);
                let signed = matches!(op, AluOp::Sdiv | AluOp::Smod);
                let minus_one = i(self, -1);
                let by_minus = self.b.ins().icmp(IntCC::Equal, b, minus_one);
                let mut safe = self.b.ins().select(by_zero, one, b);
                if signed {
                    safe = self.b.ins().select(by_minus, one, safe);
                }
                let result = match op {
                    AluOp::Div => self.b.ins().udiv(a, safe),
                    AluOp::Mod => self.b.ins().urem(a, safe),
                    AluOp::Sdiv => {
                        let (quotient, minus) = (self.b.ins().sdiv(a, safe), self.b.ins().ineg(a));
                        self.b.ins().select(by_minus, minus, quotient)
                    }
                    _ => self.b.ins().srem(a, safe),
                };
                let quotient = matches!(op, AluOp::Div | AluOp::Sdiv);
                self.b
                    .ins()
                    .select(by_zero, if quotient { zero } else { a }, result)
            }
        }
    }

    fn extension(&mut self, op: ExtOp, size: Size, a: Clif) -> Clif {
        let low = match size {
            Size::U64 => a,
            _ => self.b.ins().ireduce(ty(size), a),
        };
        match (op, size) {
            (ExtOp::Swap, _) => {
                let swapped = self.b.ins().bswap(low);
                self.widen(swapped)
            }
            (ExtOp::Sext, Size::U8 | Size::U16 | Size::U32) => self.b.ins().sextend(I64, low),
            _ => self.widen(low),
        }
    }

    fn atomic(&mut self, inst: &LirInst) -> Clif {
        let LirInst::Atomic {
            op,
            width,
            base,
            off,
            expected,
            src,
            ..
        } = inst
        else {
            panic!("no atomic operation");
        };
        let (at, src) = (self.values[base], self.narrow(*width, self.values[src]));
        let at = self.b.ins().iadd_imm_s(at, i64::from(*off));
        let rmw = match op {
            AtomicOp::Add | AtomicOp::FetchAdd => AtomicRmwOp::Add,
            AtomicOp::Or | AtomicOp::FetchOr => AtomicRmwOp::Or,
            AtomicOp::And | AtomicOp::FetchAnd => AtomicRmwOp::And,
            AtomicOp::Xor | AtomicOp::FetchXor => AtomicRmwOp::Xor,
            AtomicOp::Xchg => AtomicRmwOp::Xchg,
            AtomicOp::CmpXchg => {
                let expected = expected.map(|v| self.values[&v]).expect("verified");
                let expected = self.narrow(*width, expected);
                let old = self.b.ins().atomic_cas(MEMORY, at, expected, src);
                return self.widen(old);
            }
        };
        let old = self
            .b
            .ins()
            .atomic_rmw(ty(width.size()), MEMORY, rmw, at, src);
        self.widen(old)
    }
}

/// An argument: a number, or the address of these bytes.
#[derive(Clone)]
enum Arg {
    Number(u64),
    Memory(Vec<u8>),
}

/// Runs a function as machine code and in the interpreter, and compares results and memory.
fn same(native: &Native, module: &Module, name: &str, args: &[Arg]) {
    let mut machine = Machine::new(module, 10_000_000);
    let mut memory: Vec<Vec<u8>> = Vec::new();
    let (mut native_args, mut args_of_interp) = (Vec::new(), Vec::new());
    for arg in args {
        match arg {
            Arg::Number(n) => {
                native_args.push(*n);
                args_of_interp.push(*n);
            }
            Arg::Memory(bytes) => {
                // The allocator's addresses are multiples of 16; atomic operations need 8.
                let mut bytes = bytes.clone();
                args_of_interp.push(machine.memory.add(bytes.clone(), RegionKind::Memory));
                native_args.push(bytes.as_mut_ptr() as u64);
                memory.push(bytes);
            }
        }
    }
    let expected = machine.run(name, &args_of_interp, &mut NoHost);
    let expected = expected.unwrap_or_else(|e| panic!("{name}: {e}\n{module}"));
    assert_eq!(native.run(name, &native_args), expected, "{name}\n{module}");
    let regions = args_of_interp
        .iter()
        .filter_map(|a| machine.memory.region(*a));
    assert!(memory.iter().eq(regions), "{name}: memory\n{module}");
}

fn slot(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(128, 0);
    bytes
}

#[test]
fn the_library_as_machine_code_equals_the_interpreter() {
    let mut all = library::module().clone();
    // Helpers belong to a host.
    let helpers = |f: &LirFunc| {
        f.blocks
            .iter()
            .flat_map(|b| &b.insts)
            .any(|i| matches!(i, LirInst::Helper { .. }))
    };
    all.funcs.retain(|f| !helpers(f));
    all.funcs.push(library::search::find(120, 104));
    let mut outlined = all.clone();
    outline(&mut outlined, &HostLimits::NONE).unwrap_or_else(|e| panic!("{e}"));
    let long = "abcabcab".repeat(12);
    let texts = [
        "",
        "a",
        "0x7f",
        "-0755",
        "99",
        "bcab",
        &long,
        &format!("{long}x"),
        "cabx",
    ];
    for module in [&all, &outlined] {
        let native = Native::new(module);
        let run = |name, args: &[Arg]| same(&native, module, name, args);
        for a in texts {
            let (text, size) = (Arg::Memory(slot(a)), Arg::Number(120));
            for b in texts {
                let (other, four) = (Arg::Memory(slot(b)), Arg::Number(4));
                run("compare", &[text.clone(), other.clone(), four]);
                let lengths = [a, b].map(|t| Arg::Number(t.len() as u64));
                let [length, part_length] = lengths;
                run(
                    "find_120_104",
                    &[text.clone(), length, other.clone(), part_length],
                );
                for have in [8, 64, 120] {
                    let args = [other.clone(), size.clone(), text.clone(), Arg::Number(have)];
                    run("copy", &args);
                    let args = [other.clone(), Arg::Number(have), text.clone(), size.clone()];
                    run("copy", &args);
                }
            }
            run("length", &[text.clone(), size.clone()]);
            for base in [0, 8, 10, 16, 36] {
                run("strtol", &[text.clone(), size.clone(), Arg::Number(base)]);
            }
        }
        for n in [0, 9, 10, 12_345_678, 1 << 40, u64::MAX] {
            let (buffer, number) = (Arg::Memory(vec![1; 24]), Arg::Number(n));
            run("decimal", &[buffer.clone(), number.clone()]);
            run("hex", &[buffer, number, Arg::Number(u64::from(b'a'))]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_functions_as_machine_code_equal_the_interpreter(
        numbers in vec(any::<u32>(), 0..120),
        region in vec(any::<u8>(), testgen::REGION as usize),
        args in any::<[u64; 2]>(),
    ) {
        let module = testgen::module(&numbers, true);
        let [a, b] = args.map(Arg::Number);
        let native = Native::new(&module);
        same(&native, &module, "random", &[Arg::Memory(region), a, b]);
    }
}
