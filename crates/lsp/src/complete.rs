//! Completions at a location in a document.

use std::collections::BTreeMap;

use lsp_types::{
    CompletionItem, CompletionItemKind, CompletionTextEdit, Documentation, MarkupContent,
    MarkupKind, TextEdit,
};
use spile_sema::ctype::CTy;
use spile_sema::families::FAMILIES;
use spile_sema::probe::list;
use spile_syntax::ast::TypeName;
use spile_syntax::parser::doc_comment;
use spile_syntax::pretty;
use spile_syntax::token::Tok;

use crate::analysis::Analysis;
use crate::cursor::{ItemTokens, structure};
use crate::docs::{self, Doc};
use crate::text::DocText;
use crate::workspace::Workspace;

/// A proposal: the text, its kind, and a description.
struct Proposal {
    text: String,
    /// Shown instead of the text.
    label: Option<String>,
    kind: CompletionItemKind,
    detail: String,
    doc: String,
}

impl Proposal {
    fn new(
        text: impl Into<String>,
        kind: CompletionItemKind,
        detail: impl Into<String>,
    ) -> Proposal {
        Proposal {
            text: text.into(),
            label: None,
            kind,
            detail: detail.into(),
            doc: String::new(),
        }
    }

    fn word(d: &Doc, kind: CompletionItemKind) -> Proposal {
        Proposal {
            doc: d.doc.into(),
            ..Proposal::new(d.word, kind, d.usage)
        }
    }
}

/// The proposals at an offset; the range that they replace begins at the start of the word there.
pub(crate) fn complete(
    a: &Analysis,
    workspace: &Workspace,
    text: &DocText,
    offset: usize,
) -> Vec<CompletionItem> {
    let (start, proposals) = proposals(a, workspace, offset);
    let typed = text.as_str().get(start..offset).unwrap_or("");
    let range = text.range(start, offset);
    let fits = |p: &Proposal| p.text.starts_with(typed);
    proposals
        .into_iter()
        .filter(fits)
        .map(|p| item(p, range))
        .collect()
}

fn item(p: Proposal, range: lsp_types::Range) -> CompletionItem {
    let doc = (!p.doc.is_empty()).then_some(MarkupContent {
        kind: MarkupKind::Markdown,
        value: p.doc,
    });
    CompletionItem {
        label: p.label.unwrap_or_else(|| p.text.clone()),
        filter_text: Some(p.text.clone()),
        kind: Some(p.kind),
        detail: (!p.detail.is_empty()).then_some(p.detail),
        documentation: doc.map(Documentation::MarkupContent),
        text_edit: Some(CompletionTextEdit::Edit(TextEdit {
            range,
            new_text: p.text,
        })),
        ..CompletionItem::default()
    }
}

/// The proposals, and the start of the range that they replace.
fn proposals(a: &Analysis, workspace: &Workspace, offset: usize) -> (usize, Vec<Proposal>) {
    let text = a.text();
    let before = text.get(..offset).unwrap_or("");
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let word = before.trim_end_matches(part).len();
    let sigil = before[..word].trim_end_matches(['$', '@']).len();
    let count = a.tokens_before(offset);
    let last = count.checked_sub(1);
    if in_comment(a, before, last) {
        return (offset, Vec::new());
    }
    if let Some(i) = last.filter(|i| in_string(a, *i, offset)) {
        return tracepoints(a, workspace, i, before);
    }
    let around = last.and_then(|i| a.item_around(i));
    if let Some(r) = around.filter(|r| r.is_probe && in_head(a, *r, count)) {
        return points(a, workspace, r, before);
    }
    let typed =
        usize::from(last.is_some_and(|i| a.tokens[i].span.end as usize == offset && word < offset));
    if let Some(arrow) = count
        .checked_sub(typed + 1)
        .filter(|i| a.kind(*i) == Tok::Arrow)
    {
        return (word, members(a, workspace, arrow));
    }
    if before[sigil..].starts_with('$') {
        return (sigil, targets(a, workspace, around));
    }
    if before[sigil..].starts_with('@') {
        return (sigil, at_words(a, workspace));
    }
    (word, names_and_keywords(a, workspace, around, count))
}

fn in_comment(a: &Analysis, before: &str, last: Option<usize>) -> bool {
    let end = last.map_or(0, |i| a.tokens[i].span.end as usize);
    let Some(gap) = before.get(end..) else {
        return false;
    };
    let line = gap.rsplit('\n').next().unwrap_or("");
    line.contains('#') || line.contains("//") || gap.rfind("/*") > gap.rfind("*/")
}

fn in_string(a: &Analysis, i: usize, offset: usize) -> bool {
    let end = a.tokens[i].span.end as usize;
    match a.kind(i) {
        Tok::Str => offset < end,
        Tok::ArgStr => offset <= end,
        _ => false,
    }
}

