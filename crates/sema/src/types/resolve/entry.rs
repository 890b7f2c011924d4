//! `@entry(e)`: values from the entry of a system call or a function, in handlers of its return.
//!
//! Each expression has a hidden array by thread, and of functions by activation. One hidden handler at the entry of the same
//! calls fills all arrays of a return handler, and that one takes its elements first thing. A
//! return whose entry was not seen (the call was under way when the session began) is turned
//! away, as with SystemTap's return probes, which exist only where the entry was seen.

use std::sync::Arc;

use spile_ir::intrinsics::Intrinsic;
use spile_ir::{Arch, BinOp, CodePlace, CodeProbe, CodeSite, Event, Space, UnOp};
use spile_syntax::ast::{self, Span};
use spile_syntax::diag::Diagnostic;

use super::{Cur, Resolver};
use crate::codes;
use crate::ctype::CTy;
use crate::facts::{LocOp, VarKind};
use crate::probe::{Context, ContextKind, ProbeHandler};
use crate::types::hir::*;
use crate::types::unify::{Base, TyVar};

/// How many elements a hidden array has; the oldest makes room, because a thread that ends
/// inside a system call never comes back for its own.
const ENTRY_MAX: i64 = 8192;

/// DWARF's number of the register in which functions of Go have their goroutine.
const GOROUTINE: u16 = 14;

/// The `@entry` expressions of a handler.
#[derive(Default)]
pub(super) struct Entries {
    /// The expressions, with the locals that hold their values.
    known: Vec<(ast::Expr, LocalIx, Option<CTy>)>,
    /// The local with the distance between where the code is and where it was linked.
    bias: Option<LocalIx>,
    /// State of the handler at the entry.
    inner: Option<Box<Cur>>,
    /// Its body.
    stores: Vec<Stmt>,
    /// What takes the values, ahead of the return handler's body.
    takes: Vec<Stmt>,
    /// Whether each element was there.
    seen: Vec<Expr>,
}

