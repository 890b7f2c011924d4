//! Records of perf events of one's own threads, which need no privilege: samples with the registers of programs, and
//! which threads begin and end.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use spile_cast::Cast;

use crate::machine::page_size;
use crate::mapping::{MapAccess, MappedPages};
use crate::perf::{EventSpec, PerfError, PerfEvent, Sampling, open_stream, redirect};

/// Bytes of records that wait on one CPU; a power of two.
const RING: usize = 256 << 10;

/// Positions in the page in front of the records (`struct perf_event_mmap_page`).
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// Bits of `sample_type`.
const IP: u64 = 1 << 0;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDR: u64 = 1 << 3;
const PERIOD: u64 = 1 << 8;
const REGS_USER: u64 = 1 << 12;

/// What a stream has.
#[derive(Debug, Clone, Copy)]
pub struct StreamSpec {
    /// The event.
    pub event: EventSpec,
    /// Which of its hits are sampled.
    pub sampling: Sampling,
    /// The registers of samples, a bit for each as the kernel numbers them for perf.
    pub registers: u64,
    /// Whether hits in the kernel count, which needs `kernel.perf_event_paranoid` below 2.
    pub in_kernel: bool,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PerfRecord {
    /// A sampled hit.
    Sample(PerfSample),
    /// A thread begins, and its process with it if that is not its parent's.
    Begin(TaskNumbers),
    /// A thread ends.
    End(TaskNumbers),
    /// A thread has another name.
    Name {
        /// Its process.
        process: u32,
        /// Its number.
        thread: u32,
        /// The name, up to a NUL.
        name: [u8; 16],
        /// Whether its process executes another program.
        executed: bool,
    },
    /// So many records found no space.
    Lost(u64),
}

/// A sampled hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfSample {
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// Events since the last sample.
    pub period: u64,
    /// The address that the event is about, or 0.
    pub address: u64,
    /// The registers that were asked for, in the order of their bits; none for a thread of the kernel.
    pub registers: Vec<u64>,
}

/// Numbers of a thread and of who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskNumbers {
    /// Its process.
    pub process: u32,
    /// The process that made it.
    pub parent: u32,
    /// The thread.
    pub thread: u32,
}

/// The records of one event on one CPU.
#[derive(Debug)]
pub struct PerfStream {
    events: Vec<PerfEvent>,
    pages: MappedPages,
    registers: u64,
}

impl PerfStream {
    /// Opens an event on a CPU, for these threads and their later children. The event does not count yet.
    ///
    /// # Errors
    /// [`PerfError`]; `ESRCH` if none of the threads is there.
    pub fn open(spec: &StreamSpec, threads: &[u32], cpu: u32) -> Result<PerfStream, PerfError> {
        let sample = IP | TID | TIME | ADDR | PERIOD | REGS_USER;
        let mut events: Vec<PerfEvent> = Vec::new();
        for thread in threads {
            match open_stream(spec, sample, *thread, cpu) {
                Ok(event) => events.push(event),
                Err(e) if e.errno == Errno::SRCH => {}
                Err(e) => return Err(e),
            }
        }
        let gone = || PerfError {
            action: "perf_event_open",
            errno: Errno::SRCH,
        };
        let first = events.first().ok_or_else(gone)?;
        let pages = MappedPages::new(first, 0, page_size() + RING, MapAccess::Write);
        let pages = pages.map_err(|e| PerfError {
            action: "map a perf event",
            errno: Errno::from_io_error(&e).unwrap_or(Errno::NOMEM),
        })?;
        for event in &events[1..] {
            redirect(event, first)?;
        }
        Ok(PerfStream {
            events,
            pages,
            registers: spec.registers,
        })
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn enable(&self) -> Result<(), PerfError> {
        self.events.iter().try_for_each(PerfEvent::enable)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.pages.bytes());
        // SAFETY: the word is within the mapping, aligned, and the kernel writes it, too.
        unsafe { AtomicU64::from_ptr(self.pages.start().as_ptr().add(at).cast()) }
    }

    /// The bytes of the records from a position on, up to the end of the ring and on from its beginning.
    fn bytes(&self, from: u64, length: usize) -> Vec<u8> {
        let mut all = Vec::with_capacity(length.next_multiple_of(8));
        for position in (from..from + length as u64).step_by(8) {
            let at = page_size() + (position % RING as u64).fit::<usize>();
            all.extend(self.word(at).load(Ordering::Relaxed).to_ne_bytes());
        }
        all
    }

