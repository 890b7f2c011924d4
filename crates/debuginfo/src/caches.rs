//! What is kept of a module's DWARF between queries.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::lines::LineTable;
use crate::map::Blob;
use crate::unit::{Die, Unit};

/// What queries found out about a module's DWARF.
#[derive(Default)]
pub(crate) struct Caches {
    pub(crate) units: Cache<UnitNumber, Arc<Unit>, 256>,
    /// The position of a caller that asks for variables location by location: a part, and its first unit
    /// whose memory was not released.
    pub(crate) looked: Mutex<UnitNumber>,
    /// Line tables; `None` for those of damaged units.
    pub(crate) lines: Cache<UnitNumber, Option<Arc<LineTable>>, 256>,
    pub(crate) ranges: OnceLock<Vec<UnitRange>>,
    pub(crate) signatures: OnceLock<HashMap<u64, Die>>,
    pub(crate) importers: OnceLock<Importers>,
    /// The cached index.
    pub(crate) kept: OnceLock<Option<Index>>,
    /// The new index, where none was cached.
    pub(crate) index: OnceLock<Index>,
    pub(crate) functions: Cache<u32, Functions, 256>,
    /// The scopes around addresses: each variable of a location needs them.
    pub(crate) scopes: Cache<u64, Arc<[Scope]>, 1024>,
    /// The functions of units that are in other functions.
    pub(crate) nested: Cache<UnitNumber, Arc<ScopesAround>, 64>,
    /// The stubs of the functions that profilers have every function call first.
    pub(crate) profiler_hooks: OnceLock<Vec<u64>>,
    /// Where the parts of split functions begin.
    pub(crate) split: OnceLock<HashSet<u64>>,
    /// Paths by unit and DWARF's number of the file.
    pub(crate) files: Cache<(u8, u32, u64), Option<Arc<str>>, 4096>,
    pub(crate) types: Mutex<TypeTable>,
}

/// Answers by query. All are dropped when there are `MOST` of them.
pub(crate) struct Cache<K, V, const MOST: usize>(Mutex<HashMap<K, V>>);

impl<K, V, const MOST: usize> Default for Cache<K, V, MOST> {
    fn default() -> Self {
        Cache(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone, const MOST: usize> Cache<K, V, MOST> {
    /// The known answer or a new one. `None` is not kept.
    pub(crate) fn get_or_make(&self, key: K, make: impl FnOnce() -> Option<V>) -> Option<V> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = known.get(&key) {
            return Some(answer.clone());
        }
        let answer = make()?;
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, answer.clone());
        Some(answer)
    }
}

/// A unit by its part and its number there.
pub(crate) type UnitNumber = (u8, u32);

/// Code of a unit. `reach` is the largest end so far, in order of starts.
pub(crate) struct UnitRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) reach: u64,
    pub(crate) unit: u32,
}

/// The index of a module's DWARF.
pub(crate) struct Index {
    pub(crate) blob: Blob,
    /// The number of rows of each table.
    pub(crate) rows: [usize; 4],
}

/// The first index for which `holds` is true; it is true for all after it.
pub(crate) fn first_index(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = (low + high) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The kind of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    Function,
    Inlined,
    Block,
}

/// An entry whose code contains an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scope {
    pub kind: ScopeKind,
    pub die: Die,
}

/// Code of the functions of a unit: start, end, offset of the entry; by start.
pub(crate) type Functions = Arc<Vec<(u64, u64, usize)>>;

/// The scopes around the functions of a unit that are in other functions, innermost first, by the
/// functions' offsets.
pub(crate) type ScopesAround = HashMap<usize, Vec<Scope>>;

/// A type of one module; 0 is `void`. Numbers are assigned when types are first met.
pub type TypeId = u32;

/// The type that a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TypeKey {
    Die(Die),
    /// An array without its first dimensions.
    Dimension(Die, u8),
    Pointer(TypeId),
    /// A signed number of 8 bytes.
    Word,
    /// A floating-point number of that many bytes: a part of a complex one.
    Part(u8),
    /// A character of a string of Fortran.
    Char,
}

/// The assigned numbers.
#[derive(Default)]
pub(crate) struct TypeTable {
    pub(crate) ids: HashMap<TypeKey, TypeId>,
    pub(crate) keys: Vec<TypeKey>,
}

/// For a unit that another one imports: the importer.
pub(crate) type Importers = HashMap<UnitNumber, UnitNumber>;
