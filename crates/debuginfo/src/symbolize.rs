//! Addresses to functions and source lines, including inlined ones.

use std::sync::Arc;

use crate::caches::ScopeKind;
use crate::dwarf::Dwarf;
use crate::lines::LineTable;
use crate::unit::Die;

/// A function at an address and the line within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFrame {
    /// Its name in the source.
    pub function: Arc<str>,
    /// The source file, if known.
    pub file: Option<Arc<str>>,
    /// The line; 0 if unknown.
    pub line: u32,
    /// Whether it is inlined in the next frame.
    pub inlined: bool,
}

/// The source line of code from an address on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinesFrom {
    /// The address as linked.
    pub address: u64,
    /// Source file and line; `None` where the code belongs to no line.
    pub location: Option<(Arc<str>, u32)>,
}

impl Dwarf {
    /// The functions at an address, innermost first; the last is out of line. Empty when nothing is
    /// known.
    #[must_use]
    pub fn frames(&self, address: u64) -> Vec<SourceFrame> {
        let mut frames = Vec::new();
        let (mut file, mut line) = self.line_at(address).unzip();
        for scope in self.scopes_at(address).iter().rev() {
            if scope.kind == ScopeKind::Block {
                continue;
            }
            let Some((_, entry)) = self.entry(scope.die) else {
                continue;
            };
            let inlined = scope.kind == ScopeKind::Inlined;
            frames.push(SourceFrame {
                function: self.name(scope.die, &entry).unwrap_or("").into(),
                file: file.take().flatten(),
                line: line.take().unwrap_or(0),
                inlined,
            });
            if inlined {
                let call = self.call_location(scope.die, &entry);
                (file, line) = (Some(call.0), Some(call.1));
            }
        }
        frames
    }

    /// The innermost function or inlined instance at an address.
    #[must_use]
    pub fn function_at(&self, address: u64) -> Option<Die> {
        let chain = self.scopes_at(address);
        let inner = chain.iter().rfind(|s| s.kind != ScopeKind::Block);
        inner.map(|s| s.die)
    }

    /// Source file and line at an address.
    #[must_use]
    pub fn line_at(&self, address: u64) -> Option<(Option<Arc<str>>, u32)> {
        let lines = self.lines(0, self.unit_at(address)?)?;
        let row = lines.row_at(address)?;
        Some((lines.file(u64::from(row.file)).cloned(), row.line))
    }

    /// All lines as [`Dwarf::line_at`] gives them, in order of address; of several at one address,
    /// the last counts.
    #[must_use]
    pub fn all_lines(&self) -> Vec<LinesFrom> {
        let mut rows_by_address = Vec::new();
        for unit in 0..self.own_units() {
            let Some(parsed) = self.parse_own(unit) else {
                continue;
            };
            // Bypasses the cache: each is read once.
            let lines = LineTable::read(&self.part(0).dwarf, &parsed);
            for row in &lines.rows {
                if !row.end && self.unit_at(row.address) != Some(unit) {
                    continue;
                }
                let file = lines.file(u64::from(row.file)).filter(|_| !row.end);
                rows_by_address.push(LinesFrom {
                    address: row.address,
                    location: file.map(|file| (file.clone(), row.line)),
                });
            }
        }
        // An end goes before a beginning at the same address.
        rows_by_address.sort_by_key(|l| (l.address, l.location.is_some()));
        rows_by_address
    }
}
