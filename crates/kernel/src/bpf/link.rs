//! Links: attach programs to code, at many locations at once or through a perf event, each location with
//! a cookie that the program can read.
//!
//! Source of facts: `union bpf_attr` of `linux/bpf.h`, the part for `BPF_LINK_CREATE`.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};

use spile_cast::Cast;

use super::attr::Attr;
use super::error::{BpfError, Command};

/// Attach types, numbered as in `enum bpf_attach_type`. Programs for many locations must be loaded
/// with theirs.
#[allow(missing_docs)]
pub mod attach_type {
    pub const PERF_EVENT: u32 = 41;
    pub const KPROBE_MULTI: u32 = 42;
    pub const NETFILTER: u32 = 45;
    pub const UPROBE_MULTI: u32 = 48;
    pub const KPROBE_SESSION: u32 = 56;
}

/// `BPF_F_KPROBE_MULTI_RETURN`, `BPF_F_UPROBE_MULTI_RETURN`.
const RETURN: u32 = 1;

/// Locations in one file.
#[derive(Debug, Clone, Copy, Default)]
pub struct UprobeMulti<'a> {
    /// The file; the kernel keeps its inode.
    pub path: &'a str,
    /// File offsets of instructions.
    pub offsets: &'a [u64],
    /// File offsets of semaphores, one for each location; or empty.
    pub semaphores: &'a [u64],
    /// Cookies, one for each location.
    pub cookies: &'a [u64],
    /// Whether to probe the returns of the functions that begin at the locations.
    pub ret: bool,
    /// Only in this process.
    pub pid: Option<u32>,
}

/// Attaches a program to locations in one file (Linux 6.6), until the descriptor closes: to all of
/// them or, on failure, none.
///
/// # Errors
/// [`BpfError::Call`]: `ENOENT` if there is no such file, `ESRCH` if there is no such process,
/// `EINVAL` or `ENOTSUPP` (524) if an instruction cannot be probed.
pub fn uprobe_multi(prog: BorrowedFd<'_>, spec: &UprobeMulti<'_>) -> Result<OwnedFd, BpfError> {
    let path = text(spec.path, "a NUL byte in a path")?;
    let count = spec.offsets.len();
    let fits = |n: usize| n == count || n == 0;
    if spec.cookies.len() != count || !fits(spec.semaphores.len()) {
        return Err(BpfError::Argument(
            "as many cookies as locations are needed",
        ));
    }
    let mut attr = Attr::new()
        .fd(0, prog)
        .u32(8, attach_type::UPROBE_MULTI)
        .input(16, path.as_bytes_with_nul())
        .input(24, spec.offsets)
        .input(40, spec.cookies)
        .u32(48, count.fit())
        .u32(52, u32::from(spec.ret) * RETURN)
        .u32(56, spec.pid.unwrap_or(0));
    if !spec.semaphores.is_empty() {
        attr = attr.input(32, spec.semaphores);
    }
    // SAFETY: the path ends with NUL, the arrays are as long as said.
    unsafe { attr.open(Command::LinkCreate) }
}

/// Functions of the kernel.
#[derive(Debug, Clone, Copy)]
pub enum KernelFunctions<'a> {
    /// By name.
    Names(&'a [&'a str]),
    /// By address.
    Addresses(&'a [u64]),
}

/// The points of kernel functions to attach to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachPoints {
    /// Their entry.
    Entry,
    /// Their return.
    Return,
    /// Both (Linux 6.10); the program is loaded for [`attach_type::KPROBE_SESSION`].
    Both,
}

