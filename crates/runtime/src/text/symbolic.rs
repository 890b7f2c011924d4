//! Symbolic texts of stacks and symbols, which kernel handlers leave to the controller: see
//! [`spile_layout::SymbolicForm`].

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use spile_ir::Ty;
use spile_ir::interp::Value;
use spile_ir::wide::WideNumber;
use spile_kernel::symbols::Symbols;
use spile_layout::{COPIED, EXACT, StackWords, SymbolicForm, stack_words};

use crate::machine::names::symbol_data;
use crate::shared::ring_record::{FieldValue, OutputRecord};
use crate::shared::state::StateMemory;
use crate::text::deferred::WORD;
use crate::text::kernel_files::KernelLines;
use crate::text::user_files::{FrameInfo, FrameLocation, UserFiles};

/// Renders symbolic texts.
#[derive(Default)]
pub struct Symbolizer {
    /// The session's word, if kernel handlers send marks.
    word: Option<[u8; WORD]>,
    /// Limit on the length of a string.
    longest: usize,
    /// Limit on the frames of a stack.
    frames: usize,
    /// Whether a key is the whole text of its marks, however long.
    pub whole_keys: bool,
    files: RefCell<Option<UserFiles>>,
    kernel: RefCell<KernelLines>,
    keys: RefCell<KeyTexts>,
}

/// Limit on the number of keys that are remembered.
const KEYS: usize = 1 << 16;

/// Rendered texts as keys of arrays.
#[derive(Default)]
struct KeyTexts {
    /// The keys that marks have become.
    made: HashMap<(Value, Ty), Value>,
    /// For each truncated key, the mark of the whole text and the text's hash; `None` if several
    /// texts have become this key.
    full_keys: HashMap<Value, Option<(Value, u64)>>,
    cut: u64,
}

impl KeyTexts {
    /// Notes the whole text of a truncated key.
    fn note_key(&mut self, cut: &Value, mark: &Value, text: &Value) {
        let mut hasher = DefaultHasher::new();
        text.as_bytes().hash(&mut hasher);
        let hash = hasher.finish();
        if self.full_keys.len() >= KEYS {
            self.full_keys.clear();
        }
        let first = || Some((mark.clone(), hash));
        let full_key = self.full_keys.entry(cut.clone()).or_insert_with(first);
        if full_key.as_ref().is_some_and(|k| k.1 != hash) {
            *full_key = None;
            self.cut += 1;
        }
    }
}

impl Symbolizer {
    /// Without marks, for strings of at most `longest` bytes.
    pub fn without_marks(longest: usize) -> Symbolizer {
        Symbolizer {
            longest,
            ..Symbolizer::default()
        }
    }

    /// For marks with that word, in strings of limited length, with stacks of limited depth, and
    /// the user files.
    pub fn new(
        word: [u8; WORD],
        (longest, frames): (usize, usize),
        files: Option<UserFiles>,
    ) -> Symbolizer {
        Symbolizer {
            word: Some(word),
            longest,
            frames,
            files: RefCell::new(files),
            ..Symbolizer::default()
        }
    }

    /// Numbers of files whose unwind rows, and whose symbols or lines, did not fit.
    pub fn files_without_space(&self) -> (u64, u64) {
        let files = self.files.borrow();
        let files = files.as_ref();
        files.map_or((0, 0), |f| (f.without_rows, f.without_names))
    }

    /// Number of lines with names of generated code that could not be read.
    pub fn bad_names(&self) -> u64 {
        self.files.borrow().as_ref().map_or(0, UserFiles::bad_names)
    }

