//! Shrinks a failing script on its syntax tree: items, statements and expressions are removed or
//! simplified as long as the same kind of failure remains. (proptest shrinks the generation of a
//! value; this shrinks any script, including one that a user reports.)

use std::time::{Duration, Instant};

use spile_syntax::ast::*;
use spile_syntax::diag::Diagnostics;
use spile_syntax::parser::parse_file;
use spile_syntax::preproc::{MacroLibrary, PreprocEnv};
use spile_syntax::pretty;
use spile_syntax::source::Sources;

/// Time limit of shrinking.
const LIMIT: Duration = Duration::from_secs(90);

/// Parses a script; the error is the text of the diagnostics.
pub(crate) fn parse(text: &str) -> Result<File, String> {
    let (mut sources, mut diags) = (Sources::new(), Diagnostics::new());
    let env = PreprocEnv::new("6.12.0", "x86_64");
    let id = sources.add("script.stp", text.as_bytes().to_vec());
    let file = parse_file(&mut sources, id, &env, &MacroLibrary::new(), &mut diags);
    match diags.has_errors() {
        true => Err(diags.render(&sources, false)),
        false => Ok(file),
    }
}

/// The smallest failing script found, and its failure. `wrong` returns the failure of a smaller
/// script, if it fails in the same way.
pub(crate) fn shrink(
    text: &str,
    wrong: &dyn Fn(&str) -> Option<String>,
) -> Option<(String, String)> {
    let end = Instant::now() + LIMIT;
    let mut file = parse(text).ok()?;
    let mut best: Option<(String, String)> = None;
    let mut len = text.len();
    let mut changed = true;
    while changed && Instant::now() < end {
        changed = false;
        let mut n = 0;
        // Edit `n` of the current tree: after one that is kept, the next has the same number.
        while let Some(smaller) = edited(&file, n) {
            if Instant::now() > end {
                break;
            }
            let text = pretty::file(&smaller);
            let why = Some(&text).filter(|t| t.len() < len).and_then(|t| wrong(t));
            match why {
                Some(why) => {
                    len = text.len();
                    best = Some((text, why));
                    file = smaller;
                    changed = true;
                }
                None => n += 1,
            }
        }
    }
    best
}

/// The tree after its `n`th possible edit.
fn edited(file: &File, n: usize) -> Option<File> {
    let mut file = file.clone();
    let mut edit = Edit { left: n };
    edit.file(&mut file).then_some(file)
}

/// Counts possible edits down to the one to make. Methods return whether it was made.
struct Edit {
    left: usize,
}

impl Edit {
    fn now(&mut self) -> bool {
        let now = self.left == 0;
        self.left = self.left.wrapping_sub(1);
        now
    }

    /// Removes runs of elements, long ones first.
    fn remove<X>(&mut self, list: &mut Vec<X>) -> bool {
        let mut len = list.len();
        while len > 0 {
            for start in (0..list.len()).step_by(len) {
                if self.now() {
                    list.drain(start..(start + len).min(list.len()));
                    return true;
                }
            }
            len /= 2;
        }
        false
    }

    fn file(&mut self, file: &mut File) -> bool {
        if self.remove(&mut file.items) {
            return true;
        }
        file.items.iter_mut().any(|item| match item {
            Item::Probe(p) => {
                for point in &mut p.points {
                    if point.condition.is_some() && self.now() {
                        point.condition = None;
                        return true;
                    }
                }
                self.block(&mut p.body)
            }
            Item::Function(Function {
                body: FnBody::Block(b),
                ..
            }) => self.block(b),
            Item::Global(g) => self.remove(&mut g.vars),
            _ => false,
        })
    }

    fn block(&mut self, b: &mut StmtBlock) -> bool {
        if self.remove(&mut b.stmts) {
            return true;
        }
        for i in 0..b.stmts.len() {
            for inner in inner(&b.stmts[i]) {
                if self.now() {
                    b.stmts.splice(i..=i, inner);
                    return true;
                }
            }
        }
        b.stmts.iter_mut().any(|s| self.stmt(s))
    }

    fn stmt(&mut self, s: &mut Stmt) -> bool {
        match &mut s.kind {
            StmtKind::Expr(e) | StmtKind::Delete(e) | StmtKind::Return(Some(e)) => self.expr(e),
            StmtKind::Block(b) => self.block(b),
            StmtKind::If { cond, then, els } => {
                if els.is_some() && self.now() {
                    *els = None;
                    return true;
                }
                self.expr(cond) || self.stmt(then) || els.iter_mut().any(|s| self.stmt(s))
            }
            StmtKind::While { cond, body } => self.expr(cond) || self.stmt(body),
            StmtKind::For {
                init,
                cond,
                step,
                body,
            } => {
                let mut parts = [init, cond, step].into_iter().flatten();
                parts.any(|e| self.expr(e)) || self.stmt(body)
            }
            StmtKind::Foreach(f) => {
                for part in 0..4 {
                    let there = [
                        f.limit.is_some(),
                        f.sort.is_some(),
                        f.slice.is_some(),
                        f.value.is_some(),
                    ];
                    if there[part] && self.now() {
                        match part {
                            0 => f.limit = None,
                            1 => f.sort = None,
                            2 => f.slice = None,
                            _ => f.value = None,
                        }
                        return true;
                    }
                }
                f.limit.iter_mut().any(|e| self.expr(e)) || self.stmt(&mut f.body)
            }
            StmtKind::Try { body, handler, .. } => self.block(body) || self.block(handler),
            _ => false,
        }
    }

