//! Statements. A `;` after a simple statement is optional.

use spile_cast::Cast;

use super::{ErrorExtras, Parse, Parser, ProductionFailed, label, labels};
use crate::ast::*;
use crate::codes;
use crate::diag::Diagnostic;
use crate::token::{Tok, Token};

/// Tokens that can only begin a statement: the parser resumes there after an error.
const STMT_START: &[Tok] = &[
    Tok::KwIf,
    Tok::KwFor,
    Tok::KwForeach,
    Tok::KwWhile,
    Tok::KwReturn,
    Tok::KwDelete,
    Tok::KwBreak,
    Tok::KwContinue,
    Tok::KwNext,
    Tok::KwTry,
];

/// Tokens that only occur at top level: a `}` is missing before them.
const ITEM_START: &[Tok] = &[Tok::KwProbe, Tok::KwGlobal, Tok::KwPrivate, Tok::KwFunction];

impl Parser<'_> {
    /// `{ ... }`; `what` names the construct in the message if it is missing.
    pub(super) fn block(&mut self, what: &str) -> Parse<StmtBlock> {
        if !self.at(Tok::LBrace) {
            return Err(self.no_block(what));
        }
        let open = self.bump();
        let mut stmts = Vec::new();
        loop {
            match self.kind() {
                Tok::RBrace => break,
                Tok::Eof => {
                    let message = "this block is never closed";
                    let also = label("no `}` for this");
                    return Err(self.report_at(codes::UNCLOSED, open.span, message, also));
                }
                kind if ITEM_START.contains(&kind) => {
                    return Err(self.item_in_block(open));
                }
                _ => {}
            }
            let before = self.pos;
            match self.stmt() {
                Ok(s) => stmts.push(s),
                Err(ProductionFailed) => self.skip_to_stmt(before),
            }
        }
        self.bump();
        Ok(StmtBlock {
            stmts,
            span: self.since(open.span),
        })
    }

    #[inline(never)]
    fn no_block(&mut self, what: &str) -> ProductionFailed {
        let t = self.token();
        let message = format!("expected `{{` and {what}, found {}", self.found(t));
        self.report_at(
            codes::UNEXPECTED,
            t.span,
            &message,
            label("`{` expected here"),
        )
    }

    #[inline(never)]
    fn item_in_block(&mut self, open: Token) -> ProductionFailed {
        let t = self.token();
        let message = format!("{} inside a block", t.kind.describe());
        let allowed = match t.kind {
            Tok::KwGlobal | Tok::KwPrivate => {
                "only allowed at top level; local variables need no declaration"
            }
            _ => "only allowed at top level",
        };
        let also = labels(allowed, open.span, "is a `}` missing for this?");
        self.report_at(codes::UNCLOSED, t.span, &message, also)
    }

    /// Skips to the end of the statement: past a `;`, or before a `}` or a keyword that begins
    /// the next one. Nested braces are skipped whole.
    fn skip_to_stmt(&mut self, before: usize) {
        let mut depth = 0usize;
        loop {
            let moved = self.pos > before;
            match self.kind() {
                Tok::Eof => return,
                Tok::LBrace => depth += 1,
                Tok::RBrace if depth == 0 => return,
                Tok::RBrace => {
                    depth -= 1;
                    if depth == 0 {
                        self.bump();
                        return;
                    }
                }
                Tok::Semi if depth == 0 => {
                    self.bump();
                    return;
                }
                k if ITEM_START.contains(&k) => return,
                k if depth == 0 && moved && STMT_START.contains(&k) => return,
                _ => {}
            }
            self.bump();
        }
    }

    pub(super) fn stmt(&mut self) -> Parse<Stmt> {
        self.nested(Self::stmt_inner)
    }

    fn boxed_stmt(&mut self) -> Parse<Box<Stmt>> {
        self.stmt().map(Box::new)
    }

    fn stmt_inner(&mut self) -> Parse<Stmt> {
        let start = self.token().span;
        let kind = self.stmt_kind()?;
        let span = self.since(start);
        let simple = matches!(
            kind,
            StmtKind::Expr(_)
                | StmtKind::Break
                | StmtKind::Continue
                | StmtKind::Next
                | StmtKind::Return(_)
                | StmtKind::Delete(_)
        );
        if simple {
            self.accept(Tok::Semi);
        }
        Ok(Stmt { kind, span })
    }

    /// Each arm is only a call: this is on the recursive path, and every value built here would
    /// take its own space in the stack frame.
    fn stmt_kind(&mut self) -> Parse<StmtKind> {
        match self.kind() {
            Tok::LBrace => self.block_stmt(),
            Tok::KwIf => self.if_stmt(),
            Tok::KwWhile => self.while_stmt(),
            Tok::KwFor => self.for_stmt(),
            Tok::KwForeach => self.foreach_stmt(),
            Tok::KwTry => self.try_stmt(),
            Tok::KwElse | Tok::KwCatch => Err(self.stray_branch()),
            _ => self.simple_stmt(),
        }
    }

    fn block_stmt(&mut self) -> Parse<StmtKind> {
        self.block("statements").map(StmtKind::Block)
    }

    fn while_stmt(&mut self) -> Parse<StmtKind> {
        self.bump();
        let cond = self.in_parens(Self::expr)?;
        Ok(StmtKind::While {
            cond,
            body: self.boxed_stmt()?,
        })
    }

    fn stray_branch(&mut self) -> ProductionFailed {
        let t = self.token();
        let message = match t.kind {
            Tok::KwElse => "`else` without `if`",
            _ => "`catch` without `try`",
        };
        self.report_at(codes::UNEXPECTED, t.span, message, ErrorExtras::default())
    }

    /// A statement without inner statements.
    fn simple_stmt(&mut self) -> Parse<StmtKind> {
        match self.kind() {
            Tok::Semi => Ok(self.keyword_stmt(StmtKind::Empty)),
            Tok::KwBreak => Ok(self.keyword_stmt(StmtKind::Break)),
            Tok::KwContinue => Ok(self.keyword_stmt(StmtKind::Continue)),
            Tok::KwNext => Ok(self.keyword_stmt(StmtKind::Next)),
            Tok::KwReturn => self.return_stmt(),
            Tok::KwDelete => {
                self.bump();
                self.starred_expr().map(StmtKind::Delete)
            }
            Tok::Embedded => Ok(StmtKind::Embedded(self.embedded())),
            _ => self.expr().map(StmtKind::Expr),
        }
    }

    fn return_stmt(&mut self) -> Parse<StmtKind> {
        if !self.in_function {
            let (span, message) = (self.token().span, "`return` outside a function");
            let way_out = label("`next` ends the handler of a probe");
            self.report_at(codes::OUTSIDE_FUNCTION, span, message, way_out);
        }
        self.bump();
        match self.kind() {
            Tok::Semi | Tok::RBrace | Tok::Eof => Ok(StmtKind::Return(None)),
            _ => Ok(StmtKind::Return(Some(self.expr()?))),
        }
    }

    fn keyword_stmt(&mut self, kind: StmtKind) -> StmtKind {
        self.bump();
        kind
    }

    pub(super) fn in_parens<T>(&mut self, f: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        let open = self.expect(Tok::LParen)?;
        let inner = f(self)?;
        self.expect_close(Tok::RParen, open)?;
        Ok(inner)
    }

    fn if_stmt(&mut self) -> Parse<StmtKind> {
        self.bump();
        let cond = self.in_parens(Self::expr)?;
        let then = self.boxed_stmt()?;
        if self.at(Tok::Semi) && self.nth(1) == Tok::KwElse {
            self.bump();
        }
        let els = self.after(Tok::KwElse, Self::boxed_stmt)?;
        Ok(StmtKind::If { cond, then, els })
    }

    fn opt_expr(&mut self, end: Tok) -> Parse<Option<Expr>> {
        if self.at(end) {
            Ok(None)
        } else {
            self.expr().map(Some)
        }
    }

    fn for_stmt(&mut self) -> Parse<StmtKind> {
        self.bump();
        let open = self.expect(Tok::LParen)?;
        let init = self.opt_expr(Tok::Semi)?;
        self.expect(Tok::Semi)?;
        let cond = self.opt_expr(Tok::Semi)?;
        self.expect(Tok::Semi)?;
        let step = self.opt_expr(Tok::RParen)?;
        self.expect_close(Tok::RParen, open)?;
        Ok(StmtKind::For {
            init,
            cond,
            step,
            body: self.boxed_stmt()?,
        })
    }

    fn try_stmt(&mut self) -> Parse<StmtKind> {
        self.bump();
        let body = self.block("the statements to try")?;
        if !self.at(Tok::KwCatch) {
            return self.unexpected("`catch`");
        }
        self.bump();
        let var = match self.accept(Tok::LParen) {
            Some(open) => {
                let var = self.new_ident("the variable for the message")?;
                self.expect_close(Tok::RParen, open)?;
                Some(var)
            }
            None => None,
        };
        let handler = self.block("the statements that handle the error")?;
        Ok(StmtKind::Try { body, var, handler })
    }

    /// `foreach (v = [a, b-] in arr[x, *] @count- limit e) s`
    fn foreach_stmt(&mut self) -> Parse<StmtKind> {
        let mut f = self.foreach_head()?;
        f.body = self.stmt()?;
        Ok(StmtKind::Foreach(f))
    }

    /// Parses up to `)`; the body stays empty.
    #[inline(never)]
    fn foreach_head(&mut self) -> Parse<Box<Foreach>> {
        self.bump();
        let open = self.expect(Tok::LParen)?;
        let mut keys = Vec::new();
        let mut sort = None;
        let marked = matches!(self.nth(1), Tok::Plus | Tok::Minus) && self.nth(2) == Tok::Assign;
        let value = if self.at(Tok::Ident) && (marked || self.nth(1) == Tok::Assign) {
            let start = self.token().span;
            let v = self.new_ident("a variable")?;
            self.sort_mark(SortBy::Value, start, &mut sort)?;
            self.bump();
            Some(v)
        } else {
            None
        };
        if let Some(bracket) = self.accept(Tok::LBracket) {
            self.comma_list(|p| p.foreach_key(&mut keys, &mut sort))?;
            self.expect_close(Tok::RBracket, bracket)?;
        } else {
            self.foreach_key(&mut keys, &mut sort)?;
        }
        self.expect(Tok::KwIn)?;
        let (over, slice) = self.foreach_over()?;
        self.foreach_value_sort(&mut sort)?;
        let limit = self.after(Tok::KwLimit, Self::expr)?;
        self.expect_close(Tok::RParen, open)?;
        let body = Stmt {
            kind: StmtKind::Empty,
            span: open.span,
        };
        Ok(Box::new(Foreach {
            value,
            keys,
            over,
            slice,
            sort,
            limit,
            body,
        }))
    }

    fn foreach_key(&mut self, keys: &mut Vec<Ident>, sort: &mut Option<Sort>) -> Parse<()> {
        keys.push(self.new_ident("a key variable")?);
        let by = SortBy::Key(keys.len().fit::<u32>() - 1);
        self.sort_mark(by, self.token().span, sort)
    }

    /// `+` or `-`, at most one of them in a `foreach`.
    fn sort_mark(&mut self, by: SortBy, start: Span, sort: &mut Option<Sort>) -> Parse<()> {
        let descending = match self.kind() {
            Tok::Plus => false,
            Tok::Minus => true,
            _ => return Ok(()),
        };
        if let Some(first) = sort {
            let first = first.span;
            let d = Diagnostic::error(codes::UNEXPECTED, "a `foreach` sorts by one column only");
            let d = d.label(self.token().span, "second sort mark");
            return self.fail(d.also(first, "first sort mark"));
        }
        self.bump();
        *sort = Some(Sort {
            by,
            descending,
            span: self.since(start),
        });
        Ok(())
    }

    fn foreach_over(&mut self) -> Parse<(ForeachOver, Option<Vec<Key>>)> {
        if self.at(Tok::AtIdent) {
            let e = *self.nested(Self::value)?;
            if let ExprKind::Hist { .. } = e.kind {
                return Ok((ForeachOver::Hist(e), None));
            }
            let d = Diagnostic::error(codes::UNEXPECTED, "`foreach` walks arrays and histograms");
            return self.fail(d.at(e.span));
        }
        let array = self.ident("the name of an array")?;
        let slice = match self.accept(Tok::LBracket) {
            Some(open) => Some(self.keys(open, true)?),
            None => None,
        };
        Ok((ForeachOver::Array(array), slice))
    }

    /// `+`, `-`, `@sum-` after the array.
    fn foreach_value_sort(&mut self, sort: &mut Option<Sort>) -> Parse<()> {
        let t = self.token();
        if t.kind != Tok::AtIdent {
            return self.sort_mark(SortBy::Value, t.span, sort);
        }
        let Some(op) = super::at_ops::stat_op(self.text(t)) else {
            return self.unexpected("a statistics operator such as `@count`");
        };
        self.bump();
        if !matches!(self.kind(), Tok::Plus | Tok::Minus) {
            return self.unexpected("`+` or `-`");
        }
        self.sort_mark(SortBy::Stat(op), t.span, sort)
    }
}
