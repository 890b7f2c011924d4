//! The critical section under the interpreter of LIR, with the maps of arrays in Rust.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use spile_ebpf::emit::LIMITS;
use spile_ir::{GlobalId, Ty};
use spile_layout::critical::{
    CopyLocation, CriticalLayout, ENTRY, ElementCopies, KeyListWords, LockedGlobal, answer,
};
use spile_layout::{ValueLayout, percpu};
use spile_lir::func::MemoryOperand;
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Machine, Memory, RegionKind, Trap};
use spile_lir::repeat::outline;
use spile_lir::verify::verify;

use super::critical_section::{RESTORE, SAVE, module};
use crate::compiled::CRITICAL_PROGRAM;

/// Locations in the state memory.
const SCALAR: u32 = 0;
const COPY: u32 = 8;
const COUNT: u32 = 16;
const FRESH: u32 = 24;
const KEYS: u32 = 32;
const LOCKS: [u32; 2] = [40, 48];
/// The largest number of elements.
const MOST: u32 = 8;

/// A scalar, and an array of one number to words of that many bytes.
fn layout(value: u32) -> CriticalLayout {
    let scalar = CopyLocation::Words {
        from: SCALAR,
        to: COPY,
        value: ValueLayout::Scalar(Ty::Long),
    };
    let array = CopyLocation::Elements(ElementCopies {
        from: "array".into(),
        to: "copies".into(),
        count: COUNT,
        key: 8,
        value,
        max: MOST,
        known: Some(KeyListWords {
            fresh: FRESH,
            keys: KEYS,
        }),
    });
    let globals = [scalar, array].into_iter().zip(LOCKS).zip(0..);
    let locked = |((copy, lock), n)| LockedGlobal {
        global: GlobalId(n),
        lock,
        copy,
    };
    CriticalLayout {
        globals: globals.map(locked).collect(),
        interrupts_off: true,
    }
}

/// A host with one array and its copies.
struct Maps {
    state: u64,
    block: u64,
    /// The addresses of each element's key and value, by key.
    array: BTreeMap<u64, [u64; 2]>,
    copies: Vec<u64>,
    interrupts: Vec<&'static str>,
}

/// Numbers that stand for the maps.
const ARRAY: u64 = 1;
const COPIES: u64 = 2;

