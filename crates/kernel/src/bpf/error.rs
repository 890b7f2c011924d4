//! The commands of `bpf(2)`, and why a request failed.

use std::fmt;

use rustix::io::Errno;

use crate::errno::describe_errno;

/// Commands of `bpf(2)`, with their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)] // each is the kernel's own word
pub enum Command {
    MapCreate = 0,
    MapLookupElem = 1,
    MapUpdateElem = 2,
    MapDeleteElem = 3,
    ProgLoad = 5,
    ProgTestRun = 10,
    ProgGetNextId = 11,
    MapGetNextId = 12,
    ProgGetFdById = 13,
    MapGetFdById = 14,
    ObjGetInfoByFd = 15,
    RawTracepointOpen = 17,
    BtfLoad = 18,
    MapFreeze = 22,
    MapLookupBatch = 24,
    MapLookupAndDeleteBatch = 25,
    MapUpdateBatch = 26,
    MapDeleteBatch = 27,
    LinkCreate = 28,
    LinkGetFdById = 30,
    LinkGetNextId = 31,
    EnableStats = 32,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BpfError {
    /// The kernel refused the command.
    Call {
        /// The command.
        command: Command,
        /// The reason.
        errno: Errno,
    },
    /// The verifier refused a program.
    Rejected {
        /// The error number.
        errno: Errno,
        /// The verifier's log.
        log: String,
    },
    /// A key or value does not have the map's size, or a name contains a NUL byte; the kernel was
    /// not called.
    Argument(&'static str),
}

impl BpfError {
    /// The error number, if the kernel returned one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            BpfError::Call { errno, .. } | BpfError::Rejected { errno, .. } => Some(*errno),
            BpfError::Argument(_) => None,
        }
    }
}

impl fmt::Display for BpfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BpfError::Call { command, errno } => {
                write!(f, "bpf({command:?}): {}", describe_errno(*errno))
            }
            BpfError::Rejected { errno, log } => {
                write!(f, "bpf(ProgLoad): {}\n{log}", describe_errno(*errno))
            }
            BpfError::Argument(what) => write!(f, "bpf: {what}"),
        }
    }
}

impl std::error::Error for BpfError {}
