//! Locations in programs from the texts of `sprint_ubacktrace_fileline()` and `usymdata()`.

use std::borrow::Borrow;
use std::collections::HashMap;

use spile_profile::SharedFrames;
use spile_profile::model::{Frame, Snapshot, StackFrame};
use spile_runtime::text::user_files::JitNames;

/// Functions of the C library that call `main`.
const BEFORE_MAIN: [&str; 3] = [
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
];

/// The first functions of programs and threads, which belong to the C library and the linker.
const BEGINNINGS: [&str; 6] = [
    "_start",
    "start_thread",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
];

/// The kernel's first functions in a system call or a page fault.
const KERNEL_ENTRIES: [&str; 8] = [
    "entry_SYSCALL_64",
    "entry_SYSCALL_64_after_hwframe",
    "do_syscall_64",
    "x64_sys_call",
    "ret_from_fork_asm",
    "asm_exc_page_fault",
    "el0t_64_sync",
    "el0t_64_sync_handler",
];

/// Leaves out the kernel's first functions, which are on the path of every call.
pub(super) fn ends_in_kernel(frames: &mut Vec<Frame>) {
    while frames
        .last()
        .is_some_and(|f| KERNEL_ENTRIES.contains(&&*f.function))
    {
        frames.pop();
    }
}

/// The frames of lines that were parsed before: accounts repeat most stacks of those before them.
#[derive(Debug, Default)]
pub(super) struct FrameLines(HashMap<String, Frame>);

impl FrameLines {
    /// Number of lines at most: generated code can have any number.
    const MOST: usize = 1 << 17;

    /// The frames of a stack with a line each.
    pub(super) fn frames(&mut self, stack: &str, shared: &mut SharedFrames) -> Vec<Frame> {
        if self.0.len() > FrameLines::MOST {
            self.0.clear();
        }
        let mut parsed = |line: &str| {
            if let Some(known) = self.0.get(line) {
                return Frame::clone(known);
            }
            let new = shared.frame(frame(line));
            self.0.insert(line.to_owned(), Frame::clone(&new));
            new
        };
        stack.lines().map(&mut parsed).collect()
    }
}

/// Parses a line `NAME+0xOFFSET at FILE:LINE [MODULE]`; all parts but the first can be missing.
pub(super) fn frame(line: &str) -> StackFrame {
    let (rest, module) = match line.rsplit_once(" [") {
        Some((rest, module)) => (rest, module.strip_suffix(']')),
        None => (line, None),
    };
    let (rest, location) = match rest.rsplit_once(" at ") {
        Some((rest, location)) => (rest, location.rsplit_once(':')),
        None => (rest, None),
    };
    let Some(function) = symbol(rest) else {
        // An address in the process, where there is no name. The offset in the file is more useful.
        let (module, offset) = match module.and_then(|m| m.rsplit_once('+')) {
            Some((module, offset)) => (Some(module), Some(offset)),
            None => (module, None),
        };
        return StackFrame {
            function: offset.unwrap_or(rest).to_owned(),
            module: module.map(str::to_owned),
            ..StackFrame::default()
        };
    };
    if module.is_none()
        && location.is_none()
        && let Some(frame) = generated(function)
    {
        return frame;
    }
    StackFrame {
        function: plain(function).to_owned(),
        module: module.map(str::to_owned),
        file: location.map(|p| p.0.to_owned()),
        line: location.and_then(|p| p.1.parse().ok()),
    }
}

/// A function's name without what compilers and the C library add: the suffixes of copies and parts
/// (`.constprop.0`, `.part.1`, `.cold`), and the prefix of internal names of exported functions.
fn plain(function: &str) -> &str {
    const COPIES: [&str; 6] = [
        ".constprop.",
        ".isra.",
        ".part.",
        ".cold",
        ".lto_priv.",
        ".llvm.",
    ];
    let function = function.strip_prefix("__GI_").unwrap_or(function);
    let ends = COPIES
        .iter()
        .filter_map(|mark| function.find(mark))
        .filter(|end| *end > 0);
    &function[..ends.min().unwrap_or(function.len())]
}

