//! The tables of `--live`: their columns and rows, and how they fit into a width.

use std::collections::HashMap;
use std::fmt::Write;

use ratatui::text::Line;
use spile_plain::lines;
use spile_profile::answer::{Finding, findings_of_all};
use spile_profile::model::{Header, Ns, Profile, Thread, TimePart};
use spile_profile::{Run, report};

use super::super::rows::on_cpu;
use crate::screen::{self, ascii_only};

/// Blanks between two columns.
const SPACING: usize = 1;

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Kind {
    /// The threads, and the parts of their time.
    #[default]
    Threads,
    /// What the threads did on processors.
    Functions,
    /// What the threads waited for.
    Waits,
}

/// A column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Whether it has texts, which can be cut, instead of numbers.
    pub(super) is_text: bool,
    /// Its place among the columns by importance: columns with large numbers are left out first.
    rank: usize,
    /// Minimum width of a text.
    least: usize,
}

const fn number(title: &'static str, rank: usize) -> Column {
    Column {
        title,
        is_text: false,
        rank,
        least: 0,
    }
}

const fn text(title: &'static str, rank: usize, least: usize) -> Column {
    Column {
        title,
        is_text: true,
        rank,
        least,
    }
}

impl Kind {
    /// All tables, with their keys.
    pub(super) const ALL: [(Kind, char, &'static str); 3] = [
        (Kind::Threads, 't', "threads"),
        (Kind::Functions, 'f', "functions"),
        (Kind::Waits, 'w', "waits"),
    ];

    /// Its columns.
    pub(super) fn columns(self) -> &'static [Column] {
        const THREADS: &[Column] = &[
            number("TID", 0),
            text("THREAD", 1, 6),
            number("CPU", 6),
            number("USER", 2),
            number("KERNEL", 3),
            number("BLOCKED", 4),
            number("RUNQ", 5),
            text("PROCESS", 7, 6),
        ];
        const FUNCTIONS: &[Column] = &[
            number("SHARE", 0),
            number("TIME", 2),
            text("FUNCTION", 1, 12),
            text("DOING", 3, 8),
            number("THREADS", 4),
            text("LINE", 5, 8),
        ];
        const WAITS: &[Column] = &[
            number("SHARE", 0),
            number("TIME", 2),
            text("CALL", 1, 8),
            text("OBJECT", 3, 8),
            number("THREADS", 5),
            text("FUNCTION", 4, 8),
        ];
        match self {
            Kind::Threads => THREADS,
            Kind::Functions => FUNCTIONS,
            Kind::Waits => WAITS,
        }
    }

    /// The column by which rows are sorted at first.
    pub(super) fn usual_order(self) -> usize {
        match self {
            Kind::Threads => 2,
            Kind::Functions | Kind::Waits => 1,
        }
    }
}

/// A cell of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cell {
    /// A number as such.
    Count(u64),
    /// Tenths of a percent.
    Share(u64),
    /// A time.
    Time(Ns),
    Text(String),
}

impl Cell {
    fn shown(&self) -> String {
        match self {
            Cell::Count(n) => n.to_string(),
            Cell::Share(n) => format!("{}.{}%", n / 10, n % 10),
            Cell::Time(ns) => report::time(*ns),
            // Names come from programs.
            Cell::Text(text) if text.is_empty() => "-".to_owned(),
            Cell::Text(text) => lines(text).replace(['\n', '\t'], " "),
        }
    }
}

/// The rows of an interval.
#[derive(Debug, Default)]
pub(super) struct Interval {
    /// Its length.
    pub(super) length: Ns,
    /// Time on processors, of all threads.
    pub(super) cpu: Ns,
    threads: Vec<Vec<Cell>>,
    functions: Vec<Vec<Cell>>,
    waits: Vec<Vec<Cell>>,
}

