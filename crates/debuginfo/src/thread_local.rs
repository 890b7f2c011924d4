//! Thread-local variables: where a thread has a module's block of them (ELF Handling For
//! Thread-Local Storage, variant II; the tables are those of glibc).

use object::read::elf::{ProgramHeader, Rela, SectionHeader, Sym};
use object::{LittleEndian, elf};

use crate::dynamic;
use crate::image::Image;
use crate::loc_program::{LocBinary, LocStep, Unavailable};

/// In the dynamic linker's table: the file is a position-independent executable.
const FLAG_PIE: u64 = 0x0800_0000;

const ADD: LocStep = LocStep::Binary(LocBinary::Add);
const LOAD: LocStep = LocStep::Load { size: 8 };

/// The offset in its block of a variable whose entry refers to the table of addresses. clang has the
/// offset there. gcc 12 has the address in the block's initial image: it emits `.quad name` where its
/// other debugging information has `name@dtpoff`.
pub(crate) fn offset_of_index(image: &Image, value: i64) -> Result<i64, Unavailable> {
    let e = LittleEndian;
    let mut headers = image.elf().elf_program_headers().iter();
    let block = headers.find(|p| p.p_type(e) == elf::PT_TLS);
    let (start, size) = block.map_or((0, 0), |p| (p.p_vaddr(e), p.p_memsz(e)));
    offset_in(start.cast_signed(), size.cast_signed(), value).ok_or_else(|| {
        Unavailable::new(
            "it is a thread-local variable whose location in split debugging information has two \
             meanings; compile without -gsplit-dwarf",
        )
    })
}

fn offset_in(start: i64, size: i64, value: i64) -> Option<i64> {
    let from_start = value.checked_sub(start)?;
    let block = 0..size;
    match (block.contains(&value), block.contains(&from_start)) {
        (true, false) => Some(value),
        (false, true) => Some(from_start),
        _ => None,
    }
}

/// A program that computes the address of the current thread's block of a module.
pub(crate) fn block(image: &Image) -> Result<Vec<LocStep>, Unavailable> {
    let unknown = |why: &str| Unavailable::because(format!("it is a thread-local variable, {why}"));
    let abi = image.abi();
    let Some(abi) = abi.filter(|abi| abi.kernel.thread_pointer.is_some()) else {
        return unknown("which this processor keeps in a register that the kernel does not save");
    };
    let e = LittleEndian;
    let mut headers = image.elf().elf_program_headers().iter();
    let Some(segment) = headers.find(|p| p.p_type(e) == elf::PT_TLS) else {
        return unknown("and its file has no block of them");
    };
    if is_executable(image) {
        // The executable's block ends at the thread pointer.
        let size = segment
            .p_memsz(e)
            .checked_next_multiple_of(segment.p_align(e).max(1));
        let Some(size) = size.and_then(|s| i64::try_from(s).ok()) else {
            return unknown("and its block has no size");
        };
        return Ok(vec![LocStep::ThreadPointer, LocStep::Const(-size), ADD]);
    }
    let libraries = dynamic::needs(image).libraries;
    if libraries
        .iter()
        .any(|l| l.starts_with("libc.musl") || l == "libc.so")
    {
        return unknown("whose block only glibc's tables have");
    }
    if let Some(slot) = slot(image, abi.relocations.tls_module) {
        return Ok(of_module(slot.address));
    }
    match slot(image, abi.relocations.tls_distance) {
        Some(Slot { address, offset }) => Ok([LocStep::ThreadPointer]
            .into_iter()
            .chain(word(address))
            .chain([ADD, LocStep::Const(-offset), ADD])
            .collect()),
        None => unknown("and no word of its library says where the thread has it"),
    }
}

/// The word at a linked address.
fn word(address: u64) -> [LocStep; 4] {
    [
        LocStep::Const(address.cast_signed()),
        LocStep::Bias,
        ADD,
        LOAD,
    ]
}

/// The block by the number of the module in a word. An address near 0, which cannot be read, where
/// the thread has no block yet.
fn of_module(slot: u64) -> Vec<LocStep> {
    let number = word(slot);
    let table = [LocStep::ThreadPointer, LocStep::Const(8), ADD, LOAD];
    let mut ops = Vec::new();
    // Entry n of the table has 16 bytes, its first word is the block's address, or -1.
    ops.extend(table);
    ops.extend(number);
    ops.extend([
        LocStep::Const(16),
        LocStep::Binary(LocBinary::Mul),
        ADD,
        LOAD,
    ]);
    // The number of entries stands in front.
    ops.extend(number);
    ops.extend(table);
    ops.extend([LocStep::Const(-16), ADD, LOAD]);
    ops.extend([LocStep::Binary(LocBinary::Le), LocStep::Neg]);
    ops.push(LocStep::Binary(LocBinary::And));
    ops
}

fn is_executable(image: &Image) -> bool {
    if !image.position_independent() {
        return true;
    }
    let entries = image.dynamic_entries();
    let named = entries.iter().any(|entry| entry.0 == elf::DT_SONAME);
    let pie = |(tag, value): &(_, u64)| *tag == elf::DT_FLAGS_1 && value & FLAG_PIE != 0;
    entries.iter().any(pie) || image.is_program() && !named
}

/// A word that the loader fills for a variable of the module itself.
struct Slot {
    address: u64,
    /// The variable's offset in the block.
    offset: i64,
}

/// The first such word, one of the module itself if there is one: a variable that other files see can
/// be another file's, if that has the name, too.
fn slot(image: &Image, kind: u32) -> Option<Slot> {
    slot_of(image, kind, true).or_else(|| slot_of(image, kind, false))
}

fn slot_of(image: &Image, kind: u32, local: bool) -> Option<Slot> {
    let e = LittleEndian;
    let data = image.elf().data();
    let sections = image.elf().elf_section_table();
    sections.iter().find_map(|section| {
        if !section.sh_flags(e).contains(elf::SHF_ALLOC) {
            return None;
        }
        let (entries, link) = section.rela(e, data).ok()??;
        let symbols = sections.symbol_table_by_index(e, data, link).ok();
        entries.iter().find_map(|entry| {
            if entry.r_type(e, false).0 != kind {
                return None;
            }
            // Without a symbol, it is the module's own block.
            let value = match entry.symbol(e, false) {
                None => 0,
                Some(index) => {
                    let symbol = symbols.as_ref()?.symbol(index).ok()?;
                    let wanted = !local || symbol.st_bind() == elf::STB_LOCAL;
                    if symbol.st_shndx(e) == elf::SHN_UNDEF || !wanted {
                        return None;
                    }
                    symbol.st_value(e)
                }
            };
            Some(Slot {
                address: entry.r_offset(e),
                offset: entry.r_addend(e).wrapping_add(value.cast_signed()),
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::offset_in;

    #[test]
    fn an_indexed_offset_has_one_meaning_or_none() {
        assert_eq!(offset_in(0x3dc0, 0x34, 0x30), Some(0x30));
        assert_eq!(offset_in(0x3dc0, 0x34, 0x3df0), Some(0x30));
        assert_eq!(offset_in(0x3dc0, 0x34, 0x34), None);
        assert_eq!(offset_in(0x3dc0, 0x4000, 0x3dc8), None);
        assert_eq!(offset_in(i64::MIN, 8, 1), None);
    }
}
