//! System calls of another process: a stopped thread of it makes them, and then is as it was.

use std::io;

use crate::error::Error;
use crate::process::{Mapping, Memory};
use crate::processor::registers::{self, KERNEL_CALL, Registers};
use crate::ptrace::{self, Stop};

/// The address of an instruction that calls the kernel.
pub(crate) fn instruction(maps: &[Mapping], memory: &Memory) -> Result<u64, Error> {
    let code = |m: &&Mapping| m.executable && m.readable && m.path != "[vsyscall]";
    // The kernel's own library is small, always there, and has one.
    let (first, rest): (Vec<_>, Vec<_>) =
        maps.iter().filter(code).partition(|m| m.path == "[vdso]");
    let mut all = first.into_iter().chain(rest);
    let found = all.find_map(|m| {
        let bytes = memory.read(m.start, m.end - m.start);
        let at = bytes.windows(2).position(|w| w == KERNEL_CALL)?;
        Some(m.start + at as u64)
    });
    found.ok_or(Error::NoSystemCall)
}

/// A thread that makes system calls for us.
#[derive(Debug)]
pub(crate) struct Remote {
    tid: u32,
    seized: bool,
    /// Its registers, with the system call that the stop interrupted.
    saved: Registers,
    /// The signals that it blocks.
    mask: u64,
    /// Whether it is as it was.
    restored: bool,
}

impl Remote {
    /// Takes over a stopped thread. `at` is the address of an instruction.
    pub(crate) fn new(tid: u32, seized: bool) -> Result<Remote, Error> {
        let error = Error::system("read a thread's registers");
        let saved = ptrace::registers(tid).map_err(&error)?;
        let mask = ptrace::mask(tid).map_err(&error)?;
        ptrace::set_mask(tid, u64::MAX).map_err(&error)?;
        Ok(Remote {
            tid,
            seized,
            saved,
            mask,
            restored: false,
        })
    }

    /// The result of a system call by the instruction `at`.
    pub(crate) fn call(
        &self,
        at: u64,
        number: i64,
        args: [u64; 6],
    ) -> Result<Result<u64, io::Error>, Error> {
        let error = Error::system("call the kernel for the process");
        let now = registers::calling(&self.saved, at, number, args);
        ptrace::set_registers(self.tid, &now).map_err(&error)?;
        for _ in 0..2 {
            self.step(ptrace::to_call, Stop::Call)?;
        }
        let after = ptrace::registers(self.tid).map_err(&error)?;
        Ok(registers::result(&after))
    }

    /// Goes on to a kind of stop.
    fn step(&self, go_on: fn(u32, i32) -> io::Result<()>, wanted: Stop) -> Result<(), Error> {
        let mut signal = 0;
        loop {
            go_on(self.tid, signal).map_err(Error::system("call the kernel for the process"))?;
            signal = match ptrace::wait(self.tid)? {
                stop if stop == wanted => return Ok(()),
                // SIGSTOP cannot be blocked. Its stop begins again when we leave.
                Stop::Signal(signal) => signal,
                _ => 0,
            };
        }
    }

    fn restore(&mut self) -> Result<(), Error> {
        let error = Error::system("restore a thread's registers");
        if std::mem::replace(&mut self.restored, true) {
            return Ok(());
        }
        if self.seized {
            // An interrupted system call is restarted only from a stop of this kind.
            ptrace::interrupt(self.tid).map_err(&error)?;
            self.step(ptrace::go_on, Stop::Asked)?;
        }
        ptrace::set_registers(self.tid, &self.saved).map_err(&error)?;
        ptrace::set_mask(self.tid, self.mask).map_err(&error)
    }

    /// Lets the thread be as it was.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.restore()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // After an error: that one is reported.
        let _ = self.restore();
    }
}
