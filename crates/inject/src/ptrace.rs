//! Requests of `ptrace`, and waiting for what they lead to. All of a process's must come from one thread.

use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use spile_cast::Cast;

use crate::error::Error;
use crate::process::Status;
use crate::processor::registers::Registers;

/// How long a thread may take to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often to ask whether a thread has stopped before sleeping.
const SPINS: u32 = 8;

/// `PTRACE_GETSIGMASK` and `PTRACE_SETSIGMASK`, and the size of a set of signals in the kernel.
const GET_MASK: libc::c_uint = 0x420a;
const SET_MASK: libc::c_uint = 0x420b;
const MASK_SIZE: usize = 8;

/// Bit of a stop at a system call, with the option `PTRACE_O_TRACESYSGOOD`.
const AT_CALL: i32 = 0x80;

/// Why a thread stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It was asked to, or its process is stopped.
    Asked,
    /// It enters or leaves a system call.
    Call,
    /// A signal is to be delivered to it.
    Signal(i32),
}

/// Lets this thread, which ends soon, run before others when it wakes, and sleep precisely: other threads stand while it
/// waits for a processor. Kernels before 6.12 have no slices of a thread's own; all is longer there.
pub(crate) fn run_promptly() {
    const SHORTEST: u64 = 100_000;
    // SAFETY: a number of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // SAFETY: a number of this thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let slice = libc::sched_attr {
        size: spile_cast::u32_of(size_of::<libc::sched_attr>()),
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: SHORTEST,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure has its size.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const slice, 0) };
}

fn request(what: libc::c_uint, tid: u32, address: usize, data: usize) -> io::Result<()> {
    let tid: libc::pid_t = tid.fit();
    // SAFETY: callers pass addresses of memory that is large enough for the request, or numbers.
    match unsafe { libc::ptrace(what, tid, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

pub(crate) fn seize(tid: u32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD.cast_unsigned() as usize;
    request(libc::PTRACE_SEIZE, tid, 0, options)
}

pub(crate) fn interrupt(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Makes the stops of a thread that was not seized tell system calls from signals.
pub(crate) fn tell_calls(tid: u32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD.cast_unsigned() as usize;
    request(libc::PTRACE_SETOPTIONS, tid, 0, options)
}

pub(crate) fn go_on(tid: u32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal.cast_unsigned() as usize)
}

/// Goes on, with a signal, to where a system call begins or ends.
pub(crate) fn to_call(tid: u32, signal: i32) -> io::Result<()> {
    request(
        libc::PTRACE_SYSCALL,
        tid,
        0,
        signal.cast_unsigned() as usize,
    )
}

pub(crate) fn registers(tid: u32) -> io::Result<Registers> {
    let mut all = MaybeUninit::<Registers>::zeroed();
    request(libc::PTRACE_GETREGS, tid, 0, all.as_mut_ptr() as usize)?;
    // SAFETY: plain numbers, which the request filled in.
    Ok(unsafe { all.assume_init() })
}

pub(crate) fn set_registers(tid: u32, all: &Registers) -> io::Result<()> {
    request(
        libc::PTRACE_SETREGS,
        tid,
        0,
        std::ptr::from_ref(all) as usize,
    )
}

/// The signals that a thread blocks.
pub(crate) fn mask(tid: u32) -> io::Result<u64> {
    let mut mask = 0u64;
    request(GET_MASK, tid, MASK_SIZE, (&raw mut mask) as usize)?;
    Ok(mask)
}

pub(crate) fn set_mask(tid: u32, mask: u64) -> io::Result<()> {
    request(SET_MASK, tid, MASK_SIZE, (&raw const mask) as usize)
}

/// Waits until a thread stops. That a child of ours has ended is left for those who wait for it.
pub(crate) fn wait(tid: u32) -> Result<Stop, Error> {
    let until = Instant::now() + PATIENCE;
    let mut turns = 0u32;
    loop {
        if let Some(code) = peek(tid)? {
            let ended = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED].contains(&code);
            if ended
                && Status::read(tid)
                    .is_ok_and(|s| s.parent == std::process::id() && s.process == tid)
            {
                return Err(Error::Ended);
            }
            return stop(take(tid)?);
        }
        if Instant::now() > until {
            return Err(Error::Unstoppable(tid));
        }
        turns += 1;
        match turns {
            // Whoever gives the processor away may get it back after milliseconds.
            ..SPINS => std::hint::spin_loop(),
            // The first thread of a process reports its end only when all others are gone.
            _ if Status::read(tid).is_ok_and(|s| s.zombie) => return Err(Error::Ended),
            _ => std::thread::sleep(Duration::from_micros(20)),
        }
    }
}

fn waiting(result: i32) -> Result<i32, Error> {
    if result != -1 {
        return Ok(result);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ECHILD) => Err(Error::Ended),
        Some(libc::EINTR) => Ok(0),
        _ => Err(Error::System("wait for a thread", error)),
    }
}

/// What a thread has to report, if it has, without taking the report.
fn peek(tid: u32) -> Result<Option<i32>, Error> {
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::WNOHANG | libc::__WALL;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: fills in the structure.
    waiting(unsafe { libc::waitid(libc::P_PID, tid, info.as_mut_ptr(), flags) })?;
    // SAFETY: plain numbers, all zero where there is nothing to report.
    let info = unsafe { info.assume_init() };
    Ok((info.si_signo != 0).then_some(info.si_code))
}

fn take(tid: u32) -> Result<i32, Error> {
    let mut status = 0;
    // SAFETY: writes a number.
    waiting(unsafe { libc::waitpid(tid.fit(), &raw mut status, libc::__WALL | libc::WNOHANG) })?;
    Ok(status)
}

fn stop(status: i32) -> Result<Stop, Error> {
    if !libc::WIFSTOPPED(status) {
        return Err(Error::Ended);
    }
    let signal = libc::WSTOPSIG(status);
    Ok(match status >> 16 {
        libc::PTRACE_EVENT_STOP => Stop::Asked,
        _ if signal == libc::SIGTRAP | AT_CALL => Stop::Call,
        _ => Stop::Signal(signal),
    })
}
