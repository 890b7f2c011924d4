//! Notes about locations in programs that match a point: each names a location, and why it is left out or
//! counted inexactly.

use std::sync::{Mutex, PoisonError};

/// The notes so far.
#[derive(Default)]
pub(crate) struct LocationNotes(Mutex<Vec<String>>);

impl LocationNotes {
    /// Adds notes. Each stays once: analysis can ask for a point more than once.
    pub(super) fn add(&self, notes: impl IntoIterator<Item = String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for text in notes {
            if !known.contains(&text) {
                known.push(text);
            }
        }
    }

    /// All notes, in order.
    pub(crate) fn all(&self) -> Vec<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }
}
