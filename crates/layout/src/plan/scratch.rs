//! The scratch words and buffers of each per-CPU area.

use spile_cast::Cast;
use spile_ir::storage::Storage;
use spile_ir::{GlobalKind, MAX_CALLERS, Program, Ty};
use spile_lir::library::append::DIGITS;
use spile_lir::library::mappings::search;

use super::allocator::BumpAllocator;
use super::iterators::{IterSource, IteratorLayout, state};
use super::needs::LayoutInputs;
use super::snapshots::{activations, count_slots, max_over_handlers};
use super::values::element;

/// Bytes of the output buffer in addition to the largest record.
const OUT_BYTES: u32 = 8 << 10;

/// Offsets of the scratch words in each per-CPU area, which follow the header of
/// [`crate::percpu`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScratchOffsets {
    /// Number of bytes in the output buffer; 0 if this run has no output yet.
    pub out_pos: u32,
    /// The verdict on a packet, for handlers that decide.
    pub verdict: u32,
    /// Identifier of the error that led to a catch block.
    pub err_id: u32,
    /// The address or number that the error carries.
    pub err_aux: u32,
    /// Position in the text being built.
    pub text_pos: u32,
    /// Statements left, if MAXACTION cannot be proved.
    pub ticks: u32,
    /// Start time of the handler.
    pub start: u32,
    /// The resume point of a resumable loop.
    pub resume: u32,
    /// Words of searches for mappings of the program.
    pub search: u32,
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
    /// Digits of a number: 24 bytes, and as many that are always zero.
    pub digits: u32,
    /// Words of iterators, see [`super::iterators::state`].
    pub iterators: u32,
    /// Copies of histograms for iterators, one slot after the other.
    pub buckets: u32,
    /// Bytes of one such space.
    pub bucket_slot: u32,
    /// Bytes of all slots of one activation.
    pub bucket_slots: u32,
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

impl ScratchOffsets {
    /// Lays out the words at the start of each per-CPU area; [`ScratchOffsets::buffers`] and
    /// [`ScratchOffsets::activations`] lay out the rest.
    pub(super) fn words(
        cpu: &mut BumpAllocator,
        needs: &LayoutInputs,
        iterators: &[Vec<Option<IteratorLayout>>],
    ) -> ScratchOffsets {
        ScratchOffsets {
            out_pos: cpu.alloc(8),
            err_id: cpu.alloc(8),
            err_aux: cpu.alloc(8),
            text_pos: cpu.alloc(8),
            ticks: cpu.alloc(8),
            start: cpu.alloc(8),
            resume: cpu.alloc(8),
            depth: cpu.alloc(8),
            err_site: cpu.alloc(8),
            err_callers: cpu.alloc(8 + 8 * MAX_CALLERS.fit::<u32>()),
            saved_size: needs.saved,
            tmp: cpu.alloc(80),
            digits: cpu.alloc(DIGITS),
            iterators: cpu
                .alloc(max_over_handlers(iterators, |i| i.len().fit::<u32>()) * state::BYTES),
            search: cpu.alloc(search::BYTES),
            bucket_slot: largest_source(iterators),
            out_size: (needs.piece + 64).next_multiple_of(8).max(OUT_BYTES),
            ..ScratchOffsets::default()
        }
    }

    /// Lays out the buffers, behind what is in frequent use.
    pub(super) fn buffers(
        &mut self,
        cpu: &mut BumpAllocator,
        program: &Program,
        (needs, frame): (&LayoutInputs, u32),
        tokens: bool,
    ) {
        let max_string = longest_string(program);
        let (key, value) = buffer_sizes(program, max_string);
        self.key = cpu.alloc(key);
        self.value = cpu.alloc(value);
        self.frame = cpu.alloc(frame);
        self.err_text = cpu.alloc(max_string);
        self.text = cpu.alloc(4 * max_string + 256);
        if tokens {
            self.tokens = cpu.alloc(8 + max_string);
        }
        self.decimal = cpu.alloc(needs.decimal);
        if needs.memory > 0 {
            self.memory = cpu.alloc(needs.memory);
        }
        self.last_match = cpu.alloc(needs.last_match);
        self.out = cpu.alloc(self.out_size);
    }

    /// Lays out the saved data of activations and the copies of histograms. Returns the bytes of the
    /// larger one.
    pub(super) fn activations(
        &mut self,
        cpu: &mut BumpAllocator,
        program: &Program,
        iterators: &[Vec<Option<IteratorLayout>>],
    ) -> u32 {
        let saved = self.saved_size.saturating_mul(program.limits.maxnesting);
        self.saved = cpu.alloc(saved);
        let buckets = |f: &IteratorLayout| matches!(f.source, IterSource::Buckets(_));
        let slots = max_over_handlers(iterators, |i| count_slots(i, buckets));
        let activations = activations(program, iterators, |f| f.deep && buckets(f));
        self.bucket_slots = slots * self.bucket_slot;
        let bucket_bytes = self.bucket_slots.saturating_mul(activations);
        self.buckets = cpu.alloc(bucket_bytes);
        saved.max(bucket_bytes)
    }
}

/// Bytes of the longest string with its NUL.
pub(super) fn longest_string(program: &Program) -> u32 {
    Ty::str_for_len(program.limits.maxstringlen as usize).size()
}

/// Bytes of the largest histogram that is iterated.
fn largest_source(iterators: &[Vec<Option<IteratorLayout>>]) -> u32 {
    let bytes = |f: &IteratorLayout| match f.source {
        IterSource::Buckets(n) => 8 * n,
        IterSource::Array { .. } => 0,
    };
    let iterators = iterators.iter().flatten().flatten();
    iterators.map(bytes).max().unwrap_or(0)
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
