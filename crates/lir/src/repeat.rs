//! Turns loops into calls of [`LirInst::Repeat`]: the form in which the kernel runs them.
//!
//! The kernel's verifier follows each iteration of a jump back, and gives up after a million
//! instructions. It follows the callback of a `repeat` only until it learns nothing new: two or
//! three iterations, if the values that change between iterations are unknown to it. So the
//! instructions of a loop become a function, called *step*, that runs one iteration:
//!
//! ```text
//!   jump loop(%a)                            context = exit 0, carried %a, read %b, result 0
//! loop(%i): loop 100 else end(%i)            %n = repeat 100, @f_loop, context
//!   ... uses %b, defines %x ...      ──►     %exit = load context; %after = load carried
//!   if ... then found(%x) else next          if eq %exit, 1 then found(%result) else end(%after)
//! next:                                    @f_loop(index, context): one iteration. At the jump back
//!   jump loop(%j)                            carried = %j, ret 0; where it leaves result = %x, exit = 1, ret 1
//! ```
//! The words of the context that change are stored so that the verifier forgets them. An address
//! would be lost in this way: a loop carries offsets, not addresses.

use std::collections::{BTreeSet, HashMap, HashSet};

use spile_cast::Cast;

use crate::cfg::{Cfg, CfgNode, live_in};
use crate::func::{
    BlockId, JumpTarget, LirBlock, LirFunc, LirInst, LirTerm, LoopBound, LoopForm, MemoryOperand,
    Module, Operand, SlotId, Value,
};
use crate::op::{AluOp, Cond, Size, Width};
use crate::simplify::simplify;
use crate::verify::HostLimits;

/// Turns the loops of a verified module that are callbacks into calls of `repeat`.
///
/// # Errors
/// A loop that carries an address, or more values than a stack frame of the host has space for.
pub fn outline(module: &mut Module, limits: &HostLimits) -> Result<(), String> {
    let mut index = 0;
    while index < module.funcs.len() {
        slots_first(&mut module.funcs[index]);
        let mut context = None;
        while let Some(header) = outermost(&module.funcs[index]) {
            let func = &module.funcs[index];
            let mut name = format!("{}_{}", func.name, func.blocks[header].name);
            while module.func(&name).is_some() {
                name.push('_');
            }
            let mut outline = Outline::new(&mut module.funcs[index], header, name, context)?;
            outline.location(limits)?;
            context = outline.context;
            let step = outline.run();
            module.funcs.push(step);
        }
        index += 1;
    }
    Ok(())
}

/// Takes the addresses of stack slots in the first block, where they are defined for the whole
/// function.
fn slots_first(func: &mut LirFunc) {
    let is_slot = |inst: &LirInst| {
        let slot = MemoryOperand::Slot(SlotId(0), 0);
        matches!(inst, LirInst::Addr { location, .. }
            if std::mem::discriminant(location) == std::mem::discriminant(&slot))
    };
    let mut addresses = Vec::new();
    for block in func.blocks.iter_mut().skip(1) {
        let (slots, rest) = std::mem::take(&mut block.insts)
            .into_iter()
            .partition::<Vec<_>, _>(is_slot);
        addresses.extend(slots);
        block.insts = rest;
    }
    if let Some(first) = func.blocks.first_mut() {
        first.insts.splice(0..0, addresses);
    }
}

/// The header of a loop that is in no other loop.
fn outermost(func: &LirFunc) -> Option<usize> {
    let is_callback = |b: &LoopBound| b.form == LoopForm::Callback;
    let callback = |b: &LirBlock| b.bound.as_ref().is_some_and(is_callback);
    let headers: Vec<usize> = (0..func.blocks.len())
        .filter(|i| callback(&func.blocks[*i]))
        .collect();
    if headers.len() < 2 {
        return headers.first().copied();
    }
    let cfg = Cfg::new(func);
    let inside = |a: usize, b: usize| a != b && cfg.body(b).contains(&CfgNode::entry(a));
    let outer = headers.iter().copied();
    outer
        .clone()
        .find(|a| !headers.iter().any(|b| inside(*a, *b)))
}

