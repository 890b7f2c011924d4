//! The scopes around an address: the function, inlined instances in it, blocks.

use std::sync::Arc;

use crate::caches::{Functions, Scope, ScopeKind};
use crate::dwarf::Dwarf;
use crate::entries::Next;
use crate::unit::{Die, Entry, Unit, contains};

/// Maximum nesting that is followed.
const MAX_DEPTH: usize = 128;

impl Dwarf {
    /// The functions with code of a unit.
    pub(crate) fn functions_of(&self, unit: u32) -> Option<Functions> {
        self.caches.functions.get_or_make(unit, || {
            let parsed = self.unit(0, unit)?;
            let mut functions = Vec::new();
            let _ = Dwarf::each_tagged(unit, &parsed, gimli::DW_TAG_subprogram, |die, entry| {
                let code = self.code(die, &parsed, entry).into_iter();
                functions.extend(code.map(|(start, end)| (start, end, die.offset)));
            });
            functions.sort_unstable();
            Some(Arc::new(functions))
        })
    }

    /// The function whose code contains an address: by the index if there is one, otherwise by the
    /// entries of the unit.
    fn function_around(&self, address: u64) -> Option<Die> {
        if let Some(index) = self.ready_index() {
            return index.function_at(address);
        }
        let unit = self.unit_at(address)?;
        let functions = self.functions_of(unit)?;
        let i = functions.partition_point(|f| f.0 <= address);
        let inside = |f: &&(u64, u64, usize)| address < f.1;
        let f = functions[..i].iter().rev().take(64).find(inside)?;
        Some(Die::of_file(unit, f.2))
    }

    /// The code of the function at an address, in parts.
    #[must_use]
    pub fn function_ranges(&self, address: u64) -> Vec<(u64, u64)> {
        let around = self.function_around(address);
        around.map_or_else(Vec::new, |die| self.code_of(die))
    }

    /// The scopes that contain an address, outermost (the function) first; empty if there are none.
    pub(crate) fn scopes_at(&self, address: u64) -> Arc<[Scope]> {
        let chain = self.caches.scopes.get_or_make(address, || {
            let mut scopes = Vec::new();
            if let Some(die) = self.function_around(address)
                && let Some(unit) = self.unit(die.part, die.unit)
            {
                let kind = ScopeKind::Function;
                scopes.push(Scope { kind, die });
                let _ = self.descend(address, die, &unit, &mut scopes);
            }
            Some(scopes.into())
        });
        chain.unwrap_or_default()
    }

    /// Adds the scopes within `function` that contain an address.
    fn descend(
        &self,
        address: u64,
        function: Die,
        unit: &Unit,
        scopes: &mut Vec<Scope>,
    ) -> Option<()> {
        // Entries at this depth may contain the address; deeper ones are in scopes that do not.
        let mut level = 0;
        self.visit(function, |depth, die, entry| {
            let kind = match entry.tag() {
                _ if die == function => {
                    level = 1;
                    return Next::Inside;
                }
                // The end of the innermost scope found: no other can contain the address.
                _ if depth < level => return Next::Stop,
                gimli::DW_TAG_inlined_subroutine => ScopeKind::Inlined,
                gimli::DW_TAG_lexical_block => ScopeKind::Block,
                _ => return Next::Behind,
            };
            let code = self.code(die, unit, entry);
            // A block without addresses of its own covers the same code as its parent.
            let covers = code.is_empty() && kind == ScopeKind::Block && !has_code(entry);
            if !(contains(&code, address) || covers && self.covers(address, die, unit)) {
                return Next::Behind;
            }
            scopes.push(Scope { kind, die });
            level += 1;
            match scopes.len() > MAX_DEPTH {
                true => Next::Stop,
                false => Next::Inside,
            }
        })
    }

    /// Whether a scope inside a block without addresses contains the address.
    fn covers(&self, address: u64, block: Die, unit: &Unit) -> bool {
        let mut covered = false;
        let _ = self.visit(block, |_, die, entry| {
            covered = contains(&self.code(die, unit, entry), address);
            if covered { Next::Stop } else { Next::Inside }
        });
        covered
    }

    /// The part of a chain of scopes that belongs to one function or inlined instance: the scope
    /// itself and the blocks directly inside.
    pub(crate) fn own_scopes(chain: &[Scope], function: Option<Die>) -> &[Scope] {
        let is_code = |s: &Scope| s.kind != ScopeKind::Block;
        let start = match function {
            Some(die) => chain.iter().position(|s| s.die == die),
            None => chain.iter().rposition(is_code),
        };
        let Some(start) = start else { return &[] };
        let more = chain[start + 1..].iter().position(is_code);
        &chain[start..more.map_or(chain.len(), |n| start + 1 + n)]
    }
}

fn has_code(entry: &Entry) -> bool {
    entry.has_attr(gimli::DW_AT_low_pc) || entry.has_attr(gimli::DW_AT_ranges)
}
