//! `@entry(e)`: values from the entry of a system call or a function, in handlers of its return.
//!
//! Each expression has a hidden array, with the thread as key, and for functions also the
//! activation. One hidden handler at the entry of the same calls fills all arrays of a return
//! handler; the return handler first takes its elements. A return whose entry was not seen, because
//! the call was in progress when the session began, is skipped. SystemTap's return probes do the
//! same: they exist only where the entry was seen.
//!
//! A function that leaves by a jump to another one (a tail call) returns at return instructions of
//! that one. Its return handler has such an array without any `@entry`: the hit is its return if its
//! own entry was seen on the same stack, by the same caller.

use std::sync::Arc;

use spile_abi::Abi;
use spile_ir::intrinsics::Intrinsic;
use spile_ir::{BinOp, CodeProbe, ENTRY_ARRAY, Event, Space, UNSEEN_ENTRIES, UnOp};
use spile_syntax::ast::{self, Span};
use spile_syntax::diag::Diagnostic;

use super::{Resolver, UnitState};
use crate::codes;
use crate::ctype::CTy;
use crate::facts::{LocOp, VarKind};
use crate::probe::code::at_once;
use crate::probe::{HandlerContext, HandlerKind, ProbeHandler};
use crate::types::hir::*;
use crate::types::unify::{Base, TyVar};

/// Number of elements of a hidden array. The oldest element makes space, because a thread that ends
/// inside a system call never takes its own.
const ENTRY_MAX: i64 = 8192;

/// The `@entry` expressions of a handler.
#[derive(Default)]
pub(super) struct EntryExprs {
    /// The expressions, each with the local that holds its value and its C type.
    saved_exprs: Vec<(ast::Expr, LocalIx, Option<CTy>)>,
    /// The local with the load bias of the code: its address less the one it was linked at.
    bias: Option<LocalIx>,
    /// State of the handler at the entry.
    inner: Option<Box<UnitState>>,
    /// Body of the handler at the entry.
    stores: Vec<HirStmt>,
    /// Statements that take the values, ahead of the return handler's body.
    takes: Vec<HirStmt>,
    /// For each element, whether it existed.
    seen_flags: Vec<HirExpr>,
}

