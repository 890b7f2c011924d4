//! Loaded objects: programs, maps and links by id, and their counters.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use spile_cast::Cast;

use super::attr::Attr;
use super::error::{BpfError, Command};
use super::map::present;

/// Kinds of objects that the kernel numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// Programs.
    Prog,
    /// Maps.
    Map,
    /// Links.
    Link,
}

impl ObjectKind {
    /// The commands that give the next number, and a descriptor by a number.
    fn commands(self) -> [Command; 2] {
        match self {
            ObjectKind::Prog => [Command::ProgGetNextId, Command::ProgGetFdById],
            ObjectKind::Map => [Command::MapGetNextId, Command::MapGetFdById],
            ObjectKind::Link => [Command::LinkGetNextId, Command::LinkGetFdById],
        }
    }
}

/// The kernel's information about a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgInfo {
    /// One of [`super::prog_type`].
    pub ty: u32,
    /// Its id.
    pub id: u32,
    /// Its name, up to 15 bytes.
    pub name: String,
    /// Nanoseconds it ran while statistics were on.
    pub run_time_ns: u64,
    /// Number of runs while statistics were on.
    pub run_count: u64,
    /// Runs that were skipped because the program was running on that CPU already.
    pub recursion_misses: u64,
    /// Number of instructions after the kernel has rewritten them.
    pub insns: u32,
    /// Number of instructions that the verifier processed (Linux 5.16).
    pub verified_insns: u32,
}

/// The kernel's information about a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapInfo {
    /// One of [`super::map_type`].
    pub ty: u32,
    /// Its id.
    pub id: u32,
    /// Size of a key in bytes.
    pub key_size: u32,
    /// Size of a value in bytes.
    pub value_size: u32,
    /// Maximum number of entries.
    pub max_entries: u32,
    /// `BPF_F_...`
    pub flags: u32,
    /// Its name, up to 15 bytes.
    pub name: String,
}

/// The kernel's information about a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkInfo {
    /// `BPF_LINK_TYPE_...`
    pub ty: u32,
    /// Its id.
    pub id: u32,
    /// Id of the program that it attaches.
    pub prog_id: u32,
    /// Hits of probed functions that the kernel did not report: in the kernel's probe code itself,
    /// or because too many returns were pending (Linux 6.7).
    pub missed: u64,
}

/// The ids of all objects of a kind, in order.
///
/// # Errors
/// [`BpfError::Call`]: `EPERM` without CAP_SYS_ADMIN.
pub fn ids(kind: ObjectKind) -> Result<Vec<u32>, BpfError> {
    let mut ids = Vec::new();
    let mut last = 0;
    loop {
        let mut attr = Attr::new().u32(0, last);
        // SAFETY: the attribute holds no pointers.
        if !present(unsafe { attr.call(kind.commands()[0]) })? {
            return Ok(ids);
        }
        last = attr.get(4);
        ids.push(last);
    }
}

/// A descriptor of an object by its id; `ENOENT` if it is gone.
pub(super) fn by_id(kind: ObjectKind, id: u32) -> Result<OwnedFd, BpfError> {
    let mut attr = Attr::new().u32(0, id);
    // SAFETY: the attribute holds no pointers; the command returns a descriptor.
    unsafe { attr.open(kind.commands()[1]) }
}

/// All loaded programs.
///
/// # Errors
/// [`BpfError::Call`]; objects that disappear in the meantime are left out.
pub fn programs() -> Result<Vec<ProgInfo>, BpfError> {
    each(ObjectKind::Prog, prog_info)
}

/// All existing maps.
///
/// # Errors
/// [`BpfError::Call`]; objects that disappear in the meantime are left out.
pub fn maps() -> Result<Vec<MapInfo>, BpfError> {
    each(ObjectKind::Map, map_info)
}

/// All existing links.
///
/// # Errors
/// [`BpfError::Call`]; objects that disappear in the meantime are left out.
pub fn links() -> Result<Vec<LinkInfo>, BpfError> {
    each(ObjectKind::Link, link_info)
}

