//! Instructions in the terms of [`crate::code`].

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::uprobes::verdict;
use crate::code::{self, Control, ProbedInstruction, Reference};
use crate::uprobes::KernelVersion;

/// The longest instruction in bytes.
pub(super) const LONGEST: usize = 15;

/// Decodes code at an address, up to a number of instructions.
pub(super) fn decode(code: &[u8], address: u64, most: usize) -> Vec<code::Instruction> {
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    decoder.into_iter().take(most).map(|i| known(&i)).collect()
}

fn known(i: &Instruction) -> code::Instruction {
    code::Instruction {
        address: i.ip(),
        next: i.next_ip(),
        control: control(i),
        nop: i.mnemonic() == Mnemonic::Nop,
        packed: is_packed(i),
    }
}

fn control(i: &Instruction) -> Control {
    let to = i.near_branch_target();
    match i.flow_control() {
        _ if i.is_invalid() => Control::Invalid,
        FlowControl::Next => Control::Next,
        FlowControl::Call => Control::Call(Some(to)),
        FlowControl::IndirectCall => Control::Call(None),
        FlowControl::ConditionalBranch => Control::Branch(to),
        FlowControl::XbeginXabortXend => Control::Transaction(to),
        FlowControl::UnconditionalBranch => Control::Jump(to),
        FlowControl::IndirectBranch => Control::Computed,
        FlowControl::Return | FlowControl::Exception | FlowControl::Interrupt => Control::Stop,
    }
}

/// What a breakpoint on the instruction at an address does; `None` if there is none.
pub(super) fn examine(
    code: &[u8],
    address: u64,
    kernel: KernelVersion,
) -> Option<ProbedInstruction> {
    let i = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
    (!i.is_invalid()).then(|| ProbedInstruction {
        instruction: known(&i),
        verdict: verdict(&code[..i.len()], kernel),
        leaves_arguments: leaves_arguments(&i),
        name: format!("{:?}", i.mnemonic()).to_lowercase(),
    })
}

/// What code at an address refers to, in a number of instructions.
pub(super) fn references(code: &[u8], address: u64, most: usize) -> Vec<Reference> {
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let direct = |i: &Instruction| {
        let control = i.flow_control();
        let goes = matches!(
            control,
            FlowControl::Call | FlowControl::UnconditionalBranch
        );
        goes.then(|| Reference::Code(i.near_branch_target()))
    };
    let instructions = decoder.into_iter().take(most);
    instructions
        .flat_map(|i| taken(&i).into_iter().chain(direct(&i)))
        .collect()
}

/// The address that an instruction takes: of code beside it, as a constant, or from a word that the
/// loader fills.
fn taken(i: &Instruction) -> Option<Reference> {
    use Mnemonic as M;
    let load = matches!(i.mnemonic(), M::Mov | M::Cmove | M::Cmovne)
        || matches!(i.mnemonic(), M::Cmovs | M::Cmovns | M::Cmovb | M::Cmovae);
    let beside = || i.ip_rel_memory_address();
    match i.op1_kind() {
        OpKind::Memory if !i.is_ip_rel_memory_operand() => None,
        OpKind::Memory if i.mnemonic() == M::Lea => Some(Reference::Address(beside())),
        OpKind::Memory if load => Some(Reference::Word(beside())),
        OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64 if load => {
            Some(Reference::Address(i.immediate(1)))
        }
        _ => None,
    }
}

/// Whether an instruction changes only vector and mask registers, which handlers cannot read.
fn leaves_arguments(i: &Instruction) -> bool {
    let vector = |r: Register| r.is_vector_register() || r.is_k();
    match i.mnemonic() {
        Mnemonic::Nop | Mnemonic::Vzeroupper | Mnemonic::Vzeroall => true,
        // Their results are in general registers, which they do not name.
        Mnemonic::Vpcmpestri | Mnemonic::Vpcmpistri => false,
        _ => {
            i.flow_control() == FlowControl::Next
                && i.op0_kind() == OpKind::Register
                && vector(i.op0_register())
        }
    }
}

/// Whether an instruction calculates with all elements of vector registers.
fn is_packed(i: &Instruction) -> bool {
    let vectors = (0..i.op_count()).filter(|n| i.op_kind(*n) == OpKind::Register);
    let mut vectors = vectors
        .map(|n| i.op_register(n))
        .filter(|r: &Register| r.is_vector_register());
    if vectors.next().is_none() {
        return false;
    }
    let name = format!("{:?}", i.mnemonic());
    let name = name.strip_prefix('V').unwrap_or(&name);
    if SINGLE.iter().any(|p| name.starts_with(p)) {
        return false;
    }
    name.starts_with('P') || name.ends_with("ps") || name.ends_with("pd")
}

/// The starts of names of vector instructions that compilers use for single values, too.
const SINGLE: [&str; 9] = [
    "Mov", "Cvt", "Unpck", "Xor", "And", "Or", "Pxor", "Pinsr", "Pextr",
];