/// The function, file and line in a name of generated code: `JS:*f /a/b.js:1:23` of V8, whose marks tell how the code
/// was compiled, `py::f:/a/b.py` of CPython, or `long a.B.f(int)` of Java.
fn generated(name: &str) -> Option<StackFrame> {
    if let Some((function, file)) = name.strip_prefix("py::").and_then(|n| n.split_once(':')) {
        return Some(StackFrame {
            function: function.to_owned(),
            file: Some(file.to_owned()),
            ..StackFrame::default()
        });
    }
    let method = name
        .split_once('(')
        .and_then(|(method, _)| method.rsplit(' ').next());
    if let Some(method) = method.filter(|method| method.contains('.')) {
        return Some(StackFrame {
            function: method.to_owned(),
            ..StackFrame::default()
        });
    }
    let (kind, rest) = name.split_once(':')?;
    if !["JS", "LazyCompile", "Function", "Script", "Eval"].contains(&kind) {
        return None;
    }
    let rest = rest.trim_start_matches(['*', '~', '^', '+', '\'']);
    let (function, location) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut parts = location.rsplitn(3, ':');
    let (_column, line, file) = (parts.next(), parts.next(), parts.next());
    let line = line.and_then(|line| line.parse().ok());
    Some(StackFrame {
        function: if function.is_empty() {
            "(anonymous)"
        } else {
            function
        }
        .to_owned(),
        file: file.filter(|_| line.is_some()).map(str::to_owned),
        line,
        ..StackFrame::default()
    })
}

/// Names the functions of generated code that programs wrote after the stacks were recorded, as Java does at its end.
pub(super) fn name_generated_code(data: &mut Snapshot) {
    let processes: HashMap<u32, u32> = data.threads.iter().map(|t| (t.tid, t.pid)).collect();
    let mut names: HashMap<u32, JitNames> = HashMap::new();
    let stacks = data.stacks.iter_mut().map(|s| (s.tid, &mut s.frames));
    let samples = data.samples.iter_mut().map(|s| (s.tid, &mut s.frames));
    let wakers = data
        .wakers
        .iter_mut()
        .filter_map(|w| Some((w.waker?, &mut w.frames)));
    for (tid, frames) in stacks.chain(samples).chain(wakers) {
        let Some(process) = processes.get(&tid) else {
            continue;
        };
        for frame in frames.iter_mut().filter(|f| f.module.is_none()) {
            let digits = frame.function.strip_prefix("0x");
            let Some(address) = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok())
            else {
                continue;
            };
            let names = names
                .entry(*process)
                .or_insert_with(|| JitNames::of(*process));
            if let Some(name) = names.name(address) {
                *frame = Frame::new(generated(name).unwrap_or_else(|| StackFrame {
                    function: name.to_owned(),
                    ..StackFrame::default()
                }));
            }
        }
    }
}

/// The name in front of `+0xOFFSET`.
fn symbol(text: &str) -> Option<&str> {
    let (name, offset) = text.rsplit_once("+0x")?;
    let digits = !offset.is_empty() && offset.bytes().all(|b| b.is_ascii_hexdigit());
    (digits && !name.is_empty()).then_some(name)
}

/// The file and the address in it of `FILE+0xADDRESS`, or the address in the process where there is
/// no file. Both are `None` if no location was announced.
pub(super) fn in_file(text: &str) -> (Option<String>, Option<u64>) {
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let (module, address) = match text.rsplit_once("+0x") {
        Some((module, digits)) => (Some(module.to_owned()), number(digits)),
        None => (None, text.strip_prefix("0x").and_then(number)),
    };
    // (One less than a null address.)
    (module, address.filter(|a| *a != u64::MAX))
}

/// Leaves out the callers of the program's or the thread's first function.
pub(crate) fn ends_path<F: Borrow<StackFrame>>(frames: &mut Vec<F>) {
    let is_one = |f: &F, names: &[&str]| names.contains(&&*f.borrow().function);
    if let Some(index) = frames.iter().position(|f| is_one(f, &BEFORE_MAIN)) {
        frames.truncate(index.max(1));
    }
    while frames.len() > 1 && frames.last().is_some_and(|f| is_one(f, &BEGINNINGS)) {
        frames.pop();
    }
}

/// Whether a stack has the first function of its thread.
pub(super) fn reaches_beginning(stack: &str) -> bool {
    let names = || BEFORE_MAIN.iter().chain(&BEGINNINGS);
    stack
        .lines()
        .any(|line| names().any(|name| frame(line).function == *name))
}

