//! Changes between two sets of runs, and the noise that they have to exceed.
//!
//! The time of a set is the mean of its runs. The noise is half of the interval that holds the
//! difference of two such times in 99 of 100 comparisons in which nothing changed:
//!
//! - With several runs on a side it follows from their spread (Welch's interval). A single run is
//!   taken to vary as much as those of the other side.
//! - With one run on each side only the error of sampling is known. A time that was divided by
//!   samples has the error of a binomial distribution, and that of one more sample: a place without
//!   any sample may have missed one. Measured times have none.
//!
//! A change is reported if it exceeds the noise, and a small share of the run's duration.

use std::borrow::Cow;
use std::collections::BTreeMap;

use spile_cast::whole;

use crate::answer::{Finding, findings_of_all};
use crate::event_counts::{CountedEvents, Estimate, EventPlace, counted_events};
use crate::model::{Activity, Ns, Profile, TimePart};
use crate::regions::Region;
use crate::run::{CallGroup, OUTSIDE, Run, Summary, TimeSum};
use crate::waits::WaitKind;

/// Confidence of the noise, in percent.
pub const CONFIDENCE: u32 = 99;
/// The quantile of the normal distribution for it, of both sides.
const NORMAL: f64 = 2.576;
/// Those of Student's distribution with 1, 2, ... degrees of freedom.
const STUDENT: [f64; 10] = [
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169,
];
/// Least change, in thousandths of the duration: with one run on each side, whose noise is not
/// wholly known, and with several.
const LEAST: [u64; 2] = [10, 1];

/// Two sets of runs, A and B.
pub(crate) type Sets<'r> = [&'r [Run]; 2];

/// An amount, and the number that it is made from: the means of a set.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ComparedValues {
    /// The time in nanoseconds, or the number of events.
    pub amount: u64,
    /// Number of calls or entries, or of samples of an event.
    pub count: u64,
}

/// The values of both sets, and what they say.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The first set.
    pub a: ComparedValues,
    /// The second set.
    pub b: ComparedValues,
    /// The noise of the difference; `None` for a measured time with one run on each side.
    pub noise: Option<u64>,
    /// Whether the difference exceeds the noise and the least change.
    pub changed: bool,
}

/// A place that both sets may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedPlace {
    /// The place; its time and threads are those of one run.
    pub place: Finding,
    /// Its times.
    pub change: Change,
}

/// What changed of an event that all runs counted.
#[derive(Debug, Default)]
pub struct ChangedEvents {
    /// The event.
    pub event: String,
    /// Changes below this are not reported.
    pub least: u64,
    /// The number in the whole run.
    pub all: Change,
    /// By function, the largest change first.
    pub functions: Vec<(String, Change)>,
    /// Likewise by region; none if only one set has regions.
    pub regions: Vec<(String, Change)>,
}

/// The sums of a set: means of its runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetSummary {
    /// Number of runs.
    pub runs: usize,
    /// [`Summary::elapsed`].
    pub elapsed: Ns,
    /// All threads. The residual is that of the means.
    pub total: TimeSum,
    /// Time in calls.
    pub in_calls: Ns,
    /// Number of samples that divide measured times, of all runs together.
    pub samples: u64,
    /// Losses by reason, of all runs together.
    pub lost: BTreeMap<String, u64>,
}

/// The differences between two sets of runs, in each list the largest first.
#[derive(Debug, Default)]
pub struct Differences {
    /// The first set, without setting sleeping threads apart.
    pub a: SetSummary,
    /// The second set, likewise.
    pub b: SetSummary,
    /// Changes below this are not reported.
    pub least: Ns,
    /// The durations of the runs.
    pub elapsed: Change,
    /// Wall time of all threads.
    pub wall: Change,
    /// The parts of that time, in the order of [`TimePart::ALL`].
    pub parts: Vec<(TimePart, Change)>,
    /// Time in calls.
    pub in_calls: Change,
    /// Places. Of recordings without samples they are calls and parts of the time.
    pub places: Vec<ChangedPlace>,
    /// Calls by name.
    pub calls: Vec<(String, Change)>,
    /// Regions that both sets have: their own times and entries, or their times in calls if a set
    /// lacks these.
    pub regions: Vec<(String, Change)>,
    /// Whether [`Differences::regions`] are times in calls.
    pub regions_of_calls: bool,
    /// The events that all runs counted.
    pub events: Vec<ChangedEvents>,
}

