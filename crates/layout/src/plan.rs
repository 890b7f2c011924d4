//! Lays out a program for a host: offsets in the shared area and in each per-CPU area, and tables, all decided
//! before the host makes code.
//!
//! A per-CPU area is ordered by frequency of use, because in eBPF only its start is reachable with a 16-bit
//! displacement: header, counters, scratch words, per-CPU scalars, small frame slots, then text
//! buffers, and the caches of arrays. Counters and scalars that do not fit at the start follow at
//! the end; their addresses are computed.
//!
//! | module | what it plans |
//! |---|---|
//! | `host` | what a layout depends on besides the program, and why there is none |
//! | `allocator` | allocates offsets in the state memory and the per-CPU areas |
//! | `needs` | the sizes of buffers, which follow from the program |
//! | `scratch` | scratch words and buffers |
//! | `memory`, `values` | scalars and single statistics, layouts of values |
//! | `arrays` | hash tables, caches, thread records, co-located elements |
//! | `iterators` | buffers of iterators, shared by those that are never open together |
//! | `snapshots` | the memory of iterators |
//! | `critical` | the copies of the controller's critical section |
//! | `stacks` | buffers for stacks, and the state of unwinding |
//! | `spec` | tables as the host makes them |

use spile_cast::Cast;
use spile_ir::marks::Marks;
use spile_ir::storage::Storage;
use spile_ir::{
    BodyFacts, Global, GlobalKind, Handler, HandlerId, Intrinsic, Program, ProgramFacts, StatsSpec,
};

use crate::{GlobalLayout, HandlerInfo, Layout, TREE_BYTES, counters, percpu};

mod allocator;
mod arrays;
mod critical;
mod host;
pub mod iterators;
mod memory;
mod needs;
mod scratch;
mod snapshots;
mod spec;
mod stacks;
#[cfg(test)]
mod tests;
mod values;

pub use arrays::{Colocations, EVICT, lanes};
pub use host::{CriticalParams, HostParams, PlanError};
pub use needs::{rethrown_fields, saved_bytes};
pub use scratch::ScratchOffsets;
pub use snapshots::SnapshotMap;
pub use spec::{TableKind, TableSpec};
pub use stacks::{StackBuffer, stack_point};

use allocator::{Areas, BumpAllocator};
use arrays::ThreadRecordFields;
use host::Res;
use iterators::IteratorLayout;
use memory::{is_large, location_in_memory, per_cpu};
use needs::LayoutInputs;

/// Displacements below this limit reach their target and the words of a small string behind it.
const REACH: u32 = 32 << 10;
/// Handler counters and per-CPU scalars are reachable within this number of bytes of the area.
const NEAR_COUNTERS: u32 = 4 << 10;
const NEAR_SCALARS: u32 = 16 << 10;

/// The layout of a program, with what only its handlers use.
#[derive(Debug)]
pub struct StateLayout {
    /// What handlers and the controller share. Shapes of records follow from the code of the handlers.
    pub layout: Layout,
    /// The tables.
    pub tables: Vec<TableSpec>,
    /// The iterators of each handler.
    pub iterators: Vec<Vec<Option<IteratorLayout>>>,
    /// For each global, the table of copies for iterators.
    pub snapshots: Vec<Option<SnapshotMap>>,
    /// Offsets of scratch words.
    pub scratch: ScratchOffsets,
    /// Bytes of the longest string with its NUL.
    pub max_string: u32,
    /// Length of the longest string whose match by a regular expression is kept, or 0.
    pub max_matched: u32,
    /// Bytes of the saved data of all activations, or of their copies of histograms.
    pub saved_max: u32,
    /// Co-located arrays.
    pub colocations: Colocations,
    /// Buffers for stacks, if any are taken.
    pub stacks: Option<StackBuffer>,
}

const TOO_FAR: &str = "keys and stacks take more than 32 KB for each CPU";

