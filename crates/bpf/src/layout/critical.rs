//! The controller's critical section, see [`crate::programs::critical_section`]: what it is asked, what it answers, and where
//! the copies are that it makes.

use spile_ir::GlobalId;

use super::ValueLayout;

/// Name of the program.
pub const PROGRAM: &str = "p_critical";

/// Words of the program's context.
pub mod asked {
    /// Which globals are copied, under their locks: a bit for each of [`super::Critical::globals`].
    pub const WANTED: usize = 0;
    /// Which of them are emptied then.
    pub const TAKEN: usize = 1;
    /// How many there are.
    pub const WORDS: usize = 2;
}

/// What the program returns. (0: the kernel did not run it.)
pub mod answer {
    /// It is done.
    pub const DONE: i32 = 1;
    /// Nothing is: a handler holds one of the locks.
    pub const BUSY: i32 = 2;
}

/// The globals that it can copy.
#[derive(Debug, Clone, Default)]
pub struct Critical {
    /// In the order in which locks are taken.
    pub globals: Vec<Guarded>,
    /// The program turns interrupts off itself: it runs where the controller does. Elsewhere it must run on
    /// another processor.
    pub interrupts_off: bool,
}

/// A global with its lock.
#[derive(Debug, Clone)]
pub struct Guarded {
    /// The global.
    pub global: GlobalId,
    /// Offset of its lock in the shared block.
    pub lock: u32,
    /// Where its copy is.
    pub copy: Copied,
}

/// Where a copy is.
#[derive(Debug, Clone)]
pub enum Copied {
    /// A scalar's or statistic's, in the shared block.
    Words {
        /// Offset of the global.
        from: u32,
        /// Offset of the copy.
        to: u32,
        /// What each is.
        value: ValueLayout,
    },
    /// An array's: an entry for each element: a word that is not 0 where the element is there, the key,
    /// and the value.
    Elements {
        /// The array's map.
        from: String,
        /// The map of copies.
        to: String,
        /// Offset of the word in the shared block that says how many there are.
        count: u32,
        /// Bytes of a key.
        key: u32,
        /// Bytes of a value.
        value: u32,
        /// Most elements.
        max: u32,
        /// Where the controller can tell which keys there are.
        known: Option<Known>,
    },
}

/// Words in the shared block by which the section needs not go through the whole array: the controller
/// clears the first, looks without the lock which keys there are, and writes them to the entries. Where the
/// first is still 0 under the lock, there are no others.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Not 0: a handler put in a key.
    pub fresh: u32,
    /// How many keys the controller wrote; more than there can be where it does not know them.
    pub keys: u32,
}

/// Bytes in front of an entry's key.
pub const ENTRY: u32 = 8;

impl Critical {
    /// The word that says that a handler put a key into an array.
    #[must_use]
    pub fn fresh(&self, g: GlobalId) -> Option<u32> {
        let guarded = self.globals.iter().find(|c| c.global == g)?;
        match &guarded.copy {
            Copied::Elements { known, .. } => known.map(|k| k.fresh),
            Copied::Words { .. } => None,
        }
    }
}
