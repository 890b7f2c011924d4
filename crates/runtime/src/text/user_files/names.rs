//! Tables of symbols and lines for kernel handlers that inspect names: see
//! [`spile_layout::symbol_row`]. They are built from a file alone, in any thread, and copied
//! to the maps' memory when they are complete.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use spile_cast::Cast;
use spile_debuginfo::{DebugFile, ElfSymbol, ElfSymbols, Image, LinesFrom, SymbolKind};
use spile_layout::{BEHIND, LINE_ROWS_MAP, NAMES_MAP, SYMBOL_ROWS_MAP, SYMBOLS_MAP, symbol_row};

use crate::error::Error;
use crate::machine::parallel::compute;
use crate::shared::maps::{ByteTable, HostTables};
use crate::shared::state::HostMemory;

/// Bit 31 of a position: it is in memory behind the file's content.
const BEHIND_BIT: u64 = 1 << 31;
/// Limit on the extent of a function without a size.
const UNSIZED: u64 = 1 << 20;
/// From this number of names on, several threads demangle them.
const MANY: usize = 4096;
/// Limit on the number of these threads.
const MOST_THREADS: usize = 8;

/// The tables of one file. Positions of names count from the file's first name, which is its path.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FileTables {
    rows: Vec<u64>,
    words: Vec<u64>,
    /// First position, position of the source file's name or 0, line.
    lines: Vec<[u32; 3]>,
}

/// The tables that handlers search.
pub struct NameTables {
    files: Box<dyn ByteTable>,
    rows: HostMemory,
    names: HostMemory,
    lines: Option<HostMemory>,
    rows_used: usize,
    words_used: usize,
    lines_used: usize,
}

impl NameTables {
    /// The tables of a host, with those of lines if they are needed.
    ///
    /// # Errors
    /// The host does not give out a table.
    pub fn new(tables: &dyn HostTables, lines: bool) -> Result<NameTables, Error> {
        let lines = lines.then(|| tables.memory(LINE_ROWS_MAP));
        Ok(NameTables {
            files: tables.table(SYMBOLS_MAP)?,
            rows: tables.memory(SYMBOL_ROWS_MAP)?,
            names: tables.memory(NAMES_MAP)?,
            lines: lines.transpose()?,
            rows_used: 0,
            // Position 0 means no name.
            words_used: 1,
            lines_used: 0,
        })
    }

    /// Whether lines are needed.
    pub fn with_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// Loads a file's tables; false if they do not fit.
    pub fn add(&mut self, number: u64, tables: &FileTables) -> bool {
        let FileTables { rows, words, lines } = tables;
        let fits = self.rows_used + rows.len() <= symbol_row::MAX as usize
            && 8 * (self.words_used + words.len()) <= symbol_row::NAMES as usize;
        let with_lines = self.lines_used + lines.len() <= symbol_row::MAX_LINES as usize;
        let first = self.words_used as u64;
        let placed = rows.iter().map(|row| row + (first << 32));
        if !fits
            || write(&self.rows, self.rows_used, placed).is_err()
            || write(&self.names, self.words_used, words.iter().copied()).is_err()
        {
            return false;
        }
        let mut value = [self.rows_used, rows.len(), self.words_used, 0, 0];
        if let Some(map) = self.lines.as_ref().filter(|_| with_lines) {
            let packed = lines.iter().flat_map(|[start, file, line]| {
                let file = if *file == 0 {
                    0
                } else {
                    u64::from(*file) + first
                };
                [u64::from(*start) | file << 32, u64::from(*line)]
            });
            if write(map, 2 * self.lines_used, packed).is_ok() {
                value[3..].copy_from_slice(&[self.lines_used, lines.len()]);
                self.lines_used += lines.len();
            }
        }
        self.rows_used += rows.len();
        self.words_used += words.len();
        let value = value.map(|v| (v as u64).to_ne_bytes()).concat();
        matches!(self.files.set(&number.to_ne_bytes(), &value), Ok(true)) && with_lines
    }
}

