//! The noise of a machine as text: processors, causes, and lengths of gaps.

use std::collections::BTreeMap;

use spile_cast::Cast;

use super::table::{TextTable, clauses, section};
use super::units::time;
use crate::noise::{Cause, CauseKind, Cpu, Noise, Source};

/// The report in lines of at most `width` columns; `top` limits the rows of the table of causes.
pub fn noise(noise: &Noise, width: usize, top: usize) -> String {
    let start = format!(
        "{}: gaps over {} in {}, by processor: ",
        noise.host,
        time(noise.threshold_ns),
        time(noise.cpus.iter().map(|c| c.wall).max().unwrap_or(0))
    );
    let shares: Vec<_> = noise
        .cpus
        .iter()
        .map(|c| format!("{}: {} ppm", c.cpu, ppm(c.ppm())))
        .collect();
    let mut out = clauses(&start, &shares, width);
    out += &cpus(noise, width);
    out += &causes(noise, width, top);
    out += &lengths(noise, width);
    for (what, count) in &noise.lost {
        out += &clauses("Lost: ", &[format!("{count} {what}")], width);
    }
    out
}

fn ppm(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

fn cpus(noise: &Noise, width: usize) -> String {
    let mut table = TextTable::new(&[
        ("processor", 0),
        ("time", 3),
        ("ppm", 0),
        ("gaps", 0),
        ("lost", 0),
        ("longest", 0),
        ("by", 1),
        ("shortest pass", 2),
    ]);
    for cpu in &noise.cpus {
        let Cpu {
            wall,
            gaps,
            ns,
            max,
            max_by,
            shortest,
            ..
        } = cpu;
        table.rows.push(vec![
            cpu.cpu.to_string(),
            time(*wall),
            ppm(cpu.ppm()),
            gaps.to_string(),
            time(*ns),
            time(*max),
            max_by.clone(),
            time(*shortest),
        ]);
    }
    table.narrow = 9;
    format!("\n{}", table.render(width))
}

/// Causes over all processors, with the share of each.
fn causes(noise: &Noise, width: usize, top: usize) -> String {
    let mut sums: BTreeMap<Source, Cause> = BTreeMap::new();
    let mut on: BTreeMap<&Source, Vec<(u32, u64)>> = BTreeMap::new();
    for cpu in &noise.cpus {
        for cause in &cpu.causes {
            let Cause {
                source,
                count,
                ns,
                max,
            } = cause;
            Cause::add_to(&mut sums, source, *count, *ns, *max);
            let counts = on.entry(source).or_default();
            counts.push((cpu.cpu, *count));
        }
    }
    let wall: u64 = noise.cpus.iter().map(|c| c.wall).sum();
    let mut order: Vec<_> = sums.iter().collect();
    order.sort_by_key(|(_, c)| std::cmp::Reverse(c.ns));
    let mut table = TextTable::new(&[
        ("cause", 0),
        ("kind", 3),
        ("pid", 2),
        ("count", 0),
        ("time", 0),
        ("ppm", 1),
        ("longest", 1),
        ("on processors", 4),
    ]);
    for (source, cause) in order.iter().take(top) {
        let most = on[source].iter().map(|(cpu, n)| format!("{cpu}: {n}"));
        table.rows.push(vec![
            source.name.clone(),
            match source.kind {
                CauseKind::Device => "device",
                CauseKind::Vector => "processor",
                CauseKind::Softirq => "softirq",
                CauseKind::Thread => "thread",
                CauseKind::Around | CauseKind::Unknown => "-",
            }
            .to_owned(),
            source.pid.map_or_else(|| "-".to_owned(), |p| p.to_string()),
            cause.count.to_string(),
            time(cause.ns),
            ppm(cause.ns as f64 * 1e6 / wall.max(1) as f64),
            time(cause.max),
            most.collect::<Vec<_>>().join(" "),
        ]);
    }
    table.narrow = 24;
    section(
        "What interrupted",
        &table,
        width,
        order.len().saturating_sub(top),
    )
}

/// Gaps by length, with bars.
fn lengths(noise: &Noise, width: usize) -> String {
    const BAR: usize = 40;
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (bucket, count) in noise.cpus.iter().flat_map(|c| &c.lengths) {
        *sums.entry(*bucket).or_insert(0) += count;
    }
    let most = sums.values().copied().max().unwrap_or(0).max(1);
    let mut table = TextTable::new(&[("gaps from", 0), ("count", 0), ("", 1)]);
    for (bucket, count) in &sums {
        let bar =
            spile_cast::whole((*count as f64 / most as f64 * BAR as f64).ceil()).fit::<usize>();
        table.rows.push(vec![
            time(1u64.checked_shl(*bucket).unwrap_or(u64::MAX)),
            count.to_string(),
            format!("{}{}", "@".repeat(bar), " ".repeat(BAR.saturating_sub(bar))),
        ]);
    }
    table.narrow = 9;
    section("How long", &table, width, 0)
}
