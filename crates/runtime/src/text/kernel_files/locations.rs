//! The lines of the kernel and its modules in the form that kernel handlers search: see
//! [`spile_layout::kernel_row`].

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use spile_cast::Cast;
use spile_debuginfo::{LinesFrom, SearchPaths};
use spile_kernel::symbols::Symbols;
use spile_layout::kernel_row;

use super::open;

/// Size of an element in bytes.
const ELEMENT: usize = kernel_row::BYTES as usize;

/// A position that starts at an address: number of the source file's name, and line; 0 and 0 for a
/// gap.
type LineRow = (u64, u32, u32);

/// Rows in order, and names of source files.
#[derive(Default)]
pub(crate) struct KernelLineTable {
    rows: Vec<LineRow>,
    names: Vec<String>,
    name_ids: HashMap<Arc<str>, u32>,
}

impl KernelLineTable {
    /// The rows of the running kernel and its loaded modules, as far as their debugging information
    /// is on this machine.
    pub(crate) fn of_machine() -> KernelLineTable {
        let mut locations = KernelLineTable::default();
        let Ok(symbols) = Symbols::kernel() else {
            return locations;
        };
        let search = SearchPaths::from_env();
        let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
        let modules = modules.lines().filter_map(|l| l.split(' ').next());
        for module in [None].into_iter().chain(modules.map(Some)) {
            let Some((file, loaded)) = open(module, &search) else {
                continue;
            };
            let lines = file.dwarf().map(|d| d.all_lines()).unwrap_or_default();
            // The memory of a module's freed init code can contain other code now.
            let its_own = |address: u64| {
                let symbol = || symbols.resolve(address);
                module.is_none() || symbol().is_some_and(|(s, _)| s.module == module)
            };
            locations.add(lines, |linked| {
                loaded
                    .to_load_address(linked)
                    .filter(|address| its_own(*address))
            });
        }
        locations.put_in_order();
        locations
    }

    fn add(&mut self, lines: Vec<LinesFrom>, address: impl Fn(u64) -> Option<u64>) {
        for LinesFrom {
            address: linked,
            location,
        } in lines
        {
            // A part ends behind its last byte.
            let end = || address(linked.wrapping_sub(1))?.checked_add(1);
            let start = match location {
                Some(_) => address(linked),
                None => address(linked).or_else(end),
            };
            let Some(start) = start else {
                continue;
            };
            let row = match location {
                Some((file, line)) if line > 0 => (start, self.name(file), line),
                _ => (start, 0, 0),
            };
            self.rows.push(row);
        }
    }

    /// The number of a name, starting at 1.
    fn name(&mut self, file: Arc<str>) -> u32 {
        *self.name_ids.entry(file).or_insert_with_key(|file| {
            self.names.push(spile_plain::name(file).into_owned());
            self.names.len().fit::<u32>()
        })
    }

    fn put_in_order(&mut self) {
        self.rows.sort_by_key(|r| r.0);
        let rows = &mut self.rows;
        // The last row of an address counts.
        rows.reverse();
        rows.dedup_by_key(|r| r.0);
        rows.reverse();
        rows.dedup_by(|b, a| (b.1, b.2) == (a.1, a.2));
        let first = rows.first().map_or(0, |r| r.0);
        rows.retain(|r| u32::try_from(r.0 - first).is_ok());
        rows.truncate(kernel_row::MAX as usize - 1);
    }

    /// The words that handlers search.
    pub(crate) fn words(&self) -> Vec<u64> {
        let base = self.rows.first().map_or(0, |r| r.0);
        let mut words = vec![base, self.rows.len() as u64];
        let mut texts: Vec<u8> = Vec::new();
        let first_text = 1 + self.rows.len();
        let mut elements = vec![0];
        for name in &self.names {
            elements.push((first_text + texts.len() / ELEMENT) as u64);
            texts.extend(name.bytes().filter(|b| *b != 0));
            texts.resize((texts.len() + 1).next_multiple_of(ELEMENT), 0);
        }
        for (address, name, line) in &self.rows {
            let name = elements[*name as usize];
            words.extend([(address - base) | name << 32, u64::from(*line)]);
        }
        let texts = texts.chunks_exact(8);
        words.extend(texts.map(|w| u64::from_ne_bytes(w.try_into().unwrap_or_default())));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a handler's search for an address.
    fn found(words: &[u64], address: u64) -> Option<(String, u64)> {
        let (base, count) = (words[0], words[1] as usize);
        let location = address.checked_sub(base)?;
        let rows: Vec<&[u64]> = words[2..][..2 * count].chunks(2).collect();
        let at = rows.partition_point(|r| u64::from(r[0] as u32) <= location);
        let row = rows[at.checked_sub(1)?];
        let name = 2 * (row[0] >> 32) as usize;
        let bytes = words.get(name..).filter(|_| name > 0)?;
        let bytes = bytes.iter().flat_map(|w| w.to_ne_bytes());
        let text = bytes.take_while(|b| *b != 0).collect();
        Some((String::from_utf8(text).expect("a name"), row[1]))
    }

    #[test]
    fn rows_are_found_by_address() {
        let line = |address, file: &str, line| LinesFrom {
            address,
            location: Some((file.into(), line)),
        };
        let gap = |address| LinesFrom {
            address,
            location: None,
        };
        let mut locations = KernelLineTable::default();
        locations.add(
            vec![
                line(0x10, "sixteen bytes.c!", 3),
                line(0x14, "sixteen bytes.c!", 0),
                line(0x18, "b", 5),
                line(0x18, "b", 6),
                gap(0x20),
            ],
            |linked| Some(0xffff_ffff_8000_0000 + linked),
        );
        locations.add(vec![line(0, "c", 9), gap(8)], |linked| {
            (linked < 8).then_some(0xffff_ffff_c000_0000 + linked)
        });
        locations.put_in_order();
        let words = locations.words();
        for (address, is) in [
            (0x8000_000f, None),
            (0x8000_0013, Some(("sixteen bytes.c!", 3))),
            (0x8000_0014, None),
            (0x8000_001f, Some(("b", 6))),
            (0x8000_0020, None),
            (0xc000_0007, Some(("c", 9))),
            (0xc000_0008, None),
        ] {
            let is = is.map(|(file, line)| (file.to_owned(), line));
            assert_eq!(found(&words, 0xffff_ffff_0000_0000 | address), is);
        }
        assert_eq!(found(&KernelLineTable::default().words(), 0x10), None);
    }
}
