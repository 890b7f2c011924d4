//! Functions of eBPF as machine code.
//!
//! The registers of eBPF are variables, from which Cranelift makes values of its own, and the stack is a slot of 512 bytes.
//! Facts about instructions come from RFC 9669: a division by zero gives 0, its remainder the dividend, and shifts take
//! the amount modulo the width.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use cranelift_codegen::binemit::Reloc as RelocKind;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, Block, ExtFuncData, ExternalName, FuncRef, Function, GlobalValueData, InstBuilder,
    SigRef, Signature, StackSlotData, StackSlotKind, UserExternalName, UserFuncName, Value,
};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable, Flags};
use cranelift_codegen::{Context, FinalizedRelocTarget};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use spile_cast::Cast;
use spile_ebpf::isa::asm::{AsmFunction, RelocTarget, Section};
use spile_ebpf::isa::insn::{Callee, Insn, Reg};
use spile_lir::library::host;

use crate::code::{HostSymbol, NativeCode, Reference};
use crate::library::{self, Primitive};
use crate::processor;

/// Bytes of an eBPF stack.
const STACK: u32 = 512;
/// Parameters of each function; those that it lacks are not read.
const PARAMETERS: usize = 5;
/// The spaces of names in Cranelift's functions: the functions of the object, and symbols of the host.
const FUNCTIONS: u32 = 0;
const SYMBOLS: u32 = 1;

/// Why a function has no machine code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TranslateError {
    /// An instruction (third) of a function (first), at this slot, that a process has no answer for.
    Instruction(String, usize, String),
    /// A function (first) calls another one that is not there.
    Undefined(String, String),
    /// Cranelift refused a function (first), and says why.
    Refused(String, String),
}

impl fmt::Display for TranslateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TranslateError::Instruction(function, slot, insn) => {
                write!(f, "{function}: slot {slot}, `{insn}`, has no machine code")
            }
            TranslateError::Undefined(function, name) => {
                write!(f, "{function} calls `{name}`, which is not there")
            }
            TranslateError::Refused(function, why) => write!(f, "{function}: {why}"),
        }
    }
}

impl std::error::Error for TranslateError {}

/// The machine for which code is made.
///
/// # Errors
/// Cranelift does not know this processor.
fn machine() -> Result<OwnedTargetIsa, String> {
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("enable_probestack", "false"),
        // The current thread's record.
        ("enable_pinned_reg", "true"),
    ] {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    let triple = cranelift_codegen::isa::lookup_by_name(std::env::consts::ARCH);
    let isa = triple.map_err(|e| e.to_string())?.finish(Flags::new(flags));
    isa.map_err(|e| e.to_string())
}