impl Resolver<'_> {
    /// The value that `e` had at the entry.
    pub(super) fn entry(&mut self, e: &ast::Expr, span: Span) -> (Expr, Option<CTy>) {
        let event = self.cur.event.as_ref().and_then(entry_event);
        let (Some(event), Some(ctx)) = (event, self.cur.ctx.clone()) else {
            self.report(
                Diagnostic::error(codes::BAD_ENTRY, "`@entry` needs a return probe")
                    .at(span)
                    .help("use it in `probe syscall.NAME.return` or `.function(\"f\").return`"),
            );
            return (self.bad(span), None);
        };
        let known = self.cur.entries.known.iter().find(|k| k.0 == *e);
        if let Some((_, ix, cty)) = known {
            let (ix, cty) = (*ix, *cty);
            return (self.kept(ix, span), cty);
        }
        let ((value, cty), inner) = self.there(event, &ctx, |r| r.typed_expr(e));
        if self.trial > 0 {
            // `@defined(@entry(x))` asks only whether there could be one.
            return (value, cty);
        }
        self.cur.entries.inner = Some(inner);
        let ix = self.keep(value, span);
        self.cur.entries.known.push((e.clone(), ix, cty));
        (self.kept(ix, span), cty)
    }

    /// How far code was from where it was linked at the entry of the function that returns; the
    /// program counter is at a place of the caller's now. As [`Resolver::bias`].
    pub(super) fn entry_bias(&mut self, pc: u16, span: Span) -> Option<Expr> {
        if let Some(ix) = self.cur.entries.bias {
            return Some(self.kept(ix, span));
        }
        let event = self.cur.event.as_ref().and_then(entry_event)?;
        let ctx = self.cur.ctx.clone()?;
        let (value, inner) = self.there(event, &ctx, |r| r.bias(pc, span));
        let (value, _) = value?;
        if self.trial > 0 {
            return Some(value);
        }
        self.cur.entries.inner = Some(inner);
        let ix = self.keep(value, span);
        self.cur.entries.bias = Some(ix);
        Some(self.kept(ix, span))
    }

    fn kept(&mut self, ix: LocalIx, span: Span) -> Expr {
        let ty = self.cur.locals[ix.0].ty;
        let kind = ExprKind::Read(Place::Local(ix));
        Expr { kind, ty, span }
    }

    /// Resolves something as a part of the handler at the entry, whose state is given too.
    fn there<T>(
        &mut self,
        event: Event,
        ctx: &Context,
        something: impl FnOnce(&mut Self) -> T,
    ) -> (T, Box<Cur>) {
        let inner = match self.cur.entries.inner.take() {
            Some(inner) => Cur {
                file: self.cur.file,
                tapset: self.cur.tapset,
                ..*inner
            },
            None => Cur {
                file: self.cur.file,
                tapset: self.cur.tapset,
                ctx: Some(Arc::new(entry_context(ctx))),
                event: Some(event),
                ..Cur::default()
            },
        };
        let outer = std::mem::replace(&mut self.cur, inner);
        let made = something(self);
        let inner = std::mem::replace(&mut self.cur, outer);
        (made, Box::new(inner))
    }

    /// What tells activations apart: the thread and, of functions, where the stack pointer will
    /// be when the function has returned, so that calls within calls have their own. Where that
    /// is not known at the return, the kernel tells them apart.
    fn entry_keys(&mut self, at_entry: bool, span: Span) -> Vec<Expr> {
        let mut keys = vec![self.intrinsic_of(Intrinsic::Tid, None, span)];
        let Some(Event::Code(probe)) = &self.cur.event else {
            return keys;
        };
        let at_once = probe.space == Space::Kernel && at_once(probe);
        if at_once && !self.facts.kernel_return_stack() {
            keys.push(self.intrinsic_of(Intrinsic::CtxActivation, None, span));
            return keys;
        }
        let arch = self.arch();
        let popped = if at_entry { arch.return_address() } else { 0 };
        if probe.of_goroutines() {
            return self.goroutine_keys(popped, span);
        }
        let sp = self.intrinsic_of(Intrinsic::CtxReg, Some(arch.stack_pointer().into()), span);
        keys.push(self.op_imm(BinOp::Add, sp, popped, span));
        keys
    }

    /// The processor that the script is for; of others than these nothing is at code.
    fn arch(&self) -> Arch {
        Arch::named(self.facts.arch()).unwrap_or_default()
    }

    /// Goroutines change threads, and their stacks move: the goroutine, and how far the stack
    /// pointer is from the stack's end. Both are as `cmd/compile/abi-internal.md` and
    /// `runtime/runtime2.go` of Go have them: r14 is the goroutine, and its second word the
    /// stack's end.
    fn goroutine_keys(&mut self, popped: i64, span: Span) -> Vec<Expr> {
        let goroutine = self.intrinsic_of(Intrinsic::CtxReg, Some(GOROUTINE.into()), span);
        let depth = [
            LocOp::Reg(GOROUTINE),
            LocOp::Const(8),
            LocOp::Bin(BinOp::Add),
            LocOp::Load {
                size: 8,
                signed: false,
            },
            LocOp::Reg(self.arch().stack_pointer()),
            LocOp::Bin(BinOp::Sub),
            LocOp::Const(popped),
            LocOp::Bin(BinOp::Sub),
        ];
        let depth = self.leaves(&depth, Space::User, span);
        let depth = depth.unwrap_or_else(|| self.bad(span));
        vec![goroutine, depth]
    }

    /// Stores a value at the entry and takes it at the return; the local that gets it.
    fn keep(&mut self, value: Expr, span: Span) -> LocalIx {
        let keys = self.entry_keys(true, span);
        let g = self.entry_array(value.ty, keys.len(), span);
        let (ty, at) = (value.ty, value.span);
        let store = set(Place::Elem(g, keys), value, ty, at);
        self.cur.entries.stores.push(store);
        let keys = self.entry_keys(false, span);
        let place = Place::Elem(g, keys.clone());

        let n = self.cur.entries.seen.len();
        let seen = self.bound_local(&format!("@seen{n}").into(), span);
        let seen_ty = self.cur.locals[seen.0].ty;
        self.decide(seen_ty, Base::Long, span);
        let keys: Vec<Option<Expr>> = keys.into_iter().map(Some).collect();
        let has = self.num(
            ExprKind::In {
                g,
                keys: keys.clone(),
            },
            span,
        );
        let value = self.bound_local(&format!("@entry{n}").into(), span);
        let value_ty = self.cur.locals[value.0].ty;
        self.same(value_ty, ty, span);
        let kind = ExprKind::Read(place);
        let read = Expr { kind, ty, span };
        let takes = &mut self.cur.entries.takes;
        // In this order: an element that is there after it was read was there before, also
        // where others push elements out of the array at the same time.
        takes.push(set(Place::Local(value), read, ty, span));
        takes.push(set(Place::Local(seen), has, seen_ty, span));
        let kind = StmtKind::DeleteElem(g, keys);
        takes.push(Stmt { kind, span });
        let kind = ExprKind::Read(Place::Local(seen));
        let seen = self.num(kind, span);
        self.cur.entries.seen.push(seen);
        value
    }

    /// A local that nobody has to read.
    fn bound_local(&mut self, name: &ast::Name, span: Span) -> LocalIx {
        let ix = self.local(name, span);
        let local = &mut self.cur.locals[ix.0];
        (local.written, local.read, local.bound) = (true, true, true);
        ix
    }

    fn entry_array(&mut self, value: TyVar, keys: usize, span: Span) -> GlobalIx {
        let name: ast::Name = format!("@entry{}", self.entries).into();
        self.entries += 1;
        let keys = (0..keys).map(|_| self.types.known(Base::Long, span));
        let keys = Some(keys.collect());
        self.tree.globals.push(Global {
            name: name.clone(),
            unique: name,
            span,
            user: false,
            synthetic: true,
            wrap: true,
            max: Some(ENTRY_MAX),
            init: None,
            keys,
            keys_at: span,
            value,
            read: true,
            written: true,
            stats: Default::default(),
            hist_at: span,
        });
        GlobalIx(self.tree.globals.len() - 1)
    }

    /// After a return handler: what goes ahead of its body, and the handler at the entry.
    pub(super) fn finish_entries(
        &mut self,
        entries: Entries,
        d: &ProbeHandler,
    ) -> (Vec<Stmt>, Option<Unit>) {
        let Some(inner) = entries.inner else {
            return (Vec::new(), None);
        };
        let mut takes = entries.takes;
        let all = entries.seen.into_iter().reduce(|a, b| {
            let span = a.span;
            let kind = ExprKind::Logic {
                and: true,
                a: Box::new(a),
                b: Box::new(b),
            };
            self.num(kind, span)
        });
        if let Some(all) = all {
            let span = all.span;
            let cond = self.num(ExprKind::Un(UnOp::Not, Box::new(all)), span);
            let next = Stmt {
                kind: StmtKind::Next,
                span,
            };
            let kind = StmtKind::If {
                cond,
                then: vec![next],
                els: Vec::new(),
            };
            takes.push(Stmt { kind, span });
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

/// Whether functions of the kernel are attached through ftrace, all at once.
fn at_once(probe: &CodeProbe) -> bool {
    let traced = |site: &CodeSite| {
        matches!(
            site.place,
            CodePlace::Symbol { offset: 0, .. } | CodePlace::Traced(_)
        )
    };
    probe.sites.iter().all(traced)
}

/// `place = value;`
fn set(place: Place, value: Expr, ty: TyVar, span: Span) -> Stmt {
    let kind = ExprKind::Assign {
        place,
        op: None,
        rhs: Box::new(value),
    };
    let kind = StmtKind::Expr(Expr { kind, ty, span });
    Stmt { kind, span }
}

/// The entry that belongs to a return.
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

/// What names mean at the entry: the arguments.
fn entry_context(ctx: &Context) -> Context {
    let arg = |t: &&crate::probe::TargetVar| t.kind != VarKind::Return;
    let kind = match ctx.kind {
        ContextKind::SysExit => ContextKind::SysEnter,
        kind => kind,
    };
    Context {
        kind,
        vars: Vec::new(),
        targets: ctx.targets.iter().filter(arg).cloned().collect(),
        ..ctx.clone()
    }
}
