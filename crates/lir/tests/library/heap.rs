//! The heap of an iteration's entries against Rust's sort.

use std::cmp::Reverse;
use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Memory, RegionKind, Trap};
use spile_lir::library;
use spile_lir::library::heap::{self, HeapLayout, HeapOrder, node, words};

use super::forms::{Arg, Forms, TestMachine, forms, number, properties, slot, text};
use super::shared::run;

const ENTRIES: &str = "entries";
const MAP: u64 = 77;
/// Bytes of the words.
const BUFFER: usize = 60;
/// Bytes of a text's slot.
const SLOT: usize = 72;
/// More nodes than a test has.
const MOST: usize = 20;

/// The functions of an order: none for numbers.
fn of_order(kind: &str) -> std::rc::Rc<Forms> {
    forms(&format!("heap{kind}"), || {
        let texts = match kind {
            "_up" => Some(HeapOrder::Up),
            "_down" => Some(HeapOrder::Down),
            _ => None,
        };
        let map = ENTRIES.into();
        let mut module = heap::module(&HeapLayout { map, texts });
        if texts.is_some() {
            module.externs.clear();
            module
                .funcs
                .extend(library::only("order").unwrap_or_default().funcs);
        }
        module
    })
}

/// An entry: its sort word, its sequence number, its text.
type Entry = (u64, u64, Vec<u8>);

/// A map of entries by key, each of which is a region of its own.
struct Entries {
    at: HashMap<u32, u64>,
    /// Look-ups that find something. There are no entries afterwards.
    lookups: u32,
}

impl Host for Entries {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        let (Helper::MapLookup, [MAP, key]) = (helper, args) else {
            return Err(Trap::Helper(helper.name().into()));
        };
        self.lookups = self.lookups.saturating_sub(1);
        if self.lookups == 0 {
            return Ok(0);
        }
        let key = memory.read(*key, 4)?;
        let key = u32::from_le_bytes(key.try_into().expect("4 bytes"));
        let entry = self.at.get(&key);
        entry
            .copied()
            .ok_or(Trap::Helper(format!("no entry {key}")))
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        (*of == MemoryOperand::Map(ENTRIES.into())).then_some(MAP)
    }
}

/// The entries in the order in which `heap_take` gives them after `heap_make`.
fn taken_in(
    mut machine: TestMachine<'_>,
    kind: &str,
    (base, lookups): (u64, u32),
    entries: &[Entry],
) -> Vec<usize> {
    let at = entries.iter().enumerate().map(|(i, (word, seq, text))| {
        let head = [*word, *seq, i as u64].map(u64::to_le_bytes).concat();
        assert_eq!(head.len(), node::SIZE as usize);
        let bytes = [head, text.clone()].concat();
        let key = base as u32 + i as u32;
        (key, machine.memory.add(bytes, RegionKind::Memory))
    });
    let at = at.collect();
    let mut host = Entries { at, lookups };
    let buffer = machine.memory.add(vec![0xee; BUFFER], RegionKind::Memory);
    let mut args = vec![buffer];
    if !kind.is_empty() {
        args.push(SLOT as u64 / 8);
    }
    let mut run = |what: &str, size: usize| {
        // No call relies on words of an earlier one.
        machine
            .memory
            .write(buffer, &[0xee; BUFFER])
            .expect("words");
        for (word, n) in [(words::BASE, base), (words::SIZE, size as u64)] {
            let at = buffer + word as u64;
            machine.memory.write(at, &n.to_le_bytes()).expect("a word");
        }
        let name = format!("{what}_{ENTRIES}{kind}");
        let result = machine.run(&name, &args, &mut host);
        result.unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    assert_eq!(run("make", entries.len()), 0);
    let sizes = (0..entries.len()).rev();
    sizes.map(|size| run("take", size) as usize).collect()
}

/// The same in both forms.
fn taken(kind: &str, host: (u64, u32), entries: &[Entry]) -> Vec<usize> {
    of_order(kind).same(3_000_000, |machine| taken_in(machine, kind, host, entries))
}

/// The indexes of entries in the order of a key.
fn sorted<K: Ord>(entries: &[Entry], key: impl Fn(&Entry) -> K) -> Vec<usize> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|i| key(&entries[*i]));
    order
}

/// The first eight bytes, as a number that orders as they do.
fn first_word(text: &[u8]) -> u64 {
    u64::from_be_bytes(text[..8].try_into().expect("8 bytes"))
}

/// Texts with common beginnings; many are equal.
fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one = (
        "[ab]{0,2}",
        prop_oneof![Just(0usize), Just(6), 0..60usize],
        text(10),
    );
    let one = one.prop_map(|(end, common, behind)| {
        let mut text = [vec![b'x'; common], end.into_bytes(), behind].concat();
        text.truncate(SLOT - 1);
        slot(&text, SLOT)
    });
    vec(one, 0..MOST)
}

