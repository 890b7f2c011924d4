//! What encloses an address: the function, what is inlined in it, blocks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use gimli::UnitOffset;

use crate::dwarf::{Die, Dwarf, Unit};

/// Deepest nesting that is followed.
const MAX_DEPTH: usize = 128;

/// What a scope is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    Function,
    Inlined,
    Block,
}

/// An entry whose code holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scope {
    pub kind: ScopeKind,
    pub die: Die,
}

/// Code of the functions of a unit: start, end, offset of the entry; by start.
pub(crate) type Functions = Arc<Vec<(u64, u64, usize)>>;

/// Units whose functions were listed.
#[derive(Default)]
pub(crate) struct FunctionTables(Mutex<HashMap<u32, Functions>>);

const MAX_TABLES: usize = 256;

impl Dwarf {
    /// The functions with code of a unit.
    pub(crate) fn functions_of(&self, unit: u32) -> Option<Functions> {
        let mut all = self.tables.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(f) = all.get(&unit) {
            return Some(f.clone());
        }
        let parsed = self.unit(0, unit)?;
        let mut found = Vec::new();
        let _ = self.list_functions(unit, &parsed, &mut found);
        found.sort_unstable();
        let found = Arc::new(found);
        if all.len() >= MAX_TABLES {
            all.clear();
        }
        all.insert(unit, found.clone());
        Some(found)
    }

    fn list_functions(
        &self,
        unit: u32,
        parsed: &Unit,
        found: &mut Vec<(u64, u64, usize)>,
    ) -> Option<()> {
        Dwarf::each_tagged(unit, parsed, gimli::DW_TAG_subprogram, |die, entry| {
            for (start, end) in self.code(die, parsed, entry) {
                found.push((start, end, die.offset));
            }
        })
    }

    /// The scopes that hold an address, outermost (the function) first; empty when none does.
    pub(crate) fn scopes_at(&self, address: u64) -> Vec<Scope> {
        let mut scopes = Vec::new();
        let Some(unit) = self.unit_at(address) else {
            return scopes;
        };
        let Some((functions, parsed)) = self.functions_of(unit).zip(self.unit(0, unit)) else {
            return scopes;
        };
        let i = functions.partition_point(|f| f.0 <= address);
        let inside = |f: &&(u64, u64, usize)| address < f.1;
        let Some(f) = functions[..i].iter().rev().take(64).find(inside) else {
            return scopes;
        };
        let die = Die {
            part: 0,
            unit,
            offset: f.2,
        };
        scopes.push(Scope {
            kind: ScopeKind::Function,
            die,
        });
        let _ = self.descend(address, die, &parsed, &mut scopes);
        scopes
    }

    /// Adds the scopes within `function` that hold an address.
    fn descend(
        &self,
        address: u64,
        function: Die,
        unit: &Unit,
        scopes: &mut Vec<Scope>,
    ) -> Option<()> {
        let mut raw = unit.entries_raw(Some(UnitOffset(function.offset))).ok()?;
        let mut entry = gimli::DebuggingInformationEntry::null();
        // Entries at this depth may hold the address; deeper ones are in scopes that do not.
        let mut level = 0;
        while !raw.is_empty() {
            let depth = raw.next_depth();
            let offset = raw.next_offset();
            if !raw.read_entry(&mut entry).ok()? {
                // The end of the innermost scope found: no other can hold the address.
                if raw.next_depth() < level {
                    break;
                }
                continue;
            }
            if depth == 0 {
                level = 1;
                if !entry.has_children() {
                    break;
                }
                continue;
            }
            let kind = match entry.tag() {
                gimli::DW_TAG_inlined_subroutine => ScopeKind::Inlined,
                gimli::DW_TAG_lexical_block => ScopeKind::Block,
                _ => continue,
            };
            let die = Die {
                offset: offset.0,
                ..function
            };
            if depth != level {
                continue;
            }
            let inside = |&(start, end): &(u64, u64)| start <= address && address < end;
            let code = self.code(die, unit, &entry);
            // A block without addresses of its own covers what is around it.
            let covers = code.is_empty() && kind == ScopeKind::Block && !has_code(&entry);
            if code.iter().any(inside)
                || (covers && entry.has_children() && self.covers(address, die, unit))
            {
                scopes.push(Scope { kind, die });
                if !entry.has_children() || scopes.len() > MAX_DEPTH {
                    break;
                }
                level += 1;
            }
        }
        Some(())
    }

    /// Whether a scope inside a block without addresses holds the address.
    fn covers(&self, address: u64, block: Die, unit: &Unit) -> bool {
        let mut inner = Vec::new();
        let _ = self.descend_flat(address, block, unit, &mut inner);
        !inner.is_empty()
    }

    fn descend_flat(
        &self,
        address: u64,
        block: Die,
        unit: &Unit,
        found: &mut Vec<Die>,
    ) -> Option<()> {
        let mut raw = unit.entries_raw(Some(UnitOffset(block.offset))).ok()?;
        let mut entry = gimli::DebuggingInformationEntry::null();
        while !raw.is_empty() {
            let offset = raw.next_offset();
            let any = raw.read_entry(&mut entry).ok()?;
            if raw.next_depth() <= 0 {
                break;
            }
            if any && offset.0 != block.offset {
                let die = Die {
                    offset: offset.0,
                    ..block
                };
                let inside = |&(start, end): &(u64, u64)| start <= address && address < end;
                if self.code(die, unit, &entry).iter().any(inside) {
                    found.push(die);
                    break;
                }
            }
        }
        Some(())
    }

    /// The part of a chain of scopes that belongs to one function or inlined instance: it and
    /// the blocks directly inside.
    pub(crate) fn own_scopes(chain: &[Scope], of: Option<Die>) -> &[Scope] {
        let is_code = |s: &Scope| s.kind != ScopeKind::Block;
        let start = match of {
            Some(die) => chain.iter().position(|s| s.die == die),
            None => chain.iter().rposition(is_code),
        };
        let Some(start) = start else { return &[] };
        let more = chain[start + 1..].iter().position(is_code);
        &chain[start..more.map_or(chain.len(), |n| start + 1 + n)]
    }
}

fn has_code(entry: &crate::dwarf::Entry) -> bool {
    entry.has_attr(gimli::DW_AT_low_pc) || entry.has_attr(gimli::DW_AT_ranges)
}
