//! Operators that begin with `@`.

use super::{ErrorExtras, Parse, Parser, ProductionFailed};
use crate::ast::*;
use crate::codes;
use crate::diag::Diagnostic;
use crate::token::{Tok, Token};

/// Statistics extractors by name.
pub(crate) const STATS: &[(&str, StatOp)] = &[
    ("@count", StatOp::Count),
    ("@sum", StatOp::Sum),
    ("@min", StatOp::Min),
    ("@max", StatOp::Max),
    ("@avg", StatOp::Avg),
    ("@variance", StatOp::Variance),
];

/// The kind of an operand of an `@`-operator.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Operand {
    Any,
    Text,
    Number,
}

/// An `@`-operator: its operands, and the number of optional ones.
pub(crate) struct AtSyntax {
    pub name: &'static str,
    pub op: AtOp,
    pub operands: &'static [Operand],
    pub optional: usize,
}

/// The operators except statistics and histograms.
pub(crate) const AT_OPS: &[AtSyntax] = {
    use Operand::{Any, Number, Text};
    const fn row(
        name: &'static str,
        op: AtOp,
        operands: &'static [Operand],
        optional: usize,
    ) -> AtSyntax {
        AtSyntax {
            name,
            op,
            operands,
            optional,
        }
    }
    &[
        row("@var", AtOp::Var, &[Text, Text], 1),
        row("@cast", AtOp::Cast, &[Any, Text, Text], 1),
        row("@defined", AtOp::Defined, &[Any], 0),
        row("@probewrite", AtOp::ProbeWrite, &[Any], 0),
        row("@entry", AtOp::Entry, &[Any], 0),
        row("@perf", AtOp::Perf, &[Text], 0),
        row("@enum", AtOp::Enum, &[Text, Text], 1),
        row("@enumname", AtOp::EnumName, &[Any, Text, Text], 2),
        row("@const", AtOp::Const, &[Text], 0),
        row("@kregister", AtOp::KRegister, &[Number], 0),
        row("@kderef", AtOp::KDeref, &[Number, Any], 0),
        row("@uregister", AtOp::URegister, &[Number], 0),
        row("@uderef", AtOp::UDeref, &[Number, Any], 0),
    ]
};

/// The names of all operators that begin with `@`, except `@define`.
pub fn operator_names() -> impl Iterator<Item = &'static str> {
    let stats = STATS.iter().map(|s| s.0);
    let others = AT_OPS.iter().map(|o| o.name);
    stats.chain(["@hist_log", "@hist_linear"]).chain(others)
}

pub(super) fn stat_op(text: &str) -> Option<StatOp> {
    STATS.iter().find(|(n, _)| *n == text).map(|(_, op)| *op)
}

