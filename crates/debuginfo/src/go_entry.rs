//! The entry of functions of Go. A function begins with a check of its stack. If there is too little
//! space, it calls `runtime.morestack`, which moves the stack, and begins again: its first instruction
//! is executed twice for one call.

use crate::module::DebugFile;

/// The address behind the stack check of the function of Go at a linked address, where a call arrives
/// once; the address itself if there is none. Arguments are where they were.
#[must_use]
pub fn behind_stack_check(module: &DebugFile, entry: u64) -> u64 {
    let known = module.image().instructions();
    known.map_or(entry, |known| (known.behind_stack_check)(module, entry))
}
