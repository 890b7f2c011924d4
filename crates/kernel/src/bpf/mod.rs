//! The only path to `bpf(2)`.
//!
//! In: values, and the bytes of programs. Out: descriptors, which close when they are dropped, and
//! the verifier's log with a refusal. No decision is made here: callers say what to load, and what
//! to do if the kernel refuses.
//!
//! All requests to the kernel's BPF go through here: maps, programs and their types, links, ring
//! buffers, lists of loaded objects, test runs, statistics, and the small programs that probe for
//! features.
//!
//! Since Linux 5.11 memory for programs and maps is charged to the control group, so
//! `RLIMIT_MEMLOCK` is never touched.

mod attr;
mod error;
mod info;
mod link;
mod map;
mod prog;
mod ring;

pub(crate) use attr::last_errno;
pub use error::{BpfError, Command};
pub use info::{LinkInfo, MapInfo, ProgInfo, Stats, enable_stats, ids, links, maps, programs};
pub use info::{ObjectKind, link_info, map_info, prog_info};
pub(crate) use link::unreadable_kprobe_multi;
pub use link::{
    AttachPoints, KernelFunctions, UprobeMulti, attach_type, hook_link, kprobe_multi, perf_link,
    uprobe_multi,
};
pub use map::{BatchResult, Map, MapAttr, MapTypes, map_create, map_flag, map_freeze, map_type};
pub use prog::{
    ProgSpec, TestResult, insn, load, load_btf, prog_type, raw_tracepoint_open, test_run,
};
pub use ring::Ring;
pub use rustix::io::Errno;

#[cfg(test)]
mod tests;
