//! The heap of nodes in front of an iterator's entries: subprograms that build it and that remove
//! its first node. Both sift nodes down one after the other. One `bpf_loop` iteration moves one
//! node down by one level, so the verifier follows it once.
//!
//! All subprograms take the address of the scratch words, which hold their state.

use crate::isa::asm::{Asm, AsmError, Function, Label};
use crate::isa::helpers::Helper;
use crate::isa::insn::Reg::*;
use crate::isa::insn::{AluOp, Cond, Reg, Size, Swap};
use crate::plan::iterators::node;

/// Offsets of scratch words.
pub(in crate::lower) mod work {
    /// Index of the gap that the sinking node would fill.
    pub(crate) const HOLE: i16 = 0;
    /// Nodes below this index still have to be sifted down.
    pub(crate) const NEXT: i16 = 8;
    /// The sinking node: three words, in the order of [`crate::plan::iterators::node`].
    pub(crate) const NODE: i16 = 16;
    /// Index of the room's first entry.
    pub(crate) const BASE: i16 = 40;
    /// Number of nodes in the heap.
    pub(crate) const SIZE: i16 = 48;
    /// Index of the entry to look up.
    pub(crate) const ENTRY: i16 = 56;
}

/// The kernel's limit on `bpf_loop` iterations.
const ROUNDS: i32 = 1 << 23;
/// More levels than any heap has.
const LEVELS: i32 = 64;
/// Stack slots of a step: the index of an entry, and two nodes.
const KEY: i16 = -8;
const NODES: [i16; 2] = [-16, -24];
const NODE_WORDS: [i16; 3] = [node::WORD, node::SEQ, node::ENTRY];

/// The order of an iterator's nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lower) struct Heap {
    pub map: String,
    /// Offset and length of the string in the entries that is the sort key.
    pub text: Option<(u32, u32)>,
    /// Descending order of strings; numbers encode the order in their sort words.
    pub descending: bool,
}

impl Heap {
    /// Name of the subprogram `what` for this order.
    pub(crate) fn name(&self, what: &str) -> String {
        match self.text {
            None => format!("{what}_{}", self.map),
            Some((at, _)) => {
                let down = if self.descending { "down" } else { "up" };
                format!("{what}_{}_{at}_{down}", self.map)
            }
        }
    }

    /// `r0` = address of the room's entry with the index in `number`; goes to `none` if there is
    /// none. `words` is the address of the scratch words. Clobbers r1 to r5.
    fn entry(&self, asm: &mut Asm, words: Reg, number: Reg, none: Label) {
        asm.load(Size::DW, R1, words, work::BASE);
        asm.add(R1, number);
        asm.store(Size::W, R10, KEY, R1);
        asm.ld_map(R1, &*self.map);
        asm.mov(R2, R10);
        asm.add(R2, i32::from(KEY));
        asm.call(Helper::MapLookupElem);
        asm.jump_if(Cond::Eq, R0, 0, none);
    }

    /// `make(words)`: builds a heap of `SIZE` nodes.
    pub(crate) fn build_sub(&self) -> Result<Function, AsmError> {
        let mut asm = Asm::new(self.name("make"), &["words"]);
        let end = asm.label();
        asm.mov(R6, R1);
        asm.load(Size::DW, R7, R6, work::SIZE);
        asm.alu(AluOp::Rsh, R7, 1);
        asm.jump_if(Cond::Eq, R7, 0, end);
        asm.add(R7, -1);
        asm.store(Size::DW, R6, work::HOLE, R7);
        asm.store(Size::DW, R6, work::NEXT, R7);
        self.entry(&mut asm, R6, R7, end);
        load_node(&mut asm, R6);
        self.sift_down(&mut asm, ROUNDS);
        asm.bind(end);
        asm.mov(R0, 0);
        asm.exit();
        asm.finish()
    }

