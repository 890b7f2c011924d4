//! Facts about a body, found by one pass over its instructions. They decide how code is attached,
//! where state lies, and what a handler's entry and exit do. Facts that need data flow or control
//! flow are not here.

use crate::intrinsics::{Intrinsic, IntrinsicClass};
use crate::program::*;

/// The facts of one body.
#[derive(Debug, Clone, Default)]
pub struct BodyFacts {
    /// Intrinsics in the order of their first use.
    intrinsics: Vec<Intrinsic>,
    /// Globals in the order of their first use, and whether the body changes them.
    globals: Vec<(GlobalId, bool)>,
    /// The body loads from memory of the process.
    pub loads_user: bool,
    /// The body calls a function.
    pub calls: bool,
    /// The body prints.
    pub prints: bool,
    /// The body uses the message of a caught error.
    pub catches_message: bool,
    /// The body is a function's that can be in progress several times at once ([`Inst::Enter`]).
    pub enters: bool,
    /// An error of a called function passes through the body.
    pub rethrows: bool,
    /// The body counts statements towards MAXACTION.
    pub ticks: bool,
    /// An instruction other than [`Inst::Tick`] can fail.
    pub fails: bool,
}

impl BodyFacts {
    /// The facts of a body of that program.
    pub fn new(program: &Program, body: &Body) -> BodyFacts {
        let mut facts = BodyFacts::default();
        body.insts().for_each(|inst| facts.add(program, inst));
        facts
    }

    fn add(&mut self, program: &Program, inst: &Inst) {
        if let Some(g) = inst.global() {
            match self.globals.iter_mut().find(|(known, _)| *known == g) {
                Some((_, changed)) => *changed |= inst.writes_global(),
                None => self.globals.push((g, inst.writes_global())),
            }
        }
        match inst {
            Inst::Intr { f, .. } if !self.uses(*f) => self.intrinsics.push(*f),
            Inst::Load { space, .. } => self.loads_user |= *space == Space::User,
            Inst::Call { .. } => self.calls = true,
            Inst::Print { .. } | Inst::PrintHist { dst: None, .. } => self.prints = true,
            Inst::CatchMsg { .. } => self.catches_message = true,
            Inst::Enter => self.enters = true,
            Inst::Rethrow => self.rethrows = true,
            Inst::Tick { .. } => self.ticks = true,
            _ => {}
        }
        self.fails |= !matches!(inst, Inst::Tick { .. }) && inst.fallible(program);
    }

    /// The intrinsics that the body uses, each once.
    pub fn intrinsics(&self) -> impl Iterator<Item = Intrinsic> {
        self.intrinsics.iter().copied()
    }

    /// Whether the body uses an intrinsic.
    pub fn uses(&self, f: Intrinsic) -> bool {
        self.intrinsics.contains(&f)
    }

    /// Whether the body uses one of these intrinsics.
    pub(crate) fn uses_any(&self, intrinsics: &[Intrinsic]) -> bool {
        intrinsics.iter().any(|f| self.uses(*f))
    }

    /// Whether the body makes texts that only the controller can complete.
    pub fn makes_marks(&self) -> bool {
        self.intrinsics().any(Intrinsic::is_symbolic)
    }

    /// Whether the body reads the last match of a regular expression.
    pub fn asks_of_match(&self) -> bool {
        self.uses_any(&[Intrinsic::MatchGroups, Intrinsic::MatchGroup])
    }

    /// The globals that the body reads or changes, each once.
    pub fn globals(&self) -> impl Iterator<Item = GlobalId> {
        self.globals.iter().map(|(g, _)| *g)
    }

    /// Whether the body reads or changes a global.
    pub fn touches(&self, g: GlobalId) -> bool {
        self.globals().any(|known| known == g)
    }

    /// Whether the body sets the verdict on a packet or on a call that a security hook asks about.
    pub fn sets_verdict(&self) -> bool {
        self.uses_any(&[
            Intrinsic::Verdict,
            Intrinsic::VerdictSet,
            Intrinsic::Decision,
            Intrinsic::DecisionSet,
        ])
    }

    /// Whether the body writes to memory of processes or sends signals.
    pub fn changes_processes(&self) -> bool {
        self.intrinsics()
            .any(|f| matches!(f.class(), IntrinsicClass::Act(_)))
    }
}

/// The facts of each body of a program.
#[derive(Debug, Clone, Default)]
pub struct ProgramFacts {
    /// Of each handler, with whether it is compiled.
    handlers: Vec<(bool, BodyFacts)>,
    /// The facts of each function.
    funcs: Vec<BodyFacts>,
}