impl FileTables {
    /// The tables of a file with that path; with its lines if `lines` is set.
    pub fn new(path: &str, module: Option<&DebugFile>, lines: bool) -> FileTables {
        let mut tables = FileTables::default();
        let base = path.rfind('/').map_or(0, |slash| slash as u64 + 1);
        push(&mut tables.words, base, module.map_or(0, loaded_size), path);
        if let Some(module) = module {
            tables.add_symbols(module);
            if lines {
                tables.add_lines(module);
            }
        }
        tables
    }

    fn add_symbols(&mut self, module: &DebugFile) {
        let rows = rows_of(module);
        let mut mangled: Vec<&str> = rows.iter().filter_map(|r| r.1.name).collect();
        mangled.sort_unstable();
        mangled.dedup();
        let names: HashMap<&str, String> =
            mangled.iter().copied().zip(readable(&mangled)).collect();
        let mut offsets: HashMap<SymbolRow<'_>, u64> = HashMap::with_capacity(rows.len());
        self.rows.reserve(rows.len());
        for (start, row) in rows {
            let offset = *offsets.entry(row).or_insert_with_key(|row| {
                let offset = self.words.len() as u64;
                let name = row.name.and_then(|n| names.get(n));
                push(&mut self.words, row.base, row.size, name.map_or("", |n| n));
                offset
            });
            self.rows.push(start | offset << 32);
        }
    }

    fn add_lines(&mut self, module: &DebugFile) {
        let Some(dwarf) = module.dwarf() else {
            return;
        };
        let image = module.image();
        let mut files: HashMap<Arc<str>, u32> = HashMap::new();
        let mut lines: Vec<[u32; 3]> = Vec::new();
        for LinesFrom { address, location } in dwarf.all_lines() {
            let before = || image.file_offset(address.wrapping_sub(1));
            let behind = || before().and_then(|o| o.checked_add(1));
            let offset = image.file_offset(address).or_else(behind);
            let offset = offset.and_then(|o| u32::try_from(o).ok());
            let Some(offset) = offset.filter(|o| u64::from(*o) < BEHIND_BIT) else {
                continue;
            };
            let (file, line) = match location {
                Some((file, line)) => {
                    let name = *files.entry(file).or_insert_with_key(|file| {
                        let name = self.words.len().fit::<u32>();
                        push(&mut self.words, 0, 0, &spile_plain::name(file));
                        name
                    });
                    (name, line)
                }
                None => (0, 0),
            };
            lines.push([offset, file, line]);
        }
        lines.sort_by_key(|l| l[0]);
        // The last line of a position counts.
        lines.reverse();
        lines.dedup_by_key(|l| l[0]);
        lines.reverse();
        lines.dedup_by(|b, a| a[1..] == b[1..]);
        self.lines = lines;
    }
}

/// Demangles names and removes terminal control characters; keeps the order.
fn readable(mangled: &[&str]) -> Vec<String> {
    let readable_name = |name: &&str| {
        let short = spile_debuginfo::demangle::short_name(name);
        let name = short.as_deref().unwrap_or(name);
        spile_plain::name(name).into_owned()
    };
    let threads = match mangled.len() {
        0..MANY => 1,
        _ => MOST_THREADS,
    };
    let part = mangled.len().div_ceil(threads).max(1);
    let parts = mangled.chunks(part).collect();
    let parts = compute(parts, threads, |names| {
        names.iter().map(readable_name).collect::<Vec<_>>()
    });
    parts.into_iter().flatten().collect()
}

/// Size of a file in memory, as texts print it.
pub fn loaded_size(module: &DebugFile) -> u64 {
    let segments = module.image().segments().iter();
    let ends = segments.map(|s| s.address.saturating_add(s.file_size));
    ends.max().unwrap_or(0)
}

/// Appends a name.
fn push(words: &mut Vec<u64>, base: u64, size: u64, name: &str) {
    words.extend([base, size]);
    // A NUL follows in any case.
    let bytes: Vec<u8> = name.bytes().filter(|b| *b != 0).collect();
    for i in 0..bytes.len() / 8 + 1 {
        let mut word = [0; 8];
        let part = &bytes[8 * i..bytes.len().min(8 * i + 8)];
        word[..part.len()].copy_from_slice(part);
        words.push(u64::from_ne_bytes(word));
    }
}

