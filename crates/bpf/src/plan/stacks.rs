//! Rooms for stacks of the kernel and of programs, and the state of walks.

use spile_ir::marks::{BodyId, Marks};
use spile_ir::{Event, Inst, Program, Val};

use super::{BumpAllocator, insts};
use crate::layout::{SymbolicForm, stack_words};
use crate::lower::event::stacks::OWN_FRAMES;
use crate::lower::event::unwind;

/// The places for stacks: offsets in each CPU's block, except for `words` and `next_file`.
#[derive(Debug, Clone)]
pub struct StackRoom {
    /// Limit on the frames of a stack: MAXBACKTRACE.
    pub most: u32,
    /// The addresses.
    pub frames: u32,
    /// The number of bytes of addresses.
    pub count: u32,
    /// Offset of the first frame of probed code.
    pub first: u32,
    /// Offset in the shared block, see [`crate::layout::stack_words`].
    pub words: u32,
    /// The tracepoints whose own frames are skipped.
    pub points: Vec<String>,
    /// Whether the kernel's stack is taken.
    pub kernel: bool,
    /// Whether user stacks are walked, and not only addresses looked up.
    pub rows: bool,
    /// Whether kernel handlers make texts of user symbols.
    pub names: bool,
    /// Whether these texts contain positions in the source.
    pub lines: bool,
    /// Offset of the state of user-stack walks, if there are any.
    pub user: Option<u32>,
    /// Offset in the shared block of the last file number.
    pub next_file: u32,
}

/// Whether an instruction walks the current program's stack or looks up its addresses.
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

/// Whether an instruction walks the kernel's stack.
pub(crate) fn takes_kernel_stack(inst: &Inst) -> bool {
    use spile_ir::intrinsics::Intrinsic::{KernelFrame, KernelStack, KernelSymbolic};
    matches!(
        inst,
        Inst::Intr {
            f: KernelStack | KernelFrame | KernelSymbolic,
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
            Inst::Intr { dst: Some(dst), .. } if marks.made(BodyId::Handler(i), *dst) => {
                SymbolicForm::of(inst)
            }
            _ => None,
        }));
    }
    all
}

impl StackRoom {
    /// Bytes of all addresses of a stack.
    pub fn bytes(&self) -> u32 {
        8 * (self.most + OWN_FRAMES + 2)
    }

    pub(super) fn new(
        program: &Program,
        made: &[SymbolicForm],
        shared: &mut BumpAllocator,
        cpu: &mut BumpAllocator,
    ) -> Option<StackRoom> {
        use spile_ir::intrinsics::Intrinsic as I;
        let takes = takes_kernel_stack;
        let user = insts(program).any(takes_user_stack);
        // Looks up an address in the mappings without walking a stack.
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
        let rows = insts(program).any(|i| takes_user_stack(i) && !looks_up(i));
        let kernel = insts(program).any(takes);
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
                Event::SysEnter(_) => "sys_enter".into(),
                Event::SysExit(_) => "sys_exit".into(),
                _ => continue,
            };
            if !points.contains(&point) {
                points.push(point);
            }
        }
        let by_tables = || made.iter().filter(|form| form.by_tables());
        let room = StackRoom {
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
        let words = stack_words::POINTS + room.points.len() as u32 * stack_words::POINT;
        any.then(|| StackRoom {
            frames: cpu.alloc(room.bytes()),
            count: cpu.alloc(8),
            first: cpu.alloc(8),
            words: shared.alloc(words),
            user: user.then(|| cpu.alloc(unwind::room(room.most))),
            next_file: shared.alloc(8),
            ..room
        })
    }
}
