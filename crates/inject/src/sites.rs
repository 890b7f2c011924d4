//! The places in a process that call the kernel.

use std::ops::Range;

use crate::error::Error;
use crate::process::Memory;
use crate::processor::sites::{self, CallSite};

/// The instructions of system calls in a range of a process's memory. `bounds` gives the function at an address, if it is
/// known.
///
/// # Errors
/// The process has ended, or belongs to somebody else.
pub fn call_sites(
    pid: u32,
    range: Range<u64>,
    bounds: impl Fn(u64) -> Option<Range<u64>>,
) -> Result<Vec<CallSite>, Error> {
    let memory = Memory::open(pid)?;
    let code = memory.read(range.start, range.end - range.start);
    let read = |at, length| memory.read(at, length);
    Ok(sites::sites(&code, range.start, bounds, &read))
}