/// The values of one thing in each run.
#[derive(Debug, Default, Clone)]
pub(crate) struct Series {
    values: [Vec<ComparedValues>; 2],
    /// The squares of the errors of sampling, by set.
    squares: [f64; 2],
}

/// The sums of a run.
struct RunSums {
    summary: Summary,
    /// Its places with their times, and the squares of the errors of these.
    places: Vec<(Finding, f64)>,
    samples: u64,
    events: CountedEvents,
}

/// Compares two sets of runs.
pub fn differences(a: &[Run], b: &[Run]) -> Differences {
    let sets: Sets<'_> = [a, b];
    let sampled = sets.iter().all(|runs| runs.iter().all(is_sampled));
    let sums = sets.map(|runs| {
        let sums = runs.iter().map(|run| run_sums(run, sampled));
        sums.collect::<Vec<_>>()
    });
    let comparison = Comparison::new(&sums);
    let one = |value: &dyn Fn(&RunSums) -> Ns| comparison.one(&sums, |run| (time(value(run)), 0.0));
    let (regions, regions_of_calls) = regions(sets, &sums, &comparison);
    let events = events(sets, &sums, &comparison);
    let [a, b] = [&sums[0], &sums[1]].map(|runs| set_summary(runs));
    Differences {
        least: comparison.least,
        elapsed: one(&|run| run.summary.elapsed),
        wall: one(&|run| run.summary.total.wall),
        parts: TimePart::ALL
            .map(|part| (part, one(&|run| run.summary.total.part(part))))
            .to_vec(),
        in_calls: one(&|run| run.summary.in_calls()),
        places: places(&sums, &comparison),
        calls: comparison.rows(&sums, |run| run.summary.calls.iter().map(call).collect()),
        regions,
        regions_of_calls,
        events,
        a,
        b,
    }
}

/// The events that each recording of both sets counted, in the order of the first.
pub fn counted_by_all(sets: [&[Run]; 2]) -> Vec<String> {
    let mut profiles = sets.into_iter().flatten().flat_map(|run| &run.profiles);
    let counted = |p: &Profile| {
        let counted = p.header.options.counted.iter();
        counted.map(|e| e.event.clone()).collect::<Vec<String>>()
    };
    let mut events = profiles.next().map(counted).unwrap_or_default();
    for profile in profiles {
        let other = counted(profile);
        events.retain(|event| other.contains(event));
    }
    events
}

/// Whether the functions of a run are known.
fn is_sampled(run: &Run) -> bool {
    let mut profiles = run.profiles.iter();
    profiles.all(|p| p.header.options.samples.is_some())
}

/// A name with its values, and the square of their error of sampling.
type Row<'r> = (Cow<'r, str>, ComparedValues, f64);

/// A time alone.
fn time(ns: Ns) -> ComparedValues {
    ComparedValues {
        amount: ns,
        count: 0,
    }
}

fn call(group: &CallGroup) -> Row<'_> {
    let values = ComparedValues {
        amount: group.time(),
        count: group.count,
    };
    (group.name.as_str().into(), values, 0.0)
}

fn region(region: &Region) -> Row<'_> {
    let values = ComparedValues {
        amount: region.exclusive,
        count: region.entries,
    };
    (region.name.as_str().into(), values, 0.0)
}

