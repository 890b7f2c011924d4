//! Locks, the output buffer and the command line against Rust.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use spile_lir::func::{LoopForm, MemoryOperand};
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Memory, RegionKind, Trap};
use spile_lir::library::cmdline::{CmdlineLayout, cmdline};
use spile_lir::library::lock::{GOT, OWN, WAIT_LOCK, Waiters, wait_lock};
use spile_lir::library::output::{FLUSH, FlushLayout, flush};

use super::forms::{Reads, forms, properties};

/// A lock that others hold for some attempts.
struct Holders {
    /// The address of the shared state, and of the lock in it.
    state: u64,
    word: u64,
    /// Process and thread of those who wait.
    ids: u64,
    waiters: Waiters,
    time: u64,
    /// Attempts that find the lock held.
    held: u32,
    attempts: u32,
    /// What the waiter said of the holder, each time that it gave the processor away.
    yields: Vec<u64>,
}

impl Host for Holders {
    fn helper(&mut self, _: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        match helper {
            Helper::PidTgid => Ok(self.ids),
            Helper::Yield if self.waiters == Waiters::Threads => {
                self.yields.push(args[0]);
                Ok(0)
            }
            Helper::TimeNs => {
                self.time += 10;
                Ok(self.time)
            }
            other => Err(Trap::Helper(other.name().into())),
        }
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        (*of == MemoryOperand::State(0)).then_some(self.state)
    }

    fn before_atomic(&mut self, memory: &mut Memory, at: u64) -> Result<(), Trap> {
        assert_eq!(at, self.word);
        if self.attempts == self.held {
            memory.write(at, &[0; 8])?;
        }
        self.attempts += 1;
        Ok(())
    }
}

/// Offsets in the per-CPU area.
const POSITION: u32 = 16;
const BUFFER: u32 = 64;
const LOST: u32 = 24;
const BUFFER_SIZE: u32 = 128;

struct Ring {
    block: u64,
    state: u64,
    full: bool,
    sent: Vec<(Vec<u8>, u64)>,
}

impl Host for Ring {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        let (Helper::Output, [77, from, bytes, flags]) = (helper, args) else {
            return Err(Trap::Helper(format!("{helper:?} {args:?}")));
        };
        let sent = memory.read(*from, *bytes as usize)?.to_vec();
        self.sent.push((sent, *flags));
        Ok(if self.full { u64::MAX } else { 0 })
    }

    fn location(&mut self, of: &MemoryOperand) -> Option<u64> {
        match of {
            MemoryOperand::Cpu(off) => Some(self.block + u64::from(*off)),
            MemoryOperand::State(off) => Some(self.state + u64::from(*off)),
            MemoryOperand::Map(name) if name == "out" => Some(77),
            _ => None,
        }
    }
}

/// A process with arguments.
struct Process {
    task: u64,
    /// The first address that cannot be read.
    end: u64,
}

impl Host for Process {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        match (helper, args) {
            (Helper::Task, []) => Ok(self.task),
            (Helper::ReadUser, [to, bytes, from]) if from + bytes > self.end => {
                memory.write(*to, &vec![0; *bytes as usize])?;
                Ok((-14i64).cast_unsigned())
            }
            _ => Reads.helper(memory, helper, args),
        }
    }

    fn location(&mut self, _: &MemoryOperand) -> Option<u64> {
        None
    }
}

const PAGE: u64 = 4096;

/// Where the arguments are, and what of them can be read.
#[derive(Debug, Clone)]
struct Arguments {
    bytes: Vec<u8>,
    /// Bytes in front of them on their page.
    before: u64,
    one_page: bool,
    kernel: bool,
    /// The end is in front of the beginning.
    negative: bool,
}

