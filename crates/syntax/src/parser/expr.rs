//! Expressions, by precedence climbing: one loop for all levels, and one recursion for each
//! parenthesis.

use super::precedence::Operand;
use super::{ErrorExtras, MAX_NESTING, Parse, Parser, labels};
use crate::ast::*;
use crate::codes;
use crate::diag::Diagnostic;
use crate::token::{Tok, Token};

/// Precedence levels, low to high; the pretty-printer uses them too.
pub(crate) mod level {
    /// `= <<< += ...`, right-associative.
    pub(crate) const ASSIGN: u8 = 1;
    /// `?:`
    pub(crate) const TERNARY: u8 = 2;
    /// `in`
    pub(crate) const IN: u8 = 8;
    /// Comparisons, `=~`, `!~`.
    pub(crate) const COMPARE: u8 = 9;
    /// `+ - ! ~` before an operand.
    pub(crate) const UNARY: u8 = 14;
    /// `++`, `--`
    pub(crate) const CREMENT: u8 = 15;
    /// `&`, `->`, `[]` and closed expressions.
    pub(crate) const VALUE: u8 = 16;
}

/// Left-associative binary operators and their levels.
pub(crate) const BINARY: &[(Tok, BinOp, u8)] = &[
    (Tok::OrOr, BinOp::LogOr, 3),
    (Tok::AndAnd, BinOp::LogAnd, 4),
    (Tok::Pipe, BinOp::Or, 5),
    (Tok::Caret, BinOp::Xor, 6),
    (Tok::Amp, BinOp::And, 7),
    (Tok::Lt, BinOp::Lt, level::COMPARE),
    (Tok::Le, BinOp::Le, level::COMPARE),
    (Tok::Gt, BinOp::Gt, level::COMPARE),
    (Tok::Ge, BinOp::Ge, level::COMPARE),
    (Tok::EqEq, BinOp::Eq, level::COMPARE),
    (Tok::Ne, BinOp::Ne, level::COMPARE),
    (Tok::Shl, BinOp::Shl, 10),
    (Tok::Shr, BinOp::Shr, 10),
    (Tok::UShr, BinOp::UShr, 10),
    (Tok::Dot, BinOp::Concat, 11),
    (Tok::Plus, BinOp::Add, 12),
    (Tok::Minus, BinOp::Sub, 12),
    (Tok::Star, BinOp::Mul, 13),
    (Tok::Slash, BinOp::Div, 13),
    (Tok::Percent, BinOp::Mod, 13),
];

/// Assignment operators except `=` and `<<<`.
pub(crate) const ASSIGN: &[(Tok, BinOp)] = &[
    (Tok::AddAssign, BinOp::Add),
    (Tok::SubAssign, BinOp::Sub),
    (Tok::MulAssign, BinOp::Mul),
    (Tok::DivAssign, BinOp::Div),
    (Tok::ModAssign, BinOp::Mod),
    (Tok::ShlAssign, BinOp::Shl),
    (Tok::ShrAssign, BinOp::Shr),
    (Tok::AndAssign, BinOp::And),
    (Tok::XorAssign, BinOp::Xor),
    (Tok::OrAssign, BinOp::Or),
    (Tok::ConcatAssign, BinOp::Concat),
];

/// The unary operators.
pub(crate) const UNARY: &[(Tok, UnOp)] = &[
    (Tok::Minus, UnOp::Neg),
    (Tok::Bang, UnOp::Not),
    (Tok::Tilde, UnOp::BitNot),
    (Tok::Plus, UnOp::Plus),
];

/// A print call with these properties, as letters: it prints by a format (`f`), has a delimiter (`d`), ends in a
/// newline (`n`), prints a character (`c`), or gives the text as its value (`s`).
const fn print(letters: &[u8]) -> PrintOp {
    let (mut op, mut i) = (PLAIN, 0);
    while i < letters.len() {
        match letters[i] {
            b'f' => op.format = true,
            b'd' => op.delim = true,
            b'n' => op.newline = true,
            b'c' => op.char = true,
            _ => op.to_string = true,
        }
        i += 1;
    }
    op
}

const PLAIN: PrintOp = PrintOp {
    to_string: false,
    format: false,
    delim: false,
    newline: false,
    char: false,
};

