//! The syntactic context of a location in a document. It uses tokens only, so that it works in texts
//! that do not parse, such as texts being written.

use spile_sema::ctype::{CTy, TypeShape, parse_type};
use spile_sema::facts::Facts;
use spile_sema::probe::list::{self, ListedPoint};
use spile_syntax::ast::ProbePoint;
use spile_syntax::diag::Diagnostics;
use spile_syntax::lexer::unescape;
use spile_syntax::parser::parse_probe_points;
use spile_syntax::token::Tok;

use crate::analysis::Analysis;
use crate::workspace::Workspace;

/// Maximum number of points whose variables are looked up.
const MAX_POINTS: usize = 64;
/// Maximum length of a chain of `->`.
const MAX_CHAIN: usize = 64;

/// An item around a location, as tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ItemTokens {
    /// The keyword that begins it.
    pub keyword: usize,
    /// The `{` of its (first) body.
    pub body: Option<usize>,
    /// One past its last token.
    pub end: usize,
    pub is_probe: bool,
}

impl Analysis {
    /// The token at an offset; of two that touch there, the word.
    pub(crate) fn token_at(&self, offset: usize) -> Option<usize> {
        let after = self
            .tokens
            .partition_point(|t| (t.span.end as usize) < offset);
        let covers = |i: &usize| {
            let t = self.tokens.get(*i);
            t.is_some_and(|t| (t.span.start as usize) <= offset && offset <= t.span.end as usize)
        };
        let both = [after, after + 1].into_iter().filter(covers);
        let word = |i: &usize| {
            let kind = self.kind(*i);
            kind.is_keyword()
                || matches!(kind, Tok::Ident | Tok::AtIdent | Tok::Arg | Tok::ArgQuoted)
        };
        both.clone().find(word).or(both.clone().next())
    }

    /// Number of tokens that begin before an offset.
    pub(crate) fn tokens_before(&self, offset: usize) -> usize {
        self.tokens
            .partition_point(|t| (t.span.start as usize) < offset)
    }

    /// Whether a token begins an item with a body.
    fn begins_item(&self, i: usize) -> bool {
        let before = i.checked_sub(1).map_or(Tok::Eof, |b| self.kind(b));
        if matches!(before, Tok::Dot | Tok::Arrow) {
            return false;
        }
        match self.kind(i) {
            Tok::KwProbe | Tok::KwGlobal | Tok::KwPrivate => true,
            // Not the component of a probe point.
            Tok::KwFunction => !matches!(self.kind(i + 1), Tok::LParen | Tok::Dot),
            _ => false,
        }
    }

    /// The probe or function around token number `i` (which may be one past the last).
    pub(crate) fn item_around(&self, i: usize) -> Option<ItemTokens> {
        let last = i.min(self.tokens.len().checked_sub(1)?);
        let keyword = (0..=last).rev().find(|k| self.begins_item(*k))?;
        let is_probe = self.kind(keyword) == Tok::KwProbe;
        if !is_probe && self.kind(keyword) != Tok::KwFunction {
            return None;
        }
        let next = (keyword + 1..self.tokens.len()).find(|k| self.begins_item(*k));
        let end = next.unwrap_or(self.tokens.len());
        Some(ItemTokens {
            keyword,
            body: self.body_of(keyword, end),
            end,
            is_probe,
        })
    }

