//! Syntax tree to source text. Parsing the text gives the same tree again, except for spans.
//!
//! Parentheses are written only where precedence requires them; every simple statement ends in `;`.

use std::fmt::Write as _;

use spile_cast::Cast;

use crate::ast::*;
use crate::lexer::escape;
use crate::parser::at_ops::{AT_OPS, STATS};
use crate::parser::expr::{ASSIGN, BINARY, PRINT, UNARY, level};
use crate::token::Tok;

/// A whole file.
pub fn file(f: &File) -> String {
    let mut p = Printer::default();
    for (i, item) in f.items.iter().enumerate() {
        if i > 0 {
            p.out.push('\n');
        }
        p.item(item);
    }
    p.out
}

/// An expression on one line.
pub fn expr(e: &Expr) -> String {
    let mut p = Printer::default();
    p.expr(e, level::ASSIGN);
    p.out
}

/// A statement; its lines end in newlines.
pub fn stmt(s: &Stmt) -> String {
    let mut p = Printer::default();
    p.stmt(s);
    p.out
}

/// A probe point with its suffix and condition.
pub fn probe_point(point: &ProbePoint) -> String {
    let mut p = Printer::default();
    p.point(point);
    p.out
}

/// The components of a probe point.
pub fn point_text(components: &[Component]) -> String {
    let mut text = String::new();
    for c in components {
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(&c.name);
        if let Some(arg) = &c.arg {
            let _ = write!(text, "({})", literal(arg));
        }
    }
    text
}

/// A literal.
pub fn literal(l: &Literal) -> String {
    match l {
        Literal::Num(n) => n.to_string(),
        Literal::Str(s) => escape(s),
    }
}

/// The spelling of a token in [`Tok::OPERATORS`].
fn spelling(tok: Tok) -> &'static str {
    Tok::OPERATORS
        .iter()
        .find(|(t, _)| *t == tok)
        .map_or("?", |(_, s)| *s)
}

/// The operator's text and level.
fn binary(op: BinOp) -> (&'static str, u8) {
    BINARY
        .iter()
        .find(|b| b.1 == op)
        .map_or(("?", 0), |b| (spelling(b.0), b.2))
}

/// The precedence level of an expression.
fn level_of(e: &Expr) -> u8 {
    match &e.kind {
        ExprKind::Assign { .. } | ExprKind::StatAdd { .. } => level::ASSIGN,
        ExprKind::Ternary(..) => level::TERNARY,
        ExprKind::Binary(op, ..) => binary(*op).1,
        ExprKind::In { .. } => level::IN,
        ExprKind::Match { .. } => level::COMPARE,
        ExprKind::Unary(..) => level::UNARY,
        ExprKind::IncDec { .. } => level::CREMENT,
        _ => level::VALUE,
    }
}

/// The level that an operand needs, if operands of some levels get brackets.
fn min_level(e: &Expr, min: u8, bracketed: std::ops::RangeInclusive<u8>) -> u8 {
    if bracketed.contains(&level_of(e)) {
        level::VALUE
    } else {
        min
    }
}

/// The level that the left operand of a comparison needs: `!a == b` gets brackets.
fn left_level(e: &Expr) -> u8 {
    match e.kind {
        ExprKind::Unary(UnOp::Not, _) => level::VALUE,
        _ => 0,
    }
}

#[derive(Default)]
struct Printer {
    out: String,
    indent: usize,
}

impl Printer {
    fn text(&mut self, s: &str) {
        self.out.push_str(s);
    }

    fn line_start(&mut self) {
        for _ in 0..self.indent {
            self.out.push_str("  ");
        }
    }

