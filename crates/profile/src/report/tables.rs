//! Tables whose columns add up: calls, regions, ranks, programs, threads. If the width is short,
//! columns of parts are merged before any column is dropped.

use super::table::{TextTable, section};
use super::units::{bytes, percent, signed, time};
use crate::model::{CallParts, Ns, TimePart};
use crate::run::{CallGroup, Entity, NamedProcesses, OUTSIDE, Summary, TimeSum, WITHIN};

/// Columns, each the sum of some parts of threads' time.
type Columns = &'static [(&'static str, &'static [TimePart])];

/// Divisions of threads' time, the finest first.
const LAYOUTS: [Columns; 5] = [
    &[
        ("user", &[TimePart::User]),
        ("sys cpu", &[TimePart::SyscallCpu]),
        ("blocked", &[TimePart::Blocked]),
        ("runnable", &[TimePart::Runnable]),
        ("minflt", &[TimePart::FaultMinor]),
        ("majflt", &[TimePart::FaultMajor]),
        ("irq", &[TimePart::Irq]),
        ("softirq", &[TimePart::Softirq]),
    ],
    &[
        ("user", &[TimePart::User]),
        ("sys cpu", &[TimePart::SyscallCpu]),
        ("blocked", &[TimePart::Blocked]),
        ("runnable", &[TimePart::Runnable]),
        ("faults", &[TimePart::FaultMinor, TimePart::FaultMajor]),
        ("irqs", &[TimePart::Irq, TimePart::Softirq]),
    ],
    &[
        ("user", &[TimePart::User]),
        ("sys cpu", &[TimePart::SyscallCpu]),
        ("blocked", &[TimePart::Blocked]),
        ("runnable", &[TimePart::Runnable]),
        (TAKEN, TAKEN_PARTS),
    ],
    &[
        ("user", &[TimePart::User]),
        ("kernel", KERNEL),
        ("blocked", &[TimePart::Blocked]),
        ("runnable", &[TimePart::Runnable]),
    ],
    &[
        ("user", &[TimePart::User]),
        ("kernel", KERNEL),
        ("off CPU", &[TimePart::Blocked, TimePart::Runnable]),
    ],
];

/// The title of the column of page faults and interrupts.
const TAKEN: &str = "flt+irq";
const TAKEN_PARTS: &[TimePart] = &[
    TimePart::FaultMinor,
    TimePart::FaultMajor,
    TimePart::Irq,
    TimePart::Softirq,
];
const KERNEL: &[TimePart] = &[
    TimePart::SyscallCpu,
    TimePart::FaultMinor,
    TimePart::FaultMajor,
    TimePart::Irq,
    TimePart::Softirq,
];

/// Columns of parts are the last ones to be dropped.
const LAST: u8 = 1;
/// Columns dropped before these do not count for the choice of a layout.
const NEEDED: u8 = 2;