    /// `take(words)`: removes the first of `SIZE + 1` nodes and returns its entry's index.
    pub(crate) fn pop_sub(&self) -> Result<Function, AsmError> {
        let mut asm = Asm::new(self.name("take"), &["words"]);
        let (end, none) = (asm.label(), asm.label());
        asm.mov(R6, R1);
        asm.mov(R7, 0);
        self.entry(&mut asm, R6, R7, none);
        asm.load(Size::DW, R8, R0, node::ENTRY);
        asm.load(Size::DW, R7, R6, work::SIZE);
        asm.jump_if(Cond::Eq, R7, 0, end);
        self.entry(&mut asm, R6, R7, none);
        load_node(&mut asm, R6);
        asm.store(Size::DW, R6, work::HOLE, 0);
        asm.store(Size::DW, R6, work::NEXT, 0);
        self.sift_down(&mut asm, LEVELS);
        asm.bind(end);
        asm.mov(R0, R8);
        asm.exit();
        asm.bind(none);
        asm.mov(R0, 0);
        asm.exit();
        asm.finish()
    }

    /// Runs steps until all nodes are in place.
    fn sift_down(&self, asm: &mut Asm, rounds: i32) {
        asm.store(Size::DW, R10, -16, R6);
        asm.mov(R1, rounds);
        asm.loop_call(self.name("step"), -16);
    }

    /// One level: the smaller child moves up into the gap, or the node fills the gap and the next
    /// node is taken.
    pub(crate) fn sift_step(&self) -> Result<Function, AsmError> {
        let mut asm = Asm::new(self.name("step"), &["index", "slot"]);
        let [place, one, second, up, stop] = std::array::from_fn(|_| asm.label());
        asm.load(Size::DW, R6, R2, 0);
        asm.load(Size::DW, R7, R6, work::HOLE);
        asm.alu(AluOp::Lsh, R7, 1);
        asm.add(R7, 1);
        asm.load(Size::DW, R1, R6, work::SIZE);
        asm.jump_if(Cond::Ge, R7, R1, place);
        self.entry(&mut asm, R6, R7, stop);
        asm.mov(R8, R0);
        asm.mov(R9, R7);
        asm.add(R9, 1);
        asm.load(Size::DW, R1, R6, work::SIZE);
        asm.jump_if(Cond::Ge, R9, R1, one);
        self.entry(&mut asm, R6, R9, stop);
        asm.store(Size::DW, R10, NODES[0], R0);
        let larger = Order {
            before: second,
            behind: one,
            stop,
        };
        self.compare(&mut asm, (R0, 0), (R8, 0), &larger);
        asm.bind(second);
        asm.load(Size::DW, R8, R10, NODES[0]);
        asm.add(R7, 1);
        asm.bind(one);
        let moves = Order {
            before: up,
            behind: place,
            stop,
        };
        self.compare(&mut asm, (R8, 0), (R6, work::NODE), &moves);
        asm.bind(up);
        asm.load(Size::DW, R9, R6, work::HOLE);
        self.entry(&mut asm, R6, R9, stop);
        for word in NODE_WORDS {
            asm.load(Size::DW, R1, R8, word);
            asm.store(Size::DW, R0, word, R1);
        }
        asm.store(Size::DW, R6, work::HOLE, R7);
        asm.mov(R0, 0);
        asm.exit();
        asm.bind(place);
        asm.load(Size::DW, R7, R6, work::HOLE);
        self.entry(&mut asm, R6, R7, stop);
        for word in NODE_WORDS {
            asm.load(Size::DW, R1, R6, work::NODE + word);
            asm.store(Size::DW, R0, word, R1);
        }
        asm.load(Size::DW, R7, R6, work::NEXT);
        asm.jump_if(Cond::Eq, R7, 0, stop);
        asm.add(R7, -1);
        asm.store(Size::DW, R6, work::NEXT, R7);
        asm.store(Size::DW, R6, work::HOLE, R7);
        self.entry(&mut asm, R6, R7, stop);
        load_node(&mut asm, R6);
        asm.mov(R0, 0);
        asm.exit();
        asm.bind(stop);
        asm.mov(R0, 1);
        asm.exit();
        asm.finish()
    }

