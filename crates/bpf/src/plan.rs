//! The state layout: locations in the shared area, in each per-CPU area and in maps, all decided
//! before code is generated.
//!
//! A per-CPU area is ordered by frequency of use, because only its start is reachable with a 16-bit
//! displacement: header, counters, scratch words, per-CPU scalars, small frame slots, then text
//! buffers, and the caches of arrays. Counters and scalars that do not fit at the start follow at
//! the end; their addresses are computed.
//!
//! | module | what it plans |
//! |---|---|
//! | `allocator` | allocates offsets in the state memory and the blocks |
//! | `needs` | the sizes that code generation passes to the plan |
//! | `scratch` | scratch words and buffers |
//! | `memory`, `values` | scalars and single statistics, layouts of values |
//! | `arrays` | hash maps, caches, thread records, co-located elements |
//! | `iterators` | buffers of iterators, shared by those that are never open together |
//! | `snapshots` | the memory of iterators |
//! | `critical` | the copies of the controller's critical section |
//! | `outlining` | which operations are functions that handlers share |
//! | `stacks` | buffers for stacks, and the state of unwinds |
//! | `depth` | the depth of calls, and the length of programs |

use spile_cast::Cast;

mod allocator;
mod arrays;
mod critical;
pub(crate) mod depth;
pub(crate) mod iterators;
mod memory;
mod needs;
pub(crate) mod outlining;
mod scratch;
mod snapshots;
mod stacks;
#[cfg(test)]
mod tests;
mod values;

use std::rc::Rc;

use spile_ebpf::emit::CpuBlocks;
use spile_ebpf::isa::asm::{Asm, Label, Section};
use spile_ebpf::isa::helpers::Helper;
use spile_ebpf::isa::insn::{AluOp, Cond, Reg};
use spile_ir::marks::Marks;
use spile_ir::storage::Storage;
use spile_ir::{
    BodyFacts, Executor, Global, GlobalKind, HandlerId, Intrinsic, Program, ProgramFacts, StatsSpec,
};
use spile_layout::{GlobalLayout, HandlerInfo, TREE_BYTES, counters, percpu};

use crate::attach::AttachPlan;
use crate::error::{LowerError, Res};
use crate::object::elf::MapSpec;
use crate::plan::iterators::IteratorLayout;
use crate::target::Target;

pub(crate) use arrays::{Colocations, EVICT, lanes};
pub(crate) use needs::LayoutInputs;
pub(crate) use scratch::ScratchOffsets;
pub(crate) use snapshots::SnapshotMap;
pub(crate) use stacks::StackBuffer;

use allocator::{Areas, BumpAllocator};
use arrays::ThreadRecordFields;
use memory::{is_large, location_in_memory, per_cpu};
use outlining::Outlining;

/// Displacements below this limit reach their target and the words of a small string behind it.
const REACH: u32 = 32 << 10;
/// Handler counters and per-CPU scalars are reachable within this number of bytes of the block.
const NEAR_COUNTERS: u32 = 4 << 10;
const NEAR_SCALARS: u32 = 16 << 10;

/// The state layout of a program.
#[derive(Debug)]
pub(crate) struct StateLayout {
    /// Bytes of the shared area.
    pub shared_size: u32,
    /// Bytes of a per-CPU area.
    pub stride: u32,
    /// Number of per-CPU areas.
    pub cpus: u32,
    /// For each global, its layout; `None` if only the controller has it.
    pub globals: Vec<Option<GlobalLayout>>,
    /// For each handler, its counters; `None` for handlers of the controller.
    pub handlers: Vec<Option<HandlerInfo>>,
    /// Summary of what each body contains.
    pub facts: Rc<ProgramFacts>,
    /// How the handlers are attached.
    pub attach: AttachPlan,
    /// Maps of the globals.
    pub maps: Vec<MapSpec>,
    /// The iterators of each handler.
    pub iterators: Vec<Vec<Option<IteratorLayout>>>,
    /// For each global, the map of copies for iterators.
    pub snapshots: Vec<Option<SnapshotMap>>,
    /// Offsets of scratch words.
    pub scratch: ScratchOffsets,
    /// Bytes of the longest string with its NUL.
    pub max_string: u32,
    /// Bytes of the saved data of all activations, or of their copies of histograms.
    saved_max: u32,
    /// The operations that handlers share.
    pub outlining: Outlining,
    /// Co-located arrays.
    pub colocations: Colocations,
    /// Buffers for stacks, if any are taken.
    pub stacks: Option<StackBuffer>,
    /// Texts with symbols, and those that handlers make themselves.
    pub marks: Marks,
    /// What the controller's critical section copies.
    pub critical: Option<spile_layout::critical::CriticalLayout>,
    /// Offset in the shared area of the bits of [`crate::programs::process_tree`].
    pub tree: Option<u32>,
    /// Offset in each per-CPU area of the number of changes to processes, if handlers make any.
    pub acts: Option<u32>,
    /// Offset in each per-CPU area of the number of sums of statistics that passed 64 bits, if any is kept.
    pub wraps: Option<u32>,
    /// The same of the times that values of entries were dropped for newer ones.
    pub evictions: Option<u32>,
}

const TOO_FAR: &str = "keys and stacks take more than 32 KB for each CPU";

