//! The only path to `bpf(2)`.
//!
//! All requests to the kernel's BPF go through here: maps, programs and their types, links, ring
//! buffers, lists of loaded objects, test runs, statistics, and the small programs that probe for
//! features.
//!
//! Since Linux 5.11 memory for programs and maps is charged to the control group, so
//! `RLIMIT_MEMLOCK` is never touched.

mod attr;
pub(crate) use attr::last_errno;
mod info;
mod link;
mod map;
mod prog;
mod ring;

pub use info::{LinkInfo, MapInfo, ProgInfo, Stats, enable_stats, ids, links, maps, programs};
pub use info::{ObjectKind, link_info, map_by_id, map_info, prog_by_id, prog_info};
pub use link::{
    AttachPoints, KernelFunctions, UprobeMulti, attach_type, kprobe_multi, netfilter_link,
    perf_link, uprobe_multi,
};
pub use map::{BatchResult, Map, MapSpec, MapTypes, map_create, map_flag, map_freeze, map_type};
pub use prog::{
    ProgSpec, TestResult, insn, load, load_btf, prog_type, raw_tracepoint_open, test_run,
};
pub use ring::Ring;
pub use rustix::io::Errno;

use std::fmt;

use crate::names;

/// Commands of `bpf(2)`, with their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)] // each is the kernel's own word
pub enum Command {
    MapCreate = 0,
    MapLookupElem = 1,
    MapUpdateElem = 2,
    MapDeleteElem = 3,
    MapGetNextKey = 4,
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
                write!(f, "bpf({command:?}): {}", names::describe_errno(*errno))
            }
            BpfError::Rejected { errno, log } => {
                write!(f, "bpf(ProgLoad): {}\n{log}", names::describe_errno(*errno))
            }
            BpfError::Argument(what) => write!(f, "bpf: {what}"),
        }
    }
}

impl std::error::Error for BpfError {}

#[cfg(test)]
mod tests;