/// The print family.
pub(crate) const PRINT: &[(&str, PrintOp)] = &[
    ("print", PLAIN),
    ("println", print(b"n")),
    ("printd", print(b"d")),
    ("printdln", print(b"dn")),
    ("printf", print(b"f")),
    ("print_char", print(b"c")),
    ("sprint", print(b"s")),
    ("sprintln", print(b"sn")),
    ("sprintd", print(b"sd")),
    ("sprintdln", print(b"sdn")),
    ("sprintf", print(b"sf")),
];

pub(super) fn print_op(name: &str) -> Option<PrintOp> {
    PRINT.iter().find(|(n, _)| *n == name).map(|(_, op)| *op)
}

/// For each token its position in [`BINARY`] and in [`ASSIGN`], from 1; 0 for none.
static LOCATIONS: [(u8, u8); 128] = {
    let mut table = [(0, 0); 128];
    let mut i = 0;
    while i < BINARY.len() {
        table[BINARY[i].0 as usize].0 = spile_cast::u8_of(i) + 1;
        i += 1;
    }
    let mut i = 0;
    while i < ASSIGN.len() {
        table[ASSIGN[i].0 as usize].1 = spile_cast::u8_of(i) + 1;
        i += 1;
    }
    table
};

fn binary(kind: Tok) -> Option<(BinOp, u8)> {
    let location = (LOCATIONS[kind as usize].0 as usize).checked_sub(1)?;
    Some((BINARY[location].1, BINARY[location].2))
}

fn assign_op(kind: Tok) -> Option<BinOp> {
    let location = (LOCATIONS[kind as usize].1 as usize).checked_sub(1)?;
    Some(ASSIGN[location].1)
}

