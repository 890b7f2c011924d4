//! Line tables: the source file and line of each address.

use std::sync::Arc;

use crate::unit::{R, Unit};

/// Maximum number of rows read from one unit.
const MAX_ROWS: usize = 8 << 20;

/// A row: from this address to the next row's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineRow {
    pub address: u64,
    /// The line; 0 if the code belongs to no line.
    pub line: u32,
    /// Index into [`LineTable::files`].
    pub file: u32,
    /// The column; 0 if unknown.
    pub column: u16,
    pub is_stmt: bool,
    pub prologue_end: bool,
    /// Whether the address is the first one after a sequence.
    pub end: bool,
}

/// The line table of a unit.
#[derive(Debug, Default)]
pub(crate) struct LineTable {
    /// Whole paths, by DWARF's number of the file.
    pub files: Vec<Arc<str>>,
    /// In order of address; at one address in the table's order.
    pub rows: Vec<LineRow>,
}

impl LineTable {
    pub(crate) fn read(dwarf: &gimli::Dwarf<R>, unit: &Unit) -> LineTable {
        let Some(program) = unit.line_program.clone() else {
            return LineTable::default();
        };
        let header = program.header();
        let paths = header
            .file_names()
            .iter()
            .map(|file| path(dwarf, unit, file).into());
        // Before DWARF 5 files count from 1.
        let unnumbered = (header.version() < 5).then(|| "".into());
        let files = unnumbered.into_iter().chain(paths).collect();
        let mut rows = Vec::new();
        let mut iter = program.rows();
        // The first row of the current sequence, and whether the linker kept its code.
        let mut start = 0;
        while let Ok(Some((_, row))) = iter.next_row() {
            rows.push(LineRow {
                address: row.address(),
                line: row
                    .line()
                    .map_or(0, |l| u32::try_from(l.get()).unwrap_or(0)),
                file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
                column: match row.column() {
                    gimli::ColumnType::LeftEdge => 0,
                    gimli::ColumnType::Column(c) => u16::try_from(c.get()).unwrap_or(0),
                },
                is_stmt: row.is_stmt(),
                prologue_end: row.prologue_end(),
                end: row.end_sequence(),
            });
            if row.end_sequence() {
                if rows.get(start).is_some_and(|r: &LineRow| r.address == 0) {
                    rows.truncate(start);
                }
                start = rows.len();
            }
            if rows.len() > MAX_ROWS {
                break;
            }
        }
        // An end goes before the next sequence's start at the same address.
        rows.sort_by_key(|r| (r.address, !r.end));
        LineTable { files, rows }
    }

    /// The path of a file by DWARF's number.
    pub(crate) fn file(&self, index: u64) -> Option<&Arc<str>> {
        self.files
            .get(usize::try_from(index).ok()?)
            .filter(|f| !f.is_empty())
    }

    /// The row that contains an address: the last of those at the nearest address below.
    pub(crate) fn row_at(&self, address: u64) -> Option<&LineRow> {
        let i = self.rows.partition_point(|r| r.address <= address);
        self.rows.get(i.checked_sub(1)?).filter(|r| !r.end)
    }

    /// The rows in a range of addresses.
    pub(crate) fn within(&self, start: u64, end: u64) -> &[LineRow] {
        let from = self.rows.partition_point(|r| r.address < start);
        let to = self.rows.partition_point(|r| r.address < end);
        self.rows.get(from..to).unwrap_or(&[])
    }
}

/// The path of one file, without the others.
pub(crate) fn file(dwarf: &gimli::Dwarf<R>, unit: &Unit, number: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let before = u64::from(header.version() < 5);
    let index = usize::try_from(number.checked_sub(before)?).ok()?;
    Some(path(dwarf, unit, header.file_names().get(index)?))
}

fn path(dwarf: &gimli::Dwarf<R>, unit: &Unit, file: &gimli::FileEntry<R>) -> String {
    let text = |value| {
        let text = dwarf.attr_string(unit, value).ok();
        text.map_or(Default::default(), |t| String::from_utf8_lossy(t.slice()))
    };
    let header = unit
        .line_program
        .as_ref()
        .map(gimli::IncompleteLineProgram::header);
    let dir = header
        .and_then(|h| file.directory(h))
        .map(text)
        .unwrap_or_default();
    let base = unit.comp_dir.map(|d| String::from_utf8_lossy(d.slice()));
    join(
        &join(base.as_deref().unwrap_or(""), &dir),
        &text(file.path_name()),
    )
}

/// Whether a unit has a file whose last component and whole path satisfy these conditions.
pub(crate) fn has_file(
    dwarf: &gimli::Dwarf<R>,
    unit: &Unit,
    last: &dyn Fn(&str) -> bool,
    whole: &dyn Fn(&str) -> bool,
) -> bool {
    let Some(program) = unit.line_program.as_ref() else {
        return false;
    };
    program.header().file_names().iter().any(|file| {
        let name = dwarf.attr_string(unit, file.path_name()).ok();
        let name = name.map_or(Default::default(), |t| String::from_utf8_lossy(t.slice()));
        last(name.rsplit('/').next().unwrap_or("")) && whole(&path(dwarf, unit, file))
    })
}

/// A path relative to a directory, without `.` and redundant `..`.
fn join(dir: &str, path: &str) -> String {
    let whole = if path.starts_with('/') || dir.is_empty() {
        path.to_owned()
    } else if path.is_empty() {
        dir.to_owned()
    } else {
        format!("{dir}/{path}")
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/').filter(|p| !p.is_empty() && *p != ".") {
        match parts.last() {
            Some(&last) if part == ".." && last != ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    let root = if whole.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// Whether a path, or an end of it made of whole components, satisfies a pattern.
pub(crate) fn path_matches(path: &str, matches: &dyn Fn(&str) -> bool) -> bool {
    matches(path)
        || path
            .match_indices('/')
            .any(|(slash, _)| matches(&path[slash + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_and_matched_by_their_ends() {
        assert_eq!(join("/a/b", "c.c"), "/a/b/c.c");
        assert_eq!(join("/a/b", "../c/./d.c"), "/a/c/d.c");
        assert_eq!(join("", "x.c"), "x.c");
        assert_eq!(join("/a", "/b"), "/b");
        assert_eq!(join("a", "../../x"), "../x");
        assert!(path_matches("/a/b/c.c", &|p| p == "b/c.c"));
        assert!(!path_matches("/a/b/c.c", &|p| p == "/c.c"));
    }
}
