//! The state layout: places in the shared block, in each CPU's block and in maps, all decided
//! before code is generated.
//!
//! A CPU's block is ordered by frequency of use, because only its start is reachable with a 16-bit
//! displacement: header, counters, scratch words, per-CPU scalars, small frame slots, then text
//! buffers, and the caches of arrays. Counters and scalars that do not fit at the start follow at
//! the end; their addresses are computed.
//!
//! | module | what it plans |
//! |---|---|
//! | `arrays` | hash maps, caches, thread records, co-located elements |
//! | `iterators` | rooms of iterators, shared by those that are never open together |
//! | `stacks` | rooms for stacks, and the state of walks |
//! | `depth` | the depth of calls, and the length of programs |

mod arrays;
pub(crate) mod depth;
pub(crate) mod iterators;
mod stacks;

use std::rc::Rc;

use spile_ir::fmt::MAX_MEM;
use spile_ir::marks::Marks;
use spile_ir::storage::Storage;
use spile_ir::{
    BodyFacts, ElemTy, Global, GlobalKind, HandlerId, Hist, Inst, Intrinsic, MAX_CALLERS, Program,
    ProgramFacts, StatsSpec, Ty,
};

use crate::attach::AttachPlan;
use crate::isa::asm::{Asm, Label, Section};
use crate::isa::helpers::Helper;
use crate::isa::insn::{AluOp, Cond, Reg};
use crate::layout::{
    AggLayout, COPIES_MAP, FILES_MAP, GlobalLayout, GlobalPlace, HandlerInfo, KERNEL_LINES_MAP,
    LINE_ROWS_MAP, MAX_ROWS, NAMES_MAP, ROWS_MAP, SYMBOL_ROWS_MAP, SYMBOLS_MAP, ValueLayout,
    counters, kernel_row, percpu, shared, symbol_row,
};
use crate::lower::event::unwind::COPY_BYTES;
use crate::lower::reads_into_text;
use crate::object::elf::{MapSpec, MapType};
use crate::plan::iterators::{IterSource, IteratorLayout, state};
use crate::programs::critical_section;
use crate::target::Options;

pub use arrays::{Colocations, EVICT, SEQUENCE, lanes};
pub use stacks::StackRoom;
pub(crate) use stacks::takes_kernel_stack;

use arrays::{ThreadRecordFields, map_name, place_array, place_field};

/// Displacements below this limit reach their target and the words of a small string behind it.
const REACH: u32 = 32 << 10;
/// Per-CPU statistics above this size in bytes are placed last.
const SMALL: u32 = 64;
/// Handler counters and per-CPU scalars are reachable within this number of bytes of the block.
const NEAR_COUNTERS: u32 = 4 << 10;
const NEAR_SCALARS: u32 = 16 << 10;
/// Limit on the elements of an array with iterators: `bpf_loop` makes at most 8 million iterations,
/// and building a heap takes two for each element.
const MAX_WALKED: u32 = 4_000_000;
/// Bytes of the output buffer in addition to the largest record.
const OUT_BYTES: u32 = 8 << 10;