/// Words before and after a step, and the nodes in the map, each with a text.
#[derive(Debug, Clone, PartialEq)]
struct StepState {
    hole: u64,
    next: u64,
    node: [u64; 3],
    entries: HashMap<u32, ([u64; 3], Vec<u8>)>,
}

/// What a step does not change.
#[derive(Debug, Clone, Copy)]
struct StepInput {
    base: u32,
    size: u64,
    kind: &'static str,
    lookups: u32,
}

/// A step in Rust: whether it is the last one; `None` if an entry is missing.
fn step_model(state: &mut StepState, input: StepInput) -> Option<bool> {
    let mut left_lookups = input.lookups;
    let mut key = |index: u64| {
        left_lookups = left_lookups.saturating_sub(1);
        let key = input.base.wrapping_add(index as u32);
        (left_lookups > 0 && state.entries.contains_key(&key)).then_some(key)
    };
    let entries = &state.entries;
    let before = |key: &mut dyn FnMut(u64) -> Option<u32>, a: [u64; 3], b: [u64; 3]| {
        if a[0] != b[0] || input.kind.is_empty() {
            return Some((a[0], a[1]) < (b[0], b[1]));
        }
        let [x, y] = [key(a[2])?, key(b[2])?].map(|k| &entries[&k].1);
        // The first words are equal if the sort words are.
        let order = x[8..].cmp(&y[8..]);
        let order = if input.kind == "_down" {
            order.reverse()
        } else {
            order
        };
        Some(order.then(a[1].cmp(&b[1])).is_lt())
    };
    let mut child = 2 * state.hole + 1;
    if child < input.size {
        let mut at = key(child)?;
        if child + 1 < input.size {
            let right = key(child + 1)?;
            if before(&mut key, entries[&right].0, entries[&at].0)? {
                (child, at) = (child + 1, right);
            }
        }
        let node = entries[&at].0;
        if before(&mut key, node, state.node)? {
            let gap = key(state.hole)?;
            state.entries.get_mut(&gap)?.0 = node;
            state.hole = child;
            return Some(false);
        }
    }
    let gap = key(state.hole)?;
    let next = state.next.checked_sub(1);
    let following = next.map(&mut key);
    state.entries.get_mut(&gap)?.0 = state.node;
    if let (Some(next), Some(following)) = (next, following) {
        (state.hole, state.next) = (next, next);
        state.node = state.entries[&following?].0;
    }
    Some(next.is_none())
}

/// The same step under the interpreter.
fn step_in(mut machine: TestMachine<'_>, state: &mut StepState, input: StepInput) -> u64 {
    let mut at = HashMap::new();
    for (key, (node, text)) in &state.entries {
        let bytes = [&node.map(u64::to_le_bytes).concat()[..], text].concat();
        at.insert(*key, machine.memory.add(bytes, RegionKind::Memory));
    }
    let mut buffer = vec![0xee; BUFFER];
    let [a, b, c] = state.node;
    let numbers = [
        state.hole,
        state.next,
        a,
        b,
        c,
        input.base.into(),
        input.size,
    ];
    for (word, n) in numbers.iter().enumerate() {
        buffer[8 * word..8 * word + 8].copy_from_slice(&n.to_le_bytes());
    }
    let buffer = machine.memory.add(buffer, RegionKind::Memory);
    let context = [buffer, SLOT as u64 / 8].map(u64::to_le_bytes).concat();
    let context = machine.memory.add(context, RegionKind::Memory);
    let mut host = Entries {
        at: at.clone(),
        lookups: input.lookups,
    };
    let name = format!("step_{ENTRIES}{}", input.kind);
    let result = machine.run(&name, &[0, context], &mut host);
    let result = result.unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut word = |at: u64| {
        let bytes = machine.memory.read(at, 8).expect("a word");
        u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
    };
    (state.hole, state.next) = (word(buffer), word(buffer + 8));
    state.node = [16, 24, 32].map(|off| word(buffer + off));
    for (key, entry) in &mut state.entries {
        entry.0 = [0, 8, 16].map(|off| word(at[key] + off));
    }
    result
}