/// Whether the expression can be on the left of `=`.
pub(crate) fn is_assignable(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Var(_) => true,
        ExprKind::Index { base, .. } => matches!(base.kind, ExprKind::Var(_)),
        ExprKind::Target {
            addr_of, pretty, ..
        }
        | ExprKind::Arrow {
            addr_of, pretty, ..
        } => !addr_of && *pretty == Pretty::None,
        ExprKind::At {
            op,
            addr_of,
            pretty,
            ..
        } => {
            use AtOp::*;
            matches!(op, Var | Cast | KRegister | KDeref | URegister | UDeref)
                && !addr_of
                && *pretty == Pretty::None
        }
        _ => false,
    }
}

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Parse<Expr> {
        self.nested(|p| p.climb(level::ASSIGN)).map(|e| *e)
    }

    pub(super) fn boxed_expr(&mut self) -> Parse<Box<Expr>> {
        self.right(level::ASSIGN)
    }

    /// An expression in which `*` can be an index of the outermost array.
    pub(super) fn starred_expr(&mut self) -> Parse<Expr> {
        let slice = self.at(Tok::Ident) && self.nth(1) == Tok::LBracket;
        if !slice {
            return self.expr();
        }
        let name = self.bump();
        let open = self.bump();
        let base = self.variable(name);
        let keys = self.nested(|p| p.keys(open, true))?;
        let kind = ExprKind::Index { base, keys };
        Ok(Expr {
            kind,
            span: self.since(name.span),
        })
    }

    pub(super) fn new_expr(&mut self, kind: ExprKind, start: Span, below: u32) -> Parse<Box<Expr>> {
        if below >= MAX_NESTING {
            return self.too_deep();
        }
        self.height = below + 1;
        Ok(Box::new(Expr {
            kind,
            span: self.since(start),
        }))
    }

    /// An expression of operators that bind at least as tightly as `min`.
    fn climb(&mut self, min: u8) -> Parse<Box<Expr>> {
        let start = self.token().span;
        let mut left = self.unary()?;
        loop {
            let t = self.token();
            left = match (binary(t.kind), t.kind) {
                (Some((op, level)), _) if level >= min => {
                    self.binary_rest(left, start, op, level)?
                }
                (_, Tok::Match | Tok::NoMatch) if level::COMPARE >= min => {
                    self.regex(left, start)?
                }
                (_, Tok::KwIn) if level::IN >= min => self.in_rest(*left, start)?,
                (_, Tok::Question) if level::TERNARY >= min => self.ternary_rest(left, start)?,
                (None, _) if level::ASSIGN >= min => return self.assignment(left, start),
                _ => return Ok(left),
            };
        }
    }

    fn binary_rest(
        &mut self,
        left: Box<Expr>,
        start: Span,
        op: BinOp,
        level: u8,
    ) -> Parse<Box<Expr>> {
        let height = self.height;
        let first = Operand::new(&left, self.top);
        let operator = self.bump();
        let right = self.right(level + 1)?;
        let second = Operand::new(&right, self.top);
        self.precedence(&first, operator, Some(&second));
        self.top = Some(operator);
        let below = height.max(self.height);
        self.new_expr(ExprKind::Binary(op, left, right), start, below)
    }

    fn in_rest(&mut self, left: Expr, start: Span) -> Parse<Box<Expr>> {
        let below = self.height;
        let first = Operand::new(&left, self.top);
        let operator = self.bump();
        self.precedence(&first, operator, None);
        self.top = Some(operator);
        self.members(vec![Key::Expr(left)], start, below)
    }

    /// What `keys in` is followed by. `i in @hist_log(a)` means `@hist_log(a)[i]`: its bucket is not empty.
    fn members(&mut self, keys: Vec<Key>, start: Span, below: u32) -> Parse<Box<Expr>> {
        if !self.at(Tok::AtIdent) {
            let array = self.ident("the name of an array or a histogram")?;
            return self.new_expr(ExprKind::In { keys, array }, start, below);
        }
        let base = self.nested(Self::value)?;
        let ExprKind::Hist { .. } = base.kind else {
            let d = Diagnostic::error(codes::UNEXPECTED, "`in` needs an array or a histogram");
            return self.fail(d.at(base.span));
        };
        let below = below.max(self.height);
        self.new_expr(ExprKind::Index { base, keys }, start, below)
    }

    fn ternary_rest(&mut self, cond: Box<Expr>, start: Span) -> Parse<Box<Expr>> {
        let mut below = self.height;
        let operator = self.bump();
        let then = self.right(level::ASSIGN)?;
        below = below.max(self.height);
        self.expect(Tok::Colon)?;
        let els = self.right(level::ASSIGN)?;
        self.top = Some(operator);
        below = below.max(self.height);
        self.new_expr(ExprKind::Ternary(cond, then, els), start, below)
    }

    fn right(&mut self, min: u8) -> Parse<Box<Expr>> {
        self.nested(|p| p.climb(min))
    }

    /// `left OP right` where an assignment operator follows, else `left` itself.
    fn assignment(&mut self, left: Box<Expr>, start: Span) -> Parse<Box<Expr>> {
        let t = self.token();
        let op = assign_op(t.kind);
        if op.is_none() && !matches!(t.kind, Tok::Assign | Tok::StatAdd) {
            return Ok(left);
        }
        let height = self.height;
        if !is_assignable(&left) {
            self.not_assignable(left.span, t);
        }
        self.bump();
        let rhs = self.right(level::ASSIGN)?;
        self.top = Some(t);
        let below = self.height.max(height);
        let kind = match t.kind {
            Tok::StatAdd => ExprKind::StatAdd { lhs: left, rhs },
            _ => ExprKind::Assign { op, lhs: left, rhs },
        };
        self.new_expr(kind, start, below)
    }

    #[inline(never)]
    fn not_assignable(&mut self, left: Span, op: Token) {
        let d = Diagnostic::error(codes::NOT_ASSIGNABLE, "this cannot be assigned to");
        let d = d
            .label(left, "not a variable")
            .also(op.span, "assigned here");
        self.report(if op.kind == Tok::Assign {
            d.help("to compare, write `==`")
        } else {
            d
        });
    }

    /// `=~ "..."`
    fn regex(&mut self, subject: Box<Expr>, start: Span) -> Parse<Box<Expr>> {
        let below = self.height;
        let first = Operand::new(&subject, self.top);
        let op = self.bump();
        self.precedence(&first, op, None);
        self.top = Some(op);
        if !matches!(self.kind(), Tok::Str | Tok::ArgStr) {
            let span = self.token().span;
            let message = "a regular expression must be a string in quotes";
            let also = labels("not a literal", op.span, "the pattern of this");
            return Err(self.report_at(codes::LITERAL_WANTED, span, message, also));
        }
        let (pattern, pattern_span) = self.string()?;
        let negated = op.kind == Tok::NoMatch;
        let kind = ExprKind::Match {
            negated,
            subject,
            pattern,
            pattern_span,
        };
        self.new_expr(kind, start, below)
    }

    fn unary(&mut self) -> Parse<Box<Expr>> {
        let t = self.token();
        if let Some((_, op)) = UNARY.iter().find(|u| u.0 == t.kind) {
            self.bump();
            let operand = self.nested(Self::unary)?;
            self.top = (*op == UnOp::Not).then_some(t);
            let below = self.height;
            return self.new_expr(ExprKind::Unary(*op, operand), t.span, below);
        }
        if let Tok::Inc | Tok::Dec = t.kind {
            self.bump();
            let target = self.nested(Self::value)?;
            self.top = None;
            return self.inc_or_dec(true, t, target, t.span);
        }
        let target = self.value()?;
        self.top = None;
        let op = self.token();
        if matches!(op.kind, Tok::Inc | Tok::Dec) && is_assignable(&target) {
            self.bump();
            let start = target.span;
            return self.inc_or_dec(false, op, target, start);
        }
        Ok(target)
    }

    fn inc_or_dec(
        &mut self,
        prefix: bool,
        op: Token,
        target: Box<Expr>,
        start: Span,
    ) -> Parse<Box<Expr>> {
        if !is_assignable(&target) {
            let message = "`++` and `--` need a variable";
            let also = labels("not a variable", op.span, "this operator");
            self.report_at(codes::NOT_ASSIGNABLE, target.span, message, also);
        }
        let inc = op.kind == Tok::Inc;
        let below = self.height;
        let kind = ExprKind::IncDec {
            prefix,
            inc,
            target,
        };
        self.new_expr(kind, start, below)
    }

    /// `&`, then a closed expression, then `->f`, `[i]`.
    pub(super) fn value(&mut self) -> Parse<Box<Expr>> {
        let amp = self.accept(Tok::Amp);
        let mut e = self.primary()?;
        if self.at(Tok::Arrow) || self.at(Tok::LBracket) || self.at_pretty() {
            e = self.arrow(e, false)?;
        }
        match amp {
            Some(amp) => self.address_of(amp, e),
            None => Ok(e),
        }
    }

    /// `->f[1]` or `$` after any value, or nothing after `&` and a value.
    fn arrow(&mut self, base: Box<Expr>, addr_of: bool) -> Parse<Box<Expr>> {
        let (start, height) = (base.span, self.height);
        let (access, pretty) = self.access()?;
        self.check_autocast(self.since(start));
        let below = height.max(self.height);
        let kind = ExprKind::Arrow {
            base,
            addr_of,
            access,
            pretty,
        };
        self.new_expr(kind, start, below)
    }

    /// Automatic casts came with SystemTap 2.6.
    fn check_autocast(&mut self, span: Span) {
        if !self.autocast {
            let message = "a value has members only with a language version of 2.6 or later";
            let d = Diagnostic::error(codes::NEEDS_VERSION, message).at(span);
            self.report(d.help("name the type by `@cast`, or leave out `--compatible`"));
        }
    }

    fn address_of(&mut self, amp: Token, mut e: Box<Expr>) -> Parse<Box<Expr>> {
        match &mut e.kind {
            ExprKind::Target { addr_of, .. } | ExprKind::Arrow { addr_of, .. } => *addr_of = true,
            ExprKind::At {
                op: AtOp::Var | AtOp::Cast,
                addr_of,
                ..
            } => *addr_of = true,
            // What has no address is refused when its type is known.
            _ => e = self.arrow(e, true)?,
        }
        e.span = amp.span.to(e.span);
        Ok(e)
    }

    /// Whether `$` or `$$` follows as a word of its own.
    fn at_pretty(&self) -> bool {
        self.at(Tok::Ident) && matches!(self.text(self.token()), "$" | "$$")
    }

    /// `$` or `$$` as a word of its own.
    fn opt_pretty(&mut self) -> Pretty {
        if !self.at_pretty() {
            return Pretty::None;
        }
        let t = self.bump();
        match self.text(t) {
            "$" => Pretty::Shallow,
            _ => Pretty::Deep,
        }
    }

    /// `->a[1]->b$$`, possibly empty. The height is that of the highest index.
    pub(super) fn access(&mut self) -> Parse<(Vec<Access>, Pretty)> {
        let mut access = Vec::new();
        let mut pretty = self.opt_pretty();
        let mut height = 0;
        while pretty == Pretty::None {
            if self.accept(Tok::Arrow).is_some() {
                let t = self.token();
                if t.kind != Tok::Ident && !t.kind.is_keyword() {
                    return self.unexpected("the name of a member");
                }
                self.bump();
                let (name, p) = split_pretty(self.text(t));
                if name.is_empty() {
                    return self.unexpected("the name of a member");
                }
                pretty = p;
                access.push(Access::Member(Ident {
                    name: name.into(),
                    span: t.span,
                }));
            } else if self.at(Tok::LBracket) {
                let open = self.bump();
                access.push(Access::Index(self.expr()?));
                height = height.max(self.height);
                self.expect_close(Tok::RBracket, open)?;
            } else {
                break;
            }
            if pretty == Pretty::None {
                pretty = self.opt_pretty();
            }
        }
        self.height = height;
        Ok((access, pretty))
    }

    pub(super) fn variable(&mut self, t: Token) -> Box<Expr> {
        self.height = 1;
        Box::new(Expr {
            kind: ExprKind::Var(self.name(t)),
            span: t.span,
        })
    }

    fn primary(&mut self) -> Parse<Box<Expr>> {
        let t = self.token();
        match t.kind {
            Tok::Num => {
                self.bump();
                let n = self.num_value(t);
                self.new_expr(ExprKind::Num(n), t.span, 0)
            }
            Tok::Str | Tok::ArgStr => {
                let (s, _) = self.string()?;
                self.new_expr(ExprKind::Str(s), t.span, 0)
            }
            Tok::LParen => {
                self.bump();
                let mut e = self.right(level::ASSIGN)?;
                self.expect_close(Tok::RParen, t)?;
                e.span = self.since(t.span);
                Ok(e)
            }
            Tok::LBracket => self.bracketed_in(),
            Tok::AtIdent => self.at_operator(),
            Tok::Embedded => {
                let kind = ExprKind::Embedded(self.embedded());
                self.new_expr(kind, t.span, 0)
            }
            Tok::Ident if self.text(t).starts_with('$') => self.target(t),
            Tok::Ident => self.named(t),
            _ => self.unexpected("an expression"),
        }
    }

    /// `[k, *] in a`
    fn bracketed_in(&mut self) -> Parse<Box<Expr>> {
        let open = self.bump();
        let keys = self.keys(open, true)?;
        let below = self.height;
        if !self.at(Tok::KwIn) {
            return self.unexpected("`in`");
        }
        self.bump();
        self.members(keys, open.span, below)
    }

    /// The keys up to `]`; the height is that of the highest.
    pub(super) fn keys(&mut self, open: Token, stars: bool) -> Parse<Vec<Key>> {
        let mut keys = Vec::new();
        let mut height = 0;
        self.comma_list(|p| {
            let next = p.nth(1);
            if p.at(Tok::Star) && matches!(next, Tok::Comma | Tok::RBracket) {
                let t = p.token();
                if !stars {
                    let message = "`*` stands for any key only in `in`, `delete` and `foreach`";
                    p.report_at(codes::STRAY_STAR, t.span, message, ErrorExtras::default());
                }
                p.bump();
                keys.push(Key::Any(t.span));
            } else {
                keys.push(Key::Expr(p.expr()?));
                height = height.max(p.height);
            }
            Ok(())
        })?;
        self.expect_close(Tok::RBracket, open)?;
        self.height = height;
        Ok(keys)
    }

    /// `( a, b )`; the height is that of the highest.
    pub(super) fn args(&mut self) -> Parse<Vec<Expr>> {
        let open = self.expect(Tok::LParen)?;
        let mut args = Vec::new();
        let mut height = 0;
        while !self.at(Tok::RParen) {
            args.push(self.expr()?);
            height = height.max(self.height);
            if self.accept(Tok::Comma).is_none() {
                break;
            }
        }
        self.expect_close(Tok::RParen, open)?;
        self.height = height;
        Ok(args)
    }

    /// A variable, an array element, a call or a print.
    fn named(&mut self, t: Token) -> Parse<Box<Expr>> {
        self.bump();
        if let Some(op) = print_op(self.text(t)) {
            return self.print(t, op);
        }
        match self.kind() {
            Tok::LParen => {
                let args = self.args()?;
                let below = self.height;
                let name = self.ident_of(t);
                self.new_expr(ExprKind::Call { name, args }, t.span, below)
            }
            Tok::LBracket => {
                let open = self.bump();
                let keys = self.keys(open, false)?;
                let below = self.height;
                let base = self.variable(t);
                self.new_expr(ExprKind::Index { base, keys }, t.span, below)
            }
            _ => Ok(self.variable(t)),
        }
    }

    /// `print(...)`, and `print @hist_log(x)` without parentheses.
    fn print(&mut self, t: Token, op: PrintOp) -> Parse<Box<Expr>> {
        let args = if self.at(Tok::AtIdent) {
            vec![*self.nested(Self::value)?]
        } else {
            self.args()?
        };
        let below = self.height;
        self.check_print(t, op, &args);
        self.new_expr(ExprKind::Print { op, args }, t.span, below)
    }

    fn check_print(&mut self, t: Token, op: PrintOp, args: &[Expr]) {
        let name = self.text(t).to_owned();
        let what = if op.format { "format" } else { "delimiter" };
        let literal = op.format || op.delim;
        match args.first() {
            Some(a) if literal && !matches!(a.kind, ExprKind::Str(_)) => {
                let message = format!("the {what} of `{name}` must be a string literal");
                self.report(Diagnostic::error(codes::LITERAL_WANTED, message).at(a.span));
            }
            None if literal => {
                let message = format!("`{name}` needs a {what}");
                self.report(Diagnostic::error(codes::OPERAND_COUNT, message).at(t.span));
            }
            Some(_) if op.delim && args.len() < 3 => {
                let message = format!("`{name}` needs two values, which the delimiter separates");
                let d = Diagnostic::error(codes::OPERAND_COUNT, message).at(t.span);
                self.report(d.help("`print` and `println` print one value"));
            }
            _ if op.char && args.len() != 1 => {
                let message = format!("`{name}` takes one byte");
                self.report(Diagnostic::error(codes::OPERAND_COUNT, message).at(t.span));
            }
            _ => {}
        }
    }

    /// `$x->a[1]$`
    fn target(&mut self, t: Token) -> Parse<Box<Expr>> {
        let (name, mut pretty) = split_target(self.text(t));
        let bare = name.trim_start_matches('$');
        if bare.is_empty() || name.len() > bare.len() + 2 {
            return self.unexpected("the name of a target variable");
        }
        let name = name.into();
        self.bump();
        let mut access = Vec::new();
        self.height = 0;
        if pretty == Pretty::None {
            (access, pretty) = self.access()?;
        }
        let below = self.height;
        let kind = ExprKind::Target {
            name,
            addr_of: false,
            access,
            pretty,
        };
        self.new_expr(kind, t.span, below)
    }
}

/// Cuts the `$` or `$$` off the end of a member's name.
fn split_pretty(text: &str) -> (&str, Pretty) {
    if let Some(name) = text.strip_suffix("$$") {
        (name, Pretty::Deep)
    } else if let Some(name) = text.strip_suffix('$') {
        (name, Pretty::Shallow)
    } else {
        (text, Pretty::None)
    }
}

/// Cuts the `$` or `$$` off the end of a target variable, whose name begins with `$` or `$$`.
fn split_target(text: &str) -> (&str, Pretty) {
    let sigils = text.len() - text.trim_start_matches('$').len();
    let (rest, pretty) = split_pretty(&text[sigils..]);
    (&text[..sigils + rest.len()], pretty)
}