/// Writes words to a table's memory. Only the affected pages are mapped, and only for this time: the whole table
/// would count as the session's memory.
pub(crate) fn write(
    map: &HostMemory,
    first: usize,
    words: impl Iterator<Item = u64>,
) -> io::Result<()> {
    let words: Vec<u64> = words.collect();
    if words.is_empty() {
        return Ok(());
    }
    let page = rustix::param::page_size() / 8;
    let from = first / page * page;
    let to = (first + words.len()).next_multiple_of(page);
    let memory = map.map(8 * from as u64, 8 * (to - from))?;
    for (to, word) in memory.words()[first - from..].iter().zip(words) {
        // Handlers look here once the file is in the map of files, which takes a system call.
        to.store(word, Ordering::Relaxed);
    }
    Ok(())
}

/// Link-time address of a position, see [`spile_layout::BEHIND`].
pub fn linked_at(image: &Image, location: u64) -> Option<u64> {
    let offset = location & !BEHIND;
    if location & BEHIND != 0 {
        return image.address_behind(offset);
    }
    let in_file = image.address_of_offset(offset);
    in_file.or_else(|| image.address_behind(offset))
}

/// The symbol at a link-time address, under its name in the file, and the distance from its start.
fn found_at<'s>(
    image: &Image,
    symbols: &'s ElfSymbols<'_>,
    linked: u64,
) -> Option<(&'s ElfSymbol<'s>, u64)> {
    if image.is_code(linked) {
        symbols.function_at(linked)
    } else {
        symbols.data_at(linked)
    }
}

/// The name of the code at this address, if it is that to which signal handlers return. Its symbol is local to
/// the library, and missing without debugging information.
fn returns_from_signal(image: &Image, linked: u64) -> Option<&'static str> {
    let patterns = &image.abi()?.unwind;
    let code = image.bytes_at(linked, patterns.signal_return.len())?;
    (code == patterns.signal_return).then_some(patterns.signal_return_name)
}

/// The symbol at a link-time address: demangled name, distance from its start, size.
pub fn symbol_at(
    image: &Image,
    symbols: &ElfSymbols<'_>,
    linked: u64,
) -> Option<(String, u64, u64)> {
    let Some((s, offset)) = found_at(image, symbols, linked) else {
        return returns_from_signal(image, linked).map(|name| (name.to_owned(), 0, 0));
    };
    let name = spile_debuginfo::demangle::short_name(s.name);
    let name = name.unwrap_or_else(|| s.name.to_owned());
    Some((name, offset, s.size))
}

/// The symbol at a position: the position from which its offsets count, its size, its name in the
/// file. Or no name, and the distance to link-time addresses.
#[derive(Debug, PartialEq, Eq, Hash, Clone, Copy)]
struct SymbolRow<'a> {
    base: u64,
    size: u64,
    name: Option<&'a str>,
}

