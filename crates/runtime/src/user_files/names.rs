//! Tables of symbols for kernel handlers that look at names themselves: see
//! [`spile_bpf::layout::symbol_row`].

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use spile_bpf::layout::{BEHIND, symbol_row};
use spile_debuginfo::{Image, Module, SymbolKind, Symbols};
use spile_kernel::bpf::Map;

use crate::state::Memory;

/// Bit 31 of a place: it is in memory behind what is in the file.
const BEHIND_BIT: u64 = 1 << 31;
/// How far a function without a size reaches at most.
const UNSIZED: u64 = 1 << 20;

/// Where handlers of signals return to: `mov $15,%rax; syscall`. The symbol is the library's own,
/// which files without debugging information lack.
const RETURN_OF_SIGNALS: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// The symbol at a place: its start and size as linked, and its name; or none, with the linked
/// address.
#[derive(Debug, PartialEq, Eq, Hash, Clone)]
struct Named {
    base: u64,
    size: u64,
    name: String,
}

/// The maps that handlers search.
pub struct NameTables {
    files: Map<OwnedFd>,
    rows: OwnedFd,
    names: OwnedFd,
    rows_used: usize,
    words_used: usize,
}

impl NameTables {
    /// In these maps: of files, of rows, of names.
    pub fn new(files: OwnedFd, rows: OwnedFd, names: OwnedFd) -> Option<NameTables> {
        Some(NameTables {
            files: Map::new(files).ok()?,
            rows,
            names,
            rows_used: 0,
            // 0 is no name.
            words_used: 1,
        })
    }

    /// Loads a file's symbols; false where there is no room.
    pub fn add(&mut self, number: u64, path: &str, module: Option<&Module>) -> bool {
        let found = module.map(rows_of).unwrap_or_default();
        let mut words = Vec::new();
        let mut known: HashMap<&Named, u64> = HashMap::new();
        let first_word = self.words_used as u64;
        let mut rows = Vec::with_capacity(found.len());
        for (start, named) in &found {
            let at = *known.entry(named).or_insert_with(|| {
                let at = first_word + words.len() as u64;
                push(&mut words, named.base, named.size, &named.name);
                at
            });
            rows.push(*start | at << 32);
        }
        let name_at = first_word + words.len() as u64;
        let base = path.rfind('/').map_or(0, |at| at as u64 + 1);
        push(&mut words, base, module.map_or(0, loaded_size), path);
        let fits = self.rows_used + rows.len() <= symbol_row::MAX as usize
            && 8 * (self.words_used + words.len()) <= symbol_row::NAMES as usize;
        if !fits
            || write(&self.rows, self.rows_used, &rows).is_err()
            || write(&self.names, self.words_used, &words).is_err()
        {
            return false;
        }
        let value = [self.rows_used as u64, rows.len() as u64, name_at];
        self.rows_used += rows.len();
        self.words_used += words.len();
        let value = value.map(u64::to_ne_bytes).concat();
        self.files.update(&number.to_ne_bytes(), &value, 0).is_ok()
    }
}

/// Bytes that a file takes in memory, as texts of places have it.
pub fn loaded_size(module: &Module) -> u64 {
    let segments = module.image().segments().iter();
    let ends = segments.map(|s| s.address.saturating_add(s.file_size));
    ends.max().unwrap_or(0)
}

/// Appends a name.
fn push(words: &mut Vec<u64>, base: u64, size: u64, name: &str) {
    words.extend([base, size]);
    // A NUL is behind it in any case.
    let bytes: Vec<u8> = name.bytes().filter(|b| *b != 0).collect();
    for i in 0..bytes.len() / 8 + 1 {
        let mut word = [0; 8];
        let part = &bytes[8 * i..bytes.len().min(8 * i + 8)];
        word[..part.len()].copy_from_slice(part);
        words.push(u64::from_ne_bytes(word));
    }
}

/// Writes words to a map's memory, of which only their pages are mapped.
fn write(map: &OwnedFd, first: usize, words: &[u64]) -> io::Result<()> {
    if words.is_empty() {
        return Ok(());
    }
    let page = rustix::param::page_size() / 8;
    let from = first / page * page;
    let to = (first + words.len()).next_multiple_of(page);
    let memory = Memory::map(map.as_fd(), 8 * from as u64, 8 * (to - from))?;
    for (to, word) in memory.words()[first - from..].iter().zip(words) {
        // Handlers look there when the file is told to them, which is a system call.
        to.store(*word, Ordering::Relaxed);
    }
    Ok(())
}

/// Linked address of a place, as [`spile_bpf::layout::BEHIND`] says.
pub fn linked_at(image: &Image, place: u64) -> Option<u64> {
    let offset = place & !BEHIND;
    if place & BEHIND != 0 {
        return image.address_behind(offset);
    }
    let in_file = image.address_of_offset(offset);
    in_file.or_else(|| image.address_behind(offset))
}

