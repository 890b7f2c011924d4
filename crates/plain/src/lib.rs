//! Escapes names that come from outside (symbols, threads, files) for terminals, spreadsheets and
//! readers of JSON. Characters that would move the cursor, change colours or change the writing
//! direction are escaped as in C source, by the octal numbers of their bytes. [`messages`] prints texts of which all are escaped so.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod files;
pub mod messages;

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character has an effect on a terminal: controls of both sets, line separators, and
/// characters that set the writing direction or are invisible.
#[must_use]
pub fn acts_on_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Escapes a name that has to stay on one line.
#[must_use]
pub fn name(text: &str) -> Cow<'_, str> {
    escaped(text, acts_on_terminal, octal)
}

/// Escapes a text of several lines, which may contain tabs.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    let acts = |c| acts_on_terminal(c) && !matches!(c, '\n' | '\t');
    escaped(text, acts, octal)
}

/// A text with an escape for each character that acts.
fn escaped(
    text: &str,
    acts: impl Fn(char) -> bool,
    escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(&acts) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match acts(c) {
            true => escape(c, &mut out),
            false => out.push(c),
        }
    }
    out.into()
}

fn octal(c: char, out: &mut String) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\{byte:03o}");
    }
}

/// A text as a cell of comma-separated values (RFC 4180). A cell that a spreadsheet would take for
/// a formula gets a leading apostrophe, which spreadsheets hide.
#[must_use]
pub fn cell(text: &str) -> String {
    let text = name(text);
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = match formula {
        true => Cow::from(format!("'{text}")),
        false => text,
    };
    match formula || text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into_owned(),
    }
}

/// Escapes a JSON document with the escapes of JSON; such characters can only be inside strings.
#[must_use]
pub fn json(document: &str) -> Cow<'_, str> {
    let acts = |c| acts_on_terminal(c) && c != '\n';
    escaped(document, acts, |c, out| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_nothing_to_a_terminal() {
        for (text, shown) in [
            ("main", "main"),
            ("größe<T>::operator()(…)", "größe<T>::operator()(…)"),
            ("a\x1b[31mred\x1b[0m", "a\\033[31mred\\033[0m"),
            ("\x1b]0;title\x07", "\\033]0;title\\007"),
            ("a\nb\tc\rd\x7f", "a\\012b\\011c\\015d\\177"),
            ("\u{9b}2J", "\\302\\2332J"),
            ("a\u{202e}b", "a\\342\\200\\256b"),
        ] {
            assert_eq!(name(text), shown);
        }
        assert_eq!(lines("a\n\tb\x1b\n"), "a\n\tb\\033\n");
    }

    #[test]
    fn every_character_is_answered() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            let text = c.to_string();
            assert!(!name(&text).contains(acts_on_terminal), "{c:?}");
            assert!(!lines(&text).contains(|c| acts_on_terminal(c) && c != '\n' && c != '\t'));
            assert!(!json(&text).contains(|c| acts_on_terminal(c) && c != '\n'));
            assert!(
                !cell(&text).starts_with(['=', '+', '-', '@', '\t', '\r']),
                "{c:?}"
            );
        }
    }

    #[test]
    fn cells_of_csv_are_quoted_and_no_formulas() {
        for (text, shown) in [
            ("sh", "sh"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("=HYPERLINK(\"x\")", "\"'=HYPERLINK(\"\"x\"\")\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(1)", "\"'@SUM(1)\""),
            ("\tx", "\\011x"),
            ("a-b=c", "a-b=c"),
        ] {
            assert_eq!(cell(text), shown);
        }
    }

    #[test]
    fn documents_of_json_escape_control_characters() {
        assert_eq!(
            json("{\"a\":\"\u{7f}\u{9b}\"}\n"),
            "{\"a\":\"\\u007f\\u009b\"}\n"
        );
    }
}
