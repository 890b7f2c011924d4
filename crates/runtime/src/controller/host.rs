//! Intrinsics that ask the machine, for controller handlers: this process, clocks, symbols, kernel
//! memory. Intrinsics about the current task describe the controller itself, or the process that
//! the handler runs for.

use std::fs;
use std::os::unix::fs::FileExt;

use spile_cast::Cast;
use spile_ir::Space;
use spile_ir::interp::{Fault, Value};
use spile_ir::intrinsics::{
    ClockOp, EventOp, Intrinsic, IntrinsicClass, MemoryOp, SessionOp, SymbolOp, TaskNumber, TaskOp,
};
use spile_kernel::bpf::{BpfError, Errno};

use crate::error::Error;
use crate::machine::clock::{self, TimeZone};
use crate::machine::direct_map::{self, DirectMap};
use crate::machine::existing_tasks::ExistingTask;
use crate::machine::kernel_memory::KernelMemory;
use crate::machine::names::{command_line, symbol_data, symbol_name};
use crate::machine::pid_namespace::{self, PidMap};

/// The machine, as controller handlers see it.
pub struct ControllerHost {
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
    own_memory: Option<fs::File>,
    direct_map: Option<DirectMap>,
}

/// Limit on the bytes of a string that is read from memory.
const MOST_STRING: i64 = 4096;
/// Bytes of a task's name.
const COMM: i64 = 16;

