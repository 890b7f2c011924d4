//! What `/proc` says of a process: its state, its mappings, its memory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use spile_cast::Cast;
pub(crate) use spile_kernel::process::Mapping;
use spile_kernel::process::file_identity;

use crate::error::Error;
use crate::processor::TASK_SIZE;

/// Lines of `/proc/PID/status`.
#[derive(Debug, Default)]
pub(crate) struct Status {
    /// The process of the thread.
    pub(crate) process: u32,
    pub(crate) parent: u32,
    /// The thread that traces it, or 0.
    pub(crate) tracer: u32,
    /// Whether it has ended, but was not waited for.
    pub(crate) zombie: bool,
    /// 1: only a few system calls; 2: filters.
    seccomp: u32,
    filters: u32,
}

impl Status {
    pub(crate) fn read(pid: u32) -> io::Result<Status> {
        Ok(Status::parse(&fs::read_to_string(format!(
            "/proc/{pid}/status"
        ))?))
    }

    fn parse(text: &str) -> Status {
        let mut status = Status::default();
        for (name, value) in text.lines().filter_map(|l| l.split_once(':')) {
            let value = value.trim();
            let number = || value.parse().unwrap_or(0);
            match name {
                "Tgid" => status.process = number(),
                "PPid" => status.parent = number(),
                "TracerPid" => status.tracer = number(),
                "State" => status.zombie = value.starts_with(['Z', 'X']),
                "Seccomp" => status.seccomp = number(),
                "Seccomp_filters" => status.filters = number(),
                _ => {}
            }
        }
        status
    }

    /// Whether it has filters that another process does not have. Containers filter all their processes alike.
    pub(crate) fn filtered_more_than(&self, other: &Status) -> bool {
        self.seccomp == 1 || (self.seccomp == 2 && self.filters > other.filters)
    }
}

/// Why `ptrace` refused a process.
pub(crate) fn refusal(pid: u32) -> Error {
    match Status::read(pid) {
        Err(_) => return Error::Ended,
        Ok(status) if status.zombie => return Error::Ended,
        Ok(status) if status.tracer != 0 => return Error::Traced(status.tracer),
        Ok(_) => {}
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    match scope.and_then(|s| s.trim().parse().ok()) {
        Some(scope @ 1..) => Error::Yama(scope),
        _ => Error::NotOwned,
    }
}

/// What the records of a process's threads have, because only the kernel tells it and it does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessFacts {
    /// Address of the vDSO's `clock_gettime`, or 0.
    pub clock: u64,
    /// End of the address space.
    pub task_size: u64,
    /// Where the arguments of the command line begin and end.
    pub arguments: [u64; 2],
    /// Device and inode of the program's file.
    pub program: [u64; 2],
}

impl ProcessFacts {
    /// Fields of `/proc/PID/stat` behind the name: the beginning of the arguments; the end follows.
    const ARGUMENTS: usize = 48 - 3;

    /// Those of a process, without the clock. What the kernel does not tell is 0.
    #[must_use]
    pub fn of(pid: u32) -> ProcessFacts {
        ProcessFacts::read(pid, &[], None)
    }

    /// `clock` is the offset of `clock_gettime` in the vDSO.
    pub(crate) fn read(pid: u32, maps: &[Mapping], clock: Option<u64>) -> ProcessFacts {
        let vdso = maps.iter().find(|m| m.path == "[vdso]");
        let clock = vdso.zip(clock).map(|(vdso, offset)| vdso.start + offset);
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let field = |n: usize| {
            let text = behind.split_whitespace().nth(n)?;
            text.parse().ok()
        };
        let program = file_identity(Path::new(&format!("/proc/{pid}/exe")));
        ProcessFacts {
            clock: clock.unwrap_or(0),
            task_size: TASK_SIZE,
            arguments: [0, 1].map(|n| field(ProcessFacts::ARGUMENTS + n).unwrap_or(0)),
            program: program.map_or([0; 2], |(device, inode)| [device, inode]),
        }
    }
}

/// Its threads, the first one first.
pub(crate) fn threads(pid: u32) -> Result<Vec<u32>, Error> {
    let all = spile_kernel::process::threads(pid);
    (!all.is_empty()).then_some(all).ok_or(Error::Ended)
}

/// Whether a thread traces a process, all of whose threads it lets go at once.
pub(crate) fn traced_by(pid: u32, tracer: u32) -> bool {
    let all = threads(pid).unwrap_or_default();
    let mut living = all
        .into_iter()
        .filter_map(|t| Status::read(t).ok().filter(|s| !s.zombie));
    living.next().is_some_and(|s| s.tracer == tracer)
}

/// Its mappings, by address.
pub(crate) fn mappings(pid: u32) -> Result<Vec<Mapping>, Error> {
    let all = spile_kernel::process::mappings(pid).map_err(|e| match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => refusal(pid),
        Some(libc::ENOENT | libc::ESRCH) => Error::Ended,
        _ => Error::System("read its mappings", e),
    })?;
    // A process that has ended has no memory.
    (!all.is_empty()).then_some(all).ok_or(Error::Ended)
}

/// Its memory, also where it may not write itself.
#[derive(Debug)]
pub(crate) struct Memory(File);

impl Memory {
    pub(crate) fn open(pid: u32) -> Result<Memory, Error> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"));
        file.map(Memory).map_err(|e| match e.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => refusal(pid),
            Some(libc::ENOENT | libc::ESRCH) => Error::Ended,
            _ => Error::System("open its memory", e),
        })
    }

    /// The bytes from an address on, as many as there are.
    pub(crate) fn read(&self, address: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length.fit()];
        let mut got = 0;
        while got < bytes.len() {
            match self.0.read_at(&mut bytes[got..], address + got as u64) {
                Ok(n @ 1..) => got += n,
                _ => break,
            }
        }
        bytes.truncate(got);
        bytes
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        self.0
            .write_all_at(bytes, address)
            .map_err(|e| match e.kind() {
                // No address space is left.
                io::ErrorKind::WriteZero => Error::Ended,
                _ => Error::System("write to its memory", e),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_this_process() {
        let all = mappings(std::process::id()).unwrap();
        let here = mappings_of_this_process as *const () as u64;
        let own = all
            .iter()
            .find(|m| (m.start..m.end).contains(&here))
            .unwrap();
        assert!(own.executable && own.readable && own.path.starts_with('/'));
        assert!(all.iter().any(|m| m.path == "[stack]" && !m.executable));
        assert!(matches!(mappings(0), Err(Error::Ended)));
    }

    #[test]
    fn filters_count_where_they_are_more() {
        let status =
            Status::parse("Name:\tx\nState:\tS (sleeping)\nSeccomp:\t2\nSeccomp_filters:\t2\n");
        let alike = Status::parse("Seccomp:\t2\nSeccomp_filters:\t2\n");
        assert!(status.filtered_more_than(&Status::default()));
        assert!(!status.filtered_more_than(&alike));
        assert!(Status::parse("Seccomp:\t1\n").filtered_more_than(&alike));
        assert!(!Status::default().filtered_more_than(&alike));
    }
}