/// Whether both sets have regions, or neither.
fn regions_are_comparable(sets: Sets<'_>) -> bool {
    let [a, b] = sets.map(|runs| {
        let mut profiles = runs.iter().flat_map(|run| &run.profiles);
        profiles.any(|p| p.header.has_regions())
    });
    a == b
}

/// The regions, and whether they are times in calls. None if only one set has regions.
fn regions(
    sets: Sets<'_>,
    sums: &[Vec<RunSums>; 2],
    comparison: &Comparison,
) -> (Vec<(String, Change)>, bool) {
    let mut runs = sums.iter().flatten();
    let of_calls = runs.any(|run| run.summary.times.is_empty());
    let rows = match of_calls {
        true => comparison.rows(sums, |run| run.summary.regions.iter().map(call).collect()),
        false => comparison.rows(sums, |run| run.summary.times.iter().map(region).collect()),
    };
    let comparable = regions_are_comparable(sets);
    match comparable && rows.iter().any(|(name, _)| name != OUTSIDE) {
        true => (rows, of_calls),
        false => (Vec::new(), of_calls),
    }
}

/// The events that all runs of both sets counted.
fn events(sets: Sets<'_>, sums: &[Vec<RunSums>; 2], comparison: &Comparison) -> Vec<ChangedEvents> {
    let regions = regions_are_comparable(sets);
    let change = |event: &String| {
        let of =
            |run: &RunSums, counts: &[Estimate]| run.events.of(event, counts).unwrap_or_default();
        let all = |run: &RunSums| of(run, &run.events.all);
        let most = sums.iter().flatten().map(|run| all(run).events).max();
        let comparison = comparison.with_least(most.unwrap_or(0));
        let row = |run: &RunSums, counts: &[Estimate]| {
            let (all, count) = (all(run), of(run, counts));
            let (whole, events) = (all.events as f64, count.events as f64);
            let values = ComparedValues {
                amount: count.events,
                count: count.samples,
            };
            (values, square(whole, whole / all.samples as f64, events))
        };
        let rows = |places: &dyn Fn(&RunSums) -> &[EventPlace]| {
            comparison.rows(sums, |run| {
                let rows = places(run).iter().map(|place| {
                    let (values, square) = row(run, &place.counts);
                    (place.shown().into(), values, square)
                });
                rows.filter(|(_, values, _)| values.count > 0).collect()
            })
        };
        ChangedEvents {
            event: event.clone(),
            least: comparison.least,
            all: comparison.one(sums, |run| row(run, &run.events.all)),
            functions: rows(&|run| &run.events.functions),
            regions: match regions {
                true => rows(&|run| &run.events.regions),
                false => Vec::new(),
            },
        }
    };
    counted_by_all(sets).iter().map(change).collect()
}

/// The places of both sets.
fn places(sums: &[Vec<RunSums>; 2], comparison: &Comparison) -> Vec<ChangedPlace> {
    /// What identifies a place: lines differ between runs.
    type Key<'r> = (
        TimePart,
        Option<WaitKind>,
        Option<&'r str>,
        &'r str,
        Option<&'r str>,
        Option<&'r str>,
    );
    let mut by_place: BTreeMap<Key<'_>, (&Finding, Series)> = BTreeMap::new();
    for (set, runs) in sums.iter().enumerate() {
        for (index, run) in runs.iter().enumerate() {
            for (place, square) in &run.places {
                let key = (
                    place.part,
                    place.wait,
                    place.call.as_deref(),
                    &*place.function,
                    place
                        .location
                        .as_deref()
                        .filter(|_| place.function.is_empty()),
                    place.caller.as_deref(),
                );
                let (shown, series) = by_place.entry(key).or_insert((place, Series::default()));
                // The line of the last run is that of the newer program.
                *shown = place;
                series.add(set, index, time(place.ns), *square);
            }
        }
    }
    let mut places: Vec<ChangedPlace> = by_place
        .into_values()
        .map(|(place, series)| ChangedPlace {
            place: place.clone(),
            change: comparison.change(&series),
        })
        .collect();
    places.sort_by_key(|p| std::cmp::Reverse(p.change.size()));
    places
}