impl StateLayout {
    /// Lays out all state. The error is the reason for a refusal.
    pub(crate) fn new(
        program: &Program,
        facts: Rc<ProgramFacts>,
        options: &Target,
        needs: LayoutInputs,
    ) -> Res<StateLayout> {
        if options.cpus == 0 || options.cpus > 4096 {
            return Err(LowerError::too_large(format!("{} CPUs", options.cpus)));
        }
        let mut areas = Areas::new();
        let mut handlers = location_handlers(program, options, &mut areas.cpu);
        let far_handlers = areas.cpu.at() > NEAR_COUNTERS;
        if far_handlers {
            areas.cpu = BumpAllocator::from(percpu::END);
        }
        let iterators = snapshots::all_iterators(program)?;
        let mut scratch = ScratchOffsets::words(&mut areas.cpu, &needs, &iterators);
        let made = stacks::forms_made(program, &needs.marks);
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
        let records = ThreadRecordFields::new(program, options, &mut areas);
        let tokens = facts.kernel_handlers().any(|f| f.uses(Intrinsic::Tokenize));
        scratch.buffers(&mut areas.cpu, program, &needs, tokens);
        let saved_max = scratch.activations(&mut areas.cpu, program, &iterators);
        if scratch.value > REACH - 1024 {
            return Err(LowerError::too_large(TOO_FAR));
        }
        if far_handlers {
            handlers = location_handlers(program, options, &mut areas.cpu);
        }
        let arrays = Arrays {
            program,
            options,
            records: &records,
            colocations: &colocations,
        };
        arrays.far_globals(&mut globals, &mut areas)?;
        areas
            .maps
            .extend(stacks::maps(stacks.as_ref(), &made, options.cpus));
        let snapshots = snapshots::snapshots(program, &iterators, &mut areas.maps)?;
        let critical = critical::plan(program, options, &globals, &mut areas);
        let tree = program
            .follows_target()
            .then(|| areas.shared.alloc(TREE_BYTES));
        let (shared_size, stride) = areas.sizes(options.cpus)?;
        Ok(StateLayout {
            shared_size,
            stride,
            cpus: options.cpus,
            globals,
            handlers,
            facts,
            attach: needs.attach,
            maps: areas.maps,
            iterators,
            snapshots,
            scratch,
            max_string: scratch::longest_string(program),
            saved_max,
            outlining: Outlining::new(program, options.share),
            colocations,
            stacks,
            marks: needs.marks,
            tree,
            acts,
            wraps,
            evictions,
            critical,
        })
    }

    /// Where the processors' blocks lie.
    pub(crate) fn cpu_blocks(&self) -> CpuBlocks {
        CpuBlocks {
            first: self.shared_size,
            stride: self.stride,
            count: self.cpus,
        }
    }

    /// `to` = this CPU's area; goes to `out` where the plan has none for it.
    pub(crate) fn cpu_block(&self, asm: &mut Asm, to: Reg, out: Label) {
        let cpu = self.cpu_number(asm, out);
        self.block_of_cpu(asm, cpu, to);
    }

    /// The number of this CPU; goes to `out` if the plan has no block for it.
    pub(crate) fn cpu_number(&self, asm: &mut Asm, out: Label) -> Reg {
        let cpu = asm.call_with(Helper::GetSmpProcessorId, &[]);
        asm.jump_if(Cond::Ge, cpu, self.cpus.cast_signed(), out);
        cpu
    }

    /// `to` = the block of a CPU. Changes `cpu`.
    pub(crate) fn block_of_cpu(&self, asm: &mut Asm, cpu: Reg, to: Reg) {
        asm.alu(AluOp::Mul, cpu, self.stride.cast_signed());
        asm.ld_data(to, Section::Bss, self.shared_size);
        asm.add(to, cpu);
    }

    /// Bytes of `.bss`.
    pub(crate) fn bss_size(&self, options: &Target) -> u32 {
        // Space behind the last block. No code reaches it, but the verifier's bounds on output
        // positions and activations include it.
        let beyond =
            (2 * (self.scratch.out_size + 1).next_power_of_two()).max(self.saved_max) + 3 * 8192;
        self.shared_size + self.stride * options.cpus + beyond
    }
}

/// Lays out the globals that should be near the start of a block; the others have no location yet.
fn near_globals(program: &Program, areas: &mut Areas) -> Vec<Option<GlobalLayout>> {
    let location = |g: &spile_ir::Global| {
        let far = is_large(g) || per_cpu(g) && areas.cpu.at() > NEAR_SCALARS;
        (!far).then(|| location_in_memory(g, areas)).flatten()
    };
    program.globals.iter().map(location).collect()
}

/// What the locations of arrays follow from.
struct Arrays<'a> {
    program: &'a Program,
    options: &'a Target,
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
                locations[i] = arrays::location_field(global, field, &mut areas.maps);
            } else if self.colocations.host(i).is_none() {
                let array = arrays::ArrayToLocation {
                    index: i,
                    global,
                    iterated: iterated[i],
                };
                locations[i] = array.location(self.options, self.colocations, areas)?;
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

fn location_handlers(
    program: &Program,
    options: &Target,
    cpu: &mut BumpAllocator,
) -> Vec<Option<HandlerInfo>> {
    let size = match options.timing {
        true => counters::SIZE,
        false => counters::HITS + 8,
    };
    let location = |(i, h): (usize, &spile_ir::Handler)| {
        (h.event.executor() == Executor::Kernel).then(|| HandlerInfo {
            id: HandlerId(i.fit()),
            counters: cpu.alloc(size),
            others: Vec::new(),
        })
    };
    program.handlers.iter().enumerate().map(location).collect()
}
