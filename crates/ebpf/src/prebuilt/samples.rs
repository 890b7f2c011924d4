//! The requests whose code is emitted when spile is built: those of scripts without limits of their own,
//! on kernels since 6.1. A test compiles such scripts, and finds a template for each request.

use spile_lir::library::append;
use spile_lir::library::arguments::{self, DeferredReads};
use spile_lir::library::defer::DeferLayout;
use spile_lir::library::heap::{HeapLayout, HeapOrder};
use spile_lir::library::mappings::MappingOffsets;
use spile_lir::library::output::FlushLayout;
use spile_lir::library::routine::{NAME, Routine};
use spile_lir::library::stacks::{StackLayout, StackText};
use spile_lir::library::unwind::{self, UnwindOffsets};
use spile_lir::library::usermem::{self, PageOffsets};

/// Bytes of the longest text, and frames of a stack, where the script sets no limit.
const TEXT: u32 = 512;
const FRAMES: u32 = 20;
/// A number whose value makes no difference.
const SOME: u32 = 64;

/// The requests, one for each shape.
pub fn samples() -> Vec<Routine> {
    let some = SOME.cast_signed();
    let layout = append::AppendLayout {
        length: some,
        text: some,
        most: TEXT.cast_signed(),
        digits: some,
    };
    let mut samples: Vec<Routine> = Routine::all_common().collect();
    samples.extend([
        Routine::AppendText(layout),
        Routine::AppendBytes(layout),
        Routine::AppendHex(layout),
        Routine::Quote(TEXT, TEXT),
        Routine::Arguments(sample_arguments(), 2 * arguments::ENTRY.cast_signed()),
        Routine::Defer(sample_defer(layout)),
        Routine::Flush(sample_flush()),
        Routine::FindSteps,
        Routine::Addresses(sample_unwind()),
        Routine::Unwind(sample_unwind()),
    ]);
    let stacks = sample_stacks(layout);
    samples.extend(StackText::all(&stacks).map(Routine::StackText));
    let with_lines = StackLayout {
        lines: true,
        ..stacks
    };
    let with_lines = StackText::all(&with_lines).filter(|text| text.layout.lines);
    samples.extend(with_lines.map(Routine::StackText));
    samples.extend([8, 10, 16].map(|base| Routine::AppendNumber(layout, base)));
    samples.extend(
        [None, Some(HeapOrder::Up), Some(HeapOrder::Down)].map(|texts| {
            Routine::Heap(HeapLayout {
                map: NAME.into(),
                texts,
            })
        }),
    );
    // The flag has been one bit higher since Linux 6.12.
    samples.extend([2, 3].map(|uptodate| Routine::UserMemory(sample_memory(uptodate))));
    samples
}

fn sample_arguments() -> arguments::ArgumentLayout {
    let some = SOME.cast_signed();
    arguments::ArgumentLayout {
        length: some,
        most: TEXT.cast_signed(),
        arguments: some,
        staging: some,
        quoted: some,
        quote: format!("quote_{TEXT}"),
        signed: append::flag::SIGNED,
        mark: append::flag::MARK,
        defer: Some(DeferredReads {
            allowed: some,
            absent: some,
            quoted: some,
        }),
    }
}

fn sample_defer(text: append::AppendLayout) -> DeferLayout {
    DeferLayout {
        text,
        record: SOME.cast_signed(),
        count: SOME,
        mark: SOME,
        ring: "out",
        shape: SOME,
        wakeup: SOME.cast_signed(),
        task_id: SOME,
        task_start: SOME,
        task_program: SOME,
    }
}

fn sample_flush() -> FlushLayout {
    FlushLayout {
        running: 0,
        position: SOME,
        buffer: SOME,
        size: SOME,
        ring: "out",
        wake: SOME,
        lost: SOME,
    }
}

const MAPPING: MappingOffsets = MappingOffsets {
    task_mm: SOME,
    mm_root: SOME,
    vma_start: 0,
    vma_end: SOME,
};

fn sample_memory(uptodate: u32) -> usermem::UsermemLayout {
    let some = SOME.cast_signed();
    usermem::UsermemLayout {
        most: TEXT.cast_signed(),
        staging: some,
        copy: some,
        search: SOME,
        pages: Some(PageOffsets {
            mapping: MAPPING,
            vma_flags: SOME,
            vma_pgoff: SOME,
            vma_file: SOME,
            vma_anon: SOME,
            file_mapping: SOME,
            mapping_head: SOME,
            node_shift: 0,
            node_slots: SOME,
            folio_flags: 0,
            folio_index: SOME,
            uptodate,
            page_size: 64,
        }),
        first_page: SOME,
        direct_map: SOME,
    }
}

fn sample_stacks(text: append::AppendLayout) -> StackLayout {
    StackLayout {
        text,
        most: FRAMES,
        frames: SOME,
        count: SOME,
        first: SOME,
        unwind: SOME,
        words: SOME,
        texts: SOME,
        ranges: SOME,
        lines: false,
        symbols: "stack_symbols",
        symbol_rows: "symbol_rows",
        names: "symbol_names",
        line_rows: "line_rows",
        kernel_lines: "kernel_lines",
        cut_stacks: SOME,
        truncated: SOME,
        unnamed: SOME,
    }
}

fn sample_unwind() -> unwind::UnwindLayout {
    unwind::UnwindLayout {
        abi: &spile_abi::X86_64,
        base: SOME,
        search: SOME,
        most: FRAMES,
        frames: SOME,
        count: SOME,
        first: SOME,
        next_file: SOME,
        offsets: UnwindOffsets {
            mapping: MAPPING,
            task_tgid: SOME,
            mm_vdso: SOME,
            vma_pgoff: SOME,
            vma_file: SOME,
            vma_flags: SOME,
            file_inode: SOME,
            file_dentry: SOME,
            inode_ino: SOME,
            inode_sb: SOME,
            sb_dev: SOME,
            dentry_parent: SOME,
            dentry_name: SOME,
            returns: Some([SOME; 5]),
        },
        files: "stack_files",
        rows: "stack_rows",
        copies: "stack_copies",
        ring: "out",
        file_record: SOME,
        copy_record: SOME,
        wakeup: SOME.cast_signed(),
        guessed: SOME,
        cut_stacks: SOME,
        lost_output: SOME,
        no_memory: SOME,
    }
}
