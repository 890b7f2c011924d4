//! The locations that run-time errors name: `identifier 'x' at script.stp:3:4`.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use spile_cast::Cast;
use spile_ir::{Site, SiteId};
use spile_syntax::ast::Span;
use spile_syntax::source::{FileId, Sources};

const KEYWORDS: &[&str] = &[
    "break", "catch", "continue", "delete", "else", "for", "foreach", "function", "global", "if",
    "in", "limit", "long", "next", "private", "probe", "return", "string", "try", "while",
];

/// All sites so far.
pub(crate) struct Sites<'a> {
    sources: &'a Sources,
    is_user: &'a dyn Fn(FileId) -> bool,
    list: Vec<Site>,
    by_span: FxHashMap<(u32, u32), SiteId>,
}

impl<'a> Sites<'a> {
    /// `is_user` accepts the script's files.
    pub(crate) fn new(sources: &'a Sources, is_user: &'a dyn Fn(FileId) -> bool) -> Self {
        let unknown = Site {
            near: "unknown".into(),
            ..Site::default()
        };
        Sites {
            sources,
            is_user,
            list: vec![unknown],
            by_span: FxHashMap::default(),
        }
    }

    /// The site of the token at the start of a span.
    pub(crate) fn at(&mut self, span: Span) -> SiteId {
        if let Some(id) = self.by_span.get(&(span.file.number(), span.start)) {
            return *id;
        }
        let id = match self.sources.get(span.file) {
            None => SiteId(0),
            Some(_) => {
                let near = self.token_text(span);
                self.list.push(Site {
                    near,
                    caller: None,
                    library: !(self.is_user)(span.file),
                });
                SiteId(self.list.len().fit::<u32>() - 1)
            }
        };
        self.by_span.insert((span.file.number(), span.start), id);
        id
    }

    /// A site that no message names.
    pub(crate) fn unnamed_site(&mut self) -> SiteId {
        self.list.push(Site::default());
        SiteId(self.list.len().fit::<u32>() - 1)
    }

    /// The site of the operator between two operands; `fallback` where a macro makes the two
    /// lie in different locations.
    pub(crate) fn between(&mut self, a: Span, b: Span, fallback: Span) -> SiteId {
        let text = self.sources.text(a.file);
        let gap = match text.get(a.end as usize..b.start as usize) {
            Some(gap) if a.file == b.file => gap,
            _ => return self.at(fallback),
        };
        let skip = gap.find(|c: char| !c.is_whitespace() && c != ')');
        match skip {
            Some(n) => {
                let start = a.end + n.fit::<u32>();
                self.at(Span {
                    file: a.file,
                    start,
                    end: b.start,
                })
            }
            None => self.at(fallback),
        }
    }

    /// The token at the start of a span, and its location.
    fn token_text(&self, span: Span) -> Arc<str> {
        let (kind, text) = token(self.rest(span));
        let mut near = String::with_capacity(64);
        near.push_str(kind);
        if let Some(text) = text {
            near.push_str(" '");
            near.push_str(text);
            near.push('\'');
        }
        near.push_str(" at ");
        near.push_str(&self.sources.location(span));
        near.into()
    }

    fn rest(&self, span: Span) -> &str {
        self.sources
            .text(span.file)
            .get(span.start as usize..)
            .unwrap_or("")
    }

    /// The list; entry 0 is "unknown".
    pub(crate) fn finish(&mut self) -> Vec<Site> {
        std::mem::take(&mut self.list)
    }
}

/// The kind of a text's first token, and the token, for strings their content; `None` at the end of
/// the text.
fn token(text: &str) -> (&'static str, Option<&str>) {
    let word = |from: usize| {
        let other = |c: char| !(c.is_alphanumeric() || c == '_' || c == '$');
        let len = text[from..].find(other);
        &text[..len.map_or(text.len(), |len| from + len)]
    };
    let Some(first) = text.chars().next() else {
        return ("end of file", None);
    };
    let (kind, token) = match first {
        c if c.is_ascii_digit() => ("number", word(0)),
        '"' => {
            let line = text[1..].lines().next().unwrap_or("");
            let end = line.find('"').unwrap_or(line.len());
            ("string", &line[..end])
        }
        '@' => ("operator", word(1)),
        c if c.is_alphabetic() || c == '_' || c == '$' => match word(0) {
            word if KEYWORDS.contains(&word) => ("keyword", word),
            word => ("identifier", word),
        },
        '{' | '}' | '(' | ')' | '[' | ']' | ';' | ',' => ("operator", &text[..1]),
        _ => {
            let other = |c: char| !"+-*/%<>=&|^!~.?:".contains(c);
            ("operator", &text[..text.find(other).unwrap_or(text.len())])
        }
    };
    (kind, Some(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_name_their_first_token() {
        assert_eq!(token("foreach (x"), ("keyword", Some("foreach")));
        assert_eq!(token("$fd->x"), ("identifier", Some("$fd")));
        assert_eq!(token("/ 0"), ("operator", Some("/")));
        assert_eq!(token("@count(x)"), ("operator", Some("@count")));
        assert_eq!(token("\"a b\" c"), ("string", Some("a b")));
        assert_eq!(token(""), ("end of file", None));
        assert_eq!(token("12+3"), ("number", Some("12")));
    }

    #[test]
    fn the_operator_between_two_operands_is_found() {
        let mut s = Sources::new();
        let f = s.add("t.stp", "(a) / b".as_bytes().to_vec());
        let mut sites = Sites::new(&s, &|_| true);
        let id = sites.between(Span::new(f, 1, 2), Span::new(f, 6, 7), Span::new(f, 0, 7));
        assert_eq!(
            &*sites.finish()[id.index()].near,
            "operator '/' at t.stp:1:5"
        );
    }
}
