//! Deferred strings: user memory that kernel handlers leave to the controller, because its pages
//! are not in memory (see [`spile_layout::RecordKind::Deferred`]). The controller is an
//! ordinary process: when it reads another process's memory, the kernel brings the page in.
//!
//! The memory belongs to the task that ran the handler, provided that it still runs the same
//! program: `/proc/TID/mem` stays with the address space that it was opened on, and the task is
//! checked after the open. Otherwise the reason of the failure replaces the text.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::FileExt;

use spile_cast::Cast;
use spile_ir::Bytes;
use spile_kernel::btf::Btf;
use spile_layout::{Quote, SUBSTITUTE_SHIFT};

use crate::shared::ring_record::FieldValue;

/// Length of the word in a mark.
pub const WORD: usize = 16;
/// Number of results that are kept.
const KEEP: usize = 4096;
/// The initial PID namespace (`PROC_PID_INIT_INO`), whose numbers kernel handlers send.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Offsets in `struct task_struct`.
#[derive(Debug, Clone, Copy)]
struct TaskOffsets {
    pid: u64,
    start: u64,
    exec: u64,
}

/// A requested read: the address and the process.
#[derive(Debug, Clone, Copy)]
struct ReadRequest {
    id: u64,
    addr: u64,
    capacity: usize,
    quote: Quote,
    /// The index of the constant that replaces unreadable text.
    instead: Option<usize>,
    task: u64,
    tid: u64,
    start: u64,
    exec: u64,
}

impl ReadRequest {
    fn new(fields: &[FieldValue<'_>]) -> Option<ReadRequest> {
        let mut numbers = [0; 8];
        for (to, field) in numbers.iter_mut().zip(fields) {
            *to = field.number()?;
        }
        let [id, addr, capacity, quote, task, tid, start, exec] = numbers;
        Some(ReadRequest {
            id,
            addr,
            capacity: usize::try_from(capacity).ok()?.min(4096),
            quote: match quote & ((1 << SUBSTITUTE_SHIFT) - 1) {
                0 => Quote::No,
                1 => Quote::Escaped,
                _ => Quote::Quoted,
            },
            instead: ((quote >> SUBSTITUTE_SHIFT) as usize).checked_sub(1),
            task,
            tid,
            start,
            exec,
        })
    }
}

/// The strings that were read, or the reasons of failures.
#[derive(Default)]
pub struct DeferredTexts {
    word: [u8; WORD],
    offsets: Option<TaskOffsets>,
    elsewhere: bool,
    texts: HashMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
}

impl DeferredTexts {
    /// For a new session, with a random word.
    pub fn new() -> Option<DeferredTexts> {
        let mut random = [0; WORD / 2];
        File::open("/dev/urandom")
            .and_then(|mut f| f.read_exact(&mut random))
            .ok()?;
        let mut word = [0; WORD];
        for (i, to) in word.iter_mut().enumerate() {
            let nibble = random[i / 2] >> (4 * (i % 2)) & 15;
            *to = b"0123456789abcdef"[usize::from(nibble)];
        }
        let namespace = std::fs::read_link("/proc/self/ns/pid").ok();
        Some(DeferredTexts {
            word,
            offsets: offsets(),
            elsewhere: namespace.is_none_or(|n| n.as_os_str() != FIRST_NAMESPACE),
            ..DeferredTexts::default()
        })
    }

    /// The word of this session's marks.
    pub fn word(&self) -> &[u8; WORD] {
        &self.word
    }

