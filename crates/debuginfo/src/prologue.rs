//! The end of a function's prologue: the first address where its parameters can be read.

use gimli::Operation::{
    self, CallFrameCFA, FrameOffset, Plus, PlusConstant, Register, RegisterOffset, SignedConstant,
};

use crate::cfi::{self, Cfa};
use crate::code::FrameStore;
use crate::dwarf::Dwarf;
use crate::lines::LineTable;
use crate::plt;
use crate::unit::{Die, Entry, R, Unit};

/// Maximum number of parameters that are looked at.
const MAX_PARAMETERS: usize = 64;
/// Maximum number of operations that are looked at in an expression.
const MAX_OPERATIONS: usize = 4;
/// Maximum size in bytes of a parameter whose stores are looked for.
const MAX_SIZE: i64 = 256;
/// The size in bytes of the parts of a parameter that are stored one by one.
const WORD: i64 = 8;

/// What functions call first: with `-pg`, and with `-finstrument-functions`.
const PROFILER_HOOKS: [&str; 3] = ["mcount", "__fentry__", "__cyg_profile_func_enter"];

/// What a location in a frame is relative to: a register by DWARF's number, or `None` for the canonical frame address.
type Base = Option<u16>;

/// A parameter in memory at a constant distance from a base.
struct Slot {
    base: Base,
    /// Distance of the first byte.
    offset: i64,
    /// Size in bytes.
    size: i64,
}

impl Dwarf {
    /// The first address where a function's parameters can be read.
    pub(crate) fn after_prologue(
        &self,
        die: Die,
        unit: &Unit,
        entry: &Entry,
        start: u64,
        code: &[(u64, u64)],
    ) -> u64 {
        let base = frame_base(&operations(unit, entry, gimli::DW_AT_frame_base));
        let slots = self.parameter_slots(die, unit, base);
        if !self.prologue_stores(base, &slots) {
            return start;
        }
        let end = code.iter().find(|r| r.0 <= start && start < r.1);
        let end = end.map_or(start, |r| r.1);
        let lines = self.lines(die.part, die.unit);
        let lines = lines.and_then(|l| prologue_end(&l, start, end));
        let stores = self.behind_stores(&slots, start, end);
        lines.max(stores).unwrap_or(start)
    }

    /// The parameters that have a single location in memory.
    fn parameter_slots(&self, die: Die, unit: &Unit, base: Option<(Base, i64)>) -> Vec<Slot> {
        let children = self.child_entries(die).take(MAX_PARAMETERS);
        let slots = children.filter_map(|(child, entry)| {
            let location = operations(unit, &entry, gimli::DW_AT_location);
            let (base, offset) = match *location.first()? {
                FrameOffset { offset } => {
                    base.map_or((None, offset), |(b, from)| (b, from.saturating_add(offset)))
                }
                RegisterOffset {
                    register, offset, ..
                } => (Some(register.0), offset),
                _ => return None,
            };
            let is_value = location.len() == 1;
            let size = self.byte_size(child, &entry).filter(|_| is_value);
            let size = size.map_or(WORD, |size| size.clamp(1, MAX_SIZE));
            let is_parameter = entry.tag() == gimli::DW_TAG_formal_parameter;
            is_parameter.then_some(Slot { base, offset, size })
        });
        slots.collect()
    }

    /// Whether variables are valid only after the prologue: the frame is reached through a register that the
    /// prologue sets or changes, or the prologue stores a parameter.
    fn prologue_stores(&self, base: Option<(Base, i64)>, slots: &[Slot]) -> bool {
        let abi = self.main.abi();
        let is_stack = |register| abi.is_some_and(|a| register == a.stack_pointer);
        let is_frame = |register| abi.is_some_and(|a| register == a.frame_pointer);
        let base = base.and_then(|(base, _)| base);
        base.is_some_and(|register| !is_stack(register))
            || slots.iter().any(|slot| match slot.base {
                // The caller stored the values at and above the canonical frame address.
                None => slot.offset < 0,
                // LLVM's base is the stack pointer of the function's body; gcc has both in frames that it aligns.
                Some(register) => is_stack(register) || is_frame(register),
            })
    }

