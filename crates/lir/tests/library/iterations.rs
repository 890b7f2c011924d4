//! Callbacks of iterations against Rust, on elements of one array.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Memory, RegionKind, Trap};
use spile_lir::library;
use spile_lir::library::heap::node;
use spile_lir::library::iterations::{
    CopiedPart, CopyLayout, ElementOffset, KeyFields, Slice, SortWord, Statistic, copy, find, slice,
};

use super::forms::{Reads, forms, properties};

const ARRAY: u64 = 77;
const ENTRIES: u64 = 78;
/// Offsets in the per-CPU area.
const KEY: u32 = 256;
const BASE: u32 = 16;
const SIZE: u32 = 24;
/// Elements that the array may have.
const MOST: u64 = 3;
/// Words of a value: its sequence number and a statistic.
const COUNT: usize = 1;
const SUM: usize = 2;
const SQUARES: usize = 3;
const VALUE: usize = 21;
/// Words of an entry.
const ENTRY: usize = 64;

/// The key's fields: words, and whether they are given.
type Fields = Vec<(usize, bool)>;

fn shape(fields: &Fields) -> KeyFields {
    let bytes = fields
        .iter()
        .map(|(words, given)| (8 * *words as u32, *given));
    KeyFields(bytes.collect())
}

/// Whether the given fields of two keys are equal.
fn same(fields: &Fields, a: &[u64], b: &[u64]) -> bool {
    let mut at = 0;
    fields.iter().all(|(words, given)| {
        let range = at..at + words;
        at += words;
        !given || a[range.clone()] == b[range]
    })
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

struct Kernel {
    block: u64,
    removed: Vec<u64>,
    /// Entries by index.
    entries: Vec<u64>,
}

impl Host for Kernel {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        match (helper, args) {
            (Helper::MapDelete, [ARRAY, key]) => {
                self.removed.push(*key);
                Ok(0)
            }
            (Helper::MapLookup, [ENTRIES, key]) => {
                let key = memory.read(*key, 4)?.try_into().expect("4 bytes");
                let entry = self.entries.get(u32::from_le_bytes(key) as usize);
                Ok(entry.copied().unwrap_or(0))
            }
            _ => Reads.helper(memory, helper, args),
        }
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        match of {
            MemoryOperand::Cpu(off) => Some(self.block + u64::from(*off)),
            MemoryOperand::Map(name) if name == "entries" => Some(ENTRIES),
            _ => None,
        }
    }
}

/// Runs the callback on an element; gives its result, the answer and the removed keys.
fn sliced(fields: &Fields, what: Slice, key: &[u64], wanted: &[u64]) -> (u64, u64, bool) {
    let forms = forms(&format!("{fields:?} {what:?}"), || {
        slice("slice", &shape(fields), what)
    });
    forms.same(3_000, |mut machine| {
        let [key, wanted] = [key, wanted].map(|k| machine.memory.add(bytes(k), RegionKind::Memory));
        let context = bytes(&[wanted, 0]);
        let context = machine.memory.add(context, RegionKind::Memory);
        let mut host = Kernel {
            block: 0,
            removed: Vec::new(),
            entries: Vec::new(),
        };
        let args = [ARRAY, key, 5, context];
        let result = machine.run("slice", &args, &mut host).expect("it runs");
        let answer = machine.memory.read(context + 8, 8).expect("a word");
        let answer = u64::from_le_bytes(answer.try_into().expect("8 bytes"));
        assert!(host.removed.iter().all(|k| *k == key));
        (result, answer, !host.removed.is_empty())
    })
}

/// What a sort word is made of.
#[derive(Debug, Clone)]
struct Iteration {
    word: SortWord,
    descending: bool,
    parts: Vec<CopiedPart>,
}

/// The number that orders as an element does.
fn expected_word(iteration: &Iteration, key: &[u64], value: &[u64]) -> u64 {
    let part = |part: ElementOffset| match part {
        ElementOffset::Key(at) => key[at as usize / 8],
        ElementOffset::Value(at) => value[at as usize / 8],
    };
    let word = |at: u32| value[at as usize / 8];
    let signed = |n: u64| n.wrapping_add(1 << 63);
    let all = match iteration.word {
        SortWord::Sequence => value[0],
        SortWord::Text(text) => part(text).swap_bytes(),
        SortWord::Number(number) => signed(part(number)),
        SortWord::Statistic(count, _) if word(count) == 0 => 1 << 63,
        SortWord::Statistic(_, Statistic::Word(at)) => signed(word(at)),
        SortWord::Statistic(count, Statistic::Average(sum)) => {
            let average = i128::from(word(sum).cast_signed()) / i128::from(word(count));
            signed(average as u64)
        }
        SortWord::Statistic(count, Statistic::Variance(sum, squares)) => {
            let args =
                [count, sum, squares, squares + 8].map(|at| super::forms::Arg::Number(word(at)));
            signed(super::shared::run("variance", &args).0)
        }
    };
    if iteration.descending { !all } else { all }
}

