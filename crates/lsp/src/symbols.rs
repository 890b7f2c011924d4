//! The outline of a document: probes, functions, globals, macros.

use lsp_types::{DocumentSymbol, SymbolKind};
use spile_sema::probe::list;
use spile_syntax::ast::{Item, Span};
use spile_syntax::pretty;
use spile_syntax::token::Tok;

use crate::analysis::Analysis;
use crate::text::{DocText, Encoding};

/// Maximum length of a name; long lists of points are cut.
const MAX_NAME: usize = 80;

/// The symbols in the order of the text.
pub(crate) fn symbols(a: &Analysis, text: &DocText, encoding: Encoding) -> Vec<DocumentSymbol> {
    let symbol = |name: String, kind, detail: Option<String>, whole: Span, word: Span| {
        let short: String = name.chars().take(MAX_NAME).collect();
        #[allow(deprecated, reason = "the field has to be given")]
        DocumentSymbol {
            name: short,
            detail,
            kind,
            tags: None,
            deprecated: None,
            range: text.span(whole, encoding),
            selection_range: text.span(word, encoding),
            children: None,
        }
    };
    let points = |p: &[spile_syntax::ast::ProbePoint]| {
        p.iter()
            .map(pretty::probe_point)
            .collect::<Vec<_>>()
            .join(", ")
    };
    // Text from a macro is in another place.
    let own = |whole: Span, word: Span| {
        whole.file == a.file
            && word.file == a.file
            && whole.start <= word.start
            && word.end <= whole.end
    };
    let mut out = Vec::new();
    let mut add = |name: String, kind, detail, whole: Span, word: Span| {
        if own(whole, word) && !name.is_empty() {
            out.push((whole.start, symbol(name, kind, detail, whole, word)));
        }
    };
    for item in &a.tree.items {
        match item {
            Item::Probe(p) => {
                let word = p.points.first().map_or(p.span, |p| p.span);
                add(
                    points(&p.points),
                    SymbolKind::EVENT,
                    Some("probe".into()),
                    p.span,
                    word,
                );
            }
            Item::Alias(al) => {
                let word = al.names.first().map_or(al.span, |p| p.span);
                add(
                    points(&al.names),
                    SymbolKind::EVENT,
                    Some(points(&al.points)),
                    al.span,
                    word,
                );
            }
            Item::Function(f) => {
                let name = f.name.name.to_string();
                add(
                    name,
                    SymbolKind::FUNCTION,
                    Some(list::signature(f)),
                    f.span,
                    f.name.span,
                );
            }
            Item::Global(g) => {
                for v in &g.vars {
                    let known = a.globals.iter().find(|k| k.span == v.name.span);
                    let ty = known.map(|k| k.ty.clone());
                    add(
                        v.name.name.to_string(),
                        SymbolKind::VARIABLE,
                        ty,
                        v.name.span,
                        v.name.span,
                    );
                }
            }
            Item::Embedded(_) => {}
        }
    }
    for (i, t) in a.tokens.iter().enumerate() {
        if a.slice(t) == "@define" && matches!(a.kind(i + 1), Tok::Ident) {
            let word = a.tokens[i + 1].span;
            let name = format!("@{}", a.word(i + 1));
            add(
                name,
                SymbolKind::CONSTANT,
                Some("macro".into()),
                t.span.to(word),
                word,
            );
        }
    }
    out.sort_by_key(|(start, _)| *start);
    out.into_iter().map(|(_, s)| s).collect()
}
