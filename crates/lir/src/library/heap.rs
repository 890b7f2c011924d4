//! The heap of nodes in front of an iteration's entries: functions that build it and that take its first node.
//! Both sift nodes down one after the other. One iteration, `step`, moves one node down by one level, so the
//! kernel's verifier follows it once. The loops share it: they have no other code.
//!
//! In: entries in a map, by index, each with a [`node`] in front, and [`words`] in memory. Out: the
//! functions. What changes between iterations is in these words, which costs less than the words of a
//! loop's context: a step reads each one where it needs it.

use spile_cast::Cast;

use super::NO_BOUND;
use super::strings::MAX_SLOT;
use crate::builder::{BlockExit, Builder, IntoOperand, Scalar, build};
use crate::func::{LirFunc, MemoryOperand, Module};
use crate::helpers::Helper;
use crate::op::Size;

/// Offsets in an entry. The nodes form a heap; the first node refers to the next entry.
pub mod node {
    /// Sort word: a number that orders as the sort key does, as far as 64 bits can.
    pub const WORD: i16 = 0;
    /// Sequence number of insertion. Of equal elements the older one comes first.
    pub const SEQ: i16 = 8;
    /// Index of the entry, counted from the first one of the iteration.
    pub const ENTRY: i16 = 16;
    /// Bytes of a node. If the sort key is a text, it is right behind.
    pub const SIZE: u32 = 24;
}

/// Offsets of the words of a call.
pub mod words {
    /// Index of the gap that the sinking node would fill.
    pub const HOLE: i16 = 0;
    /// Nodes below this index still have to be sifted down.
    pub const NEXT: i16 = 8;
    /// The sinking node: three words, in the order of [`super::node`].
    pub const NODE: i16 = 16;
    /// Index of the iteration's first entry in the map, set by the caller.
    pub const BASE: i16 = 40;
    /// Number of nodes, set by the caller.
    pub const SIZE: i16 = 48;
    /// The key of a look-up.
    pub const KEY: i16 = 56;
}

/// More levels than any heap has.
const LEVELS: u32 = 64;
/// The function that orders texts.
pub(super) const ORDER: &str = "order";

/// The order of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapOrder {
    /// The smallest one first.
    Up,
    /// The largest one first.
    Down,
}

/// The heaps that functions are made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapLayout {
    /// The map of the entries. Each map has functions of its own, because the kernel inlines a look-up only
    /// if it is always in the same map: with one function for two maps an iteration takes 2.2 times as long.
    pub map: String,
    /// Whether the sort key is a text.
    pub texts: Option<HeapOrder>,
}

impl HeapLayout {
    /// The name of the function `make`, `take` or `step`.
    pub fn name(&self, function: &str) -> String {
        let order = match self.texts {
            None => "",
            Some(HeapOrder::Up) => "_up",
            Some(HeapOrder::Down) => "_down",
        };
        format!("{function}_{}{order}", self.map)
    }

    /// A function with the words as its first parameter.
    fn function(
        &self,
        what: &str,
        [does, cost]: [&str; 2],
        code: impl Fn(&Heap<'_, '_>),
    ) -> LirFunc {
        let name = self.name(what);
        let contract = format!("{does}\nwords: BASE and SIZE are set.");
        let layout = self;
        if self.texts.is_none() {
            let contract = format!("{contract}\n{cost}");
            return build(&name, &contract, ["words"], |f, [words]| {
                let slot = None;
                code(&Heap {
                    f,
                    words,
                    slot,
                    layout,
                });
            });
        }
        let contract = format!(
            "{contract} slot: words of a text's slot, a constant of the caller. Of equal sort words the texts \
             decide.\n{cost}"
        );
        build(&name, &contract, ["words", "slot"], |f, [words, slot]| {
            let slot = Some(slot);
            code(&Heap {
                f,
                words,
                slot,
                layout,
            });
        })
    }

    fn step(&self) -> LirFunc {
        let contract = "\
Moves the smaller child up into the gap; if the sinking node comes before it, or there is no child, the node
fills the gap, and the next node sinks. Returns 1 behind the last node.
context: the address of the words, and the words of a text's slot.
Cost: three look-ups, and up to two calls of order with two look-ups each.";
        build(
            &self.name("step"),
            contract,
            ["index", "context"],
            |f, [_, context]| {
                let heap = Heap {
                    f,
                    words: context.load_u64(0),
                    slot: self.texts.map(|_| context.load_u64(8)),
                    layout: self,
                };
                heap.step();
            },
        )
    }
}

