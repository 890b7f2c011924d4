//! The optimiser: passes over the IR that keep what a program does.
//!
//! In: a program that [`crate::verify`] accepts. Out: one that does the same and that it accepts,
//! too; between passes this is checked in debug builds. Storage is not decided here
//! ([`crate::storage`]), and nothing depends on a kernel.
//!
//! | pass | what |
//! |---|---|
//! | [`inline`](mod@inline) | calls become the function's code |
//! | [`constants`] | globals that nothing writes; handlers that they turn off |
//! | [`operands`] | operands that have to be constants become them |
//! | [`flatten`] | remaining calls of a kernel handler become jumps |
//! | [`drop_captures`] | matches whose position nobody reads become plain tests |
//! | [`copy_cse`] | constant and copy propagation, common subexpressions |
//! | [`simplify_cfg`] | decided branches, unreachable blocks, chains of blocks, idle `catch`es |
//! | [`fuse_rmw`] | load, add, store of one global becomes one addition |
//! | [`dce`] | instructions whose result nobody reads |
//! | [`narrow`] | strings get the width of what is written to them |
//!
//! [`trim_stats`] stands by itself: its effect is invisible to the program, but not to code outside
//! that reads its globals.
//!
//! An instruction that can fail or has an effect is never removed, moved over another such
//! instruction, or run twice. Afterwards only the count of cut strings can differ, where the cut
//! string was never used.

pub mod constants;
pub mod copy_cse;
pub mod dce;
pub mod drop_captures;
pub mod flatten;
pub mod fuse_rmw;
pub mod inline;
pub mod narrow;
pub mod operands;
pub mod simplify_cfg;
pub mod trim_stats;

pub use inline::{inline, recursive};

use crate::{Body, Program, verify};

/// Rounds of the passes on one body; each round can only open a few chances for the next.
const ROUNDS: usize = 4;

/// Inlines and flattens calls, sets operands that have to be constants, and with `on` runs all other passes.
///
/// Debug builds verify the program after each pass if it was right before.
pub fn optimise(program: &mut Program, on: bool) {
    let valid = cfg!(debug_assertions) && verify::verify(program).is_ok();
    inline(program);
    check(program, valid, "inline");
    operands::run(program);
    check(program, valid, "operands");
    let mut read = Vec::new();
    if on {
        read = constants::run(program);
        check(program, valid, "constants");
        drop_captures::run(program);
        check(program, valid, "keep");
        let all = program.handlers.len() + program.funcs.len();
        rounds(program, (0..all).collect(), valid);
    }
    let flat = flatten::run(program);
    check(program, valid, "flatten");
    if !on {
        return;
    }
    rounds(program, flat, valid);
    constants::drop_disabled_handlers(program, &read);
    for i in 0..program.handlers.len() {
        let mut body = std::mem::take(&mut program.handlers[i].body);
        narrow::run(program, &mut body);
        program.handlers[i].body = body;
    }
    check(program, valid, "narrow");
}

/// The passes on the bodies with these numbers ([`body`]), each until nothing changes in it: what they do to one
/// depends on no other.
fn rounds(program: &mut Program, mut open: Vec<usize>, valid: bool) {
    for round in 0..ROUNDS {
        let before: Vec<Body> = open.iter().map(|i| body(program, *i).clone()).collect();
        // The first round has replaced reads of what registers hold at the start.
        each_body(program, &open, |p, b, handler| {
            copy_cse::run(p, b, handler && round == 0);
        });
        check(program, valid, "local");
        each_body(program, &open, |p, b, _| simplify_cfg::run(p, b));
        check(program, valid, "cfg");
        each_body(program, &open, |p, b, _| fuse_rmw::run(p, b));
        check(program, valid, "fuse");
        each_body(program, &open, |p, b, _| dce::run(p, b));
        check(program, valid, "dead");
        let mut before = before.into_iter();
        open.retain(|i| before.next().as_ref() != Some(body(program, *i)));
        if open.is_empty() {
            break;
        }
    }
}

/// A handler's body; indexes after those of handlers are functions'.
fn body(program: &mut Program, i: usize) -> &mut Body {
    match i.checked_sub(program.handlers.len()) {
        None => &mut program.handlers[i].body,
        Some(func) => &mut program.funcs[func].body,
    }
}

/// Runs a pass on these bodies, each of which is taken out of the program meanwhile. The pass gets
/// whether the body is a handler's.
fn each_body(
    program: &mut Program,
    indexes: &[usize],
    mut pass: impl FnMut(&mut Program, &mut Body, bool),
) {
    for &i in indexes {
        let mut taken = std::mem::take(body(program, i));
        let handler = i < program.handlers.len();
        pass(program, &mut taken, handler);
        *body(program, i) = taken;
    }
}

fn check(program: &Program, valid: bool, pass: &str) {
    if cfg!(debug_assertions)
        && valid
        && let Err(errors) = verify::verify(program)
    {
        debug_assert!(
            false,
            "pass {pass} broke the program: {}\n{program}",
            errors[0]
        );
    }
}

#[cfg(test)]
mod tests;
