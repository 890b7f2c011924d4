//! A command between its `execve` and the first instruction of its program. The libraries that it names come into its
//! memory there.

use std::fs;

use crate::error::Error;
use crate::process::{Memory, threads};
use crate::processor::registers::{BREAKPOINT, back_to_breakpoint};
use crate::ptrace::{self, Stop};

/// The entry in the auxiliary vector that has the address of the program's first instruction.
const AT_ENTRY: u64 = libc::AT_ENTRY;

/// Lets a child that the calling thread traces, and that stands behind its `execve`, run to the first instruction of its
/// program, where it stands again. A command that does not get there within some seconds is stopped where it is.
///
/// # Errors
/// It ended, or has started threads on the way.
pub fn run_to_entry(pid: u32) -> Result<(), Error> {
    let memory = Memory::open(pid)?;
    let entry = entry(pid)?;
    let before = memory.read(entry, BREAKPOINT.len() as u64);
    memory.write(entry, &BREAKPOINT)?;
    let stood = stand_at(pid, entry);
    // After another `execve`, other code is there.
    if memory.read(entry, before.len() as u64) == BREAKPOINT {
        memory.write(entry, &before)?;
    }
    stood?;
    match threads(pid)?.len() {
        1 => Ok(()),
        _ => Err(Error::Started),
    }
}

/// Runs to the breakpoint at an address, and sets the thread back in front of it.
fn stand_at(pid: u32, entry: u64) -> Result<(), Error> {
    let traced = || Error::system("trace the command");
    let mut signal = 0;
    loop {
        ptrace::go_on(pid, signal).map_err(traced())?;
        signal = match ptrace::wait(pid) {
            // The breakpoint, or that of another `execve`.
            Ok(Stop::Signal(libc::SIGTRAP)) => {
                let mut registers = ptrace::registers(pid).map_err(traced())?;
                if back_to_breakpoint(&mut registers, entry) {
                    ptrace::set_registers(pid, &registers).map_err(traced())?;
                }
                return Ok(());
            }
            Ok(Stop::Signal(signal)) => signal,
            Ok(Stop::Asked | Stop::Call) => 0,
            Err(Error::Unstoppable(_)) => {
                ptrace::stop_thread(pid).map_err(traced())?;
                return ptrace::wait(pid).map(drop);
            }
            Err(error) => return Err(error),
        };
    }
}

/// The address of the first instruction of the program.
fn entry(pid: u32) -> Result<u64, Error> {
    let bytes = fs::read(format!("/proc/{pid}/auxv")).map_err(|_| Error::Ended)?;
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|w| u64::from_ne_bytes(*w)).collect();
    let (pairs, _) = words.as_chunks::<2>();
    let found = pairs.iter().find(|[kind, _]| *kind == AT_ENTRY);
    found.map(|[_, value]| *value).ok_or(Error::Ended)
}