/// The functions `make` and `take` of a heap ([`HeapLayout::name`]), and their step, which calls `order` for
/// texts.
pub fn module(layout: &HeapLayout) -> Module {
    let make = [
        "Builds a heap of SIZE nodes; returns 0.",
        "Cost: a step for each second node, and for each level that one sinks.",
    ];
    let take = [
        "Takes the first of SIZE + 1 nodes out of a heap; returns the index of its entry.",
        "Cost: a step for each level.",
    ];
    let funcs = vec![
        layout.function("make", make, |heap| heap.make()),
        layout.function("take", take, |heap| heap.take()),
        layout.step(),
    ];
    let order = layout.texts.map(|_| (ORDER, 3));
    Module::from(funcs).with_externs(order.as_slice())
}

/// What the code of a function has.
struct Heap<'a, 'b> {
    f: &'b Builder,
    words: Scalar<'b>,
    /// The words of a text's slot.
    slot: Option<Scalar<'b>>,
    layout: &'a HeapLayout,
}

impl<'b> Heap<'_, 'b> {
    /// The index of the iteration's first entry in the map.
    fn base(&self) -> Scalar<'b> {
        self.words.load_bytes(Size::U32, words::BASE)
    }

    /// The address of the entry with that key. Returns `otherwise` if there is none.
    fn element(&self, key: Scalar<'b>, otherwise: impl IntoOperand<'b>) -> Scalar<'b> {
        self.words.store_bytes(Size::U32, words::KEY, key);
        let map = self.f.addr(MemoryOperand::Map(self.layout.map.clone()));
        let key = self.words + i32::from(words::KEY);
        let entry = self.f.helper(Helper::MapLookup, &[map, key]);
        self.f.ret_if(entry.eq(0), otherwise);
        entry
    }

    /// The address of an entry of the iteration.
    fn existing(&self, index: impl IntoOperand<'b>, otherwise: impl IntoOperand<'b>) -> Scalar<'b> {
        self.element(self.base() + index, otherwise)
    }

    /// The node at `from` sinks from that index on.
    fn sink(&self, from: Scalar<'b>, index: impl IntoOperand<'b>) {
        self.words.store_u64(words::HOLE, index);
        copy_node((self.words, words::NODE), (from, 0));
    }

    fn make(&self) {
        let (f, words) = (self.f, self.words);
        let half = words.load_u64(words::SIZE) >> 1;
        f.ret_if(half.eq(0), 0);
        let last = half - 1;
        words.store_u64(words::NEXT, last);
        self.sink(self.existing(last, 0), last);
        self.sift(NO_BOUND);
        f.ret(0);
    }

    fn take(&self) {
        let (f, words) = (self.f, self.words);
        let taken = self.element(self.base(), 0).load_u64(node::ENTRY);
        let size = words.load_u64(words::SIZE);
        f.ret_if(size.eq(0), taken);
        let last = self.existing(size, taken);
        words.store_u64(words::NEXT, 0);
        self.sink(last, 0);
        self.sift(LEVELS);
        f.ret(taken);
    }

    /// Runs steps until all nodes are instead.
    fn sift(&self, most: u32) {
        let context = self.f.slot(if self.slot.is_some() { 16 } else { 8 });
        context.store_u64(0, self.words);
        if let Some(slot) = self.slot {
            context.store_u64(8, slot);
        }
        let step = self.layout.name("step");
        self.f.repeat_call(u64::from(most), &step, context);
    }

    fn step(&self) {
        let (f, words) = (self.f, self.words);
        f.block(|location| {
            let left = (words.load_u64(words::HOLE) << 1) + 1;
            location.leave_if(left.ge(words.load_u64(words::SIZE)));
            let left_node = self.existing(left, 1);
            let (child, child_node) = (f.var("child", left), f.var("child_node", left_node));
            f.block(|chosen| {
                let right = left + 1;
                chosen.leave_if(right.ge(words.load_u64(words::SIZE)));
                let right_node = self.existing(right, 1);
                f.block(|before| {
                    self.order((right_node, 0), (left_node, 0), (before, chosen));
                });
                child.set(right);
                child_node.set(right_node);
            });
            let child_node = child_node.get();
            f.block(|before| {
                self.order((child_node, 0), (words, words::NODE), (before, location));
            });
            let gap = self.existing(words.load_u64(words::HOLE), 1);
            copy_node((gap, 0), (child_node, 0));
            words.store_u64(words::HOLE, child);
            f.ret(0);
        });
        let gap = self.existing(words.load_u64(words::HOLE), 1);
        copy_node((gap, 0), (words, words::NODE));
        let next = words.load_u64(words::NEXT);
        f.ret_if(next.eq(0), 1);
        let next = next - 1;
        words.store_u64(words::NEXT, next);
        self.sink(self.existing(next, 1), next);
        f.ret(0);
    }

    /// Goes to one of two ends: the first node comes before the second one, or behind.
    fn order(
        &self,
        (a, a_off): (Scalar<'b>, i16),
        (b, b_off): (Scalar<'b>, i16),
        (before, behind): (BlockExit<'b>, BlockExit<'b>),
    ) {
        let f = self.f;
        let pair = |word: i16| [a.load_u64(a_off + word), b.load_u64(b_off + word)];
        let [x, y] = pair(node::WORD);
        before.leave_if(x.lt(y));
        behind.leave_if(x.gt(y));
        if let (Some(slot), Some(direction)) = (self.slot, self.layout.texts) {
            // Each index is read in front of its look-up, and the ages behind: fewer values to spill.
            let entries = [(a, a_off), (b, b_off)]
                .map(|(base, off)| self.existing(base.load_u64(off + node::ENTRY), 1));
            let [a, b] = entries.map(|entry| entry + node::SIZE.cast_signed());
            let order = f.call(ORDER, &[a, b, slot]);
            let (first, last) = match direction {
                HeapOrder::Up => (0, 2),
                HeapOrder::Down => (2, 0),
            };
            before.leave_if(order.eq(first));
            behind.leave_if(order.eq(last));
        }
        let [x, y] = pair(node::SEQ);
        before.leave_if(x.lt(y));
        behind.leave();
    }
}

fn copy_node((to, to_off): (Scalar<'_>, i16), (from, from_off): (Scalar<'_>, i16)) {
    for word in [node::WORD, node::SEQ, node::ENTRY] {
        to.store_u64(to_off + word, from.load_u64(from_off + word));
    }
}

/// Words of a text that are compared without a loop, behind the first one: most texts have no more.
const IN_PLACE: i32 = 7;

pub(super) fn order() -> LirFunc {
    let contract = "\
The order of two texts whose first words are equal: 0 if the first one is smaller, 1 if they are equal, 2
if the second one is smaller, as bytes without sign.
a, b: slots of that many words. slot: a constant of the caller, up to 513.
Cost: an iteration for each word up to the first difference or the end of the texts.";
    build(ORDER, contract, ["a", "b", "slot"], |f, p| {
        let [a, b, slot] = p;
        let (x, y) = (f.var("x", 0), f.var("y", 0));
        f.block(|end| {
            for n in 1..=IN_PLACE {
                end.leave_if(slot.le(n));
                x.set(a.load_u64(8 * n.fit::<i16>()));
                y.set(b.load_u64(8 * n.fit::<i16>()));
                end.leave_if(x.ne(y));
                // Both end here: zeros follow an end.
                end.leave_if(x.eq(0));
            }
            let word = f.var("word", IN_PLACE + 1);
            let pair = || [a, b].map(|text| (text + (word << 3)).load_u64(0));
            f.repeat(MAX_SLOT / 8, || {
                f.break_if(word.ge(slot));
                let [x, y] = pair();
                f.break_if(x.ne(y));
                f.break_if(x.eq(0));
                word.set(word + 1);
            });
            f.ret_if(word.ge(slot), 1);
            let words = pair();
            x.set(words[0]);
            y.set(words[1]);
        });
        f.ret_if(x.eq(y), 1);
        // The first byte has the lowest address, and decides most.
        f.ret_if(x.get().swap().lt(y.get().swap()), 0);
        f.ret(2);
    })
}