fn run_sums(run: &Run, sampled: bool) -> RunSums {
    let summary = run.summary_of_all();
    let (mut places, mut samples) = (Vec::new(), 0);
    if sampled {
        let periods = Periods::new(run);
        samples = periods.samples;
        for place in findings_of_all(run) {
            let square = periods.square(place.part, place.ns);
            places.push((place, square));
        }
    } else {
        places.extend(places_of_calls(&summary).into_iter().map(|p| (p, 0.0)));
    }
    RunSums {
        summary,
        places,
        samples,
        events: counted_events(run),
    }
}

/// Places of runs without samples: the parts of calls, and those of the rest of the threads' time.
fn places_of_calls(summary: &Summary) -> Vec<Finding> {
    let mut rest = summary.total.parts;
    let mut places = Vec::new();
    let mut add = |part, call: Option<&str>, ns| {
        places.push(Finding {
            part,
            call: call.map(str::to_owned),
            function: String::new(),
            location: None,
            caller: None,
            wait: None,
            object: None,
            holder: None,
            ns,
            threads: 0,
        });
    };
    for call in &summary.calls {
        for (part, ns) in [
            (TimePart::SyscallCpu, call.parts.cpu),
            (TimePart::Blocked, call.parts.blocked),
        ] {
            add(part, Some(&call.name), ns);
            let rest = &mut rest[part as usize];
            *rest = rest.saturating_sub(ns);
        }
    }
    for part in TimePart::ALL {
        add(part, None, rest[part as usize]);
    }
    places.retain(|place| place.ns > 0);
    places
}

/// The time that a sample of each part stands for.
#[derive(Debug, Default)]
pub(crate) struct Periods {
    /// By part, its whole time and the time of one sample; 0 where it was not sampled.
    parts: [(f64, f64); 8],
    samples: u64,
}

impl Periods {
    /// The periods of a run.
    pub(crate) fn new(run: &Run) -> Periods {
        let mut counts = [0u64; 8];
        let mut times = [0u64; 8];
        for profile in &run.profiles {
            // Where all calls have their stacks, these replace the samples.
            let stacks = profile.header.options.stacks;
            for sample in &profile.data.samples {
                let parts: &[TimePart] = match sample.activity {
                    Activity::User => &[TimePart::User],
                    Activity::Call if !stacks => &[TimePart::SyscallCpu],
                    Activity::Fault => &[TimePart::FaultMinor, TimePart::FaultMajor],
                    Activity::Call | Activity::Blocked => &[],
                };
                for part in parts {
                    let count = &mut counts[*part as usize];
                    *count = count.saturating_add(sample.count);
                }
            }
            for thread in &profile.data.threads {
                for (sum, ns) in times.iter_mut().zip(thread.parts.times()) {
                    *sum = sum.saturating_add(ns);
                }
            }
        }
        let mut periods = Periods::default();
        for part in TimePart::ALL {
            let (ns, count) = (times[part as usize], counts[part as usize]);
            if count > 0 {
                periods.parts[part as usize] = (ns as f64, ns as f64 / count as f64);
            }
            if part != TimePart::FaultMajor {
                periods.samples = periods.samples.saturating_add(count);
            }
        }
        periods
    }

    /// The square of the error of a time that samples of a part gave to a place.
    pub(crate) fn square(&self, part: TimePart, ns: Ns) -> f64 {
        let (all, period) = self.parts[part as usize];
        square(all, period, ns as f64)
    }
}

/// The square of the error of a place's amount, of `all`, of which a sample stands for `period`.
fn square(all: f64, period: f64, amount: f64) -> f64 {
    if all == 0.0 {
        return 0.0;
    }
    let others = (1.0 - amount / all).max(0.0);
    period * amount * others + period * period
}