/// The function's result and text.
fn command_line(wide: u32, arguments: &Arguments) -> (u64, Vec<u8>) {
    let at = CmdlineLayout {
        wide,
        task_mm: 24,
        arg_start: 16,
        arg_end: 8,
    };
    let forms = forms(&format!("{at:?}"), || cmdline(&at));
    forms.same(300_000, |mut machine| {
        let pages = machine
            .memory
            .add(vec![b'#'; 3 * PAGE as usize], RegionKind::Memory);
        let page = pages.next_multiple_of(PAGE);
        let start = page + arguments.before;
        machine
            .memory
            .write(start, &arguments.bytes)
            .expect("inside");
        let length = arguments.bytes.len() as u64;
        let end = if arguments.negative {
            start - 1 - length
        } else {
            start + length
        };
        let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mm = machine
            .memory
            .add(words(&[0, end, start]), RegionKind::Memory);
        let mm = if arguments.kernel { 0 } else { mm };
        let task = machine
            .memory
            .add(words(&[0, 0, 0, mm]), RegionKind::Memory);
        // The slots have other memory around them, as in a block.
        let mut block = vec![0; 16 + wide as usize];
        block.extend(vec![b'%'; 16 + wide as usize]);
        let block = machine.memory.add(block, RegionKind::Memory);
        let mut host = Process {
            task,
            end: if arguments.one_page {
                page + PAGE
            } else {
                u64::MAX
            },
        };
        let args = [block + 8, block + 24 + u64::from(wide)];
        let result = machine.run(&at.name(), &args, &mut host).expect("it runs");
        let text = machine
            .memory
            .read(block + 8, wide as usize)
            .expect("inside");
        (result, text.to_vec())
    })
}

/// The text, and whether it is cut.
fn expected(wide: usize, arguments: &Arguments) -> (Vec<u8>, bool) {
    let all = &arguments.bytes;
    if arguments.kernel || arguments.negative || all.is_empty() {
        return (Vec::new(), false);
    }
    let most = if all.len() > wide {
        wide - 1
    } else {
        all.len()
    };
    let on_page = (PAGE - arguments.before % PAGE) % PAGE;
    let fits = !arguments.one_page || arguments.before + most as u64 <= PAGE;
    let got = match fits {
        true => most,
        false => (on_page as usize).min(wide - 1).min(all.len()),
    };
    let read = &all[..got];
    let mut cut = all.len() > wide;
    let mut text = Vec::new();
    if read.windows(2).any(|pair| pair == [0, 0]) {
        for (i, byte) in read.iter().enumerate() {
            if text.len() > wide - 4 {
                cut = true;
                break;
            }
            if *byte != 0 {
                text.push(*byte);
                continue;
            }
            if i > 0 && read[i - 1] == 0 {
                text.extend(b"\"\"");
            }
            if i + 1 < got {
                text.push(b' ');
            }
        }
    } else {
        let end = read.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        text.extend(read[..end].iter().map(|b| if *b == 0 { b' ' } else { *b }));
    }
    if text.len() >= wide {
        text.truncate(wide - 1);
        cut = true;
    }
    (text, cut)
}

fn arguments() -> impl Strategy<Value = Arguments> {
    let argument = prop_oneof![5 => "[a-z -]{1,9}", 1 => Just(String::new()), 1 => "\\PC{0,30}"];
    let few = vec(argument, 0..9);
    let without_empty = vec(prop_oneof!["[a-z\u{80}]{1,12}", "[a-z]{20,40}"], 0..9);
    (
        prop_oneof![few, without_empty],
        prop_oneof![Just(0u64), Just(1000), (PAGE - 70)..PAGE],
        any::<bool>(),
        0..20u32,
    )
        .prop_map(|(all, before, one_page, odd)| Arguments {
            bytes: all
                .iter()
                .flat_map(|a| [a.as_bytes(), b"\0"].concat())
                .collect(),
            before,
            one_page,
            kernel: odd == 1,
            negative: odd == 2,
        })
}