/// The kernel's information about a link.
///
/// # Errors
/// [`BpfError::Call`].
pub fn link_info(fd: BorrowedFd<'_>) -> Result<LinkInfo, BpfError> {
    const PERF_EVENT: u32 = 7;
    const KPROBE_MULTI: u32 = 8;
    /// `BPF_PERF_EVENT_KPROBE`, `BPF_PERF_EVENT_KRETPROBE`.
    const KPROBES: [u32; 2] = [3, 4];
    let info = raw_info(fd)?;
    let missed = match info.u32(0) {
        KPROBE_MULTI => info.u64(32),
        PERF_EVENT if KPROBES.contains(&info.u32(16)) => info.u64(48),
        _ => 0,
    };
    Ok(LinkInfo {
        ty: info.u32(0),
        id: info.u32(4),
        prog_id: info.u32(8),
        missed,
    })
}

fn each<T>(
    kind: ObjectKind,
    info: impl Fn(BorrowedFd<'_>) -> Result<T, BpfError>,
) -> Result<Vec<T>, BpfError> {
    let mut objects = Vec::new();
    for id in ids(kind)? {
        match by_id(kind, id) {
            Ok(fd) => objects.push(info(fd.as_fd())?),
            Err(e) if e.errno() == Some(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(objects)
}

/// The kernel's information about a program.
///
/// # Errors
/// [`BpfError::Call`].
pub fn prog_info(fd: BorrowedFd<'_>) -> Result<ProgInfo, BpfError> {
    let info = raw_info(fd)?;
    Ok(ProgInfo {
        ty: info.u32(0),
        id: info.u32(4),
        name: info.name(64),
        run_time_ns: info.u64(192),
        run_count: info.u64(200),
        recursion_misses: info.u64(208),
        insns: info.u32(20) / 8,
        verified_insns: info.u32(216),
    })
}

/// The kernel's information about a map.
///
/// # Errors
/// [`BpfError::Call`].
pub fn map_info(fd: BorrowedFd<'_>) -> Result<MapInfo, BpfError> {
    let info = raw_info(fd)?;
    Ok(MapInfo {
        ty: info.u32(0),
        id: info.u32(4),
        key_size: info.u32(8),
        value_size: info.u32(12),
        max_entries: info.u32(16),
        flags: info.u32(20),
        name: info.name(24),
    })
}

/// A `struct bpf_{prog,map,link}_info`; fields of newer kernels than the
/// running one read as zero.
struct RawInfo([u8; INFO_LEN]);

/// The length for a program up to `attach_btf_obj_id`, the longest that is read here.
const INFO_LEN: usize = 224;

impl RawInfo {
    fn u32(&self, offset: usize) -> u32 {
        self.0[offset..]
            .first_chunk()
            .map_or(0, |b| u32::from_ne_bytes(*b))
    }

    fn u64(&self, offset: usize) -> u64 {
        self.0[offset..]
            .first_chunk()
            .map_or(0, |b| u64::from_ne_bytes(*b))
    }

    fn name(&self, offset: usize) -> String {
        let bytes = &self.0[offset..offset + 16];
        let len = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }
}

fn raw_info(fd: BorrowedFd<'_>) -> Result<RawInfo, BpfError> {
    let mut info = RawInfo([0; INFO_LEN]);
    let mut attr = Attr::new()
        .fd(0, fd)
        .u32(4, INFO_LEN.fit())
        .output(8, &mut info.0);
    // SAFETY: the kernel writes no more than the length given. All pointers in
    // the buffer are null with counts of zero, so it writes through none.
    unsafe { attr.call(Command::ObjGetInfoByFd) }?;
    Ok(info)
}

/// Keeps run-time statistics of all programs on while it lives.
#[derive(Debug)]
pub struct Stats(#[allow(dead_code)] OwnedFd);

/// Turns on run times and counts (`run_time_ns`, `run_count`) for the whole
/// machine until the value is dropped (Linux 5.8). Costs each run some 20 ns.
///
/// # Errors
/// [`BpfError::Call`].
pub fn enable_stats() -> Result<Stats, BpfError> {
    let mut attr = Attr::new(); // type 0: BPF_STATS_RUN_TIME
    // SAFETY: the attribute holds no pointers; the command returns a descriptor.
    unsafe { attr.open(Command::EnableStats) }.map(Stats)
}
