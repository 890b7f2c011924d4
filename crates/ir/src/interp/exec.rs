//! The interpreter's machine: frames, blocks, instructions.

use std::collections::HashMap;

use spile_cast::Cast;

use super::element::{ARRAY_OVERFLOW, Cell, Element, overflow};
use super::env::{Env, Globals};
use super::foreach::ForeachIter;
use super::last_match::LastMatch;
use super::strings::{self, TokenizeState};
use super::value::{Fault, ScriptError, Value};
use crate::fmt::render;
use crate::intrinsics::{IntrinsicClass, RunOp};
use crate::stats::Stat;
use crate::*;

/// A handler runs this number of statements before it can be stopped: as many as it may have
/// without other settings, so that the usual handler is never cut off.
const UNCHECKED: u64 = 10_000;
/// Number of statements between checks whether to stop.
const CHECKED_EVERY: u64 = 1000;

/// The limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Number of statements (`Tick`).
    pub actions: u64,
    /// Depth of nested calls.
    pub nesting: u32,
}

impl Limit {
    /// The program's limits for a handler of this event. Handlers that SystemTap runs on behalf of
    /// a process may execute ten times as many statements (MAXACTION_INTERRUPTIBLE).
    pub fn for_event(limits: &Limits, event: &Event) -> Limit {
        let actions = match event {
            Event::Begin(_)
            | Event::End(_)
            | Event::Error(_)
            | Event::Prometheus
            | Event::InputLine
            | Event::InputChar
            | Event::Procfs(_) => limits.maxaction_interruptible,
            _ => limits.maxaction,
        };
        Limit {
            actions,
            nesting: limits.maxnesting,
        }
    }
}

/// Runs a handler to its end. An id that does not exist runs nothing.
///
/// # Errors
/// The first error that no `catch` handled.
pub fn run<E: Env + ?Sized>(
    program: &Program,
    handler: HandlerId,
    env: &mut E,
) -> Result<(), ScriptError> {
    let Some(handler) = program.handlers.get(handler.index()) else {
        return Ok(());
    };
    let mut machine = Interpreter {
        program,
        env,
        limit: Limit::for_event(&program.limits, &handler.event),
        before_check: UNCHECKED,
        error: ScriptError {
            message: Fault::from(""),
            site: SiteId(0),
            callers: Vec::new(),
        },
        active: 0,
        kept: Vec::new(),
        tokens: TokenizeState::default(),
        frames: vec![BodyFrame::new(&handler.body, false)],
        last: LastMatch::default(),
    };
    machine.run()
}

/// A body in progress.
struct BodyFrame<'p> {
    body: &'p Body,
    regs: Vec<Value>,
    iters: Vec<ForeachIter>,
    block: usize,
    /// Index of the next instruction.
    pc: usize,
    /// Whether the body is a function's that can call itself.
    recursive: bool,
}

