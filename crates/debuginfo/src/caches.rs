//! What is kept of a module's DWARF between queries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::map::Blob;
use crate::unit::Die;

/// The index of a module's DWARF.
pub(crate) struct Index {
    pub(crate) blob: Blob,
    pub(crate) entries: usize,
    pub(crate) scopes: usize,
    pub(crate) code: usize,
    pub(crate) inlined: usize,
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

/// A cache of the functions of units.
#[derive(Default)]
pub(crate) struct FunctionTables(pub(crate) Mutex<HashMap<u32, Functions>>);

/// A cache of the scopes around addresses: each variable of a location needs them.
#[derive(Default)]
pub(crate) struct ScopeChains(pub(crate) Mutex<HashMap<u64, Arc<[Scope]>>>);

/// The scopes around the functions of units that are in other functions, innermost first, by the
/// functions' offsets.
#[derive(Default)]
pub(crate) struct NestedFunctions(pub(crate) Mutex<HashMap<(u8, u32), Arc<ScopesAround>>>);

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
pub(crate) struct TypeNumbers(pub(crate) Mutex<TypeTable>);

#[derive(Default)]
pub(crate) struct TypeTable {
    pub(crate) ids: HashMap<TypeKey, TypeId>,
    pub(crate) keys: Vec<TypeKey>,
}

/// For a unit that another one imports, by part and number: the importer.
pub(crate) type Importers = HashMap<(u8, u32), (u8, u32)>;