properties! {
    also the_longest_texts_have_an_order;

    120 cases: fn numbers_are_taken_in_order(
        numbers in vec(prop_oneof![0..6u64, any::<u64>()], 0..MOST),
        seqs in vec(any::<u64>(), MOST),
        base in prop_oneof![Just(0u64), 0..1u64 << 20],
    ) {
        let entries = numbers.iter().zip(seqs).map(|(n, seq)| (*n, seq, Vec::new()));
        let entries: Vec<Entry> = entries.collect();
        prop_assert_eq!(taken("", (base, u32::MAX), &entries), sorted(&entries, |e| (e.0, e.1)));
    }

    120 cases: fn texts_are_taken_in_order(
        texts in texts(),
        seqs in vec(any::<u64>(), MOST),
        base in prop_oneof![Just(0u64), 0..1u64 << 20],
    ) {
        let entries = texts.into_iter().zip(seqs).zip(0..);
        let entries = entries.map(|((t, seq), i)| (first_word(&t), ((seq % 1000) << 8) | i, t));
        let mut entries: Vec<Entry> = entries.collect();
        let up = sorted(&entries, |e| (e.2.clone(), e.1));
        prop_assert_eq!(taken("_up", (base, u32::MAX), &entries), up);
        entries.iter_mut().for_each(|e| e.0 = !e.0);
        let down = sorted(&entries, |e| (Reverse(e.2.clone()), e.1));
        prop_assert_eq!(taken("_down", (base, u32::MAX), &entries), down);
    }

    500 cases: fn a_step_moves_one_node(
        (hole, above) in (prop_oneof![0..3u64, 0..1u64 << 62], 0..4u64),
        base in prop_oneof![0..3u32, any::<u32>()],
        next in prop_oneof![Just(0), 1..6u64, any::<u64>()],
        numbers in vec((prop_oneof![0..2u64, Just(1 << 40), Just((1 << 40) | 1)], 0..3u64, 0..3u64), 7),
        indexes in [any::<u64>(), any::<u64>(), any::<u64>()],
        texts in vec(texts(), 3),
        lookups in prop_oneof![Just(u32::MAX), 1..9u32],
    ) {
        let text = |i: usize| texts.get(i % 3).and_then(|t| t.get(i / 3)).cloned();
        let node = |i: usize| {
            let (word, seq, entry) = numbers[i];
            [word, (seq << 33) | (word & 1), indexes[entry as usize]]
        };
        let locations = [hole, 2 * hole + 1, 2 * hole + 2, next.wrapping_sub(1)];
        let locations = indexes.into_iter().chain(locations).enumerate();
        let entries = locations.map(|(i, index)| {
            let text = text(i).unwrap_or(vec![0; SLOT]);
            (base.wrapping_add(index as u32), (node(i % 7), text))
        });
        let before = StepState { hole, next, node: node(6), entries: entries.collect() };
        for kind in ["", "_up", "_down"] {
            let input = StepInput { base, size: 2 * hole + above, kind, lookups };
            let mut expected = before.clone();
            let last = step_model(&mut expected, input);
            for machine in of_order(kind).machines(100_000) {
                let mut after = before.clone();
                let result = step_in(machine, &mut after, input);
                prop_assert_eq!(result, u64::from(last != Some(false)));
                prop_assert!(last.is_none() || after == expected, "{:?} {:?}", after, expected);
            }
        }
    }

    120 cases: fn missing_entries_end_the_work(texts in texts(), lookups in prop_oneof![Just(1u32), 1..6u32, 1..400u32]) {
        for kind in ["", "_up", "_down"] {
            let entries = texts.iter().map(|t| (first_word(t) & 1, 1, t.clone()));
            let entries: Vec<Entry> = entries.collect();
            let order = taken(kind, (0, lookups), &entries);
            prop_assert!(order.iter().all(|i| *i < entries.len()));
            prop_assert!(lookups > 1 || order.iter().all(|i| *i == 0));
        }
    }

    120 cases: fn texts_with_equal_first_words_have_an_order(
        a in text(60), b in text(60), common in 1..60usize, exact in any::<bool>(),
    ) {
        let common = vec![b'x'; 8 * common];
        let [a, b] = [a, b].map(|t| [&common[..], &t].concat());
        let most = a.len().max(b.len());
        let size = (most / 8 * 8 + 8) + if exact { 0 } else { 24 };
        let args = [Arg::Memory(slot(&a, size)), Arg::Memory(slot(&b, size)), number(size / 8)];
        prop_assert_eq!(run("order", &args).0, (a.cmp(&b) as i64 + 1) as u64);
        let same = [args[0].clone(), args[0].clone(), args[2].clone()];
        prop_assert_eq!(run("order", &same).0, 1);
        // A slot with the first word only.
        let short = [args[0].clone(), args[1].clone(), number(1)];
        prop_assert_eq!(run("order", &short).0, 1);
    }
}

/// The longest texts: the bound of the loop is large enough.
#[test]
fn the_longest_texts_have_an_order() {
    let text = vec![b'x'; 4103];
    let mut other = text.clone();
    other[4102] = b'y';
    let args = [
        Arg::Memory(slot(&text, 0)),
        Arg::Memory(slot(&other, 0)),
        number(513),
    ];
    assert_eq!(run("order", &args).0, 0);
}