/// Offsets of the scratch words in each CPU's block, which follow the header of
/// [`crate::layout::percpu`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScratchOffsets {
    /// Number of bytes in the output buffer; 0 if this run has no output yet.
    pub out_pos: u32,
    /// The verdict on a packet, for handlers that decide.
    pub verdict: u32,
    /// Identifier of the error that led to a catch block.
    pub err_id: u32,
    /// The address or number that the error has_live_in.
    pub err_aux: u32,
    /// Position in the text being built.
    pub text_pos: u32,
    /// Statements left, if MAXACTION cannot be proved.
    pub ticks: u32,
    /// Start time of the handler.
    pub start: u32,
    /// The resume point of a resumable loop.
    pub resume: u32,
    /// Result of the search for a page of user memory.
    pub page: u32,
    /// Number of active activations of recursive functions.
    pub depth: u32,
    /// Site of the error that led to a catch block.
    pub err_site: u32,
    /// Number of callers that the error passed, followed by their sites.
    pub err_callers: u32,
    /// The saved data of activations, one after the other.
    pub saved: u32,
    /// Bytes of the saved data of one activation.
    pub saved_size: u32,
    /// Ten words for any instruction. A value that went through them is an unknown number for the
    /// verifier, so that paths that differ in it merge again.
    pub tmp: u32,
    /// Digits of a number: 128 bytes, the second half always zero.
    pub digits: u32,
    /// Words of iterators, see [`state`].
    pub iterators: u32,
    /// Copies of histograms for iterators, one room after the other.
    pub buckets: u32,
    /// Bytes of one such room.
    pub bucket_room: u32,
    /// Bytes of all rooms of one activation.
    pub bucket_rooms: u32,
    /// A key of a map.
    pub key: u32,
    /// A value of a map.
    pub value: u32,
    /// First byte of the frame.
    pub frame: u32,
    /// The text of the error that led to a catch block.
    pub err_text: u32,
    /// The text being built. Appending needs up to the length of three strings; a fourth one is the
    /// destination of copies that only measure.
    pub text: u32,
    /// The state of `tokenize` within one run: the position, the text.
    pub tokens: u32,
    /// Work area for the conversion of decimal text.
    pub decimal: u32,
    /// Bytes read by `%m` for a text.
    pub memory: u32,
    /// The last match of a regular expression, if the program uses its groups.
    pub last_match: u32,
    /// The output buffer.
    pub out: u32,
    /// Size of the output buffer in bytes.
    pub out_size: u32,
}

/// The state layout of a program.
#[derive(Debug)]
pub struct StateLayout {
    /// Bytes of the shared block.
    pub shared_size: u32,
    /// Bytes of a CPU's block.
    pub stride: u32,
    /// Number of CPU blocks.
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
    /// Whether handlers share global subprograms, because there are many handlers or much code.
    pub outline: bool,
    /// Whether there are enough handlers to share entry and exit code, too.
    pub outline_entry: bool,
    /// Co-located arrays.
    pub colocations: Colocations,
    /// For each global, whether a subprogram adds to it.
    pub added: Vec<bool>,
    /// Rooms for stacks, if any are taken.
    pub stacks: Option<StackRoom>,
    /// Texts with symbols, and those that handlers make themselves.
    pub marks: Marks,
    /// What the controller's critical section copies.
    pub critical: Option<crate::layout::critical::CriticalLayout>,
    /// Offset in the shared block of the bits of [`crate::programs::process_tree`].
    pub tree: Option<u32>,
}

/// `BPF_F_MMAPABLE` of `linux/bpf.h`: the loader writes to the map's memory.
pub(crate) const MMAPABLE: u32 = 1 << 10;
/// A larger number of handlers shares subprograms.
const MANY_HANDLERS: usize = 4;
/// A larger number of handlers shares entry and exit code, which contains a helper call that the
/// kernel rewrites (see `crates/bpf/src/lower/handler/outline.rs`).
const CROWD: usize = 32;
/// A larger number of instructions in kernel handlers shares subprograms.
const MUCH_CODE: usize = 300;
/// A global with this number of additions in the program has a subprogram for them.
const MANY_PLACES: u32 = 4;

/// Whether the program is large enough for shared subprograms.
fn is_large_program(program: &Program) -> bool {
    let insts = insts(program).count();
    program.kernel_handlers().count() > MANY_HANDLERS || insts > MUCH_CODE
}

/// The map to which an array's elements are copied for iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotMap {
    /// Its name.
    pub map: String,
    /// Number of rooms for one activation.
    pub rooms: u32,
    /// Number of entries in one iterator's room.
    pub entries: u32,
}

