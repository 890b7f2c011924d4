//! Entries of the procedure linkage table (PLT), through which a file calls functions of other
//! files.

use std::collections::HashMap;

use crate::image::Image;
use crate::relocations::{self, Relocation, SlotValue};

/// The stub for a function of another file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PltEntry<'a> {
    /// The function.
    pub name: &'a str,
    /// Linked address of the entry.
    pub address: u64,
}

/// The entries in order of address. A stub counts only if it jumps through a slot that a relocation
/// fills with a named symbol.
#[must_use]
pub fn entries(image: &Image) -> Vec<PltEntry<'_>> {
    let Some(known) = image.instructions() else {
        return Vec::new();
    };
    let slots = slots(image);
    let mut entries = Vec::new();
    for &(section, step) in known.stubs {
        let Some((base, code)) = image.loaded_section(section) else {
            continue;
        };
        let mut last = None;
        for offset in (0..code.len()).step_by(step) {
            let Some(slot) = (known.stub_slot)(base, code, offset) else {
                continue;
            };
            // A stub of 16 bytes in a section with a step of 8 is listed once.
            if let Some(&name) = slots.get(&slot)
                && last != Some(slot)
            {
                last = Some(slot);
                entries.push(PltEntry {
                    name,
                    address: base.wrapping_add(offset as u64),
                });
            }
        }
    }
    entries.sort_by_key(|p| p.address);
    entries
}

/// Slots that the dynamic linker fills, with the names of the symbols.
fn slots(image: &Image) -> HashMap<u64, &str> {
    fn named(r: Relocation<'_>) -> Option<(u64, &str)> {
        match r.value {
            SlotValue::Symbol { name, .. } => Some((r.slot, name)),
            _ => None,
        }
    }
    relocations::of(image)
        .into_iter()
        .filter_map(named)
        .collect()
}
