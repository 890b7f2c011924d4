//! Calls in the code of functions: inlined copies, and the entries of call sites that compilers write
//! for optimised code.

use std::sync::Arc;

use crate::code::Control;
use crate::dwarf::Dwarf;
use crate::entries::Next;
use crate::functions::{FunctionLocation, LocationKinds, Pattern};
use crate::unit::{Die, Entry, flag};

/// A call that debugging information describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedCall {
    /// The called function's name in the source.
    pub name: Arc<str>,
    /// The way in which it is called.
    pub kind: CallKind,
}

/// The way in which a function is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallKind {
    /// Not at all: this copy of it is part of the caller.
    Inlined(Die),
    /// By a call instruction.
    Called {
        /// An entry of the called function: a declaration, or the function itself.
        function: Die,
        /// The address that the call returns to.
        returns_to: u64,
    },
    /// By a jump at the caller's end, so the called function returns to the caller's caller.
    Jumped {
        /// An entry of the called function.
        function: Die,
        /// The address of the jump, or else that behind it.
        jump: JumpAt,
    },
}

/// The address by which debugging information gives a jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JumpAt {
    /// That of the instruction.
    Here(u64),
    /// That of the instruction behind it.
    Before(u64),
}

/// The calls of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calls {
    /// The calls whose function is known.
    pub list: Vec<DescribedCall>,
    /// Whether there are entries of call sites, or a note that there is nothing to describe.
    pub described: bool,
}

impl Dwarf {
    /// The calls in the code of a function or of an inlined copy. Calls in a copy that is inlined into it
    /// belong to that copy.
    #[must_use]
    pub fn calls(&self, function: Die) -> Calls {
        let mut calls = Calls::default();
        let _ = self.list_calls(function, &mut calls);
        calls
    }

    fn list_calls(&self, function: Die, calls: &mut Calls) -> Option<()> {
        let unit = self.unit(function.part, function.unit)?;
        let mut origin = None;
        self.visit(function, |_, die, entry| {
            match entry.tag() {
                _ if die == function => {
                    calls.described = described(entry);
                    origin = self.origin(die, entry);
                }
                // Its calls are the function's own.
                gimli::DW_TAG_inlined_subroutine if self.goes_on(die, entry, origin) => {}
                gimli::DW_TAG_inlined_subroutine => {
                    calls.list.extend(self.inlined_call(die, entry));
                    return Next::Behind;
                }
                gimli::DW_TAG_subprogram => return Next::Behind,
                gimli::DW_TAG_call_site | gimli::DW_TAG_GNU_call_site => {
                    calls.described = true;
                    calls.list.extend(self.call_site(die, &unit, entry));
                }
                _ => {}
            }
            Next::Inside
        })
    }

    /// Whether an inlined copy belongs to the call of the function around, of which this is the
    /// abstract entry.
    fn goes_on(&self, copy: Die, entry: &Entry, around: Option<Die>) -> bool {
        let origin = self.origin(copy, entry);
        origin.is_some_and(|origin| around == Some(origin) && self.continues(entry, origin))
    }

    fn inlined_call(&self, copy: Die, entry: &Entry) -> Option<DescribedCall> {
        Some(DescribedCall {
            name: self.name(copy, entry)?.into(),
            kind: CallKind::Inlined(copy),
        })
    }

    /// The call of a call site; `None` for calls through pointers.
    fn call_site(
        &self,
        site: Die,
        unit: &crate::unit::Unit,
        entry: &Entry,
    ) -> Option<DescribedCall> {
        let value = entry
            .attr_value(gimli::DW_AT_call_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_abstract_origin))?;
        let function = self.refer(site, value)?;
        let (_, called) = self.entry(function)?;
        let name = self.name(function, &called)?.into();
        let address = |name| self.address(site, unit, entry, name);
        let return_address =
            address(gimli::DW_AT_call_return_pc).or_else(|| address(gimli::DW_AT_low_pc));
        let jumps =
            flag(entry, gimli::DW_AT_call_tail_call) || flag(entry, gimli::DW_AT_GNU_tail_call);
        let kind = if jumps {
            let instruction = address(gimli::DW_AT_call_pc).map(JumpAt::Here);
            let jump = instruction.or(return_address.map(JumpAt::Before))?;
            CallKind::Jumped { function, jump }
        } else {
            let returns_to = return_address?;
            CallKind::Called {
                function,
                returns_to,
            }
        };
        Some(DescribedCall { name, kind })
    }

    /// The functions with code in this file that an entry of a call site means.
    #[must_use]
    pub fn called_functions(&self, function: Die) -> Vec<FunctionLocation> {
        let Some((_, entry)) = self.entry(function) else {
            return Vec::new();
        };
        let Some(name) = self.name(function, &entry) else {
            return Vec::new();
        };
        let outline = LocationKinds {
            outline: true,
            inlined: false,
        };
        let mut locations = self.functions(Pattern::exact(name), None, outline);
        let abstract_entry = self.outermost_origin(function);
        let same = |p: &FunctionLocation| self.outermost_origin(p.die) == abstract_entry;
        if locations.iter().any(same) {
            locations.retain(same);
            return locations;
        }
        // A declaration: the function is in another unit.
        let linked = self.linkage_name(function);
        locations.retain(|p| p.external && self.linkage_name(p.die) == linked);
        locations
    }

    /// The location where an inlined copy begins.
    #[must_use]
    pub fn inlined_copy(&self, die: Die) -> Option<FunctionLocation> {
        let name = self.name(die, &self.entry(die)?.1)?;
        let abstract_entry = self.outermost_origin(die);
        let index = self.index();
        let named = index.named(self, name).find(|e| e.die == abstract_entry);
        let scopes = named.map_or_else(Vec::new, |e| index.scopes(self, &e));
        let mut location = self.locate_code(die, name, scopes)?;
        location.external = false;
        (location.entry != 0).then_some(location)
    }

    fn linkage_name(&self, die: Die) -> Option<&'static str> {
        let (_, entry) = self.entry(die)?;
        let (holder, value) = self.attr(die, &entry, gimli::DW_AT_linkage_name)?;
        self.text(holder, value)
    }

    /// The address of a jump to a function's first instruction that ends its caller.
    #[must_use]
    pub fn jump_to(&self, jump: JumpAt, target: u64) -> Option<u64> {
        let known = self.main.instructions()?;
        known.jumps.iter().find_map(|&size| {
            let address = match jump {
                JumpAt::Here(address) => address,
                JumpAt::Before(end) => end.checked_sub(size)?,
            };
            let code = self.main.bytes_at(address, usize::try_from(size).ok()?)?;
            let [i] = (known.decode)(code, address, 1)[..] else {
                return None;
            };
            (i.control == Control::Jump(target) && i.next == address.wrapping_add(size))
                .then_some(address)
        })
    }
}

/// Whether a function's entry says that all its calls are described.
fn described(entry: &Entry) -> bool {
    [
        gimli::DW_AT_call_all_calls,
        gimli::DW_AT_call_all_source_calls,
        gimli::DW_AT_GNU_all_call_sites,
        gimli::DW_AT_GNU_all_source_call_sites,
    ]
    .into_iter()
    .any(|name| flag(entry, name))
}