/// The machine code of an object's functions, and of the library that answers its helpers.
///
/// # Errors
/// See [`TranslateError`].
pub fn translate<'f>(
    functions: impl IntoIterator<Item = &'f AsmFunction>,
) -> Result<NativeCode, TranslateError> {
    let refused = |why| TranslateError::Refused("the library".into(), why);
    let library = library::functions().map_err(|e| refused(e.to_string()))?;
    let functions = functions.into_iter();
    let functions: Vec<&AsmFunction> = functions.map(|f| f as &_).chain(&library).collect();
    let isa = machine().map_err(|why| TranslateError::Refused("the processor".into(), why))?;
    let stub = [host::SYSTEM_CALL];
    let names: Vec<&str> = functions.iter().map(|f| &*f.name).chain(stub).collect();
    let numbers: BTreeMap<&str, u32> = names.iter().copied().zip(0..).collect();
    let mut builder = FunctionBuilderContext::new();
    let mut context = Context::new();
    let mut code = NativeCode::default();
    let mut inner = Vec::new();
    for function in &functions {
        context.clear();
        let mut symbols = Symbols::default();
        FunctionTranslator::new(
            function,
            &numbers,
            &*isa,
            (&mut context.func, &mut builder),
            &mut symbols,
        )
        .run()?;
        let refused = |why: String| TranslateError::Refused(function.name.clone(), why);
        context
            .compile(&*isa, &mut ControlPlane::default())
            .map_err(|e| refused(format!("{:?}", e.inner)))?;
        let compiled = context
            .compiled_code()
            .ok_or_else(|| refused("no code".into()))?;
        let start = code.function_at_end(&function.name, compiled.code_buffer());
        for reloc in compiled.buffer.relocs() {
            let at = start + reloc.offset as usize;
            let FinalizedRelocTarget::ExternalName(ExternalName::User(name)) = reloc.target else {
                return Err(refused(format!("{:?}", reloc.target)));
            };
            if !matches!(reloc.kind, RelocKind::X86PCRel4 | RelocKind::X86CallPCRel4) {
                return Err(refused(format!("{:?}", reloc.kind)));
            }
            let name = &context.func.params.user_named_funcs()[name];
            match name.namespace {
                FUNCTIONS => inner.push((at, reloc.addend, name.index)),
                _ => code.references.push(Reference {
                    at,
                    addend: reloc.addend,
                    to: symbols.0[name.index as usize].clone(),
                }),
            }
        }
    }
    code.function_at_end(host::SYSTEM_CALL, &processor::SYSTEM_CALL);
    for (at, addend, number) in inner {
        let name = names[number as usize];
        let too_far = || TranslateError::Refused(name.into(), "it is too far away".into());
        let distance = i32::try_from(code.functions[name].cast_signed() - at.cast_signed());
        let distance = distance.ok().zip(i32::try_from(addend).ok());
        let distance = distance.and_then(|(n, addend)| n.checked_add(addend));
        let distance = distance.ok_or_else(too_far)?;
        code.bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
    }
    Ok(code)
}

/// The symbols of a function, by their number in its names.
#[derive(Default)]
pub(crate) struct Symbols(Vec<HostSymbol>);

impl Symbols {
    fn number(&mut self, symbol: HostSymbol) -> u32 {
        let known = self.0.iter().position(|s| *s == symbol);
        let number = known.unwrap_or_else(|| {
            self.0.push(symbol);
            self.0.len() - 1
        });
        number.fit::<u32>()
    }
}

/// The translation of one function. What a single instruction does is in `instructions`.
pub(crate) struct FunctionTranslator<'a> {
    function: &'a AsmFunction,
    numbers: &'a BTreeMap<&'a str, u32>,
    symbols: &'a mut Symbols,
    relocs: BTreeMap<usize, &'a RelocTarget>,
    pub(crate) b: FunctionBuilder<'a>,
    isa: &'a dyn TargetIsa,
    registers: [Variable; 10],
    frame: Value,
    convention: SigRef,
    blocks: BTreeMap<usize, Block>,
    /// Functions and helpers that it calls.
    callees: HashMap<UserExternalName, FuncRef>,
}

/// The convention of all functions: words.
fn signature() -> Signature {
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params = vec![AbiParam::new(I64); PARAMETERS];
    signature.returns = vec![AbiParam::new(I64)];
    signature
}