    /// Takes the records that are there, each with its time on `CLOCK_MONOTONIC` in nanoseconds. A record comes a moment
    /// after its time.
    pub fn take(&mut self) -> Vec<(u64, PerfRecord)> {
        let head = self.word(HEAD).load(Ordering::Acquire);
        let tail = self.word(TAIL).load(Ordering::Relaxed);
        let bytes = self.bytes(tail, head.wrapping_sub(tail).fit::<usize>().min(RING));
        self.word(TAIL).store(head, Ordering::Release);
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|w| u64::from_ne_bytes(*w)).collect();
        let mut rest = &words[..];
        let mut all = Vec::new();
        while let Some(&header) = rest.first() {
            let length = (header >> 48).fit::<usize>() / 8;
            let Some(body) = rest.get(1..length).filter(|_| length > 0) else {
                break;
            };
            all.extend(record(header, body, self.registers));
            rest = &rest[length..];
        }
        all
    }
}

/// Waits until a stream has records.
pub fn wait<'s>(streams: impl Iterator<Item = &'s PerfStream>, timeout: Duration) {
    let events = streams.filter_map(|stream| stream.events.first());
    let mut all: Vec<PollFd<'_>> = events
        .map(|event| PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN))
        .collect();
    let timeout = Timespec::try_from(timeout).ok();
    // Whatever it says, the streams are looked at.
    let _ = poll(&mut all, timeout.as_ref());
}

/// The kernel's types of records.
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
/// Of a name: the process executes a program.
const COMM_EXEC: u64 = 1 << 13;

/// The halves of a word.
fn halves(word: u64) -> [u32; 2] {
    [word.low32(), (word >> 32).low32()]
}

fn record(header: u64, body: &[u64], registers: u64) -> Option<(u64, PerfRecord)> {
    let kind = header.low32();
    let misc = (header >> 32) & 0xffff;
    // Others than samples have it behind all else.
    let time = match kind {
        SAMPLE => body.get(2),
        _ => body.last(),
    };
    let record = match kind {
        LOST => PerfRecord::Lost(*body.get(1)?),
        COMM => {
            let [process, thread] = halves(*body.first()?);
            let text: Vec<u8> = body[1..].iter().flat_map(|w| w.to_ne_bytes()).collect();
            let length = text.iter().position(|byte| *byte == 0)?.min(15);
            let mut name = [0; 16];
            name[..length].copy_from_slice(&text[..length]);
            PerfRecord::Name {
                process,
                thread,
                name,
                executed: misc & COMM_EXEC != 0,
            }
        }
        EXIT | FORK => {
            let [process, parent] = halves(*body.first()?);
            let [thread, _] = halves(*body.get(1)?);
            let numbers = TaskNumbers {
                process,
                parent,
                thread,
            };
            match kind {
                EXIT => PerfRecord::End(numbers),
                _ => PerfRecord::Begin(numbers),
            }
        }
        // ip, pid and tid, time, address, period, abi of the registers, registers
        SAMPLE => {
            let [process, thread] = halves(*body.get(1)?);
            let registers = match body.get(5)? {
                0 => Vec::new(),
                _ => body
                    .get(6..6 + registers.count_ones().fit::<usize>())?
                    .to_vec(),
            };
            PerfRecord::Sample(PerfSample {
                process,
                thread,
                period: *body.get(4)?,
                address: *body.get(3)?,
                registers,
            })
        }
        _ => return None,
    };
    Some((*time?, record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::CPU_CLOCK;

    #[test]
    fn a_thread_is_sampled_and_its_children_are_told() {
        let spec = StreamSpec {
            event: CPU_CLOCK,
            sampling: Sampling::Period(1_000_000),
            registers: 1 << 7 | 1 << 8,
            in_kernel: false,
        };
        // SAFETY: a number.
        let own = unsafe { libc::gettid() }.cast_unsigned();
        let mut streams: Vec<PerfStream> = crate::machine::online_cpus()
            .into_iter()
            .map(|cpu| PerfStream::open(&spec, &[own], cpu).expect("a stream"))
            .collect();
        streams.iter().for_each(|s| s.enable().expect("enabled"));
        std::thread::spawn(|| ()).join().expect("joined");
        let since = std::time::Instant::now();
        while since.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let all = streams.iter_mut().flat_map(PerfStream::take);
        let all: Vec<PerfRecord> = all.map(|(_, record)| record).collect();
        let stack = &raw const since as u64;
        let is_here = |record: &&PerfRecord| match record {
            PerfRecord::Sample(s) => s.thread == own && s.registers[0].abs_diff(stack) < 1 << 20,
            _ => false,
        };
        assert!(all.iter().filter(is_here).count() >= 10, "{all:?}");
        let count = |is: fn(&PerfRecord) -> bool| all.iter().filter(|r| is(r)).count();
        assert_eq!(count(|r| matches!(r, PerfRecord::Begin(_))), 1);
        assert_eq!(count(|r| matches!(r, PerfRecord::End(_))), 1);
    }
}
