//! `%( CONDITION %? THEN %: ELSE %)`

use std::cmp::Ordering;

use super::{Preproc, quoted};
use crate::ast::Span;
use crate::codes;
use crate::diag::Diagnostic;
use crate::lexer::{parse_number, unescape};
use crate::token::{Tok, Token};

/// Names that may stand on the left, beside `CONFIG_...`.
const NAMES: &[&str] = &[
    "kernel_v",
    "kernel_vr",
    "systemtap_v",
    "arch",
    "runtime",
    "systemtap_privilege",
    "guru_mode",
];

/// What a side of a comparison is worth.
enum Value {
    /// Compared by version order, or as a pattern with `==` and `!=`.
    Version(String),
    /// Text that a pattern may stand against.
    Pattern(String),
    Text(String),
    Num(i64),
    /// A kernel option that is perhaps not set.
    Config(Option<String>),
}

type Fault = Box<Diagnostic>;

fn malformed(span: Span, wanted: &str) -> Fault {
    let d = Diagnostic::error(codes::BAD_CONDITION, "malformed preprocessor condition");
    let help = "write `%( NAME OPERATOR VALUE %? ... %: ... %)`; there are no parentheses";
    Box::new(d.label(span, format!("{wanted} expected")).help(help))
}

impl Preproc<'_> {
    /// After `%(`: evaluates the condition and goes to the branch taken.
    pub(super) fn conditional(&mut self, open: Token) {
        match self.condition(open) {
            Ok(true) => self.open.push((open.span, false)),
            Ok(false) => {
                if !self.skip(open.span, true) {
                    self.open.push((open.span, true));
                }
            }
            Err(d) => {
                self.diags.push(*d);
                self.skip(open.span, false);
            }
        }
    }

    /// Drops tokens up to the `%)` that closes the conditional opened at `open`; with
    /// `stop_at_else` also to its `%:`. Whether it was closed.
    pub(super) fn skip(&mut self, open: Span, stop_at_else: bool) -> bool {
        let mut depth = 0;
        while let Some(t) = self.raw() {
            match t.kind {
                Tok::PpOpen => depth += 1,
                Tok::PpClose if depth == 0 => return true,
                Tok::PpClose => depth -= 1,
                Tok::PpElse if depth == 0 && stop_at_else => return false,
                _ => {}
            }
        }
        self.unclosed(open);
        true
    }

    /// `C || C && C %?`
    fn condition(&mut self, open: Token) -> Result<bool, Fault> {
        let mut any = false;
        loop {
            let mut all = true;
            let end = loop {
                all &= self.comparison(open)?;
                match self.next() {
                    Some(t) if t.kind == Tok::AndAnd => {}
                    t => break t,
                }
            };
            any |= all;
            match end {
                Some(t) if t.kind == Tok::OrOr => {}
                Some(t) if t.kind == Tok::PpThen => return Ok(any),
                t => {
                    let span = t.map_or(open.span, |t| t.span);
                    return Err(malformed(span, "`&&`, `||` or `%?`"));
                }
            }
        }
    }

    fn comparison(&mut self, open: Token) -> Result<bool, Fault> {
        let left = self.operand(open, true)?;
        let op = match self.next() {
            Some(t)
                if matches!(
                    t.kind,
                    Tok::EqEq | Tok::Ne | Tok::Lt | Tok::Le | Tok::Gt | Tok::Ge
                ) =>
            {
                t
            }
            t => return Err(malformed(t.map_or(open.span, |t| t.span), "a comparison")),
        };
        let right = self.operand(open, false)?;
        compare(left.1, op.kind, right.1).ok_or_else(|| {
            let d = Diagnostic::error(codes::CONDITION_TYPES, "these cannot be compared");
            let d = d
                .label(op.span, "by this")
                .also(left.0, "left")
                .also(right.0, "right");
            Box::new(d.help(
                "versions compare with a version in quotes, strings with strings, numbers with \
                 numbers",
            ))
        })
    }

    fn operand(&mut self, open: Token, is_left: bool) -> Result<(Span, Value), Fault> {
        let Some(t) = self.next() else {
            return Err(malformed(open.span, "a value"));
        };
        let text = self.sources.slice(t.span);
        let value = match t.kind {
            Tok::Num => Value::Num(number(t.span, text)?),
            Tok::Minus => match self.next() {
                Some(n) if n.kind == Tok::Num => {
                    let text = self.sources.slice(n.span);
                    Value::Num(number(n.span, text)?.wrapping_neg())
                }
                n => return Err(malformed(n.map_or(t.span, |n| n.span), "a number")),
            },
            Tok::Str => {
                let (bytes, _) = unescape(text.get(1..text.len() - 1).unwrap_or(""));
                Value::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            Tok::ArgStr => Value::Text(text.to_owned()),
            Tok::Ident => match self.name(text, is_left) {
                Some(v) => v,
                // A word given as an argument is text; a word of the script a mistake.
                None if self.args.contains(t.span.file) => Value::Text(text.to_owned()),
                None => return Err(unknown(t.span, text)),
            },
            Tok::AtIdent => {
                let d = Diagnostic::error(codes::BAD_CONDITION, format!("`{text}` is no macro"));
                return Err(Box::new(d.at(t.span)));
            }
            _ => return Err(malformed(t.span, "a value")),
        };
        Ok((t.span, value))
    }

    fn name(&self, text: &str, is_left: bool) -> Option<Value> {
        let env = self.env;
        let value = match text {
            "kernel_v" => Value::Version(env.kernel_version.clone()),
            "kernel_vr" => Value::Version(env.kernel_release.clone()),
            "systemtap_v" => Value::Version(env.systemtap_version.clone()),
            "arch" => Value::Pattern(env.arch.clone()),
            "runtime" => Value::Pattern(env.runtime.clone()),
            "systemtap_privilege" => Value::Text(env.privilege.name().to_owned()),
            "guru_mode" => Value::Num(env.guru.into()),
            _ if text.starts_with("CONFIG_") => Value::Config(env.config.get(text)),
            _ => return None,
        };
        (is_left || matches!(value, Value::Config(_))).then_some(value)
    }
}