/// The symbol at a linked address: name as in the source, distance from its start, size.
pub fn symbol_at(image: &Image, symbols: &Symbols<'_>, linked: u64) -> Option<(String, u64, u64)> {
    let symbol = if image.is_code(linked) {
        symbols.function_at(linked)
    } else {
        symbols.data_at(linked)
    };
    let Some((s, offset)) = symbol else {
        let returns = image.at(linked, RETURN_OF_SIGNALS.len()) == Some(RETURN_OF_SIGNALS);
        return returns.then(|| ("__restore_rt".to_owned(), 0, 0));
    };
    let name = spile_debuginfo::demangle::short(s.name);
    let name = name.unwrap_or_else(|| s.name.to_owned());
    Some((name, offset, s.size))
}

/// A file's rows: places at which another symbol begins, or none.
fn rows_of(module: &Module) -> Vec<(u64, Named)> {
    let (image, symbols) = (module.image(), module.symbols());
    let mut places = Vec::new();
    let mut addresses: Vec<u64> = Vec::new();
    for s in symbols.all() {
        let size = match s.kind {
            SymbolKind::Tls => continue,
            SymbolKind::Data => s.size.max(1),
            SymbolKind::Func | SymbolKind::IFunc if s.size == 0 => UNSIZED,
            SymbolKind::Func | SymbolKind::IFunc => s.size,
        };
        addresses.extend([s.address, s.address.saturating_add(size)]);
    }
    addresses.sort_unstable();
    addresses.dedup();
    let fits = |offset: &u64| *offset < BEHIND_BIT;
    for s in image.segments() {
        let ends = [s.file_size, s.mem_size].map(|size| s.address.saturating_add(size));
        let from = addresses.partition_point(|a| *a < s.address);
        let to = addresses.partition_point(|a| *a <= ends[1]);
        let inside = addresses.get(from..to).unwrap_or_default();
        for address in inside.iter().copied().chain([s.address, ends[0], ends[1]]) {
            let offset = s.offset.wrapping_add(address.wrapping_sub(s.address));
            if fits(&offset) {
                places.push(offset);
                if address >= ends[0] {
                    places.push(offset | BEHIND_BIT);
                }
            }
        }
    }
    places.sort_unstable();
    places.dedup();
    let mut rows: Vec<(u64, Named)> = Vec::new();
    for place in places {
        let offset = place & !BEHIND_BIT;
        let behind = if place == offset { 0 } else { BEHIND };
        let linked = linked_at(image, offset | behind);
        let symbol = linked.and_then(|l| symbol_at(image, symbols, l));
        let named = match symbol {
            Some((name, distance, size)) => Named {
                base: offset.wrapping_sub(distance),
                size,
                name,
            },
            None => Named {
                base: offset.wrapping_sub(linked.unwrap_or(0)),
                size: 0,
                name: String::new(),
            },
        };
        if rows.last().is_none_or(|r| r.1 != named) {
            rows.push((place, named));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use spile_debuginfo::Search;

    use super::*;

    #[test]
    fn rows_say_what_a_look_up_says() {
        let path = Path::new("/proc/self/exe");
        let module = Module::open(path, &Search::from_env()).expect("own program");
        let rows = rows_of(&module);
        assert!(rows.len() > 1000 && rows.is_sorted_by_key(|r| r.0));
        let (image, symbols) = (module.image(), module.symbols());
        let (mut named, mut bare) = (0, 0);
        for s in image.segments() {
            for step in 0..4000 {
                let offset = s.offset + step * (s.file_size / 4000 + 1);
                let Some(linked) = image.address_of_offset(offset) else {
                    continue;
                };
                let at = rows.partition_point(|r| r.0 <= offset) - 1;
                let row = &rows[at].1;
                match symbol_at(image, symbols, linked) {
                    Some((name, distance, size)) => {
                        let found = (row.name.clone(), offset - row.base, row.size);
                        assert_eq!(found, (name, distance, size));
                        named += 1;
                    }
                    None => {
                        assert_eq!((&*row.name, offset.wrapping_sub(row.base)), ("", linked));
                        bare += 1;
                    }
                }
            }
        }
        assert!(named > 1000 && bare > 0, "{named} {bare}");
    }

    #[test]
    fn names_are_words() {
        let mut words = Vec::new();
        push(&mut words, 1, 2, "12345678");
        push(&mut words, 3, 4, "");
        let text = u64::from_ne_bytes(*b"12345678");
        assert_eq!(words, [1, 2, text, 0, 3, 4, 0]);
    }
}
