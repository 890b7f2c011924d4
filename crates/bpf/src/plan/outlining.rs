//! Decides, once for an object, which operations are functions that its handlers share, and which are
//! code in each handler.
//!
//! A *global* subprogram is checked by the verifier once, for all argument values; a *static* one at each
//! call, but its code is loaded once. A call of either costs a hit 2 to 3 ns. Code in place costs
//! no call, but the verifier follows it on each path that leads to it. So operations are shared where the
//! object is large, and those on one array where the object has several of them.
//!
//! The code generator writes an operation once, as code that runs in the handler or in a function.

use spile_ir::{GlobalId, Inst, Program};

/// With more handlers than this, entry and exit are shared, in which are helper calls that the kernel
/// rewrites (`crates/bpf/src/lower/handler/outline.rs`).
const SHARED_ENTRY: usize = 32;
/// The number of locations that add to an array from which on they share the code.
const SHARED_ADDING: u32 = 4;
/// A larger number of handlers makes an object large.
const MANY_HANDLERS: usize = 4;
/// A larger number of the IR's instructions in kernel handlers makes an object large.
const MUCH_CODE: usize = 300;

/// The decisions for an object.
#[derive(Debug, Clone)]
pub(crate) struct Outlining {
    /// The user's choice for all operations.
    chosen: Option<bool>,
    handlers: usize,
    large: bool,
    /// For each global, the number of locations that add to it.
    locations: Vec<u32>,
}

impl Outlining {
    /// Decides for a program. `chosen` replaces the decision.
    pub(crate) fn new(program: &Program, chosen: Option<bool>) -> Outlining {
        let handlers = program.kernel_handlers().count();
        let mut locations = vec![0; program.globals.len()];
        let mut insts = 0;
        for inst in program.kernel_insts() {
            insts += 1;
            if let Inst::StatAdd { g, .. } | Inst::AAdd { g, .. } = inst
                && let Some(n) = locations.get_mut(g.index())
            {
                *n += 1;
            }
        }
        Outlining {
            chosen,
            handlers,
            large: chosen.unwrap_or(handlers > MANY_HANDLERS || insts > MUCH_CODE),
            locations,
        }
    }

    /// Whether the object is large: handlers share output records, texts, errors, divisions, the task's
    /// name, and the accesses to arrays, and paths are merged where that costs a hit something.
    pub(crate) fn is_large(&self) -> bool {
        self.large
    }

    /// Whether handlers share entry and exit.
    pub(crate) fn shares_entry(&self) -> bool {
        self.chosen.unwrap_or(self.handlers > SHARED_ENTRY)
    }

    /// Whether handlers share adding to this per-CPU array, with its cache.
    pub(crate) fn shares_adding(&self, array: GlobalId) -> bool {
        let least = if self.chosen == Some(true) {
            1
        } else {
            SHARED_ADDING
        };
        let locations = self.locations.get(array.index());
        self.large && locations.is_some_and(|n| *n >= least)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use spile_ir::reader;

    use super::*;

    /// A program with this number of handlers, each of which adds to an array once.
    fn program(handlers: usize) -> Program {
        let mut text = String::from(
            "site @0 \"\"\nglobal g0 \"a\" [long] stats(sum) max 100 percpu double @0\n",
        );
        for n in 0..handlers {
            // Writing to a String does not fail.
            let _ = write!(
                text,
                "handler \"x{n}\" points 1 tracepoint(\"x\") @0 {{\n  regs r0: long\n  b0:\n    \
                 r0 = intr ctx_arg(0)\n    stat_add g0[r0], 1\n    ret\n}}\n"
            );
        }
        reader::read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    #[test]
    fn large_objects_share_more_and_the_user_decides_for_all() {
        let shared = |handlers, chosen| {
            let o = Outlining::new(&program(handlers), chosen);
            [o.is_large(), o.shares_adding(GlobalId(0)), o.shares_entry()]
        };
        assert_eq!(shared(3, None), [false; 3]);
        assert_eq!(shared(5, None), [true, true, false]);
        assert_eq!(shared(33, None), [true; 3]);
        assert_eq!(shared(1, Some(true)), [true; 3]);
        assert_eq!(shared(40, Some(false)), [false; 3]);
    }
}