impl<'a> FunctionTranslator<'a> {
    fn new(
        function: &'a AsmFunction,
        numbers: &'a BTreeMap<&'a str, u32>,
        isa: &'a dyn TargetIsa,
        (to, builder): (&'a mut Function, &'a mut FunctionBuilderContext),
        symbols: &'a mut Symbols,
    ) -> FunctionTranslator<'a> {
        to.signature = signature();
        to.name = UserFuncName::user(FUNCTIONS, numbers[&*function.name]);
        let mut b = FunctionBuilder::new(to, builder);
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, STACK, 3);
        let slot = b.create_sized_stack_slot(slot);
        let frame = b.ins().stack_addr(I64, slot, STACK.cast_signed());
        let registers = std::array::from_fn(|_| b.declare_var(I64));
        let zero = b.ins().iconst(I64, 0);
        let params = b.block_params(entry).to_vec();
        for (number, register) in registers.iter().enumerate() {
            // r1 to r5 are the parameters.
            let param = number.checked_sub(1).and_then(|n| params.get(n));
            b.def_var(*register, param.copied().unwrap_or(zero));
        }
        let convention = b.import_signature(signature());
        FunctionTranslator {
            function,
            numbers,
            symbols,
            relocs: function
                .relocs
                .iter()
                .map(|r| (r.slot as usize, &r.target))
                .collect(),
            b,
            isa,
            registers,
            frame,
            convention,
            blocks: BTreeMap::new(),
            callees: HashMap::new(),
        }
    }

    fn run(mut self) -> Result<(), TranslateError> {
        let by_slot = self.function.by_slot().map(|(slot, insn)| (slot, *insn));
        let by_slot: Vec<(usize, Insn)> = by_slot.collect();
        for leader in leaders(&by_slot) {
            let block = self.b.create_block();
            self.blocks.insert(leader, block);
        }
        let mut open = true;
        for (slot, insn) in by_slot {
            if let Some(block) = self.blocks.get(&slot).copied() {
                if open {
                    self.b.ins().jump(block, &[]);
                }
                self.b.switch_to_block(block);
                open = true;
            }
            if open {
                open = self.instruction(slot, insn)?;
            }
        }
        self.b.seal_all_blocks();
        self.b.finalize(self.isa.frontend_config());
        Ok(())
    }

    /// The error for an instruction without an answer.
    pub(crate) fn unknown(&self, slot: usize, insn: Insn) -> TranslateError {
        TranslateError::Instruction(self.function.name.clone(), slot, insn.to_string())
    }

    /// The block at the target of a jump: `distance` slots behind the next instruction.
    pub(crate) fn block(
        &self,
        slot: usize,
        insn: Insn,
        distance: i64,
    ) -> Result<Block, TranslateError> {
        let target = target(slot, insn, distance);
        let block = target.and_then(|target| self.blocks.get(&target));
        block.copied().ok_or_else(|| self.unknown(slot, insn))
    }

    pub(crate) fn get(&mut self, register: Reg) -> Value {
        match self.registers.get(usize::from(register.number())) {
            Some(variable) => self.b.use_var(*variable),
            None => self.frame,
        }
    }

    pub(crate) fn set(&mut self, register: Reg, value: Value) {
        if let Some(variable) = self.registers.get(usize::from(register.number())) {
            self.b.def_var(*variable, value);
        }
    }

    /// The address of a symbol, with an offset.
    pub(crate) fn symbol(&mut self, symbol: HostSymbol, offset: u32) -> Value {
        let name = UserExternalName::new(SYMBOLS, self.symbols.number(symbol));
        let name = self.b.func.declare_imported_user_function(name);
        let value = self.b.func.create_global_value(GlobalValueData::Symbol {
            name: ExternalName::user(name),
            offset: i64::from(offset).into(),
            colocated: true,
            tls: false,
        });
        self.b.ins().symbol_value(I64, value)
    }

    /// The value of a reference in a constant.
    pub(crate) fn reference(
        &mut self,
        slot: usize,
        insn: Insn,
    ) -> Result<Option<Value>, TranslateError> {
        let Some(target) = self.relocs.get(&slot).copied() else {
            return Ok(None);
        };
        Ok(Some(match target {
            RelocTarget::Map(name) => self.symbol(HostSymbol::Map(Arc::clone(name)), 0),
            RelocTarget::Data(Section::Bss, offset) => self.symbol(HostSymbol::State, *offset),
            RelocTarget::Data(Section::Rodata, offset) => {
                self.symbol(HostSymbol::Constants, *offset)
            }
            RelocTarget::Func(name) => {
                let function = self.object_function(name)?;
                self.b.ins().func_addr(I64, function)
            }
            RelocTarget::Call(_) => return Err(self.unknown(slot, insn)),
        }))
    }

    fn object_function(&mut self, name: &str) -> Result<FuncRef, TranslateError> {
        let number = self.numbers.get(name);
        let undefined = || TranslateError::Undefined(self.function.name.clone(), name.to_owned());
        let number = *number.ok_or_else(undefined)?;
        Ok(self.callee(UserExternalName::new(FUNCTIONS, number)))
    }

    fn callee(&mut self, name: UserExternalName) -> FuncRef {
        if let Some(known) = self.callees.get(&name) {
            return *known;
        }
        let declared = self.b.func.declare_imported_user_function(name.clone());
        let function = self.b.func.import_function(ExtFuncData {
            name: ExternalName::user(declared),
            signature: self.convention,
            colocated: true,
            patchable: false,
        });
        self.callees.insert(name, function);
        function
    }

    /// The function that a call at this slot calls.
    pub(crate) fn called(
        &mut self,
        slot: usize,
        insn: Insn,
        callee: Callee,
        target: i32,
    ) -> Result<FuncRef, TranslateError> {
        match (callee, self.relocs.get(&slot).copied()) {
            (Callee::Subprogram, Some(RelocTarget::Call(name))) => self.object_function(name),
            (Callee::Helper, None) => match library::answer(target.cast_unsigned()) {
                Some(name) => self.object_function(name),
                None => Err(self.unknown(slot, insn)),
            },
            (Callee::Kfunc, None) if Primitive::of(target) == Some(Primitive::SystemCall) => {
                self.object_function(host::SYSTEM_CALL)
            }
            _ => Err(self.unknown(slot, insn)),
        }
    }

    /// The convention of functions whose address is in a register.
    pub(crate) fn convention(&self) -> SigRef {
        self.convention
    }
}

