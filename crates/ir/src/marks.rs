//! The data flow of marks. A kernel handler carries a mark (see [`Intrinsic::is_symbolic`]) through
//! registers and globals instead of a text that only the controller can make. An instruction of a
//! kernel handler that looks into such a text, as a comparison does, needs the text itself. This
//! analysis finds the instructions that have to make it in the kernel.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::fmt::{Count, Format, Piece};
use crate::storage::Storage;
use crate::*;

/// The id of a body: a handler's or a function's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyId {
    /// The handler with that index.
    Handler(usize),
    /// The function with that index.
    Func(usize),
}

/// A location that holds a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TextNode {
    Reg(BodyId, Reg),
    /// A register that an activation saves, by its offset.
    Saved(BodyId, u32),
    /// The result of a function.
    Result(usize),
    /// A scalar, or the elements of an array.
    Value(GlobalId),
    /// A key of an array.
    Key(GlobalId, usize),
    /// The messages of errors.
    Error,
}

/// The marks of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks {
    made: FxHashSet<(BodyId, Reg)>,
    /// Keys of arrays that can contain marks.
    keys: FxHashSet<(GlobalId, usize)>,
    unrenderable: FxHashMap<BodyId, SiteId>,
}

impl Marks {
    /// Analyses a program; `fit` accepts the instructions whose text a kernel handler can make
    /// itself.
    pub fn new(program: &Program, facts: &ProgramFacts, fit: &dyn Fn(&Inst) -> bool) -> Marks {
        let flows = FlowGraph::new(program, facts, fit);
        if flows.sources.is_empty() {
            return Marks::default();
        }
        let needed = flows.sources_of(flows.inspected.iter().map(|l| l.0).collect());
        // Keys by which kernel handlers look elements up: two are equal where their texts are.
        let mut wanted = needed.clone();
        wanted.extend(flows.sources_of(flows.keys.iter().copied().collect()));
        let is_made = |(node, fit): &(TextNode, bool)| *fit && wanted.contains(node);
        let left = flows.sources.iter().filter(|s| !is_made(s));
        let marked = flows.reachable_from(left.map(|s| s.0).collect());
        let made = flows.sources.iter().filter(|s| is_made(s));
        let unfit = flows.inspected.iter().filter_map(|(node, body, site)| {
            let (Some(body), true) = (body, marked.contains(node)) else {
                return None;
            };
            Some((*body, *site))
        });
        Marks {
            made: made
                .filter_map(|s| match s.0 {
                    TextNode::Reg(body, reg) => Some((body, reg)),
                    _ => None,
                })
                .collect(),
            keys: marked
                .iter()
                .filter_map(|h| match h {
                    TextNode::Key(g, i) => Some((*g, *i)),
                    _ => None,
                })
                .collect(),
            unrenderable: unfit.collect(),
        }
    }

    /// Whether a kernel handler makes the text itself that it puts into this register.
    pub fn made_in_kernel(&self, body: BodyId, reg: Reg) -> bool {
        self.made.contains(&(body, reg))
    }

    /// Whether keys of an array can contain marks.
    pub fn in_keys(&self, g: GlobalId) -> bool {
        self.keys.iter().any(|k| k.0 == g)
    }

    /// An instruction of a kernel handler that looks into a text which the kernel cannot make.
    pub fn unrenderable(&self, body: BodyId) -> Option<SiteId> {
        self.unrenderable.get(&body).copied()
    }
}

/// The flow graph of texts.
#[derive(Default)]
struct FlowGraph {
    to: FxHashMap<TextNode, Vec<TextNode>>,
    from: FxHashMap<TextNode, Vec<TextNode>>,
    /// The origins of marks, and whether the kernel can make the text there.
    sources: Vec<(TextNode, bool)>,
    /// The locations that kernel handlers look into, each with the instruction's body and site.
    inspected: Vec<(TextNode, Option<BodyId>, SiteId)>,
    /// Keys of arrays that kernel handlers look elements up by.
    keys: FxHashSet<TextNode>,
}