/// The variable in `NAME+0xOFFSET/0xSIZE [FILE]`, with the offset if it is not 0.
pub(super) fn variable(text: &str) -> Option<String> {
    let location = text.split(" [").next()?;
    let (location, _size) = location.rsplit_once('/')?;
    symbol(location)?;
    Some(location.strip_suffix("+0x0").unwrap_or(location).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_stacks_become_frames() {
        let of = |line| {
            let f = frame(line);
            let text = |t: Option<String>| t.unwrap_or_default();
            format!(
                "{}|{}|{}|{}",
                f.function,
                text(f.module),
                text(f.file),
                f.line.unwrap_or(0)
            )
        };
        assert_eq!(of("main+0x1f [a b]"), "main|a b||0");
        assert_eq!(
            of("f<x at y>::g+0x0 at a/b c.rs:12 [p]"),
            "f<x at y>::g|p|a/b c.rs|12"
        );
        assert_eq!(of("f+0x3"), "f|||0");
        assert_eq!(of("__GI___clone3+0x3 [libc.so.6]"), "__clone3|libc.so.6||0");
        assert_eq!(of("0x7f001234 [lib.so.6+0x1234]"), "0x1234|lib.so.6||0");
        assert_eq!(of("0x7f001234"), "0x7f001234|||0");
        assert_eq!(of("operator++0x3 [p]"), "operator+|p||0");
        assert_eq!(of("f.isra.0.part.1+0x3 [p]"), "f|p||0");
        assert_eq!(of("JS:*f /a b/c:d.js:1:23+0x1f"), "f||/a b/c:d.js|1");
        assert_eq!(
            of("LazyCompile:~ node:fs:7:2+0x1f"),
            "(anonymous)||node:fs|7"
        );
        assert_eq!(of("JS:^f+0x1f"), "f|||0");
        assert_eq!(of("py::C.f:/a/b.py+0x3"), "C.f||/a/b.py|0");
        assert_eq!(of("int[] a.B$1.f(int, a.C)+0x3"), "a.B$1.f|||0");
        assert_eq!(of("StubRoutines (1)+0x3"), "StubRoutines (1)|||0");
        assert_eq!(of("JS:*f /c.js:1:23+0x1 [p]"), "JS:*f /c.js:1:23|p||0");
        assert_eq!(of(""), "|||0");
    }

    #[test]
    fn path_to_main_is_left_out() {
        let names = |text: &str| -> Vec<String> {
            let mut frames: Vec<StackFrame> = text.split(' ').map(frame).collect();
            ends_path(&mut frames);
            frames.into_iter().map(|f| f.function).collect()
        };
        assert_eq!(
            names("f+0x1 main+0x2 __libc_start_call_main+0x3 __libc_start_main+0x4 _start+0x5"),
            ["f", "main"]
        );
        assert_eq!(names("f+0x1 start_thread+0x2 clone3+0x3"), ["f"]);
        assert_eq!(names("clone3+0x3"), ["clone3"]);
        // A program without symbols.
        assert_eq!(
            names("f+0x1 0x12 __libc_start_call_main+0x3 0x14"),
            ["f", "0x12"]
        );
        assert_eq!(names("_start+0x1 f+0x3"), ["_start", "f"]);
    }

    #[test]
    fn locations_in_files_are_split() {
        let file = |name: &str| Some(name.to_owned());
        assert_eq!(
            in_file("/a+0x1/b c.so+0x1f"),
            (file("/a+0x1/b c.so"), Some(0x1f))
        );
        assert_eq!(in_file("0x7f0012"), (None, Some(0x7f_0012)));
        assert_eq!(in_file("0xffffffffffffffff"), (None, None));
        assert_eq!(in_file(""), (None, None));
    }

    #[test]
    fn names_of_variables_are_shortened() {
        let of = |text| variable(text).unwrap_or_default();
        assert_eq!(of("gate+0x0/0x4 [/bin/x]"), "gate");
        assert_eq!(of("gates+0xc/0x100 [/bin/x]"), "gates+0xc");
        assert_eq!(of("0x5555 [/bin/x+0x5555/0x9000]"), "");
        assert_eq!(of("0x5555"), "");
    }
}