impl ControllerHost {
    /// A host for a session with this target.
    pub fn new(target: i64) -> ControllerHost {
        let seed = clock::mono_ns().cast_unsigned() ^ u64::from(std::process::id()) << 32;
        ControllerHost {
            target,
            input: Vec::new(),
            value: (Vec::new(), 0),
            exit: false,
            task: None,
            zone: clock::zone(),
            random: seed | 1,
            memory: None,
            own_memory: None,
            direct_map: None,
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
        match f.class() {
            IntrinsicClass::TaskNumber(which) => self.task_number(which).map(Value::Long),
            IntrinsicClass::Task(op) => self.task_op(op),
            IntrinsicClass::Clock(op) => Ok(self.clock(op)),
            IntrinsicClass::Session(op) => self.session(op, args),
            IntrinsicClass::Memory(op) => self.memory_text(op, args),
            IntrinsicClass::Symbol(op) => symbol(op, args),
            IntrinsicClass::Event(op) => event(op),
            // The interpreter runs texts and the state of its run.
            IntrinsicClass::Context(_)
            | IntrinsicClass::Act(_)
            | IntrinsicClass::Syscall(_)
            | IntrinsicClass::Text(_)
            | IntrinsicClass::Run(_) => Err(elsewhere(f)),
        }
    }

    /// A number of the process that the handler runs for, or of the controller.
    fn task_number(&mut self, which: TaskNumber) -> Result<i64, Fault> {
        // Taken out, because reading kernel memory borrows all of `self`.
        let Some(task) = self.task.take() else {
            return Ok(own_number(which));
        };
        let number = task.number(which, &mut |address| self.kernel_word(address));
        self.task = Some(task);
        number.ok_or_else(|| Fault::from("the process has ended"))
    }

    fn task_op(&mut self, op: TaskOp) -> Result<Value, Fault> {
        Ok(match op {
            TaskOp::Execname => match &self.task {
                Some(task) => {
                    let comm = task.comm();
                    return self.string(Space::Kernel, comm, COMM);
                }
                None => Value::from(&clock::comm()[..]),
            },
            TaskOp::Cmdline => match &self.task {
                Some(task) => Value::from(&task.command_line()[..]),
                None => Value::from(&command_line("self")[..]),
            },
            TaskOp::TaskHere | TaskOp::TaskCurrent => match &self.task {
                Some(task) => Value::Long(task.address.cast_signed()),
                None => {
                    let task = self.kernel_memory()?.current_task();
                    Value::Long(task.map_err(|e| Fault::from(e.to_string()))?.cast_signed())
                }
            },
            TaskOp::Cpu => Value::Long(rustix::thread::sched_getcpu().fit()),
            TaskOp::InCall | TaskOp::CgroupId | TaskOp::CgroupAncestor => {
                return Err(elsewhere(op));
            }
        })
    }

    fn clock(&mut self, op: ClockOp) -> Value {
        Value::Long(match op {
            ClockOp::RealNs => clock::real_ns(),
            ClockOp::MonoNs | ClockOp::CpuClock | ClockOp::Cycles => clock::mono_ns(),
            ClockOp::Jiffies => {
                // If no program can be run, the clock gives nearly the same value.
                let kernel = self.kernel_memory().ok().and_then(|m| m.jiffies().ok());
                kernel.map_or_else(clock::jiffies, u64::cast_signed)
            }
            ClockOp::TzOffset => self.zone.west,
            ClockOp::TzName => return Value::from(&*self.zone.name),
        })
    }

    fn session(&mut self, op: SessionOp, args: &[Value]) -> Result<Value, Fault> {
        Ok(match op {
            SessionOp::Exit => {
                self.exit = true;
                Value::Long(0)
            }
            SessionOp::Target => Value::Long(self.target),
            SessionOp::DirectMap => Value::Long(self.direct_map().memory.cast_signed()),
            SessionOp::PageArray => Value::Long(self.direct_map().pages.cast_signed()),
            SessionOp::Rand => Value::Long((self.random() >> 32).cast_signed()),
            SessionOp::InputText => Value::from(&self.input[..]),
            SessionOp::ValueText => Value::from(&self.value.0[..]),
            SessionOp::Ftrace => {
                trace(args.first().map_or(&b""[..], |v| v.as_bytes()));
                Value::Long(0)
            }
            // The environment has the processes and the texts behind marks.
            SessionOp::InTree
            | SessionOp::TreeAdd
            | SessionOp::ValueSet
            | SessionOp::ValueAppend => {
                return Err(elsewhere(op));
            }
        })
    }

    /// Reads a text from memory.
    fn memory_text(&mut self, op: MemoryOp, args: &[Value]) -> Result<Value, Fault> {
        let number = |i: usize| args.get(i).map_or(0, Value::as_long);
        let (space, addr) = (op.space(), number(0).cast_unsigned());
        match op {
            MemoryOp::KernelUtf | MemoryOp::UserUtf => {
                self.unicode(space, addr, number(1), number(2))
            }
            MemoryOp::KernelQuoted | MemoryOp::UserQuoted => {
                let mut bytes = vec![0; number(1).clamp(0, MOST_STRING).fit::<usize>()];
                if !bytes.is_empty() && !self.read(space, addr, &mut bytes)? {
                    return Err(string_fault(space, addr));
                }
                let capacity = usize::try_from(number(2)).unwrap_or(0);
                Ok(Value::from(
                    &spile_ir::fmt::escape_within(&bytes, capacity, true)[..],
                ))
            }
            MemoryOp::KernelStr | MemoryOp::UserStr | MemoryOp::UserBuf => {
                self.string(space, addr, number(1))
            }
            MemoryOp::KernelBuf => Err(elsewhere(op)),
        }
    }

    /// The locations of all memory, zeros if they cannot be found.
    fn direct_map(&mut self) -> DirectMap {
        let addresses = || direct_map::find().unwrap_or_default();
        *self.direct_map.get_or_insert_with(addresses)
    }

    /// Sets `$value`, or appends to it; returns whether all of it fits.
    pub fn set_value(&mut self, text: &[u8], add: bool) -> bool {
        let (value, most) = &mut self.value;
        if !add {
            value.clear();
        }
        let capacity = most.saturating_sub(value.len()).min(text.len());
        value.extend_from_slice(&text[..capacity]);
        capacity == text.len()
    }

    fn kernel_memory(&mut self) -> Result<&KernelMemory, Fault> {
        let memory = self
            .memory
            .get_or_insert_with(|| KernelMemory::open().map_err(|e| why_closed(&e)));
        memory
            .as_ref()
            .map_err(|e| Fault::from(format!("reading kernel memory: {e}")))
    }

    /// Fills a buffer from kernel memory, or from memory of the process that the handler runs for,
    /// which is the controller if there is no other.
    pub fn read(&mut self, space: Space, addr: u64, buf: &mut [u8]) -> Result<bool, Fault> {
        match space {
            Space::Kernel => {
                let read = self.kernel_memory()?.read(addr, buf);
                read.map_err(|e| Fault::from(e.to_string()))
            }
            Space::User => Ok(match &mut self.task {
                Some(task) => task.read(addr, buf),
                None => self.read_own(addr, buf),
            }),
        }
    }

    /// Fills a buffer from the controller's own memory; false if that cannot be read.
    fn read_own(&mut self, addr: u64, buf: &mut [u8]) -> bool {
        if self.own_memory.is_none() {
            self.own_memory = fs::File::open("/proc/self/mem").ok();
        }
        let memory = self.own_memory.as_ref();
        memory.is_some_and(|m| m.read_exact_at(buf, addr).is_ok())
    }

    /// A word of kernel memory; `None` if it cannot be read.
    pub fn kernel_word(&mut self, addr: u64) -> Option<u64> {
        self.kernel_memory().ok()?.word(addr)
    }

    /// Reads a string.
    fn string(&mut self, space: Space, addr: u64, most: i64) -> Result<Value, Fault> {
        let most = most.clamp(0, MOST_STRING).fit::<usize>();
        let mut text = Vec::new();
        // As in kernel handlers, a bad address is an error even if no byte of the string is wanted.
        if most == 0 && !self.read(space, addr, &mut [0])? {
            return Err(string_fault(space, addr));
        }
        // Reads up to the next multiple of 64 bytes at a time, so that no page behind the string is
        // accessed.
        while text.len() < most {
            let address = addr.wrapping_add(text.len() as u64);
            let len = (64 - (address % 64) as usize).min(most - text.len());
            let mut piece = [0; 64];
            if !self.read(space, address, &mut piece[..len])? {
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
    fn unicode(
        &mut self,
        space: Space,
        addr: u64,
        unit: i64,
        capacity: i64,
    ) -> Result<Value, Fault> {
        let unit = if unit == 2 { 2 } else { 4 };
        let capacity = capacity.clamp(1, MOST_STRING).fit::<usize>();
        let text = spile_ir::interp::unicode(unit, capacity, |offset| {
            let mut bytes = [0; 4];
            let address = addr.wrapping_add(offset);
            if !self.read(space, address, &mut bytes[..unit.fit::<usize>()])? {
                return Err(string_fault(space, addr));
            }
            Ok(u32::from_ne_bytes(bytes))
        })?;
        let message = || spile_ir::interp::invalid_unicode(unit.fit());
        let invalid = || format!("{}{addr:x}", message());
        text.map(|t| Value::from(&t[..]))
            .ok_or_else(|| Fault::from(invalid()))
    }
}

/// The error of an intrinsic that the controller's machine does not have.
fn elsewhere(f: impl Into<Intrinsic>) -> Fault {
    Fault::from(format!("{} has no event here", f.into().info().name))
}

/// A number of the controller. Numbers of processes are the machine's, as in kernel handlers.
fn own_number(which: TaskNumber) -> i64 {
    use rustix::process as p;
    let pid = |pid: p::Pid| {
        let number = pid.as_raw_nonzero().get().unsigned_abs();
        i64::from(match number == std::process::id() {
            true => pid_namespace::own_pid(),
            false => PidMap::now().to_machine(number),
        })
    };
    match which {
        TaskNumber::Pid => i64::from(pid_namespace::own_pid()),
        TaskNumber::Tid => pid(rustix::thread::gettid()),
        TaskNumber::Ppid => p::getppid().map_or(0, pid),
        TaskNumber::Pgrp => pid(p::getpgrp()),
        TaskNumber::Sid => p::getsid(None).map_or(0, pid),
        TaskNumber::Uid => i64::from(p::getuid().as_raw()),
        TaskNumber::Euid => i64::from(p::geteuid().as_raw()),
        TaskNumber::Gid => i64::from(p::getgid().as_raw()),
        TaskNumber::Egid => i64::from(p::getegid().as_raw()),
        TaskNumber::TaskSpace
        | TaskNumber::UserNsLevel
        | TaskNumber::ExeDevice
        | TaskNumber::ExeInode => 0,
    }
}

fn event(op: EventOp) -> Result<Value, Fault> {
    match op {
        EventOp::UserMode | EventOp::CtxAddr | EventOp::CtxEntry => Ok(Value::Long(0)),
        EventOp::CtxActivation
        | EventOp::CtxRecord
        | EventOp::CtxStackAddress
        | EventOp::NextTid
        | EventOp::NextPid
        | EventOp::PerfCount
        | EventOp::Verdict
        | EventOp::VerdictSet
        | EventOp::Decision => Err(elsewhere(op)),
    }
}

fn symbol(op: SymbolOp, args: &[Value]) -> Result<Value, Fault> {
    let address = args.first().map_or(0, Value::as_long).cast_unsigned();
    match op {
        SymbolOp::SymName => Ok(Value::from(&*symbol_name(address))),
        SymbolOp::SymData => Ok(Value::from(&*symbol_data(address))),
        // A handler of the controller stands at no location in code: its stacks are empty.
        SymbolOp::KernelStack
        | SymbolOp::KernelSymbolic
        | SymbolOp::UserStack
        | SymbolOp::UserSymbolic
        | SymbolOp::UserSymbolicFrom
        | SymbolOp::StackRest => Ok(Value::from(&b""[..])),
        SymbolOp::KernelFrame | SymbolOp::UserFrame | SymbolOp::StackMark => Ok(Value::Long(0)),
        SymbolOp::StackWords => Ok(args.first().cloned().unwrap_or(Value::from(&b""[..]))),
        // The environment makes texts of stacks from addresses.
        SymbolOp::SymbolicForm | SymbolOp::Interrupted => Err(elsewhere(op)),
    }
}

fn string_fault(space: Space, addr: u64) -> Fault {
    let owner = match space {
        Space::Kernel => "kernel",
        Space::User => "user",
    };
    Fault::from(format!("{owner} string copy fault at {addr:#x}"))
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

/// Why kernel memory cannot be read.
fn why_closed(e: &BpfError) -> String {
    match e.errno() {
        Some(Errno::PERM | Errno::ACCESS) => Error::Privileges.to_string(),
        _ => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intrinsics_of_the_controller_have_values() {
        let mut host = ControllerHost::new(77);
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
}