/// The slot of a jump's target.
fn target(slot: usize, insn: Insn, distance: i64) -> Option<usize> {
    let next = slot + insn.slots() as usize;
    next.checked_add_signed(isize::try_from(distance).ok()?)
}

/// The slots at which blocks begin: targets of jumps, and what follows a jump.
fn leaders(by_slot: &[(usize, Insn)]) -> BTreeSet<usize> {
    let jumps = by_slot.iter().filter_map(|(slot, insn)| {
        let distance = match *insn {
            Insn::Jump { off, .. } | Insn::Goto { off } | Insn::MayGoto { off } => i64::from(off),
            Insn::GotoLong { off } => off.into(),
            _ => return None,
        };
        Some([target(*slot, *insn, distance), target(*slot, *insn, 0)])
    });
    jumps.flatten().flatten().collect()
}

#[cfg(test)]
mod tests {
    use spile_ebpf::isa::asm::Asm;
    use spile_ebpf::isa::insn::Reg::{R0, R1};

    use super::*;
    use crate::code::Unlinked;

    fn function(name: &'static str, write: impl FnOnce(&mut Asm)) -> AsmFunction {
        let mut asm = Asm::new(name, &["ctx"]);
        write(&mut asm);
        asm.exit();
        asm.finish().expect("assembles")
    }

    #[test]
    fn what_a_process_has_no_answer_for_is_refused() {
        let kernel = function("f", |asm| asm.call_kfunc(7));
        let refused = translate([&kernel]).expect_err("a function of the kernel");
        let said = refused.to_string();
        assert!(said.starts_with("f: slot 0, `call "), "{said}");
    }

    #[test]
    fn calls_of_functions_that_are_not_there_are_refused() {
        let caller = function("f", |asm| asm.call_sub("g"));
        let refused = translate([&caller]).expect_err("no such function");
        assert_eq!(refused.to_string(), "f calls `g`, which is not there");
        let callee = function("g", |asm| asm.mov(R0, 0));
        let code = translate([&caller, &callee]).expect("machine code");
        assert!(code.function("f") < code.function("g"));
    }

    #[test]
    fn symbols_need_an_address_within_reach() {
        let reads = function("f", |asm| {
            asm.ld_data(R1, Section::Bss, 8);
            asm.mov(R0, R1);
        });
        let code = translate([&reads]).expect("machine code");
        let near = code.link(|_| Some(-(1 << 30)));
        assert_eq!(near.map(|bytes| bytes.len()), Ok(code.length()));
        for distance in [None, Some(1 << 32), Some(i64::MIN)] {
            let of_state = |symbol: &HostSymbol| match symbol {
                HostSymbol::State => distance,
                _ => Some(0),
            };
            let refused = code.link(of_state);
            assert_eq!(refused, Err(Unlinked(HostSymbol::State)), "{distance:?}");
        }
    }
}
