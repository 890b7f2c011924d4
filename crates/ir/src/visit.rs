//! Queries on instructions: what they read, write and can do.

use spile_cast::Cast;

use crate::fmt::{ConvKind, Piece};
use crate::intrinsics::IntrinsicClass;
use crate::*;

impl Inst {
    /// The register it writes.
    pub fn dst(&self) -> Option<Reg> {
        let mut dst = None;
        self.for_each_dst(|r| dst = Some(r));
        dst
    }

    /// The keys with which it touches one element of an array (not with a wildcard).
    pub fn keys(&self) -> Option<&[Val]> {
        match self {
            Inst::PrintHist { keys, .. }
            | Inst::AGet { keys, .. }
            | Inst::ASet { keys, .. }
            | Inst::AAdd { keys, .. }
            | Inst::StatAdd { keys, .. }
            | Inst::StatGet { keys, .. }
            | Inst::HistGet { keys, .. }
            | Inst::IterHist { keys, .. } => Some(keys),
            _ => None,
        }
    }

    /// The keys with which it touches elements of an array; `None` is a wildcard.
    pub(crate) fn pattern(&self) -> Vec<Option<Val>> {
        match self {
            Inst::AHas { keys, .. } | Inst::ADel { keys, .. } => keys.clone(),
            Inst::IterNew { slice, .. } => slice.clone(),
            _ => {
                let keys = self.keys().unwrap_or_default();
                keys.iter().copied().map(Some).collect()
            }
        }
    }

    /// Whether it changes its global.
    pub(crate) fn writes_global(&self) -> bool {
        self.has(Effect::Writes)
    }

    /// Whether it only adds to its global and the value before is unused.
    pub(crate) fn add_only(&self) -> bool {
        matches!(
            self,
            Inst::StatAdd { .. } | Inst::GAdd { old: None, .. } | Inst::AAdd { old: None, .. }
        )
    }

    /// Whether it can fail, that is, enter its block's `catch`.
    pub fn fallible(&self, program: &Program) -> bool {
        let grows = |g: &GlobalId| {
            matches!(
                program.kind(*g),
                Some(GlobalKind::Array { wrap: false, .. })
            )
        };
        match self {
            Inst::Bin {
                op: BinOp::Div | BinOp::Mod,
                b,
                ..
            } => !matches!(b, Val::Imm(n) if *n != 0),
            Inst::ASet { g, .. } | Inst::AAdd { g, .. } | Inst::StatAdd { g, .. } => grows(g),
            Inst::Sprint { fmt, .. } | Inst::Print { fmt, .. } => {
                program.formats.get(fmt.index()).is_none_or(reads_memory)
            }
            Inst::StatGet { what, .. } => !matches!(what, Extract::Count | Extract::Sum),
            Inst::Intr { f, .. } => f.info().fails,
            _ => self.has(Effect::Fails),
        }
    }

    /// Whether it only reads memory that a script names into its register, so that the only error
    /// is the address.
    pub fn reads_memory(&self) -> bool {
        match self {
            Inst::Load { .. } => true,
            Inst::Intr { f, .. } => matches!(f.class(), IntrinsicClass::Memory(_)),
            _ => false,
        }
    }

    /// Whether its only effect is to write its register, from its operands alone: it can be removed
    /// when the register is dead, and two with equal operands give the same value.
    pub fn pure_(&self, program: &Program) -> bool {
        match self {
            Inst::Regex { keep: true, .. } => false,
            Inst::Intr { f, .. } => f.info().pure_ && !f.info().fails,
            _ => self.has(Effect::Pure) && !self.fallible(program),
        }
    }

    /// Whether it can be removed when its register is dead: [`Inst::pure_`], and reads of globals
    /// that cannot fail.
    pub(crate) fn removable(&self, program: &Program) -> bool {
        self.pure_(program) || self.has(Effect::Reads) && !self.fallible(program)
    }
}

/// Whether a format has a conversion that reads memory.
pub fn reads_memory(format: &crate::fmt::Format) -> bool {
    format
        .pieces
        .iter()
        .any(|p| matches!(p, Piece::Conv(c) if matches!(c.kind, ConvKind::Mem | ConvKind::MemHex)))
}

/// The index of an entry of a table, which is added unless it is known.
fn known_or_pushed<T>(table: &mut Vec<T>, known: Option<usize>, new: impl FnOnce() -> T) -> u32 {
    let index = known.unwrap_or(table.len());
    if index == table.len() {
        table.push(new());
    }
    index.fit()
}

impl Program {
    /// Every body, handlers first.
    pub fn bodies(&self) -> impl Iterator<Item = &Body> {
        self.handlers
            .iter()
            .map(|h| &h.body)
            .chain(self.funcs.iter().map(|f| &f.body))
    }

