//! Buffers for stacks of the kernel and of programs, and the state of unwinds.

use spile_cast::Cast;
use spile_ir::marks::{BodyId, Marks};
use spile_ir::{Event, Inst, Program, Val};
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
    /// Offset in the shared area, see [`crate::stack_words`].
    pub words: u32,
    /// The tracepoints whose own frames are skipped.
    pub points: Vec<String>,
    /// Whether the kernel's stack is taken.
    pub kernel: bool,
    /// Whether user stacks are unwound, and not only addresses looked up.
    pub rows: bool,
    /// Whether kernel handlers make texts of user symbols.
    pub names: bool,
    /// Whether these texts contain positions in the source.
    pub lines: bool,
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

/// The forms of text that kernel handlers make.
pub(super) fn forms_made(program: &Program, marks: &Marks) -> Vec<SymbolicForm> {
    let mut all = Vec::new();
    for (i, handler) in program.handlers.iter().enumerate() {
        let insts = handler.body.insts();
        all.extend(insts.filter_map(|inst| match inst {
            Inst::Intr { dst: Some(dst), .. } if marks.made_in_kernel(BodyId::Handler(i), *dst) => {
                SymbolicForm::for_inst(inst)
            }
            _ => None,
        }));
    }
    all
}

impl StackBuffer {
    /// Bytes of all addresses of a stack.
    pub fn bytes(&self) -> u32 {
        8 * (self.most + OWN_FRAMES + 2)
    }

    /// What the controller knows of them.
    pub(super) fn words(&self) -> StackWords {
        StackWords {
            at: self.words,
            points: self.points.clone(),
            kernel: self.kernel,
            rows: self.rows,
            files: self.user.map(|_| self.next_file),
            symbols: self.names,
            lines: self.lines,
        }
    }

    pub(super) fn new(
        program: &Program,
        made: &[SymbolicForm],
        user_unwind: u32,
        areas: &mut Areas,
    ) -> Option<StackBuffer> {
        use spile_ir::intrinsics::Intrinsic as I;
        let takes = takes_kernel_stack;
        let user = program.kernel_insts().any(takes_user_stack);
        // Looks up an address in the mappings without unwinding a stack.
        let looks_up = |i: &Inst| match i {
            Inst::Intr {
                f: I::Interrupted, ..
            } => true,
            Inst::Intr {
                f: I::UserSymbolic,
                args,
                ..
            } => {
                matches!(args.first(), Some(Val::Imm(form)) if SymbolicForm::by_number(*form).is_some_and(|f| !f.of_stack()))
            }
            _ => false,
        };
        let rows = program
            .kernel_insts()
            .any(|i| takes_user_stack(i) && !looks_up(i));
        let kernel = program.kernel_insts().any(takes);
        let mut points = Vec::new();
        let mut any = user;
        for handler in program.kernel_handlers() {
            let mut insts = handler.body.insts();
            if !insts.any(takes) {
                continue;
            }
            any = true;
            let point = match &handler.event {
                Event::Tracepoint(name) => name.to_string(),
                Event::TraceEvent(event) => event.name.to_string(),
                Event::SysEnter(_) => "sys_enter".into(),
                Event::SysExit(_) => "sys_exit".into(),
                _ => continue,
            };
            if !points.contains(&point) {
                points.push(point);
            }
        }
        let by_tables = || made.iter().filter(|form| form.by_tables());
        let buffer = StackBuffer {
            names: by_tables().next().is_some(),
            lines: by_tables().any(|form| form.has_lines()),
            most: program.limits.maxbacktrace,
            frames: 0,
            count: 0,
            first: 0,
            words: 0,
            points,
            kernel,
            rows,
            user: None,
            next_file: 0,
        };
        let words = stack_words::POINTS + buffer.points.len().fit::<u32>() * stack_words::POINT;
        let Areas { shared, cpu, .. } = areas;
        any.then(|| StackBuffer {
            frames: cpu.alloc(buffer.bytes()),
            count: cpu.alloc(8),
            first: cpu.alloc(8),
            words: shared.alloc(words),
            user: user.then(|| cpu.alloc(user_unwind)),
            next_file: shared.alloc(8),
            ..buffer
        })
    }
}

/// The tables of stacks and of their names. `stacks` and `made` are as in the plan.
pub(super) fn tables(
    stacks: Option<&StackBuffer>,
    made: &[SymbolicForm],
    cpus: u32,
) -> Vec<TableSpec> {
    let mut maps = Vec::new();
    if stacks.is_some_and(|s| s.user.is_some()) {
        let unwinds = stacks.is_some_and(|s| s.rows);
        maps.push(TableSpec::hash(FILES_MAP, 16, 24, 4096));
        maps.push(TableSpec::mapped(
            ROWS_MAP,
            8,
            if unwinds { MAX_ROWS } else { 1 },
        ));
        maps.push(TableSpec::array(
            COPIES_MAP,
            copy::BYTES,
            if unwinds { cpus } else { 1 },
        ));
        if let Some(stacks) = stacks.filter(|s| s.names) {
            maps.extend(symbol_maps(stacks.lines));
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
