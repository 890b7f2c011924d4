//! Programs: loaded from instructions, run on demand, attached to tracepoints.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};

use spile_cast::Cast;

use super::attr::Attr;
use super::error::{BpfError, Command};

/// Types of programs that this project uses, numbered as in the kernel.
#[allow(missing_docs)]
pub mod prog_type {
    pub const SOCKET_FILTER: u32 = 1;
    pub const KPROBE: u32 = 2;
    pub const TRACEPOINT: u32 = 5;
    pub const PERF_EVENT: u32 = 7;
    pub const RAW_TRACEPOINT: u32 = 17;
    pub const TRACING: u32 = 26;
    pub const SYSCALL: u32 = 31;
}

/// Builds one instruction as the 64-bit word that the kernel takes.
#[must_use]
pub const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    let bytes = [code, (src << 4) | (dst & 0xf)];
    let off = off.to_ne_bytes();
    let imm = imm.to_ne_bytes();
    u64::from_ne_bytes([
        bytes[0], bytes[1], off[0], off[1], imm[0], imm[1], imm[2], imm[3],
    ])
}

/// A program to load. Its licence is always "GPL" compatible.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProgSpec<'a> {
    /// One of [`prog_type`].
    pub ty: u32,
    /// Instructions, see [`insn`].
    pub insns: &'a [u64],
    /// Name for tools; up to 15 bytes.
    pub name: &'a str,
    /// `BPF_F_...`
    pub flags: u32,
    /// `BPF_...` of `enum bpf_attach_type`.
    pub attach_type: u32,
    /// The function or typedef in vmlinux BTF that it attaches to; 0 for none.
    pub attach_btf_id: u32,
    /// The program's own BTF.
    pub btf: Option<BorrowedFd<'a>>,
    /// Its functions: first instruction and type in that BTF (`bpf_func_info`).
    pub functions: &'a [[u32; 2]],
    /// Its source lines (`bpf_line_info`).
    pub lines: &'a [[u32; 4]],
}

/// Maximum size of the verifier's log of a rejected program; pages that are not written cost
/// nothing.
const LOG: usize = 16 << 20;

const LICENSE: &[u8] = b"Dual MIT/GPL\0";

/// Loads a program. A rejected one is loaded again for the verifier's log, so
/// the good case pays nothing for it.
///
/// # Errors
/// [`BpfError::Rejected`] with the log where the verifier wrote one, else
/// [`BpfError::Call`].
pub fn load(spec: &ProgSpec<'_>) -> Result<OwnedFd, BpfError> {
    let attr = || {
        let attr = Attr::new()
            .u32(0, spec.ty)
            .u32(4, spec.insns.len().fit())
            .input(8, spec.insns)
            .input(16, LICENSE)
            .u32(44, spec.flags)
            .name(48, spec.name)
            .u32(68, spec.attach_type)
            .u32(108, spec.attach_btf_id);
        let Some(btf) = spec.btf else { return attr };
        attr.fd(72, btf)
            .u32(76, size_of::<[u32; 2]>().fit())
            .input(80, spec.functions)
            .u32(88, spec.functions.len().fit())
            .u32(92, size_of::<[u32; 4]>().fit())
            .input(96, spec.lines)
            .u32(104, spec.lines.len().fit())
    };
    // SAFETY: instructions, functions and lines are as many as said; the licence ends with NUL.
    let first = match unsafe { attr().open(Command::ProgLoad) } {
        Err(BpfError::Call { errno, .. }) => errno,
        done => return done,
    };
    let mut log = vec![0u8; LOG];
    let len = log.len().fit::<u32>();
    // SAFETY: as above; the log is as long as said.
    let second = unsafe {
        attr()
            .u32(24, 1)
            .u32(28, len)
            .output(32, &mut log)
            .open(Command::ProgLoad)
    };
    if second.is_ok() {
        return second;
    }
    let end = memchr::memchr(0, &log).unwrap_or(log.len());
    if end == 0 {
        return Err(BpfError::Call {
            command: Command::ProgLoad,
            errno: first,
        });
    }
    let log = String::from_utf8_lossy(&log[..end]).trim_end().to_owned();
    Err(BpfError::Rejected { errno: first, log })
}

/// Loads BTF for programs and maps.
///
/// # Errors
/// [`BpfError::Call`].
pub fn load_btf(btf: &[u8]) -> Result<OwnedFd, BpfError> {
    let mut attr = Attr::new().input(0, btf).u32(16, btf.len().fit());
    // SAFETY: the blob is as long as said; the command returns a descriptor.
    unsafe { attr.open(Command::BtfLoad) }
}

/// Attaches a raw tracepoint program (with its name), or a tracing program
/// (without: it names its target itself). It stays until the descriptor closes.
///
/// # Errors
/// [`BpfError::Call`]: `ENOENT` if there is no such tracepoint.
pub fn raw_tracepoint_open(name: Option<&str>, prog: BorrowedFd<'_>) -> Result<OwnedFd, BpfError> {
    let name = name
        .map(CString::new)
        .transpose()
        .map_err(|_| BpfError::Argument("a NUL byte in a tracepoint's name"))?;
    let mut attr = Attr::new().fd(8, prog);
    if let Some(name) = &name {
        attr = attr.input(0, name.as_bytes_with_nul());
    }
    // SAFETY: the name ends with NUL; the command returns a descriptor.
    unsafe { attr.open(Command::RawTracepointOpen) }
}

/// The result of a test run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestResult {
    /// The program's return value.
    pub retval: u32,
    /// Duration in nanoseconds for program types that measure it; otherwise 0.
    pub duration_ns: u32,
}

/// Runs a program now (`BPF_PROG_TEST_RUN`): raw tracepoint programs since
/// 5.10, syscall programs since 5.14, tracing ones not.
///
/// `ctx` is the program's context: of a raw tracepoint, the arguments as 64-bit
/// words (12 at most); a syscall program may write to it. A raw tracepoint
/// program runs on `cpu` if one is given.
///
/// # Errors
/// [`BpfError::Call`]: `EINVAL` if the program reads more of its context than
/// is given, `ENOTSUPP` (524) for types that cannot be run.
pub fn test_run(
    prog: BorrowedFd<'_>,
    ctx: &mut [u64],
    cpu: Option<u32>,
) -> Result<TestResult, BpfError> {
    /// `BPF_F_TEST_RUN_ON_CPU`
    const ON_CPU: u32 = 1;
    let mut attr = Attr::new().fd(0, prog);
    if !ctx.is_empty() {
        attr = attr.u32(40, size_of_val(ctx).fit()).output(48, ctx);
    }
    if let Some(cpu) = cpu {
        attr = attr.u32(64, ON_CPU).u32(68, cpu);
    }
    // SAFETY: the context is as long as said, and ours to be written.
    unsafe { attr.call(Command::ProgTestRun) }?;
    Ok(TestResult {
        retval: attr.get(4),
        duration_ns: attr.get(36),
    })
}
