//! A compiled script as the kernel's loader takes it: an object, its layout, and the attachments of its programs.
//! What every host keeps, whichever runs the handlers, is in [`spile_layout`].
//!
//! # Maps of an object, besides the layout's tables
//! | name | what |
//! |---|---|
//! | `.bss` (one mmap-able array element) | the state memory |
//! | `.rodata` | constant tables and strings |
//! | [`RING`] | ring buffer of records |
//! | `stack_copies` | rooms for copies of stacks |
//! | `counterN` | the perf events of a counter, see [`counter_map`] |
//! | `s_NAME_INDEX` | array: copies of the elements over which handlers iterate, see `crates/bpf/src/plan/iterators.rs` |

use spile_ir::HandlerId;
use spile_layout::Layout;

pub use crate::lower::lir_sources::LirSources;
use crate::object::elf::ObjectSpec;
use crate::target::TypedFunction;

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

/// Map with rooms for copies of stacks, one for each CPU: a [`spile_layout::RecordKind::Copy`] each.
pub(crate) const COPIES_MAP: &str = "stack_copies";

/// The attach cookie of probes that follow the target's processes. A trace event has one attach cookie,
/// so each of its locations has its own cookie as its first argument.
pub const FOLLOWED: u64 = u64::MAX;

/// Whether a probe can follow the target's processes: its breakpoints, and the counts of its
/// semaphores, are then in the memory of these only.
pub fn can_follow(probe: &spile_ir::CodeProbe) -> bool {
    let file = |s: &spile_ir::CodeSite| matches!(s.location, spile_ir::CodeLocation::File { .. });
    probe.tree && probe.pid.is_none() && probe.sites.iter().all(file)
}

/// The event that a program is attached to.
#[derive(Debug, Clone, PartialEq)]
pub enum Attach {
    /// Raw tracepoints: usually one, or several with the same handlers' code. The program's
    /// handlers are those of the first tracepoint, and count the hits of all.
    RawTracepoint(Vec<String>),
    /// A trace event.
    TraceEvent(spile_ir::TraceEvent),
    /// Perf events: one, or several that hit the same program.
    Perf {
        /// `perf_event_attr.type`
        ty: u32,
        /// `perf_event_attr.config` of each
        configs: Vec<u64>,
        /// The sampling period or frequency.
        sample: spile_ir::SamplingRate,
        /// The tasks whose events count.
        of: spile_ir::PerfScope,
    },
    /// Packets at a hook of the network.
    Netfilter(spile_ir::Netfilter),
    /// Decisions of security modules, by the hook's name.
    Lsm(String),
    /// Every task switch. First the perf events of these types and configs are stored in the maps
    /// of their numbers (see [`counter_map`]), with an entry for each CPU.
    Switch(Vec<(u32, u64)>),
    /// Locations in code. The attach cookie of each location is its number.
    Code {
        /// The locations.
        probe: spile_ir::CodeProbe,
        /// The attach kind.
        by: CodeAttach,
    },
    /// Accesses to memory.
    Watch(spile_ir::Watch),
    /// No event: the controller runs the program.
    OnDemand,
}

impl Attach {
    /// Whether one program serves both attachments; locations that are optional for one may be
    /// required for the other.
    pub(crate) fn same_location(&self, other: &Attach) -> bool {
        match (self, other) {
            (
                Attach::Code { probe: a, by },
                Attach::Code {
                    probe: b,
                    by: other,
                },
            ) => {
                let of = |p: &spile_ir::CodeProbe| (p.space, p.ret, p.pid, p.tree);
                by == other && of(a) == of(b) && a.sites == b.sites
            }
            _ => self == other,
        }
    }

    /// Keeps a location optional only if it is optional for both.
    pub(crate) fn no_more_lenient_than(&mut self, other: &Attach) {
        if let (Attach::Code { probe, .. }, Attach::Code { probe: other, .. }) = (self, other) {
            probe.optional_sites = probe.optional_sites.min(other.optional_sites);
        }
    }
}

/// The attach kind of probes in code, which determines the program type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeAttach {
    /// One link for all locations of a file (uprobe.multi), or of the kernel (kprobe.multi).
    Multi,
    /// One link for functions of the kernel and their returns (kprobe.session).
    Session,
    /// A perf event for each location.
    Single,
    /// One location by fentry or fexit, the kinds with the smallest cost of a hit. Such programs see
    /// arguments and the result, but no registers.
    Trampoline(TypedFunction),
}
