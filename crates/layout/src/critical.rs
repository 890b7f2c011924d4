//! The interface of the controller's critical section, in which the host copies globals under their locks: its
//! request, its answer, and the locations of its copies.

use spile_ir::GlobalId;

use crate::ValueLayout;

/// Words of the request.
pub mod request {
    /// The globals to copy under their locks: a bit for each of [`super::CriticalLayout::globals`].
    pub const WANTED: usize = 0;
    /// The globals to empty after the copy.
    pub const TAKEN: usize = 1;
    /// Number of words.
    pub const WORDS: usize = 2;
}

/// Results of the section. 0: the host did not run it.
pub mod answer {
    /// The copies are complete.
    pub const DONE: i32 = 1;
    /// Nothing was copied: a handler holds one of the locks.
    pub const BUSY: i32 = 2;
}

/// The globals that the section can copy.
#[derive(Debug, Clone, Default)]
pub struct CriticalLayout {
    /// The globals, in locking order.
    pub globals: Vec<LockedGlobal>,
    /// Whether the section turns interrupts off itself, so that it can run on the controller's
    /// processor. Otherwise it must run on another processor.
    pub interrupts_off: bool,
}

/// A global with its lock.
#[derive(Debug, Clone)]
pub struct LockedGlobal {
    /// The global.
    pub global: GlobalId,
    /// Offset of its lock in the shared area.
    pub lock: u32,
    /// The location of its copy.
    pub copy: CopyLocation,
}

/// The location of a copy.
#[derive(Debug, Clone)]
pub enum CopyLocation {
    /// The copy of a scalar or statistic, in the shared area.
    Words {
        /// Offset of the global.
        from: u32,
        /// Offset of the copy.
        to: u32,
        /// Layout of the value.
        value: ValueLayout,
    },
    /// The copy of an array, with an entry for each element: a word that is nonzero if the element
    /// exists, the key, and the value.
    Elements(ElementCopies),
}

/// The copies of an array's elements.
#[derive(Debug, Clone)]
pub struct ElementCopies {
    /// The array's map.
    pub from: String,
    /// The map of copies.
    pub to: String,
    /// Offset of the word in the shared area with the number of entries.
    pub count: u32,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Limit on the number of elements.
    pub max: u32,
    /// The words for key lists, if the controller can provide them.
    pub known: Option<KeyListWords>,
}

/// Words in the shared area with which the section avoids iterating over the whole array. The
/// controller clears the first word, collects the array's keys without the lock, and writes them to
/// the entries. If the first word is still 0 under the lock, there are no other keys.
#[derive(Debug, Clone, Copy)]
pub struct KeyListWords {
    /// Nonzero: a handler inserted a key.
    pub fresh: u32,
    /// Number of keys that the controller wrote; a number above the limit means that it does not
    /// know them.
    pub keys: u32,
}

/// The busy word of a processor in the section. Handlers write their number plus one.
pub const BUSY: i32 = -1;

/// Bytes in front of an entry's key.
pub const ENTRY: u32 = 8;

impl CriticalLayout {
    /// The word that reports insertions of keys into an array.
    #[must_use]
    pub fn insertions_word(&self, g: GlobalId) -> Option<u32> {
        let guarded = self.globals.iter().find(|c| c.global == g)?;
        match &guarded.copy {
            CopyLocation::Elements(copies) => copies.known.map(|k| k.fresh),
            CopyLocation::Words { .. } => None,
        }
    }
}