/// Sizes that the handlers' code needs.
#[derive(Debug, Clone, Default)]
pub struct LayoutInputs {
    /// Bytes of frame slots, the maximum over all handlers.
    pub frame: u32,
    /// Bytes of the largest output record.
    pub piece: u32,
    /// Bytes of saved data of one activation.
    pub saved: u32,
    /// Texts with symbols, and those that handlers make themselves.
    pub marks: Marks,
    /// How the handlers are attached.
    pub attach: AttachPlan,
}

/// Allocates offsets in a block.
pub(crate) struct BumpAllocator(u32);

impl BumpAllocator {
    pub(crate) fn alloc(&mut self, bytes: u32) -> u32 {
        let at = self.0;
        self.0 += bytes.next_multiple_of(8);
        at
    }
}

impl StateLayout {
    /// Lays out all state. The error is the reason for a refusal.
    pub fn new(
        program: &Program,
        facts: Rc<ProgramFacts>,
        options: &Options,
        needs: LayoutInputs,
    ) -> Result<StateLayout, String> {
        if options.cpus == 0 || options.cpus > 4096 {
            return Err(format!("{} CPUs", options.cpus));
        }
        let max_string = Ty::str_for_len(program.limits.maxstringlen as usize).size();
        let mut shared = BumpAllocator(shared::END);
        let mut cpu = BumpAllocator(percpu::END);
        let mut handlers = place_handlers(program, options, &mut cpu);
        let far_handlers = cpu.0 > NEAR_COUNTERS;
        if far_handlers {
            cpu = BumpAllocator(percpu::END);
        }
        let iterators = all_iterators(program)?;
        let (key, value) = buffer_sizes(program, max_string);
        let mut scratch = ScratchOffsets {
            out_pos: cpu.alloc(8),
            verdict: 0,
            err_id: cpu.alloc(8),
            err_aux: cpu.alloc(8),
            text_pos: cpu.alloc(8),
            ticks: cpu.alloc(8),
            start: cpu.alloc(8),
            resume: cpu.alloc(8),
            page: cpu.alloc(24),
            depth: cpu.alloc(8),
            err_site: cpu.alloc(8),
            err_callers: cpu.alloc(8 + 8 * MAX_CALLERS as u32),
            saved: 0,
            saved_size: needs.saved,
            tmp: cpu.alloc(80),
            digits: cpu.alloc(128),
            iterators: cpu.alloc(max_over_handlers(&iterators, |i| i.len() as u32) * state::BYTES),
            buckets: 0,
            bucket_room: largest_walk(&iterators),
            bucket_rooms: 0,
            key: 0,
            value: 0,
            frame: 0,
            err_text: 0,
            text: 0,
            tokens: 0,
            decimal: 0,
            memory: 0,
            last_match: 0,
            out: 0,
            out_size: (needs.piece + 64).next_multiple_of(8).max(OUT_BYTES),
        };
        let made = stacks::forms_made(program, &needs.marks);
        let stacks = StackRoom::new(program, &made, &mut shared, &mut cpu);
        let mut places: Vec<_> = program
            .globals
            .iter()
            .enumerate()
            .map(|(i, g)| {
                let far = is_large(g) || per_cpu(g) && cpu.0 > NEAR_SCALARS;
                (!far)
                    .then(|| place_in_memory(i, g, &mut shared, &mut cpu))
                    .flatten()
            })
            .collect();
        if facts.kernel_handlers().any(BodyFacts::decides) {
            scratch.verdict = cpu.alloc(8);
        }
        let colocations = Colocations::new(program, &mut cpu);
        let records = ThreadRecordFields::new(program, options, (&mut shared, &mut cpu));
        scratch.key = cpu.alloc(key);
        scratch.value = cpu.alloc(value);
        scratch.frame = cpu.alloc(needs.frame);
        scratch.err_text = cpu.alloc(max_string);
        scratch.text = cpu.alloc(4 * max_string + 256);
        if facts.kernel_handlers().any(|f| f.uses(Intrinsic::Tokenize)) {
            scratch.tokens = cpu.alloc(8 + max_string);
        }
        scratch.decimal = cpu.alloc(crate::lower::text::decimal::room(insts(program)));
        if insts(program).any(|i| reads_into_text(program, i)) {
            scratch.memory = cpu.alloc(MAX_MEM as u32 + 8);
        }
        scratch.last_match =
            cpu.alloc(crate::lower::text::regex::room(program, &facts, max_string));
        scratch.out = cpu.alloc(scratch.out_size);
        let saved_max = needs.saved.saturating_mul(program.limits.maxnesting);
        scratch.saved = cpu.alloc(saved_max);
        let bucket_rooms = max_over_handlers(&iterators, |i| {
            count_rooms(i, |f| matches!(f.walk, IterSource::Buckets(_)))
        });
        let buckets = |f: &IteratorLayout| f.deep && matches!(f.walk, IterSource::Buckets(_));
        let activations = activations(program, &iterators, buckets);
        scratch.bucket_rooms = bucket_rooms * scratch.bucket_room;
        let bucket_bytes = scratch.bucket_rooms.saturating_mul(activations);
        scratch.buckets = cpu.alloc(bucket_bytes);
        if scratch.value > REACH - 1024 {
            return Err("keys and stacks take more than 32 KB for each CPU".into());
        }
        if far_handlers {
            handlers = place_handlers(program, options, &mut cpu);
        }
        let mut maps = Vec::new();
        let iterated = iterators::iterated(program);
        for (i, global) in program.globals.iter().enumerate() {
            if places[i].is_none() {
                places[i] = place_in_memory(i, global, &mut shared, &mut cpu);
            }
            if let (GlobalKind::Array { .. }, false) =
                (&global.kind, global.storage == Storage::Controller)
            {
                if let Some(field) = records.field(i) {
                    places[i] = place_field(global, field, &mut maps);
                    continue;
                }
                if colocations.host(i).is_none() {
                    let to = (&mut shared, &mut cpu, &mut maps);
                    let how = (options, &colocations);
                    places[i] = place_array(i, (global, iterated[i]), how, to)?;
                }
            }
        }
        for (i, global) in program.globals.iter().enumerate() {
            if let Some(other) = colocations.host(i) {
                let other = places[other.index()].as_ref();
                places[i] = other.and_then(|other| colocations.place(global, i, other));
            }
        }
        if stacks.as_ref().is_some_and(|s| s.user.is_some()) {
            maps.push(MapSpec {
                name: FILES_MAP.into(),
                ty: MapType::Hash,
                key_size: 16,
                value_size: 24,
                max_entries: 4096,
                flags: 0,
            });
            maps.push(MapSpec {
                name: ROWS_MAP.into(),
                ty: MapType::Array,
                key_size: 4,
                value_size: 8,
                max_entries: match stacks.as_ref().is_some_and(|s| s.rows) {
                    true => MAX_ROWS,
                    false => 1,
                },
                flags: MMAPABLE,
            });
            let walks = stacks.as_ref().is_some_and(|s| s.rows);
            maps.push(MapSpec {
                name: COPIES_MAP.into(),
                ty: MapType::Array,
                key_size: 4,
                value_size: COPY_BYTES,
                max_entries: if walks { options.cpus } else { 1 },
                flags: 0,
            });
            if let Some(stacks) = stacks.as_ref().filter(|s| s.names) {
                maps.extend(symbol_maps(stacks.lines));
            }
        }
        if made.iter().any(|form| form.by_kernel_lines()) {
            maps.push(MapSpec {
                name: KERNEL_LINES_MAP.into(),
                ty: MapType::Array,
                key_size: 4,
                value_size: kernel_row::BYTES,
                max_entries: 1,
                flags: MMAPABLE,
            });
        }
        let snapshots = snapshots(program, &iterators, &mut maps)?;
        let critical = critical_section::plan(program, options, &places, (&mut shared, &mut maps));
        let tree = program
            .follows_target()
            .then(|| shared.alloc(crate::programs::process_tree::TREE_BYTES));
        let stride = cpu.0.next_multiple_of(64);
        let shared_size = shared.0.next_multiple_of(64);
        let total = u64::from(stride) * u64::from(options.cpus) + u64::from(shared_size);
        if total > 1 << 28 {
            return Err(format!("the state memory would take {} MB", total >> 20));
        }
        Ok(StateLayout {
            shared_size,
            stride,
            cpus: options.cpus,
            globals: places,
            handlers,
            facts,
            attach: needs.attach,
            maps,
            iterators,
            snapshots,
            scratch,
            max_string,
            saved_max: saved_max.max(bucket_bytes),
            outline: options.share.unwrap_or_else(|| is_large_program(program)),
            outline_entry: options
                .share
                .unwrap_or_else(|| program.kernel_handlers().count() > CROWD),
            colocations,
            added: additions(program, options.share == Some(true)),
            stacks,
            marks: needs.marks,
            tree,
            critical,
        })
    }