impl<'p> BodyFrame<'p> {
    fn new(body: &'p Body, recursive: bool) -> BodyFrame<'p> {
        BodyFrame {
            body,
            recursive,
            regs: body.regs.iter().map(|t| Value::zero(*t)).collect(),
            iters: vec![ForeachIter::default(); body.iters as usize],
            block: 0,
            pc: 0,
        }
    }

    fn jump(&mut self, b: BlockId) {
        (self.block, self.pc) = (b.index(), 0);
    }
}

struct Interpreter<'p, 'e, E: ?Sized> {
    program: &'p Program,
    env: &'e mut E,
    limit: Limit,
    /// Number of statements before the handler is asked to stop.
    before_check: u64,
    /// The error caught last.
    error: ScriptError,
    /// Number of frames whose function can call itself. Activations in `kept` are not counted.
    active: usize,
    /// Activations begun by `Enter`: the iterators of the activation before, and the saved
    /// registers.
    kept: Vec<(Vec<ForeachIter>, HashMap<u32, Value>)>,
    tokens: TokenizeState,
    last: LastMatch,
    /// Never empty while a handler runs; the last frame is the running one.
    frames: Vec<BodyFrame<'p>>,
}

/// The next action after a step.
enum Flow<'p> {
    Next,
    Call(&'p Func, Vec<Value>),
    Goto(BlockId),
    Return(Option<Value>),
    Rethrow,
    End,
}

fn invalid() -> Fault {
    Fault::from("invalid program")
}

impl<'p, E: Env + ?Sized> Interpreter<'p, '_, E> {
    fn run(&mut self) -> Result<(), ScriptError> {
        loop {
            let Some(frame) = self.frames.last_mut() else {
                return Ok(());
            };
            let body = frame.body;
            let Some(block) = body.blocks.get(frame.block) else {
                return self.fail(invalid(), SiteId(0));
            };
            let (flow, site) = match block.insts.get(frame.pc) {
                Some((inst, site)) => {
                    frame.pc += 1;
                    (self.step(inst), *site)
                }
                None => {
                    let site = block.insts.last().map_or(SiteId(0), |(_, s)| *s);
                    (self.term(&block.term), site)
                }
            };
            match flow {
                Ok(Flow::Next) => {}
                Ok(Flow::Goto(b)) => self.top().jump(b),
                Ok(Flow::End) => return Ok(()),
                Ok(Flow::Call(func, args)) => {
                    if func.recursive {
                        if self.nested() {
                            self.fail(Fault::from("MAXNESTING exceeded"), site)?;
                            continue;
                        }
                        self.active += 1;
                    }
                    self.frames.push(BodyFrame::new(&func.body, func.recursive));
                    for (r, v) in func.params.iter().zip(args) {
                        self.set(*r, v);
                    }
                }
                Ok(Flow::Return(v)) => {
                    self.pop();
                    if self.frames.is_empty() {
                        return Ok(());
                    }
                    self.finish_call(v);
                }
                Ok(Flow::Rethrow) => {
                    let mut error = self.error.clone();
                    error.callers.push(site);
                    self.fail_with(error)?;
                }
                Err(fault) => self.fail(fault, site)?,
            }
        }
    }

    /// The running frame, which exists whenever a step runs.
    fn top(&mut self) -> &mut BodyFrame<'p> {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    /// Whether MAXNESTING activations are in progress.
    fn nested(&self) -> bool {
        self.active + self.kept.len() >= self.limit.nesting as usize
    }

