//! Texts of stacks and symbols that kernel handlers leave to the controller: see
//! [`spile_bpf::layout::Symbolic`].

use std::sync::atomic::Ordering;

use spile_bpf::layout::{StackWords, Symbolic, stack_words};
use spile_kernel::symbols::Symbols;

use crate::host::symbol_data;
use crate::state::State;

/// Appends the text that a mark stands for.
pub fn append(form: Symbolic, of: &[u8], out: &mut Vec<u8>) {
    match form {
        Symbolic::KernelLines => {
            for addr in numbers(of) {
                let line = format!(" {addr:#x} : {}\n", symbol_data(addr));
                out.extend_from_slice(line.as_bytes());
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
        state.shared(words.at + at + 8).store(end, Ordering::Relaxed);
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
        let mut out = Vec::new();
        append(Symbolic::KernelLines, b"0x1 2 zz 0x3", &mut out);
        assert_eq!(out, b" 0x1 : 0x1\n 0x2 : 0x2\n 0x3 : 0x3\n");
    }
}
