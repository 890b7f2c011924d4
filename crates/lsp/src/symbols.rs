//! The outline of a document: probes, functions, globals, macros.

use lsp_types::{DocumentSymbol, SymbolKind};
use spile_sema::probe::list;
use spile_syntax::ast::{FileId, GlobalVar, Item, ProbePoint, Span};
use spile_syntax::pretty;
use spile_syntax::token::Tok;

use crate::analysis::Analysis;
use crate::text::DocText;

/// Maximum length of a name; long lists of points are cut.
const MAX_NAME: usize = 80;

/// The symbols in the order of the text.
pub(crate) fn symbols(a: &Analysis, text: &DocText) -> Vec<DocumentSymbol> {
    let mut symbols: Vec<Symbol> = a.tree.items.iter().flat_map(|i| of_item(a, i)).collect();
    symbols.extend(macros(a));
    // Text from a macro is in another location.
    symbols.retain(|s| s.within(a.file) && !s.name.is_empty());
    symbols.sort_by_key(|s| s.whole.start);
    symbols.into_iter().map(|s| s.drawn(text)).collect()
}

/// A symbol with its locations in the text.
struct Symbol {
    name: String,
    kind: SymbolKind,
    detail: Option<String>,
    /// The whole item.
    whole: Span,
    /// The part that names it.
    word: Span,
}

impl Symbol {
    fn within(&self, file: FileId) -> bool {
        self.whole.file == file
            && self.word.file == file
            && self.whole.start <= self.word.start
            && self.word.end <= self.whole.end
    }

    fn drawn(self, text: &DocText) -> DocumentSymbol {
        #[allow(deprecated, reason = "the field has to be given")]
        DocumentSymbol {
            name: self.name.chars().take(MAX_NAME).collect(),
            detail: self.detail,
            kind: self.kind,
            tags: None,
            deprecated: None,
            range: text.span(self.whole),
            selection_range: text.span(self.word),
            children: None,
        }
    }
}

/// The symbols of an item: several for a declaration of several globals.
fn of_item(a: &Analysis, item: &Item) -> Vec<Symbol> {
    match item {
        Item::Probe(p) => vec![Symbol {
            name: points(&p.points),
            kind: SymbolKind::EVENT,
            detail: Some("probe".into()),
            whole: p.span,
            word: p.points.first().map_or(p.span, |p| p.span),
        }],
        Item::Alias(al) => vec![Symbol {
            name: points(&al.names),
            kind: SymbolKind::EVENT,
            detail: Some(points(&al.points)),
            whole: al.span,
            word: al.names.first().map_or(al.span, |p| p.span),
        }],
        Item::Function(f) => vec![Symbol {
            name: f.name.name.to_string(),
            kind: SymbolKind::FUNCTION,
            detail: Some(list::signature(f)),
            whole: f.span,
            word: f.name.span,
        }],
        Item::Global(g) => {
            let ty = |span| a.globals.iter().find(|k| k.span == span);
            let of_variable = |v: &GlobalVar| Symbol {
                name: v.name.name.to_string(),
                kind: SymbolKind::VARIABLE,
                detail: ty(v.name.span).map(|k| k.ty.clone()),
                whole: v.name.span,
                word: v.name.span,
            };
            g.vars.iter().map(of_variable).collect()
        }
        Item::Embedded(_) => Vec::new(),
    }
}

fn points(points: &[ProbePoint]) -> String {
    let texts: Vec<String> = points.iter().map(pretty::probe_point).collect();
    texts.join(", ")
}

/// The macros that the document defines. The tree does not contain them.
fn macros(a: &Analysis) -> impl Iterator<Item = Symbol> {
    let tokens = a.tokens.iter().enumerate();
    let defines =
        tokens.filter(|(i, t)| a.slice(t) == "@define" && matches!(a.kind(i + 1), Tok::Ident));
    defines.map(|(i, t)| {
        let word = a.tokens[i + 1].span;
        Symbol {
            name: format!("@{}", a.word(i + 1)),
            kind: SymbolKind::CONSTANT,
            detail: Some("macro".into()),
            whole: t.span.to(word),
            word,
        }
    })
}
