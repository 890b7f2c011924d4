//! Texts of stacks and symbols that kernel handlers leave to the controller: see
//! [`spile_bpf::layout::Symbolic`].

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::atomic::Ordering;

use spile_bpf::layout::{StackWords, Symbolic, stack_words};
use spile_ir::interp::Value;
use spile_kernel::symbols::Symbols;

use crate::deferred::WORD;
use crate::host::symbol_data;
use crate::kernel_files::KernelLines;
use crate::record::Field;
use crate::state::State;
use crate::user_files::{Place, UserFiles};

/// Makes the texts.
#[derive(Default)]
pub struct Symbolizer {
    /// The session's word, if kernel handlers leave texts to the controller.
    word: Option<[u8; WORD]>,
    files: RefCell<Option<UserFiles>>,
    kernel: RefCell<KernelLines>,
}

impl Symbolizer {
    /// For marks with that word, and the files of programs.
    pub fn new(word: [u8; WORD], files: Option<UserFiles>) -> Symbolizer {
        Symbolizer {
            word: Some(word),
            files: RefCell::new(files),
            kernel: RefCell::default(),
        }
    }

    /// Files whose unwind rows found no room.
    pub fn without_rows(&self) -> u64 {
        self.files.borrow().as_ref().map_or(0, |f| f.without_rows)
    }

