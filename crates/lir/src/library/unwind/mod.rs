//! User stacks: `user_unwind` calls `user_frame` for one frame after the other.
//!
//! In: the registers of the interrupted program, and the tables that the controller has loaded.
//! Out: addresses with the numbers of their files, in the per-CPU area ([`at`]).
//!
//! `user_map` looks each address up in the process's mappings ([`super::mappings`]), which gives the file and
//! the offset. A map identifies a file by device and inode. It gives the file's
//! number for the controller and, once the controller has loaded them, the range of the file's unwind
//! rows ([`row`]). A new file is announced to the controller at once, with the names of its path, so
//! that programs that end before they are printed have names too.
//!
//! `user_step` finds the row of the address, and with it the caller's registers (`step.rs`). Without a
//! row it follows frame pointers, and counts the guess if the file may have rows. `user_return`
//! restores return addresses that return probes have replaced. `user_copy` sends what only the
//! controller can unwind (`copies.rs`).
//!
//! Each function finds the block itself and has numbers as parameters, so that a host can make them
//! global: the kernel's verifier then follows each one once. The kernel allows eight frames, and a
//! handler's loop in front of an unwind leaves five to it: `user_unwind`, `user_copy`, its loop, `user_map`
//! and `user_file`.

mod copies;
mod frames;
mod layout;
mod mappings;
mod step;
mod unwinder;

use super::mappings::maple_down;
use crate::func::Module;

pub use layout::*;

/// The functions that look addresses up: `user_address` is what the host calls.
pub fn addresses(layout: &UnwindLayout) -> Module {
    Module::from(vec![
        frames::user_address(layout),
        mappings::user_map(layout),
        mappings::user_file(layout),
        maple_down(&layout.mapping()),
    ])
}

/// All functions: `user_unwind` and `user_address` are what the host calls.
pub fn module(layout: &UnwindLayout) -> Module {
    let mut module = addresses(layout);
    module.funcs.extend([
        frames::user_unwind(layout),
        frames::user_frame(layout),
        step::user_step(layout),
        copies::user_copy(layout),
    ]);
    let returns = layout
        .offsets
        .returns
        .map(|r| frames::user_return(layout, r));
    module.funcs.extend(returns);
    module
}
