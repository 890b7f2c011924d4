//! `@entry(e)`: values from the entry of a system call, in handlers of its return.
//!
//! Each expression has a hidden array by thread. One hidden handler at the entry of the same
//! calls fills all arrays of a return handler, and that one takes its elements first thing. A
//! return whose entry was not seen (the call was under way when the session began) is turned
//! away, as with SystemTap's return probes, which exist only where the entry was seen.

use std::sync::Arc;

use spile_ir::intrinsics::Intrinsic;
use spile_ir::{Event, UnOp};
use spile_syntax::ast::{self, Span};
use spile_syntax::diag::Diagnostic;

use super::{Cur, Resolver};
use crate::codes;
use crate::probe::{Context, ContextKind, Derived, TargetSource};
use crate::types::hir::*;
use crate::types::unify::{Base, TyVar};

/// How many elements a hidden array has; the oldest makes room, because a thread that ends
/// inside a system call never comes back for its own.
const ENTRY_MAX: i64 = 8192;

/// The `@entry` expressions of a handler.
#[derive(Default)]
pub(super) struct Entries {
    /// The expressions, with the locals that hold their values.
    known: Vec<(ast::Expr, LocalIx)>,
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
    pub(super) fn entry(&mut self, e: &ast::Expr, span: Span) -> Expr {
        let (Some(Event::SysExit(nrs)), Some(ctx)) = (self.cur.event.clone(), self.cur.ctx.clone())
        else {
            self.report(
                Diagnostic::error(codes::BAD_ENTRY, "`@entry` needs a return probe")
                    .at(span)
                    .help("use it in `probe syscall.NAME.return`"),
            );
            return self.bad(span);
        };
        if let Some((_, ix)) = self.cur.entries.known.iter().find(|(known, _)| known == e) {
            let (ix, ty) = (*ix, self.cur.locals[ix.0].ty);
            let kind = ExprKind::Read(Place::Local(ix));
            return Expr { kind, ty, span };
        }
        let inner = match self.cur.entries.inner.take() {
            Some(inner) => Cur {
                file: self.cur.file,
                tapset: self.cur.tapset,
                ..*inner
            },
            None => Cur {
                file: self.cur.file,
                tapset: self.cur.tapset,
                ctx: Some(Arc::new(entry_context(&ctx))),
                event: Some(Event::SysEnter(nrs)),
                ..Cur::default()
            },
        };
        let outer = std::mem::replace(&mut self.cur, inner);
        let value = self.expr(e);
        let inner = std::mem::replace(&mut self.cur, outer);
        if self.trial > 0 {
            // `@defined(@entry(x))` asks only whether there could be one.
            return value;
        }
        self.cur.entries.inner = Some(Box::new(inner));
        let ix = self.keep(value, span);
        self.cur.entries.known.push((e.clone(), ix));
        let ty = self.cur.locals[ix.0].ty;
        let kind = ExprKind::Read(Place::Local(ix));
        Expr { kind, ty, span }
    }

    /// Stores a value at the entry and takes it at the return; the local that gets it.
    fn keep(&mut self, value: Expr, span: Span) -> LocalIx {
        let g = self.entry_array(value.ty, span);
        let (ty, at) = (value.ty, value.span);
        let tid = ExprKind::Intr {
            f: Intrinsic::Tid,
            args: Vec::new(),
        };
        let key = self.num(tid, span);
        let place = Place::Elem(g, vec![key.clone()]);
        let store = set(place.clone(), value, ty, at);
        self.cur.entries.stores.push(store);

        let n = self.cur.entries.known.len();
        let seen = self.bound_local(&format!("@seen{n}").into(), span);
        let seen_ty = self.cur.locals[seen.0].ty;
        self.decide(seen_ty, Base::Long, span);
        let keys = vec![Some(key.clone())];
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

    fn entry_array(&mut self, value: TyVar, span: Span) -> GlobalIx {
        let name: ast::Name = format!("@entry{}", self.entries).into();
        self.entries += 1;
        let key = self.types.known(Base::Long, span);
        self.tree.globals.push(Global {
            name: name.clone(),
            unique: name,
            span,
            user: false,
            synthetic: true,
            wrap: true,
            max: Some(ENTRY_MAX),
            init: None,
            keys: Some(vec![key]),
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
        d: &Derived,
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
                event,
            },
            locals: inner.locals,
            body: entries.stores,
        };
        (takes, Some(unit))
    }
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

/// What names mean at the entry: the call's arguments.
fn entry_context(ctx: &Context) -> Context {
    let arg = |t: &&crate::probe::Target| t.source != TargetSource::SysRet;
    Context {
        name: ctx.name.clone(),
        targets: ctx.targets.iter().filter(arg).cloned().collect(),
        ..Context::empty(ContextKind::SysEnter)
    }
}
