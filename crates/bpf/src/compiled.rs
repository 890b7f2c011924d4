//! A compiled script as the kernel's loader takes it: an object, its layout, and the attachments of its programs.
//! What every host keeps, whichever runs the handlers, is in [`spile_layout`].
//!
//! # Maps of an object, besides the layout's tables
//! | name | what |
//! |---|---|
//! | `.bss` (one mmap-able array element) | the state memory |
//! | `.rodata` | constant tables and strings |
//! | [`RING`] | ring buffer of records |
//! | `stack_copies` | buffers for copies of stacks |
//! | `counterN` | the perf events of a counter, see [`counter_map`] |
//! | `s_NAME_INDEX` | array: copies of the elements over which handlers iterate, see `crates/layout/src/plan/iterators.rs` |

use spile_ir::HandlerId;
use spile_layout::Layout;

pub use crate::attach::attachment::{
    Attach, CodeAttach, Hook, HookSupport, SampledEvent, TargetFunction,
};
pub use crate::lower::lir_sources::LirSources;
use crate::object::elf::ObjectSpec;

/// A compiled script.
#[derive(Debug)]
pub struct Object {
    /// Maps, data, code.
    pub spec: ObjectSpec,
    /// The layout of the state memory and the tables.
    pub layout: Layout,
    /// The programs to attach.
    pub programs: Vec<ProgramInfo>,
    /// Whether programs find the location that was hit in a trace event, so that they can follow the
    /// target's processes.
    pub follows: bool,
    /// The functions that are made from LIR.
    pub lir: LirSources,
}

/// One BPF program.
#[derive(Debug, Clone)]
pub struct ProgramInfo {
    /// Name in the ELF file.
    pub name: String,
    /// The attachment.
    pub attach: Attach,
    /// The handlers in it, in running order.
    pub handlers: Vec<HandlerId>,
    /// Whether the handlers do nothing, so that the program need not run.
    pub idle: bool,
}

/// The ring buffer in which handlers send [`spile_layout::RingRecord`]s.
pub const RING: &str = "out";

/// Name of the map with the perf events of counter `n`.
pub fn counter_map(n: usize) -> String {
    format!("counter{n}")
}

/// Flag of a record that wakes the controller even while it rests: `BPF_RB_FORCE_WAKEUP`. For records that
/// ask it to read memory that may soon be gone.
pub(crate) const FORCE_WAKEUP: i32 = 2;

// Handlers pass the layout's word to the ring buffer as it is: `BPF_RB_NO_WAKEUP`.
const _: () = assert!(spile_layout::shared::NO_WAKEUP == 1);

/// Name of the program that runs the controller's critical section.
pub const CRITICAL_PROGRAM: &str = "p_critical";

/// The attach cookie of probes that follow the target's processes. A trace event has one attach cookie,
/// so each of its locations has its own cookie as its first argument.
pub const FOLLOWED: u64 = u64::MAX;

/// Whether a probe can follow the target's processes: its breakpoints, and the counts of its
/// semaphores, are then in the memory of these only.
pub fn can_follow(probe: &spile_ir::CodeProbe) -> bool {
    let file = |s: &spile_ir::CodeSite| matches!(s.location, spile_ir::CodeLocation::File { .. });
    probe.tree && probe.pid.is_none() && probe.sites.iter().all(file)
}
