//! The memory of iterators: maps of copies, and the number of slots that are in use at once.

use spile_ir::{GlobalKind, Program};

use super::arrays::map_name;
use super::host::{PlanError, Res};
use super::iterators::{self, IterSource, IteratorLayout};
use super::spec::TableSpec;

/// Limit on the elements of an array with iterators: `bpf_loop` makes at most 8 million iterations,
/// and building a heap takes two for each element.
const MAX_ITERATED: u32 = 4_000_000;

/// The map to which an array's elements are copied for iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotMap {
    /// Its name.
    pub map: String,
    /// Number of slots for one activation.
    pub slots: u32,
    /// Number of entries in one iterator's slot.
    pub entries: u32,
}

/// The iterators of all kernel handlers.
pub(crate) fn all_iterators(program: &Program) -> Res<Vec<Vec<Option<IteratorLayout>>>> {
    let of_handler = |h: &spile_ir::Handler| match h.event.is_compiled() {
        true => iterators::iterators(program, &h.body),
        false => Ok(Vec::new()),
    };
    program.handlers.iter().map(of_handler).collect()
}

/// The maximum of `count` over all handlers, of which only one runs at a time.
pub(crate) fn max_over_handlers(
    iterators: &[Vec<Option<IteratorLayout>>],
    count: impl Fn(&[Option<IteratorLayout>]) -> u32,
) -> u32 {
    iterators.iter().map(|i| count(i)).max().unwrap_or(0)
}

/// Number of slots for the selected iterators of a handler.
pub(crate) fn count_slots(
    iterators: &[Option<IteratorLayout>],
    wanted: impl Fn(&IteratorLayout) -> bool,
) -> u32 {
    let slots = iterators.iter().flatten().filter(|f| wanted(f));
    slots.map(|f| f.slot + 1).max().unwrap_or(0)
}

/// Number of activations that have slots of their own: all if there are deep iterators.
pub(crate) fn activations(
    program: &Program,
    iterators: &[Vec<Option<IteratorLayout>>],
    deep: impl Fn(&IteratorLayout) -> bool,
) -> u32 {
    match iterators.iter().flatten().flatten().any(deep) {
        true => program.limits.maxnesting + 1,
        false => 1,
    }
}

/// The tables of copies for iterators.
pub(crate) fn snapshots(
    program: &Program,
    iterators: &[Vec<Option<IteratorLayout>>],
    tables: &mut Vec<TableSpec>,
) -> Res<Vec<Option<SnapshotMap>>> {
    let mut out = vec![None; program.globals.len()];
    for (i, global) in program.globals.iter().enumerate() {
        let GlobalKind::Array { max, .. } = &global.kind else {
            continue;
        };
        let mine =
            |f: &IteratorLayout| matches!(f.source, IterSource::Array { .. }) && f.g.index() == i;
        let slots = max_over_handlers(iterators, |of_array| count_slots(of_array, mine));
        let activations = activations(program, iterators, |f| mine(f) && f.deep);
        let of_array = iterators.iter().flatten().flatten().filter(|f| mine(f));
        let Some(entry) = of_array.map(IteratorLayout::entry).max() else {
            continue;
        };
        let entries = (*max).max(1);
        let all_slots = u64::from(slots) * u64::from(activations);
        if entries > MAX_ITERATED || u64::from(entries) * all_slots > 1 << 30 {
            return Err(PlanError::TooLarge(format!(
                "`{}` is too large to be iterated over in a kernel handler: at most {MAX_ITERATED} elements",
                global.name
            )));
        }
        let map = map_name(i, global, None).replacen('g', "s", 1);
        tables.push(TableSpec::array(&map, entry, entries * slots * activations));
        out[i] = Some(SnapshotMap {
            map,
            entries,
            slots,
        });
    }
    Ok(out)
}