impl ProgramFacts {
    /// The facts of all bodies of a program.
    pub fn new(program: &Program) -> ProgramFacts {
        let facts = |body: &Body| BodyFacts::new(program, body);
        let handlers = program.handlers.iter();
        ProgramFacts {
            handlers: handlers
                .map(|h| (h.event.is_compiled(), facts(&h.body)))
                .collect(),
            funcs: program.funcs.iter().map(|f| facts(&f.body)).collect(),
        }
    }

    /// The facts of a handler.
    pub fn handler(&self, id: HandlerId) -> &BodyFacts {
        &self.handlers[id.index()].1
    }

    /// The facts of all handlers, in the program's order.
    pub fn handlers(&self) -> impl Iterator<Item = &BodyFacts> {
        self.handlers.iter().map(|(_, facts)| facts)
    }

    /// The facts of all functions, in the program's order.
    pub fn funcs(&self) -> impl Iterator<Item = &BodyFacts> {
        self.funcs.iter()
    }

    /// Whether a kernel handler writes to memory of processes or sends signals.
    pub fn change_processes(&self) -> bool {
        self.kernel_handlers().any(BodyFacts::changes_processes)
    }

    /// The facts of the handlers that run in the kernel.
    pub fn kernel_handlers(&self) -> impl Iterator<Item = &BodyFacts> {
        let kernel = self.handlers.iter().filter(|(compiled, _)| *compiled);
        kernel.map(|(_, facts)| facts)
    }

    /// The facts of the handlers that run in the kernel, then of all functions, whichever handlers
    /// call them.
    pub fn kernel_bodies(&self) -> impl Iterator<Item = &BodyFacts> {
        self.kernel_handlers().chain(&self.funcs)
    }

    fn kernel_uses(&self, intrinsics: &[Intrinsic]) -> bool {
        self.kernel_bodies().any(|facts| facts.uses_any(intrinsics))
    }

    /// Whether a kernel handler reads memory of the current process.
    pub fn reads_user(&self) -> bool {
        use Intrinsic::{SysArgstr, SysArgtext, UserBuf, UserStr};
        self.kernel_uses(&[UserStr, UserBuf, SysArgstr, SysArgtext])
            || self.kernel_bodies().any(|facts| facts.loads_user)
    }

    /// Whether a kernel handler reads stacks of programs.
    pub fn takes_user_stacks(&self) -> bool {
        use Intrinsic::{Interrupted, UserFrame, UserStack, UserSymbolic, UserSymbolicFrom};
        self.kernel_uses(&[
            UserFrame,
            UserStack,
            UserSymbolic,
            UserSymbolicFrom,
            Interrupted,
        ])
    }

    /// Whether a kernel handler uses the current task's address.
    pub fn takes_task(&self) -> bool {
        self.kernel_uses(&[Intrinsic::TaskCurrent, Intrinsic::TaskHere])
    }

    /// Whether a kernel handler makes texts that the controller completes.
    pub fn makes_marks(&self) -> bool {
        self.kernel_bodies().any(BodyFacts::makes_marks)
    }

    /// Whether a kernel handler can end the session.
    pub fn kernel_exits(&self) -> bool {
        // All functions count, whichever handlers call them: a false positive only costs a test of
        // a word.
        self.kernel_handlers().next().is_some() && self.kernel_uses(&[Intrinsic::Exit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::*;

    fn program(event: Event, insts: Vec<Inst>) -> Program {
        let insts = insts.into_iter().map(|i| (i, SiteId(0))).collect();
        let body = Body {
            blocks: vec![Block {
                insts,
                term: Term::Ret(None),
                catch: None,
            }],
            ..Body::default()
        };
        Program {
            handlers: vec![Handler {
                point: "p".into(),
                points: 1,
                event,
                body,
                site: SiteId(0),
            }],
            ..Program::default()
        }
    }

    #[test]
    fn exits_and_errors_of_kernel_handlers_end_the_session() {
        let exit = || Inst::Intr {
            dst: None,
            f: Intrinsic::Exit,
            args: vec![],
        };
        let exits = |event, insts| ProgramFacts::new(&program(event, insts)).kernel_exits();
        let kernel = || Event::SysEnter(NrSet::All);
        assert!(!exits(kernel(), vec![]));
        assert!(!exits(Event::Begin(0), vec![exit()]));
        assert!(exits(kernel(), vec![exit()]));
    }
}