    /// The address behind the first store to each part of the parameters. The code in front of a store does not branch,
    /// and calls only hooks of profilers. In optimised code of LLVM, the line table ends the prologue in front of
    /// these stores.
    fn behind_stores(&self, slots: &[Slot], start: u64, end: u64) -> Option<u64> {
        if slots.is_empty() {
            return None;
        }
        let code = crate::exits::code(&self.main, start, end)?;
        let stores = (self.main.instructions()?.frame_stores)(code, start, &|to| {
            self.hooks_of_profilers().contains(&to)
        });
        let rows = cfi::function_rows(&self.main, start);
        // The caller stored what is not below the canonical frame address.
        let in_frame =
            stores
                .iter()
                .filter_map(|store| match cfi::row_at(&rows, store.address)?.cfa {
                    Cfa::Register { register, offset } if register == store.register => {
                        let below = store.offset.saturating_sub(offset.into());
                        (below < 0).then_some((store, below))
                    }
                    _ => None,
                });
        let in_frame: Vec<(&FrameStore, i64)> = in_frame.collect();
        let parts = slots.iter().flat_map(|slot| {
            let words = (0..).map(|n| n * WORD).take_while(|byte| *byte < slot.size);
            words.map(|byte| {
                let from = slot.offset.saturating_add(byte);
                (
                    slot.base,
                    from,
                    from.saturating_add(WORD.min(slot.size - byte)),
                )
            })
        });
        let first = parts.filter_map(|(base, from, to)| {
            in_frame.iter().find(|(store, below)| {
                let offset = match base {
                    Some(register) if register == store.register => store.offset,
                    Some(_) => return false,
                    None => *below,
                };
                offset < to && from < offset.saturating_add(store.size)
            })
        });
        first.map(|(store, _)| store.next).max()
    }

    /// The stubs of the functions that profilers have every function call first, in front of its parameters' stores.
    fn hooks_of_profilers(&self) -> &[u64] {
        self.caches.profiler_hooks.get_or_init(|| {
            let stubs = plt::entries(&self.main).into_iter();
            let hooks = stubs.filter(|stub| PROFILER_HOOKS.contains(&stub.name));
            hooks.map(|stub| stub.address).collect()
        })
    }

    /// The size in bytes of a variable, where its type says it.
    fn byte_size(&self, variable: Die, entry: &Entry) -> Option<i64> {
        let (_, ty) = self.strip(self.type_die(variable, entry)?)?;
        i64::try_from(ty.attr_value(gimli::DW_AT_byte_size)?.udata_value()?).ok()
    }
}

/// The first operations of an expression of an entry.
fn operations(unit: &Unit, entry: &Entry, attribute: gimli::DwAt) -> Vec<Operation<R>> {
    let value = entry.attr_value(attribute).and_then(|v| v.exprloc_value());
    let mut operations = value.map(|v| v.operations(unit.encoding()));
    let next = std::iter::from_fn(|| operations.as_mut()?.next().ok()?);
    next.take(MAX_OPERATIONS).collect()
}

/// What a frame base is, and the distance from it.
fn frame_base(operations: &[Operation<R>]) -> Option<(Base, i64)> {
    Some(match *operations {
        [Register { register }] => (Some(register.0), 0),
        [
            RegisterOffset {
                register, offset, ..
            },
        ] => (Some(register.0), offset),
        [CallFrameCFA] => (None, 0),
        // LLVM, where the stack pointer changes in the function's body.
        [CallFrameCFA, SignedConstant { value }, Plus] => (None, value),
        [CallFrameCFA, PlusConstant { value }] => (None, value.cast_signed()),
        _ => return None,
    })
}

/// The end of the prologue: from the line table, otherwise the second statement, as in gdb.
fn prologue_end(lines: &LineTable, start: u64, end: u64) -> Option<u64> {
    let rows = lines.within(start, end);
    let marked = rows.iter().find(|r| r.prologue_end && r.address > start);
    let second = || {
        rows.iter()
            .find(|r| r.address > start && r.is_stmt && r.line != 0 && !r.end)
    };
    marked.or_else(second).map(|r| r.address)
}
