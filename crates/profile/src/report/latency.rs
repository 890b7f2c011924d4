//! Durations of calls as bars, one for each power of two.

use spile_cast::Cast;

use super::table::{TextTable, shorten};
use super::units::time;
use crate::model::Ns;
use crate::run::CallGroup;

/// The heights of a bar, from empty to full.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The range of a table's bars: the first used bucket, and one past the last.
fn range(groups: &[CallGroup]) -> (usize, usize) {
    let first = groups
        .iter()
        .filter_map(|g| g.histogram.iter().position(|n| *n > 0));
    let end = groups
        .iter()
        .filter_map(|g| g.histogram.iter().rposition(|n| *n > 0));
    let end = end.max().map_or(0, |last| last + 1);
    (first.min().unwrap_or(end), end)
}

/// A bar for each bucket; the histogram's fullest bucket is the highest.
fn bars(histogram: &[u64], (first, end): (usize, usize)) -> String {
    let most = u128::from(histogram.iter().copied().max().unwrap_or(0).max(1));
    let bar = |location: usize| {
        let n = u128::from(histogram.get(location).copied().unwrap_or(0));
        BARS[(n * 8).div_ceil(most).min(8) as usize]
    };
    (first..end).map(bar).collect()
}

/// Lower bound of bucket `n`.
fn bucket_start(location: usize) -> Ns {
    match location {
        0 => 0,
        _ => 1u64.checked_shl(location.fit::<u32>()).unwrap_or(u64::MAX),
    }
}

/// The time that `thousandths` of 1,000 calls stayed below, with the resolution of the histogram.
fn percentile(group: &CallGroup, thousandths: u64) -> Ns {
    let count: u128 = group.histogram.iter().map(|n| u128::from(*n)).sum();
    let mut seen = 0;
    for (location, n) in group.histogram.iter().enumerate() {
        seen += u128::from(*n);
        if seen * 1000 >= count * u128::from(thousandths) {
            return bucket_start(location + 1).min(group.max);
        }
    }
    group.max
}

/// The table, if histograms were recorded; calls in the order of their time.
pub(super) fn latency(groups: &[CallGroup], width: usize, top: usize) -> String {
    let timed: Vec<&CallGroup> = groups.iter().filter(|g| !g.histogram.is_empty()).collect();
    let shown: Vec<CallGroup> = timed.iter().take(top).map(|g| (*g).clone()).collect();
    let range = range(&shown);
    if shown.is_empty() || range.0 == range.1 {
        return String::new();
    }
    let mut table = TextTable::new(&[
        ("call", 0),
        ("calls", 2),
        ("min", 1),
        ("half below", 3),
        ("99% below", 4),
        ("max", 1),
        ("bars", 0),
    ]);
    table.narrow = 12;
    for group in &shown {
        table.rows.push(vec![
            group.short().to_owned(),
            group.count.to_string(),
            time(group.min),
            time(percentile(group, 500)),
            time(percentile(group, 990)),
            time(group.max),
            bars(&group.histogram, range),
        ]);
    }
    let (from, to) = (time(bucket_start(range.0)), time(bucket_start(range.1)));
    let title = format!("Latency (bars: {from} to {to}, each twice the last)");
    let mut out = format!("\n{}\n", shorten(&title, width));
    out += &table.render(width);
    if timed.len() > top {
        out += &format!("and {} more\n", timed.len() - top);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(histogram: &[u64], max: Ns) -> CallGroup {
        CallGroup {
            histogram: histogram.to_vec(),
            count: histogram.iter().sum(),
            max,
            ..CallGroup::default()
        }
    }

    #[test]
    fn bars_share_a_scale() {
        let (a, b) = (group(&[0, 0, 8, 1], 12), group(&[0, 0, 0, 0, 2], 17));
        let range = range(&[a.clone(), b.clone()]);
        assert_eq!(range, (2, 5));
        assert_eq!(
            (bars(&a.histogram, range), bars(&b.histogram, range)),
            ("█▁ ".into(), "  █".into())
        );
        assert_eq!(
            (
                percentile(&a, 500),
                percentile(&a, 990),
                percentile(&b, 500)
            ),
            (8, 12, 17)
        );
        assert_eq!(bucket_start(70), u64::MAX);
    }
}