    /// Reads a string for a record; `kernel` reads a number of kernel memory, and `constants` are
    /// the program's. False if it could not be read and the script has no replacement; `None` for a
    /// malformed record.
    pub fn read(
        &mut self,
        fields: &[FieldValue<'_>],
        constants: &[Bytes],
        kernel: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<bool> {
        let wanted = ReadRequest::new(fields)?;
        if self.texts.contains_key(&wanted.id) {
            return Some(true);
        }
        let mut result = self.text(&wanted, kernel);
        if let (Err(_), Some(text)) = (&result, wanted.instead.and_then(|i| constants.get(i))) {
            result = Ok(text.to_vec());
        }
        let good = result.is_ok();
        let text = result.map_or_else(
            |reason| format!("<unreadable {:#x}: {reason}>", wanted.addr).into_bytes(),
            |text| match wanted.quote {
                Quote::No => text,
                Quote::Escaped => spile_ir::fmt::escape_text(&text),
                Quote::Quoted => {
                    let mut quoted = vec![b'"'];
                    quoted.extend(spile_ir::fmt::escape_text(&text));
                    quoted.push(b'"');
                    quoted
                }
            },
        );
        self.order.push_back(wanted.id);
        self.texts.insert(wanted.id, text);
        if self.order.len() > KEEP
            && let Some(old) = self.order.pop_front()
        {
            self.texts.remove(&old);
        }
        Some(good)
    }

    fn text(
        &self,
        wanted: &ReadRequest,
        kernel: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<Vec<u8>, &'static str> {
        if self.elsewhere {
            return Err("another pid namespace");
        }
        let memory = File::open(format!("/proc/{}/mem", wanted.tid)).map_err(|e| why(&e))?;
        let offsets = self.offsets.ok_or("unknown kernel structures")?;
        let mut field = |off| kernel(wanted.task.wrapping_add(off));
        let low = |n: u64| n & u64::from(u32::MAX);
        if field(offsets.pid).map(low) != Some(wanted.tid)
            || field(offsets.start) != Some(wanted.start)
        {
            return Err("process ended");
        }
        if field(offsets.exec) != Some(wanted.exec) {
            return Err("process runs another program");
        }
        read_string(&memory, wanted.addr, wanted.capacity)
    }

    /// A string with its marks replaced.
    pub fn render<'t>(&self, text: &'t [u8]) -> std::borrow::Cow<'t, [u8]> {
        let mut rest = text;
        let mut out = Vec::new();
        while let Some(start) = rest.windows(WORD).position(|w| w == self.word) {
            out.extend_from_slice(&rest[..start]);
            rest = &rest[start + WORD..];
            let Some(end) = rest.iter().position(|b| *b == b';') else {
                // The mark was truncated at the end of a long text.
                out.extend_from_slice(b"...");
                rest = b"";
                break;
            };
            // A mark of another kind, which is not replaced here.
            if rest.first().is_some_and(u8::is_ascii_uppercase) {
                out.extend_from_slice(&self.word);
                continue;
            }
            let id = std::str::from_utf8(&rest[..end]).ok();
            let id = id.and_then(|id| u64::from_str_radix(id, 16).ok());
            match id.and_then(|id| self.texts.get(&id)) {
                Some(text) => out.extend_from_slice(text),
                None => out.extend_from_slice(b"<unreadable: read too late>"),
            }
            rest = &rest[end + 1..];
        }
        if rest.len() == text.len() {
            return text.into();
        }
        out.extend_from_slice(rest);
        out.into()
    }
}

fn offsets() -> Option<TaskOffsets> {
    let btf = Btf::vmlinux().ok()?;
    let offset = |name| btf.offset_of("task_struct", name);
    Some(TaskOffsets {
        pid: offset("pid")?,
        start: offset("start_boottime")?,
        exec: offset("self_exec_id")?,
    })
}

/// The reason why a process's memory cannot be opened or read.
fn why(e: &std::io::Error) -> &'static str {
    match e.kind() {
        ErrorKind::NotFound => "process ended",
        ErrorKind::PermissionDenied => "not permitted",
        // ESRCH while it exits; EIO for memory that does not exist.
        _ if e.raw_os_error() == Some(3) => "process ended",
        _ => "no such memory",
    }
}