    fn expr(&mut self, e: &mut Expr) -> bool {
        let span = e.span;
        for simple in simpler(e) {
            if self.now() {
                *e = Expr { kind: simple, span };
                return true;
            }
        }
        self.operands(e)
    }

    fn keys(&mut self, keys: &mut [Key]) -> bool {
        keys.iter_mut().any(|k| match k {
            Key::Expr(e) => self.expr(e),
            Key::Any(_) => false,
        })
    }

    fn operands(&mut self, e: &mut Expr) -> bool {
        match &mut e.kind {
            ExprKind::Index { base, keys } => {
                let hist = matches!(base.kind, ExprKind::Hist { .. });
                (hist && self.operands(base)) || self.keys(keys)
            }
            ExprKind::In { keys, .. } => self.keys(keys),
            ExprKind::Call { args, .. } => args.iter_mut().any(|a| self.expr(a)),
            ExprKind::Print { op, args } => {
                let fixed = usize::from(op.format || op.delim);
                if let Some(shorter) = fixed_format(op, args)
                    && self.now()
                {
                    *args = shorter;
                    return true;
                }
                args.iter_mut().skip(fixed).any(|a| self.expr(a))
            }
            ExprKind::Unary(_, a) | ExprKind::Match { subject: a, .. } => self.expr(a),
            ExprKind::Stat { arg, .. } | ExprKind::Hist { arg, .. } => self.operands(arg),
            ExprKind::IncDec { target, .. } => self.operands(target),
            ExprKind::Binary(_, a, b) => self.expr(a) || self.expr(b),
            ExprKind::Assign { lhs, rhs, .. } | ExprKind::StatAdd { lhs, rhs } => {
                self.operands(lhs) || self.expr(rhs)
            }
            ExprKind::Ternary(c, a, b) => self.expr(c) || self.expr(a) || self.expr(b),
            _ => false,
        }
    }
}

/// A `printf` without its last argument and conversion.
fn fixed_format(op: &PrintOp, args: &[Expr]) -> Option<Vec<Expr>> {
    let ExprKind::Str(text) = &args.first().filter(|_| op.format)?.kind else {
        return None;
    };
    let at = text.iter().rposition(|b| *b == b'%')?;
    let mut shorter = args.to_vec();
    let stars = text[at..].iter().filter(|b| **b == b'*').count();
    shorter.truncate(args.len().saturating_sub(1 + stars).max(1));
    shorter[0].kind = ExprKind::Str(text[..at].into());
    Some(shorter)
}

/// The inner statements of a statement, which can replace it.
fn inner(s: &Stmt) -> Vec<Vec<Stmt>> {
    let one = |s: &Stmt| match &s.kind {
        StmtKind::Block(b) => b.stmts.clone(),
        _ => vec![s.clone()],
    };
    match &s.kind {
        StmtKind::Block(b) => vec![b.stmts.clone()],
        StmtKind::If { then, els, .. } => {
            let els = els.iter().map(|s| one(s));
            std::iter::once(one(then)).chain(els).collect()
        }
        StmtKind::While { body, .. } | StmtKind::For { body, .. } => vec![one(body)],
        StmtKind::Foreach(f) => vec![one(&f.body)],
        StmtKind::Try { body, handler, .. } => vec![body.stmts.clone(), handler.stmts.clone()],
        _ => Vec::new(),
    }
}

/// Simpler expressions to try: literals, then operands. Those of the wrong type are refused.
fn simpler(e: &Expr) -> Vec<ExprKind> {
    let mut out = Vec::new();
    match &e.kind {
        ExprKind::Num(0) => {}
        ExprKind::Num(n) => {
            for less in [0, 1, n / 2] {
                if less != *n && less.unsigned_abs() < n.unsigned_abs() {
                    out.push(ExprKind::Num(less));
                }
            }
        }
        ExprKind::Str(s) => {
            for len in [0, 1, s.len() / 2, s.len().saturating_sub(1)] {
                if len < s.len() {
                    out.push(ExprKind::Str(s[..len].into()));
                }
            }
        }
        _ => {
            out.push(ExprKind::Num(0));
            out.push(ExprKind::Num(1));
            out.push(ExprKind::Str(b"".as_slice().into()));
            out.push(ExprKind::Str(b"a".as_slice().into()));
            spile_syntax::visit::each_child(e, |c| out.push(c.kind.clone()));
        }
    }
    out
}
