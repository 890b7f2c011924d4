//! What the jumps to the places of hooks replace.

use std::ops::Range;

use crate::error::Refusal;
use crate::image::{FunctionHook, PlaceKind};
use crate::process::{Mapping, Memory};
use crate::processor::relocate::{self, Displaced, FunctionPlace, RelocationKind};

/// Places that one jump serves.
pub(crate) struct HookedPlaces<'h> {
    pub(crate) displaced: Displaced,
    /// The hooks, each with the address of the instruction in front of which its handler runs. Those of one address run
    /// in their order.
    pub(crate) hooks: Vec<(u64, &'h FunctionHook)>,
}

impl HookedPlaces<'_> {
    /// Number of hooks.
    pub(crate) fn count(&self) -> usize {
        self.hooks.len()
    }

    /// The addresses of the hooks' places.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.hooks.iter().map(|(_, hook)| hook.place())
    }
}

/// What jumps replace in the functions that can be hooked. Jumps that would overlap become one.
pub(crate) fn displaced<'h>(
    memory: &Memory,
    maps: &[Mapping],
    hooks: &'h [FunctionHook],
    refused: &mut Vec<(u64, Refusal)>,
) -> Vec<HookedPlaces<'h>> {
    let mut all: Vec<HookedPlaces<'_>> = Vec::new();
    let mut sorted: Vec<&FunctionHook> = hooks.iter().collect();
    sorted.sort_by_key(|h| h.place());
    let read = |at, n| memory.read(at, n);
    for group in sorted.chunk_by(|a, b| a.place() == b.place()) {
        let first = group[0];
        let length = (first.size.max(first.offset + relocate::SHORT)).min(relocate::READ);
        let code = memory.read(first.address, length);
        let place = FunctionPlace {
            address: first.address,
            size: first.size,
            offset: first.offset,
            kind: match first.kind {
                _ if first.through => RelocationKind::Through,
                PlaceKind::Instruction => RelocationKind::Instruction,
                PlaceKind::Call(_) | PlaceKind::CallOnly | PlaceKind::Execute(_) => {
                    RelocationKind::Call
                }
                PlaceKind::Return(_) | PlaceKind::Mapped(_) => RelocationKind::Return,
            },
        };
        let found = match relocate::displaced(place, &code, &read) {
            Ok(found) => found,
            Err(why) => {
                refused.extend(group.iter().map(|hook| (hook.place(), why)));
                continue;
            }
        };
        let hooks = group
            .iter()
            .filter_map(|hook| Some((*found.places().first()?, *hook)));
        let hooks: Vec<(u64, &FunctionHook)> = hooks.collect();
        // A handler behind all instructions does not run where another jump begins: that one stands first.
        match all
            .last_mut()
            .filter(|last| last.displaced.end() > found.at)
        {
            None => all.push(HookedPlaces {
                displaced: found,
                hooks,
            }),
            Some(last) => match last.displaced.join(&found, (&code, first.address), &read) {
                Some(joined) => {
                    last.displaced = joined;
                    last.hooks.extend(hooks);
                }
                None => refused.extend(group.iter().map(|hook| (hook.place(), Refusal::Overlap))),
            },
        }
    }
    for mapping in maps.iter().filter(|m| m.executable && m.readable) {
        retain_unshared(mapping, memory, &mut all, refused);
    }
    all
}

/// Removes the places of a mapping into whose jumps other code jumps.
fn retain_unshared(
    mapping: &Mapping,
    memory: &Memory,
    all: &mut Vec<HookedPlaces<'_>>,
    refused: &mut Vec<(u64, Refusal)>,
) {
    let here = |at: u64| (mapping.start..mapping.end).contains(&at);
    let inner = all
        .iter()
        .filter(|site| here(site.displaced.at))
        .map(|site| site.displaced.inner.clone());
    let inner: Vec<Range<u64>> = inner.collect();
    if inner.is_empty() {
        return;
    }
    let code = memory.read(mapping.start, mapping.end - mapping.start);
    let mut jumped = relocate::jumped_into(&code, mapping.start, &inner).into_iter();
    all.retain(|site| {
        let keep = !here(site.displaced.at) || jumped.next() == Some(false);
        if !keep {
            refused.extend(site.addresses().map(|at| (at, Refusal::JumpedTo)));
        }
        keep
    });
}
