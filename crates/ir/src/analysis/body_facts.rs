//! What a body contains, found by one walk over its instructions: for those who decide how code is attached,
//! where state lies, and what a handler's entry and exit have to do. What depends on more than single
//! instructions (flows of values, ways through the blocks) is not here.

use crate::*;

/// What the instructions of one body are.
#[derive(Debug, Clone, Default)]
pub struct BodyFacts {
    /// Operations in the order of their first use.
    intrinsics: Vec<Intrinsic>,
    /// Globals in the order of their first use, and whether the body changes them.
    globals: Vec<(GlobalId, bool)>,
    /// It loads from memory of the process.
    pub loads_user: bool,
    /// It calls a function.
    pub calls: bool,
    /// It prints.
    pub prints: bool,
    /// It asks for the message of the error that it caught.
    pub catches_message: bool,
    /// It is a function that can be in progress several times at once ([`Inst::Enter`]).
    pub enters: bool,
    /// An error passes through it from a function that it calls.
    pub rethrows: bool,
    /// It counts towards MAXACTION.
    pub ticks: bool,
    /// An instruction can fail, [`Inst::Tick`] apart.
    pub fails: bool,
}

impl BodyFacts {
    /// Of a body of that program.
    pub fn of(program: &Program, body: &Body) -> BodyFacts {
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
            Inst::Print { .. } | Inst::PrintHist { .. } => self.prints = true,
            Inst::CatchMsg { .. } => self.catches_message = true,
            Inst::Enter => self.enters = true,
            Inst::Rethrow => self.rethrows = true,
            Inst::Tick { .. } => self.ticks = true,
            _ => {}
        }
        self.fails |= !matches!(inst, Inst::Tick { .. }) && inst.fallible(program);
    }

    /// The operations that it uses, each once.
    pub fn intrinsics(&self) -> impl Iterator<Item = Intrinsic> {
        self.intrinsics.iter().copied()
    }

    /// Whether it uses an operation.
    pub fn uses(&self, f: Intrinsic) -> bool {
        self.intrinsics.contains(&f)
    }

    /// Whether it uses one of these operations.
    pub fn uses_any(&self, of: &[Intrinsic]) -> bool {
        of.iter().any(|f| self.uses(*f))
    }

    /// Whether it makes texts that only the controller can complete.
    pub fn makes_marks(&self) -> bool {
        self.intrinsics().any(Intrinsic::is_symbolic)
    }

    /// Whether it asks about the last match of a regular expression.
    pub fn asks_of_match(&self) -> bool {
        self.uses_any(&[Intrinsic::MatchGroups, Intrinsic::MatchGroup])
    }

    /// The globals that it reads or changes, each once.
    pub fn globals(&self) -> impl Iterator<Item = GlobalId> {
        self.globals.iter().map(|(g, _)| *g)
    }

    /// Whether it reads or changes a global.
    pub fn touches(&self, g: GlobalId) -> bool {
        self.globals().any(|known| known == g)
    }

    /// Whether it says what becomes of a packet or of a call that a security hook asks about.
    pub fn decides(&self) -> bool {
        self.uses_any(&[Intrinsic::Verdict, Intrinsic::VerdictSet])
    }
}

/// The facts of each body of a program.
#[derive(Debug, Clone, Default)]
pub struct ProgramFacts {
    /// Of each handler; `true` for those that run in the kernel.
    handlers: Vec<(bool, BodyFacts)>,
    /// Of each function.
    funcs: Vec<BodyFacts>,
}

impl ProgramFacts {
    /// Walks over all bodies.
    pub fn of(program: &Program) -> ProgramFacts {
        let facts = |body: &Body| BodyFacts::of(program, body);
        let handlers = program.handlers.iter();
        ProgramFacts {
            handlers: handlers
                .map(|h| (h.event.in_kernel(), facts(&h.body)))
                .collect(),
            funcs: program.funcs.iter().map(|f| facts(&f.body)).collect(),
        }
    }

    /// Of a handler.
    pub fn handler(&self, id: HandlerId) -> &BodyFacts {
        &self.handlers[id.index()].1
    }

    /// Of all handlers, in the program's order.
    pub fn handlers(&self) -> impl Iterator<Item = &BodyFacts> {
        self.handlers.iter().map(|(_, facts)| facts)
    }

    /// Of all functions, in the program's order.
    pub fn funcs(&self) -> impl Iterator<Item = &BodyFacts> {
        self.funcs.iter()
    }

    /// Of the handlers that run in the kernel.
    pub fn kernel_handlers(&self) -> impl Iterator<Item = &BodyFacts> {
        let kernel = self.handlers.iter().filter(|(kernel, _)| *kernel);
        kernel.map(|(_, facts)| facts)
    }

    /// Of the handlers that run in the kernel, then of all functions, whoever calls them.
    pub fn kernel_bodies(&self) -> impl Iterator<Item = &BodyFacts> {
        self.kernel_handlers().chain(&self.funcs)
    }

    fn kernel_uses(&self, of: &[Intrinsic]) -> bool {
        self.kernel_bodies().any(|facts| facts.uses_any(of))
    }

    /// Whether a kernel handler reads memory of the current process.
    pub fn reads_user(&self) -> bool {
        use Intrinsic::{SysArgstr, SysArgtext, UserBuf, UserStr};
        self.kernel_uses(&[UserStr, UserBuf, SysArgstr, SysArgtext])
            || self.kernel_bodies().any(|facts| facts.loads_user)
    }

    /// Whether a kernel handler looks at stacks of programs.
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

    /// Whether a kernel handler asks for the current task's address.
    pub fn takes_task(&self) -> bool {
        self.kernel_uses(&[Intrinsic::TaskCurrent, Intrinsic::TaskHere])
    }

    /// Whether a kernel handler makes texts that the controller completes.
    pub fn makes_marks(&self) -> bool {
        self.kernel_bodies().any(BodyFacts::makes_marks)
    }

    /// Whether a kernel handler can end the session.
    pub fn kernel_exits(&self) -> bool {
        // Functions count wherever they are called from: being wrong costs a look at a word.
        self.kernel_handlers().next().is_some() && self.kernel_uses(&[Intrinsic::Exit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn handlers_of_the_kernel_that_end_the_session() {
        let exit = || Inst::Intr {
            dst: None,
            f: Intrinsic::Exit,
            args: vec![],
        };
        let exits = |event, insts| ProgramFacts::of(&program(event, insts)).kernel_exits();
        let kernel = || Event::SysEnter(NrSet::All);
        assert!(!exits(kernel(), vec![]));
        assert!(!exits(Event::Begin(0), vec![exit()]));
        assert!(exits(kernel(), vec![exit()]));
    }
}
