//! Why a process cannot be entered, and why a place cannot be hooked.

use std::fmt;
use std::io;

/// Why a process was not entered, or not left. It runs on as before.
#[derive(Debug)]
pub enum Error {
    /// There is no such process, or it ended meanwhile.
    Ended,
    /// Another process traces it, such as a debugger: its number.
    Traced(u32),
    /// The security module Yama forbids it: the value of `kernel.yama.ptrace_scope`.
    Yama(u32),
    /// It belongs to another user, or gave up its user's rights.
    NotOwned,
    /// It runs under a filter of system calls that this process does not have.
    Filtered,
    /// A thread did not stop within seconds: its number.
    Unstoppable(u32),
    /// No instruction that calls the kernel was found in it.
    NoSystemCall,
    /// No free addresses within reach of the places.
    NoRoom,
    /// No place can be hooked: the reason for each.
    Refused(Vec<(u64, Refusal)>),
    /// A place has neither the instructions that it had nor our jump: its address.
    Changed(u64),
    /// A thread stayed in the entry code, so that the code stays; the places are restored.
    Lingering(u32),
    /// An operation failed.
    System(&'static str, io::Error),
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Error {
        move |e| match e.raw_os_error() {
            Some(libc::ESRCH) => Error::Ended,
            _ => Error::System(what, e),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Ended => f.write_str("the process has ended"),
            Error::Traced(by) => write!(f, "process {by} traces it already, as a debugger does"),
            Error::Yama(scope) => write!(
                f,
                "kernel.yama.ptrace_scope is {scope}: only programs started by this one may be entered"
            ),
            Error::NotOwned => {
                f.write_str("the process belongs to another user or has other rights")
            }
            Error::Filtered => f.write_str("a filter restricts its system calls (seccomp)"),
            Error::Unstoppable(tid) => write!(f, "thread {tid} does not stop"),
            Error::NoSystemCall => f.write_str("it has no instruction that calls the kernel"),
            Error::NoRoom => f.write_str("no free addresses within 2 GB of the places"),
            Error::Refused(all) => match all.first() {
                Some((at, why)) => write!(f, "no place can be hooked; {at:#x}: {why}"),
                None => f.write_str("there is no place to hook"),
            },
            Error::Changed(at) => write!(f, "somebody else changed the code at {at:#x}"),
            Error::Lingering(tid) => write!(f, "thread {tid} stays in the entry code"),
            Error::System(what, e) => write!(f, "{what}: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// Why a place cannot be hooked by a jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no code.
    NoCode,
    /// Bytes that are no instruction.
    Invalid,
    /// A breakpoint of the kernel or a debugger.
    Breakpoint,
    /// The function is shorter than a jump.
    Short,
    /// Code jumps to an instruction that the jump would replace.
    JumpedTo,
    /// The jump would replace a call in front of other instructions, or one by a pointer: its return address would be in the
    /// copy.
    Call,
    /// The jump would replace a system call.
    SystemCall,
    /// Code uses flags behind a system call that were set in front of it.
    Flags,
    /// An instruction cannot run at another address.
    Immovable,
    /// More than 2 GB from where there is room.
    Far,
    /// It overlaps with another place.
    Overlap,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NoCode => "there is no code",
            Refusal::Invalid => "it is no valid instruction",
            Refusal::Breakpoint => "somebody else has a breakpoint there",
            Refusal::Short => "the function is shorter than a jump",
            Refusal::JumpedTo => "code jumps into the instructions that the jump replaces",
            Refusal::Call => "there is a call in the instructions that the jump replaces",
            Refusal::SystemCall => {
                "there is a system call in the instructions that the jump replaces"
            }
            Refusal::Flags => "flags that are set in front of the system call are used behind it",
            Refusal::Immovable => "the instructions that the jump replaces cannot be moved",
            Refusal::Far => "it is more than 2 GB from the others",
            Refusal::Overlap => "it overlaps with another place",
        })
    }
}