    /// Learns a new file: see [`UserFiles::learn`].
    pub fn learn_file(&self, fields: &[FieldValue<'_>]) -> Option<bool> {
        self.keys.borrow_mut().made.clear();
        self.files.borrow_mut().as_mut()?.learn_file(fields)
    }

    /// A descriptor that is readable when [`Symbolizer::take_read`] has work to do.
    pub fn ready(&self) -> Option<OwnedFd> {
        let files = self.files.borrow();
        files.as_ref()?.ready().try_clone_to_owned().ok()
    }

    /// Installs the tables of files that were read.
    pub fn take_read(&self) {
        if let Some(files) = self.files.borrow_mut().as_mut() {
            files.take_read();
        }
    }

    /// Learns a copy of a stack: see [`UserFiles::learn_copy`].
    pub fn learn_copy(&self, piece: &OutputRecord<'_>) -> Option<()> {
        self.files
            .borrow_mut()
            .as_mut()?
            .learn_copy(piece, self.frames)
    }

    /// Number of stacks that could not be completed.
    pub fn unfinished(&self) -> u64 {
        self.files.borrow().as_ref().map_or(0, |f| f.unfinished)
    }

    /// A mark for the lines of addresses until they are printed, in the form that kernel handlers
    /// use: the text can exceed a string's limit.
    pub fn mark(&mut self, form: SymbolicForm, addresses: &[u8]) -> Vec<u8> {
        let word = self.word.get_or_insert_with(|| {
            let number = RandomState::new().build_hasher().finish();
            let mut word = [b'0'; WORD];
            let digits = format!("{number:016x}");
            word.iter_mut()
                .zip(digits.bytes())
                .for_each(|(to, b)| *to = b);
            word
        });
        let mut mark = word.to_vec();
        mark.push(form.letter());
        for (i, addr) in numbers(addresses).enumerate() {
            let space = if i > 0 { " " } else { "" };
            mark.extend_from_slice(format!("{space}{addr:x}").as_bytes());
        }
        mark.push(b';');
        mark
    }

    /// The text of a form by its number; empty if there is no such form.
    pub fn text(&self, form: i64, numbers: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(form) = SymbolicForm::by_number(form) {
            self.append(form, numbers, &mut out);
        }
        out
    }

    /// The key for a string with marks: its text, truncated to the width of such keys unless keys are whole, and whether
    /// all files in it are known by now. `None` for any other string.
    ///
    /// Several marks can have one text, and several texts can be equal after truncation.
    pub fn key(&self, key: &Value, ty: Ty) -> Option<(Value, bool)> {
        if !self.has_mark(key.as_bytes()) {
            return None;
        }
        let mut keys = self.keys.borrow_mut();
        let made = (key.clone(), ty);
        if let Some(known) = keys.made.get(&made) {
            return Some((known.clone(), true));
        }
        self.take_requests();
        let text = Value::from(&*self.render(key.as_bytes()));
        let (unknown, changing) = self.take_requests();
        let (cut, is_cut) = text.clone().truncated_to(ty);
        let cut = if self.whole_keys { text.clone() } else { cut };
        if is_cut {
            keys.note_key(&cut, key, &text);
        }
        if !unknown && !changing {
            if keys.made.len() >= KEYS {
                keys.made.clear();
            }
            keys.made.insert(made, cut.clone());
        }
        Some((cut, !unknown))
    }

    /// The value that an iteration returns for a key: the mark whose text begins with it, if there
    /// is only one.
    pub fn key_mark(&self, key: &Value) -> Option<Value> {
        let keys = self.keys.borrow();
        let (mark, _) = keys.full_keys.get(key)?.as_ref()?;
        Some(mark.clone())
    }

    /// Number of truncated keys that several texts share.
    pub fn cut_keys(&self) -> u64 {
        self.keys.borrow().cut
    }

    fn has_mark(&self, text: &[u8]) -> bool {
        let word = self.word.as_ref();
        word.is_some_and(|word| text.windows(WORD).any(|w| w == word))
    }

    /// Whether an unknown file was requested since the last call, and whether run-time generated
    /// code was.
    fn take_requests(&self) -> (bool, bool) {
        let mut files = self.files.borrow_mut();
        let Some(files) = files.as_mut() else {
            return (false, false);
        };
        let met = (files.met_unknown, files.met_made);
        (files.met_unknown, files.met_made) = (false, false);
        met
    }

    /// A string with its marks replaced by their texts. Of a truncated mark, complete frames are
    /// rendered, but not a possibly incomplete one.
    pub fn render<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let Some(word) = &self.word else {
            return text.into();
        };
        let mut rest = text;
        let mut out = Vec::new();
        while let Some(start) = rest.windows(WORD).position(|w| w == word) {
            let (before, mark) = rest.split_at(start);
            out.extend_from_slice(before);
            rest = &mark[WORD..];
            let Some(form) = rest.first().and_then(|b| SymbolicForm::by_letter(*b)) else {
                continue;
            };
            let end = rest.iter().position(|b| *b == b';');
            let content = match end {
                Some(end) => &rest[1..end],
                None => {
                    let last = rest.iter().rposition(|b| *b == b' ');
                    &rest[1..last.unwrap_or(1)]
                }
            };
            self.append(form, content, &mut out);
            rest = end.map_or(&[][..], |end| &rest[end + 1..]);
        }
        if text.len() == self.longest {
            // A mark of which only a part of the word is left.
            let parts = (1..WORD).rev().find(|n| rest.ends_with(&word[..*n]));
            // Without a whole mark, a few characters may be ordinary text.
            let parts = parts.filter(|n| rest.len() < text.len() || *n >= WORD / 2);
            rest = &rest[..rest.len() - parts.unwrap_or(0)];
        }
        if rest.len() == text.len() {
            return text.into();
        }
        out.extend_from_slice(rest);
        out.into()
    }