impl StateLayout {
    /// Lays out all state. `marks` are the strings with symbols, and those that handlers make themselves.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn new(
        program: &Program,
        facts: &ProgramFacts,
        marks: &Marks,
        host: &HostParams,
    ) -> Result<StateLayout, PlanError> {
        if host.cpus == 0 || host.cpus > 4096 {
            return Err(PlanError::TooLarge(format!("{} CPUs", host.cpus)));
        }
        StateLayout::with(program, (facts, marks), host, &needs::needs(program, facts))
    }

    fn with(
        program: &Program,
        (facts, marks): (&ProgramFacts, &Marks),
        host: &HostParams,
        needs: &LayoutInputs,
    ) -> Res<StateLayout> {
        let mut areas = Areas::new();
        let mut handlers = handler_counters(program, host, &mut areas.cpu);
        let far_handlers = areas.cpu.at() > NEAR_COUNTERS;
        if far_handlers {
            areas.cpu = BumpAllocator::from(percpu::END);
        }
        let iterators = snapshots::all_iterators(program)?;
        let mut scratch = ScratchOffsets::words(&mut areas.cpu, needs, &iterators);
        let made = stacks::forms_made(program, marks);
        let stacks = StackBuffer::new(program, &made, needs.user_unwind, &mut areas);
        let mut globals = near_globals(program, &mut areas);
        if facts.kernel_handlers().any(BodyFacts::sets_verdict) {
            scratch.verdict = areas.cpu.alloc(8);
        }
        let acts = facts.change_processes().then(|| areas.cpu.alloc(8));
        let sums = |g: &Global| g.kind.stats().is_some_and(StatsSpec::keeps_sum);
        let mut counter = |wanted: bool| wanted.then(|| areas.cpu.alloc(8));
        let wraps = counter(program.globals.iter().any(sums));
        let evictions = counter(program.globals.iter().any(Global::saves_entry_values));
        let colocations = Colocations::new(program, &mut areas.cpu);
        let records = ThreadRecordFields::new(program, host.cpus, &mut areas);
        let tokens = facts.kernel_handlers().any(|f| f.uses(Intrinsic::Tokenize));
        scratch.buffers(&mut areas.cpu, program, (needs, host.frame), tokens);
        let saved_max = scratch.activations(&mut areas.cpu, program, &iterators);
        if scratch.value > REACH - 1024 {
            return Err(PlanError::TooLarge(TOO_FAR.into()));
        }
        if far_handlers {
            handlers = handler_counters(program, host, &mut areas.cpu);
        }
        let arrays = Arrays {
            program,
            cpus: host.cpus,
            records: &records,
            colocations: &colocations,
        };
        arrays.far_globals(&mut globals, &mut areas)?;
        areas
            .tables
            .extend(stacks::tables(stacks.as_ref(), &made, host.cpus));
        let snapshots = snapshots::snapshots(program, &iterators, &mut areas.tables)?;
        let critical =
            (host.critical).and_then(|how| critical::plan(program, how, &globals, &mut areas));
        let tree = program
            .follows_target()
            .then(|| areas.shared.alloc(TREE_BYTES));
        let (shared_size, cpu_stride) = areas.sizes(host.cpus)?;
        let layout = Layout {
            shared_size,
            cpu_stride,
            cpus: host.cpus,
            globals,
            handlers,
            stacks: stacks.as_ref().map(|s| s.words.clone()),
            tree,
            acts,
            wraps,
            evictions,
            critical,
            ..Layout::default()
        };
        Ok(StateLayout {
            layout,
            tables: areas.tables,
            iterators,
            snapshots,
            scratch,
            max_string: scratch::longest_string(program),
            max_matched: needs.matched,
            saved_max,
            colocations,
            stacks,
        })
    }
}

/// Lays out the globals that should be near the start of a per-CPU area; the others have no location yet.
fn near_globals(program: &Program, areas: &mut Areas) -> Vec<Option<GlobalLayout>> {
    let location = |g: &Global| {
        let far = is_large(g) || per_cpu(g) && areas.cpu.at() > NEAR_SCALARS;
        (!far).then(|| location_in_memory(g, areas)).flatten()
    };
    program.globals.iter().map(location).collect()
}

/// What the locations of arrays follow from.
struct Arrays<'a> {
    program: &'a Program,
    cpus: u32,
    records: &'a ThreadRecordFields,
    colocations: &'a Colocations,
}

impl Arrays<'_> {
    /// Lays out the globals that have no location yet.
    fn far_globals(&self, locations: &mut [Option<GlobalLayout>], areas: &mut Areas) -> Res {
        let iterated = iterators::iterated(self.program);
        for (i, global) in self.program.globals.iter().enumerate() {
            if locations[i].is_none() {
                locations[i] = location_in_memory(global, areas);
            }
            if !matches!(global.kind, GlobalKind::Array { .. })
                || global.storage == Storage::Controller
            {
                continue;
            }
            if let Some(field) = self.records.field(i) {
                locations[i] = arrays::field_location(global, field, &mut areas.tables);
            } else if self.colocations.host(i).is_none()
                && let Some(array) = arrays::UnplacedArray::new(i, global, iterated[i])
            {
                locations[i] = array.location(self.cpus, self.colocations, areas)?;
            }
        }
        for (i, global) in self.program.globals.iter().enumerate() {
            if let Some(other) = self.colocations.host(i) {
                let other = locations[other.index()].as_ref();
                locations[i] = other.and_then(|other| self.colocations.location(global, i, other));
            }
        }
        Ok(())
    }
}

fn handler_counters(
    program: &Program,
    host: &HostParams,
    cpu: &mut BumpAllocator,
) -> Vec<Option<HandlerInfo>> {
    let size = match host.timing {
        true => counters::SIZE,
        false => counters::HITS + 8,
    };
    let location = |(i, h): (usize, &Handler)| {
        (h.event.is_compiled()).then(|| HandlerInfo {
            id: HandlerId(i.fit()),
            counters: cpu.alloc(size),
            others: Vec::new(),
        })
    };
    program.handlers.iter().enumerate().map(location).collect()
}
