//! Intrinsics that ask the machine, for controller handlers: this process, clocks, symbols, kernel
//! memory. Intrinsics about the current task describe the controller itself, or the process that
//! the handler runs for.

use std::fs;

use spile_ir::Space;
use spile_ir::interp::{Fault, Value};
use spile_ir::intrinsics::Intrinsic;
use spile_kernel::symbols::Symbols;

use crate::machine::clock::{self, TimeZone};
use crate::machine::existing_tasks::ExistingTask;
use crate::machine::kernel_memory::KernelMemory;

/// The machine, as controller handlers see it.
pub struct Host {
    /// The result of `target()`.
    pub target: i64,
    /// The line or character for the current input probe.
    pub input: Vec<u8>,
    /// `$value` of the current file, and its largest length.
    pub value: (Vec<u8>, usize),
    /// Whether a handler called `exit()`.
    pub exit: bool,
    /// The process that the handler runs for.
    pub(crate) task: Option<ExistingTask>,
    zone: TimeZone,
    random: u64,
    memory: Option<Result<KernelMemory, String>>,
}

/// Limit on the bytes of a string that is read from memory.
const MOST_STRING: i64 = 4096;
/// Bytes of a task's name.
const COMM: i64 = 16;

impl Host {
    /// A host for a session with this target.
    pub fn new(target: i64) -> Host {
        let seed = clock::mono_ns() as u64 ^ u64::from(std::process::id()) << 32;
        Host {
            target,
            input: Vec::new(),
            value: (Vec::new(), 0),
            exit: false,
            task: None,
            zone: clock::zone(),
            random: seed | 1,
            memory: None,
        }
    }

    /// A random number (splitmix64).
    pub fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Evaluates an intrinsic.
    pub fn intrinsic(&mut self, f: Intrinsic, args: &[Value]) -> Result<Value, Fault> {
        let number = |i: usize| args.get(i).map_or(0, Value::as_long);
        if let Some(result) = self.of_task(f, args) {
            return result;
        }
        if let Some(n) = self.number(f) {
            return Ok(Value::Long(n));
        }
        Ok(match f {
            Intrinsic::Execname => Value::from(&clock::comm()[..]),
            Intrinsic::Cmdline => Value::from(&command_line("self")[..]),
            Intrinsic::TaskHere => {
                let task = self.kernel_memory()?.current_task();
                Value::Long(task.map_err(|e| Fault::from(e.to_string()))? as i64)
            }
            Intrinsic::Jiffies => {
                // If no program can be run, the clock gives nearly the same value.
                let kernel = self.kernel_memory().ok().and_then(|m| m.jiffies().ok());
                Value::Long(kernel.map_or_else(clock::jiffies, u64::cast_signed))
            }
            Intrinsic::TzName => Value::from(&*self.zone.name),
            Intrinsic::InputText => Value::from(&self.input[..]),
            Intrinsic::ValueText => Value::from(&self.value.0[..]),
            Intrinsic::Exit => {
                self.exit = true;
                Value::Long(0)
            }
            Intrinsic::Ftrace => {
                trace(args.first().map_or(&b""[..], |v| v.as_bytes()));
                Value::Long(0)
            }
            Intrinsic::KernelStr | Intrinsic::KernelUtf | Intrinsic::KernelQuoted => {
                self.text(Space::Kernel, f, args)?
            }
            Intrinsic::SymName => Value::from(&*symbol_name(number(0) as u64)),
            Intrinsic::SymData => Value::from(&*symbol_data(number(0) as u64)),
            _ => return Err(Fault::from(format!("{} has no event here", f.info().name))),
        })
    }

    /// Intrinsics about the current task, if the handler runs for one.
    fn of_task(&mut self, f: Intrinsic, args: &[Value]) -> Option<Result<Value, Fault>> {
        // Taken out, because reading kernel memory borrows all of `self`.
        let task = self.task.take()?;
        let number = task.number(f, &mut |at| self.kernel_word(at));
        let comm = task.comm();
        let line = (f == Intrinsic::Cmdline).then(|| task.command_line());
        self.task = Some(task);
        let ended = || Fault::from("the process has ended");
        if let Some(number) = number {
            return Some(number.map(Value::Long).ok_or_else(ended));
        }
        Some(match f {
            Intrinsic::Execname => self.string(Space::Kernel, comm, COMM),
            Intrinsic::Cmdline => Ok(Value::from(&line.unwrap_or_default()[..])),
            Intrinsic::UserStr
            | Intrinsic::UserBuf
            | Intrinsic::UserUtf
            | Intrinsic::UserQuoted => self.text(Space::User, f, args),
            _ => return None,
        })
    }

