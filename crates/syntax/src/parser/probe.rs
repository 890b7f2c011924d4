//! Probe points: `a.b(1).{c, d("x")}.* ? if (cond), ...`

use super::{Parse, Parser};
use crate::ast::*;
use crate::codes;
use crate::diag::Diagnostic;
use crate::token::{Tok, Token};

/// Maximum number of points that the braces of one probe may expand to.
const MAX_POINTS: usize = 10_000;

/// Maximum number of components of a point outside braces.
const MAX_COMPONENTS: usize = 64;

/// One of the alternatives that braces expand to: a point or a part of one.
#[derive(Clone, Default)]
struct Alternative {
    components: Vec<Component>,
    optional: bool,
    sufficient: bool,
}

impl Alternative {
    fn with_tail(&self, tail: &Self) -> Self {
        Self {
            components: [&self.components[..], &tail.components[..]].concat(),
            optional: self.optional || tail.optional,
            sufficient: self.sufficient || tail.sufficient,
        }
    }
}

impl Parser<'_> {
    /// A comma-separated list of points, braces expanded.
    pub(super) fn probe_points(&mut self) -> Parse<Vec<ProbePoint>> {
        let mut points = Vec::new();
        self.comma_list(|p| p.probe_point(&mut points))?;
        Ok(points)
    }

    /// One point with its suffix.
    fn probe_point(&mut self, out: &mut Vec<ProbePoint>) -> Parse<()> {
        let start = self.token().span;
        let alternatives = self.dotted()?;
        let suffix = self.suffix();
        let span = self.since(start);
        let condition = self.after(Tok::KwIf, |p| p.in_parens(Self::expr))?;
        let condition = condition.map(Box::new);
        if let Tok::Question | Tok::Bang = self.kind() {
            let d = Diagnostic::error(codes::BAD_PROBE_POINT, "a suffix too many");
            let d = d.at(self.token().span);
            return self.fail(d.help("`?` or `!` stands before `if (...)`, and only one of them"));
        }
        if out.len() + alternatives.len() > MAX_POINTS {
            return self.too_many(start);
        }
        for a in alternatives {
            let sufficient = a.sufficient || suffix.1;
            let optional = (a.optional || suffix.0) && !sufficient;
            let condition = condition.clone();
            let components = a.components;
            out.push(ProbePoint {
                components,
                optional,
                sufficient,
                condition,
                span,
            });
        }
        Ok(())
    }

    /// `?` or `!`: whether the point is optional, and whether it is sufficient.
    fn suffix(&mut self) -> (bool, bool) {
        let optional = self.accept(Tok::Question).is_some();
        (optional, !optional && self.accept(Tok::Bang).is_some())
    }

    fn too_many<T>(&mut self, span: Span) -> Parse<T> {
        let message = format!("the braces give more than {MAX_POINTS} probe points");
        self.fail(Diagnostic::error(codes::TOO_MANY_POINTS, message).at(span))
    }

    /// Dotted components; each brace group multiplies the alternatives.
    fn dotted(&mut self) -> Parse<Vec<Alternative>> {
        let start = self.token().span;
        let mut alternatives = vec![Alternative::default()];
        for length in 0.. {
            if let Some(open) = self.accept(Tok::LBrace) {
                let group = self.nested(|p| p.brace_group(open))?;
                if alternatives.len().saturating_mul(group.len()) > MAX_POINTS {
                    return self.too_many(start);
                }
                alternatives = alternatives
                    .iter()
                    .flat_map(|h| group.iter().map(|t| h.with_tail(t)))
                    .collect();
            } else {
                let c = self.component()?;
                alternatives
                    .iter_mut()
                    .for_each(|p| p.components.push(c.clone()));
            }
            if self.accept(Tok::Dot).is_none() {
                break;
            }
            if length > MAX_COMPONENTS {
                let message = "a probe point has too many components";
                return self.fail(Diagnostic::error(codes::BAD_PROBE_POINT, message).at(start));
            }
        }
        Ok(alternatives)
    }

    /// `a.b, c?, d!}`
    fn brace_group(&mut self, open: Token) -> Parse<Vec<Alternative>> {
        let mut group = Vec::new();
        self.comma_list(|p| {
            let mut one = p.dotted()?;
            let (optional, sufficient) = p.suffix();
            for a in &mut one {
                a.optional |= optional;
                a.sufficient |= sufficient;
            }
            group.append(&mut one);
            match group.len() > MAX_POINTS {
                true => p.too_many(open.span),
                false => Ok(()),
            }
        })?;
        self.expect_close(Tok::RBrace, open)?;
        Ok(group)
    }

    /// `name(literal)`; the name can be a keyword, and consists of adjacent `*`, names and numbers.
    fn component(&mut self) -> Parse<Component> {
        let start = self.token();
        let piece = |k: Tok| matches!(k, Tok::Ident | Tok::Star | Tok::Num) || k.is_keyword();
        if !piece(start.kind) {
            let message = format!(
                "expected a part of a probe point, found {}",
                self.found(start)
            );
            let d = Diagnostic::error(codes::BAD_PROBE_POINT, message).at(start.span);
            return self.fail(d);
        }
        let mut text = String::new();
        let mut end = start.span;
        while piece(self.kind()) {
            let t = self.token();
            let adjacent = t.span.file == end.file && t.span.start == end.end;
            if !text.is_empty() && !adjacent {
                break;
            }
            text.push_str(self.text(t));
            end = t.span;
            self.bump();
        }
        let arg = match self.accept(Tok::LParen) {
            Some(open) => {
                let arg = self.literal("the argument of a probe point")?;
                self.expect_close(Tok::RParen, open)?;
                Some(arg)
            }
            None => None,
        };
        Ok(Component {
            name: text.into(),
            arg,
            span: self.since(start.span),
        })
    }
}