    /// The `{` that ends the head of an item; those of `syscall.{a,b}` do not.
    fn body_of(&self, keyword: usize, end: usize) -> Option<usize> {
        let mut depth = 0usize;
        for i in keyword + 1..end {
            match self.kind(i) {
                Tok::LBrace if depth > 0 => depth += 1,
                Tok::LBrace => {
                    let group = [
                        Tok::Dot,
                        Tok::KwProbe,
                        Tok::Assign,
                        Tok::AddAssign,
                        Tok::Comma,
                    ];
                    if !group.contains(&self.kind(i - 1)) {
                        return Some(i);
                    }
                    depth = 1;
                }
                Tok::RBrace => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        None
    }

    /// The points of a probe with their variables; for an alias, the points it stands for.
    pub(crate) fn points(&self, workspace: &Workspace, around: ItemTokens) -> Vec<ListedPoint> {
        let Some(body) = around.body.filter(|_| around.is_probe) else {
            return Vec::new();
        };
        let head = around.keyword + 1..body;
        let assign = |i: &usize| matches!(self.kind(*i), Tok::Assign | Tok::AddAssign);
        let first = head
            .clone()
            .rev()
            .find(assign)
            .map_or(head.start, |i| i + 1);
        let (Some(a), Some(b)) = (self.tokens.get(first), self.tokens.get(body)) else {
            return Vec::new();
        };
        let text = self
            .text()
            .get(a.span.start as usize..b.span.start as usize)
            .unwrap_or("");
        points_of(self, workspace, text)
    }

    /// The C type of a value that ends with token `i`, before a `->`.
    pub(crate) fn ctype_before(&self, workspace: &Workspace, i: usize) -> Option<CTy> {
        let (base, steps) = self.chain(i)?;
        let facts = &*workspace.facts;
        let mut ty = self.base_type(workspace, base)?;
        for step in steps {
            ty = match step {
                Some(member) => {
                    let id = structure(facts, ty)?;
                    CTy::id(facts.member(id, &member)?.ty)
                }
                None => {
                    let object = ty.referred(facts);
                    match object.shape(facts) {
                        TypeShape::Ptr(to) => to,
                        TypeShape::Array { elem, .. } => elem,
                        _ if object != ty => object,
                        _ => return None,
                    }
                }
            };
        }
        Some(ty)
    }

    /// Walks back over `->member` and `[index]`: the token that ends the base, and the steps from
    /// it (`None`: an index).
    fn chain(&self, mut i: usize) -> Option<(usize, Vec<Option<String>>)> {
        let mut steps = Vec::new();
        for _ in 0..MAX_CHAIN {
            match self.kind(i) {
                Tok::RBracket => {
                    i = self.opening(i)?.checked_sub(1)?;
                    steps.push(None);
                }
                _ if i >= 2 && self.kind(i - 1) == Tok::Arrow => {
                    steps.push(Some(self.word(i).to_owned()));
                    i -= 2;
                }
                _ => {
                    steps.reverse();
                    return Some((i, steps));
                }
            }
        }
        None
    }

    /// The opening bracket that matches the closing one at `i`.
    fn opening(&self, i: usize) -> Option<usize> {
        let mut depth = 0usize;
        for k in (0..=i).rev() {
            match self.kind(k) {
                Tok::RParen | Tok::RBracket => depth += 1,
                Tok::LParen | Tok::LBracket => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(k);
                    }
                }
                Tok::LBrace | Tok::RBrace => return None,
                _ => {}
            }
        }
        None
    }

    /// The type of `$name`, `@cast(...)`, `@var(...)`, or a macro that is one of these.
    fn base_type(&self, workspace: &Workspace, i: usize) -> Option<CTy> {
        let facts = &*workspace.facts;
        match self.kind(i) {
            Tok::Ident => {
                let name = self.word(i).strip_prefix('$')?;
                let around = self.item_around(i)?;
                let points = self.points(workspace, around);
                let spelled = points
                    .iter()
                    .flat_map(|p| &p.targets)
                    .find(|t| t.0 == name)?;
                parse_type(facts, &spelled.1)
            }
            Tok::RParen => {
                let open = self.opening(i)?;
                let operator = open
                    .checked_sub(1)
                    .filter(|a| self.kind(*a) == Tok::AtIdent)?;
                let mut strings = (open..i)
                    .filter(|k| self.kind(*k) == Tok::Str)
                    .map(|k| string(self.word(k)));
                let pointer = |name: String| parse_type(facts, &name).map(CTy::pointer);
                match self.word(operator) {
                    "@cast" => strings.find_map(pointer),
                    "@var" => Some(CTy::id(facts.variable(&strings.next()?)?.ty)),
                    name => {
                        let m = workspace.macros.get(name.get(1..)?)?;
                        let words = || m.body.iter().map(|t| self.slice(t));
                        words().any(|w| w == "@cast").then_some(())?;
                        let mut strings = words().filter(|w| w.starts_with('"')).map(string);
                        strings.find_map(pointer)
                    }
                }
            }
            _ => None,
        }
    }
}

/// The points that a text resolves to, with their variables.
pub(crate) fn points_of(
    analysis: &Analysis,
    workspace: &Workspace,
    text: &str,
) -> Vec<ListedPoint> {
    let mut points = parse_points(analysis, text);
    points.truncate(MAX_POINTS);
    let (facts, mut unheard) = (&*workspace.facts, Diagnostics::new());
    list::list(&analysis.library, facts, &points, true, &mut unheard)
}

/// The points of a text.
pub(crate) fn parse_points(analysis: &Analysis, text: &str) -> Vec<ProbePoint> {
    let (mut sources, mut unheard) = (analysis.sources.clone(), Diagnostics::new());
    parse_probe_points(&mut sources, "<points>", text, &mut unheard)
}

/// The structure of a type, or of the type that it points to.
pub(crate) fn structure(facts: &dyn Facts, mut ty: CTy) -> Option<spile_sema::facts::CTypeId> {
    for _ in 0..4 {
        match ty.shape(facts) {
            TypeShape::Struct(id, _) => return Some(id),
            TypeShape::Ptr(to) | TypeShape::Ref(to) => ty = to,
            _ => return None,
        }
    }
    None
}

/// The text of a string token.
fn string(token: &str) -> String {
    let inner = token.strip_prefix('"').unwrap_or(token);
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    String::from_utf8_lossy(&unescape(inner).0).into_owned()
}