    /// `to` = this CPU's block; goes to `out` where the plan has none for it. Clobbers r0 to r5.
    pub(crate) fn cpu_block(&self, asm: &mut Asm, to: Reg, out: Label) {
        asm.call(Helper::GetSmpProcessorId);
        asm.jump_if(Cond::Ge, Reg::R0, self.cpus as i32, out);
        self.block_of_cpu(asm, to);
    }

    /// `to` = the block of the CPU in r0.
    pub(crate) fn block_of_cpu(&self, asm: &mut Asm, to: Reg) {
        asm.alu(AluOp::Mul, Reg::R0, self.stride as i32);
        asm.ld_data(to, Section::Bss, self.shared_size);
        asm.add(to, Reg::R0);
    }

    /// Bytes of `.bss`.
    pub fn bss_size(&self, options: &Options) -> u32 {
        // Space behind the last block. No code reaches it, but the verifier's bounds on output
        // positions and activations include it.
        let beyond =
            (2 * (self.scratch.out_size + 1).next_power_of_two()).max(self.saved_max) + 3 * 8192;
        self.shared_size + self.stride * options.cpus + beyond
    }
}

/// The maps of symbols, see [`symbol_row`].
fn symbol_maps(lines: bool) -> Vec<MapSpec> {
    let array = |name: &str, value_size, max_entries| MapSpec {
        name: name.into(),
        ty: MapType::Array,
        key_size: 4,
        value_size,
        max_entries,
        flags: MMAPABLE,
    };
    let mut maps = vec![
        MapSpec {
            name: SYMBOLS_MAP.into(),
            ty: MapType::Hash,
            key_size: 8,
            value_size: symbol_row::FILE as u32,
            max_entries: 4096,
            flags: 0,
        },
        array(SYMBOL_ROWS_MAP, 8, symbol_row::MAX),
        array(
            NAMES_MAP,
            symbol_row::NAMES_PAGE,
            symbol_row::NAMES / symbol_row::NAMES_PAGE,
        ),
    ];
    if lines {
        maps.push(array(
            LINE_ROWS_MAP,
            symbol_row::LINE_ROW,
            symbol_row::MAX_LINES,
        ));
    }
    maps
}