impl Host for Maps {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        let word = |memory: &mut Memory, at, size| {
            let bytes = memory.read(at, size)?;
            let word: [u8; 8] = std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0));
            Ok(u64::from_le_bytes(word))
        };
        match (helper, args) {
            (Helper::MapLookup, [ARRAY, key]) => {
                let key = word(memory, *key, 8)?;
                Ok(self.array.get(&key).map_or(0, |[_, value]| *value))
            }
            (Helper::MapLookup, [COPIES, key]) => {
                let index = word(memory, *key, 4)? as usize;
                Ok(self.copies.get(index).copied().unwrap_or(0))
            }
            (Helper::MapDelete, [ARRAY, key]) => {
                let key = word(memory, *key, 8)?;
                self.array.remove(&key);
                Ok(0)
            }
            (Helper::Read, [to, size, from]) => {
                let bytes = memory.read(*from, *size as usize)?.to_vec();
                memory.write(*to, &bytes)?;
                Ok(0)
            }
            _ => Err(Trap::Helper(helper.name().into())),
        }
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        match of {
            MemoryOperand::State(at) => Some(self.state + u64::from(*at)),
            MemoryOperand::Cpu(at) => Some(self.block + u64::from(*at)),
            MemoryOperand::Map(name) if name == "array" => Some(ARRAY),
            MemoryOperand::Map(_) => Some(COPIES),
            _ => None,
        }
    }

    fn elements(&mut self, map: u64) -> Result<Vec<[u64; 2]>, Trap> {
        assert_eq!(map, ARRAY);
        Ok(self.array.values().copied().collect())
    }

    fn call(&mut self, memory: &mut Memory, name: &str, args: &[u64]) -> Result<u64, Trap> {
        memory.write(args[0], &[0; 8])?;
        let known = [SAVE, RESTORE].into_iter().find(|n| *n == name);
        self.interrupts
            .push(known.expect("a function that switches interrupts"));
        Ok(0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_section_copies_all_or_nothing(
        scalar in any::<u64>(),
        elements in btree_map(0..20u64, any::<u8>(), 0..MOST as usize),
        listed in prop_oneof![Just(None), vec(0..20u64, 0..MOST as usize).prop_map(Some)],
        value in prop_oneof![Just(8u32), Just(64), Just(72)],
        (wanted, taken) in (0..4u64, 0..4u64),
        (held, interrupted) in (prop_oneof![2 => Just(None), 1 => (0..2usize).prop_map(Some)], any::<bool>()),
    ) {
        let layout = layout(value);
        let mut code = module(&layout);
        verify(&code, &LIMITS).unwrap_or_else(|e| panic!("{e}\n{code}"));
        outline(&mut code, &LIMITS).unwrap_or_else(|e| panic!("{e}"));
        let mut machine = Machine::new(&code, 100_000);
        let mut memory = |bytes| machine.memory.add(bytes, RegionKind::Memory);
        let key_list = listed.as_ref().filter(|keys| elements.keys().all(|k| keys.contains(k)));
        let mut state = vec![0; 56];
        let mut set = |at: u32, n: u64| state[at as usize..][..8].copy_from_slice(&n.to_le_bytes());
        set(SCALAR, scalar);
        // A handler inserted a key that the list lacks, or the list is too long.
        let known = key_list.map(Vec::len);
        set(FRESH, u64::from(listed.is_some() && known.is_none()));
        set(KEYS, known.map_or(u64::from(MOST) + 1, |n| n as u64));
        if let Some(n) = held {
            set(LOCKS[n], 77);
        }
        let before = if interrupted { 5u64 } else { 0 };
        let entry = |n: usize| {
            let key = key_list.and_then(|keys| keys.get(n)).copied().unwrap_or(99);
            let mut bytes = vec![0xee; (ENTRY + 8 + value) as usize];
            bytes[8..16].copy_from_slice(&key.to_le_bytes());
            bytes
        };
        let mut block = vec![0; percpu::BUSY as usize + 8];
        block[percpu::BUSY as usize..].copy_from_slice(&before.to_le_bytes());
        let mut host = Maps {
            state: memory(state),
            block: memory(block),
            array: elements
                .iter()
                .map(|(k, v)| (*k, [memory(k.to_le_bytes().to_vec()), memory(vec![*v; value as usize])]))
                .collect(),
            copies: (0..MOST as usize).map(|n| memory(entry(n))).collect(),
            interrupts: Vec::new(),
        };
        let request = memory([wanted, taken].map(u64::to_le_bytes).concat());
        let result = machine.run(CRITICAL_PROGRAM, &[request], &mut host).expect("it runs");

        let state = machine.memory.region(host.state).expect("kept").to_vec();
        let word = |at: u32| u64::from_le_bytes(state[at as usize..][..8].try_into().expect("8"));
        let is_wanted = |n: usize| wanted & 1 << n != 0;
        let is_taken = |n: usize| is_wanted(n) && taken & 1 << n != 0;
        let done = !held.is_some_and(is_wanted);
        prop_assert_eq!(result as i32, if done { answer::DONE } else { answer::BUSY });
        prop_assert_eq!(&host.interrupts, &[SAVE, RESTORE]);
        let block = machine.memory.region(host.block).expect("kept");
        prop_assert_eq!(&block[percpu::BUSY as usize..], &before.to_le_bytes());
        for (n, lock) in LOCKS.into_iter().enumerate() {
            prop_assert_eq!(word(lock), if held == Some(n) { 77 } else { 0 });
        }
        prop_assert_eq!(word(COPY), if done && is_wanted(0) { scalar } else { 0 });
        prop_assert_eq!(word(SCALAR), if done && is_taken(0) { 0 } else { scalar });
        let emptied = done && is_taken(1) && (key_list.is_none() || !elements.is_empty());
        prop_assert_eq!(host.array.len(), if emptied { 0 } else { elements.len() });
        if !(done && is_wanted(1)) {
            return Ok(());
        }
        let mut copied = BTreeMap::new();
        for entry in &host.copies[..word(COUNT) as usize] {
            let bytes = machine.memory.region(*entry).expect("kept");
            let key = u64::from_le_bytes(bytes[8..16].try_into().expect("8"));
            match bytes[..8].iter().map(|b| u32::from(*b)).sum() {
                1 => copied.insert(key, bytes[16..].to_vec()),
                there => {
                    let there: u32 = there;
                    // Taken elements are gone when the list names their key again.
                    prop_assert!(there == 0 && (!elements.contains_key(&key) || is_taken(1)));
                    None
                }
            };
        }
        let all: BTreeMap<_, _> = elements.iter().map(|(k, v)| (*k, vec![*v; value as usize])).collect();
        prop_assert_eq!(copied, all);
    }
}