    /// Every body, handlers first, to change it.
    pub(crate) fn bodies_mut(&mut self) -> impl Iterator<Item = &mut Body> {
        self.handlers
            .iter_mut()
            .map(|h| &mut h.body)
            .chain(self.funcs.iter_mut().map(|f| &mut f.body))
    }

    /// The handlers that run in the kernel.
    pub fn kernel_handlers(&self) -> impl Iterator<Item = &Handler> + Clone {
        self.handlers.iter().filter(|h| h.event.is_compiled())
    }

    /// All instructions of these handlers.
    pub fn kernel_insts(&self) -> impl Iterator<Item = &Inst> {
        self.kernel_handlers().flat_map(|h| h.body.insts())
    }

    /// The bodies of handlers that run in the kernel, then those of all functions, whichever
    /// handlers call them.
    pub fn kernel_bodies(&self) -> impl Iterator<Item = &Body> {
        let functions = self.funcs.iter().map(|f| &f.body);
        self.kernel_handlers().map(|h| &h.body).chain(functions)
    }

    /// The id of a string constant, added when it is missing.
    pub fn intern(&mut self, string: &[u8]) -> StrId {
        let known = self.strings.iter().position(|s| **s == *string);
        StrId(known_or_pushed(&mut self.strings, known, || string.into()))
    }

    /// The id of a regular expression, added when it is missing.
    pub fn intern_regex(&mut self, re: crate::regex::Regex) -> RegexId {
        let known = self.regexes.iter().position(|r| *r == re);
        RegexId(known_or_pushed(&mut self.regexes, known, || re))
    }

    /// The type of an operand in a body; `None` for an operand that does not exist.
    pub fn type_of(&self, body: &Body, v: Val) -> Option<Ty> {
        match v {
            Val::Reg(r) => body.regs.get(r.index()).copied(),
            Val::Imm(_) => Some(Ty::Long),
            Val::Str(s) => self
                .strings
                .get(s.index())
                .map(|s| Ty::str_for_len(s.len())),
        }
    }
}

/// The predecessors of each block of a body.
#[derive(Debug)]
pub struct Predecessors {
    /// Where those of each block begin in `blocks`, and the end of the last ones.
    starts: Vec<u32>,
    blocks: Vec<BlockId>,
}

impl std::ops::Index<BlockId> for Predecessors {
    type Output = [BlockId];

    fn index(&self, block: BlockId) -> &[BlockId] {
        let index = block.index();
        &self.blocks[self.starts[index] as usize..self.starts[index + 1] as usize]
    }
}

impl Body {
    /// The predecessors of each block. Any block may fail, so a catch block follows every block
    /// that names it.
    pub fn predecessors(&self) -> Predecessors {
        let mut starts = vec![0; self.blocks.len() + 1];
        self.for_each_edge(|_, to| starts[to.index() + 1] += 1);
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut blocks = vec![BlockId(0); starts.last().map_or(0, |n| *n as usize)];
        self.for_each_edge(|from, to| {
            let slot = &mut next[to.index()];
            blocks[*slot as usize] = from;
            *slot += 1;
        });
        Predecessors { starts, blocks }
    }

    /// Calls `f` with each block and each of its different successors that exist.
    fn for_each_edge(&self, mut f: impl FnMut(BlockId, BlockId)) {
        for (i, block) in self.blocks.iter().enumerate() {
            for (n, to) in block.successors().enumerate() {
                let again = block.successors().take(n).any(|other| other == to);
                if !again && to.index() < self.blocks.len() {
                    f(BlockId(i.fit()), to);
                }
            }
        }
    }
}

impl Block {
    /// The successors of the block: the terminator's targets and the catch block.
    pub fn successors(&self) -> impl DoubleEndedIterator<Item = BlockId> + use<> {
        let (one, other) = match self.term {
            Term::Jump(to) => (Some(to), None),
            Term::Branch { then, els, .. } => (Some(then), Some(els)),
            Term::IterNext { body, done, .. } => (Some(body), Some(done)),
            Term::Ret(_) | Term::EndHandler => (None, None),
        };
        [one, other, self.catch].into_iter().flatten()
    }
}

impl Body {
    /// The instructions of all blocks, in the order of the blocks' numbers.
    pub fn insts(&self) -> impl Iterator<Item = &Inst> {
        self.insts_at().map(|(inst, _)| inst)
    }

    /// The instructions of all blocks, each with its site.
    pub(crate) fn insts_at(&self) -> impl Iterator<Item = &(Inst, SiteId)> {
        self.blocks.iter().flat_map(|b| &b.insts)
    }

    /// The instructions of all blocks, mutable.
    pub fn insts_mut(&mut self) -> impl Iterator<Item = &mut Inst> {
        let insts = self.blocks.iter_mut().flat_map(|b| &mut b.insts);
        insts.map(|(inst, _)| inst)
    }
}
