//! Room for stacks of the kernel and of programs, and what is needed to walk them.

use spile_ir::marks::{In, Marks};
use spile_ir::{Event, Inst, Program, Val};

use super::{Bump, insts};
use crate::layout::{Symbolic, stack_words};
use crate::lower::event::stacks::OWN_FRAMES;
use crate::lower::event::unwind;

/// Where stacks are taken: offsets in each CPU's block but for the words.
#[derive(Debug, Clone)]
pub struct StackRoom {
    /// Most frames of a stack: MAXBACKTRACE.
    pub most: u32,
    /// The addresses.
    pub frames: u32,
    /// How many bytes of them there are.
    pub count: u32,
    /// Offset of the first one that counts.
    pub first: u32,
    /// Place in the shared block, see [`crate::layout::stack_words`].
    pub words: u32,
    /// The tracepoints whose own frames are left out.
    pub points: Vec<String>,
    /// Whether stacks of the kernel are taken.
    pub kernel: bool,
    /// Whether stacks of programs are walked, and no addresses only looked up.
    pub rows: bool,
    /// Whether kernel handlers make texts of programs' symbols,
    pub names: bool,
    /// and of places in their source.
    pub lines: bool,
    /// What walks of programs' stacks need, where there are any.
    pub user: Option<u32>,
    /// Place in the shared block of the last number that a file got.
    pub next_file: u32,
}

/// Whether an instruction walks or looks at the current program.
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

/// The texts that kernel handlers make.
pub(super) fn made(program: &Program, marks: &Marks) -> Vec<Symbolic> {
    let mut all = Vec::new();
    for (i, handler) in program.handlers.iter().enumerate() {
        let insts = handler.body.insts();
        all.extend(insts.filter_map(|inst| match inst {
            Inst::Intr { dst: Some(dst), .. } if marks.made(In::Handler(i), *dst) => {
                Symbolic::of(inst)
            }
            _ => None,
        }));
    }
    all
}

impl StackRoom {
    /// Bytes of all addresses.
    pub fn bytes(&self) -> u32 {
        8 * (self.most + OWN_FRAMES + 2)
    }

    pub(super) fn new(
        program: &Program,
        made: &[Symbolic],
        shared: &mut Bump,
        cpu: &mut Bump,
    ) -> Option<StackRoom> {
        use spile_ir::intrinsics::Intrinsic as I;
        let takes = takes_kernel_stack;
        let user = insts(program).any(takes_user_stack);
        // An address is looked up in the mappings, no stack is walked.
        let looks_up = |i: &Inst| match i {
            Inst::Intr {
                f: I::Interrupted, ..
            } => true,
            Inst::Intr {
                f: I::UserSymbolic,
                args,
                ..
            } => {
                matches!(args.first(), Some(Val::Imm(form)) if Symbolic::by_number(*form).is_some_and(|f| !f.of_stack()))
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
            frames: cpu.take(room.bytes()),
            count: cpu.take(8),
            first: cpu.take(8),
            words: shared.take(words),
            user: user.then(|| cpu.take(unwind::room(room.most))),
            next_file: shared.take(8),
            ..room
        })
    }
}