    /// Takes up a file: see [`UserFiles::learn`].
    pub fn learn(&self, fields: &[Field<'_>]) -> Option<bool> {
        self.files.borrow_mut().as_mut()?.learn(fields)
    }

    /// A text by the number of its form; nothing where there is no such form.
    pub fn text(&self, form: i64, of: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(form) = Symbolic::by_number(form) {
            self.append(form, of, &mut out);
        }
        out
    }

    /// The same of a key that has such marks, if all files that it tells of are known by now.
    /// Equal stacks have equal marks already, and their texts can be longer than a key.
    pub fn whole(&self, key: &Value) -> Option<Value> {
        let word = self.word.as_ref()?;
        let text = key.as_bytes();
        let marks = (0..text.len()).filter(|at| text[*at..].starts_with(word));
        let mut forms = marks.filter_map(|at| Symbolic::by_letter(*text.get(at + WORD)?));
        if forms.any(|f| !f.of_address()) {
            return None;
        }
        let Cow::Owned(text) = self.fill(key.as_bytes()) else {
            return None;
        };
        let mut files = self.files.borrow_mut();
        let unknown = files.as_mut().map(|f| std::mem::take(&mut f.met_unknown));
        (unknown != Some(true)).then(|| Value::from(&text[..]))
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
        if !form.of_kernel() {
            return self.append_user(form, of, out);
        }
        let mut lines = self.kernel.borrow_mut();
        for (i, addr) in numbers(of).enumerate() {
            // Behind the first frame stand addresses behind calls.
            let back = u64::from(form == Symbolic::KernelFileLines && i > 0);
            let text = kernel_text(form, addr, &mut |addr| {
                lines.line(addr.saturating_sub(back))
            });
            out.extend_from_slice(text.as_bytes());
        }
    }

    fn append_user(&self, form: Symbolic, of: &[u8], out: &mut Vec<u8>) {
        let mut files = self.files.borrow_mut();
        let Some(files) = files.as_mut() else {
            return;
        };
        for (i, word) in of.split(|b| *b == b' ').enumerate() {
            let Some(mut place) = place(word) else {
                continue;
            };
            place.back = u64::from(form.of_stack() && i > 0);
            out.extend_from_slice(user_text(form, place, files).as_bytes());
        }
    }
}

/// A place from its numbers: see `crates/bpf/src/lower/unwind.rs`.
fn place(word: &[u8]) -> Option<Place> {
    let word = std::str::from_utf8(word).ok()?;
    let numbers: Vec<u64> = word
        .split('.')
        .map(|n| u64::from_str_radix(n, 16).ok())
        .collect::<Option<_>>()?;
    let (addr, file, offset) = match numbers[..] {
        [file, offset] => (None, file, offset),
        [addr, file, offset] => (Some(addr), file, offset),
        _ => return None,
    };
    Some(Place {
        addr,
        file,
        offset,
        back: 0,
    })
}

/// An address of the kernel in a form; `line` gives places in the source. Where none is known,
/// without debugging information, stands the address, as in SystemTap.
fn kernel_text(
    form: Symbolic,
    addr: u64,
    line: &mut dyn FnMut(u64) -> Option<(String, u32)>,
) -> String {
    let symbols = Symbols::kernel().ok();
    match form {
        Symbolic::KernelSimple => match symbols.and_then(|s| s.resolve(addr)) {
            Some((symbol, offset)) => {
                let module = symbol.module.unwrap_or("kernel");
                format!("{}+{offset:#x} [{module}]\n", symbol.name)
            }
            None => format!("{addr:#x}\n"),
        },
        Symbolic::KernelFileLine | Symbolic::KernelFile | Symbolic::KernelLine => {
            match (line(addr), form) {
                (Some((file, n)), Symbolic::KernelFileLine) => format!("{file}:{n}"),
                (Some((file, _)), Symbolic::KernelFile) => file,
                (Some((_, n)), _) => n.to_string(),
                (None, _) => format!("{addr:#x}"),
            }
        }
        Symbolic::KernelFileLines => {
            let data = symbol_data(addr);
            let place = line(addr).map(|(file, n)| format!(" at {file}:{n}"));
            let (name, module) = data.split_at(data.find(" [").unwrap_or(data.len()));
            format!(" {addr:#x} : {name}{}{module}\n", place.unwrap_or_default())
        }
        _ => format!(" {addr:#x} : {}\n", symbol_data(addr)),
    }
}

/// One place in a form. What is not known is left out; without a symbol stands the address.
fn user_text(form: Symbolic, place: Place, files: &mut UserFiles) -> String {
    let found = files.find(place);
    let addr = place.addr.unwrap_or(found.linked + place.back);
    let module = found.module.as_deref();
    let base = |m: &str| m.rsplit('/').next().unwrap_or(m).to_owned();
    let offset = found.linked + place.back;
    let inside = |m: &str| format!("{addr:#x} [{m}+{offset:#x}]");
    // `at` is a place in the source: behind the symbol, or behind the module where there is none.
    let data = |at: &str| match (&found.symbol, module) {
        (Some((name, offset, size)), Some(m)) => {
            format!("{name}+{offset:#x}/{size:#x}{at} [{m}]")
        }
        (Some((name, offset, size)), None) => format!("{name}+{offset:#x}/{size:#x}{at}"),
        (None, Some(m)) => format!("{addr:#x} [{m}+{offset:#x}/{:#x}]{at}", found.size),
        (None, None) => format!("{addr:#x}{at}"),
    };
    let name = || match &found.symbol {
        Some((name, ..)) => name.clone(),
        None => format!("{addr:#x}"),
    };
    let line = |at: &str| match found.symbol {
        Some(_) => format!(" {addr:#x} : {}\n", data(at)),
        None => format!(" {}\n", data(at)),
    };
    match form {
        Symbolic::UserLines => line(""),
        Symbolic::UserFileLines => match files.line(place) {
            Some((file, n)) => line(&format!(" at {file}:{n}")),
            None => line(""),
        },
        Symbolic::UserSimple | Symbolic::UserSimpleLines => {
            let lines = form == Symbolic::UserSimpleLines;
            let at = lines.then(|| files.line(place)).flatten();
            let at = at.map_or_else(String::new, |(file, n)| format!(" at {file}:{n}"));
            match (&found.symbol, module) {
                (Some((name, offset, _)), Some(m)) => {
                    format!("{name}+{offset:#x}{at} [{}]\n", base(m))
                }
                (Some((name, offset, _)), None) => format!("{name}+{offset:#x}{at}\n"),
                (None, Some(m)) => format!("{}{at}\n", inside(&base(m))),
                (None, None) => format!("{addr:#x}\n"),
            }
        }
        Symbolic::UserBrief => match &found.symbol {
            Some((name, offset, _)) => format!("{name}+{offset:#x}\n"),
            None => format!("{addr:#x}\n"),
        },
        Symbolic::UserName => name(),
        Symbolic::UserPlace => match files.line(place) {
            Some((file, n)) => format!("{}\t{file}:{n}", name()),
            None => format!("{}\t{addr:#x}", name()),
        },
        Symbolic::UserData => data(""),
        Symbolic::UserModule => module.unwrap_or("<unknown>").to_owned(),
        Symbolic::UserFileLine | Symbolic::UserFile | Symbolic::UserLine => {
            match (files.line(place), form) {
                (Some((file, n)), Symbolic::UserFileLine) => format!("{file}:{n}"),
                (Some((file, _)), Symbolic::UserFile) => file,
                (Some((_, n)), _) => n.to_string(),
                (None, _) => format!("{addr:#x}"),
            }
        }
        _ => String::new(),
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

/// What the names of the functions begin with that run programs at raw tracepoints.
const RUN: &str = "bpf_trace_run";

/// Tells kernel handlers which functions belong to the machinery of probes.
pub fn set_stack_words(state: &State, words: &StackWords) {
    let Ok(symbols) = Symbols::kernel() else {
        return;
    };
    let range = |start: u64| Some((start, symbols.end_of(start)?));
    let set = |at: u32, range: Option<(u64, u64)>| {
        let (start, end) = range.unwrap_or_default();
        state.shared(words.at + at).store(start, Ordering::Relaxed);
        state
            .shared(words.at + at + 8)
            .store(end, Ordering::Relaxed);
    };
    // They are close to each other, in an order of the compiler's: 8 to 12 come before 1 in some.
    let numbered = |name: &str| {
        let number = name.strip_prefix(RUN);
        number.is_some_and(|n| n.bytes().all(|c| c.is_ascii_digit()))
    };
    let run = symbols
        .starting_with(RUN)
        .filter(|s| numbered(s.name))
        .filter_map(|s| range(s.address))
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        .filter(|r| r.1 - r.0 < 1 << 16);
    set(stack_words::RUN, run);
    let mut at = stack_words::POINTS;
    for point in &words.points {
        for function in ["__bpf_trace_", "__traceiter_"] {
            let name = format!("{function}{point}");
            set(at, symbols.address_of(&name).and_then(range));
            at += 16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_the_source() {
        let mut line = |at| (at == 7).then(|| ("a/b.c".to_owned(), 12));
        let mut text = |form, at| kernel_text(form, at, &mut line);
        assert_eq!(text(Symbolic::KernelFileLine, 7), "a/b.c:12");
        assert_eq!(text(Symbolic::KernelFile, 7), "a/b.c");
        assert_eq!(text(Symbolic::KernelLine, 7), "12");
        assert_eq!(text(Symbolic::KernelFileLine, 8), "0x8");
        assert_eq!(
            text(Symbolic::KernelFileLines, 7),
            " 0x7 : 0x7 at a/b.c:12\n"
        );
        assert_eq!(text(Symbolic::KernelFileLines, 8), " 0x8 : 0x8\n");
    }

    #[test]
    fn lines_of_addresses() {
        let word = *b"0123456789abcdef";
        let symbolizer = Symbolizer::new(word, None);
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
        // As keys, texts of addresses are what is equal; of stacks the marks are.
        let whole = |t: &[u8]| symbolizer.whole(&Value::from(t));
        let line = whole(b"at 0123456789abcdefJ0x8;");
        assert_eq!(line.as_ref().map(Value::as_bytes), Some(&b"at 0x8"[..]));
        assert!(whole(b"0123456789abcdefC0x8 0x9;").is_none());
        assert!(whole(b"plain").is_none());
    }
}
