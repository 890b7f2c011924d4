//! Adds a key to arrays, or removes one, in all uses.

use spile_syntax::ast::*;

use super::edit::Mutator;
use super::tree::*;
use super::types::Ty;
use super::walk;

impl Mutator {
    /// A global that is an array, and its number of keys.
    pub(super) fn array(&mut self) -> Option<(Name, usize)> {
        let mut arrays: Vec<(Name, usize)> = self
            .types
            .globals
            .iter()
            .filter(|(_, (keys, _))| !keys.is_empty())
            .map(|(name, (keys, _))| (name.clone(), keys.len()))
            .collect();
        arrays.sort();
        let at = self.rng.below(arrays.len() as u32) as usize;
        arrays.get(at).cloned()
    }

    pub(super) fn add_key(&mut self, file: &mut File) -> bool {
        let Some((array, _)) = self.array() else {
            return false;
        };
        let ty = self.rng.pick(&[Ty::Long, Ty::Str]);
        let mut exact: Vec<Expr> = Vec::new();
        for _ in 0..4 {
            exact.push(match (ty, self.rng.below(4)) {
                (Ty::Long, 0) => call("tid", Vec::new()),
                (Ty::Long, 1) => call("cpu", Vec::new()),
                (Ty::Str, 0) => call("execname", Vec::new()),
                (Ty::Long, _) => self.number(),
                (Ty::Str, _) => self.text(),
            });
        }
        let one = exact[0].clone();
        let same = self.rng.chance(60);
        let mut next = move || {
            exact.rotate_left(1);
            Key::Expr(if same { one.clone() } else { exact[0].clone() })
        };
        keys_of(file, &array, &mut |keys, _| keys.push(next()));
        let name = self.name("k");
        walk::foreachs(file, &mut |f| {
            if matches!(&f.over, ForeachOver::Array(a) if a.name == array) {
                f.keys.push(ident(&name));
                f.slice
                    .iter_mut()
                    .for_each(|s| s.push(Key::Any(Span::default())));
            }
            false
        });
        true
    }

    /// Removes the last key of an array. `foreach` keys are handled separately.
    pub(super) fn remove_key(&mut self, file: &mut File) -> bool {
        let Some((array, count @ 2..)) = self.array() else {
            return false;
        };
        let ty = self.types.globals[&array].0[count - 1];
        let zero = match ty {
            Some(Ty::Str) => ExprKind::Str(b"".as_slice().into()),
            _ => ExprKind::Num(0),
        };
        keys_of(file, &array, &mut |keys, exact| {
            keys.pop();
            if !exact && !keys.iter().any(|k| matches!(k, Key::Expr(_))) {
                keys[0] = Key::Expr(expr(ExprKind::Num(0)));
            }
        });
        walk::foreachs(file, &mut |f| {
            if matches!(&f.over, ForeachOver::Array(a) if a.name == array)
                && let Some(name) = f.keys.pop()
            {
                if let Some(sort) = &mut f.sort
                    && sort.by == SortBy::Key(count as u32 - 1)
                {
                    sort.by = SortBy::Key(0);
                }
                f.slice.iter_mut().for_each(|s| _ = s.pop());
                let lhs = Box::new(expr(ExprKind::Var(name.name)));
                let rhs = Box::new(expr(zero.clone()));
                let op = None;
                let set = stmt(StmtKind::Expr(expr(ExprKind::Assign { op, lhs, rhs })));
                let body = std::mem::replace(&mut f.body, stmt(StmtKind::Empty));
                f.body = stmt(StmtKind::Block(block(vec![set, body])));
            }
            false
        });
        true
    }
}

/// The keys of an array in all uses, and whether all keys have to be there.
fn keys_of(file: &mut File, array: &Name, f: &mut dyn FnMut(&mut Vec<Key>, bool)) {
    fn location(e: &mut Expr, array: &Name, f: &mut dyn FnMut(&mut Vec<Key>, bool), exact: bool) {
        match &mut e.kind {
            ExprKind::Index { base, keys } => match &mut base.kind {
                ExprKind::Var(name) if name == array => f(keys, exact),
                ExprKind::Var(_) => {}
                _ => location(base, array, f, exact),
            },
            ExprKind::Hist { arg, .. } => location(arg, array, f, exact),
            _ => {}
        }
    }
    walk::exprs(file, &mut |e, _, _| {
        match &mut e.kind {
            ExprKind::Index { .. } => location(e, array, f, true),
            ExprKind::In { keys, array: of } if of.name == *array => f(keys, false),
            ExprKind::Stat { arg, .. } | ExprKind::Hist { arg, .. } => {
                location(arg, array, f, true)
            }
            ExprKind::IncDec { target, .. } => location(target, array, f, true),
            ExprKind::Assign { lhs, .. } | ExprKind::StatAdd { lhs, .. } => {
                location(lhs, array, f, true);
            }
            ExprKind::Print { args, .. } => {
                let hists = args
                    .iter_mut()
                    .filter(|a| matches!(a.kind, ExprKind::Hist { .. }));
                hists.for_each(|a| location(a, array, f, true));
            }
            _ => {}
        }
        false
    });
    walk::blocks(file, &mut |b, _, _| {
        deletes(&mut b.stmts, &mut |e| location(e, array, f, false));
        false
    });
}

/// Calls `f` for the operands of `delete` in a block.
fn deletes(stmts: &mut [Stmt], f: &mut dyn FnMut(&mut Expr)) {
    for s in stmts {
        match &mut s.kind {
            StmtKind::Delete(e) => f(e),
            StmtKind::If { then, els, .. } => {
                deletes(std::slice::from_mut(then), f);
                els.iter_mut()
                    .for_each(|s| deletes(std::slice::from_mut(s), f));
            }
            StmtKind::While { body, .. } | StmtKind::For { body, .. } => {
                deletes(std::slice::from_mut(body), f);
            }
            StmtKind::Foreach(each) => deletes(std::slice::from_mut(&mut each.body), f),
            _ => {}
        }
    }
}