/// How series are compared.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Comparison {
    /// Number of runs of each set.
    pub(crate) runs: [usize; 2],
    /// The least change.
    pub(crate) least: u64,
}

impl Comparison {
    fn new(sums: &[Vec<RunSums>; 2]) -> Comparison {
        let runs = sums.iter().flatten();
        let longest = runs.map(|run| run.summary.elapsed).max().unwrap_or(0);
        let runs = [sums[0].len(), sums[1].len()];
        Comparison { runs, least: 0 }.with_least(longest)
    }

    /// The same for amounts whose largest whole is this.
    fn with_least(self, whole: u64) -> Comparison {
        let several = self.runs.iter().any(|runs| *runs > 1);
        Comparison {
            least: (whole / 1000).saturating_mul(LEAST[usize::from(several)]),
            ..self
        }
    }

    /// The change of one value of each run.
    fn one(
        &self,
        sums: &[Vec<RunSums>; 2],
        value: impl Fn(&RunSums) -> (ComparedValues, f64),
    ) -> Change {
        let mut series = Series::default();
        for (set, runs) in sums.iter().enumerate() {
            for (index, run) in runs.iter().enumerate() {
                let (values, square) = value(run);
                series.add(set, index, values, square);
            }
        }
        self.change(&series)
    }

    /// The changes of rows with names.
    fn rows<'r>(
        &self,
        sums: &'r [Vec<RunSums>; 2],
        rows: impl Fn(&'r RunSums) -> Vec<Row<'r>>,
    ) -> Vec<(String, Change)> {
        let mut by_name: BTreeMap<Cow<'r, str>, Series> = BTreeMap::new();
        for (set, runs) in sums.iter().enumerate() {
            for (index, run) in runs.iter().enumerate() {
                for (name, values, square) in rows(run) {
                    let series = by_name.entry(name).or_default();
                    series.add(set, index, values, square);
                }
            }
        }
        let changes = by_name.into_iter();
        let mut changes: Vec<(String, Change)> = changes
            .map(|(name, series)| (name.into_owned(), self.change(&series)))
            .collect();
        changes.sort_by_key(|(_, change)| std::cmp::Reverse(change.size()));
        changes
    }

    /// What a series says.
    pub(crate) fn change(&self, series: &Series) -> Change {
        let mean = |set: usize| {
            let values = &series.values[set];
            ComparedValues {
                amount: mean(values.iter().map(|v| v.amount), self.runs[set]),
                count: mean(values.iter().map(|v| v.count), self.runs[set]),
            }
        };
        let noise = self.noise(series);
        let mut change = Change {
            a: mean(0),
            b: mean(1),
            noise: noise.map(whole),
            changed: false,
        };
        let size = change.size();
        change.changed = size > 0 && size >= self.least && change.noise.is_none_or(|n| size > n);
        change
    }

    /// The noise of the difference of the means.
    fn noise(&self, series: &Series) -> Option<f64> {
        let runs = self.runs.map(|runs| runs as f64);
        let sampling = (0..2).map(|set| series.squares[set] / (runs[set] * runs[set]).max(1.0));
        let sampling = NORMAL * sampling.sum::<f64>().sqrt();
        let squares = [0, 1].map(|set| square_of_spread(&series.values[set], self.runs[set]));
        // The squares of the means' errors, with their degrees of freedom.
        let errors: [(f64, f64); 2] = match squares {
            [None, None] => return (sampling > 0.0).then_some(sampling),
            [a, b] => [(a.or(b), 0), (b.or(a), 1)].map(|(square, set)| {
                let square = square.unwrap_or(0.0) / runs[set].max(1.0);
                (square, (runs[set] - 1.0).max(0.0))
            }),
        };
        let error: f64 = errors.iter().map(|(square, _)| square).sum();
        let below = errors.iter().filter(|(_, freedom)| *freedom > 0.0);
        let below: f64 = below
            .map(|(square, freedom)| square * square / freedom)
            .sum();
        let freedom = match squares {
            [Some(_), Some(_)] if below > 0.0 => error * error / below,
            _ => errors.iter().map(|(_, freedom)| freedom).sum(),
        };
        Some((student(freedom) * error.sqrt()).max(sampling))
    }
}