/// For each global, whether kernel handlers add to it in many places, or anywhere if `all` is set.
fn additions(program: &Program, all: bool) -> Vec<bool> {
    let mut places = vec![0; program.globals.len()];
    for inst in insts(program) {
        if let Inst::StatAdd { g, .. } | Inst::AAdd { g, .. } = inst
            && let Some(n) = places.get_mut(g.index())
        {
            *n += 1;
        }
    }
    let many = if all { 1 } else { MANY_PLACES };
    places.into_iter().map(|n| n >= many).collect()
}

/// All instructions of kernel handlers.
fn insts(program: &Program) -> impl Iterator<Item = &Inst> {
    program.kernel_handlers().flat_map(|h| h.body.insts())
}

fn place_handlers(
    program: &Program,
    options: &Options,
    cpu: &mut BumpAllocator,
) -> Vec<Option<HandlerInfo>> {
    let size = match options.timing {
        true => counters::SIZE,
        false => counters::HITS + 8,
    };
    let place = |(i, h): (usize, &spile_ir::Handler)| {
        h.event.in_kernel().then(|| HandlerInfo {
            id: HandlerId(i as u32),
            counters: cpu.alloc(size),
        })
    };
    program.handlers.iter().enumerate().map(place).collect()
}

/// The iterators of all kernel handlers.
fn all_iterators(program: &Program) -> Result<Vec<Vec<Option<IteratorLayout>>>, String> {
    let of = |h: &spile_ir::Handler| match h.event.in_kernel() {
        true => iterators::iterators(program, &h.body),
        false => Ok(Vec::new()),
    };
    program.handlers.iter().map(of).collect()
}