    /// Writes the elements separated by `, `.
    fn list<T>(&mut self, items: &[T], mut f: impl FnMut(&mut Self, &T)) {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.text(", ");
            }
            f(self, item);
        }
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Probe(p) => {
                self.text("probe ");
                self.points(&p.points);
                self.body(&p.body);
                self.text("\n");
            }
            Item::Alias(a) => self.alias(a),
            Item::Global(g) => {
                self.text(if g.private { "private " } else { "" });
                self.text("global ");
                self.list(&g.vars, Self::global_var);
                self.text("\n");
            }
            Item::Function(f) => self.function(f),
            Item::Embedded(e) => {
                self.embedded(e);
                self.text("\n");
            }
        }
    }

    fn doc(&mut self, doc: &Option<String>) {
        for line in doc.iter().flat_map(|d| d.split('\n')) {
            let _ = writeln!(self.out, "{}", format!("// {line}").trim_end());
        }
    }

    fn alias(&mut self, a: &Alias) {
        self.doc(&a.doc);
        self.text("probe ");
        for (i, name) in a.names.iter().enumerate() {
            self.point(name);
            let last = i + 1 == a.names.len();
            let epilogue = last && a.kind == AliasKind::Epilogue;
            self.text(if epilogue { " += " } else { " = " });
        }
        self.points(&a.points);
        self.body(&a.body);
        if let Some(second) = &a.second {
            self.text(",");
            self.body(second);
        }
        self.text("\n");
    }

    fn global_var(&mut self, v: &GlobalVar) {
        self.text(&v.name.name);
        if v.wrap {
            self.text("%");
        }
        if let Some(n) = v.max {
            let _ = write!(self.out, "[{n}]");
        }
        if let Some(l) = &v.init {
            let _ = write!(self.out, " = {}", literal(l));
        }
    }

    fn type_name(&mut self, t: Option<TypeName>) {
        self.text(match t {
            Some(TypeName::Long) => ":long",
            Some(TypeName::String) => ":string",
            None => "",
        });
    }

    fn function(&mut self, f: &Function) {
        self.doc(&f.doc);
        self.text(if f.private { "private " } else { "" });
        self.text("function ");
        self.text(&f.name.name);
        self.type_name(f.ret);
        self.text("(");
        self.list(&f.params, |p, (id, ty)| {
            p.text(&id.name);
            p.type_name(*ty);
        });
        self.text(")");
        if let Some(n) = f.priority {
            let _ = write!(self.out, " : {n}");
        }
        match &f.body {
            FnBody::Block(b) => self.body(b),
            FnBody::Embedded(e) => {
                self.text(" ");
                self.embedded(e);
            }
        }
        self.text("\n");
    }

    fn embedded(&mut self, e: &Embedded) {
        let _ = write!(self.out, "%{{{}%}}", e.text);
    }

    fn points(&mut self, points: &[ProbePoint]) {
        self.list(points, Self::point);
    }

    fn point(&mut self, p: &ProbePoint) {
        self.text(&point_text(&p.components));
        self.text(match (p.optional, p.sufficient) {
            (_, true) => "!",
            (true, false) => "?",
            _ => "",
        });
        if let Some(c) = &p.condition {
            self.text(" if (");
            self.expr(c, level::ASSIGN);
            self.text(")");
        }
    }

    /// A block on the current line, without a newline at its end.
    fn body(&mut self, b: &StmtBlock) {
        self.text(" {\n");
        self.indent += 1;
        for s in &b.stmts {
            self.stmt(s);
        }
        self.indent -= 1;
        self.line_start();
        self.text("}");
    }

    /// The body of a `while` or `if`, with its newline.
    fn indented_body(&mut self, s: &Stmt) {
        if let StmtKind::Block(b) = &s.kind {
            self.body(b);
            self.text("\n");
        } else {
            self.text("\n");
            self.indent += 1;
            self.stmt(s);
            self.indent -= 1;
        }
    }

    fn head(&mut self, keyword: &str, cond: &Expr) {
        self.text(keyword);
        self.text(" (");
        self.expr(cond, level::ASSIGN);
        self.text(")");
    }

    fn opt_expr(&mut self, e: &Option<Expr>) {
        if let Some(e) = e {
            self.expr(e, level::ASSIGN);
        }
    }

    fn stmt(&mut self, s: &Stmt) {
        self.line_start();
        match &s.kind {
            StmtKind::Empty => self.text(";\n"),
            StmtKind::Expr(e) => {
                let start = self.out.len();
                self.expr(e, level::ASSIGN);
                if self.out[start..].starts_with("%{") {
                    // Otherwise it would be a statement of its own.
                    self.out.insert(start, '(');
                    self.text(")");
                }
                self.text(";\n");
            }
            StmtKind::Block(b) => {
                // `body` begins with a space.
                let start = self.out.len();
                self.body(b);
                self.out.remove(start);
                self.text("\n");
            }
            StmtKind::If { cond, then, els } => {
                self.head("if", cond);
                self.indented_body(then);
                if let Some(els) = els {
                    self.line_start();
                    self.text("else");
                    self.indented_body(els);
                }
            }
            StmtKind::While { cond, body } => {
                self.head("while", cond);
                self.indented_body(body);
            }
            StmtKind::For {
                init,
                cond,
                step,
                body,
            } => {
                self.text("for (");
                self.opt_expr(init);
                self.text("; ");
                self.opt_expr(cond);
                self.text("; ");
                self.opt_expr(step);
                self.text(")");
                self.indented_body(body);
            }
            StmtKind::Foreach(f) => self.foreach(f),
            StmtKind::Break => self.text("break;\n"),
            StmtKind::Continue => self.text("continue;\n"),
            StmtKind::Next => self.text("next;\n"),
            StmtKind::Return(e) => {
                self.text(if e.is_some() { "return " } else { "return" });
                self.opt_expr(e);
                self.text(";\n");
            }
            StmtKind::Try { body, var, handler } => {
                self.text("try");
                self.body(body);
                self.text(" catch");
                if let Some(v) = var {
                    let _ = write!(self.out, " ({})", v.name);
                }
                self.body(handler);
                self.text("\n");
            }
            StmtKind::Delete(e) => {
                self.text("delete ");
                self.expr(e, level::ASSIGN);
                self.text(";\n");
            }
            StmtKind::Embedded(e) => {
                self.embedded(e);
                self.text("\n");
            }
        }
    }

    fn foreach(&mut self, f: &Foreach) {
        self.text("foreach (");
        if let Some(v) = &f.value {
            let _ = write!(self.out, "{} = ", v.name);
        }
        let mark = f
            .sort
            .as_ref()
            .map_or("", |s| if s.descending { "-" } else { "+" });
        let by = f.sort.as_ref().map(|s| s.by);
        self.text("[");
        for (i, k) in f.keys.iter().enumerate() {
            self.text(if i > 0 { ", " } else { "" });
            self.text(&k.name);
            if by == Some(SortBy::Key(i.fit())) {
                self.text(mark);
            }
        }
        self.text("] in ");
        match &f.over {
            ForeachOver::Array(a) => self.text(&a.name),
            ForeachOver::Hist(e) => self.expr(e, level::VALUE),
        }
        if let Some(keys) = &f.slice {
            self.keys(keys);
        }
        match by {
            Some(SortBy::Value) => self.text(mark),
            Some(SortBy::Stat(op)) => {
                let _ = write!(self.out, " {}{mark}", stat_name(op));
            }
            _ => {}
        }
        if let Some(e) = &f.limit {
            self.text(" limit ");
            self.expr(e, level::ASSIGN);
        }
        self.text(")");
        self.indented_body(&f.body);
    }

    fn keys(&mut self, keys: &[Key]) {
        self.text("[");
        self.list(keys, |p, k| match k {
            Key::Expr(e) => p.expr(e, level::ASSIGN),
            Key::Any(_) => p.text("*"),
        });
        self.text("]");
    }

    fn args(&mut self, args: &[Expr]) {
        self.text("(");
        self.list(args, |p, e| p.expr(e, level::ASSIGN));
        self.text(")");
    }

    /// An expression in a context that requires at least level `min`.
    fn expr(&mut self, e: &Expr, min: u8) {
        if level_of(e) < min {
            self.text("(");
            self.unbracketed(e);
            self.text(")");
        } else {
            self.unbracketed(e);
        }
    }

    fn infix(&mut self, l: &Expr, op: &str, r: &Expr, levels: (u8, u8)) {
        self.expr(l, levels.0);
        let _ = write!(self.out, " {op} ");
        self.expr(r, levels.1);
    }

    /// Two operands; in brackets also where the parser would warn without (`W0103`).
    fn binary(&mut self, op: BinOp, l: &Expr, r: &Expr) {
        use BinOp::*;
        let (text, mut left) = binary(op);
        let mut right = left + 1;
        if matches!(op, And | Or | Xor) {
            left = min_level(l, left, level::IN..=level::COMPARE);
            right = min_level(r, right, level::IN..=level::COMPARE);
        } else if matches!(op, Shl | Shr | UShr) {
            let sums = binary(Add).1;
            left = min_level(l, left, sums..=sums);
            right = min_level(r, right, sums..=sums);
        }
        if matches!(op, And | Or | Xor) || left == level::COMPARE {
            left = min_level(l, left, level::COMPARE..=level::COMPARE);
            left = left.max(left_level(l));
        }
        self.infix(l, text, r, (left, right));
    }

    fn unbracketed(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Num(n) => {
                let _ = write!(self.out, "{}", n.cast_unsigned());
            }
            ExprKind::Str(s) => self.text(&escape(s)),
            ExprKind::Var(n) => self.text(n),
            ExprKind::Index { base, keys } => {
                self.expr(base, level::VALUE);
                self.keys(keys);
            }
            ExprKind::Call { name, args } => {
                self.text(&name.name);
                self.args(args);
            }
            ExprKind::Unary(op, operand) => self.unary(*op, operand),
            ExprKind::Binary(op, l, r) => self.binary(*op, l, r),
            ExprKind::Ternary(c, a, b) => {
                self.infix(c, "?", a, (level::TERNARY + 1, level::ASSIGN));
                self.text(" : ");
                self.expr(b, level::ASSIGN);
            }
            ExprKind::Assign { op, lhs, rhs } => {
                let tok = op.and_then(|op| ASSIGN.iter().find(|a| a.1 == op));
                let text = tok.map_or("=", |a| spelling(a.0));
                self.infix(lhs, text, rhs, (level::VALUE, level::ASSIGN));
            }
            ExprKind::StatAdd { lhs, rhs } => {
                self.infix(lhs, "<<<", rhs, (level::VALUE, level::ASSIGN));
            }
            ExprKind::IncDec {
                prefix,
                inc,
                target,
            } => {
                let op = if *inc { "++" } else { "--" };
                self.text(if *prefix { op } else { "" });
                self.expr(target, level::VALUE);
                self.text(if *prefix { "" } else { op });
            }
            ExprKind::In { keys, array } => {
                self.keys(keys);
                let _ = write!(self.out, " in {}", array.name);
            }
            ExprKind::Match {
                negated,
                subject,
                pattern,
                ..
            } => {
                self.expr(subject, (level::COMPARE + 1).max(left_level(subject)));
                self.text(if *negated { " !~ " } else { " =~ " });
                self.text(&escape(pattern));
            }
            ExprKind::Stat { op, arg, params } => {
                self.text(stat_name(*op));
                self.call_with_numbers(arg, params);
            }
            ExprKind::Hist { kind, arg } => match *kind {
                HistKind::Log => {
                    self.text("@hist_log");
                    self.call_with_numbers(arg, &[]);
                }
                HistKind::Linear { low, high, step } => {
                    self.text("@hist_linear");
                    self.call_with_numbers(arg, &[low, high, step]);
                }
            },
            ExprKind::Print { op, args } => {
                self.text(PRINT.iter().find(|p| p.1 == *op).map_or("print", |p| p.0));
                self.args(args);
            }
            ExprKind::Target {
                name,
                addr_of,
                access,
                pretty,
            } => {
                self.text(if *addr_of { "&" } else { "" });
                self.text(name);
                self.access(access, *pretty);
            }
            ExprKind::At {
                op,
                args,
                addr_of,
                access,
                pretty,
            } => {
                self.text(if *addr_of { "&" } else { "" });
                self.text(AT_OPS.iter().find(|a| a.op == *op).map_or("@?", |a| a.name));
                self.args(args);
                self.access(access, *pretty);
            }
            ExprKind::Arrow {
                base,
                addr_of,
                access,
                pretty,
            } => {
                self.text(if *addr_of { "&" } else { "" });
                self.arrow_base(base, access);
                self.access(access, *pretty);
            }
            ExprKind::Embedded(e) => self.embedded(e),
        }
    }

    /// `x[i]` is an element of an array, `(x)[i]` one of what the value points to.
    fn arrow_base(&mut self, base: &Expr, access: &[Access]) {
        let closed = match base.kind {
            ExprKind::Var(_) => matches!(access.first(), Some(Access::Member(_))),
            ExprKind::Call { .. } => true,
            _ => false,
        };
        self.expr(base, if closed { level::VALUE } else { u8::MAX });
    }

    fn unary(&mut self, op: UnOp, operand: &Expr) {
        let tok = UNARY.iter().find(|u| u.1 == op);
        self.text(tok.map_or("?", |u| spelling(u.0)));
        let start = self.out.len();
        self.expr(operand, level::UNARY);
        // `- -x` and `+ ++x` would be merged.
        if self.out[start..].starts_with(['-', '+', '~', '=']) {
            self.out.insert(start, ' ');
        }
    }

    fn call_with_numbers(&mut self, arg: &Expr, numbers: &[i64]) {
        self.text("(");
        self.expr(arg, level::ASSIGN);
        for n in numbers {
            let _ = write!(self.out, ", {n}");
        }
        self.text(")");
    }

    fn access(&mut self, access: &[Access], pretty: Pretty) {
        for a in access {
            match a {
                Access::Member(id) => {
                    let _ = write!(self.out, "->{}", id.name);
                }
                Access::Index(e) => {
                    self.text("[");
                    self.expr(e, level::ASSIGN);
                    self.text("]");
                }
            }
        }
        self.text(match pretty {
            Pretty::None => "",
            Pretty::Shallow => "$",
            Pretty::Deep => "$$",
        });
    }
}

fn stat_name(op: StatOp) -> &'static str {
    STATS.iter().find(|s| s.1 == op).map_or("@?", |s| s.0)
}
