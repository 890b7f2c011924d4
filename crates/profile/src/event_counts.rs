//! The numbers of counted events, by function and by region.
//!
//! In: [`crate::model::EventCount`] rows. Out: estimates: each sample stands for as many events as
//! the event's period. The number of a place with *n* samples has a standard error of some √n
//! periods; that of the whole run, of some periods.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::model::Frame;
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
    fn add(&mut self, samples: u64, period: u64) {
        self.samples = self.samples.saturating_add(samples);
        let events = samples.saturating_mul(period);
        self.events = self.events.saturating_add(events);
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

/// Counts of places, and the samples of each of their lines.
#[derive(Default)]
struct Sum {
    counts: Vec<Estimate>,
    lines: HashMap<String, u64>,
}

impl Sum {
    fn add(&mut self, event: usize, samples: u64, period: u64) {
        if self.counts.len() <= event {
            self.counts.resize(event + 1, Estimate::default());
        }
        self.counts[event].add(samples, period);
    }
}

/// The counted events of all recordings together, without threads being left out.
pub fn counted_events(run: &Run) -> CountedEvents {
    let mut out = CountedEvents::default();
    for event in run.profiles.iter().flat_map(|p| &p.header.options.counted) {
        if !out.events.contains(&event.event) {
            out.events.push(event.event.clone());
        }
    }
    out.all.resize(out.events.len(), Estimate::default());
    let mut functions: HashMap<Place, Sum> = HashMap::new();
    let mut regions: HashMap<String, Sum> = HashMap::new();
    for profile in &run.profiles {
        let contexts = ContextIndex::new(profile);
        let counted = profile.header.options.counted.iter();
        let periods: BTreeMap<&str, u64> = counted.map(|e| (&*e.event, e.period)).collect();
        for row in &profile.data.event_counts {
            let index = out.events.iter().position(|name| *name == row.event);
            let (Some(index), Some(period)) = (index, periods.get(&*row.event)) else {
                continue;
            };
            out.all[index].add(row.samples, *period);
            let (place, line) = place(&row.frames);
            let sum = functions.entry(place).or_default();
            sum.add(index, row.samples, *period);
            if let Some(line) = line {
                let samples = sum.lines.entry(line).or_default();
                *samples = samples.saturating_add(row.samples);
            }
            let region = contexts.path(row.context).join(WITHIN);
            let sum = regions.entry(region).or_default();
            sum.add(index, row.samples, *period);
        }
    }
    let number = out.events.len();
    out.functions = sorted(functions, number, |(name, module), lines| {
        let line = lines
            .into_iter()
            .max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0)));
        (name, line.map(|(line, _)| line).or(module))
    });
    out.regions = sorted(regions, number, |name, _| (name, None));
    out
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
    events: usize,
    named: impl Fn(K, HashMap<String, u64>) -> (String, Option<String>),
) -> Vec<EventPlace> {
    let places = sums.into_iter().map(|(key, sum)| {
        let (name, location) = named(key, sum.lines);
        let mut counts = sum.counts;
        counts.resize(events, Estimate::default());
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
    /// Instructions for each cycle of a place, if both were counted.
    pub fn instructions_per_cycle(&self, counts: &[Estimate]) -> Option<f64> {
        let of = |name: &str| {
            let index = self.events.iter().position(|event| event == name)?;
            counts.get(index).map(|count| count.events)
        };
        let (instructions, cycles) = (of("instructions")?, of("cycles")?);
        (cycles > 0).then(|| instructions as f64 / cycles as f64)
    }

    /// Whether samples are in several regions, or in one.
    pub fn has_regions(&self) -> bool {
        let names: BTreeSet<&str> = self.regions.iter().map(|r| &*r.name).collect();
        names.iter().any(|name| *name != crate::run::OUTSIDE)
    }
}
