//! The report of `-t`: the cost of each probe.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Instant;

use spile_ir::Program;
use spile_kernel::cycles::cycles;
use spile_layout::{Layout, counters};

use crate::report::losses::LossReport;
use crate::shared::state::StateMemory;

/// Hits and run times of one handler. Times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HitStats {
    /// Hits that ran.
    pub count: u64,
    /// Sum of run times.
    pub sum: u64,
    /// Shortest run time.
    pub min: u64,
    /// Longest run time.
    pub max: u64,
    /// Sum of squares of run times.
    pub sum_sq: u128,
}

impl HitStats {
    /// Adds one run.
    pub fn add(&mut self, ns: u64) {
        self.merge(HitStats {
            count: 1,
            sum: ns,
            min: ns,
            max: ns,
            sum_sq: u128::from(ns).pow(2),
        });
    }

    /// Adds the runs of another handler.
    pub fn merge(&mut self, other: HitStats) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.sum_sq = self.sum_sq.wrapping_add(other.sum_sq);
    }

    /// Mean run time.
    pub fn avg(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// Sample variance, in squared nanoseconds or cycles; 0 with fewer than two hits.
    pub fn variance(&self) -> u128 {
        if self.count < 2 {
            return 0;
        }
        let n = u128::from(self.count);
        let square_of_sum = u128::from(self.sum).saturating_mul(u128::from(self.sum));
        self.sum_sq.saturating_sub(square_of_sum / n) / (n - 1)
    }

    /// The hits of a kernel handler on all CPUs.
    pub fn of_kernel(state: &StateMemory, offset: u32, timing: bool) -> HitStats {
        let mut total = HitStats::default();
        for cpu in 0..state.cpus() {
            let word = |o: u32| state.cpu(cpu, offset + o).load(Ordering::Relaxed);
            let mut one = HitStats {
                count: word(counters::HITS),
                ..HitStats::default()
            };
            if timing {
                one.sum = word(counters::TIME_SUM);
                one.min = word(counters::TIME_MIN);
                one.max = word(counters::TIME_MAX);
                one.sum_sq = u128::from(word(counters::TIME_SQ));
            }
            total.merge(one);
        }
        total
    }
}

/// Measures the number of processor cycles per nanosecond.
pub struct CycleClock {
    cycles: u64,
    since: Instant,
}

impl CycleClock {
    /// Starts the measurement.
    pub fn start() -> CycleClock {
        CycleClock {
            cycles: cycles(),
            since: Instant::now(),
        }
    }

    /// Cycles per nanosecond since the start; 1 if the processor has no counter.
    pub fn per_ns(&self) -> f64 {
        let ns = self.since.elapsed().as_nanos() as f64;
        let ran = cycles().wrapping_sub(self.cycles) as f64;
        if ran > 0.0 && ns > 0.0 { ran / ns } else { 1.0 }
    }
}

/// The report's text: a line for each handler with hits, then the reasons for delays.
pub fn text(
    program: &Program,
    hits: &[HitStats],
    per_ns: f64,
    losses: &LossReport,
    layout: Option<&Layout>,
) -> String {
    let mut out = String::from("----- probe hit report: \n");
    for (index, (handler, h)) in program.handlers.iter().zip(hits).enumerate() {
        if h.count == 0 {
            continue;
        }
        let location = program
            .sites
            .get(handler.site.index())
            .map_or("", |s| location(&s.near));
        let cycles = |ns: u64| spile_cast::whole(ns as f64 * per_ns);
        let variance = (h.variance() as f64 * per_ns * per_ns).trunc();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{}, ({location}), hits: {}, cycles: {}min/{}avg/{}max, ns: {}min/{}avg/{}max, \
             variance: {variance:.0}, index: {index}",
            spile_plain::name(&handler.point),
            h.count,
            cycles(h.min),
            cycles(h.avg()),
            cycles(h.max),
            h.min,
            h.avg(),
            h.max,
        );
    }
    out.push_str("----- refresh report:\n");
    let s = &losses.skipped;
    for (n, what) in [(s.lock, "lock timeouts"), (s.reentrancy, "reentrant hits")] {
        if n > 0 {
            let _ = writeln!(out, "{what}: {n}");
        }
    }
    for (name, n) in &losses.controller_lock_timeouts {
        let _ = writeln!(out, "'{name}' lock timeouts in the controller: {n}");
    }
    let locked: Vec<&str> = layout
        .iter()
        .flat_map(|l| l.globals.iter().zip(&program.globals))
        .filter(|(location, _)| location.as_ref().is_some_and(|p| p.lock.is_some()))
        .map(|(_, global)| &*global.name)
        .collect();
    if !locked.is_empty() {
        let _ = writeln!(out, "globals with a lock: {}", locked.join(", "));
    }
    out
}

/// `script.stp:3:4` of "identifier 'x' at script.stp:3:4".
fn location(near: &str) -> &str {
    near.rsplit_once(" at ")
        .map_or(near, |(_, location)| location)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variance_is_of_the_sample() {
        let mut h = HitStats::default();
        assert_eq!((h.avg(), h.variance()), (0, 0));
        for ns in [2, 4, 4, 4, 5, 5, 7, 9] {
            h.add(ns);
        }
        assert_eq!((h.count, h.min, h.max, h.avg()), (8, 2, 9, 5));
        assert_eq!(h.variance(), 32 / 7);
    }

    #[test]
    fn only_handlers_that_hit() {
        let handler = |point: &str| spile_ir::Handler {
            point: point.into(),
            points: 1,
            event: spile_ir::Event::Never,
            body: Default::default(),
            site: spile_ir::SiteId(1),
        };
        let program = Program {
            handlers: vec![handler("a"), handler("b")],
            sites: vec![
                Default::default(),
                spile_ir::Site::at("keyword 'probe' at x.stp:1:1"),
            ],
            ..Program::default()
        };
        let mut hits = [HitStats::default(); 2];
        hits[1].add(100);
        let text = text(&program, &hits, 2.0, &LossReport::default(), None);
        assert_eq!(
            text.lines().nth(1).unwrap(),
            "b, (x.stp:1:1), hits: 1, cycles: 200min/200avg/200max, \
             ns: 100min/100avg/100max, variance: 0, index: 1"
        );
    }
}
