//! The events at which running threads are sampled.

use clap::ValueEnum;

/// An event of perf_event_open(2), by the name that `perf list` has for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum SamplingEvent {
    /// A timer of each processor
    #[default]
    CpuClock,
    /// Cycles of the processor
    Cycles,
    /// Instructions of the processor
    Instructions,
    /// Accesses that missed the last cache
    CacheMisses,
    /// Mispredicted branches
    BranchMisses,
    /// Page faults
    PageFaults,
    /// Context switches
    ContextSwitches,
}

impl SamplingEvent {
    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        self.of_table().0
    }

    /// Its `type` and `config` (linux/perf_event.h).
    pub(super) fn of_kernel(self) -> (u32, u32) {
        let (_, kind, number) = self.of_table();
        (kind, number)
    }

    fn of_table(self) -> (&'static str, u32, u32) {
        const HARDWARE: u32 = 0;
        const SOFTWARE: u32 = 1;
        match self {
            SamplingEvent::Cycles => ("cycles", HARDWARE, 0),
            SamplingEvent::Instructions => ("instructions", HARDWARE, 1),
            SamplingEvent::CacheMisses => ("cache-misses", HARDWARE, 3),
            SamplingEvent::BranchMisses => ("branch-misses", HARDWARE, 5),
            SamplingEvent::CpuClock => ("cpu-clock", SOFTWARE, 0),
            SamplingEvent::PageFaults => ("page-faults", SOFTWARE, 2),
            SamplingEvent::ContextSwitches => ("context-switches", SOFTWARE, 3),
        }
    }
}