/// Attaches a program to functions of the kernel (Linux 5.18), or to their returns, until the
/// descriptor closes: to all of them or, on failure, none.
///
/// # Errors
/// [`BpfError::Call`]: `ENOENT`, `ESRCH` or `EINVAL` if one is not there or may not be probed,
/// `EOPNOTSUPP` where the kernel is built without it.
pub fn kprobe_multi(
    prog: BorrowedFd<'_>,
    functions: KernelFunctions<'_>,
    cookies: &[u64],
    points: AttachPoints,
) -> Result<OwnedFd, BpfError> {
    let attr = Attr::new()
        .fd(0, prog)
        .u32(
            8,
            match points {
                AttachPoints::Both => attach_type::KPROBE_SESSION,
                AttachPoints::Entry | AttachPoints::Return => attach_type::KPROBE_MULTI,
            },
        )
        .u32(16, u32::from(points == AttachPoints::Return) * RETURN)
        .u32(20, cookies.len().fit())
        .input(40, cookies);
    let count = match functions {
        KernelFunctions::Names(names) => names.len(),
        KernelFunctions::Addresses(addresses) => addresses.len(),
    };
    if count != cookies.len() {
        return Err(BpfError::Argument(
            "as many cookies as locations are needed",
        ));
    }
    match functions {
        KernelFunctions::Addresses(addresses) => {
            // SAFETY: the arrays are as long as said.
            unsafe { attr.input(32, addresses).open(Command::LinkCreate) }
        }
        KernelFunctions::Names(names) => {
            let names: Result<Vec<CString>, _> = names
                .iter()
                .map(|n| text(n, "a NUL byte in a name"))
                .collect();
            let names = names?;
            let pointers: Vec<u64> = names.iter().map(|n| n.as_ptr() as u64).collect();
            // SAFETY: the arrays are as long as said; the names end with NUL and live until
            // the call is done.
            unsafe { attr.input(24, &pointers).open(Command::LinkCreate) }
        }
    }
}

/// Asks for a link to a function whose address cannot be read, to learn whether the kernel has links
/// to many functions.
///
/// # Errors
/// [`BpfError::Call`], always: `EFAULT` where it has them, `EINVAL` before Linux 5.18, `EOPNOTSUPP`
/// where it is built without them.
pub(crate) fn unreadable_kprobe_multi(prog: BorrowedFd<'_>) -> Result<OwnedFd, BpfError> {
    const UNREADABLE: u64 = 8;
    let mut attr = Attr::new()
        .fd(0, prog)
        .u32(8, attach_type::KPROBE_MULTI)
        .u32(20, 1)
        .u64(32, UNREADABLE);
    // SAFETY: the kernel checks addresses when it copies from them.
    unsafe { attr.open(Command::LinkCreate) }
}

/// Attaches a program to a hook until the descriptor closes. The words are those of the attach type, after the flags
/// of `bpf_attr.link_create`: for netfilter (Linux 6.4), whose hooks are those of this process's network namespace, the
/// protocol family, the hook and the priority.
///
/// # Errors
/// [`BpfError::Call`]: `EINVAL` where the kernel is built without it; for netfilter `EBUSY` where another program has
/// that priority, and `EAFNOSUPPORT`.
pub fn hook_link(
    prog: BorrowedFd<'_>,
    attach_type: u32,
    words: &[u32],
) -> Result<OwnedFd, BpfError> {
    let attr = Attr::new().fd(0, prog).u32(8, attach_type);
    let words = words.iter().zip((16..).step_by(4));
    let mut attr = words.fold(attr, |attr, (word, offset)| attr.u32(offset, *word));
    // SAFETY: the attribute holds no pointers.
    unsafe { attr.open(Command::LinkCreate) }
}

/// Attaches a program to a perf event, with a cookie (Linux 5.15).
///
/// # Errors
/// [`BpfError::Call`].
pub fn perf_link(
    prog: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> Result<OwnedFd, BpfError> {
    let mut attr = Attr::new()
        .fd(0, prog)
        .fd(4, event)
        .u32(8, attach_type::PERF_EVENT)
        .u64(16, cookie);
    // SAFETY: the attribute holds no pointers.
    unsafe { attr.open(Command::LinkCreate) }
}

fn text(text: &str, why: &'static str) -> Result<CString, BpfError> {
    CString::new(text).map_err(|_| BpfError::Argument(why))
}
