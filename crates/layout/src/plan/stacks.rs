//! Buffers for stacks of the kernel and of programs, and the state of unwinds.

use spile_cast::Cast;
use spile_ir::marks::{BodyId, Marks};
use spile_ir::{Event, Handler, Inst, Program};
use spile_lir::library::stacks::OWN_FRAMES;

use super::allocator::Areas;
use super::spec::TableSpec;
use crate::{
    COPIES_MAP, FILES_MAP, KERNEL_LINES_MAP, LINE_ROWS_MAP, MAX_ROWS, NAMES_MAP, ROWS_MAP,
    SYMBOL_ROWS_MAP, SYMBOLS_MAP, StackWords, SymbolicForm, copy, kernel_row, stack_words,
    symbol_row, takes_kernel_stack,
};

/// Locations for stacks: offsets in each per-CPU area, except for `words` and `next_file`.
#[derive(Debug, Clone)]
pub struct StackBuffer {
    /// Limit on the frames of a stack: MAXBACKTRACE.
    pub most: u32,
    /// The addresses.
    pub frames: u32,
    /// The number of bytes of addresses.
    pub count: u32,
    /// Offset of the first frame of probed code.
    pub first: u32,
    /// What the controller shares.
    pub words: StackWords,
    /// Offset of the state of user-stack unwinds, if there are any.
    pub user: Option<u32>,
    /// Offset in the shared area of the last file number.
    pub next_file: u32,
}

/// Whether an instruction unwinds the current program's stack or looks up its addresses.
fn takes_user_stack(inst: &Inst) -> bool {
    use spile_ir::intrinsics::Intrinsic::{
        Interrupted, UserFrame, UserStack, UserSymbolic, UserSymbolicFrom,
    };
    matches!(
        inst,
        Inst::Intr {
            f: UserFrame | UserStack | UserSymbolic | UserSymbolicFrom | Interrupted,
            ..
        }
    )
}

/// The tracepoint of an event, if its own frames are on the kernel's stack.
pub fn stack_point(event: &Event) -> Option<&str> {
    match event {
        Event::Tracepoint(name) => Some(name),
        Event::TraceEvent(event) => Some(&event.name),
        Event::SysEnter(_) => Some("sys_enter"),
        Event::SysExit(_) => Some("sys_exit"),
        _ => None,
    }
}

/// The forms of text that kernel handlers make.
pub(super) fn forms_made(program: &Program, marks: &Marks) -> Vec<SymbolicForm> {
    let mut forms = Vec::new();
    for (i, handler) in program.handlers.iter().enumerate() {
        let insts = handler.body.insts();
        forms.extend(insts.filter_map(|inst| match inst {
            Inst::Intr { dst: Some(dst), .. } if marks.made_in_kernel(BodyId::Handler(i), *dst) => {
                SymbolicForm::for_inst(inst)
            }
            _ => None,
        }));
    }
    forms
}

impl StackBuffer {
    /// Bytes of all addresses of a stack.
    pub fn bytes(&self) -> u32 {
        stack_bytes(self.most)
    }

    /// The buffers of a program, if handlers take stacks.
    pub(super) fn new(
        program: &Program,
        made: &[SymbolicForm],
        user_unwind: u32,
        areas: &mut Areas,
    ) -> Option<StackBuffer> {
        use spile_ir::intrinsics::Intrinsic as I;
        let user = program.kernel_insts().any(takes_user_stack);
        let takes = |handler: &&Handler| handler.body.insts().any(takes_kernel_stack);
        let takers: Vec<&Handler> = program.kernel_handlers().filter(takes).collect();
        if takers.is_empty() && !user {
            return None;
        }
        let looks_up = |i: &Inst| match i {
            Inst::Intr {
                f: I::Interrupted | I::UserSymbolic,
                ..
            } => SymbolicForm::for_inst(i).is_some_and(|form| !form.of_stack()),
            _ => false,
        };
        let rows = program
            .kernel_insts()
            .any(|i| takes_user_stack(i) && !looks_up(i));
        let mut points: Vec<String> = Vec::new();
        for point in takers.iter().filter_map(|h| stack_point(&h.event)) {
            if !points.iter().any(|known| known == point) {
                points.push(point.to_owned());
            }
        }
        let by_tables = || made.iter().filter(|form| form.by_tables());
        let Areas { shared, cpu, .. } = areas;
        let most = program.limits.maxbacktrace;
        let [frames, count, first] = [stack_bytes(most), 8, 8].map(|bytes| cpu.alloc(bytes));
        let words = stack_words::POINTS + points.len().fit::<u32>() * stack_words::POINT;
        let (words, next_file) = (shared.alloc(words), shared.alloc(8));
        Some(StackBuffer {
            most,
            frames,
            count,
            first,
            words: StackWords {
                offset: words,
                points,
                kernel: !takers.is_empty(),
                rows,
                files: user.then_some(next_file),
                symbols: by_tables().next().is_some(),
                lines: by_tables().any(|form| form.has_lines()),
            },
            user: user.then(|| cpu.alloc(user_unwind)),
            next_file,
        })
    }
}

/// Bytes of the addresses of a stack with at most `most` frames.
fn stack_bytes(most: u32) -> u32 {
    8 * (most + OWN_FRAMES + 2)
}

/// The tables of stacks and of their names. `stacks` and `made` are as in the plan.
pub(super) fn tables(
    stacks: Option<&StackBuffer>,
    made: &[SymbolicForm],
    cpus: u32,
) -> Vec<TableSpec> {
    let mut maps = Vec::new();
    if let Some(stacks) = stacks.filter(|s| s.user.is_some()) {
        let words = &stacks.words;
        let (rows, copies) = if words.rows { (MAX_ROWS, cpus) } else { (1, 1) };
        maps.push(TableSpec::hash(FILES_MAP, 16, 24, 4096));
        maps.push(TableSpec::mapped(ROWS_MAP, 8, rows));
        maps.push(TableSpec::array(COPIES_MAP, copy::BYTES, copies));
        if words.symbols {
            maps.extend(symbol_maps(words.lines));
        }
    }
    if made.iter().any(|form| form.by_kernel_lines()) {
        maps.push(TableSpec::mapped(KERNEL_LINES_MAP, kernel_row::BYTES, 1));
    }
    maps
}

/// The maps of symbols, see [`symbol_row`].
fn symbol_maps(lines: bool) -> Vec<TableSpec> {
    let mut maps = vec![
        TableSpec::hash(SYMBOLS_MAP, 8, symbol_row::FILE as u32, 4096),
        TableSpec::mapped(SYMBOL_ROWS_MAP, 8, symbol_row::MAX),
        TableSpec::mapped(
            NAMES_MAP,
            symbol_row::NAMES_VALUE,
            symbol_row::NAMES / symbol_row::NAMES_VALUE,
        ),
    ];
    if lines {
        maps.push(TableSpec::mapped(
            LINE_ROWS_MAP,
            symbol_row::LINE_ROW,
            symbol_row::MAX_LINES,
        ));
    }
    maps
}