fn number(span: Span, text: &str) -> Result<i64, Fault> {
    parse_number(text).map_err(|why| Box::new(Diagnostic::error(codes::BAD_NUMBER, why).at(span)))
}

fn unknown(span: Span, text: &str) -> Fault {
    let message = format!("`{text}` is not something a condition can ask about");
    let d = Diagnostic::error(codes::UNKNOWN_CONDITION, message).at(span);
    let d = d.did_you_mean(text, NAMES.iter().copied());
    let known = NAMES.join(", ");
    Box::new(d.help(format!(
        "known: {known}, CONFIG_..., {} and numbers",
        quoted("text")
    )))
}

/// `None` where the two cannot be compared.
fn compare(left: Value, op: Tok, right: Value) -> Option<bool> {
    let equality = matches!(op, Tok::EqEq | Tok::Ne);
    let order = match (left, right) {
        (Value::Version(l) | Value::Pattern(l), Value::Text(r))
            if equality && r.contains(['*', '?', '[']) =>
        {
            return Some(glob(r.as_bytes(), l.as_bytes()) == (op == Tok::EqEq));
        }
        (Value::Version(l), Value::Text(r)) => version_order(l.as_bytes(), r.as_bytes()),
        (Value::Text(l) | Value::Pattern(l), Value::Text(r)) => l.cmp(&r),
        (Value::Num(l), Value::Num(r)) => l.cmp(&r),
        (Value::Config(l), Value::Text(r)) => {
            let l = l.unwrap_or_default();
            if equality && r.contains(['*', '?', '[']) {
                return Some(glob(r.as_bytes(), l.as_bytes()) == (op == Tok::EqEq));
            }
            l.cmp(&r)
        }
        (Value::Config(l), Value::Num(r)) => match l.and_then(|l| parse_number(&l).ok()) {
            Some(l) => l.cmp(&r),
            // Not set, or no number: equal to no number, neither less nor greater.
            None => return Some(op == Tok::Ne),
        },
        (Value::Config(l), Value::Config(r)) => l.cmp(&r),
        _ => return None,
    };
    Some(match op {
        Tok::EqEq => order.is_eq(),
        Tok::Ne => order.is_ne(),
        Tok::Lt => order.is_lt(),
        Tok::Le => order.is_le(),
        Tok::Gt => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// The order of version texts: runs of digits by their value, all else by bytes.
fn version_order(mut l: &[u8], mut r: &[u8]) -> Ordering {
    let run = |s: &[u8]| s.iter().take_while(|b| b.is_ascii_digit()).count();
    loop {
        match (l.first(), r.first()) {
            (None, None) => return Ordering::Equal,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(a), Some(b)) if a.is_ascii_digit() && b.is_ascii_digit() => {
                let (a, b) = (l.split_at(run(l)), r.split_at(run(r)));
                let value = |s: &'_ [u8]| s.iter().position(|b| *b != b'0').unwrap_or(s.len());
                let (x, y) = (&a.0[value(a.0)..], &b.0[value(b.0)..]);
                match x.len().cmp(&y.len()).then_with(|| x.cmp(y)) {
                    Ordering::Equal => (l, r) = (a.1, b.1),
                    other => return other,
                }
            }
            (Some(a), Some(b)) if a == b => (l, r) = (&l[1..], &r[1..]),
            (Some(a), Some(b)) => return a.cmp(b),
        }
    }
}

/// `*`, `?` and `[...]` as file names have them.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            None if t == text.len() => return true,
            Some(_) if t < text.len() => match_one(&pattern[p..], text[t]),
            _ => None,
        };
        match (step, &mut star) {
            (Some(used), _) => (p, t) = (p + used, t + 1),
            (None, Some((after, from))) if *from < text.len() => {
                *from += 1;
                (p, t) = (*after, *from);
            }
            _ => return false,
        }
    }
}