    fn append(&self, form: SymbolicForm, content: &[u8], out: &mut Vec<u8>) {
        if form == SymbolicForm::Number {
            let words: Vec<u64> = numbers(content).collect();
            let kind = words.first().and_then(|n| WideNumber::by_number(*n));
            let text = kind.map(|kind| kind.text(&words[1..]));
            return out.extend_from_slice(text.unwrap_or_default().as_bytes());
        }
        if !form.of_kernel() {
            return self.append_user(form, content, out);
        }
        let mut lines = self.kernel.borrow_mut();
        let start = out.len();
        for (i, addr) in numbers(content).enumerate() {
            // Frames behind the first are return addresses.
            let back = u64::from(form == SymbolicForm::KernelFileLines && i > 0);
            let text = kernel_text(form, addr, &mut |addr| {
                lines.line(addr.saturating_sub(back)).map(escaped_file)
            });
            if form == SymbolicForm::KernelWholeLines
                && out.len() - start + text.len() > self.longest
            {
                break;
            }
            out.extend_from_slice(text.as_bytes());
        }
    }

    fn append_user(&self, form: SymbolicForm, content: &[u8], out: &mut Vec<u8>) {
        let mut files = self.files.borrow_mut();
        let Some(files) = files.as_mut() else {
            return;
        };
        for (i, word) in content.split(|b| *b == b' ').enumerate() {
            let Some(location) = location(word) else {
                continue;
            };
            let frames = if location.file == COPIED.into() {
                // The mark for further addresses contains the number of those before.
                let before = i.max(location.addr.unwrap_or(0).try_into().unwrap_or(i));
                let left = self.frames.saturating_sub(before);
                files
                    .frames_of_copy(location.offset)
                    .into_iter()
                    .take(left)
                    .collect()
            } else {
                vec![location]
            };
            for (n, mut location) in frames.into_iter().enumerate() {
                if n > 0 && form == SymbolicForm::UserAddresses {
                    out.push(b' ');
                }
                location.back = u64::from(form.of_stack() && i > 0 && location.offset & EXACT == 0);
                location.offset &= !EXACT;
                out.extend_from_slice(user_text(form, location, files).as_bytes());
            }
        }
    }
}

/// Parses the numbers of a frame: see `crates/bpf/src/lower/event/unwind/mod.rs`.
fn location(word: &[u8]) -> Option<FrameLocation> {
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
    Some(FrameLocation {
        addr,
        file,
        offset,
        back: 0,
    })
}

/// A kernel address in a form; `line` finds positions in the source. As in SystemTap, the address
/// replaces an unknown position.
fn kernel_text(
    form: SymbolicForm,
    addr: u64,
    line: &mut dyn FnMut(u64) -> Option<(String, u32)>,
) -> String {
    let symbols = Symbols::kernel().ok();
    match form {
        SymbolicForm::KernelSimple => match symbols.and_then(|s| s.resolve(addr)) {
            Some((symbol, offset)) => {
                let module = symbol.module.unwrap_or("kernel");
                let name = spile_plain::name(symbol.name);
                format!("{name}+{offset:#x} [{module}]\n")
            }
            None => format!("{addr:#x}\n"),
        },
        SymbolicForm::KernelFileLine | SymbolicForm::KernelFile | SymbolicForm::KernelLine => {
            position_text(form, line(addr), addr)
        }
        SymbolicForm::KernelFileLines => {
            let data = symbol_data(addr);
            let location = line(addr).map(|(file, n)| format!(" at {file}:{n}"));
            let (name, module) = data.split_at(data.find(" [").unwrap_or(data.len()));
            format!(
                " {addr:#x} : {name}{}{module}\n",
                location.unwrap_or_default()
            )
        }
        _ => format!(" {addr:#x} : {}\n", symbol_data(addr)),
    }
}

/// An external name without terminal control characters.
fn escaped_name(name: String) -> String {
    match spile_plain::name(&name) {
        Cow::Owned(plain) => plain,
        Cow::Borrowed(_) => name,
    }
}

fn escaped_file((file, line): (String, u32)) -> (String, u32) {
    (escaped_name(file), line)
}

