//! The instructions of x86-64.
//!
//! In: bytes of code, and files. Out: what [`crate::code`] has for all processors.
//!
//! | module | contents |
//! |---|---|
//! | `decode` | single instructions, and what they refer to |
//! | `exits` | return instructions and jumps to other functions |
//! | `frame_stores` | what instructions store in frames |
//! | `go_entry` | stack checks of functions of Go |
//! | `hazards` | instructions that switch stacks |
//! | `operand` | operands in assembler text |
//! | `stubs` | stubs of the procedure linkage table |
//! | `uprobes` | what the kernel's user probes do with each instruction |

mod decode;
mod exits;
mod frame_stores;
mod go_entry;
mod hazards;
pub(crate) mod operand;
mod stubs;
mod uprobes;

use crate::code::Instructions;

/// The functions for these instructions.
pub(crate) static INSTRUCTIONS: Instructions = Instructions {
    decode: decode::decode,
    examine: decode::examine,
    longest: decode::LONGEST as u64,
    verdict: uprobes::verdict,
    // `jmp` with a distance of four bytes or of one.
    jumps: &[5, 2],
    exits: exits::find,
    behind_stack_check: go_entry::behind_stack_check,
    references: decode::references,
    frame_stores: frame_stores::find,
    hazard: hazards::first,
    stubs: &stubs::SECTIONS,
    stub_slot: stubs::jump_slot,
};