/// Matches one byte against the head of a pattern; how much of the pattern that used.
fn match_one(pattern: &[u8], b: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', set @ ..] => {
            let close = set.iter().skip(1).position(|c| *c == b']').map(|i| i + 1);
            let Some(close) = close else {
                return (b == b'[').then_some(1);
            };
            let negated = matches!(set[0], b'!' | b'^');
            let mut members = &set[usize::from(negated)..close];
            let mut found = false;
            while let [first, rest @ ..] = members {
                match rest {
                    [b'-', last, more @ ..] => {
                        found |= (*first..=*last).contains(&b);
                        members = more;
                    }
                    _ => {
                        found |= *first == b;
                        members = rest;
                    }
                }
            }
            (found != negated).then_some(close + 2)
        }
        [c, ..] => (*c == b).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let less = |a: &str, b: &str| version_order(a.as_bytes(), b.as_bytes()).is_lt();
        assert!(less("2.6.9", "2.6.24"));
        assert!(less("2.6.24", "6.1.0"));
        assert!(less("5.6", "5.6.1"));
        assert!(!less("6.12.0", "6.9"));
        assert_eq!(version_order(b"1.02", b"1.2"), Ordering::Equal);
    }

    #[test]
    fn patterns() {
        let m = |p: &str, t: &str| glob(p.as_bytes(), t.as_bytes());
        assert!(m("2.6.*", "2.6.18"));
        assert!(!m("2.6.*", "2.7"));
        assert!(m("*[0-9]?x", "ab5cx"));
        assert!(m("*a*b*", "xxaxxbxx") && !m("*a*b", "xxaxxbxx"));
        assert!(m("[!a]", "b") && !m("[!a]", "a") && m("[", "["));
    }
}
