//! Tables as the host makes them.

/// A table that a layout names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    /// Name, a C identifier.
    pub name: String,
    /// The kind.
    pub kind: TableKind,
    /// Bytes of a key; for arrays, of an index.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Limit on the number of elements.
    pub max_entries: u32,
}

/// The kind of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// Elements by keys.
    Hash {
        /// Whether the memory of all elements is allocated at the start.
        preallocated: bool,
    },
    /// Elements by keys, with a value for each CPU. Memory is allocated with the elements.
    PerCpuHash,
    /// Elements by numbers.
    Array {
        /// Whether the controller maps the elements, which lie one after the other.
        mapped: bool,
    },
}

/// Hash tables above this size in bytes allocate elements on demand: filling the free list of a large
/// table takes longer than the rest of loading.
const PREALLOC_BYTES: u64 = 1 << 20;

impl TableSpec {
    /// An array that only handlers use.
    pub(super) fn array(name: &str, value_size: u32, max_entries: u32) -> TableSpec {
        TableSpec {
            name: name.to_owned(),
            kind: TableKind::Array { mapped: false },
            key_size: 4,
            value_size,
            max_entries,
        }
    }

    /// An array whose elements the controller maps.
    pub(super) fn mapped(name: &str, value_size: u32, max_entries: u32) -> TableSpec {
        TableSpec {
            kind: TableKind::Array { mapped: true },
            ..TableSpec::array(name, value_size, max_entries)
        }
    }

    /// A hash table.
    pub(super) fn hash(name: &str, key_size: u32, value_size: u32, max_entries: u32) -> TableSpec {
        let element = u64::from(key_size + value_size + 64);
        TableSpec {
            name: name.to_owned(),
            kind: TableKind::Hash {
                preallocated: element * u64::from(max_entries) <= PREALLOC_BYTES,
            },
            key_size,
            value_size,
            max_entries,
        }
    }
}