impl Parser<'_> {
    pub(super) fn at_operator(&mut self) -> Parse<Box<Expr>> {
        let t = self.bump();
        let text = self.text(t);
        if let Some(op) = stat_op(text) {
            return self.stat(t, op);
        }
        match text {
            "@hist_log" => return self.hist(t, false),
            "@hist_linear" => return self.hist(t, true),
            _ => {}
        }
        match AT_OPS.iter().find(|a| a.name == text) {
            Some(syntax) => self.at_call(t, syntax),
            None => self.unknown_operator(t),
        }
    }

    fn unknown_operator<T>(&mut self, t: Token) -> Parse<T> {
        let text = self.text(t);
        let message = format!("`{text}` is neither an operator nor a macro");
        let d = Diagnostic::error(codes::UNKNOWN_OPERATOR, message).at(t.span);
        let hists = ["hist_log", "hist_linear"];
        let stats = STATS.iter().map(|s| &s.0[1..]);
        let ops = AT_OPS.iter().map(|a| &a.name[1..]);
        let names = hists
            .into_iter()
            .chain(stats)
            .chain(ops)
            .chain(self.macros.names());
        if text.starts_with("@SYSC_") {
            let way_out = "SystemTap has it for its own aliases; `retval` and `retstr` are variables of `syscall.*.return`";
            return self.fail(d.help(way_out));
        }
        let near = crate::diag::suggest(&text[1..], names);
        self.fail(d.help_if(near.map(|n| format!("did you mean `@{n}`?"))))
    }

    /// `(e, 1, 2)`: a value and numbers.
    fn value_and_numbers(&mut self) -> Parse<(Box<Expr>, Vec<i64>)> {
        let open = self.expect(Tok::LParen)?;
        let arg = self.boxed_expr()?;
        let mut params = Vec::new();
        while self.accept(Tok::Comma).is_some() {
            params.push(self.number("a number")?);
        }
        self.expect_close(Tok::RParen, open)?;
        Ok((arg, params))
    }

    /// The wrong number of operands for the operator `t`.
    #[inline(never)]
    fn operand_count(&mut self, t: Token, takes: &str) -> ProductionFailed {
        let message = format!("`{}` takes {takes}", self.text(t));
        let span = self.since(t.span);
        self.report_at(codes::OPERAND_COUNT, span, &message, ErrorExtras::default())
    }

    /// `@variance(e, 3)`
    fn stat(&mut self, t: Token, op: StatOp) -> Parse<Box<Expr>> {
        let (arg, params) = self.value_and_numbers()?;
        let below = self.height;
        let takes = match (op, params.len()) {
            (_, 0) | (StatOp::Variance, 1) => None,
            (StatOp::Variance, _) => Some("a statistic and one number"),
            _ => Some("a statistic alone"),
        };
        if let Some(takes) = takes {
            self.operand_count(t, takes);
        }
        self.new_expr(ExprKind::Stat { op, arg, params }, t.span, below)
    }

    /// `@hist_log(e)`, `@hist_linear(e, low, high, step)`, either with `[i]`.
    fn hist(&mut self, t: Token, linear: bool) -> Parse<Box<Expr>> {
        let (arg, params) = self.value_and_numbers()?;
        let below = self.height;
        let kind = match (linear, &params[..]) {
            (false, []) => HistKind::Log,
            (true, &[low, high, step]) => HistKind::Linear { low, high, step },
            (true, _) => return Err(self.operand_count(t, "(statistic, low, high, step)")),
            (false, _) => return Err(self.operand_count(t, "a statistic alone")),
        };
        let hist = self.new_expr(ExprKind::Hist { kind, arg }, t.span, below)?;
        let Some(open) = self.accept(Tok::LBracket) else {
            return Ok(hist);
        };
        let below = self.height;
        let keys = self.keys(open, false)?;
        let below = below.max(self.height);
        self.new_expr(ExprKind::Index { base: hist, keys }, t.span, below)
    }

    fn at_call(&mut self, t: Token, syntax: &AtSyntax) -> Parse<Box<Expr>> {
        let without = match syntax.op {
            AtOp::KDeref => Some("kernel_long(address)"),
            AtOp::KRegister => Some("register(\"NAME\")"),
            _ => None,
        };
        if let Some(without) = without
            && !self.is_privileged(t)
        {
            let name = self.text(t);
            let message = format!("`{name}` is not permitted in an unprivileged script; need `-g`");
            let d = Diagnostic::error(codes::NEEDS_GURU, message).at(t.span);
            self.report(d.help(format!("`{without}` and similar functions need no `-g`")));
        }
        let args = self.args()?;
        let mut below = self.height;
        self.check_operands(t, syntax, &args)?;
        let (mut access, mut pretty) = (Vec::new(), Pretty::None);
        if let AtOp::Var | AtOp::Cast = syntax.op {
            (access, pretty) = self.access()?;
            below = below.max(self.height);
        }
        let kind = ExprKind::At {
            op: syntax.op,
            args,
            addr_of: false,
            access,
            pretty,
        };
        self.new_expr(kind, t.span, below)
    }

    #[inline(never)]
    fn check_operands(&mut self, t: Token, syntax: &AtSyntax, args: &[Expr]) -> Parse<()> {
        let most = syntax.operands.len();
        if args.len() > most || args.len() < most - syntax.optional {
            let wanted = match syntax.optional {
                0 => format!("{most} operands, not {}", args.len()),
                n => format!("{} to {most} operands, not {}", most - n, args.len()),
            };
            return Err(self.operand_count(t, &wanted));
        }
        for (a, kind) in args.iter().zip(syntax.operands) {
            let wanted = match (kind, &a.kind) {
                (Operand::Text, ExprKind::Str(s)) if s.is_empty() => "a string that is not empty",
                (Operand::Text, ExprKind::Str(_)) | (Operand::Number, ExprKind::Num(_)) => continue,
                (Operand::Any, _) => continue,
                (Operand::Text, _) => "a string in quotes",
                (Operand::Number, _) => "a number",
            };
            let message = format!("this operand of `{}` must be {wanted}", syntax.name);
            let also = ErrorExtras::default();
            self.report_at(codes::LITERAL_WANTED, a.span, &message, also);
        }
        Ok(())
    }
}