properties! {
    500 cases: fn command_lines_are_arguments_with_spaces(
        arguments in arguments(),
        wide in select(vec![16u32, 48, 64, 512]),
    ) {
        let (cut, text) = command_line(wide, &arguments);
        let (mut expected, is_cut) = expected(wide as usize, &arguments);
        expected.resize(wide as usize, 0);
        prop_assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&expected));
        prop_assert_eq!(cut, u64::from(is_cut));
    }

    300 cases: fn locks_are_waited_for(
        holder in prop_oneof![Just(1u64), (3..6u64).prop_map(|p| p << 32 | 1)],
        process in 3..6u64,
        held in 0..12u32,
        form in prop_oneof![Just(LoopForm::Open), Just(LoopForm::Callback), Just(LoopForm::Inline)],
        lock in 0..5u64,
        waiters in prop_oneof![Just(Waiters::Processors), Just(Waiters::Threads)],
    ) {
        let ids = match waiters {
            Waiters::Processors => process << 32 | 9,
            Waiters::Threads => 9 << 32 | process,
        };
        let name = format!("{form:?} {waiters:?}");
        let forms = forms(&name, || wait_lock(55, form, 4, waiters));
        let (result, (attempts, yields), content) = forms.same(3_000, |mut machine| {
            let words = [holder.to_le_bytes(); 4].concat();
            let state = machine.memory.add(words, RegionKind::Memory);
            let mut host =
                Holders {
                    state,
                    word: state + 8 * lock,
                    ids,
                    waiters,
                    time: 1_000,
                    held,
                    attempts: 0,
                    yields: Vec::new(),
                };
            let result = machine.run(WAIT_LOCK, &[lock, 0x1234, holder], &mut host).expect("it runs");
            let content = machine.memory.region(state).expect("stays").to_vec();
            (result, (host.attempts, host.yields), content)
        });
        // At 1010, the end is 1065; the looks are at 1020 ... 1070.
        let most = 6;
        let (expected, tried) = match (lock < 4, holder >> 32 == process, held < most) {
            (_, true, _) => (OWN, 0),
            (false, ..) => (0, 0),
            (.., true) => (GOT, held + 1),
            _ => (0, most),
        };
        prop_assert_eq!((result, attempts), (expected as u64, tried));
        // Each attempt that fails gives the processor to the holder.
        let failed = if expected == GOT { held } else { tried };
        let given = if waiters == Waiters::Threads { failed } else { 0 };
        prop_assert_eq!(yields, vec![holder; given as usize]);
        let word = |n: u64| match expected == GOT && n == lock {
            true if waiters == Waiters::Threads => process << 32 | 0x1234,
            true => 0x1234u64,
            false => holder,
        };
        prop_assert_eq!(content, (0..4).map(|n| word(n).to_le_bytes()).collect::<Vec<_>>().concat());
    }

    200 cases: fn the_buffer_is_sent_and_emptied(
        running in 1..9u64,
        position in prop_oneof![Just(0u64), 8..=u64::from(BUFFER_SIZE), u64::from(BUFFER_SIZE)..200],
        wake in any::<u64>(),
        full in any::<bool>(),
        lost in any::<u64>().prop_map(|n| n >> 1),
        content in vec(any::<u8>(), BUFFER_SIZE as usize),
    ) {
        let at = FlushLayout {
            running: 0,
            position: POSITION,
            buffer: BUFFER,
            size: BUFFER_SIZE,
            ring: "out",
            wake: 32,
            lost: LOST,
        };
        let forms = forms(FLUSH, || flush(&at));
        let (block, sent) = forms.same(3_000, |mut machine| {
            let mut block = vec![0; BUFFER as usize];
            for (at, word) in [(0, running), (POSITION, position), (LOST, lost)] {
                block[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
            }
            block.extend(&content);
            let block = machine.memory.add(block, RegionKind::Memory);
            let state = [vec![0; 32], wake.to_le_bytes().to_vec()].concat();
            let state = machine.memory.add(state, RegionKind::Memory);
            let mut host = Ring { block, state, full, sent: Vec::new() };
            assert_eq!(machine.run(FLUSH, &[], &mut host), Ok(0));
            (machine.memory.region(block).expect("stays").to_vec(), host.sent)
        });
        let word = |at: u32| u64::from_le_bytes(block[at as usize..][..8].try_into().expect("8 bytes"));
        if position == 0 || position > BUFFER_SIZE.into() {
            prop_assert!(sent.is_empty());
            prop_assert_eq!((word(POSITION), word(LOST)), (position, lost));
            return Ok(());
        }
        let header = [running as u32 - 1, position as u32].map(u32::to_le_bytes).concat();
        let record = [&header, &content[8..position as usize]].concat();
        prop_assert_eq!(sent, vec![(record, wake)]);
        prop_assert_eq!((word(POSITION), word(LOST)), (0, lost + u64::from(full)));
    }
}
