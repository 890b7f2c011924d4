//! The stack check at the entry of functions of Go.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};

use super::decode::LONGEST;
use crate::image::Image;
use crate::module::DebugFile;

/// Maximum number of instructions of a check (of a large frame: `mov`, `sub`, `jb`, `cmp`, `jbe`), with
/// the load of the goroutine before Go 1.17.
const MAX_CHECK: usize = 7;
/// Maximum number of instructions that save and restore arguments around the call: two for each of nine
/// integer and fifteen floating-point registers.
const MAX_CALL: usize = 64;
/// The start of the names of the functions that make space.
const MORE_STACK: &str = "runtime.morestack";

/// See [`crate::go_entry::behind_stack_check`].
pub(super) fn behind_stack_check(module: &DebugFile, entry: u64) -> u64 {
    let mut after_check = entry;
    for i in instructions(module.image(), entry, MAX_CHECK) {
        match i.flow_control() {
            FlowControl::ConditionalBranch => {
                if !makes_space(module, i.near_branch_target(), entry) {
                    break;
                }
                after_check = i.next_ip();
            }
            FlowControl::Next if checks(&i) => {}
            _ => break,
        }
    }
    after_check
}

/// Whether an instruction can be part of the check: it compares, or calculates in a register that
/// arguments are not in.
fn checks(i: &Instruction) -> bool {
    match i.mnemonic() {
        Mnemonic::Cmp => true,
        Mnemonic::Lea | Mnemonic::Mov | Mnemonic::Sub => {
            matches!(
                i.op0_register(),
                Register::R12 | Register::R13 | Register::RCX
            )
        }
        _ => false,
    }
}

/// Whether the code at an address calls for more stack and goes back to the entry.
fn makes_space(module: &DebugFile, address: u64, entry: u64) -> bool {
    let mut called = false;
    for i in instructions(module.image(), address, MAX_CALL) {
        match i.flow_control() {
            FlowControl::Call => {
                let mut named = module.symbols().starting_at(i.near_branch_target());
                if !named.any(|s| s.name.starts_with(MORE_STACK)) {
                    return false;
                }
                called = true;
            }
            FlowControl::UnconditionalBranch => return called && i.near_branch_target() == entry,
            FlowControl::Next => {}
            _ => return false,
        }
    }
    false
}

/// The instructions from an address on.
fn instructions(image: &Image, address: u64, count: usize) -> impl Iterator<Item = Instruction> {
    let bytes = (1..=count * LONGEST).rev().step_by(LONGEST);
    let bytes = bytes.filter_map(|n| image.bytes_at(address, n)).next();
    let decoder = Decoder::with_ip(64, bytes.unwrap_or_default(), address, DecoderOptions::NONE);
    let valid = |i: &Instruction| i.code() != Code::INVALID;
    decoder
        .into_iter()
        .take_while(valid)
        .take(count)
        .collect::<Vec<_>>()
        .into_iter()
}