/// A position in the source, its file or its line; the address if it is unknown.
fn position_text(form: SymbolicForm, position: Option<(String, u32)>, addr: u64) -> String {
    use SymbolicForm::{KernelFile, KernelFileLine, UserFile, UserFileLine};
    match (position, form) {
        (Some((file, n)), KernelFileLine | UserFileLine) => format!("{file}:{n}"),
        (Some((file, _)), KernelFile | UserFile) => file,
        (Some((_, n)), _) => n.to_string(),
        (None, _) => format!("{addr:#x}"),
    }
}

/// One frame in a form. Unknown parts are omitted; without a symbol the address is printed.
fn user_text(form: SymbolicForm, location: FrameLocation, files: &mut UserFiles) -> String {
    let FrameInfo {
        symbol,
        module,
        linked,
        size: file_size,
    } = files.find(location);
    let symbol = symbol.map(|(name, offset, size)| (escaped_name(name), offset, size));
    let module = module.map(escaped_name);
    let module = module.as_deref();
    let offset = linked + location.back;
    let addr = location.addr.unwrap_or(offset);
    let base = |m: &str| m.rsplit('/').next().unwrap_or(m).to_owned();
    let inside = |m: &str| format!("{addr:#x} [{m}+{offset:#x}]");
    // `source` is a position in the source: behind the symbol, or behind the module if there is no
    // symbol.
    let data = |source: &str| match (&symbol, module) {
        (Some((name, offset, size)), Some(m)) => {
            format!("{name}+{offset:#x}/{size:#x}{source} [{m}]")
        }
        (Some((name, offset, size)), None) => format!("{name}+{offset:#x}/{size:#x}{source}"),
        (None, Some(m)) => format!("{addr:#x} [{m}+{offset:#x}/{:#x}]{source}", file_size),
        (None, None) => format!("{addr:#x}{source}"),
    };
    let name = || match &symbol {
        Some((name, ..)) => name.clone(),
        None => format!("{addr:#x}"),
    };
    let line = |source: &str| match symbol {
        Some(_) => format!(" {addr:#x} : {}\n", data(source)),
        None => format!(" {}\n", data(source)),
    };
    let mut position = || files.line(location).map(escaped_file);
    let suffix = |(file, n): (String, u32)| format!(" at {file}:{n}");
    match form {
        SymbolicForm::UserLines => line(""),
        SymbolicForm::UserFileLines => line(&position().map(suffix).unwrap_or_default()),
        SymbolicForm::UserSimple | SymbolicForm::UserSimpleLines => {
            let lines = form == SymbolicForm::UserSimpleLines;
            let source = if lines { position().map(suffix) } else { None }.unwrap_or_default();
            match (&symbol, module) {
                (Some((name, offset, _)), Some(m)) => {
                    format!("{name}+{offset:#x}{source} [{}]\n", base(m))
                }
                (Some((name, offset, _)), None) => format!("{name}+{offset:#x}{source}\n"),
                (None, Some(m)) => format!("{}{source}\n", inside(&base(m))),
                (None, None) => format!("{addr:#x}\n"),
            }
        }
        SymbolicForm::UserBrief => match &symbol {
            Some((name, offset, _)) => format!("{name}+{offset:#x}\n"),
            None => format!("{addr:#x}\n"),
        },
        SymbolicForm::UserAddresses => format!("{addr:#x}"),
        SymbolicForm::UserAddressLines => format!(" {addr:#x} : {}\n", data("")),
        SymbolicForm::UserName => name(),
        SymbolicForm::UserLocation => match position() {
            Some((file, n)) => format!("{}\t{file}:{n}", name()),
            None => format!("{}\t{addr:#x}", name()),
        },
        SymbolicForm::UserOffset => match module {
            Some(m) => format!("{m}+{offset:#x}"),
            None => format!("{addr:#x}"),
        },
        SymbolicForm::UserData => data(""),
        SymbolicForm::UserModule => module.unwrap_or("<unknown>").to_owned(),
        SymbolicForm::UserFileLine | SymbolicForm::UserFile | SymbolicForm::UserLine => {
            position_text(form, position(), addr)
        }
        _ => String::new(),
    }
}

/// The hexadecimal numbers in a text, with `0x` or without; skips other words.
fn numbers(text: &[u8]) -> impl Iterator<Item = u64> {
    let words = text.split(|b| b.is_ascii_whitespace());
    words.filter_map(|w| {
        let word = w.strip_prefix(b"0x").unwrap_or(w);
        u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()
    })
}

/// Prefix of the names of functions that run programs at raw tracepoints.
const RUN: &str = "bpf_trace_run";