/// The part of a time in tenths of a percent.
fn share(ns: Ns, whole: Ns) -> Cell {
    let whole = u128::from(whole);
    let share = (u128::from(ns) * 1000 + whole / 2).checked_div(whole);
    Cell::Share(share.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
}

impl Interval {
    /// The rows of the profile of an interval.
    pub(super) fn new(profile: Profile) -> Interval {
        let length = profile.data.at_ns;
        let names: HashMap<u32, String> = profile
            .data
            .threads
            .iter()
            .filter(|t| t.tid == t.pid)
            .map(|t| (t.pid, t.name.clone()))
            .collect();
        let thread = |t: &Thread| {
            let parts = &t.parts;
            let cpu = on_cpu(parts);
            let process = names.get(&t.pid).cloned().unwrap_or_default();
            vec![
                Cell::Count(t.tid.into()),
                Cell::Text(t.name.clone()),
                share(cpu, length),
                share(parts.user, length),
                share(cpu - parts.user, length),
                share(parts.blocked, length),
                share(parts.runnable, length),
                Cell::Text(format!("{} {process}", t.pid)),
            ]
        };
        let threads = profile.data.threads.iter().map(thread).collect();
        let sum = |of: fn(&Thread) -> Ns| profile.data.threads.iter().map(of).sum::<Ns>();
        let (cpu, blocked) = (sum(|t| on_cpu(&t.parts)), sum(|t| t.parts.blocked));
        let findings = findings_of_all(&Run::new(vec![profile]));
        let findings: Vec<&Finding> = findings.iter().filter(|f| f.ns > 0).collect();
        let running = findings
            .iter()
            .filter(|f| !matches!(f.part, TimePart::Blocked | TimePart::Runnable));
        let function = |f: &&Finding| {
            let doing = match (&f.call, f.part) {
                (Some(call), TimePart::SyscallCpu) => call.clone(),
                (_, TimePart::User) => "running".to_owned(),
                (_, part) => part.name().to_owned(),
            };
            vec![
                share(f.ns, cpu),
                Cell::Time(f.ns),
                Cell::Text(f.function.clone()),
                Cell::Text(doing),
                Cell::Count(f.threads),
                Cell::Text(f.location.clone().unwrap_or_default()),
            ]
        };
        let waiting = findings.iter().filter(|f| f.part == TimePart::Blocked);
        let wait = |f: &&Finding| {
            let function = f.function.clone();
            vec![
                share(f.ns, blocked),
                Cell::Time(f.ns),
                Cell::Text(
                    f.call
                        .clone()
                        .unwrap_or_else(|| "(outside of calls)".to_owned()),
                ),
                Cell::Text(f.object.clone().unwrap_or_default()),
                Cell::Count(f.threads),
                Cell::Text(match f.location.as_deref() {
                    Some(line) if !function.is_empty() => format!("{function} ({line})"),
                    _ => function,
                }),
            ]
        };
        Interval {
            length,
            cpu,
            threads,
            functions: running.map(function).collect(),
            waits: waiting.map(wait).collect(),
        }
    }

    /// The rows of a table, sorted by a column: numbers from the largest, texts in the order of letters.
    pub(super) fn rows(&self, kind: Kind, order: usize, reverse: bool) -> Vec<&Vec<Cell>> {
        let rows = match kind {
            Kind::Threads => &self.threads,
            Kind::Functions => &self.functions,
            Kind::Waits => &self.waits,
        };
        let descends = !kind.columns()[order].is_text;
        let mut rows: Vec<&Vec<Cell>> = rows.iter().collect();
        rows.sort_by(|a, b| match descends != reverse {
            true => b[order].cmp(&a[order]).then_with(|| a.cmp(b)),
            false => a[order].cmp(&b[order]).then_with(|| a.cmp(b)),
        });
        rows
    }

    /// What the interval was like, the most important first.
    pub(super) fn head(&self, subject: &str, elapsed: Ns) -> Vec<String> {
        let time = report::time;
        let cpus = self.cpu as f64 / self.length.max(1) as f64;
        let threads = self.threads.len();
        vec![
            subject.to_owned(),
            format!(": {} of {}", time(self.length), time(elapsed)),
            format!(", {cpus:.2} CPUs busy"),
            format!(", {}", report::counted(threads as u64, "thread")),
        ]
    }
}

/// A table that fits a width: the columns that are shown, and the texts of its cells.
#[derive(Debug)]
pub(super) struct Fitted {
    /// For each column its index among those of the table, and its width.
    pub(super) columns: Vec<(usize, usize)>,
    /// For each row the texts of all columns.
    pub(super) rows: Vec<Vec<String>>,
}

/// Fits rows. The column `order` is shown in any case.
pub(super) fn fit(kind: Kind, rows: &[&Vec<Cell>], order: usize, width: usize) -> Fitted {
    let columns = kind.columns();
    let texts: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(Cell::shown).collect())
        .collect();
    let needs = |i: usize| {
        let cells = texts.iter().map(|row| Line::raw(&*row[i]).width());
        // The mark of the order.
        cells
            .max()
            .unwrap_or(0)
            .max(columns[i].title.len() + usize::from(i == order))
    };
    let widths: Vec<usize> = (0..columns.len()).map(needs).collect();
    let ranks = (0..columns.len()).filter_map(|rank| columns.iter().position(|c| c.rank == rank));
    let ranks = std::iter::once(order).chain(ranks.filter(|i| *i != order));
    let ranked = ranks.map(|i| match columns[i].is_text {
        true => (i, widths[i].min(columns[i].least)),
        false => (i, widths[i]),
    });
    let shown = screen::fit(ranked, &widths, SPACING, width);
    Fitted {
        columns: shown,
        rows: texts,
    }
}

/// The tables of the profile of an interval as text, of a width and with at most that many rows each.
pub(super) fn print(profile: Profile, elapsed: Ns, (width, top): (usize, usize)) -> String {
    let subject = subject(&profile.header);
    let interval = Interval::new(profile);
    let mut out = screen::parts(&interval.head(&subject, elapsed), width) + "\n";
    for (kind, ..) in Kind::ALL {
        let order = kind.usual_order();
        let rows = interval.rows(kind, order, false);
        let more = rows.len().saturating_sub(top);
        let fitted = fit(kind, &rows[..rows.len() - more], order, width);
        let titles: Vec<String> = kind.columns().iter().map(|c| c.title.to_owned()).collect();
        for row in std::iter::once(&titles).chain(&fitted.rows) {
            let mut line = String::new();
            for (i, width) in &fitted.columns {
                let text = screen::text(&row[*i], *width, true);
                let blanks = " ".repeat(width.saturating_sub(Line::raw(&*text).width()));
                let cell = match kind.columns()[*i].is_text {
                    true => text + &blanks,
                    false => blanks + &text,
                };
                line += &cell;
                line += " ";
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        if more > 0 {
            let _ = writeln!(out, "and {more} more");
        }
    }
    out + "\n"
}

/// What is recorded, in a few words.
pub(super) fn subject(header: &Header) -> String {
    let command = header.command_line();
    let subject = match (command.is_empty(), &header.group, header.pid) {
        (false, ..) => command,
        (_, Some(group), _) => group.clone(),
        (_, _, Some(pid)) => format!("process {pid}"),
        _ => header.host.clone(),
    };
    let text = spile_plain::lines(&subject).replace(['\n', '\t'], " ");
    screen::text(&text, 32, ascii_only())
}