/// Whether a location after `count` tokens is in the list of points of a probe.
fn in_head(a: &Analysis, r: ItemTokens, count: usize) -> bool {
    let condition = (r.keyword..count)
        .rev()
        .find(|i| matches!(a.kind(*i), Tok::KwIf | Tok::Comma));
    let in_condition =
        condition.is_some_and(|i| a.kind(i) == Tok::KwIf && a.kind(i - 1) != Tok::Dot);
    count > r.keyword && r.body.is_none_or(|b| count <= b) && !in_condition
}

/// Proposals in the string of `kernel.trace("...")`.
fn tracepoints(
    a: &Analysis,
    workspace: &Workspace,
    i: usize,
    before: &str,
) -> (usize, Vec<Proposal>) {
    let quote = a.tokens[i].span.start as usize + 1;
    let typed = before.get(quote..).unwrap_or("");
    let start = typed.rfind(':').map_or(quote, |n| quote + n + 1);
    let is_trace = i >= 2 && a.kind(i - 1) == Tok::LParen && a.word(i - 2) == "trace";
    if !is_trace {
        return (start, Vec::new());
    }
    let names = workspace.facts.tracepoints("*");
    let each = names
        .iter()
        .map(|n| Proposal::new(&**n, CompletionItemKind::EVENT, "tracepoint"));
    (start, each.collect())
}

/// Proposals for the next component of a probe point.
fn points(
    a: &Analysis,
    workspace: &Workspace,
    r: ItemTokens,
    before: &str,
) -> (usize, Vec<Proposal>) {
    let head = a.tokens[r.keyword].span.end as usize;
    let typed = before.get(head..).unwrap_or("");
    let group = typed
        .rfind('{')
        .filter(|n| typed.rfind('}').is_none_or(|c| c < *n));
    let (lead, inner) = match group {
        Some(n) => typed.split_at(n),
        None => ("", typed),
    };
    let from = |t: &str| t.rfind([',', '=', '{']).map_or(0, |n| n + 1);
    let point = inner[from(inner)..].trim_start();
    let whole = [lead[from(lead)..].trim(), point].concat();
    let key = without_arguments(&whole);
    let base = key.rfind('.').map_or("", |n| &key[..=n]).to_owned();
    let start = before.len() - point.rsplit('.').next().unwrap_or("").len();
    let mut proposals: BTreeMap<String, Proposal> = BTreeMap::new();
    let mut add = |full: &str, detail: &str, doc: String| {
        let Some(rest) = without_arguments(full)
            .strip_prefix(&*base)
            .map(str::to_owned)
        else {
            return;
        };
        let name = rest.split('.').next().unwrap_or("");
        let whole = !rest.contains('.');
        let already = proposals.contains_key(name);
        if name.is_empty() || name.contains("NAME") || already && !whole {
            return;
        }
        let mut p = Proposal::new(
            name,
            CompletionItemKind::EVENT,
            if whole { detail } else { "" },
        );
        if whole && let Some(arguments) = full.rfind('(').filter(|_| full.ends_with([')', ']'])) {
            p.label = Some(format!("{name}{}", full[arguments..].trim_end_matches(']')));
        }
        p.doc = if whole { doc } else { String::new() };
        proposals.insert(name.to_owned(), p);
    };
    for f in FAMILIES {
        let text = f.text();
        let plain = text.split("[.").next().unwrap_or("").replace("[(N)]", "");
        add(&plain, &text, f.doc.into());
    }
    for point in list::family_points(&*workspace.facts) {
        add(&point, &point, String::new());
    }
    for name in a.library.alias_names().filter(|n| !n.starts_with('_')) {
        let definition = a.library.alias_definition(name);
        let doc = definition
            .as_ref()
            .and_then(|(file, span, _)| doc_comment(a.sources.text(*file), span.start as usize));
        let definitions = definition.map(|d| d.2).unwrap_or_default();
        let points: Vec<String> = definitions
            .into_iter()
            .take(8)
            .map(pretty::probe_point)
            .collect();
        add(name, &points.join(", "), doc.unwrap_or_default());
    }
    (start, proposals.into_values().collect())
}

/// A point without its arguments.
fn without_arguments(text: &str) -> String {
    let mut depth = 0usize;
    let keep = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                return None;
            }
            _ => {}
        }
        (depth == 0 && !c.is_whitespace()).then_some(c)
    };
    text.chars().filter_map(keep).collect()
}

fn members(a: &Analysis, workspace: &Workspace, arrow: usize) -> Vec<Proposal> {
    let facts = &*workspace.facts;
    let ty = arrow
        .checked_sub(1)
        .and_then(|i| a.ctype_before(workspace, i));
    let Some(id) = ty.and_then(|ty| structure(facts, ty)) else {
        return Vec::new();
    };
    let member = |m: spile_sema::facts::Member| {
        Proposal::new(
            &*m.name,
            CompletionItemKind::FIELD,
            CTy::id(m.ty).spell(facts),
        )
    };
    facts.members(id).into_iter().map(member).collect()
}