/// The maximum of `count` over all handlers, of which only one runs at a time.
fn max_over_handlers(
    iterators: &[Vec<Option<IteratorLayout>>],
    count: impl Fn(&[Option<IteratorLayout>]) -> u32,
) -> u32 {
    iterators.iter().map(|i| count(i)).max().unwrap_or(0)
}

/// Number of rooms for the selected iterators of a handler.
fn count_rooms(
    iterators: &[Option<IteratorLayout>],
    which: impl Fn(&IteratorLayout) -> bool,
) -> u32 {
    let rooms = iterators.iter().flatten().filter(|f| which(f));
    rooms.map(|f| f.room + 1).max().unwrap_or(0)
}

/// Number of activations that have rooms of their own: all if there are deep iterators.
fn activations(
    program: &Program,
    iterators: &[Vec<Option<IteratorLayout>>],
    deep: impl Fn(&IteratorLayout) -> bool,
) -> u32 {
    match iterators.iter().flatten().flatten().any(deep) {
        true => program.limits.maxnesting + 1,
        false => 1,
    }
}

/// Bytes of the largest histogram that is iterated.
fn largest_walk(iterators: &[Vec<Option<IteratorLayout>>]) -> u32 {
    let bytes = |f: &IteratorLayout| match f.walk {
        IterSource::Buckets(n) => 8 * n,
        IterSource::Array { .. } => 0,
    };
    let all = iterators.iter().flatten().flatten();
    all.map(bytes).max().unwrap_or(0)
}

/// The maps of copies for iterators.
fn snapshots(
    program: &Program,
    iterators: &[Vec<Option<IteratorLayout>>],
    maps: &mut Vec<MapSpec>,
) -> Result<Vec<Option<SnapshotMap>>, String> {
    let mut out = vec![None; program.globals.len()];
    for (i, global) in program.globals.iter().enumerate() {
        let GlobalKind::Array { max, .. } = &global.kind else {
            continue;
        };
        let mine =
            |f: &IteratorLayout| matches!(f.walk, IterSource::Array { .. }) && f.g.index() == i;
        let rooms = max_over_handlers(iterators, |all| count_rooms(all, mine));
        let activations = activations(program, iterators, |f| mine(f) && f.deep);
        let all = iterators.iter().flatten().flatten().filter(|f| mine(f));
        let Some(entry) = all.map(IteratorLayout::entry).max() else {
            continue;
        };
        let entries = (*max).max(1);
        let all_rooms = u64::from(rooms) * u64::from(activations);
        if entries > MAX_WALKED || u64::from(entries) * all_rooms > 1 << 30 {
            return Err(format!(
                "`{}` is too large to be walked through in a kernel handler: at most {MAX_WALKED} elements",
                global.name
            ));
        }
        let map = map_name(i, global, None).replacen('g', "s", 1);
        maps.push(MapSpec {
            name: map.clone(),
            ty: MapType::Array,
            key_size: 4,
            value_size: entry,
            max_entries: entries * rooms * activations,
            flags: 0,
        });
        out[i] = Some(SnapshotMap {
            map,
            entries,
            rooms,
        });
    }
    Ok(out)
}