/// Values that are addresses, as far as the function shows it: those of locations, bases of accesses,
/// and what is added to them or subtracted.
fn addresses(func: &LirFunc) -> HashSet<Value> {
    let mut known = HashSet::new();
    let insts = || func.blocks.iter().flat_map(|b| &b.insts);
    for inst in insts() {
        match inst {
            LirInst::Addr { dst: v, .. }
            | LirInst::Load { base: v, .. }
            | LirInst::Store { base: v, .. }
            | LirInst::Atomic { base: v, .. } => drop(known.insert(*v)),
            _ => {}
        }
    }
    loop {
        let before = known.len();
        for inst in insts() {
            // Of a sum of two values the left one is the address.
            if let LirInst::Alu {
                dst,
                width: Width::W64,
                op: AluOp::Add | AluOp::Sub,
                a,
                ..
            } = inst
                && (known.contains(a) || known.contains(dst))
            {
                known.extend([*a, *dst]);
            }
        }
        for edge in func.blocks.iter().flat_map(LirBlock::edges) {
            let params = &func.blocks[edge.block.index()].params;
            for (param, arg) in params.iter().zip(&edge.args) {
                if known.contains(param) || known.contains(arg) {
                    known.extend([*param, *arg]);
                }
            }
        }
        if known.len() == before {
            return known;
        }
    }
}

/// A word of the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ContextWord {
    /// The number of the block to which the loop was left, from 1; 0 for its bound.
    Exit,
    /// A value: carried, read or found.
    Value(Value),
    /// A parameter of a block to which the loop is left: block and number.
    Param(usize, usize),
}

/// The work on one loop.
struct Outline<'f> {
    func: &'f mut LirFunc,
    header: usize,
    name: String,
    bound: LoopBound,
    /// Blocks of the loop.
    blocks: BTreeSet<usize>,
    /// Parameters of the header.
    carried: Vec<Value>,
    /// Values from outside that the loop reads, without constants.
    read: Vec<Value>,
    /// Constants and addresses from outside that the loop reads, which the step makes itself.
    made: Vec<LirInst>,
    /// Values of the loop that are read outside, without arguments of the edges that leave it.
    results: Vec<Value>,
    /// Blocks to which the loop is left.
    exits: Vec<usize>,
    defs: HashMap<Value, usize>,
    live: Vec<BTreeSet<Value>>,
    words: HashMap<ContextWord, usize>,
    /// The slot of the context, which all loops of the function use, one after the other.
    context: Option<SlotId>,
}