/// A column's title, and its priority for dropping ([`super::table::Column::drop`]).
type ColumnHead = (&'static str, u8);

/// A row of a table of parts: the cells before them, the parts, and the cells after them.
struct Row {
    before: Vec<String>,
    parts: [Ns; 8],
    residual: i64,
    wall: Ns,
    after: Vec<String>,
}

/// The table in the finest layout that fits the width. `narrow`: width that the first column may be
/// cut to before that.
fn render_finest(
    before: &[ColumnHead],
    after: &[ColumnHead],
    rows: &[Row],
    narrow: usize,
    layouts: &[Columns],
    width: usize,
) -> TextTable {
    let tables = layouts.iter().map(|layout| {
        let parts = layout.iter().map(|(head, _)| (*head, LAST));
        let residual = ("residual", LAST + 1);
        let columns = before.iter().copied().chain(parts);
        let columns = columns.chain([residual]).chain(after.iter().copied());
        let mut table = TextTable::new(&columns.collect::<Vec<_>>());
        table.narrow = narrow;
        for row in rows {
            let mut cells = row.before.clone();
            cells.extend(
                layout
                    .iter()
                    .map(|(_, parts)| short(sum(&row.parts, parts))),
            );
            cells.push(residual_of(row.residual, row.wall));
            cells.extend(row.after.iter().cloned());
            table.rows.push(cells);
        }
        table
    });
    let mut last = TextTable::new(&[]);
    for table in tables {
        last = table;
        if last.fits(width, NEEDED) {
            break;
        }
    }
    last
}

/// The sum of some parts.
fn sum(parts: &[Ns; 8], selected: &[TimePart]) -> Ns {
    selected
        .iter()
        .fold(0, |sum, part| sum.saturating_add(parts[*part as usize]))
}

/// A time; "0" for none.
pub(super) fn short(ns: Ns) -> String {
    match ns {
        0 => "0".to_owned(),
        ns => time(ns),
    }
}

/// The residual; "0" where it is below the resolution of percentages.
fn residual_of(residual: i64, wall: Ns) -> String {
    let share = percent(residual as f64, wall as f64);
    match &*share {
        "-" if residual != 0 => signed(residual),
        "-" | "0.0%" | "-0.0%" => "0".to_owned(),
        _ => share,
    }
}

/// The table of calls, or of regions by their calls.
pub(super) fn groups(
    title: &str,
    what: &'static str,
    groups: &[CallGroup],
    summary: &Summary,
    width: usize,
    top: usize,
) -> String {
    let calls = what == "call";
    let mut table = TextTable::new(&[
        (what, 0),
        ("time", 0),
        ("share", 5),
        ("calls", 0),
        ("failed", if calls { 6 } else { 11 }),
        ("on CPU", LAST),
        ("blocked", LAST),
        ("runnable", LAST),
        (TAKEN, LAST),
        ("mean", 7),
        ("max", 8),
        ("bytes", 9),
        ("max/mean", 4),
        (if calls { "mostly in" } else { "mostly" }, 10),
    ]);
    table.narrow = if calls { 16 } else { 26 };
    let in_calls = summary.in_calls() as f64;
    for group in groups.iter().take(top) {
        let mostly = match group.longest_call() {
            OUTSIDE if calls => "-",
            mostly => mostly.rsplit(WITHIN).next().unwrap_or_default(),
        };
        let ended = |ns| match group.count {
            0 => "-".to_owned(),
            _ => time(ns),
        };
        let CallParts {
            cpu,
            blocked,
            runnable,
            taken,
        } = group.parts;
        let imbalance = group.imbalance().filter(|_| !summary.are_unrelated());
        let imbalance = imbalance.map(|i| format!("{i:.2}"));
        table.rows.push(vec![
            group.short().to_owned(),
            time(group.time()),
            percent(group.time() as f64, in_calls),
            group.count.to_string(),
            group.failures().to_string(),
            short(cpu),
            short(blocked),
            short(runnable),
            short(taken),
            ended(group.mean()),
            ended(group.max),
            match group.bytes {
                0 => "-".to_owned(),
                n => bytes(n),
            },
            imbalance.unwrap_or("-".to_owned()),
            mostly.to_owned(),
        ]);
    }
    let text = section(title, &table, width, groups.len().saturating_sub(top));
    with_imbalance_note(text, title, summary)
}

/// Adds to a table's title what the imbalance column is over, if the table has that column.
fn with_imbalance_note(text: String, title: &str, summary: &Summary) -> String {
    let over = if summary.ranks { "ranks" } else { "threads" };
    match text.lines().nth(2).is_some_and(|l| l.contains("max/mean")) {
        true => {
            let with = match title.strip_suffix(')') {
                Some(title) => format!("{title}; max/mean is over {over})"),
                None => format!("{title} (max/mean is over {over})"),
            };
            text.replacen(title, &with, 1)
        }
        false => text,
    }
}

/// Times in regions: with inner regions, then each region's own, divided like threads' times.
pub(super) fn times(summary: &Summary, width: usize, top: usize) -> String {
    let wall = summary.total.wall as f64;
    let row = |region: &crate::regions::Region| Row {
        before: vec![
            region.short().to_owned(),
            match region.name.as_str() {
                OUTSIDE => "-".to_owned(),
                _ => region.entries.to_string(),
            },
            time(region.inclusive),
            time(region.exclusive),
            percent(region.exclusive as f64, wall),
        ],
        parts: region.parts.times(),
        residual: region.residual(),
        wall: region.exclusive,
        after: vec![
            region
                .imbalance()
                .map_or("-".to_owned(), |i| format!("{i:.2}")),
            region.longest_call().to_owned(),
        ],
    };
    let rows: Vec<Row> = summary.times.iter().take(top).map(row).collect();
    let before = [
        ("region", 0),
        ("entries", 0),
        ("time", 0),
        ("own", 0),
        ("share", 3),
    ];
    let after = [("max/mean", 4), ("mostly", 5)];
    // Faults and interrupts are listed separately in the tables of threads.
    let table = render_finest(&before, &after, &rows, 26, &LAYOUTS[1..], width);
    let more = summary.times.len().saturating_sub(top);
    let title = "Regions (own: without inner regions)";
    let text = section(title, &table, width, more);
    with_imbalance_note(text, title, summary)
}

/// Ranks or nodes. Their wall time differs from the time of their threads.
pub(super) fn units(title: &str, units: &[Entity], width: usize, top: usize) -> String {
    let one_host = one_host(units);
    let row = |unit: &&Entity| Row {
        before: vec![
            unit.title.clone(),
            time(unit.elapsed),
            unit.sum.threads.to_string(),
            time(unit.sum.wall),
        ],
        after: vec![host(unit, one_host)],
        ..parts(&unit.sum)
    };
    let rows: Vec<Row> = longest(units, top).iter().map(row).collect();
    let what = match title {
        "Nodes" => "node",
        _ => "rank",
    };
    let before = [(what, 0), ("wall", 0), ("threads", 2), ("time", 0)];
    let table = render_finest(&before, &[("node", 3)], &rows, 18, &LAYOUTS[..4], width);
    let title = format!("{title} (time: of all their threads)");
    section(&title, &table, width, units.len().saturating_sub(top))
}

/// Processes by name.
pub(super) fn programs(programs: &[NamedProcesses], width: usize, top: usize) -> String {
    let row = |program: &NamedProcesses| Row {
        before: vec![
            program.name.clone(),
            program.processes.to_string(),
            time(program.wall),
            time(program.sum.wall),
        ],
        after: vec![short(program.asleep), program.sum.threads.to_string()],
        ..parts(&program.sum)
    };
    let rows: Vec<Row> = programs.iter().take(top).map(row).collect();
    let before = [("program", 0), ("procs", 0), ("wall", 0), ("time", 0)];
    let after = [("asleep", 2), ("threads", 3)];
    let table = render_finest(&before, &after, &rows, 10, &LAYOUTS[..4], width);
    let title = "Programs (time: of all their threads)";
    section(title, &table, width, programs.len().saturating_sub(top))
}

/// Threads.
pub(super) fn threads(units: &[Entity], width: usize, top: usize) -> String {
    let one_host = one_host(units);
    let row = |unit: &&Entity| Row {
        before: vec![unit.title.clone(), time(unit.sum.wall)],
        after: vec![host(unit, one_host)],
        ..parts(&unit.sum)
    };
    let rows: Vec<Row> = longest(units, top).iter().map(row).collect();
    let before = [("thread", 0), ("wall", 0)];
    let table = render_finest(&before, &[("node", 3)], &rows, 18, &LAYOUTS[..4], width);
    section("Threads", &table, width, units.len().saturating_sub(top))
}

/// Threads that only sleep.
pub(super) fn sleepers(summary: &Summary, width: usize, top: usize) -> String {
    let sleepers = &summary.asleep;
    let mut table = TextTable::new(&[
        ("thread", 0),
        ("wall", 0),
        ("blocked", 0),
        ("runnable", LAST),
        ("on CPU", LAST),
        ("residual", LAST + 1),
        ("calls", 0),
        ("mostly in", 0),
    ]);
    let on = TimePart::ALL.into_iter().filter(|part| part.on_a_cpu());
    let on: Vec<TimePart> = on.collect();
    for sleeper in sleepers.iter().take(top) {
        let total = &sleeper.unit.sum;
        table.rows.push(vec![
            sleeper.unit.title.clone(),
            time(total.wall),
            short(total.part(TimePart::Blocked)),
            short(total.part(TimePart::Runnable)),
            short(sum(&total.parts, &on)),
            residual_of(total.residual, total.wall),
            sleeper.calls.to_string(),
            sleeper.mostly.clone(),
        ]);
    }
    let title = "Threads that only sleep (they are in no sum above)";
    section(title, &table, width, sleepers.len().saturating_sub(top))
}

fn parts(sum: &TimeSum) -> Row {
    Row {
        before: Vec::new(),
        parts: sum.parts,
        residual: sum.residual,
        wall: sum.wall,
        after: Vec::new(),
    }
}

/// All in their order, or the longest ones of many.
fn longest(units: &[Entity], top: usize) -> Vec<&Entity> {
    let mut order: Vec<&Entity> = units.iter().collect();
    if order.len() > top {
        order.sort_by_key(|u| std::cmp::Reverse(u.sum.wall));
        order.truncate(top);
    }
    order
}

fn one_host(units: &[Entity]) -> bool {
    let same = |u: &Entity| u.host == units[0].host || u.title == u.host;
    units.iter().all(same)
}

fn host(unit: &Entity, one: bool) -> String {
    match one {
        true => "-".to_owned(),
        false => unit.host.clone(),
    }
}