impl Resolver<'_> {
    /// The value that `e` had at the entry.
    pub(super) fn entry(&mut self, e: &ast::Expr, span: Span) -> Option<(HirExpr, Option<CTy>)> {
        let event = self.cur.event.as_ref().and_then(entry_event);
        let (Some(event), Some(ctx)) = (event, self.cur.ctx.clone()) else {
            let d = Diagnostic::error(codes::BAD_ENTRY, "`@entry` needs a return probe").at(span);
            let way_out = "use it in `probe syscall.NAME.return` or `.function(\"f\").return`";
            self.report(d.help(way_out));
            return None;
        };
        let saved = self.cur.entries.saved_exprs.iter().find(|k| k.0 == *e);
        if let Some((_, ix, cty)) = saved {
            let (ix, cty) = (*ix, *cty);
            return Some((self.saved_value(ix, span), cty));
        }
        let ((value, cty), inner) = self.in_entry_handler(event, &ctx, |r| r.typed_expr(e));
        if self.trial > 0 {
            // `@defined(@entry(x))` only asks whether the expression resolves.
            return Some((value, cty));
        }
        self.cur.entries.inner = Some(inner);
        let ix = self.save_for_return(value, span);
        self.cur.entries.saved_exprs.push((e.clone(), ix, cty));
        Some((self.saved_value(ix, span), cty))
    }

    /// The load bias of the code, computed at the entry of the function: at its return the program
    /// counter is in the caller. See [`Resolver::bias`].
    pub(super) fn entry_bias(&mut self, pc: u16, span: Span) -> Option<HirExpr> {
        if let Some(ix) = self.cur.entries.bias {
            return Some(self.saved_value(ix, span));
        }
        let event = self.cur.event.as_ref().and_then(entry_event)?;
        let ctx = self.cur.ctx.clone()?;
        let (value, inner) = self.in_entry_handler(event, &ctx, |r| r.bias(pc, span));
        let (value, _) = value?;
        if self.trial > 0 {
            return Some(value);
        }
        self.cur.entries.inner = Some(inner);
        let ix = self.save_for_return(value, span);
        self.cur.entries.bias = Some(ix);
        Some(self.saved_value(ix, span))
    }

    /// Makes the existence of an entry a condition of the return handler, where return instructions
    /// are exits of other functions too.
    fn require_entry(&mut self, span: Span) {
        let shared = matches!(&self.cur.event, Some(Event::Code(p)) if p.shares_exits());
        if !shared || !self.cur.entries.saved_exprs.is_empty() || self.cur.entries.bias.is_some() {
            return;
        }
        let event = self.cur.event.as_ref().and_then(entry_event);
        let (Some(event), Some(ctx)) = (event, self.cur.ctx.clone()) else {
            return;
        };
        let one = |r: &mut Self| r.imm(1, span);
        let (value, inner) = self.in_entry_handler(event, &ctx, one);
        self.cur.entries.inner = Some(inner);
        let (g, keys) = self.store_at_entry(value, span);
        self.take_element(g, keys, span);
    }

    fn saved_value(&mut self, ix: LocalIx, span: Span) -> HirExpr {
        LValue::Local(ix).read(self.cur.locals[ix.0].ty, span)
    }

    /// Resolves an expression as part of the handler at the entry; also returns that handler's
    /// state.
    fn in_entry_handler<T>(
        &mut self,
        event: Event,
        ctx: &HandlerContext,
        something: impl FnOnce(&mut Self) -> T,
    ) -> (T, Box<UnitState>) {
        let inner = match self.cur.entries.inner.take() {
            Some(inner) => UnitState {
                file: self.cur.file,
                tapset: self.cur.tapset,
                ..*inner
            },
            None => UnitState {
                file: self.cur.file,
                tapset: self.cur.tapset,
                ctx: Some(Arc::new(entry_context(ctx))),
                event: Some(event),
                ..UnitState::default()
            },
        };
        let outer = std::mem::replace(&mut self.cur, inner);
        let made = something(self);
        let inner = std::mem::replace(&mut self.cur, outer);
        (made, Box::new(inner))
    }

    /// The keys that distinguish activations: the thread and, for functions, the value that the
    /// stack pointer has after the return, so that nested calls have elements of their own. Where
    /// the return does not know the stack pointer, the kernel distinguishes activations.
    ///
    /// Functions that leave by jumps have two more: the function, as several can return by one
    /// instruction, and the return address. An exception or `longjmp` that ends a call leaves its
    /// element behind, and another function may then be called on the same stack and return by the
    /// same instruction, but not to the same location.
    fn entry_keys(&mut self, at_entry: bool, span: Span) -> Vec<HirExpr> {
        let mut keys = vec![self.intrinsic_of(Intrinsic::Tid, None, span)];
        let Some(Event::Code(probe)) = &self.cur.event else {
            return keys;
        };
        let at_once =
            probe.space == Space::Kernel && probe.sites.iter().all(|s| at_once(&s.location));
        if at_once && !self.facts.kernel_return_stack() {
            keys.push(self.intrinsic_of(Intrinsic::CtxActivation, None, span));
            return keys;
        }
        let (abi, shared) = (self.abi(), probe.shares_exits());
        let popped = if at_entry { abi.calls.popped } else { 0 };
        if probe.of_goroutines() {
            keys = self.goroutine_keys(popped, span);
        } else {
            let sp = self.intrinsic_of(Intrinsic::CtxReg, Some(abi.stack_pointer.into()), span);
            keys.push(self.op_imm(BinOp::Add, sp, popped, span));
        }
        if shared {
            keys.push(self.intrinsic_of(Intrinsic::CtxSite, None, span));
            keys.push(self.return_address(at_entry, span));
        }
        keys
    }

    /// The address that the function returns to. At a return instruction the program counter is
    /// that of the caller.
    fn return_address(&mut self, at_entry: bool, span: Span) -> HirExpr {
        if !at_entry {
            let pc = self.abi().program_counter;
            return self.intrinsic_of(Intrinsic::CtxReg, Some(pc.into()), span);
        }
        let top = [
            LocOp::Reg(self.abi().stack_pointer),
            LocOp::Load {
                size: 8,
                signed: false,
            },
        ];
        let address = self.evaluate_location(&top, Space::User, span);
        address.unwrap_or_else(|| self.bad(span))
    }

    /// The processor that the script is for; of others than these nothing is at code.
    fn abi(&self) -> &'static Abi {
        Abi::named(self.facts.arch()).unwrap_or(spile_abi::ALL[0])
    }

    /// The keys for Go: goroutines change threads, and their stacks move, so the keys are the
    /// goroutine and the distance of the stack pointer from the stack's end.
    /// `runtime/runtime2.go` of Go defines the goroutine: its second word is the stack's end.
    fn goroutine_keys(&mut self, popped: i64, span: Span) -> Vec<HirExpr> {
        let abi = self.abi();
        let goroutine = self.intrinsic_of(Intrinsic::CtxReg, Some(abi.goroutine.into()), span);
        let depth = [
            LocOp::Reg(abi.goroutine),
            LocOp::Const(8),
            LocOp::Bin(BinOp::Add),
            LocOp::Load {
                size: 8,
                signed: false,
            },
            LocOp::Reg(self.abi().stack_pointer),
            LocOp::Bin(BinOp::Sub),
            LocOp::Const(popped),
            LocOp::Bin(BinOp::Sub),
        ];
        let depth = self.evaluate_location(&depth, Space::User, span);
        let depth = depth.unwrap_or_else(|| self.bad(span));
        vec![goroutine, depth]
    }

    /// Stores a value at the entry and takes it at the return; returns the local that gets it.
    fn save_for_return(&mut self, value: HirExpr, span: Span) -> LocalIx {
        let ty = value.ty;
        let (g, keys) = self.store_at_entry(value, span);
        let n = self.cur.entries.seen_flags.len();
        let value = self.bound_local(&format!("{ENTRY_ARRAY}{n}").into(), span);
        let value_ty = self.cur.locals[value.0].ty;
        self.unify(value_ty, ty, span);
        let read = LValue::Elem(g, keys.clone()).read(ty, span);
        // The order matters: an element that exists after it was read existed before, even while
        // other threads evict elements from the array.
        let read = set(LValue::Local(value), read, ty, span);
        self.cur.entries.takes.push(read);
        self.take_element(g, keys, span);
        value
    }

    /// Stores a value in a new hidden array at the entry; returns the array, and the keys at the
    /// return.
    fn store_at_entry(&mut self, value: HirExpr, span: Span) -> (GlobalIx, Vec<HirExpr>) {
        let keys = self.entry_keys(true, span);
        let g = self.entry_array(value.ty, keys.len(), span);
        let (ty, value_span) = (value.ty, value.span);
        let store = set(LValue::Elem(g, keys), value, ty, value_span);
        self.cur.entries.stores.push(store);
        (g, self.entry_keys(false, span))
    }

    /// Notes at the return whether an element exists, and deletes it.
    fn take_element(&mut self, g: GlobalIx, keys: Vec<HirExpr>, span: Span) {
        let n = self.cur.entries.seen_flags.len();
        let seen = self.bound_local(&format!("@seen{n}").into(), span);
        let seen_ty = self.cur.locals[seen.0].ty;
        self.set_type(seen_ty, Base::Long, span);
        let delete: Vec<Option<HirExpr>> = keys.into_iter().map(Some).collect();
        let keys = delete.clone();
        let has = self.int(HirExprKind::In { g, keys }, span);
        let takes = &mut self.cur.entries.takes;
        takes.push(set(LValue::Local(seen), has, seen_ty, span));
        let kind = HirStmtKind::DeleteElem(g, delete);
        takes.push(HirStmt { kind, span });
        let seen = LValue::Local(seen).read(seen_ty, span);
        self.cur.entries.seen_flags.push(seen);
    }

    /// A local that need not be read.
    pub(super) fn bound_local(&mut self, name: &ast::Name, span: Span) -> LocalIx {
        let ix = self.local(name, span);
        let local = &mut self.cur.locals[ix.0];
        (local.written, local.read, local.bound) = (true, true, true);
        ix
    }

    fn entry_array(&mut self, value: TyVar, keys: usize, span: Span) -> GlobalIx {
        let name: ast::Name = format!("{ENTRY_ARRAY}{}", self.entries).into();
        self.entries += 1;
        let keys = (0..keys).map(|_| self.types.fresh_of(Base::Long, span));
        let keys = Some(keys.collect());
        let array = HirGlobal {
            wrap: true,
            max: Some(ENTRY_MAX),
            keys,
            ..hidden(name, value, span)
        };
        self.tree.globals.push(array);
        GlobalIx(self.tree.globals.len() - 1)
    }

    /// Counts a return without an element. It is missing because the call was in progress when the session
    /// began, because its entry was skipped, or because newer elements took its slot.
    fn count_unseen(&mut self, span: Span) -> HirStmt {
        let mut known = self.tree.globals.iter();
        let known = known.position(|g| &*g.name == UNSEEN_ENTRIES);
        let g = known.unwrap_or_else(|| {
            let value = self.types.fresh_of(Base::Long, span);
            let counter = hidden(UNSEEN_ENTRIES.into(), value, span);
            self.tree.globals.push(counter);
            self.tree.globals.len() - 1
        });
        let ty = self.tree.globals[g].value;
        let kind = HirExprKind::Assign {
            lvalue: LValue::Scalar(GlobalIx(g)),
            op: Some(AssignOp::Num(BinOp::Add)),
            rhs: Box::new(self.imm(1, span)),
        };
        let kind = HirStmtKind::Expr(HirExpr { kind, ty, span });
        HirStmt { kind, span }
    }

    /// Ends a return handler: the statements ahead of its body, and the handler at the entry.
    pub(super) fn finish_entries(&mut self, d: &ProbeHandler) -> (Vec<HirStmt>, Option<Unit>) {
        self.require_entry(d.span);
        let entries = std::mem::take(&mut self.cur.entries);
        let Some(inner) = entries.inner else {
            return (Vec::new(), None);
        };
        let mut takes = entries.takes;
        let all_seen = entries.seen_flags.into_iter().reduce(|a, b| {
            let (and, span) = (true, a.span);
            let (a, b) = (Box::new(a), Box::new(b));
            self.int(HirExprKind::Logic { and, a, b }, span)
        });
        if let Some(all_seen) = all_seen {
            let span = all_seen.span;
            let cond = self.int(HirExprKind::Un(UnOp::Not, Box::new(all_seen)), span);
            let count = self.count_unseen(span);
            let kind = HirStmtKind::Next;
            let (then, els) = (vec![count, HirStmt { kind, span }], Vec::new());
            let kind = HirStmtKind::If { cond, then, els };
            takes.push(HirStmt { kind, span });
        }
        let Some(event) = inner.event else {
            return (takes, None);
        };
        let point: Arc<str> = format!("@entry of {}", d.point).into();
        let unit = Unit {
            name: point.clone(),
            span: d.span,
            user: false,
            kind: UnitKind::Handler {
                point: point.clone(),
                name: point,
                points: d.points,
                pattern: format!("@entry of {}", d.pattern).into(),
                event,
                sites: None,
            },
            locals: inner.locals,
            body: entries.stores,
        };
        (takes, Some(unit))
    }
}

