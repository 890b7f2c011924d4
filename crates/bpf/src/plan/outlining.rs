//! Decides, once for an object, which operations are functions that its handlers share, and which are
//! code in each handler.
//!
//! A *global* subprogram is checked by the verifier once, for all argument values; a *static* one at each
//! call, but its code is loaded once. A call of either costs a hit 2 to 3 ns. Code in place costs
//! no call, but the verifier follows it on each path that leads to it. So operations are shared where the
//! object is large, and those on one array where the object has several of them.
//!
//! The code generator writes an operation once, as code that runs in the handler or in a function, and
//! asks by [`Op`].

use spile_ir::{GlobalId, Inst, Program};

/// An operation that can be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// The head of an output record.
    Record,
    /// A string in an output record.
    Field,
    /// Sending the output.
    Flush,
    /// Beginning a text, and copying it to its slot.
    Text,
    /// Appending a string to a text.
    Append,
    /// The record of an error.
    Error,
    /// A division of numbers with signs.
    Divide,
    /// The current task's name.
    TaskName,
    /// Look-up of a key in a map.
    LookUp,
    /// Creating a thread record.
    ThreadRecord,
    /// Reading an array in a map, or asking for a key.
    Read,
    /// Writing to an array in a map.
    Write,
    /// An element of a per-CPU array, in its map.
    Element,
    /// Adding to a per-CPU array, with its cache.
    Add,
    /// Adding to a per-CPU array after a miss of its cache.
    Miss,
    /// Entry and exit of a handler, in which are helper calls that the kernel rewrites
    /// (`crates/bpf/src/lower/handler/outline.rs`).
    Entry,
}

/// When an operation is shared.
#[derive(Debug, Clone, Copy)]
enum When {
    /// In a large object.
    Large,
    /// In an object with more handlers than this.
    Handlers(usize),
    /// In a large object with this number of locations where handlers do this to the array.
    Locations(u32),
}

/// When each operation is shared.
const TABLE: [(Op, When); 16] = [
    (Op::Record, When::Large),
    (Op::Field, When::Large),
    (Op::Flush, When::Large),
    (Op::Text, When::Large),
    (Op::Append, When::Large),
    (Op::Error, When::Large),
    (Op::Divide, When::Large),
    (Op::TaskName, When::Large),
    (Op::LookUp, When::Large),
    (Op::ThreadRecord, When::Large),
    (Op::Read, When::Large),
    (Op::Write, When::Large),
    (Op::Element, When::Large),
    (Op::Add, When::Locations(4)),
    (Op::Miss, When::Large),
    (Op::Entry, When::Handlers(32)),
];

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

    /// Whether the object is so large that paths are merged where that costs a hit something.
    pub(crate) fn is_large(&self) -> bool {
        self.large
    }

    /// Whether handlers share an operation, on this array if it is one on an array.
    pub(crate) fn shares(&self, op: Op, array: Option<GlobalId>) -> bool {
        let Some((_, when)) = TABLE.iter().find(|(of, _)| *of == op) else {
            return false;
        };
        match *when {
            When::Large => self.large,
            When::Handlers(more) => self.chosen.unwrap_or(self.handlers > more),
            When::Locations(least) => {
                let least = if self.chosen == Some(true) { 1 } else { least };
                let locations = array.and_then(|g| self.locations.get(g.index()));
                self.large && locations.is_some_and(|n| *n >= least)
            }
        }
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
            let outlining = Outlining::new(&program(handlers), chosen);
            let array = Some(GlobalId(0));
            TABLE.map(|(op, _)| (op, outlining.shares(op, array)))
        };
        let of = |handlers, chosen, op| shared(handlers, chosen).contains(&(op, true));
        assert!(shared(3, None).iter().all(|(_, shared)| !shared));
        assert!(of(5, None, Op::Text) && of(5, None, Op::Add) && !of(5, None, Op::Entry));
        assert!(of(33, None, Op::Entry));
        assert!(shared(1, Some(true)).iter().all(|(_, shared)| *shared));
        assert!(shared(40, Some(false)).iter().all(|(_, shared)| !shared));
    }
}
