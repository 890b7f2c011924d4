//! Indirect functions (`STT_GNU_IFUNC`): a resolver chooses among implementations when a program
//! starts.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};

use crate::cfi;
use crate::code::{Instructions, Reference};
use crate::exits;
use crate::module::DebugFile;
use crate::relocations::{self, SlotValue};
use crate::symbols::SymbolKind;

/// Levels of calls and jumps from a resolver to the code that takes the addresses of implementations.
const MOST_CALLS: u32 = 2;
/// Maximum number of instructions of a function that are read.
const MOST_INSTRUCTIONS: usize = 4096;

/// Whether a function begins at a linked address, by symbols or unwind tables.
#[must_use]
pub fn begins_function(module: &DebugFile, address: u64) -> bool {
    let image = module.image();
    let symbol = |s: &crate::ElfSymbol<'_>| s.kind == SymbolKind::Func;
    image.is_code(address)
        && (module.symbols().starting_at(address).any(symbol)
            || cfi::function_at(image, address).is_some_and(|f| f.0 == address))
}

/// The functions of a file that a resolver can return, ascending: those whose address its code takes.
/// Empty if its code is not understood.
#[must_use]
pub fn implementations(module: &DebugFile, resolver: u64) -> Vec<u64> {
    let Some(known) = module.image().instructions() else {
        return Vec::new();
    };
    let words = OnceCell::new();
    let mut addresses = BTreeSet::new();
    let mut code = BTreeSet::from([resolver]);
    for _ in 0..MOST_CALLS {
        let mut called = BTreeSet::new();
        for start in code {
            let reader = CodeReader {
                module,
                known,
                words: &words,
            };
            reader.addresses(start, &mut addresses, &mut called);
        }
        addresses.remove(&resolver);
        if !addresses.is_empty() {
            break;
        }
        code = called;
    }
    addresses.into_iter().collect()
}

/// A reader of addresses in code.
struct CodeReader<'a> {
    module: &'a DebugFile,
    known: &'static Instructions,
    /// The words that the loader fills.
    words: &'a OnceCell<HashMap<u64, SlotValue<'a>>>,
}

impl CodeReader<'_> {
    /// Adds the functions whose address a function takes, and those that it calls.
    fn addresses(&self, start: u64, addresses: &mut BTreeSet<u64>, called: &mut BTreeSet<u64>) {
        let Some((start, end)) = exits::extent(self.module, start) else {
            return;
        };
        let Some(bytes) = exits::code(self.module.image(), start, end) else {
            return;
        };
        let outside = |a: &u64| !(start..end).contains(a);
        let references = (self.known.references)(bytes, start, MOST_INSTRUCTIONS);
        for reference in references {
            let taken = match reference {
                Reference::Code(to) => {
                    called.extend(Some(to).filter(outside));
                    continue;
                }
                Reference::Address(address) => Some(address),
                Reference::Word(address) => self.word(address),
            };
            let taken = taken.filter(outside);
            addresses.extend(taken.filter(|a| begins_function(self.module, *a)));
        }
    }

    /// The linked address that a word of the file holds when it is loaded.
    fn word(&self, slot: u64) -> Option<u64> {
        let image = self.module.image();
        let words = self.words.get_or_init(|| {
            let filled = relocations::of(image).into_iter();
            filled.map(|r| (r.slot, r.value)).collect()
        });
        match words.get(&slot) {
            Some(SlotValue::Own(address)) => Some(*address),
            Some(SlotValue::Symbol { name, .. }) => {
                let mut named = self.module.symbols().named(name);
                let function = named.find(|s| s.kind == SymbolKind::Func && s.dynamic);
                function.map(|s| s.address)
            }
            Some(SlotValue::Chosen(_)) => None,
            None => {
                let bytes = image.bytes_at(slot, 8)?;
                Some(u64::from_le_bytes(bytes.try_into().ok()?))
            }
        }
    }
}
