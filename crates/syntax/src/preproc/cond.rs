//! `%( CONDITION %? THEN %: ELSE %)`

use spile_glob::is_pattern;

use super::version::version_order;
use super::{Preproc, quoted};
use crate::ast::Span;
use crate::codes;
use crate::diag::{DiagResult, Diagnostic};
use crate::lexer::{parse_number, unescape};
use crate::token::{Tok, Token};

/// The version of the language, which `--compatible` sets.
const SYSTEMTAP_V: &str = "systemtap_v";

/// Names allowed on the left, besides `CONFIG_...`.
const NAMES: &[&str] = &[
    "kernel_v",
    "kernel_vr",
    SYSTEMTAP_V,
    "arch",
    "runtime",
    "systemtap_privilege",
    "guru_mode",
];

/// The value of a side of a comparison.
enum CondValue {
    /// Compared by version order, or as a pattern with `==` and `!=`.
    Version(String),
    /// Text that can be compared with a pattern.
    Pattern(String),
    /// One of a few words, compared for equality only.
    Word(String),
    /// `guru_mode`
    Guru(i64),
    Text(String),
    Num(i64),
    /// A kernel option, which may not be set.
    Config(Option<String>),
}

fn malformed(span: Span, wanted: &str) -> Box<Diagnostic> {
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
    /// `stop_at_else` only up to its `%:` if there is one. Returns whether it was closed.
    pub(super) fn skip(&mut self, open: Span, stop_at_else: bool) -> bool {
        let mut depth = 0;
        while let Some(t) = self.raw() {
            match t.kind {
                Tok::PpOpen => depth += 1,
                Tok::PpClose if depth == 0 => return true,
                Tok::PpClose => depth -= 1,
                Tok::PpElse if depth == 0 && stop_at_else => return false,
                Tok::PpThen if depth == 0 && stop_at_else => {
                    self.diags.push(*malformed(t.span, "`%:` or `%)`"))
                }
                _ => {}
            }
        }
        self.unclosed(open);
        true
    }

    /// `C || C && C %?`
    fn condition(&mut self, open: Token) -> DiagResult<bool> {
        let mut any = false;
        loop {
            let mut holds = true;
            let end = loop {
                holds &= self.comparison(open)?;
                match self.next() {
                    Some(t) if t.kind == Tok::AndAnd => {}
                    t => break t,
                }
            };
            any |= holds;
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

    fn comparison(&mut self, open: Token) -> DiagResult<bool> {
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
        compare(left.1, op.kind, right.1).map_err(|why| why.diagnostic(left.0, op.span, right.0))
    }

    fn operand(&mut self, open: Token, is_left: bool) -> DiagResult<(Span, CondValue)> {
        let Some(t) = self.next() else {
            return Err(malformed(open.span, "a value"));
        };
        let text = self.sources.slice(t.span);
        let value = match t.kind {
            Tok::Num => CondValue::Num(number(t.span, text)?),
            Tok::Minus => match self.next() {
                Some(n) if n.kind == Tok::Num => {
                    let text = self.sources.slice(n.span);
                    CondValue::Num(number(n.span, text)?.wrapping_neg())
                }
                n => return Err(malformed(n.map_or(t.span, |n| n.span), "a number")),
            },
            Tok::Str => {
                let (bytes, _) = unescape(text.get(1..text.len() - 1).unwrap_or(""));
                CondValue::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            Tok::ArgStr => CondValue::Text(text.to_owned()),
            Tok::Ident => match self.name(text, is_left) {
                Some(v) => {
                    if text == SYSTEMTAP_V {
                        self.version_conditions.push(self.out.len());
                    }
                    if let CondValue::Config(_) = v {
                        self.config_unknown(t.span);
                    }
                    v
                }
                // A word given as an argument is text; a word of the script is a mistake.
                None if self.args.contains(t.span.file) => CondValue::Text(text.to_owned()),
                None => return Err(unknown(t.span, text)),
            },
            Tok::AtIdent => {
                let d = Diagnostic::error(codes::BAD_CONDITION, format!("`{text}` is no macro"));
                return d.at(t.span).err();
            }
            _ => return Err(malformed(t.span, "a value")),
        };
        Ok((t.span, value))
    }

    /// Notes once for each file that all options count as not set, if the configuration is unknown.
    fn config_unknown(&mut self, span: Span) {
        if self.config_warned || self.env.config.is_available() {
            return;
        }
        self.config_warned = true;
        let message = "the kernel's configuration cannot be read: no option counts as set";
        let d = Diagnostic::warning(codes::CONFIG_UNKNOWN, message).at(span);
        self.diags.push(d.help(
            "spile looks for it in /proc/config.gz, /boot/config-RELEASE and /lib/modules/RELEASE/config",
        ));
    }

    fn name(&self, text: &str, is_left: bool) -> Option<CondValue> {
        let env = self.env;
        let value = match text {
            "kernel_v" => CondValue::Version(env.kernel_version.clone()),
            "kernel_vr" => CondValue::Version(env.kernel_release.clone()),
            SYSTEMTAP_V => CondValue::Version(env.systemtap_version.clone()),
            "arch" => CondValue::Pattern(env.arch.clone()),
            "runtime" => CondValue::Pattern(env.runtime.clone()),
            "systemtap_privilege" => CondValue::Word(env.privilege.name().to_owned()),
            "guru_mode" => CondValue::Guru(env.guru.into()),
            _ if text.starts_with("CONFIG_") => CondValue::Config(env.config.get(text)),
            _ => return None,
        };
        (is_left || matches!(value, CondValue::Config(_))).then_some(value)
    }
}

fn number(span: Span, text: &str) -> DiagResult<i64> {
    parse_number(text).map_err(|why| Box::new(Diagnostic::error(codes::BAD_NUMBER, why).at(span)))
}

fn unknown(span: Span, text: &str) -> Box<Diagnostic> {
    let message = format!("a condition cannot test `{text}`");
    let d = Diagnostic::error(codes::UNKNOWN_CONDITION, message).at(span);
    let d = d.did_you_mean(text, NAMES.iter().copied());
    let names = NAMES.join(", ");
    Box::new(d.help(format!(
        "known: {names}, CONFIG_..., {} and numbers",
        quoted("text")
    )))
}

/// The reason why a comparison is impossible.
enum CompareRefusal {
    /// The two sides are of different kinds.
    Kinds,
    /// It has no order: only `==` and `!=` are possible.
    Order,
    /// A pattern has no order.
    PatternOrder,
    /// `guru_mode` is 0 or 1.
    Guru,
    /// The kernel option's value is not a number.
    ConfigNumber,
}

impl CompareRefusal {
    fn diagnostic(self, left: Span, op: Span, right: Span) -> Box<Diagnostic> {
        let (message, span, label, help) = match self {
            CompareRefusal::Kinds => {
                let d = Diagnostic::error(codes::CONDITION_TYPES, "these cannot be compared");
                let d = d
                    .label(op, "by this")
                    .also(left, "left")
                    .also(right, "right");
                return Box::new(d.help(
                    "versions compare with a version in quotes, strings with strings, numbers \
                     with numbers",
                ));
            }
            CompareRefusal::Order => (
                "this has no order",
                op,
                "`==` or `!=` expected",
                "only versions, strings, numbers and numeric CONFIG_... options have an order",
            ),
            CompareRefusal::PatternOrder => (
                "a pattern has no order",
                right,
                "a pattern because of `*`, `?` or `[`",
                "compare with `==` or `!=`, or with a whole version",
            ),
            CompareRefusal::Guru => (
                "`guru_mode` is 0 or 1",
                right,
                "neither 0 nor 1",
                "write `guru_mode == 1`",
            ),
            CompareRefusal::ConfigNumber => (
                "the value of this kernel option is not a number",
                left,
                "not a number",
                "compare it with a string: `CONFIG_... == \"y\"`",
            ),
        };
        let d = Diagnostic::error(codes::CONDITION_TYPES, message).label(span, label);
        Box::new(d.help(help))
    }
}

/// The numeric value of a kernel option; an option that is not set counts as 0.
fn config_number(value: Option<&str>) -> Option<i64> {
    match value {
        None | Some("") => Some(0),
        Some(v) => match v.strip_prefix('-') {
            Some(v) => parse_number(v).ok().map(i64::wrapping_neg),
            None => parse_number(v).ok(),
        },
    }
}

fn compare(left: CondValue, op: Tok, right: CondValue) -> Result<bool, CompareRefusal> {
    let equality = matches!(op, Tok::EqEq | Tok::Ne);
    let matched = |pattern: &str, text: &str| {
        let hit = glob(pattern, text);
        equality
            .then_some(hit == (op == Tok::EqEq))
            .ok_or(CompareRefusal::Order)
    };
    let order = match (left, right) {
        (CondValue::Version(l), CondValue::Text(r)) if is_pattern(&r) => {
            return matched(&r, &l).map_err(|_| CompareRefusal::PatternOrder);
        }
        (CondValue::Version(l), CondValue::Text(r)) => version_order(l.as_bytes(), r.as_bytes()),
        (CondValue::Pattern(l), CondValue::Text(r)) => return matched(&r, &l),
        (CondValue::Config(l), CondValue::Text(r)) => return matched(&r, &l.unwrap_or_default()),
        (CondValue::Word(_), CondValue::Text(_)) | (CondValue::Guru(_), CondValue::Num(_))
            if !equality =>
        {
            return Err(CompareRefusal::Order);
        }
        (CondValue::Word(l) | CondValue::Text(l), CondValue::Text(r)) => l.cmp(&r),
        (CondValue::Guru(_), CondValue::Num(r)) if !matches!(r, 0 | 1) => {
            return Err(CompareRefusal::Guru);
        }
        (CondValue::Guru(l) | CondValue::Num(l), CondValue::Num(r)) => l.cmp(&r),
        (CondValue::Config(l), CondValue::Num(r)) => match config_number(l.as_deref()) {
            Some(l) => l.cmp(&r),
            None => return Err(CompareRefusal::ConfigNumber),
        },
        (CondValue::Config(l), CondValue::Config(r)) => {
            // As numbers if both are, otherwise as texts.
            match (config_number(l.as_deref()), config_number(r.as_deref())) {
                (Some(l), Some(r)) => l.cmp(&r),
                _ => l.unwrap_or_default().cmp(&r.unwrap_or_default()),
            }
        }
        _ => return Err(CompareRefusal::Kinds),
    };
    Ok(match op {
        Tok::EqEq => order.is_eq(),
        Tok::Ne => order.is_ne(),
        Tok::Lt => order.is_lt(),
        Tok::Le => order.is_le(),
        Tok::Gt => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// Whether a text matches a pattern. A `\` stands for itself.
fn glob(pattern: &str, text: &str) -> bool {
    spile_glob::matches(&pattern.replace('\\', r"\\"), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_conditions_match() {
        let m = glob;
        assert!(m("2.6.*", "2.6.18"));
        assert!(!m("2.6.*", "2.7"));
        assert!(m("*[0-9]?x", "ab5cx"));
        assert!(m("*a*b*", "xxaxxbxx") && !m("*a*b", "xxaxxbxx"));
        assert!(m("[!a]", "b") && !m("[!a]", "a") && m("[", "["));
        assert!(m("a\\*", "a\\b") && m("[\\]b", "\\b") && !m("\\*", "*"));
    }
}
