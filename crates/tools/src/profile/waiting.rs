//! The stacks of the threads of a process that wait in system calls, although no event happened.
//!
//! In: a process. Out: for each thread in a call the call, what it waits for, and its stack. The
//! kernel's copy of its registers comes from `tools/registers.stp`, the rest from `/proc`. The
//! process is not stopped.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use spile_abi::HOST;
use spile_debuginfo::cfi::{self, UnwindRow};
use spile_debuginfo::unwind::{StackRegisters, StackSource, unwind};
use spile_debuginfo::{DebugFile, Image, SearchPaths, demangle};
use spile_kernel::process::{self, Mapping};
use spile_plain::messages::Failure;
use spile_profile::model::StackFrame;
use spile_runtime::TargetProcess;

use super::rows::{ThreadNow, WaitNow, ends_path};
use crate::rows::Fields;
use crate::{FromRows, Passes, ToolRun};

/// Frames of a stack at most: what a string of the usual width holds of files below 16 MB.
pub(super) const FRAMES: u32 = 48;

/// A thread in a system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingThread {
    pub(super) tid: u32,
    pub(super) call: &'static str,
    pub(super) futex: Option<u64>,
    /// What it waits for, see [`spile_profile::model::Sample::object`].
    pub(super) object: Option<String>,
    pub(super) frames: Vec<StackFrame>,
}

/// Registers by thread, as `tools/registers.stp` prints them.
#[derive(Default)]
struct Registers(HashMap<u32, Vec<StackRegisters>>);

impl FromRows for Registers {
    fn take(&mut self, name: &str, f: &mut Fields<'_>) -> Option<()> {
        if name == "thread" {
            let tid = f.integer()?;
            let mut word = || Some(f.integer::<i64>()?.cast_unsigned());
            let (pc, sp, fp) = (word()?, word()?, Some(word()?));
            let registers = StackRegisters { pc, sp, fp };
            self.0.entry(tid).or_default().push(registers);
        }
        Some(())
    }
}

/// The threads of a process that are in system calls now.
///
/// # Errors
/// Those of the session that reads registers.
pub(super) fn threads(pid: u32, passes: Passes<'_>) -> Result<Vec<WaitingThread>, Failure> {
    // A process that has ended has no memory.
    if process::mappings(pid).unwrap_or_default().is_empty() {
        return Ok(Vec::new());
    }
    let mut tool = ToolRun::recording("registers", 0);
    tool.target = TargetProcess::Pid(pid);
    let (built, _) = tool.build::<Registers>(passes)?;
    let registers = built.state()?.0;
    let Some(source) = Source::new(pid) else {
        return Ok(Vec::new());
    };
    let tids = process::threads(pid).into_iter();
    Ok(tids
        .filter_map(|tid| source.thread(tid, &registers))
        .collect())
}

/// A mapped file, and the difference of its addresses in the process and as linked.
struct MappedFile {
    file: DebugFile,
    rows: Vec<UnwindRow>,
    bias: u64,
}

/// The memory and the files of a process.
struct Source {
    pid: u32,
    memory: File,
    mappings: Vec<Mapping>,
    /// By path, for mappings of code.
    files: HashMap<String, MappedFile>,
}

impl Source {
    fn new(pid: u32) -> Option<Source> {
        let mut source = Source {
            pid,
            memory: File::open(format!("/proc/{pid}/mem")).ok()?,
            mappings: process::mappings(pid).ok()?,
            files: HashMap::new(),
        };
        let search = SearchPaths::from_env();
        for mapping in source.mappings.iter().filter(|m| m.executable) {
            if !source.files.contains_key(&mapping.path)
                && let Some(file) = mapped(pid, mapping, &search)
            {
                source.files.insert(mapping.path.clone(), file);
            }
        }
        Some(source)
    }

    /// The mapping with an address.
    fn mapping(&self, address: u64) -> Option<&Mapping> {
        let next = self.mappings.partition_point(|m| m.end <= address);
        self.mappings.get(next).filter(|m| m.start <= address)
    }

    /// The file with the code or the data at an address.
    fn file(&self, address: u64) -> Option<(&MappedFile, &Mapping)> {
        let mapping = self.mapping(address)?;
        Some((self.files.get(&mapping.path)?, mapping))
    }

    /// The call and the stack of a thread; `None` if it is in no call.
    fn thread(
        &self,
        tid: u32,
        registers: &HashMap<u32, Vec<StackRegisters>>,
    ) -> Option<WaitingThread> {
        let text =
            std::fs::read_to_string(format!("/proc/{}/task/{tid}/syscall", self.pid)).ok()?;
        let mut words = text.split_ascii_whitespace();
        // The number can be "running", or -1 outside of calls.
        let call: u32 = words.next()?.parse().ok()?;
        let hexadecimal = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
        let words: Vec<u64> = words.filter_map(hexadecimal).collect();
        let &[first, .., sp, pc] = &words[..] else {
            return None;
        };
        // The thread can have gone on since its registers were read.
        let same = |r: &&StackRegisters| r.pc == pc && r.sp == sp;
        let known = registers.get(&tid).and_then(|all| all.iter().find(same));
        let start = known
            .copied()
            .unwrap_or(StackRegisters { pc, sp, fp: None });
        let mut frames = Vec::new();
        for location in unwind(start, HOST, self, FRAMES as usize) {
            frames.extend(self.frames(location.address));
        }
        ends_path(&mut frames);
        let call = spile_syscalls::by_nr(call)?;
        let futex = call.name.starts_with("futex").then_some(first);
        let on_file = call.args.first().is_some_and(|arg| arg.kernel_name == "fd");
        Some(WaitingThread {
            tid,
            call: call.name,
            futex,
            object: match futex {
                Some(address) => self.variable(address),
                None => on_file.then(|| descriptor(self.pid, first)).flatten(),
            },
            frames,
        })
    }