/// Copies an element; gives the block and the entry afterwards.
fn copied(
    fields: &Fields,
    iteration: &Iteration,
    (key, wanted, value): (&[u64], &[u64], &[u64]),
    [base, size]: [u64; 2],
) -> (Vec<u8>, Vec<u8>) {
    let layout = CopyLayout {
        name: "copy".into(),
        fields: shape(fields),
        key: KEY,
        base: BASE,
        size: SIZE,
        map: "entries".into(),
        entries: MOST as u32,
        parts: iteration.parts.clone(),
        word: iteration.word,
        descending: iteration.descending,
    };
    let forms = forms(&format!("{layout:?}"), || {
        let mut module = copy(&layout);
        if !module.externs.is_empty() {
            module.externs.clear();
            module
                .funcs
                .extend(library::only("variance").unwrap_or_default().funcs);
        }
        module
    });
    forms.same(300_000, |mut machine| {
        let mut block = vec![0xee; KEY as usize];
        block[BASE as usize..][..8].copy_from_slice(&base.to_le_bytes());
        block[SIZE as usize..][..8].copy_from_slice(&size.to_le_bytes());
        block.extend(bytes(wanted));
        let entry = vec![0xaa; 8 * ENTRY];
        let [block, entry, key, value] = [block, entry, bytes(key), bytes(value)]
            .map(|bytes| machine.memory.add(bytes, RegionKind::Memory));
        let context = machine.memory.add(bytes(&[block]), RegionKind::Memory);
        // Some are missing.
        let mut entries = vec![0; 7];
        if let Some(at) = entries.get_mut((base + size) as usize) {
            *at = entry;
        }
        let mut host = Kernel {
            block,
            removed: Vec::new(),
            entries,
        };
        let args = [ARRAY, key, value, context];
        assert_eq!(machine.run("copy", &args, &mut host), Ok(0));
        let region = |at: u64| machine.memory.region(at).expect("stays").to_vec();
        (region(block), region(entry))
    })
}

/// The shapes of keys: few, so that each has many cases.
fn shapes() -> [Fields; 3] {
    [
        vec![(1, true)],
        vec![(2, true), (1, false), (1, true)],
        vec![(1, false), (17, true), (2, true)],
    ]
}

/// Two keys without equal words in one key, which differ in some bits.
fn keys(fields: Fields) -> impl Strategy<Value = (Vec<u64>, Vec<u64>)> {
    let bits = prop_oneof![
        1 => Just(Vec::new()),
        2 => vec((any::<usize>(), 0..64u32), 1..3),
    ];
    (any::<u64>(), bits).prop_map(move |(seed, bits)| {
        let words: u64 = fields.iter().map(|f| f.0 as u64).sum();
        let key: Vec<u64> = (1..=words)
            .map(|n| seed ^ n.wrapping_mul(u64::MAX / 99))
            .collect();
        let mut other = key.clone();
        for (at, bit) in bits {
            other[at % words as usize] ^= 1 << bit;
        }
        (key, other)
    })
}