/// A scalar global that analysis made.
fn hidden(name: ast::Name, value: TyVar, span: Span) -> HirGlobal {
    HirGlobal {
        unique: name.clone(),
        name,
        span,
        user: false,
        synthetic: true,
        wrap: false,
        max: None,
        init: None,
        keys: Some(Vec::new()),
        keys_at: span,
        value,
        read: true,
        written: true,
        stats: Default::default(),
        hist_at: span,
    }
}

/// `location = value;`
pub(super) fn set(lvalue: LValue, value: HirExpr, ty: TyVar, span: Span) -> HirStmt {
    let kind = HirExprKind::Assign {
        lvalue,
        op: None,
        rhs: Box::new(value),
    };
    let kind = HirStmtKind::Expr(HirExpr { kind, ty, span });
    HirStmt { kind, span }
}

/// The entry event of a return event.
fn entry_event(event: &Event) -> Option<Event> {
    match event {
        Event::SysExit(nrs) => Some(Event::SysEnter(nrs.clone())),
        Event::Code(probe) if probe.ret => {
            let mut entry = CodeProbe {
                ret: false,
                ..probe.clone()
            };
            entry.sites.iter_mut().for_each(|s| s.exits = None);
            Some(Event::Code(entry))
        }
        _ => None,
    }
}

/// The context at the entry: the arguments.
fn entry_context(ctx: &HandlerContext) -> HandlerContext {
    let arg = |t: &&crate::probe::TargetVar| t.kind != VarKind::Return;
    let kind = match ctx.kind {
        HandlerKind::SysExit => HandlerKind::SysEnter,
        kind => kind,
    };
    HandlerContext {
        kind,
        vars: Vec::new(),
        targets: ctx.targets.iter().filter(arg).cloned().collect(),
        ..ctx.clone()
    }
}
