//! Initial values of state-memory words that kernel handlers read, stored before anything is
//! attached.

use std::sync::atomic::Ordering;

use spile_layout::shared;

use crate::machine::clock;
use crate::machine::direct_map;
use crate::shared::state::StateMemory;

/// Stores the word that marks deferred strings.
pub(crate) fn set_mark(state: &StateMemory, mark: &[u8]) {
    for offset in [0, 8] {
        let word = crate::shared::state::word_of(mark, offset);
        state
            .shared(shared::MARK + offset)
            .store(word, Ordering::Relaxed);
    }
}

/// Stores the addresses with which kernel handlers find pages of files, if they can be determined.
pub(crate) fn set_page_words(state: &StateMemory) {
    let Some(locations) = direct_map::find() else {
        return;
    };
    for (offset, word) in [
        (shared::PAGES, locations.pages),
        (shared::MEMORY, locations.memory),
    ] {
        state.shared(offset).store(word, Ordering::Relaxed);
    }
}

/// Stores the session's words: target, clocks, time zone.
pub(crate) fn set_shared_words(state: &StateMemory, target: i64) {
    let zone = clock::zone();
    let mut name = [0u8; 16];
    let len = zone.name.len().min(15);
    name[..len].copy_from_slice(&zone.name.as_bytes()[..len]);
    let words = [
        (shared::RUNNING, 0),
        (shared::TARGET, target.cast_unsigned()),
        (shared::CLOCK_OFFSET, clock::offset_ns().cast_unsigned()),
        (shared::TZ_OFFSET, zone.west.cast_unsigned()),
        (shared::TZ_NAME, crate::shared::state::word_of(&name, 0)),
        (shared::TZ_NAME + 8, crate::shared::state::word_of(&name, 8)),
    ];
    for (offset, word) in words {
        state.shared(offset).store(word, Ordering::Relaxed);
    }
}
