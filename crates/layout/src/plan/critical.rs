//! The copies that the controller's critical section makes (see
//! [`crate::critical`]).

use std::collections::BTreeSet;

use spile_ir::storage::{access_sets, takes};
use spile_ir::{Event, GlobalId, Program};

use super::allocator::Areas;
use super::host::CriticalParams;
use super::spec::TableSpec;
use crate::critical::{
    CopyLocation, CriticalLayout, ENTRY, ElementCopies, KeyListWords, LockedGlobal,
};
use crate::{GlobalLayout, GlobalLocation, SEQUENCE, ValueLayout};

/// Limit on the elements of an array: interrupts are off while they are copied.
const MOST_ELEMENTS: u32 = 4096;
/// Limit on the bytes of an array's copies.
const MOST_BYTES: u64 = 4 << 20;
/// Limit on the bytes of a scalar or statistic.
const MOST_WORDS: u32 = 1024;
/// Limit on the number of globals: their bits are compared with a signed 32-bit constant.
const MOST: usize = 31;

/// The locked globals that handlers of the controller copy while kernel handlers run, with the
/// locations of the copies.
pub(super) fn plan(
    program: &Program,
    how: CriticalParams,
    locations: &[Option<GlobalLayout>],
    areas: &mut Areas,
) -> Option<CriticalLayout> {
    let copied = copied_globals(program, locations).into_iter();
    let globals = copied.filter_map(|g| {
        let layout = locations.get(g.index())?.as_ref()?;
        let lock = layout.lock?;
        let copy = match &layout.location {
            GlobalLocation::Scalar { offset, ty } => {
                copy_words(*offset, ValueLayout::Scalar(*ty), areas)
            }
            GlobalLocation::Stats { offset, agg } => {
                copy_words(*offset, ValueLayout::Stats(agg.clone()), areas)
            }
            location => copy_elements(g, location, how.key_lists, areas),
        };
        Some(LockedGlobal {
            global: g,
            lock,
            copy: copy?,
        })
    });
    let globals: Vec<LockedGlobal> = globals.take(MOST).collect();
    (!globals.is_empty()).then_some(CriticalLayout {
        globals,
        interrupts_off: how.interrupts_off,
    })
}

/// The globals that such handlers access, provided that they change none with a lock except for
/// those that they take.
fn copied_globals(program: &Program, locations: &[Option<GlobalLayout>]) -> BTreeSet<GlobalId> {
    // At the beginning and at the end nothing else runs.
    let alone = |e: &Event| {
        matches!(
            e,
            Event::Begin(_) | Event::End(_) | Event::Error(_) | Event::Never
        )
    };
    let locked =
        |g: &GlobalId| matches!(locations.get(g.index()), Some(Some(l)) if l.lock.is_some());
    let handlers = program.handlers.iter();
    let running = handlers.filter(|h| !h.event.is_compiled() && !alone(&h.event));
    let mut copied = BTreeSet::new();
    for handler in running {
        let (globals, changed) = access_sets(program, &handler.body);
        let mut changed = changed.into_iter().filter(locked);
        if changed.all(|g| takes(program, &handler.body, g)) {
            copied.extend(globals);
        }
    }
    copied
}

fn copy_words(from: u32, value: ValueLayout, areas: &mut Areas) -> Option<CopyLocation> {
    (value.size() <= MOST_WORDS).then(|| CopyLocation::Words {
        from,
        to: areas.shared.alloc(value.size()),
        value,
    })
}

fn copy_elements(
    g: GlobalId,
    location: &GlobalLocation,
    known: bool,
    areas: &mut Areas,
) -> Option<CopyLocation> {
    let GlobalLocation::Hash {
        map,
        key_size: key,
        seq,
        value,
        max,
        field: None,
        ..
    } = location
    else {
        return None;
    };
    let size = ValueLayout::size(value) + if *seq { SEQUENCE } else { 0 };
    let entry = ENTRY + key + size;
    if *max > MOST_ELEMENTS || u64::from(entry) * u64::from(*max) > MOST_BYTES {
        return None;
    }
    let to = format!("copies_{}", g.0);
    areas.tables.push(TableSpec::mapped(&to, entry, *max));
    Some(CopyLocation::Elements(ElementCopies {
        from: map.clone(),
        to,
        count: areas.shared.alloc(8),
        key: *key,
        value: size,
        max: *max,
        known: known.then(|| KeyListWords {
            fresh: areas.shared.alloc(8),
            keys: areas.shared.alloc(8),
        }),
    }))
}