fn targets(a: &Analysis, workspace: &Workspace, around: Option<ItemTokens>) -> Vec<Proposal> {
    let points = around.map(|r| a.points(workspace, r)).unwrap_or_default();
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, ty) in points.iter().flat_map(|p| &p.targets) {
        types.entry(name).or_insert(ty);
    }
    let variables = types
        .iter()
        .map(|(n, t)| Proposal::new(format!("${n}"), CompletionItemKind::VARIABLE, *t));
    let general = docs::CONTEXT
        .iter()
        .map(|d| Proposal::word(d, CompletionItemKind::VARIABLE));
    variables.chain(general).collect()
}

fn at_words(a: &Analysis, workspace: &Workspace) -> Vec<Proposal> {
    let mut out: Vec<Proposal> = docs::OPERATORS
        .iter()
        .map(|d| Proposal::word(d, CompletionItemKind::OPERATOR))
        .collect();
    let defined = a.tokens.windows(2).filter(|w| a.slice(&w[0]) == "@define");
    let defined_here = defined.map(|w| a.slice(&w[1]).to_owned());
    let mut names: Vec<String> = defined_here
        .chain(workspace.macros.names().map(str::to_owned))
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let params = workspace
            .macros
            .get(&name)
            .map_or_else(Vec::new, |m| m.params.clone());
        let detail = match params.is_empty() {
            true => "macro".to_owned(),
            false => format!("macro @{name}({})", params.join(", ")),
        };
        out.push(Proposal::new(
            format!("@{name}"),
            CompletionItemKind::CONSTANT,
            detail,
        ));
    }
    out
}

/// Names and keywords.
fn names_and_keywords(
    a: &Analysis,
    workspace: &Workspace,
    around: Option<ItemTokens>,
    count: usize,
) -> Vec<Proposal> {
    use CompletionItemKind as Kind;
    let body = around.filter(|r| r.body.is_some_and(|b| b < count) && open(a, *r, count));
    let Some(r) = body else {
        return docs::ITEMS
            .iter()
            .map(|d| Proposal::word(d, Kind::KEYWORD))
            .collect();
    };
    let mut proposals: BTreeMap<String, Proposal> = BTreeMap::new();
    let mut add = |p: Proposal| {
        proposals.entry(p.text.clone()).or_insert(p);
    };
    let (start, end) = (
        a.tokens[r.keyword].span.start as usize,
        a.tokens[r.end - 1].span.end as usize,
    );
    for v in a.units_in(start, end).flat_map(|u| &u.locals) {
        add(Proposal::new(&*v.name, Kind::VARIABLE, &*v.ty));
    }
    for name in a.library.global_names(a.scope) {
        let location = a.library.global(&name, a.scope).map(|(_, g)| g.name.span);
        let global = a.globals.iter().find(|g| Some(g.span) == location);
        if !name.starts_with('_') {
            let ty = global.map_or_else(|| "global".into(), |g| g.ty.clone());
            add(Proposal::new(&*name, Kind::VARIABLE, ty));
        }
    }
    for (name, ty) in a.points(workspace, r).iter().flat_map(|p| &p.vars) {
        add(Proposal::new(name, Kind::VARIABLE, *ty));
    }
    for (_, f) in a.library.all_functions() {
        if !f.name.name.starts_with('_') {
            let doc = f.doc.clone().unwrap_or_default();
            add(Proposal {
                doc,
                ..Proposal::new(&*f.name.name, Kind::FUNCTION, a.signature(f))
            });
        }
    }
    for f in a.own_functions() {
        let ret = match f.ret {
            None => "",
            Some(TypeName::Long) => ":long",
            Some(_) => ":string",
        };
        add(Proposal::new(
            &*f.name.name,
            Kind::FUNCTION,
            format!("{}{ret}", f.name.name),
        ));
    }
    docs::PRINTS
        .iter()
        .for_each(|d| add(Proposal::word(d, Kind::FUNCTION)));
    docs::STATEMENTS
        .iter()
        .for_each(|d| add(Proposal::word(d, Kind::KEYWORD)));
    // Names that the item mentions, in case it does not parse yet, except the one being typed.
    for i in r.keyword..r.end {
        let plain = a.kind(i) == Tok::Ident && a.kind(i + 1) != Tok::LParen && i + 1 != count;
        if plain
            && a.kind(i - 1) != Tok::Arrow
            && r.body.is_some_and(|b| i > b)
            && !a.word(i).starts_with('$')
        {
            add(Proposal::new(a.word(i), Kind::VARIABLE, ""));
        }
    }
    proposals.into_values().collect()
}

/// Whether the body of an item is open after `count` tokens.
fn open(a: &Analysis, r: ItemTokens, count: usize) -> bool {
    let body = a
        .tokens
        .get(r.body.unwrap_or(r.end)..count.min(r.end))
        .unwrap_or(&[]);
    let depth = body.iter().fold(0i64, |d, t| match t.kind {
        Tok::LBrace => d + 1,
        Tok::RBrace => d - 1,
        _ => d,
    });
    depth > 0
}