/// Sizes of the key buffer and of the value buffer.
fn buffer_sizes(program: &Program, max_string: u32) -> (u32, u32) {
    let mut sizes = (8, max_string + 8);
    for global in &program.globals {
        if let (GlobalKind::Array { keys, value, .. }, false) =
            (&global.kind, global.storage == Storage::Controller)
        {
            sizes.0 = sizes.0.max(keys.iter().map(|k| k.size()).sum());
            sizes.1 = sizes.1.max(element(value).size() + 8);
        }
    }
    sizes
}

/// The layout of an array's element.
fn element(elem: &ElemTy) -> ValueLayout {
    match elem {
        ElemTy::Scalar(ty) => ValueLayout::Scalar(*ty),
        ElemTy::Stats(spec) => ValueLayout::Stats(agg_layout(spec)),
    }
}

/// The layout of a statistic.
pub fn agg_layout(spec: &StatsSpec) -> AggLayout {
    let mut at = BumpAllocator(0);
    let count = at.alloc(8);
    let mut word = |wanted: bool, bytes: u32| wanted.then(|| at.alloc(bytes));
    let sum = word(spec.sum || spec.variance, 8);
    let min = word(spec.min, 8);
    let max = word(spec.max, 8);
    let sumsq = word(spec.variance, 16);
    let buckets = spec.hist.map(Hist::buckets);
    let hist = buckets.map(|n| (at.alloc(8 * n), n));
    AggLayout {
        count,
        sum,
        min,
        max,
        sumsq,
        hist,
        size: at.0,
    }
}

/// Whether a global can be out of reach of displacements: a per-CPU statistic with a histogram,
/// whose address is computed in any case.
fn is_large(global: &Global) -> bool {
    match (&global.kind, global.storage) {
        (GlobalKind::Stats(spec), Storage::PerCpu { .. }) => agg_layout(spec).size > SMALL,
        _ => false,
    }
}

/// Whether a global is in each CPU's block.
fn per_cpu(global: &Global) -> bool {
    matches!(global.storage, Storage::PerCpu { .. })
}

/// Places scalars and single statistics; of arrays only the lock.
fn place_in_memory(
    index: usize,
    global: &Global,
    shared: &mut BumpAllocator,
    cpu: &mut BumpAllocator,
) -> Option<GlobalLayout> {
    let _ = index;
    match global.storage {
        Storage::Controller => None,
        Storage::Shared { lock } => {
            let place = match &global.kind {
                GlobalKind::Scalar(ty) => GlobalPlace::Scalar {
                    offset: shared.alloc(ty.size()),
                    ty: *ty,
                },
                GlobalKind::Stats(spec) => {
                    let agg = agg_layout(spec);
                    GlobalPlace::Stats {
                        offset: shared.alloc(agg.size),
                        agg,
                    }
                }
                GlobalKind::Array { .. } => return None,
            };
            Some(GlobalLayout {
                lock: lock.then(|| shared.alloc(8)),
                place,
            })
        }
        Storage::PerCpu { double } => {
            let value = match &global.kind {
                GlobalKind::Scalar(ty) => ValueLayout::Scalar(*ty),
                GlobalKind::Stats(spec) => ValueLayout::Stats(agg_layout(spec)),
                GlobalKind::Array { .. } => return None,
            };
            let generations = if double { 2 } else { 1 };
            Some(GlobalLayout {
                lock: None,
                place: GlobalPlace::PerCpuScalar {
                    offset: cpu.alloc(value.size() * generations),
                    gen_stride: if double { value.size() } else { 0 },
                    value,
                },
            })
        }
    }
}
