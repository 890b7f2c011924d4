//! The numbers of counted events, by function and by region.
//!
//! In: [`crate::model::EventCount`] rows. Out: estimates: each sample stands for as many events as
//! the event's period. The number of a place with *n* samples has a standard error of some √n
//! periods; that of the whole run, of some periods.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::model::{Frame, Profile};
use crate::paths::{LocationKind, function};
use crate::run::{ContextIndex, Run, WITHIN};

/// A number of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The estimated number of events; of `cpu-clock`, nanoseconds.
    pub events: u64,
    /// Number of samples that it is made from.
    pub samples: u64,
}

impl Estimate {
    fn join(&mut self, other: Estimate) {
        self.samples = self.samples.saturating_add(other.samples);
        self.events = self.events.saturating_add(other.events);
    }
}

/// The events of a place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventPlace {
    /// The function or the region; empty if the function is not known.
    pub name: String,
    /// The file and line with most samples, or the program or library. `None` for regions.
    pub location: Option<String>,
    /// Its numbers, in the order of [`CountedEvents::events`].
    pub counts: Vec<Estimate>,
}

impl EventPlace {
    /// The name, or what is known instead.
    pub fn shown(&self) -> String {
        match (&*self.name, &self.location) {
            ("", None) => "-".to_owned(),
            ("", Some(module)) => format!("{module} (no symbols)"),
            (name, _) => name.to_owned(),
        }
    }
}

/// The counted events of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CountedEvents {
    /// The names of the events.
    pub events: Vec<String>,
    /// The number of each in the whole run.
    pub all: Vec<Estimate>,
    /// By function of the program, the most samples first.
    pub functions: Vec<EventPlace>,
    /// By region, the most samples first.
    pub regions: Vec<EventPlace>,
}

/// The place of a function: its name, and its program or library.
type Place = (String, Option<String>);

/// Counts of places by event, and the samples of each of their lines.
#[derive(Debug, Default)]
struct Sum {
    counts: BTreeMap<String, Estimate>,
    lines: HashMap<String, u64>,
}

impl Sum {
    fn add(&mut self, event: &str, count: Estimate) {
        match self.counts.get_mut(event) {
            Some(sum) => sum.join(count),
            None => {
                self.counts.insert(event.to_owned(), count);
            }
        }
    }

    fn join(&mut self, other: Sum) {
        for (event, count) in other.counts {
            self.add(&event, count);
        }
        for (line, samples) in other.lines {
            let sum = self.lines.entry(line).or_default();
            *sum = sum.saturating_add(samples);
        }
    }

    /// The counts in the order of these events.
    fn in_order(&self, events: &[String]) -> Vec<Estimate> {
        let count = |event: &String| self.counts.get(event).copied().unwrap_or_default();
        events.iter().map(count).collect()
    }
}

/// The counted events of some profiles. Those of one are added to those of the others, in any order.
#[derive(Debug, Default)]
pub(crate) struct EventSums {
    all: Sum,
    functions: HashMap<Place, Sum>,
    regions: HashMap<String, Sum>,
}

impl EventSums {
    /// The events of a profile, without threads being left out.
    pub(crate) fn of(profile: &Profile) -> EventSums {
        let mut out = EventSums::default();
        let contexts = ContextIndex::new(profile);
        let counted = profile.header.options.counted.iter();
        let periods: BTreeMap<&str, u64> = counted.map(|e| (&*e.event, e.period)).collect();
        for row in &profile.data.event_counts {
            let Some(period) = periods.get(&*row.event) else {
                continue;
            };
            let count = Estimate {
                events: row.samples.saturating_mul(*period),
                samples: row.samples,
            };
            out.all.add(&row.event, count);
            let (place, line) = place(&row.frames);
            let sum = out.functions.entry(place).or_default();
            sum.add(&row.event, count);
            if let Some(line) = line {
                let samples = sum.lines.entry(line).or_default();
                *samples = samples.saturating_add(row.samples);
            }
            let region = contexts.path(row.context).join(WITHIN);
            let sum = out.regions.entry(region).or_default();
            sum.add(&row.event, count);
        }
        out
    }

    /// Adds the events of another profile.
    pub(crate) fn join(&mut self, other: EventSums) {
        self.all.join(other.all);
        for (place, sum) in other.functions {
            self.functions.entry(place).or_default().join(sum);
        }
        for (region, sum) in other.regions {
            self.regions.entry(region).or_default().join(sum);
        }
    }

    /// The events of a run, whose recordings tell their order.
    pub(crate) fn finish(self, run: &Run) -> CountedEvents {
        let mut events: Vec<String> = Vec::new();
        for event in run.profiles.iter().flat_map(|p| &p.header.options.counted) {
            if !events.contains(&event.event) {
                events.push(event.event.clone());
            }
        }
        CountedEvents {
            all: self.all.in_order(&events),
            functions: sorted(self.functions, &events, |(name, module), lines| {
                let line = lines
                    .into_iter()
                    .max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0)));
                (name, line.map(|(line, _)| line).or(module))
            }),
            regions: sorted(self.regions, &events, |name, _| (name, None)),
            events,
        }
    }
}

/// The counted events of all recordings together, without threads being left out.
pub fn counted_events(run: &Run) -> CountedEvents {
    let mut sums = EventSums::default();
    for profile in &run.profiles {
        sums.join(EventSums::of(profile));
    }
    sums.finish(run)
}

/// The innermost function of a stack, and its line.
fn place(frames: &[Frame]) -> (Place, Option<String>) {
    let Some(inner) = frames.first() else {
        return (Place::default(), None);
    };
    let at = function(inner, LocationKind::Function);
    let name = Some(at.name().to_owned()).filter(|name| !name.starts_with("0x"));
    let place = (name.unwrap_or_default(), at.module.clone());
    (place, at.file_and_line())
}

fn sorted<K>(
    sums: HashMap<K, Sum>,
    events: &[String],
    named: impl Fn(K, HashMap<String, u64>) -> (String, Option<String>),
) -> Vec<EventPlace> {
    let places = sums.into_iter().map(|(key, sum)| {
        let counts = sum.in_order(events);
        let (name, location) = named(key, sum.lines);
        EventPlace {
            name,
            location,
            counts,
        }
    });
    let mut places: Vec<EventPlace> = places.collect();
    let samples = |place: &EventPlace| {
        let samples = place.counts.iter().map(|count| count.samples);
        samples.fold(0, u64::saturating_add)
    };
    places.sort_by(|a, b| {
        (samples(b), &a.name, &a.location).cmp(&(samples(a), &b.name, &b.location))
    });
    places
}

impl CountedEvents {
    /// The number of an event among those of a place, if it was counted.
    pub fn of(&self, event: &str, counts: &[Estimate]) -> Option<Estimate> {
        let index = self.events.iter().position(|name| name == event)?;
        counts.get(index).copied()
    }

    /// Instructions for each cycle of a place, if both were counted.
    pub fn instructions_per_cycle(&self, counts: &[Estimate]) -> Option<f64> {
        let of = |event| self.of(event, counts).map(|count| count.events);
        let (instructions, cycles) = (of("instructions")?, of("cycles")?);
        (cycles > 0).then(|| instructions as f64 / cycles as f64)
    }

    /// Whether samples are in several regions, or in one.
    pub fn has_regions(&self) -> bool {
        let names: BTreeSet<&str> = self.regions.iter().map(|r| &*r.name).collect();
        names.iter().any(|name| *name != crate::run::OUTSIDE)
    }
}
