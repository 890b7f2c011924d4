//! Texts of stacks and symbols that kernel handlers leave to the controller: see
//! [`spile_bpf::layout::Symbolic`].

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use spile_bpf::layout::{StackWords, Symbolic, stack_words};
use spile_kernel::symbols::Symbols;

use crate::deferred::WORD;
use crate::host::symbol_data;
use crate::state::State;

/// Makes the texts.
#[derive(Default)]
pub struct Symbolizer {
    /// The session's word, if kernel handlers leave texts to the controller.
    word: Option<[u8; WORD]>,
}

impl Symbolizer {
    /// For marks with that word.
    pub fn new(word: [u8; WORD]) -> Symbolizer {
        Symbolizer { word: Some(word) }
    }

    /// A text by the number of its form; nothing where there is no such form.
    pub fn text(&self, form: i64, of: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(form) = Symbolic::by_number(form) {
            self.append(form, of, &mut out);
        }
        out
    }

    /// A string with the texts that its marks stand for. Of a mark whose end was cut off, what
    /// is there is used.
    pub fn fill<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let Some(word) = &self.word else {
            return text.into();
        };
        let mut rest = text;
        let mut out = Vec::new();
        while let Some(at) = rest.windows(WORD).position(|w| w == word) {
            let (before, mark) = rest.split_at(at);
            out.extend_from_slice(before);
            rest = &mark[WORD..];
            let Some(form) = rest.first().and_then(|b| Symbolic::by_letter(*b)) else {
                continue;
            };
            let end = rest.iter().position(|b| *b == b';');
            self.append(form, &rest[1..end.unwrap_or(rest.len())], &mut out);
            rest = end.map_or(&[][..], |end| &rest[end + 1..]);
        }
        if rest.len() == text.len() {
            return text.into();
        }
        out.extend_from_slice(rest);
        out.into()
    }

    fn append(&self, form: Symbolic, of: &[u8], out: &mut Vec<u8>) {
        match form {
            Symbolic::KernelLines => {
                for addr in numbers(of) {
                    let line = format!(" {addr:#x} : {}\n", symbol_data(addr));
                    out.extend_from_slice(line.as_bytes());
                }
            }
        }
    }
}

/// The hexadecimal numbers of a text, with `0x` or without; others are left out.
fn numbers(text: &[u8]) -> impl Iterator<Item = u64> {
    let words = text.split(|b| b.is_ascii_whitespace());
    words.filter_map(|w| {
        let word = w.strip_prefix(b"0x").unwrap_or(w);
        u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()
    })
}

/// Tells kernel handlers which functions belong to the machinery of probes.
pub fn set_stack_words(state: &State, words: &StackWords) {
    let Ok(symbols) = Symbols::kernel() else {
        return;
    };
    let range = |first: &str, last: &str| {
        let start = symbols.address_of(first)?;
        let end = symbols.end_of(symbols.address_of(last)?)?;
        (start < end).then_some((start, end))
    };
    let set = |at: u32, range: Option<(u64, u64)>| {
        let (start, end) = range.unwrap_or_default();
        state.shared(words.at + at).store(start, Ordering::Relaxed);
        state
            .shared(words.at + at + 8)
            .store(end, Ordering::Relaxed);
    };
    // They are written one after the other in the kernel's source.
    let run = range("bpf_trace_run1", "bpf_trace_run12").filter(|r| r.1 - r.0 < 1 << 16);
    set(stack_words::RUN, run);
    let mut at = stack_words::POINTS;
    for point in &words.points {
        for function in ["__bpf_trace_", "__traceiter_"] {
            let name = format!("{function}{point}");
            set(at, range(&name, &name));
            at += 16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_addresses() {
        let word = *b"0123456789abcdef";
        let symbolizer = Symbolizer::new(word);
        let fill = |t: &[u8]| String::from_utf8_lossy(&symbolizer.fill(t)).into_owned();
        assert_eq!(fill(b"plain"), "plain");
        assert_eq!(
            fill(b"a0123456789abcdefK0x1 2 zz 0x3;b"),
            "a 0x1 : 0x1\n 0x2 : 0x2\n 0x3 : 0x3\nb"
        );
        assert_eq!(
            fill(b"0123456789abcdefK0x1 0x2"),
            " 0x1 : 0x1\n 0x2 : 0x2\n"
        );
        assert_eq!(fill(b"0123456789abcdefK;!"), "!");
        assert_eq!(symbolizer.text(0, b"1"), b" 0x1 : 0x1\n");
    }
}
