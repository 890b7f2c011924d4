//! Constructors of syntax tree nodes without spans.

use spile_syntax::ast::*;

pub(super) fn expr(kind: ExprKind) -> Expr {
    let span = Span::default();
    Expr { kind, span }
}

pub(super) fn stmt(kind: StmtKind) -> Stmt {
    let span = Span::default();
    Stmt { kind, span }
}

pub(super) fn ident(name: &str) -> Ident {
    Ident {
        name: name.into(),
        span: Span::default(),
    }
}

pub(super) fn block(stmts: Vec<Stmt>) -> StmtBlock {
    StmtBlock {
        stmts,
        span: Span::default(),
    }
}

pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let name = ident(name);
    expr(ExprKind::Call { name, args })
}

pub(super) fn binary(op: BinOp, a: Expr, b: Expr) -> Expr {
    expr(ExprKind::Binary(op, Box::new(a), Box::new(b)))
}

pub(super) fn number(n: i64) -> Expr {
    expr(ExprKind::Num(n))
}

/// `sprintf` or `sprint` of these arguments.
pub(super) fn sprint(format: bool, args: Vec<Expr>) -> Expr {
    let op = PrintOp {
        to_string: true,
        format,
        delim: false,
        newline: false,
        char: false,
    };
    expr(ExprKind::Print { op, args })
}
