//! The meaning of names, and the locations of their definitions.

use std::sync::Arc;

use spile_sema::ctype::CTy;
use spile_sema::families::{ComponentName, FAMILIES, Family};
use spile_syntax::ast::{FileId, Function, ProbePoint, Span};
use spile_syntax::token::Tok;

use crate::analysis::{Analysis, Variable};
use crate::cursor::{ItemTokens, parse_points, structure};
use crate::docs::{self, Doc};
use crate::workspace::Workspace;

/// The meaning of a token.
pub(crate) enum Meaning {
    /// The bodies of a function.
    Function(Vec<(FileId, Arc<Function>)>),
    /// A global variable.
    Global(Variable),
    /// A local variable or a parameter.
    Local(Variable),
    /// A variable of the probe point, `$x` or a plain one, with its type.
    Context(String, String),
    /// A member of a structure, with the structure's type.
    Member(String, CTy),
    /// A macro, and the location of its `@define`.
    Macro(String, Span),
    /// A probe point as written.
    Point(String),
    /// A word of the language, with its documentation.
    Word(&'static Doc),
    /// An argument of the command line.
    Argument(String),
}

/// The meaning of token `i`.
pub(crate) fn meaning(a: &Analysis, workspace: &Workspace, i: usize) -> Option<Meaning> {
    let word = a.word(i);
    let around = a.item_around(i);
    if i >= 2 && a.kind(i - 1) == Tok::Arrow {
        return Some(Meaning::Member(
            word.to_owned(),
            a.ctype_before(workspace, i - 2)?,
        ));
    }
    if matches!(a.kind(i), Tok::Arg | Tok::ArgQuoted) {
        return Some(Meaning::Argument(word.get(1..)?.to_owned()));
    }
    if let Some(text) = around.and_then(|r| point_at(a, r, i)) {
        return Some(Meaning::Point(text));
    }
    match a.kind(i) {
        Tok::AtIdent => at_word(a, workspace, word),
        Tok::Ident if word.starts_with('$') => {
            if let Some(doc) = docs::find(word) {
                return Some(Meaning::Word(doc));
            }
            let name = word.trim_end_matches('$').strip_prefix('$')?;
            let points = a.points(workspace, around?);
            let target = points
                .iter()
                .flat_map(|p| &p.targets)
                .find(|t| t.0 == name)?;
            Some(Meaning::Context(format!("${name}"), target.1.clone()))
        }
        Tok::Ident => name(a, workspace, i, around),
        kind if kind.is_keyword() => docs::find(word).map(Meaning::Word),
        _ => None,
    }
}

fn at_word(a: &Analysis, workspace: &Workspace, word: &str) -> Option<Meaning> {
    let name = word.get(1..)?;
    let defined_here = a
        .tokens
        .windows(2)
        .find(|w| a.slice(&w[0]) == "@define" && a.slice(&w[1]) == name);
    let library = workspace.macros.get(name).map(|m| m.span);
    match defined_here.map(|w| w[0].span).or(library) {
        Some(span) => Some(Meaning::Macro(word.to_owned(), span)),
        None => docs::find(word).map(Meaning::Word),
    }
}

/// A plain name: a function if it is called, otherwise the nearest variable.
fn name(
    a: &Analysis,
    workspace: &Workspace,
    i: usize,
    around: Option<ItemTokens>,
) -> Option<Meaning> {
    let word = a.word(i);
    let called = a.kind(i + 1) == Tok::LParen;
    let functions = || {
        let bodies = a.functions(word);
        (!bodies.is_empty()).then_some(Meaning::Function(bodies))
    };
    let builtin = || docs::find(word).map(Meaning::Word);
    if called && let Some(meaning) = functions().or_else(builtin) {
        return Some(meaning);
    }
    let global = || {
        let (_, g) = a.library.global(word, a.scope)?;
        let typed = a.globals.iter().find(|k| k.span == g.name.span).cloned();
        let (name, span) = (g.name.name.clone(), g.name.span);
        Some(Meaning::Global(typed.unwrap_or(Variable {
            name,
            span,
            ty: String::new(),
        })))
    };
    global()
        .or_else(|| local(a, word, around?).map(Meaning::Local))
        .or_else(|| {
            let points = a.points(workspace, around?);
            let variable = points.iter().flat_map(|p| &p.vars).find(|v| v.0 == word)?;
            Some(Meaning::Context(word.to_owned(), variable.1.to_owned()))
        })
        .or_else(functions)
        .or_else(builtin)
}

fn local(a: &Analysis, word: &str, around: ItemTokens) -> Option<Variable> {
    let start = a.tokens.get(around.keyword)?.span.start as usize;
    let end = a
        .tokens
        .get(around.end)
        .map_or(usize::MAX, |t| t.span.start as usize);
    let mut units = a.units_in(start, end);
    units
        .find_map(|u| u.locals.iter().find(|l| *l.name == *word))
        .cloned()
}

/// The probe point around token `i` in the head of a probe.
fn point_at(a: &Analysis, around: ItemTokens, i: usize) -> Option<String> {
    if !around.is_probe || i <= around.keyword || around.body.is_some_and(|b| i >= b) {
        return None;
    }
    let head = around.keyword + 1..around.body.unwrap_or(around.end);
    let ends = |k: &usize| match a.kind(*k) {
        Tok::Assign | Tok::AddAssign | Tok::Question | Tok::Bang => true,
        // Without commas inside braces.
        Tok::Comma => {
            a.tokens[head.start..*k]
                .iter()
                .fold(0i32, |d, t| match t.kind {
                    Tok::LBrace => d + 1,
                    Tok::RBrace => d - 1,
                    _ => d,
                })
                == 0
        }
        Tok::KwIf => a.kind(k - 1) != Tok::Dot,
        _ => false,
    };
    let first = (head.start..i).rev().find(ends);
    if first.is_some_and(|k| a.kind(k) == Tok::KwIf) {
        return None;
    }
    let first = first.map_or(head.start, |k| k + 1);
    let last = (i..head.end)
        .find(ends)
        .unwrap_or(head.end)
        .checked_sub(1)?;
    let (from, to) = (
        a.tokens.get(first)?.span.start,
        a.tokens.get(last)?.span.end,
    );
    let text = a.text().get(from as usize..to as usize)?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The family that a point belongs to.
pub(crate) fn family(point: &ProbePoint) -> Option<&'static Family> {
    let fits = |f: &&Family| {
        f.comps.len() <= point.components.len()
            && f.comps
                .iter()
                .zip(&point.components)
                .all(|(want, have)| match want.0 {
                    ComponentName::Is(w) => *have.name == *w,
                    ComponentName::Syscall | ComponentName::PerfEvent => true,
                })
    };
    FAMILIES.iter().filter(fits).max_by_key(|f| f.comps.len())
}

/// The alias that a point names, with or without further components.
pub(crate) fn alias(a: &Analysis, point: &ProbePoint) -> Option<(String, FileId, Span)> {
    let names: Vec<&str> = point.components.iter().map(|c| &*c.name).collect();
    (1..=names.len()).rev().find_map(|n| {
        let name = names[..n].join(".");
        let (file, span, _) = a.library.alias_definition(&name)?;
        Some((name, file, span))
    })
}

/// The locations that define the meaning of token `i`.
pub(crate) fn definitions(a: &Analysis, workspace: &Workspace, i: usize) -> Vec<Span> {
    match meaning(a, workspace, i) {
        Some(Meaning::Function(functions)) => functions.iter().map(|(_, f)| f.name.span).collect(),
        Some(Meaning::Global(v) | Meaning::Local(v)) => vec![v.span],
        Some(Meaning::Macro(_, span)) => vec![span],
        Some(Meaning::Point(text)) => {
            let points = parse_points(a, &text);
            let mut spans: Vec<Span> = Vec::new();
            for (_, _, span) in points.iter().filter_map(|p| alias(a, p)) {
                if !spans.contains(&span) {
                    spans.push(span);
                }
            }
            spans
        }
        _ => Vec::new(),
    }
}

/// Whether a type has members, for messages.
pub(crate) fn member_type(workspace: &Workspace, ty: CTy, member: &str) -> Option<CTy> {
    let facts = &*workspace.facts;
    Some(CTy::id(facts.member(structure(facts, ty)?, member)?.ty))
}
