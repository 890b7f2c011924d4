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

/// Sections with stubs, and the size of a stub in bytes (psABI; 8 in `.plt.got` without CET).
const SECTIONS: [(&str, usize); 3] = [(".plt", 16), (".plt.sec", 16), (".plt.got", 8)];

/// `jmp *disp32(%rip)`
const JUMP: [u8; 2] = [0xff, 0x25];
/// `endbr64`
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const EM_X86_64: u16 = 62;

/// The entries in order of address. A stub counts only if it jumps through a slot that a relocation
/// fills with a named symbol; this holds for every layout that linkers use on x86-64.
#[must_use]
pub fn entries(image: &Image) -> Vec<PltEntry<'_>> {
    if image.machine() != EM_X86_64 {
        return Vec::new();
    }
    let slots = slots(image);
    let mut found = Vec::new();
    for (section, step) in SECTIONS {
        let Some((base, code)) = image.loaded_section(section) else {
            continue;
        };
        let mut last = None;
        for at in (0..code.len()).step_by(step) {
            let Some(slot) = jump_slot(base, code, at) else {
                continue;
            };
            // A stub of 16 bytes in a section with a step of 8 is listed once.
            if let Some(&name) = slots.get(&slot)
                && last != Some(slot)
            {
                last = Some(slot);
                found.push(PltEntry {
                    name,
                    address: base.wrapping_add(at as u64),
                });
            }
        }
    }
    found.sort_by_key(|p| p.address);
    found
}

/// The slot that the stub at an offset jumps through.
fn jump_slot(base: u64, code: &[u8], at: usize) -> Option<u64> {
    let mut pc = at;
    if code.get(pc..pc + 4) == Some(&ENDBR) {
        pc += 4;
    }
    // `bnd` prefix
    if code.get(pc) == Some(&0xf2) {
        pc += 1;
    }
    if code.get(pc..pc + 2) != Some(&JUMP) {
        return None;
    }
    let disp = i32::from_le_bytes(code.get(pc + 2..pc + 6)?.try_into().ok()?);
    Some(
        base.wrapping_add(pc as u64 + 6)
            .wrapping_add(disp as i64 as u64),
    )
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