    /// Intrinsics that read strings.
    fn text(&mut self, space: Space, f: Intrinsic, args: &[Value]) -> Result<Value, Fault> {
        let number = |i: usize| args.get(i).map_or(0, Value::as_long);
        let addr = number(0) as u64;
        match f {
            Intrinsic::KernelUtf | Intrinsic::UserUtf => {
                self.unicode(space, addr, number(1), number(2))
            }
            Intrinsic::KernelQuoted | Intrinsic::UserQuoted => {
                let mut bytes = vec![0; number(1).clamp(0, MOST_STRING) as usize];
                if !bytes.is_empty() && !self.read(space, addr, &mut bytes)? {
                    return Err(string_fault(space, addr));
                }
                let room = usize::try_from(number(2)).unwrap_or(0);
                Ok(Value::from(
                    &spile_ir::fmt::escape_within(&bytes, room, true)[..],
                ))
            }
            _ => self.string(space, addr, number(1)),
        }
    }

    /// Sets `$value`, or appends to it; returns whether all of it fits.
    pub fn set_value(&mut self, text: &[u8], add: bool) -> bool {
        let (value, most) = &mut self.value;
        if !add {
            value.clear();
        }
        let room = most.saturating_sub(value.len()).min(text.len());
        value.extend_from_slice(&text[..room]);
        room == text.len()
    }

    /// Intrinsics without arguments that return a number.
    fn number(&mut self, f: Intrinsic) -> Option<i64> {
        use rustix::process as p;
        let pid = |pid: p::Pid| i64::from(pid.as_raw_nonzero().get());
        Some(match f {
            Intrinsic::Pid => i64::from(std::process::id()),
            Intrinsic::Tid => pid(rustix::thread::gettid()),
            Intrinsic::Ppid => p::getppid().map_or(0, pid),
            Intrinsic::Pgrp => pid(p::getpgrp()),
            Intrinsic::Sid => p::getsid(None).map_or(0, pid),
            Intrinsic::Uid => i64::from(p::getuid().as_raw()),
            Intrinsic::Euid => i64::from(p::geteuid().as_raw()),
            Intrinsic::Gid => i64::from(p::getgid().as_raw()),
            Intrinsic::Egid => i64::from(p::getegid().as_raw()),
            Intrinsic::Cpu => rustix::thread::sched_getcpu() as i64,
            Intrinsic::RealNs => clock::real_ns(),
            Intrinsic::MonoNs | Intrinsic::CpuClock => clock::mono_ns(),
            Intrinsic::Cycles => clock::mono_ns(),
            Intrinsic::TzOffset => self.zone.west,
            Intrinsic::Target => self.target,
            Intrinsic::Rand => (self.random() >> 32) as i64,
            Intrinsic::TaskSpace | Intrinsic::UserNsLevel => 0,
            Intrinsic::UserMode | Intrinsic::CtxAddr | Intrinsic::CtxEntry => 0,
            _ => return None,
        })
    }

    /// Fills a buffer from kernel memory.
    pub fn read_kernel(&mut self, addr: u64, buf: &mut [u8]) -> Result<bool, Fault> {
        let memory = self.kernel_memory()?;
        memory
            .read(addr, buf)
            .map_err(|e| Fault::from(e.to_string()))
    }

    fn kernel_memory(&mut self) -> Result<&KernelMemory, Fault> {
        let memory = self
            .memory
            .get_or_insert_with(|| KernelMemory::open().map_err(|e| e.to_string()));
        memory
            .as_ref()
            .map_err(|e| Fault::from(format!("reading kernel memory: {e}")))
    }

    /// Fills a buffer from kernel memory, or from memory of the process that the handler runs for.
    pub fn read(&mut self, space: Space, addr: u64, buf: &mut [u8]) -> Result<bool, Fault> {
        match space {
            Space::Kernel => self.read_kernel(addr, buf),
            Space::User => Ok(self.task.as_mut().is_some_and(|t| t.read(addr, buf))),
        }
    }

    /// A word of kernel memory; `None` if it cannot be read.
    pub fn kernel_word(&mut self, addr: u64) -> Option<u64> {
        let mut word = [0; 8];
        let read = self.read_kernel(addr, &mut word).unwrap_or(false);
        read.then(|| u64::from_ne_bytes(word))
    }