    fn pop(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.active -= usize::from(frame.recursive);
        }
    }

    /// Goes to the innermost catch block, leaving functions that have none.
    fn fail(&mut self, fault: Fault, site: SiteId) -> Result<(), ScriptError> {
        self.fail_with(ScriptError {
            message: fault,
            site,
            callers: Vec::new(),
        })
    }

    fn fail_with(&mut self, mut error: ScriptError) -> Result<(), ScriptError> {
        while let Some(frame) = self.frames.last_mut() {
            let block = frame.body.blocks.get(frame.block);
            if let Some(to) = block.and_then(|b| b.catch) {
                frame.jump(to);
                self.error = error;
                return Ok(());
            }
            self.pop();
            if let Some((_, s)) = self.call_in_progress() {
                error.callers.push(s);
            }
        }
        Err(error)
    }

    /// The call that the top frame waits for.
    fn call_in_progress(&self) -> Option<(&'p Inst, SiteId)> {
        let frame = self.frames.last()?;
        let (inst, site) = frame
            .body
            .blocks
            .get(frame.block)?
            .insts
            .get(frame.pc.checked_sub(1)?)?;
        Some((inst, *site))
    }

    fn finish_call(&mut self, v: Option<Value>) {
        if let Some((Inst::Call { dst: Some(dst), .. }, _)) = self.call_in_progress()
            && let Some(v) = v
        {
            self.set(*dst, v);
        }
    }

    fn set(&mut self, r: Reg, v: Value) {
        let frame = self.top();
        let Some(ty) = frame.body.regs.get(r.index()).copied() else {
            return;
        };
        let (v, cut) = v.truncated_to(ty);
        if let Some(location) = frame.regs.get_mut(r.index()) {
            *location = v;
        }
        if cut {
            self.env.truncated();
        }
    }

    fn val(&mut self, v: Val) -> Value {
        match v {
            Val::Imm(n) => Value::Long(n),
            Val::Str(s) => {
                let string = self.program.strings.get(s.index());
                Value::Str(string.cloned().unwrap_or_default())
            }
            Val::Reg(r) => self
                .top()
                .regs
                .get(r.index())
                .cloned()
                .unwrap_or(Value::Long(0)),
        }
    }

    fn long(&mut self, v: Val) -> i64 {
        match v {
            Val::Imm(n) => n,
            Val::Reg(r) => self.top().regs.get(r.index()).map_or(0, Value::as_long),
            Val::Str(_) => 0,
        }
    }

    fn vals(&mut self, vs: &[Val]) -> Vec<Value> {
        vs.iter().map(|v| self.val(*v)).collect()
    }

    /// A value cut to the width of the global's type.
    fn fitted(&mut self, v: Val, ty: Option<Ty>) -> Result<Value, Fault> {
        let (v, cut) = self.val(v).truncated_to(ty.ok_or_else(invalid)?);
        if cut {
            self.env.truncated();
        }
        Ok(v)
    }

    /// A key of an array. A mark for a text becomes the text, cut to the key's width.
    fn key(&mut self, g: GlobalId, i: usize, v: Val) -> Result<Value, Fault> {
        let ty = self.program.kind(g).and_then(|kind| kind.keys().get(i));
        let ty = *ty.ok_or_else(invalid)?;
        if let Val::Reg(_) = v
            && let value @ Value::Str(_) = self.val(v)
            && let Some(key) = self.env.key(&value, ty)
        {
            return Ok(key);
        }
        self.fitted(v, Some(ty))
    }

    fn keys(&mut self, g: GlobalId, keys: &[Val]) -> Result<Vec<Value>, Fault> {
        let keys = keys.iter().enumerate();
        keys.map(|(i, k)| self.key(g, i, *k)).collect()
    }

    fn pattern(&mut self, g: GlobalId, keys: &[Option<Val>]) -> Result<Vec<Option<Value>>, Fault> {
        let keys = keys.iter().enumerate();
        keys.map(|(i, k)| k.map(|k| self.key(g, i, k)).transpose())
            .collect()
    }

    fn hist(&self, g: GlobalId) -> Result<Hist, Fault> {
        let spec = self.program.kind(g).and_then(GlobalKind::stats);
        spec.and_then(|s| s.hist).ok_or_else(invalid)
    }

    fn stat(&mut self, g: GlobalId, keys: &[Value]) -> Result<Stat, Fault> {
        Ok(self.env.globals().stat_get(g, keys)?.unwrap_or_default())
    }

    /// The operand with a mark replaced by its text, for instructions that look at the bytes.
    fn text(&mut self, v: Val) -> Value {
        let value = self.val(v);
        let text = matches!(value, Value::Str(_)).then(|| self.env.text(&value));
        text.flatten().unwrap_or(value)
    }

    fn texts(&mut self, args: &[Val]) -> Vec<Value> {
        args.iter().map(|v| self.text(*v)).collect()
    }

    fn format(&mut self, fmt: FormatId, args: &[Value]) -> Result<Vec<u8>, Fault> {
        let format = self.program.formats.get(fmt.index()).ok_or_else(invalid)?;
        let mut out = Vec::new();
        let env = &mut *self.env;
        render(
            format,
            args,
            &mut |s, a, b| env.read_memory(s, a, b),
            &mut out,
        )?;
        Ok(out)
    }

    fn term(&mut self, term: &'p Term) -> Result<Flow<'p>, Fault> {
        Ok(match term {
            Term::Jump(b) => Flow::Goto(*b),
            Term::Branch { cond, then, els } => {
                Flow::Goto(if self.long(*cond) != 0 { *then } else { *els })
            }
            Term::IterNext {
                it,
                keys,
                value,
                body,
                done,
            } => {
                let iter = self.top().iters.get_mut(it.index());
                let Some((its, v)) = iter.and_then(Iterator::next) else {
                    return Ok(Flow::Goto(*done));
                };
                for (r, k) in keys.iter().zip(its) {
                    let shown = matches!(k, Value::Str(_)).then(|| self.env.key_mark(&k));
                    self.set(*r, shown.flatten().unwrap_or(k));
                }
                if let Some(r) = value {
                    self.set(*r, v);
                }
                Flow::Goto(*body)
            }
            Term::Ret(v) => Flow::Return(v.map(|v| self.val(v))),
            Term::EndHandler => Flow::End,
        })
    }

    fn step(&mut self, inst: &'p Inst) -> Result<Flow<'p>, Fault> {
        let value = match inst {
            Inst::Call { func, args, .. } => {
                let func = self.program.funcs.get(func.index()).ok_or_else(invalid)?;
                return Ok(Flow::Call(func, self.vals(args)));
            }
            Inst::Tick { n } => {
                // After the budget has run out, statements of a `catch` block fail too.
                let left = self.limit.actions.checked_sub(u64::from(*n));
                self.limit.actions = left.unwrap_or(0);
                self.before_check = self.before_check.saturating_sub(u64::from(*n));
                if self.before_check == 0 {
                    self.before_check = CHECKED_EVERY;
                    if self.env.must_stop() {
                        return Ok(Flow::End);
                    }
                }
                return match left {
                    Some(_) => Ok(Flow::Next),
                    None => Err("MAXACTION exceeded".into()),
                };
            }
            Inst::Rethrow => return Ok(Flow::Rethrow),
            _ => match inst.global() {
                Some(g) => self.on_global(inst, g)?,
                None => self.operation(inst)?,
            },
        };
        if let (Some(dst), Some(value)) = (inst.dst(), value) {
            self.set(dst, value);
        }
        Ok(Flow::Next)
    }

    /// The result of an operation on registers and constants, and of output.
    fn operation(&mut self, inst: &Inst) -> Result<Option<Value>, Fault> {
        Ok(Some(match inst {
            Inst::Copy { src, .. } => self.val(*src),
            Inst::Un { op, a, .. } => op.eval(self.long(*a)).into(),
            Inst::Bin { op, a, b, .. } => {
                let v = op.eval(self.long(*a), self.long(*b));
                v.ok_or_else(|| Fault::from("division by 0"))?.into()
            }
            Inst::StrCmp { op, a, b, .. } => {
                let [a, b] = [*a, *b].map(|v| self.text(v));
                i64::from(op.eval(a.as_bytes(), b.as_bytes())).into()
            }
            Inst::Concat { a, b, .. } => {
                let (a, b) = (self.val(*a), self.val(*b));
                [a.as_bytes(), b.as_bytes()].concat()[..].into()
            }
            Inst::TableGet { table, idx, .. } => {
                let idx = usize::try_from(self.long(*idx)).ok();
                let table = self.program.tables.get(table.index()).ok_or_else(invalid)?;
                let entry = idx.and_then(|i| table.entries.get(i));
                Value::Str(entry.cloned().unwrap_or_default())
            }
            Inst::Regex { re, text, keep, .. } => {
                let re = self.program.regexes.get(re.index()).ok_or_else(invalid)?;
                let text = self.text(*text);
                let matched = match keep {
                    true => self.last.find(re, text),
                    false => re.is_match(text.as_bytes()),
                };
                i64::from(matched).into()
            }
            Inst::Sprint { fmt, args, .. } => {
                let args = self.texts(args);
                self.format(*fmt, &args)?[..].into()
            }
            Inst::Print { stream, fmt, args } => {
                let args = self.texts(args);
                if !self.env.print_values(*stream, *fmt, &args) {
                    let text = self.format(*fmt, &args)?;
                    self.env.print(*stream, &text);
                }
                return Ok(None);
            }
            Inst::Intr { f, args, .. } => self.intrinsic(*f, args)?,
            Inst::Load {
                space, ty, addr, ..
            } => {
                let addr = self.long(*addr).cast_unsigned();
                self.load(*space, addr, *ty)?.into()
            }
            Inst::Raise { msg } => {
                let width = self.program.limits.maxstringlen + 1;
                let message = self.fitted(*msg, Some(Ty::Str(width.fit())))?;
                return Err(Fault::from(message.as_bytes().to_vec()));
            }
            Inst::CatchMsg { .. } => Value::from(self.error.message.message()),
            _ => return self.activation(inst),
        }))
    }

    fn intrinsic(&mut self, f: Intrinsic, args: &[Val]) -> Result<Value, Fault> {
        let args = self.texts(args);
        Ok(match f.class() {
            IntrinsicClass::Run(RunOp::Tokenize) => match &args[..] {
                [a, b] => self.tokens.next(a.as_bytes(), b.as_bytes()).into(),
                _ => return Err(invalid()),
            },
            IntrinsicClass::Run(RunOp::MatchGroups) => self.last.groups().into(),
            IntrinsicClass::Run(RunOp::MatchGroup) => {
                let group = args.first().map_or(0, Value::as_long);
                self.last.group(group).into()
            }
            IntrinsicClass::Text(op) => strings::evaluate(op, &args),
            IntrinsicClass::Context(_)
            | IntrinsicClass::Event(_)
            | IntrinsicClass::Syscall(_)
            | IntrinsicClass::TaskNumber(_)
            | IntrinsicClass::Task(_)
            | IntrinsicClass::Clock(_)
            | IntrinsicClass::Session(_)
            | IntrinsicClass::Memory(_)
            | IntrinsicClass::Act(_)
            | IntrinsicClass::Symbol(_) => self.env.intrinsic(f, &args)?,
        })
    }

    /// The instructions that flattened calls consist of.
    fn activation(&mut self, inst: &Inst) -> Result<Option<Value>, Fault> {
        match inst {
            Inst::Enter if self.nested() => return Err("MAXNESTING exceeded".into()),
            Inst::Enter => {
                let fresh = vec![ForeachIter::default(); self.top().iters.len()];
                let iters = std::mem::replace(&mut self.top().iters, fresh);
                self.kept.push((iters, HashMap::new()));
            }
            Inst::Leave => {
                let (iters, _) = self.kept.pop().ok_or_else(invalid)?;
                self.top().iters = iters;
            }
            Inst::Save { src, offset } => {
                let value = self.val(*src);
                let (_, saved) = self.kept.last_mut().ok_or_else(invalid)?;
                saved.insert(*offset, value);
            }
            Inst::Restore { offset, .. } => {
                let (_, saved) = self.kept.last().ok_or_else(invalid)?;
                return Ok(Some(saved.get(offset).cloned().ok_or_else(invalid)?));
            }
            _ => return Err(invalid()),
        }
        Ok(None)
    }

    /// The result of an instruction on a global.
    fn on_global(&mut self, inst: &Inst, g: GlobalId) -> Result<Option<Value>, Fault> {
        let keys = self.keys(g, inst.keys().unwrap_or_default())?;
        Ok(Some(match inst {
            Inst::GLoad { .. } => self.env.globals().gload(g)?,
            Inst::GAdd { val, .. } => {
                let v = self.long(*val);
                self.env.globals().gadd(g, v)?.into()
            }
            Inst::AGet { .. } => self.env.globals().aget(g, &keys)?,
            Inst::AAdd { val, .. } => {
                let v = self.long(*val);
                self.env.globals().aadd(g, &keys, v)?.into()
            }
            Inst::AHas { keys, .. } => {
                let keys = self.pattern(g, keys)?;
                i64::from(self.env.globals().ahas(g, &keys)?).into()
            }
            Inst::StatGet { what, .. } => {
                let s = self.stat(g, &keys)?;
                let v = self.env.extract(&s, *what);
                v.map_err(|_| Fault::from("empty aggregate"))?.into()
            }
            Inst::HistGet { idx, .. } => {
                let (hist, idx) = (self.hist(g)?, self.long(*idx));
                if !(0..i64::from(hist.buckets())).contains(&idx) {
                    return Err("histogram index out of range".into());
                }
                let s = self.stat(g, &keys)?;
                let count = s.buckets.get(idx.fit::<usize>()).copied().unwrap_or(0);
                count.cast_signed().into()
            }
            Inst::PrintHist { dst, .. } => {
                let hist = self.hist(g)?;
                let s = self.env.globals().stat_get(g, &keys)?;
                let text = hist.draw(&s.ok_or("empty aggregate")?.buckets);
                if dst.is_none() {
                    self.env.print(Stream::Out, text.as_bytes());
                }
                text.as_bytes().into()
            }
            _ => return self.change(inst, g, &keys).map(|()| None),
        }))
    }

    /// Changes of globals without a result, and iterators.
    fn change(&mut self, inst: &Inst, g: GlobalId, keys: &[Value]) -> Result<(), Fault> {
        match inst {
            Inst::GStore { val, .. } => {
                let ty = self.program.kind(g).and_then(GlobalKind::scalar);
                let v = self.fitted(*val, ty)?;
                self.env.globals().gstore(g, v)
            }
            Inst::ASet { val, .. } => {
                let ty = self.program.kind(g).and_then(GlobalKind::scalar);
                let v = self.fitted(*val, ty)?;
                self.env.globals().aset(g, keys, v)
            }
            Inst::ADel { keys, .. } => {
                let keys = self.pattern(g, keys)?;
                self.env.globals().adel(g, &keys)
            }
            Inst::GClear { .. } => self.env.globals().gclear(g),
            Inst::StatAdd { val, .. } => {
                let v = self.long(*val);
                let added = self.env.globals().stat_add(g, keys, v);
                let full = |e: &Fault| e.message() == ARRAY_OVERFLOW.as_bytes();
                added.map_err(|e| match self.program.globals.get(g.index()) {
                    Some(global) if full(&e) => overflow(global).into(),
                    _ => e,
                })
            }
            Inst::IterNew {
                it,
                slice,
                sort,
                limit,
                ..
            } => {
                let slice = self.pattern(g, slice)?;
                let limit = limit.map(|l| self.long(l).max(0).fit::<usize>());
                let iter = self.env.globals().iterate(g, &slice, *sort, limit)?;
                self.start(*it, iter)
            }
            Inst::IterHist { it, .. } => {
                let s = self.stat(g, keys)?;
                let full = s.buckets.iter().enumerate().filter(|(_, n)| **n != 0);
                let elements = full.map(|(i, n)| Element {
                    keys: [Value::Long(i.fit())].into(),
                    cell: Cell::Scalar(Value::Long(n.cast_signed())),
                });
                self.start(*it, elements.collect::<Vec<_>>().into())
            }
            _ => Err(invalid()),
        }
    }

    fn start(&mut self, it: IterId, iter: ForeachIter) -> Result<(), Fault> {
        *self.top().iters.get_mut(it.index()).ok_or_else(invalid)? = iter;
        Ok(())
    }

    fn load(&mut self, space: Space, addr: u64, ty: IntTy) -> Result<i64, Fault> {
        let size = usize::from(ty.size.clamp(1, 8));
        let mut bytes = [0u8; 8];
        self.env.read_memory(space, addr, &mut bytes[..size])?;
        let raw = if cfg!(target_endian = "little") {
            u64::from_le_bytes(bytes)
        } else {
            u64::from_be_bytes(bytes) >> (64 - 8 * size)
        };
        let spare = 64 - 8 * size.fit::<u32>();
        let raw = raw << spare;
        Ok(if ty.signed {
            raw.cast_signed() >> spare
        } else {
            (raw >> spare).cast_signed()
        })
    }
}
