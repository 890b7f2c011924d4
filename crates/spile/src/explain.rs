//! `--explain CODE`: the page of a diagnostic code, from `docs/errors.md`.

use spile_sema::codes::PROBE_CODES;
use spile_sema::types::codes::BODY_CODES;
use spile_syntax::codes::{CodeDoc, SYNTAX_CODES};

use crate::report::{Failure, fail};

/// All pages.
const PAGES: &str = include_str!("../../../docs/errors.md");

/// The page of a code, in upper or lower case.
pub(crate) fn page(code: &str) -> Result<String, Failure> {
    let wanted = code.trim().to_ascii_uppercase();
    match pages().find(|(code, _)| *code == wanted) {
        Some((code, text)) => Ok(format!("{code}: {text}\n")),
        None => Err(fail(unknown(&wanted))),
    }
}

/// The codes with their pages.
fn pages() -> impl Iterator<Item = (&'static str, &'static str)> {
    let pages = PAGES.split("\n## ").skip(1);
    pages.filter_map(|page| {
        page.split_once('\n')
            .map(|(code, text)| (code, text.trim()))
    })
}

fn codes() -> impl Iterator<Item = &'static CodeDoc> {
    [SYNTAX_CODES, PROBE_CODES, BODY_CODES]
        .into_iter()
        .flatten()
}

/// The error for an unknown code, with the codes that differ from it in one character.
fn unknown(code: &str) -> String {
    let differs = |other: &str| {
        let locations = other.bytes().zip(code.bytes()).filter(|(a, b)| a != b);
        locations.count() + other.len().abs_diff(code.len())
    };
    let near: Vec<&str> = codes()
        .map(|c| c.code)
        .filter(|c| differs(c) <= 1)
        .collect();
    let help = match &near[..] {
        [] => format!("the codes are\n{}", listed()),
        near => format!("there are {}", near.join(", ")),
    };
    format!("--explain: there is no code `{code}`; {help}")
}

/// All codes with their first lines.
fn listed() -> String {
    let line = |c: &CodeDoc| format!("  {}  {}", c.code, c.doc);
    let mut lines: Vec<String> = codes().map(line).collect();
    lines.sort();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each code has one page, which begins with the code's own line.
    #[test]
    fn every_code_has_its_page() {
        let mut codes: Vec<_> = codes().collect();
        codes.sort_by_key(|c| (&c.code[1..3], &c.code[..1], c.code));
        let written: Vec<_> = pages().map(|(code, _)| code).collect();
        let expected: Vec<_> = codes.iter().map(|c| c.code).collect();
        assert_eq!(written, expected);
        for (doc, (code, page)) in codes.iter().zip(pages()) {
            let mut parts = page.split("\n\n");
            assert_eq!(parts.next(), Some(doc.doc), "{code}");
            let example = parts.next().unwrap_or_default();
            let given =
                example.starts_with("```sh\n") || example.starts_with("No command gives it");
            assert!(given, "{code}: {example}");
            assert!(
                parts.next().is_some_and(|way| way.len() > 10),
                "{code}: no way out"
            );
        }
    }

    #[test]
    fn near_codes_are_named() {
        let all = unknown("E9999");
        assert!(
            codes().all(|c| all.contains(c.code) && all.contains(c.doc)),
            "{all}"
        );
        let near = unknown("E0300");
        assert!(near.contains("E0301") && !near.contains("E0401"), "{near}");
        assert!(unknown("E030").contains("E0301"));
    }
}
