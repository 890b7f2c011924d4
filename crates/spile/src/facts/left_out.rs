//! Places in programs that match a point and are left out, each with the reason.

use std::sync::{Mutex, PoisonError};

/// The places that were left out so far.
#[derive(Default)]
pub(crate) struct LeftOut(Mutex<Vec<String>>);

impl LeftOut {
    /// Adds places. Those that are there stay once: analysis can ask for a point more than once.
    pub(super) fn add(&self, places: impl IntoIterator<Item = String>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for text in places {
            if !all.contains(&text) {
                all.push(text);
            }
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }
}