/// The mean of values; runs without one have 0.
fn mean(values: impl Iterator<Item = u64>, runs: usize) -> u64 {
    let sum: u128 = values.map(u128::from).sum();
    let mean = sum.checked_div(runs as u128).unwrap_or(0);
    u64::try_from(mean).unwrap_or(u64::MAX)
}

/// The variance of the amounts of several runs; `None` of one.
fn square_of_spread(values: &[ComparedValues], runs: usize) -> Option<f64> {
    let several = runs > 1;
    let amounts = || values.iter().map(|v| v.amount as f64);
    let mean = amounts().sum::<f64>() / runs as f64;
    let missing = runs.saturating_sub(values.len()) as f64;
    let squares: f64 = amounts().map(|n| (n - mean) * (n - mean)).sum();
    several.then(|| (squares + missing * mean * mean) / (runs as f64 - 1.0))
}

/// The quantile of Student's distribution.
fn student(freedom: f64) -> f64 {
    let z = NORMAL;
    let whole = usize::try_from(whole(freedom.floor().max(1.0))).unwrap_or(usize::MAX);
    STUDENT.get(whole - 1).copied().unwrap_or_else(|| {
        // The expansion of Cornish and Fisher, exact to 0.5 % here.
        let (cube, fifth) = (z.powi(3), z.powi(5));
        z + (cube + z) / (4.0 * freedom)
            + (5.0 * fifth + 16.0 * cube + 3.0 * z) / (96.0 * freedom * freedom)
    })
}

impl Series {
    /// Adds values to those of a run. Runs come in their order.
    pub(crate) fn add(&mut self, set: usize, run: usize, values: ComparedValues, square: f64) {
        let runs = &mut self.values[set];
        if runs.len() <= run {
            runs.resize(run + 1, ComparedValues::default());
        }
        let sum = &mut runs[run];
        sum.amount = sum.amount.saturating_add(values.amount);
        sum.count = sum.count.saturating_add(values.count);
        self.squares[set] += square;
    }
}

impl Change {
    /// The size of the difference.
    pub fn size(&self) -> u64 {
        self.b.amount.abs_diff(self.a.amount)
    }
}