    /// The functions at an address, the innermost first.
    fn frames(&self, address: u64) -> Vec<StackFrame> {
        let Some((mapped, mapping)) = self.file(address) else {
            return vec![StackFrame {
                function: format!("{address:#x}"),
                ..StackFrame::default()
            }];
        };
        let linked = address.wrapping_sub(mapped.bias);
        let module = mapping.path.rsplit('/').next().map(str::to_owned);
        let lines = mapped.file.dwarf().map(|d| d.frames(linked));
        let lines = lines.unwrap_or_default();
        let outermost = lines.len().saturating_sub(1);
        let symbol = mapped.file.symbols().function_at(linked).map(|(s, _)| {
            let name = demangle::short_name(s.name);
            name.unwrap_or_else(|| s.name.to_owned())
        });
        if lines.is_empty() {
            return vec![StackFrame {
                function: symbol.unwrap_or_else(|| format!("{linked:#x}")),
                module,
                ..StackFrame::default()
            }];
        }
        let frame = |(i, at): (usize, spile_debuginfo::SourceFrame)| StackFrame {
            // As in stacks of handlers, a function that is not inlined has the name of its symbol.
            function: match &symbol {
                Some(symbol) if i == outermost => symbol.clone(),
                _ => at.function.to_string(),
            },
            module: module.clone(),
            file: at.file.map(|file| file.to_string()),
            line: (at.line > 0).then_some(at.line),
        };
        lines.into_iter().enumerate().map(frame).collect()
    }

    /// The variable with a futex, and the thread that holds it, if it is a mutex of the C library.
    fn variable(&self, address: u64) -> Option<String> {
        let name = self.data(address)?;
        // pthread_mutex_t has the owner's number behind the futex and a counter.
        let owner = self.word(address + 8).map(|word| word & 0xffff_ffff);
        let owner = owner.and_then(|word| u32::try_from(word).ok());
        let owner = owner.filter(|tid| process::of_thread(*tid) == Some(self.pid));
        Some(match owner {
            Some(tid) => format!("{name} (held by thread {tid})"),
            None => name,
        })
    }

    /// The variable at an address.
    fn data(&self, address: u64) -> Option<String> {
        let mapping = self.mapping(address)?;
        // The memory of variables without a value follows the file's mappings.
        let near = self
            .mappings
            .iter()
            .rev()
            .filter(|m| m.start <= mapping.start);
        let file = near.into_iter().find_map(|m| self.files.get(&m.path))?;
        let (symbol, offset) = file
            .file
            .symbols()
            .data_at(address.wrapping_sub(file.bias))?;
        Some(match offset {
            0 => symbol.name.to_owned(),
            offset => format!("{}+{offset:#x}", symbol.name),
        })
    }
}

/// The file that a descriptor of a process stands for.
fn descriptor(pid: u32, descriptor: u64) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    let name = link.to_str()?;
    Some(match name.split(':').next() {
        Some("pipe") => "a pipe".to_owned(),
        Some("socket") => "a socket".to_owned(),
        _ => name.to_owned(),
    })
}

/// What a thread of a process does now; `None` if it has ended.
pub(super) fn look_at(pid: u32, tid: u32) -> Option<ThreadNow> {
    let state = process::stat(tid)?.state;
    let read = |file| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}"));
    let times = read("schedstat").ok()?;
    let mut times = times.split(' ').map(str::parse);
    let (ran, ready) = (times.next()?.ok()?, times.next()?.ok()?);
    // (Only the superuser may read it.)
    let call = read("syscall").ok().and_then(|text| wait(pid, &text));
    Some(ThreadNow {
        runs: state == 'R',
        ran,
        ready,
        call,
    })
}

/// The wait that a text of `/proc/PID/task/TID/syscall` is about.
fn wait(pid: u32, text: &str) -> Option<WaitNow> {
    let mut words = text.split_ascii_whitespace();
    // The number can be "running", or -1 outside of calls.
    let call = spile_syscalls::by_nr(words.next()?.parse().ok()?)?;
    let first = u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok()?;
    let on_file = call.args.first().is_some_and(|arg| arg.kernel_name == "fd");
    Some(WaitNow {
        call: call.name.to_owned(),
        futex: call.name.starts_with("futex").then_some(first),
        object: on_file.then(|| descriptor(pid, first)).flatten(),
    })
}

impl StackSource for Source {
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn row(&self, address: u64) -> Option<UnwindRow> {
        let (file, _) = self.file(address)?;
        let linked = address.wrapping_sub(file.bias);
        cfi::row_at(&file.rows, linked).copied()
    }
}

/// Opens the file of a mapping, through the process that has it mapped.
fn mapped(pid: u32, mapping: &Mapping, search: &SearchPaths) -> Option<MappedFile> {
    if !mapping.path.starts_with('/') {
        return None;
    }
    let range = format!("{:x}-{:x}", mapping.start, mapping.end);
    let bytes = std::fs::read(format!("/proc/{pid}/map_files/{range}")).ok()?;
    let image = Image::from_bytes(bytes, Path::new(&mapping.path)).ok()?;
    let bias = mapping
        .start
        .wrapping_sub(image.address_of_offset(mapping.offset)?);
    let file = DebugFile::new(image, search);
    let rows = cfi::rows(file.image(), file.debug_image());
    Some(MappedFile { file, rows, bias })
}