/// Reads up to a NUL, page by page, because the next page may not exist.
fn read_string(memory: &File, addr: u64, capacity: usize) -> Result<Vec<u8>, &'static str> {
    const PAGE: u64 = spile_abi::PAGE as u64;
    let mut text = Vec::new();
    while text.len() < capacity {
        let address = addr.wrapping_add(text.len() as u64);
        let len = (PAGE - address % PAGE)
            .fit::<usize>()
            .min(capacity - text.len());
        let mut piece = vec![0; len];
        let got = memory.read_at(&mut piece, address).map_err(|e| why(&e))?;
        // The process exists, but its memory is gone.
        if got == 0 {
            return Err("process ended");
        }
        piece.truncate(got);
        if let Some(end) = piece.iter().position(|b| *b == 0) {
            text.extend_from_slice(&piece[..end]);
            break;
        }
        text.extend_from_slice(&piece);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> DeferredTexts {
        let mut d = DeferredTexts {
            word: *b"0123456789abcdef",
            ..DeferredTexts::default()
        };
        d.texts.insert(0x1f, b"the text".to_vec());
        d
    }

    #[test]
    fn marks_are_replaced() {
        let d = known();
        let fill = |t: &str| String::from_utf8(d.render(t.as_bytes()).into_owned()).unwrap();
        assert_eq!(fill("plain"), "plain");
        assert_eq!(fill("0123456789abcdef1f;"), "the text");
        assert_eq!(
            fill("a0123456789abcdef1f;, 0123456789abcdef1f;z"),
            "athe text, the textz"
        );
        assert_eq!(fill("a0123456789abcdef1"), "a...");
        assert_eq!(fill("0123456789abcdef20;!"), "<unreadable: read too late>!");
        assert_eq!(fill("0123456789abcdefx;"), "<unreadable: read too late>");
    }

    #[test]
    fn reads_own_memory_and_refuses_unmapped() {
        let text = b"some text\0".to_vec();
        let memory = File::open("/proc/self/mem").unwrap();
        let read = |addr| read_string(&memory, addr, 100);
        assert_eq!(read(text.as_ptr() as u64), Ok(b"some text".to_vec()));
        assert_eq!(read(8), Err("no such memory"));
    }

    #[test]
    fn a_task_that_is_another_one_is_not_read() {
        let Some(mut d) = DeferredTexts::new() else {
            return;
        };
        let text = b"mine\0";
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let constants = [Bytes::from(*b""), Bytes::from(*b"a\tb")];
        let mut how = 1;
        let mut ask = |id: i64, exec: u64, kernel_tid: u64| {
            // The fourth read asks for constant 1 and for escapes.
            if id == 4 {
                how = 2 << SUBSTITUTE_SHIFT | 1;
            }
            let fields = [id, text.as_ptr() as i64, 100, how, 0, i64::from(tid), 7, 1];
            let fields = fields.map(FieldValue::Long);
            let at = offsets()?;
            let good = d.read(&fields, &constants, &mut |addr| {
                let memory = [(at.pid, kernel_tid), (at.start, 7), (at.exec, exec)];
                memory.iter().find(|k| k.0 == addr).map(|k| k.1)
            });
            good.map(|good| {
                (
                    good,
                    String::from_utf8(d.texts[&(id as u64)].clone()).unwrap(),
                )
            })
        };
        let own = tid as u64;
        let Some((true, mine)) = ask(1, 1, own) else {
            spile_testing::skip!("another namespace, or no BTF");
        };
        assert_eq!(mine, "mine");
        let (good, text) = ask(2, 2, own).unwrap();
        assert!(
            !good && text.ends_with(": process runs another program>"),
            "{text}"
        );
        let (good, text) = ask(3, 1, own + 1).unwrap();
        assert!(!good && text.ends_with(": process ended>"), "{text}");
        assert_eq!(ask(4, 1, own + 1), Some((true, "a\\tb".into())));
    }
}