fn set_summary(runs: &[RunSums]) -> SetSummary {
    let n = runs.len();
    let of = |value: &dyn Fn(&Summary) -> u64| mean(runs.iter().map(|r| value(&r.summary)), n);
    let parts = TimePart::ALL.map(|part| of(&|s| s.total.part(part)));
    let wall = of(&|s| s.total.wall);
    let sum = parts.iter().fold(0, |sum: Ns, ns| sum.saturating_add(*ns));
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    for (what, count) in runs.iter().flat_map(|r| &r.summary.lost) {
        let sum = lost.entry(what.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    SetSummary {
        runs: n,
        elapsed: of(&|s| s.elapsed),
        total: TimeSum {
            threads: of(&|s| s.total.threads),
            wall,
            parts,
            residual: crate::model::difference(wall, sum),
        },
        in_calls: of(&Summary::in_calls),
        samples: runs.iter().fold(0, |sum, r| sum.saturating_add(r.samples)),
        lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The change of times of runs, with errors of sampling.
    fn change(a: &[Ns], b: &[Ns], squares: [f64; 2]) -> Change {
        let mut series = Series {
            squares,
            ..Series::default()
        };
        for (set, times) in [a, b].into_iter().enumerate() {
            for (run, ns) in times.iter().enumerate() {
                let values = ComparedValues {
                    amount: *ns,
                    count: 1,
                };
                series.add(set, run, values, 0.0);
            }
        }
        let runs = [a.len(), b.len()];
        Comparison { runs, least: 10 }.change(&series)
    }

    #[test]
    fn a_set_is_its_mean() {
        let change = change(&[100, 200], &[u64::MAX, u64::MAX], [0.0; 2]);
        assert_eq!((change.a.amount, change.b.amount), (150, u64::MAX));
        assert_eq!((change.a.count, change.b.count), (1, 1));
    }

    /// Welch's interval of a textbook: the difference of the means is 28 - 23 = 5 and its error
    /// 1.789, with 7.6 degrees of freedom.
    #[test]
    fn the_noise_follows_from_the_spread() {
        let a = [21, 25, 19, 27, 23];
        let b = [29, 26, 25, 31, 29];
        let noise = change(&a, &b, [0.0; 2]).noise;
        assert_eq!(
            noise,
            Some(whole(3.499 * (10.0f64 / 5.0 + 6.0 / 5.0).sqrt()))
        );
        assert!(!change(&a, &b, [0.0; 2]).changed);
        let more = b.map(|ns| ns + 20);
        assert!(change(&a, &more, [0.0; 2]).changed);
        // One run has the spread of the other side's.
        let one = change(&[23], &b, [0.0; 2]).noise;
        assert_eq!(one, Some(whole(4.604 * (6.0f64 + 6.0 / 5.0).sqrt())));
        // A place that a run lacks has no time there.
        let rare = change(&[0, 0, 0], &[0, 0, 90], [0.0; 2]);
        assert!(!rare.changed, "{rare:?}");
    }

    #[test]
    fn one_run_has_the_error_of_its_samples() {
        assert_eq!(change(&[100], &[200], [0.0; 2]).noise, None);
        assert!(change(&[100], &[200], [0.0; 2]).changed);
        assert!(!change(&[100], &[109], [0.0; 2]).changed, "below the least");
        let noisy = change(&[100], &[200], [900.0, 1600.0]);
        assert_eq!(
            (noisy.noise, noisy.changed),
            (Some(whole(NORMAL * 50.0)), false)
        );
        // The spread of equal times is not below that error.
        let same = change(&[100, 100], &[200, 200], [3600.0, 6400.0]);
        assert_eq!(same.noise, Some(whole(NORMAL * 50.0)));
    }

    #[test]
    fn quantiles_are_those_of_students_distribution() {
        // Published values for 1, 5, 11, 30 and 120 degrees of freedom.
        for (freedom, value) in [
            (1.0, 63.657),
            (5.9, 4.032),
            (11.0, 3.106),
            (30.0, 2.750),
            (120.0, 2.617),
        ] {
            let found = student(freedom);
            assert!((found - value).abs() < value / 150.0, "{freedom}: {found}");
        }
        assert!(student(0.0) > 60.0 && student(f64::NAN).is_finite());
    }

    #[test]
    fn the_error_of_sampling_is_that_of_a_binomial_distribution() {
        let mut profile = crate::Profile::default();
        profile.data.threads.push(crate::model::Thread {
            parts: crate::model::TimeParts {
                user: 1_000_000,
                ..Default::default()
            },
            ..Default::default()
        });
        for count in [30, 70] {
            profile.data.samples.push(crate::model::Sample {
                count,
                ..Default::default()
            });
        }
        let periods = Periods::new(&Run::new(vec![profile]));
        assert_eq!(periods.samples, 100);
        let period = 1e4f64;
        let square = periods.square(TimePart::User, 300_000);
        assert!(
            (square - period * period * (100.0 * 0.3 * 0.7 + 1.0)).abs() < 1.0,
            "{square}"
        );
        assert!(periods.square(TimePart::Blocked, 300_000) == 0.0);
    }
}
