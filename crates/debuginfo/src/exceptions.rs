//! Whether exceptions pass through the frames of a program. C++ exceptions, Rust's panics and the
//! like search for a frame that catches them by calling the routines (*personalities*) that the
//! unwind tables name.

use gimli::{CieOrFde, EhFrame, EndianSlice, Pointer, UnwindSection};
use object::{LittleEndian as Little, Object, RelocationTarget, read::elf::Sym};

use crate::cfi;
use crate::image::Image;
use crate::module::Module;

/// The personality of C, which runs clean-ups on the way and catches nothing.
const OF_C: &str = "__gcc_personality_v0";

/// The personality by which functions of a file catch exceptions, if one does: its name, or a
/// substitute if the file is stripped.
#[must_use]
pub fn caught_by(module: &Module) -> Option<String> {
    let image = module.image();
    let (section, bases) = cfi::eh_frame(image)?;
    let mut of_c: Vec<Pointer> = Vec::new();
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(|s: &EhFrame<EndianSlice<'_, _>>, b, o| s.cie_from_offset(b, o));
        let Some(fde) = fde.ok().filter(|f| f.lsda().is_some()) else {
            continue;
        };
        let Some(routine) = fde.personality().filter(|p| !of_c.contains(p)) else {
            continue;
        };
        match name(module, routine) {
            Some(name) if name == OF_C => of_c.push(routine),
            Some(name) => return Some(name),
            None => return Some("a routine without a name".into()),
        }
    }
    None
}

/// The name of a personality.
fn name(module: &Module, routine: Pointer) -> Option<String> {
    let at = match routine {
        Pointer::Direct(at) => at,
        Pointer::Indirect(slot) => match word_value(module.image(), slot)? {
            WordValue::By(name) => return Some(name),
            WordValue::With(at) => at,
        },
    };
    let named = module.symbols().starting_at(at).next();
    named.map(|s| s.name.to_owned())
}

/// The run-time value of a word of a file.
enum WordValue {
    By(String),
    With(u64),
}

fn word_value(image: &Image, slot: u64) -> Option<WordValue> {
    let table = image.elf().elf_dynamic_symbol_table();
    let mut all = image.elf().dynamic_relocations().into_iter().flatten();
    if let Some((_, relocation)) = all.find(|(at, _)| *at == slot) {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return Some(WordValue::With(relocation.addend() as u64));
        };
        let name = table
            .symbol(index)
            .ok()?
            .name(Little, table.strings())
            .ok()?;
        return Some(WordValue::By(String::from_utf8_lossy(name).into_owned()));
    }
    let from = usize::try_from(image.file_offset(slot)?).ok()?;
    let word = image.bytes().get(from..)?.first_chunk()?;
    Some(WordValue::With(u64::from_le_bytes(*word)))
}