    /// Reads a string.
    fn string(&mut self, space: Space, addr: u64, most: i64) -> Result<Value, Fault> {
        let most = most.clamp(0, MOST_STRING) as usize;
        let mut text = Vec::new();
        // As in kernel handlers, a bad address is an error even if no byte of the string is wanted.
        if most == 0 && !self.read(space, addr, &mut [0])? {
            return Err(string_fault(space, addr));
        }
        // Reads up to the next multiple of 64 bytes at a time, so that no page behind the string is
        // accessed.
        while text.len() < most {
            let at = addr.wrapping_add(text.len() as u64);
            let len = (64 - (at % 64) as usize).min(most - text.len());
            let mut piece = [0; 64];
            if !self.read(space, at, &mut piece[..len])? {
                return Err(string_fault(space, addr));
            }
            match piece[..len].iter().position(|&b| b == 0) {
                Some(end) => {
                    text.extend_from_slice(&piece[..end]);
                    break;
                }
                None => text.extend_from_slice(&piece[..len]),
            }
        }
        Ok(Value::from(&text[..]))
    }

    /// Reads a string of 16-bit or 32-bit units.
    fn unicode(&mut self, space: Space, addr: u64, unit: i64, room: i64) -> Result<Value, Fault> {
        let unit = if unit == 2 { 2 } else { 4 };
        let room = room.clamp(1, MOST_STRING) as usize;
        let text = spile_ir::interp::unicode(unit, room, |at| {
            let mut bytes = [0; 4];
            let here = addr.wrapping_add(at);
            if !self.read(space, here, &mut bytes[..unit as usize])? {
                return Err(string_fault(space, addr));
            }
            Ok(u32::from_ne_bytes(bytes))
        })?;
        let invalid = || format!("{}{addr:x}", spile_ir::interp::invalid_unicode(unit as i32));
        text.map(|t| Value::from(&t[..]))
            .ok_or_else(|| Fault::from(invalid()))
    }
}

fn string_fault(space: Space, addr: u64) -> Fault {
    let of = match space {
        Space::Kernel => "kernel",
        Space::User => "user",
    };
    Fault::from(format!("{of} string copy fault at {addr:#x}"))
}

/// The command line of a process in `/proc`, with arguments joined by spaces.
pub(crate) fn command_line(process: &str) -> Vec<u8> {
    let mut text = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    if text.last() == Some(&0) {
        text.pop();
    }
    let mut line = Vec::with_capacity(text.len());
    for (i, argument) in text.split(|b| *b == 0).enumerate() {
        if i > 0 {
            line.push(b' ');
        }
        // As in SystemTap, empty arguments are shown, except for the program's name.
        line.extend_from_slice(match argument {
            b"" if i > 0 => b"\"\"",
            _ => argument,
        });
    }
    line
}

/// Writes to the kernel's trace buffer, if tracefs is mounted.
fn trace(text: &[u8]) {
    let marker = [
        "/sys/kernel/tracing/trace_marker",
        "/sys/kernel/debug/tracing/trace_marker",
    ];
    for path in marker {
        // Without tracefs the buffer has no readers either.
        if fs::write(path, text).is_ok() {
            return;
        }
    }
}

fn symbol_name(address: u64) -> String {
    let symbols = Symbols::kernel().ok();
    match symbols.and_then(|s| s.resolve(address)) {
        Some((symbol, _)) => spile_plain::name(symbol.name).into_owned(),
        None => format!("{address:#x}"),
    }
}

/// `name+0xoff/0xsize [module]` of a kernel address.
pub fn symbol_data(address: u64) -> String {
    let text = Symbols::kernel().map_or_else(|_| format!("{address:#x}"), |s| s.describe(address));
    spile_plain::name(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts() {
        let mut host = Host::new(77);
        let mut get = |f| host.intrinsic(f, &[]).unwrap();
        assert_eq!(get(Intrinsic::Target), Value::Long(77));
        assert_eq!(
            get(Intrinsic::Pid),
            Value::Long(i64::from(std::process::id()))
        );
        assert!(get(Intrinsic::RealNs).as_long() > 1_600_000_000_000_000_000);
        assert!(!get(Intrinsic::Execname).as_bytes().is_empty());
        assert!(!get(Intrinsic::Cmdline).as_bytes().is_empty());
        let (a, b) = (get(Intrinsic::Rand), get(Intrinsic::Rand));
        assert!(a != b && (0..1 << 32).contains(&a.as_long()));
        assert!(host.intrinsic(Intrinsic::SysNr, &[]).is_err());
        host.intrinsic(Intrinsic::Exit, &[]).unwrap();
        assert!(host.exit);
    }

    #[test]
    fn unknown_addresses_stay_numbers() {
        assert_eq!(symbol_name(1), "0x1");
        assert_eq!(symbol_data(1), "0x1");
    }
}
