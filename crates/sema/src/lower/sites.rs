//! The places that run-time errors name: `identifier 'x' at script.stp:3:4`.

use std::collections::HashMap;
use std::sync::Arc;

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
    by_span: HashMap<(u32, u32), SiteId>,
}

impl<'a> Sites<'a> {
    /// `is_user` tells the script's files.
    pub(crate) fn new(sources: &'a Sources, is_user: &'a dyn Fn(FileId) -> bool) -> Self {
        let unknown = Site {
            near: "unknown".into(),
            ..Site::default()
        };
        Sites {
            sources,
            is_user,
            list: vec![unknown],
            by_span: HashMap::new(),
        }
    }

    /// The site of the token at the start of a span.
    pub(crate) fn at(&mut self, span: Span) -> SiteId {
        if let Some(id) = self.by_span.get(&(span.file.0, span.start)) {
            return *id;
        }
        let id = match self.sources.get(span.file) {
            None => SiteId(0),
            Some(_) => {
                let near: Arc<str> = format!(
                    "{} at {}",
                    token(self.rest(span)),
                    self.sources.location(span)
                )
                .into();
                self.list.push(Site {
                    near,
                    caller: None,
                    library: !(self.is_user)(span.file),
                });
                SiteId(self.list.len() as u32 - 1)
            }
        };
        self.by_span.insert((span.file.0, span.start), id);
        id
    }

    /// The site of the operator between two operands; `fallback` where a macro makes the two
    /// lie in different places.
    pub(crate) fn between(&mut self, a: Span, b: Span, fallback: Span) -> SiteId {
        let text = self.sources.text(a.file);
        let gap = match text.get(a.end as usize..b.start as usize) {
            Some(gap) if a.file == b.file => gap,
            _ => return self.at(fallback),
        };
        let skip = gap.find(|c: char| !c.is_whitespace() && c != ')');
        match skip {
            Some(n) => {
                let start = a.end + n as u32;
                self.at(Span {
                    file: a.file,
                    start,
                    end: b.start,
                })
            }
            None => self.at(fallback),
        }
    }

    fn rest(&self, span: Span) -> &str {
        self.sources
            .text(span.file)
            .get(span.start as usize..)
            .unwrap_or("")
    }

    /// The list, entry 0 "unknown".
    pub(crate) fn finish(&mut self) -> Vec<Site> {
        std::mem::take(&mut self.list)
    }
}

/// The first token of a text, with its kind.
fn token(text: &str) -> String {
    let word = |s: &str| {
        let end = s.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'));
        s[..end.unwrap_or(s.len())].to_owned()
    };
    match text.chars().next() {
        None => "end of file".to_owned(),
        Some(c) if c.is_ascii_digit() => format!("number '{}'", word(text)),
        Some('"') => {
            let line = text[1..].lines().next().unwrap_or("");
            let end = line.find('"').unwrap_or(line.len());
            format!("string '{}'", &line[..end])
        }
        Some('@') => format!("operator '@{}'", word(&text[1..])),
        Some(c) if c.is_alphabetic() || c == '_' || c == '$' => {
            let w = word(text);
            let kind = if KEYWORDS.contains(&w.as_str()) {
                "keyword"
            } else {
                "identifier"
            };
            format!("{kind} '{w}'")
        }
        Some(c @ ('{' | '}' | '(' | ')' | '[' | ']' | ';' | ',')) => format!("operator '{c}'"),
        Some(_) => {
            let end = text
                .find(|c: char| !"+-*/%<>=&|^!~.?:".contains(c))
                .unwrap_or(text.len());
            format!("operator '{}'", &text[..end])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
        assert_eq!(token("foreach (x"), "keyword 'foreach'");
        assert_eq!(token("$fd->x"), "identifier '$fd'");
        assert_eq!(token("/ 0"), "operator '/'");
        assert_eq!(token("@count(x)"), "operator '@count'");
        assert_eq!(token("\"a b\" c"), "string 'a b'");
        assert_eq!(token("12+3"), "number '12'");
    }

    #[test]
    fn operator_between() {
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