    /// Compares the node at `a` with the one at `b`.
    /// Clobbers r0 to r5 and r9.
    fn compare(&self, asm: &mut Asm, (a, a_off): (Reg, i16), (b, b_off): (Reg, i16), ends: &Order) {
        let Order {
            before,
            behind,
            stop,
        } = *ends;
        asm.load(Size::DW, R1, a, a_off + node::WORD);
        asm.load(Size::DW, R2, b, b_off + node::WORD);
        asm.jump_if(Cond::Lt, R1, R2, before);
        asm.jump_if(Cond::Gt, R1, R2, behind);
        asm.load(Size::DW, R1, a, a_off + node::SEQ);
        asm.load(Size::DW, R2, b, b_off + node::SEQ);
        let Some((at, bytes)) = self.text else {
            asm.jump_if(Cond::Lt, R1, R2, before);
            asm.jump(behind);
            return;
        };
        // Compares the strings, then the age: r9 is 1 if the first one is older.
        let older = asm.label();
        asm.load(Size::DW, R4, b, b_off + node::ENTRY);
        asm.load(Size::DW, R3, a, a_off + node::ENTRY);
        asm.mov(R9, 1);
        asm.jump_if(Cond::Lt, R1, R2, older);
        asm.mov(R9, 0);
        asm.bind(older);
        // Through memory, which makes it an unknown number for the verifier.
        asm.store(Size::DW, R6, work::ENTRY, R9);
        asm.store(Size::DW, R10, NODES[1] - 8, R4);
        self.entry(asm, R6, R3, stop);
        asm.store(Size::DW, R10, NODES[1], R0);
        asm.load(Size::DW, R3, R10, NODES[1] - 8);
        self.entry(asm, R6, R3, stop);
        asm.mov(R2, R0);
        asm.load(Size::DW, R1, R10, NODES[1]);
        asm.add(R1, at as i32);
        asm.add(R2, at as i32);
        asm.call_sub(order_name(bytes));
        let (first, last) = if self.descending { (2, 0) } else { (0, 2) };
        asm.jump_if(Cond::Eq, R0, first, before);
        asm.jump_if(Cond::Eq, R0, last, behind);
        asm.load(Size::DW, R9, R6, work::ENTRY);
        asm.jump_if(Cond::Ne, R9, 0, before);
        asm.jump(behind);
    }
}

/// Where a comparison of two nodes goes.
struct Order {
    /// The first node sorts before the second one.
    before: Label,
    /// It does not.
    behind: Label,
    /// A node does not exist.
    stop: Label,
}

/// Loads node r0 into the scratch words.
fn load_node(asm: &mut Asm, words: Reg) {
    for word in NODE_WORDS {
        asm.load(Size::DW, R1, R0, word);
        asm.store(Size::DW, words, work::NODE + word, R1);
    }
}

/// Name of the subprogram [`order`].
pub(in crate::lower) fn order_name(bytes: u32) -> String {
    format!("order_{bytes}")
}

/// `order(a, b)`: returns 0 if the first string sorts first, 2 if the second does, 1 if they are
/// equal.
pub(in crate::lower) fn string_order(bytes: u32) -> Result<Function, String> {
    let mut asm = Asm::new(order_name(bytes), &["a", "b"]);
    let [again, differ, equal, less] = std::array::from_fn(|_| asm.label());
    asm.mov(R5, 0);
    asm.bind(again);
    asm.load(Size::DW, R3, R1, 0);
    asm.load(Size::DW, R4, R2, 0);
    asm.jump_if(Cond::Ne, R3, R4, differ);
    // Both strings end here: zeros follow an end.
    asm.jump_if(Cond::Eq, R3, 0, equal);
    asm.add(R1, 8);
    asm.add(R2, 8);
    asm.add(R5, 8);
    asm.jump_if(Cond::Lt, R5, bytes as i32, again);
    asm.bind(equal);
    asm.mov(R0, 1);
    asm.exit();
    asm.bind(differ);
    asm.swap(Swap::Be, Size::DW, R3);
    asm.swap(Swap::Be, Size::DW, R4);
    asm.mov(R0, 0);
    asm.jump_if(Cond::Lt, R3, R4, less);
    asm.mov(R0, 2);
    asm.bind(less);
    asm.exit();
    asm.finish().map_err(|e| e.to_string())
}