/// A file's rows: positions at which another symbol or a gap begins.
fn rows_of(module: &DebugFile) -> Vec<(u64, SymbolRow<'_>)> {
    let (image, symbols) = (module.image(), module.symbols());
    let mut rows: Vec<(u64, SymbolRow<'_>)> = Vec::new();
    for location in edges(image, symbols) {
        let offset = location & !BEHIND_BIT;
        let flag = if location == offset { 0 } else { BEHIND };
        let linked = linked_at(image, offset | flag);
        let row = match linked.and_then(|l| found_at(image, symbols, l)) {
            Some((symbol, distance)) => SymbolRow {
                base: offset.wrapping_sub(distance),
                size: symbol.size,
                name: Some(symbol.name),
            },
            None => {
                let name = linked.and_then(|l| returns_from_signal(image, l));
                SymbolRow {
                    base: match name {
                        Some(_) => offset,
                        None => offset.wrapping_sub(linked.unwrap_or(0)),
                    },
                    size: 0,
                    name,
                }
            }
        };
        if rows.last().is_none_or(|r| r.1 != row) {
            rows.push((location, row));
        }
    }
    rows
}

/// Positions at which a symbol can begin or end, in order.
fn edges(image: &Image, symbols: &ElfSymbols<'_>) -> Vec<u64> {
    let mut locations = Vec::new();
    let mut addresses: Vec<u64> = Vec::with_capacity(2 * symbols.all().len());
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
                locations.push(offset);
                if address >= ends[0] {
                    locations.push(offset | BEHIND_BIT);
                }
            }
        }
    }
    locations.sort_unstable();
    locations.dedup();
    locations
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use spile_debuginfo::SearchPaths;

    use super::*;

    /// Base, size and text of the name at that position.
    fn named(tables: &FileTables, at: u64) -> (u64, u64, String) {
        let at = at as usize;
        let bytes = tables.words[at + 2..].iter().flat_map(|w| w.to_ne_bytes());
        let text = bytes.take_while(|b| *b != 0).collect();
        let text = String::from_utf8(text).expect("a name");
        (tables.words[at], tables.words[at + 1], text)
    }

    #[test]
    fn rows_say_what_a_look_up_says() {
        let path = Path::new("/proc/self/exe");
        let module = DebugFile::open(path, &SearchPaths::from_env()).expect("own program");
        let tables = FileTables::new("/a/b", Some(&module), false);
        let rows = &tables.rows;
        assert_eq!(named(&tables, 0), (3, loaded_size(&module), "/a/b".into()));
        assert!(rows.len() > 1000 && rows.is_sorted_by_key(|r| *r as u32));
        let (image, symbols) = (module.image(), module.symbols());
        let (mut names, mut bare) = (0, 0);
        for s in image.segments() {
            for step in 0..4000 {
                let offset = s.offset + step * (s.file_size / 4000 + 1);
                let Some(linked) = image.address_of_offset(offset) else {
                    continue;
                };
                let at = rows.partition_point(|r| u64::from(*r as u32) <= offset) - 1;
                let (base, size, text) = named(&tables, rows[at] >> 32);
                match symbol_at(image, symbols, linked) {
                    Some((name, distance, bytes)) => {
                        let name = spile_plain::name(&name).into_owned();
                        assert_eq!((text, offset - base, size), (name, distance, bytes));
                        names += 1;
                    }
                    None => {
                        assert_eq!((&*text, offset.wrapping_sub(base)), ("", linked));
                        bare += 1;
                    }
                }
            }
        }
        assert!(names > 1000 && bare > 0, "{names} {bare}");
    }

    #[test]
    fn lines_say_what_a_look_up_says() {
        let path = Path::new("/proc/self/exe");
        let module = DebugFile::open(path, &SearchPaths::from_env()).expect("own program");
        let tables = FileTables::new("/a/b", Some(&module), true);
        let lines = &tables.lines;
        assert!(lines.len() > 1000 && lines.is_sorted_by_key(|r| r[0]));
        let (image, dwarf) = (module.image(), module.dwarf().expect("built with it"));
        let (mut known, mut none) = (0, 0);
        for s in image.segments().iter().filter(|s| s.executable) {
            for step in 0..4000 {
                let offset = s.offset + step * (s.file_size / 4000 + 1);
                let Some(linked) = image.address_of_offset(offset) else {
                    continue;
                };
                let at = lines.partition_point(|r| u64::from(r[0]) <= offset);
                let row = at.checked_sub(1).map(|at| lines[at]);
                match dwarf.line_at(linked) {
                    Some((Some(file), line)) => {
                        let row = row.expect("a row");
                        let (.., text) = named(&tables, row[1].into());
                        assert_eq!((&*text, row[2]), (&*file, line));
                        known += 1;
                    }
                    _ => {
                        assert_eq!(row.map_or(0, |r| r[1]), 0, "{linked:#x}");
                        none += 1;
                    }
                }
            }
        }
        assert!(known > 1000, "{known} {none}");
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
