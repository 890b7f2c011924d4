//! Follows a thread into the program that it is about to execute.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::image::EXECUTES;
use crate::process::{Memory, Status};
use crate::processor::registers::{self, Registers};
use crate::ptrace::{self, Stop};
use crate::threads::{seize, settle};

/// A thread makes no more stops than these before it executes its program.
const STOPS: usize = 64;
/// The longest name of a file.
const NAME: u64 = libc::PATH_MAX.cast_unsigned() as u64;

/// Follows a thread that waits ([`crate::PlaceKind::Execute`]), until its process has executed another program, and stands
/// behind that. `release` lets the thread go on. Returns the process; or nothing, if the call failed, or if the program
/// gets rights that it would not get under a tracer.
///
/// The calling thread traces the process as long as it runs.
///
/// # Errors
/// The thread ended, or somebody else traces it. It is released all the same.
pub fn follow(thread: u32, release: impl FnOnce()) -> Result<Option<u32>, Error> {
    let process = Status::read(thread).map_err(|_| Error::Ended)?.process;
    let seized = seize(process, thread).and_then(|seized| match seized {
        true => settle(thread),
        false => Err(Error::Ended),
    });
    release();
    seized?;
    let traced = Error::system("trace the process");
    let (mut tid, mut signal, mut is_entered) = (thread, 0, false);
    for _ in 0..STOPS {
        ptrace::to_call(tid, signal).map_err(&traced)?;
        let stop = match ptrace::wait(tid) {
            // Of the threads of a process, the one that executes a program becomes the first.
            Err(Error::Ended) if tid != process => {
                tid = process;
                ptrace::wait(tid)
            }
            stop => stop,
        };
        signal = match stop? {
            Stop::Signal(signal) => signal,
            Stop::Asked => 0,
            Stop::Call => {
                let now = ptrace::registers(tid).map_err(&traced)?;
                let executes = EXECUTES.contains(&registers::call(&now));
                match registers::returned(&now) {
                    None if executes && gives_rights(tid, &now) => return Ok(None),
                    None if executes => is_entered = true,
                    Some(_) if executes && is_entered => {
                        let done = registers::result(&now).is_ok();
                        return Ok(done.then_some(process));
                    }
                    _ => {}
                }
                0
            }
        };
    }
    Ok(None)
}

/// Whether the program that a thread is about to execute has other rights than its user, and this process could not give it
/// these.
fn gives_rights(tid: u32, registers: &Registers) -> bool {
    // SAFETY: a number.
    if unsafe { libc::geteuid() } == 0 {
        return false;
    }
    let Some(path) = executed(tid, registers) else {
        return false;
    };
    let Ok(about) = fs::metadata(&path) else {
        return false;
    };
    let changes_user = about.permissions().mode() & (libc::S_ISUID | libc::S_ISGID) != 0;
    let mut none = [0u8; 0];
    let capable = rustix::fs::getxattr(&path, c"security.capability", &mut none[..]);
    changes_user || capable.is_ok_and(|bytes| bytes > 0)
}

/// The file of the program.
fn executed(tid: u32, registers: &Registers) -> Option<PathBuf> {
    let (folder, name) = registers::executed(registers);
    let memory = Memory::open(tid).ok()?;
    let bytes = memory.read(name, NAME);
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let name = Path::new(OsStr::from_bytes(&bytes[..end]));
    let root = PathBuf::from(format!("/proc/{tid}/root"));
    Some(match (name.strip_prefix("/"), folder) {
        (Ok(within), _) => root.join(within),
        (Err(_), None) => Path::new(&format!("/proc/{tid}/cwd")).join(name),
        (Err(_), Some(folder)) => Path::new(&format!("/proc/{tid}/fd/{folder}")).join(name),
    })
}
