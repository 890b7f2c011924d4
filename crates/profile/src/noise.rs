//! The interruptions of a thread that only computes: gaps in its time, and their causes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::Ns;

/// The noise of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Noise {
    /// The machine's name.
    pub host: String,
    /// Its kernel's release.
    pub kernel: String,
    /// Minimum length of a gap that counts as noise.
    pub threshold_ns: Ns,
    /// The processors, by number.
    pub cpus: Vec<Cpu>,
    /// Losses by reason, worded to follow a number.
    pub lost: BTreeMap<String, u64>,
}

/// The noise of a processor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// Time that its thread computed.
    pub wall: Ns,
    /// Number of times that it read the clock.
    pub passes: u64,
    /// The shortest time between two readings: the resolution of gaps.
    pub shortest: Ns,
    /// Number of gaps.
    pub gaps: u64,
    /// Their total time.
    pub ns: Ns,
    /// The longest gap.
    pub max: Ns,
    /// The cause with most of the longest gap.
    pub max_by: String,
    /// The causes, the longest time first; their times add up to `ns`.
    pub causes: Vec<Cause>,
    /// Gaps by length: bucket n has those from 2^n to 2^(n+1) ns.
    pub lengths: BTreeMap<u32, u64>,
}

impl Cause {
    /// Adds a number of events of a source, their time and the longest of them.
    pub(crate) fn add_to(
        sums: &mut BTreeMap<Source, Cause>,
        source: &Source,
        count: u64,
        ns: Ns,
        max: Ns,
    ) {
        let cause = sums.entry(source.clone()).or_insert_with(|| Cause {
            source: source.clone(),
            count: 0,
            ns: 0,
            max: 0,
        });
        cause.count += count;
        cause.ns += ns;
        cause.max = cause.max.max(max);
    }
}

impl Cpu {
    /// The noise as parts per million of the time.
    #[must_use]
    pub fn ppm(&self) -> f64 {
        match self.wall {
            0 => 0.0,
            wall => self.ns as f64 * 1e6 / wall as f64,
        }
    }
}

/// The kind of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CauseKind {
    /// A device's interrupt.
    Device,
    /// The processor's own interrupts.
    Vector,
    /// A soft interrupt.
    Softirq,
    /// Another thread.
    Thread,
    /// Entry and exit of these, and the cost of recording them: the rest of gaps that have causes.
    Around,
    /// No event was seen in the gap: a hypervisor, firmware, or lost events.
    Unknown,
}

/// A cause of gaps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Source {
    /// Its kind.
    pub kind: CauseKind,
    /// The interrupt's or the thread's name.
    pub name: String,
    /// The thread's id.
    pub tid: Option<u32>,
    /// Its process's id.
    pub pid: Option<u32>,
}

/// The share of a cause in the noise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The cause.
    #[serde(flatten)]
    pub source: Source,
    /// Number of its events in gaps.
    pub count: u64,
    /// Its time in gaps, without what interrupted it.
    pub ns: Ns,
    /// The longest time.
    pub max: Ns,
}

/// An event on a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoiseEvent {
    /// Its begin.
    pub start: Ns,
    /// Its end; `None` if it was not seen.
    pub end: Option<Ns>,
    /// Index of its source.
    pub source: usize,
}

/// The noise of a processor, from the gaps that a thread saw (in order, not overlapping), the
/// events meanwhile and their sources. The caller sets its wall time and passes.
#[must_use]
pub fn account(gaps: &[(Ns, Ns)], mut events: Vec<NoiseEvent>, sources: &[Source]) -> Cpu {
    // Of events that begin together, the longest contains the others.
    events.sort_by_key(|e| (e.start, std::cmp::Reverse(e.end.unwrap_or(Ns::MAX))));
    let mut cpu = Cpu::default();
    let mut causes = BTreeMap::new();
    let mut first = 0;
    for (start, end) in gaps {
        // An event without an end lasts until the end of its gap.
        while events
            .get(first)
            .is_some_and(|e| e.end.unwrap_or(e.start) < *start)
        {
            first += 1;
        }
        let shares = GapShares::new((*start, *end), &events[first..]);
        let rest = unaccounted(shares.events.is_empty());
        shares.add_to(&mut causes, sources, &rest);
        let length = end.saturating_sub(*start);
        cpu.gaps += 1;
        cpu.ns += length;
        *cpu.lengths.entry(length.max(1).ilog2()).or_insert(0) += 1;
        if length > cpu.max {
            cpu.max = length;
            let most = shares.events.iter().max_by_key(|(_, ns)| *ns);
            let most = most.and_then(|(source, _)| sources.get(*source));
            cpu.max_by.clone_from(&most.unwrap_or(&rest).name);
        }
    }
    cpu.causes = causes.into_values().collect();
    cpu.causes.sort_by_key(|c| std::cmp::Reverse(c.ns));
    cpu
}

/// The time of a gap, divided among the events in it.
struct GapShares {
    /// The source of each event, and its time without the events that interrupted it.
    events: Vec<(usize, Ns)>,
    /// The time outside of all events.
    outside: Ns,
    /// The running events, the innermost last: an index of `events`, and the end.
    open: Vec<(usize, Ns)>,
    /// The time up to which the gap is divided.
    divided_to: Ns,
}