/// Iterations that copy: the shape of the key, what is copied and what it is sorted by.
fn iterations() -> Vec<(Fields, Iteration)> {
    let at = |word: usize| 8 * word as u32;
    let part = |from: ElementOffset, to: u32, words: usize| CopiedPart {
        from,
        to: node::SIZE + to,
        bytes: at(words),
    };
    let count = part(ElementOffset::Value(at(COUNT)), 0, 1);
    let statistic = |what| SortWord::Statistic(at(COUNT), what);
    let [one, wide, long] = shapes();
    let iteration = |fields: &Fields, word, descending, parts: &[CopiedPart]| {
        let parts = parts.to_vec();
        let iteration = Iteration {
            word,
            descending,
            parts,
        };
        (fields.clone(), iteration)
    };
    let text = part(ElementOffset::Key(0), 0, 2);
    let last = part(ElementOffset::Key(24), 16, 1);
    let far = [
        part(ElementOffset::Value(8), 0, 20),
        part(ElementOffset::Key(8), 160, 17),
    ];
    vec![
        iteration(&one, SortWord::Sequence, false, &[count]),
        iteration(
            &one,
            SortWord::Number(ElementOffset::Value(at(COUNT))),
            true,
            &[count],
        ),
        iteration(&wide, SortWord::Number(ElementOffset::Key(16)), false, &[]),
        iteration(
            &wide,
            SortWord::Text(ElementOffset::Key(0)),
            true,
            &[text, last],
        ),
        iteration(&long, statistic(Statistic::Word(at(SUM))), false, &far),
        iteration(&one, statistic(Statistic::Average(at(SUM))), true, &[]),
        iteration(
            &one,
            statistic(Statistic::Variance(at(SUM), at(SQUARES))),
            false,
            &[count],
        ),
    ]
}

fn value() -> impl Strategy<Value = Vec<u64>> {
    let word =
        prop_oneof![1 => 0..9u64, 2 => any::<u64>(), 1 => (-9..0i64).prop_map(i64::cast_unsigned)];
    (vec(word, VALUE), 0..3u64).prop_map(|(mut value, count)| {
        // Often empty.
        if count < 2 {
            value[COUNT] = 7 * count;
        }
        value
    })
}

properties! {
    500 cases: fn elements_with_the_fields_are_removed_or_found(
        (fields, (key, wanted)) in select(shapes().to_vec()).prop_flat_map(|fields| (Just(fields.clone()), keys(fields))),
    ) {
        let is = same(&fields, &key, &wanted);
        prop_assert_eq!(sliced(&fields, Slice::Remove, &key, &wanted), (0, 0, is));
        let found = u64::from(is);
        prop_assert_eq!(sliced(&fields, Slice::Find, &key, &wanted), (found, found, false));
        let all: Fields = fields.iter().map(|(words, _)| (*words, true)).collect();
        let found = u64::from(key == wanted);
        prop_assert_eq!(sliced(&all, Slice::Find, &key, &wanted), (found, found, false));
    }

    1000 cases: fn elements_are_copied_to_entries(
        (iteration, (key, wanted)) in select(iterations()).prop_flat_map(|iteration| (Just(iteration.clone()), keys(iteration.0))),
        value in value(),
        location in [0..7u64, 0..5u64],
        equal in any::<bool>(),
    ) {
        let (fields, iteration) = iteration;
        let wanted = if equal { key.clone() } else { wanted };
        let (block, entry) = copied(&fields, &iteration, (&key, &wanted, &value), location);
        let [base, size] = location;
        let mut expected = vec![0xaa; 8 * ENTRY];
        let goes = same(&fields, &key, &wanted) && size < MOST && base + size < 7;
        let element = [bytes(&key), bytes(&value)];
        if goes {
            let word = expected_word(&iteration, &key, &value);
            for (at, n) in [(node::WORD, word), (node::SEQ, value[0]), (node::ENTRY, size)] {
                expected[at as usize..][..8].copy_from_slice(&n.to_le_bytes());
            }
            for part in &iteration.parts {
                let (from, at) = match part.from {
                    ElementOffset::Key(at) => (&element[0], at as usize),
                    ElementOffset::Value(at) => (&element[1], at as usize),
                };
                let bytes = part.bytes as usize;
                expected[part.to as usize..][..bytes].copy_from_slice(&from[at..at + bytes]);
            }
        }
        prop_assert_eq!(entry, expected);
        let after = |at: u32| u64::from_le_bytes(block[at as usize..][..8].try_into().expect("8 bytes"));
        prop_assert_eq!((after(BASE), after(SIZE)), (base, size + u64::from(goes)));
    }

    20 cases: fn elements_are_looked_up(index in 0..4u32) {
        let forms = forms("find", || find("find_0", "entries"));
        let found = forms.same(300, |mut machine| {
            let key = machine.memory.add(index.to_le_bytes().to_vec(), RegionKind::Memory);
            let mut host = Kernel { block: 0, removed: Vec::new(), entries: vec![5, 6, 9] };
            machine.run("find_0", &[key], &mut host)
        });
        prop_assert_eq!(found, Ok([5, 6, 9, 0][index as usize]));
    }
}
