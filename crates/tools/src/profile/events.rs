//! The events at which running threads are sampled, and those that are only counted.

use clap::ValueEnum;
use spile_cast::Cast;
use spile_kernel::machine::online_cpus;
use spile_kernel::perf::{EventSpec, PerfEvent, PerfTarget, Sampling};
use spile_plain::messages::{Failure, fail};
use spile_profile::model::CountedEvent;

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
    /// Accesses to the last cache
    CacheReferences,
    /// Accesses that missed the last cache
    CacheMisses,
    /// Branches
    Branches,
    /// Mispredicted branches
    BranchMisses,
    /// Page faults
    PageFaults,
    /// Page faults that wait for no device
    MinorFaults,
    /// Page faults that wait for a device
    MajorFaults,
    /// Context switches
    ContextSwitches,
    /// Moves of a thread to another processor
    CpuMigrations,
    /// Accesses that the kernel completes because they are not aligned
    AlignmentFaults,
    /// Instructions that the kernel executes for the processor
    EmulationFaults,
}

/// Maximum number of events: the script counts as many.
const MOST: usize = 5;

/// What the kernel knows of an event.
struct KernelEvent {
    name: &'static str,
    spec: EventSpec,
    /// Number of events for which there is one sample if the event is only counted. Each event has
    /// a period of its own, by which the script distinguishes their samples. None is 1: such events
    /// end page faults.
    period: u32,
}

impl SamplingEvent {
    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        self.of_kernel().name
    }

    fn of_kernel(self) -> KernelEvent {
        const HARDWARE: u32 = 0;
        const SOFTWARE: u32 = 1;
        let (name, ty, config, period) = match self {
            SamplingEvent::Cycles => ("cycles", HARDWARE, 0, 10_000_019),
            SamplingEvent::Instructions => ("instructions", HARDWARE, 1, 20_000_003),
            SamplingEvent::CacheReferences => ("cache-references", HARDWARE, 2, 200_003),
            SamplingEvent::CacheMisses => ("cache-misses", HARDWARE, 3, 50_021),
            SamplingEvent::Branches => ("branches", HARDWARE, 4, 5_000_011),
            SamplingEvent::BranchMisses => ("branch-misses", HARDWARE, 5, 100_003),
            // In nanoseconds.
            SamplingEvent::CpuClock => ("cpu-clock", SOFTWARE, 0, 10_000_079),
            SamplingEvent::PageFaults => ("page-faults", SOFTWARE, 2, 101),
            SamplingEvent::ContextSwitches => ("context-switches", SOFTWARE, 3, 13),
            SamplingEvent::CpuMigrations => ("cpu-migrations", SOFTWARE, 4, 2),
            SamplingEvent::MinorFaults => ("minor-faults", SOFTWARE, 5, 97),
            SamplingEvent::MajorFaults => ("major-faults", SOFTWARE, 6, 5),
            SamplingEvent::AlignmentFaults => ("alignment-faults", SOFTWARE, 7, 7),
            SamplingEvent::EmulationFaults => ("emulation-faults", SOFTWARE, 8, 10),
        };
        KernelEvent {
            name,
            spec: EventSpec { ty, config },
            period,
        }
    }

    /// Whether it is counted by the kernel, and no timer. The kernel adapts the period of such an
    /// event to a frequency so badly that it may not take any sample for seconds.
    fn is_irregular(self) -> bool {
        self.of_kernel().spec.ty == 1 && self != SamplingEvent::CpuClock
    }
}

/// Refuses a list that cannot be counted, and events that the machine lacks.
pub(super) fn check(events: &[SamplingEvent]) -> Result<(), Failure> {
    if events.len() > MOST {
        return Err(fail(format_args!("--event takes {MOST} events at most")));
    }
    for (n, event) in events.iter().enumerate() {
        let KernelEvent { name, spec, .. } = event.of_kernel();
        if events[..n].contains(event) {
            return Err(fail(format_args!("--event has {name} twice")));
        }
        let cpu = PerfTarget::Cpu(online_cpus().first().copied().unwrap_or(0));
        if spec.ty == 0 && PerfEvent::open(spec, cpu, Sampling::Count).is_err() {
            return Err(fail(format_args!(
                "this machine does not count `{name}`: many virtual machines hide the processor's counters. The \
                 kernel's events are always there: {}",
                of_software()
            )));
        }
    }
    Ok(())
}

/// The names of the events that do not need counters of the processor.
fn of_software() -> String {
    let all = SamplingEvent::value_variants().iter();
    let some = all.filter(|event| event.of_kernel().spec.ty == 1);
    some.map(|event| event.name())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The events that are counted: those of a list after the first one, which takes the samples, and
/// that one as well, unless it is the timer.
pub(super) fn counted(events: &[SamplingEvent]) -> Vec<CountedEvent> {
    let counted = events.iter().enumerate();
    let counted = counted
        .filter(|(n, event)| events.len() > 1 && (*n > 0 || **event != SamplingEvent::CpuClock));
    counted
        .map(|(_, event)| {
            let KernelEvent { name, period, .. } = event.of_kernel();
            CountedEvent {
                event: name.to_owned(),
                period: period.into(),
            }
        })
        .collect()
}

/// The arguments of the script: the frequency of samples, or their period, and the numbers of the
/// event; numbers and period of each event that is counted.
pub(super) fn arguments(hz: u32, events: &[SamplingEvent]) -> Vec<String> {
    let first = events.first().copied().unwrap_or_default();
    let rate = match first.is_irregular() {
        // (Not the period by which it is counted.)
        true => first.of_kernel().period + 1,
        false => hz,
    };
    let EventSpec { ty, config } = first.of_kernel().spec;
    let mut arguments = vec![rate, ty, config.fit()];
    let counted = counted(events);
    for event in SamplingEvent::value_variants() {
        let KernelEvent { name, spec, period } = event.of_kernel();
        if counted.iter().any(|counted| counted.event == name) {
            arguments.extend([spec.ty, spec.config.fit(), period]);
        }
    }
    arguments.iter().map(u32::to_string).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn periods_distinguish_events() {
        let all = SamplingEvent::value_variants();
        let mut periods: Vec<u32> = all.iter().map(|e| e.of_kernel().period).collect();
        let irregular = all.iter().filter(|e| e.is_irregular());
        periods.extend(irregular.map(|e| e.of_kernel().period + 1));
        assert!(!periods.contains(&1));
        assert_eq!(periods.iter().collect::<HashSet<_>>().len(), periods.len());
        for event in all {
            let named = SamplingEvent::from_str(event.name(), false);
            assert_eq!(named, Ok(*event));
        }
    }

    #[test]
    fn the_first_event_takes_the_samples() {
        use SamplingEvent::{ContextSwitches, CpuClock, Cycles, PageFaults};
        let of = |events: &[SamplingEvent]| arguments(99, events).join(" ");
        assert_eq!(of(&[CpuClock]), "99 1 0");
        assert_eq!(of(&[Cycles]), "99 0 0");
        assert_eq!(of(&[PageFaults]), "102 1 2");
        assert_eq!(
            of(&[CpuClock, ContextSwitches, PageFaults]),
            "99 1 0 1 2 101 1 3 13"
        );
        assert_eq!(of(&[Cycles, PageFaults]), "99 0 0 0 0 10000019 1 2 101");
    }
}