impl GapShares {
    /// Divides the gap from `start` to `end`. The events are in the order of [`account`].
    fn new((start, end): (Ns, Ns), events: &[NoiseEvent]) -> GapShares {
        let mut shares = GapShares {
            events: Vec::new(),
            outside: 0,
            open: Vec::new(),
            divided_to: start,
        };
        for event in events.iter().take_while(|e| e.start < end) {
            let ends = event.end.unwrap_or(end).min(end);
            if ends <= start || event.end.is_none() && event.start < start {
                continue;
            }
            shares.advance(event.start.max(start));
            shares.events.push((event.source, 0));
            shares.open.push((shares.events.len() - 1, ends));
        }
        shares.advance(end);
        shares
    }

    /// Gives the time until `to` to the innermost event at each moment.
    fn advance(&mut self, to: Ns) {
        while self.divided_to < to {
            match self.open.last().copied() {
                Some((_, ends)) if ends <= self.divided_to => _ = self.open.pop(),
                Some((event, ends)) => {
                    let stop = ends.min(to);
                    self.events[event].1 += stop - self.divided_to;
                    self.divided_to = stop;
                }
                None => {
                    self.outside += to - self.divided_to;
                    self.divided_to = to;
                }
            }
        }
    }

    /// Adds the shares to the sums by cause; `rest` is the cause of time outside of events.
    fn add_to(&self, causes: &mut BTreeMap<Source, Cause>, sources: &[Source], rest: &Source) {
        let mut add = |source: &Source, ns: Ns| Cause::add_to(causes, source, 1, ns, ns);
        let mut outside = self.outside;
        for (source, ns) in &self.events {
            match sources.get(*source) {
                Some(source) => add(source, *ns),
                None => outside += ns,
            }
        }
        if outside > 0 {
            add(rest, outside);
        }
    }
}

/// The source of time that no event accounts for.
fn unaccounted(alone: bool) -> Source {
    let (kind, name) = match alone {
        true => (CauseKind::Unknown, "(nothing seen: hypervisor, firmware)"),
        false => (CauseKind::Around, "(entry, exit, recording)"),
    };
    Source {
        kind,
        name: name.to_owned(),
        tid: None,
        pid: None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sources() -> Vec<Source> {
        let source = |kind, name: &str| Source {
            kind,
            name: name.to_owned(),
            tid: None,
            pid: None,
        };
        vec![
            source(CauseKind::Vector, "timer"),
            source(CauseKind::Softirq, "SCHED"),
            source(CauseKind::Thread, "other"),
        ]
    }

    fn event(start: Ns, end: Ns, source: usize) -> NoiseEvent {
        NoiseEvent {
            start,
            end: Some(end),
            source,
        }
    }

    fn of(cpu: &Cpu, name: &str) -> Option<(u64, Ns, Ns)> {
        let found = cpu.causes.iter().find(|c| c.source.name.starts_with(name));
        found.map(|c| (c.count, c.ns, c.max))
    }

    #[test]
    fn gaps_have_causes() {
        let gaps = [(100, 200), (1000, 3000), (5000, 5010), (7000, 8000)];
        let events = vec![
            // Too short to be a gap.
            event(20, 25, 0),
            // A timer followed by a soft interrupt.
            event(110, 130, 0),
            event(140, 190, 1),
            // A thread, which a timer interrupts.
            event(1100, 2900, 2),
            event(1500, 1600, 0),
            // A thread whose end was not seen.
            NoiseEvent {
                start: 7100,
                end: None,
                source: 2,
            },
        ];
        let cpu = account(&gaps, events, &sources());
        assert_eq!((cpu.gaps, cpu.ns, cpu.max), (4, 3110, 2000));
        assert_eq!(cpu.max_by, "other");
        assert_eq!(of(&cpu, "timer"), Some((2, 120, 100)));
        assert_eq!(of(&cpu, "SCHED"), Some((1, 50, 50)));
        assert_eq!(of(&cpu, "other"), Some((2, 1700 + 900, 1700)));
        assert_eq!(of(&cpu, "(entry"), Some((3, 30 + 200 + 100, 200)));
        assert_eq!(of(&cpu, "(nothing"), Some((1, 10, 10)));
        assert_eq!(
            cpu.lengths,
            BTreeMap::from([(3, 1), (6, 1), (9, 1), (10, 1)])
        );
    }

    proptest! {
        /// The causes' times add up to the gaps', whatever the events are.
        #[test]
        fn causes_add_up(
            steps in prop::collection::vec((0u64..50, 1u64..50), 0..20),
            events in prop::collection::vec((0u64..2000, prop::option::of(0u64..300), 0usize..4), 0..40),
        ) {
            let mut time = 0;
            let gaps: Vec<_> = steps.iter().map(|(wait, length)| {
                let start = time + wait;
                time = start + length;
                (start, time)
            }).collect();
            let events = events.into_iter().map(|(start, length, source)| NoiseEvent {
                start,
                end: length.map(|l| start + l),
                source,
            }).collect();
            let cpu = account(&gaps, events, &sources());
            prop_assert_eq!(cpu.causes.iter().map(|c| c.ns).sum::<u64>(), cpu.ns);
            prop_assert_eq!(cpu.lengths.values().sum::<u64>(), cpu.gaps);
        }
    }
}