/// Stores the address ranges of the probe machinery for kernel handlers.
pub fn set_stack_words(state: &StateMemory, words: &StackWords) {
    let Ok(symbols) = Symbols::kernel() else {
        return;
    };
    let range = |start: u64| Some((start, symbols.end_of(start)?));
    let set = |offset: u32, range: Option<(u64, u64)>| {
        let (start, end) = range.unwrap_or_default();
        state
            .shared(words.offset + offset)
            .store(start, Ordering::Relaxed);
        state
            .shared(words.offset + offset + 8)
            .store(end, Ordering::Relaxed);
    };
    // They are adjacent, in the compiler's order: in some kernels 8 to 12 precede 1.
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
    let mut offset = stack_words::POINTS;
    for point in &words.points {
        for function in ["__bpf_trace_", "__traceiter_"] {
            let name = format!("{function}{point}");
            set(offset, symbols.address_of(&name).and_then(range));
            offset += 16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_locations_in_the_source() {
        let mut line = |at| (at == 7).then(|| ("a/b.c".to_owned(), 12));
        let mut text = |form, at| kernel_text(form, at, &mut line);
        assert_eq!(text(SymbolicForm::KernelFileLine, 7), "a/b.c:12");
        assert_eq!(text(SymbolicForm::KernelFile, 7), "a/b.c");
        assert_eq!(text(SymbolicForm::KernelLine, 7), "12");
        assert_eq!(text(SymbolicForm::KernelFileLine, 8), "0x8");
        assert_eq!(
            text(SymbolicForm::KernelFileLines, 7),
            " 0x7 : 0x7 at a/b.c:12\n"
        );
        assert_eq!(text(SymbolicForm::KernelFileLines, 8), " 0x8 : 0x8\n");
    }

    #[test]
    fn marks_of_addresses_become_lines() {
        let word = *b"0123456789abcdef";
        let symbolizer = Symbolizer::new(word, (40, 20), None);
        let fill = |t: &[u8]| String::from_utf8_lossy(&symbolizer.render(t)).into_owned();
        assert_eq!(fill(b"plain"), "plain");
        assert_eq!(
            fill(b"a0123456789abcdefK0x1 2 zz 0x3;b"),
            "a 0x1 : 0x1\n 0x2 : 0x2\n 0x3 : 0x3\nb"
        );
        assert_eq!(
            fill(b"0123456789abcdefK0x1 0x2 0x"),
            " 0x1 : 0x1\n 0x2 : 0x2\n"
        );
        assert_eq!(fill(b"0123456789abcdefJ0x"), "");
        assert_eq!(
            fill(b"0123456789abcdefK0x1;, 0123456789abcdefz"),
            " 0x1 : 0x1\n, z"
        );
        let cut = b"0123456789abcdefK0x1;, and more 01234567";
        assert_eq!((cut.len(), &*fill(cut)), (40, " 0x1 : 0x1\n, and more "));
        assert_eq!(fill(b"0123456789abcdefK;!"), "!");
        let part = b"................................01234567";
        assert_eq!((part.len(), &*fill(part)), (40, &".".repeat(32)[..]));
        let text = b".................................0123456";
        assert_eq!((text.len(), fill(text).as_bytes()), (40, &text[..]));
        assert_eq!(symbolizer.text(0, b"1"), b" 0x1 : 0x1\n");
        let key = |t: &[u8], width| symbolizer.key(&Value::from(t), Ty::Str(width));
        let line = key(b"at 0123456789abcdefJ0x8;", 512);
        assert_eq!(line, Some(("at 0x8".into(), true)));
        assert!(key(b"plain", 512).is_none());
        // Whole while one text begins with it, truncated once there are two.
        let [one, two] = [
            &b"0123456789abcdefK0x8 0x19;"[..],
            b"0123456789abcdefK0x8 0x1a;",
        ];
        let cut = Value::from(" 0x8 : 0x8\n 0x1");
        assert_eq!(key(one, 16), Some((cut.clone(), true)));
        assert_eq!(symbolizer.key_mark(&cut), Some(Value::from(one)));
        assert_eq!(key(two, 16), Some((cut.clone(), true)));
        assert_eq!(
            (symbolizer.key_mark(&cut), symbolizer.cut_keys()),
            (None, 1)
        );
        // Keys that are whole texts stay apart.
        let mut symbolizer = Symbolizer::new(word, (40, 20), None);
        symbolizer.whole_keys = true;
        for mark in [one, two] {
            let (key, _) = symbolizer
                .key(&Value::from(mark), Ty::Str(16))
                .expect("a mark");
            assert_eq!(key.as_bytes(), symbolizer.render(mark).as_ref());
            assert_eq!(symbolizer.key_mark(&key), Some(Value::from(mark)));
        }
        assert_eq!(symbolizer.cut_keys(), 0);
    }
}