impl<'f> Outline<'f> {
    fn new(
        func: &'f mut LirFunc,
        header: usize,
        name: String,
        context: Option<SlotId>,
    ) -> Result<Outline<'f>, String> {
        let body = Cfg::new(func).body(header);
        let Some(bound) = func.blocks[header].bound.clone() else {
            return Err(format!("{} is no loop", func.blocks[header].name));
        };
        let mut defs = HashMap::new();
        for (i, block) in func.blocks.iter().enumerate() {
            let insts = block.insts.iter().filter_map(LirInst::dst);
            defs.extend(block.params.iter().copied().chain(insts).map(|v| (v, i)));
        }
        let mut outline = Outline {
            carried: func.blocks[header].params.clone(),
            live: live_in(func),
            func,
            header,
            name,
            bound,
            blocks: body.iter().map(|n| n.block()).collect(),
            read: Vec::new(),
            made: Vec::new(),
            results: Vec::new(),
            exits: Vec::new(),
            defs,
            words: HashMap::new(),
            context,
        };
        outline.values();
        Ok(outline)
    }

    fn in_loop(&self, v: Value) -> bool {
        self.defs.get(&v).is_some_and(|b| self.blocks.contains(b))
    }

    /// Finds the outside values that the loop reads, and the loop's values that are read outside.
    fn values(&mut self) {
        let (mut read, mut results) = (BTreeSet::new(), BTreeSet::new());
        for i in &self.blocks {
            let block = &self.func.blocks[*i];
            let mut uses = Vec::new();
            let insts = block.insts.iter();
            insts.for_each(|inst| inst.for_each_use(|v| uses.push(*v)));
            block.term.for_each_use(|v| uses.push(*v));
            let edges = block.edges();
            // The edge of the bound leaves in front of the step.
            let inner = edges.len() - usize::from(*i == self.header);
            for target in &edges[..inner] {
                uses.extend(&target.args);
                let to = target.block.index();
                if !self.blocks.contains(&to) && !self.exits.contains(&to) {
                    self.exits.push(to);
                }
            }
            read.extend(uses.into_iter().filter(|v| !self.in_loop(*v)));
        }
        for exit in &self.exits {
            let live = self.live[*exit].iter().copied();
            results.extend(live.filter(|v| self.in_loop(*v) && !self.carried.contains(v)));
        }
        self.results = results.into_iter().collect();
        let insts = self.func.blocks.iter().flat_map(|b| &b.insts);
        let constant = |inst: &&LirInst| match inst {
            LirInst::Const { .. } => true,
            LirInst::Addr { location, .. } => !matches!(location, MemoryOperand::Slot(..)),
            _ => false,
        };
        let made = insts.filter(constant);
        let made = made.filter(|inst| inst.dst().is_some_and(|v| read.remove(&v)));
        self.made = made.cloned().collect();
        self.read = read.into_iter().collect();
    }

    /// Gives each word its location.
    fn location(&mut self, limits: &HostLimits) -> Result<(), String> {
        let addresses = addresses(self.func);
        let mut words = vec![ContextWord::Exit];
        let mut changing: Vec<Value> = self.carried.iter().chain(&self.results).copied().collect();
        for exit in &self.exits {
            let params = &self.func.blocks[*exit].params;
            words.extend((0..params.len()).map(|n| ContextWord::Param(*exit, n)));
            changing.extend(params);
        }
        let name = &self.func.blocks[self.header].name;
        if let Some(v) = changing.iter().find(|v| addresses.contains(v)) {
            return Err(format!(
                "@{}: {name} carries the address %{}; carry an offset",
                self.func.name,
                self.func.values[v.index()]
            ));
        }
        let values = self.carried.iter().chain(&self.read).chain(&self.results);
        words.extend(values.map(|v| ContextWord::Value(*v)));
        let capacity = |slot: SlotId| self.func.slots[slot.index()];
        let known = self.context.map_or(0, capacity);
        let bytes = known.max(8 * words.len().fit::<u32>());
        // Words have displacements of 16 bits.
        let most = limits.stack.min(i16::MAX.unsigned_abs().into());
        if self.func.slots.iter().sum::<u32>() - known + bytes > most {
            let count = words.len();
            let func = &self.func.name;
            return Err(format!("@{func}: the context of {name} has {count} words"));
        }
        self.words = words.into_iter().zip(0..).collect();
        let slots = &mut self.func.slots;
        let slot = *self.context.get_or_insert(SlotId(slots.len().fit()));
        slots.resize(slots.len().max(slot.index() + 1), 0);
        slots[slot.index()] = bytes;
        Ok(())
    }

    /// Whether all exits of the loop are the same.
    fn one_way(&self) -> bool {
        let to = self.bound.exhausted.block.index();
        self.exits.iter().all(|e| *e == to) && self.func.blocks[to].params.is_empty()
    }

    /// The displacement of a word, which the limit on stacks keeps small.
    fn at(&self, word: ContextWord) -> i16 {
        self.words.get(&word).map_or(0, |w| 8 * w.fit::<i16>())
    }

    fn load(&self, dst: Value, base: Value, word: ContextWord) -> LirInst {
        LirInst::Load {
            dst,
            size: Size::U64,
            signed: false,
            base,
            off: self.at(word),
        }
    }

    fn store(&self, base: Value, word: ContextWord, src: Operand) -> LirInst {
        LirInst::Store {
            size: Size::U64,
            base,
            off: self.at(word),
            src,
        }
    }

    /// Stores a word so that the kernel's verifier forgets it: it tracks words of the stack that are
    /// written and read as a whole. The second store writes the lowest byte once more.
    fn forget(&self, base: Value, word: ContextWord, src: impl Into<Operand>) -> [LirInst; 2] {
        let src = src.into();
        let byte = LirInst::Store {
            size: Size::U8,
            base,
            off: self.at(word),
            src,
        };
        [self.store(base, word, src), byte]
    }

    fn run(mut self) -> LirFunc {
        let step = self.step();
        self.caller();
        simplify(self.func);
        step
    }

    /// The function that runs one iteration.
    fn step(&self) -> LirFunc {
        let mut step = LirFunc {
            name: self.name.clone(),
            contract: format!("One iteration of {}.", self.func.blocks[self.header].name),
            slots: Vec::new(),
            values: self.func.values.clone(),
            blocks: Vec::new(),
        };
        let (index, context) = (fresh(&mut step, "index"), fresh(&mut step, "context"));
        let mut insts = self.made.clone();
        let each = |step: &mut LirFunc, name| -> Vec<Value> {
            self.carried.iter().map(|_| fresh(step, name)).collect()
        };
        let starts = each(&mut step, "at");
        for (v, dst) in self.carried.iter().zip(&starts) {
            insts.push(self.load(*dst, context, ContextWord::Value(*v)));
        }
        let read = self.read.iter();
        insts.extend(read.map(|v| self.load(*v, context, ContextWord::Value(*v))));
        let ids: HashMap<usize, BlockId> = std::iter::once(self.header)
            .chain(self.blocks.iter().copied().filter(|b| *b != self.header))
            .enumerate()
            .map(|(to, from)| (from, BlockId(to.fit::<u32>() + 1)))
            .collect();
        step.blocks.push(LirBlock {
            name: "entry".into(),
            params: vec![index, context],
            bound: None,
            insts,
            term: LirTerm::Jump(JumpTarget {
                block: BlockId(1),
                args: starts,
            }),
        });
        let mut order: Vec<(&usize, &BlockId)> = ids.iter().collect();
        order.sort_by_key(|(_, to)| to.0);
        let mut copies: Vec<LirBlock> = order
            .iter()
            .map(|(from, _)| self.func.blocks[**from].clone())
            .collect();
        if let Some(header) = copies.first_mut() {
            header.bound = None;
        }
        for target in copies.iter_mut().flat_map(LirBlock::edges_mut) {
            target.block = self.in_step(target.block, &ids);
        }
        step.blocks.extend(copies);
        let next = each(&mut step, "next");
        let insts = self.carried.iter().zip(&next);
        let insts = insts.flat_map(|(v, next)| self.forget(context, ContextWord::Value(*v), *next));
        let mut end = plain(
            "next".into(),
            insts.collect(),
            LirTerm::Ret(Operand::Imm(0)),
        );
        end.params = next;
        step.blocks.push(end);
        for (k, to) in self.exits.iter().enumerate() {
            let params = self.func.blocks[*to].params.iter();
            let params: Vec<Value> = params.map(|_| fresh(&mut step, "result")).collect();
            let mut insts = Vec::new();
            for (n, param) in params.iter().enumerate() {
                insts.extend(self.forget(context, ContextWord::Param(*to, n), *param));
            }
            for v in self.results.iter().filter(|v| self.live[*to].contains(v)) {
                insts.extend(self.forget(context, ContextWord::Value(*v), *v));
            }
            // The verifier follows another iteration behind an exit, too.
            if !self.one_way() {
                insts.extend(self.forget(context, ContextWord::Exit, k.fit::<i32>() + 1));
            }
            let mut end = plain(format!("leave{k}"), insts, LirTerm::Ret(Operand::Imm(1)));
            end.params = params;
            step.blocks.push(end);
        }
        simplify(&mut step);
        step
    }

    /// The block of the step for a target in the loop or outside: a copy, or one that ends the step.
    fn in_step(&self, to: BlockId, ids: &HashMap<usize, BlockId>) -> BlockId {
        let ends = 1 + ids.len();
        let exit = self.exits.iter().position(|e| *e == to.index());
        match (exit, ids.get(&to.index())) {
            (Some(exit), _) => BlockId((ends + 1 + exit).fit::<u32>()),
            (None, Some(id)) if to.index() != self.header => *id,
            (None, _) => BlockId(ends.fit()),
        }
    }

    /// Code for a zero that no verifier knows, and the value: before Linux 6.8 they know a zero that is
    /// stored in parts, and no other number.
    fn unknown_zero(&mut self) -> ([LirInst; 3], Value) {
        let [one, unknown_one, unknown] =
            ["one", "unknown_one", "unknown"].map(|n| fresh(self.func, n));
        let code = [
            LirInst::Const { dst: one, imm: 1 },
            LirInst::Opaque {
                dst: unknown_one,
                a: one,
            },
            LirInst::Alu {
                dst: unknown,
                width: Width::W64,
                op: AluOp::Sub,
                a: unknown_one,
                b: Operand::Imm(1),
            },
        ];
        (code, unknown)
    }

    /// Replaces the loop in its function.
    fn caller(&mut self) {
        let [context, times, count, exit] =
            ["context", "times", "count", "exit"].map(|n| fresh(self.func, n));
        let location = MemoryOperand::Slot(self.context.unwrap_or(SlotId(0)), 0);
        let mut insts = vec![LirInst::Addr {
            dst: context,
            location,
        }];
        let (zero, unknown) = self.unknown_zero();
        insts.extend(zero);
        // Zeros that the verifier knows are the only words that it does not forget. It would follow
        // the step once with them, and again without.
        if !self.one_way() {
            insts.extend(self.forget(context, ContextWord::Exit, unknown));
        }
        for v in self.carried.clone() {
            let start = fresh(self.func, "start");
            insts.push(LirInst::Alu {
                dst: start,
                width: Width::W64,
                op: AluOp::Add,
                a: v,
                b: Operand::Value(unknown),
            });
            insts.extend(self.forget(context, ContextWord::Value(v), start));
        }
        for v in &self.read {
            insts.push(self.store(context, ContextWord::Value(*v), Operand::Value(*v)));
        }
        // Kernels before 6.3 refuse to read words that were never written.
        let params = self
            .words
            .keys()
            .filter(|w| matches!(w, ContextWord::Param(..)));
        let results = self.results.iter().map(|v| ContextWord::Value(*v));
        let mut unset: Vec<ContextWord> = params.copied().chain(results).collect();
        unset.sort_by_key(|w| self.at(*w));
        for word in unset {
            insts.extend(self.forget(context, word, unknown));
        }
        insts.push(LirInst::Const {
            dst: times,
            imm: self.bound.max.into(),
        });
        insts.push(LirInst::Repeat {
            dst: count,
            times,
            func: self.name.clone(),
            context,
        });
        if !self.one_way() {
            insts.push(self.load(exit, context, ContextWord::Exit));
        }
        let mut after = HashMap::new();
        for v in self.carried.iter().chain(&self.results) {
            let dst = fresh(self.func, "after");
            insts.push(self.load(dst, context, ContextWord::Value(*v)));
            after.insert(*v, dst);
        }
        self.read_afterwards(&after);
        let term = self.dispatch(context, exit);
        let header = &mut self.func.blocks[self.header];
        header.bound = None;
        header.insts = insts;
        header.term = term;
    }

    /// Replaces the values of the loop outside of it.
    fn read_afterwards(&mut self, after: &HashMap<Value, Value>) {
        let swap = |v: &mut Value| {
            if let Some(new) = after.get(v) {
                *v = *new;
            }
        };
        self.bound.exhausted.args.iter_mut().for_each(swap);
        for (i, block) in self.func.blocks.iter_mut().enumerate() {
            if self.blocks.contains(&i) {
                continue;
            }
            block.for_each_use_mut(swap);
        }
    }

    /// The branches to the block to which the step left the loop.
    fn dispatch(&mut self, context: Value, exit: Value) -> LirTerm {
        let mut term = LirTerm::Jump(self.bound.exhausted.clone());
        if self.one_way() {
            return term;
        }
        for (k, to) in self.exits.clone().into_iter().enumerate() {
            let mut insts = Vec::new();
            let mut args = Vec::new();
            for n in 0..self.func.blocks[to].params.len() {
                let arg = fresh(self.func, "result");
                insts.push(self.load(arg, context, ContextWord::Param(to, n)));
                args.push(arg);
            }
            let block = BlockId(to.fit());
            let leave = plain(
                format!("{}_to{k}", self.name),
                insts,
                LirTerm::Jump(JumpTarget { block, args }),
            );
            let then = self.add(leave);
            let els = match term {
                LirTerm::Jump(to) => to,
                branch => self.add(plain(format!("{}_or{k}", self.name), Vec::new(), branch)),
            };
            term = LirTerm::Branch {
                cond: Cond::Eq,
                width: Width::W64,
                a: exit,
                b: Operand::Imm(k.fit::<i32>() + 1),
                then,
                els,
            };
        }
        term
    }

    fn add(&mut self, block: LirBlock) -> JumpTarget {
        self.func.blocks.push(block);
        JumpTarget {
            block: BlockId(self.func.blocks.len().fit::<u32>() - 1),
            args: Vec::new(),
        }
    }
}

fn plain(name: String, insts: Vec<LirInst>, term: LirTerm) -> LirBlock {
    LirBlock {
        name,
        params: Vec::new(),
        bound: None,
        insts,
        term,
    }
}

/// A new value with a name that the function does not have.
fn fresh(func: &mut LirFunc, name: &str) -> Value {
    let mut unique = name.to_owned();
    let mut n = 0;
    while func.values.contains(&unique) {
        n += 1;
        unique = format!("{name}.{n}");
    }
    func.value(unique)
}