impl FlowGraph {
    fn new(program: &Program, facts: &ProgramFacts, fit: &dyn Fn(&Inst) -> bool) -> FlowGraph {
        let mut flows = FlowGraph::default();
        if !facts.makes_marks() {
            return flows;
        }
        // Functions count as kernel code as soon as any kernel handler calls a function.
        let called = facts.kernel_handlers().any(|h| h.calls);
        let handlers = program.handlers.iter();
        for (i, handler) in handlers.enumerate() {
            flows.body(
                program,
                BodyId::Handler(i),
                &handler.body,
                handler.event.is_compiled(),
                fit,
            );
        }
        for (i, func) in program.funcs.iter().enumerate() {
            flows.body(program, BodyId::Func(i), &func.body, called, fit);
        }
        flows
    }

    fn flow(&mut self, from: TextNode, to: TextNode) {
        self.to.entry(from).or_default().push(to);
        self.from.entry(to).or_default().push(from);
    }

    fn body(
        &mut self,
        program: &Program,
        id: BodyId,
        body: &Body,
        kernel: bool,
        fit: &dyn Fn(&Inst) -> bool,
    ) {
        let text = |r: Reg| matches!(body.regs.get(r.index()), Some(Ty::Str(_)));
        let holder = |v: &Val| match v {
            Val::Reg(r) if text(*r) => Some(TextNode::Reg(id, *r)),
            _ => None,
        };
        let mut iterated = FxHashMap::default();
        for (inst, site) in body.insts_at() {
            if let Inst::IterNew { it, g, .. } = inst {
                iterated.insert(*it, *g);
            }
            if kernel
                && let Inst::Intr {
                    f, dst: Some(dst), ..
                } = inst
                && f.is_symbolic()
            {
                self.sources.push((TextNode::Reg(id, *dst), fit(inst)));
            }
            if kernel {
                let mut looked = Vec::new();
                inspected_texts(program, inst, &mut |v| looked.extend(holder(&v)));
                self.inspected
                    .extend(looked.into_iter().map(|h| (h, Some(id), *site)));
            }
            self.inst(program, id, inst, &holder);
            self.global(program, inst, kernel, &holder);
        }
        for block in &body.blocks {
            match &block.term {
                Term::IterNext {
                    it, keys, value, ..
                } => {
                    let Some(g) = iterated.get(it) else { continue };
                    for (i, key) in keys.iter().enumerate().filter(|(_, k)| text(**k)) {
                        self.flow(TextNode::Key(*g, i), TextNode::Reg(id, *key));
                    }
                    for value in value.iter().filter(|v| text(**v)) {
                        self.flow(TextNode::Value(*g), TextNode::Reg(id, *value));
                    }
                }
                Term::Ret(Some(v)) => {
                    if let (Some(from), BodyId::Func(f)) = (holder(v), id) {
                        self.flow(from, TextNode::Result(f));
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds the flow of an instruction on registers.
    fn inst(
        &mut self,
        program: &Program,
        id: BodyId,
        inst: &Inst,
        holder: &dyn Fn(&Val) -> Option<TextNode>,
    ) {
        let reg = |r: &Reg| TextNode::Reg(id, *r);
        let mut flow_all = |vals: &[Val], to: TextNode| {
            for from in vals.iter().filter_map(holder) {
                self.flow(from, to);
            }
        };
        match inst {
            Inst::Copy { dst, src } => flow_all(&[*src], reg(dst)),
            Inst::Concat { dst, a, b } => flow_all(&[*a, *b], reg(dst)),
            Inst::Sprint { dst, args, .. } => flow_all(args, reg(dst)),
            Inst::Save { src, offset } => flow_all(&[*src], TextNode::Saved(id, *offset)),
            Inst::Restore { dst, offset } => self.flow(TextNode::Saved(id, *offset), reg(dst)),
            Inst::Raise { msg } => flow_all(&[*msg], TextNode::Error),
            Inst::CatchMsg { dst } => self.flow(TextNode::Error, reg(dst)),
            Inst::Call { dst, func, args } => {
                let params = program.funcs.get(func.index()).map(|f| &f.params);
                for (arg, param) in args.iter().zip(params.into_iter().flatten()) {
                    if let Some(from) = holder(arg) {
                        self.flow(from, TextNode::Reg(BodyId::Func(func.index()), *param));
                    }
                }
                if let Some(dst) = dst {
                    self.flow(TextNode::Result(func.index()), reg(dst));
                }
            }
            Inst::Intr {
                f: Intrinsic::StackRest,
                dst: Some(dst),
                args,
            } => flow_all(args, reg(dst)),
            _ => {}
        }
    }

    /// Adds the flow of an instruction on globals.
    fn global(
        &mut self,
        program: &Program,
        inst: &Inst,
        kernel: bool,
        holder: &dyn Fn(&Val) -> Option<TextNode>,
    ) {
        let Some(g) = inst.global() else { return };
        match inst {
            Inst::GStore { val, .. } | Inst::ASet { val, .. } => {
                if let Some(from) = holder(val) {
                    self.flow(from, TextNode::Value(g));
                }
            }
            Inst::GLoad { dst, .. } | Inst::AGet { dst, .. } => {
                if let Some(to) = holder(&Val::Reg(*dst)) {
                    self.flow(TextNode::Value(g), to);
                }
            }
            _ => {}
        }
        let shared = program
            .globals
            .get(g.index())
            .is_some_and(|g| matches!(g.storage, Storage::Shared { .. }));
        let keys = inst.pattern();
        for (i, key) in keys.iter().enumerate() {
            if let Some(from) = key.as_ref().and_then(holder) {
                self.flow(from, TextNode::Key(g, i));
                if kernel && shared {
                    self.keys.insert(TextNode::Key(g, i));
                }
            }
        }
    }

    fn reachable(
        start: Vec<TextNode>,
        next: &FxHashMap<TextNode, Vec<TextNode>>,
    ) -> FxHashSet<TextNode> {
        let mut seen: FxHashSet<TextNode> = start.iter().copied().collect();
        let mut todo = start;
        while let Some(node) = todo.pop() {
            for to in next.get(&node).into_iter().flatten() {
                if seen.insert(*to) {
                    todo.push(*to);
                }
            }
        }
        seen
    }

    /// The locations that the texts in `start` flow to.
    fn reachable_from(&self, start: Vec<TextNode>) -> FxHashSet<TextNode> {
        Self::reachable(start, &self.to)
    }

    /// The locations from which texts flow to `start`.
    fn sources_of(&self, start: Vec<TextNode>) -> FxHashSet<TextNode> {
        Self::reachable(start, &self.from)
    }
}

/// The operands whose text an instruction looks into; for other operands a mark is enough.
fn inspected_texts(program: &Program, inst: &Inst, need: &mut dyn FnMut(Val)) {
    match inst {
        Inst::Copy { .. }
        | Inst::Concat { .. }
        | Inst::Print { .. }
        | Inst::GStore { .. }
        | Inst::AGet { .. }
        | Inst::ASet { .. }
        | Inst::AAdd { .. }
        | Inst::AHas { .. }
        | Inst::ADel { .. }
        | Inst::IterNew { .. }
        | Inst::StatAdd { .. }
        | Inst::StatGet { .. }
        | Inst::HistGet { .. }
        | Inst::PrintHist { .. }
        | Inst::IterHist { .. }
        | Inst::Call { .. }
        | Inst::Save { .. }
        | Inst::Restore { .. } => {}
        Inst::Intr { f, .. } if f.info().stack_marks => {}
        Inst::Sprint { fmt, .. } => {
            let format = program.formats.get(fmt.index());
            if !format.is_some_and(copies_arguments) {
                inst.for_each_use(need);
            }
        }
        _ => inst.for_each_use(need),
    }
}

/// Whether a format copies its arguments unchanged: it has no widths and no precisions.
pub fn copies_arguments(format: &Format) -> bool {
    format.pieces.iter().all(|p| match p {
        Piece::Conv(c) => (c.width, c.precision) == (Count::None, Count::None),
        Piece::Lit(_) => true,
    })
}
