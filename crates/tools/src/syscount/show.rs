//! Reports as text, JSON and comma-separated values.

use std::cmp::Reverse;
use std::fmt::Write;

use ratatui::layout::Alignment;
use serde_json::{Value, json};
use spile_cast::Cast;
use spile_ir::Hist;
use spile_runtime::Outcome;

use super::rows::{Calls, GroupKey, Report};
use crate::screen::ascii_only;

/// The format of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ReportFormat {
    /// A table.
    #[default]
    Text,
    /// A JSON object on each line.
    Json,
    /// A header line, then a line for each group.
    Csv,
}

/// The shape of reports.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReportShape {
    /// The format.
    pub form: ReportFormat,
    /// Groups by the call's name.
    pub name: bool,
    /// Groups by error.
    pub error: bool,
    /// Groups by process, with the name of the process or the thread.
    pub process: bool,
    /// Groups by thread.
    pub thread: bool,
    /// Calls are timed.
    pub timed: bool,
    /// Maximum number of groups shown.
    pub top: usize,
    /// Whether there are several reports.
    pub intervals: bool,
}

/// A column of the table, of `--csv` and of the live view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(super) enum Column {
    Calls,
    Rate,
    Total,
    Mean,
    Max,
    Histogram,
    Pid,
    Tid,
    Comm,
    Error,
    Call,
}

/// A row that is shown.
pub(super) type Row<'a> = (&'a GroupKey, &'a Calls);

impl ReportShape {
    /// The columns, from the left.
    pub(super) fn columns(&self) -> Vec<Column> {
        [
            (Column::Calls, true),
            (Column::Rate, true),
            (Column::Total, self.timed),
            (Column::Mean, self.timed),
            (Column::Max, self.timed),
            (Column::Histogram, self.timed),
            (Column::Pid, self.process),
            (Column::Tid, self.thread),
            (Column::Comm, self.process),
            (Column::Error, self.error),
            (Column::Call, self.name),
        ]
        .into_iter()
        .filter_map(|(column, is_shown)| is_shown.then_some(column))
        .collect()
    }

    /// The column that rows are sorted by at first: times before counts.
    pub(super) fn usual_order(&self) -> Column {
        match self.timed {
            true => Column::Total,
            false => Column::Calls,
        }
    }
}

impl Column {
    /// The column's title, for a scale of histograms.
    pub(super) fn title(self, scale: HistogramScale) -> String {
        let title = match self {
            Column::Calls => "CALLS",
            Column::Rate => "CALLS/S",
            Column::Total => "TOTAL",
            Column::Mean => "MEAN",
            Column::Max => "MAX",
            Column::Histogram => return scale.title(),
            Column::Pid => "PID",
            Column::Tid => "TID",
            Column::Comm => "NAME",
            Column::Error => "ERROR",
            Column::Call => "SYSTEM CALL",
        };
        title.to_owned()
    }

    /// The column's alignment.
    pub(super) fn alignment(self) -> Alignment {
        match self {
            Column::Histogram | Column::Comm | Column::Error | Column::Call => Alignment::Left,
            _ => Alignment::Right,
        }
    }

    /// The column's text in a row, for a report of `seconds` seconds and a scale of histograms.
    pub(super) fn text(
        self,
        (group, calls): Row<'_>,
        seconds: f64,
        scale: HistogramScale,
    ) -> String {
        match self {
            Column::Calls => calls.count.to_string(),
            Column::Rate => rate(calls.count, seconds),
            Column::Total => time(calls.total),
            Column::Mean => time(calls.mean()),
            Column::Max => time(calls.max),
            Column::Histogram => scale.draw(&calls.buckets),
            Column::Pid => group.pid.to_string(),
            Column::Tid => group.tid.to_string(),
            Column::Comm => spile_plain::name(&group.comm).into_owned(),
            Column::Error => match group.error {
                0 => "-".into(),
                _ => group.error_name(),
            },
            Column::Call => group.call.clone(),
        }
    }

    /// Sorts rows by the column, numbers descending and texts ascending, or in reverse.
    pub(super) fn sort(self, rows: &mut [Row<'_>], reverse: bool) {
        rows.sort_unstable_by(|a, b| {
            let order = match self {
                Column::Calls | Column::Rate => b.1.count.cmp(&a.1.count),
                Column::Total => b.1.total.cmp(&a.1.total),
                Column::Mean => b.1.mean().cmp(&a.1.mean()),
                Column::Max | Column::Histogram => b.1.max.cmp(&a.1.max),
                Column::Pid => a.0.pid.cmp(&b.0.pid),
                Column::Tid => a.0.tid.cmp(&b.0.tid),
                Column::Comm => a.0.comm.cmp(&b.0.comm),
                Column::Error => a.0.error_name().cmp(&b.0.error_name()),
                Column::Call => a.0.call.cmp(&b.0.call),
            };
            let order = if reverse { order.reverse() } else { order };
            let rest = |r: &Row<'_>| (Reverse(r.1.count), r.0.clone());
            order.then_with(|| rest(a).cmp(&rest(b)))
        });
    }
}

/// Calls a second, with one decimal where there are few.
fn rate(count: u64, seconds: f64) -> String {
    let rate = match seconds > 0.0 {
        true => count as f64 / seconds,
        false => 0.0,
    };
    let places = usize::from(rate < 10.0);
    format!("{rate:.places$}")
}

/// A time in nanoseconds as three significant digits and a unit.
pub(super) fn time(ns: u64) -> String {
    let value = ns as f64;
    for (unit, size, next) in [
        ("us", 1e3, 1e6),
        ("ms", 1e6, 1e9),
        ("s", 1e9, f64::INFINITY),
    ] {
        // A value that would round up to 1000 is shown in the next unit.
        if value < 1e3 || value >= next * 0.9995 {
            continue;
        }
        let n = value / size;
        let places = if n < 9.995 { 2 } else { usize::from(n < 99.95) };
        return format!("{n:.places$}{unit}");
    }
    format!("{ns}ns")
}

/// The range of times that the columns of small histograms cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct HistogramScale {
    /// First bucket.
    first: usize,
    /// One past the last bucket.
    end: usize,
    /// Uses only ASCII characters.
    ascii: bool,
}

/// The heights of a bar, from empty to full.
const BARS: [[char; 9]; 2] = [
    [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
    [' ', '.', ':', '-', '=', '+', '*', '#', '@'],
];

impl HistogramScale {
    /// A scale for all rows. `ascii`: without block characters.
    pub(crate) fn for_rows<'a>(
        rows: impl Iterator<Item = &'a Calls>,
        ascii: bool,
    ) -> HistogramScale {
        let (mut first, mut end) = (usize::MAX, 0);
        for calls in rows {
            if let Some(bucket) = calls.buckets.iter().position(|n| *n > 0) {
                first = first.min(bucket);
                end = end.max(calls.buckets.len());
            }
        }
        HistogramScale {
            first: first.min(end),
            end,
            ascii,
        }
    }

    /// A bar for each bucket; the row's fullest bucket is the highest.
    fn draw(self, buckets: &[u64]) -> String {
        let most = buckets.iter().copied().max().unwrap_or(0).max(1);
        let bar = |n: u64| {
            let height = (u128::from(n) * 8).div_ceil(u128::from(most)) as usize;
            BARS[usize::from(self.ascii)][height.min(8)]
        };
        let calls = |i: usize| buckets.get(i).copied().unwrap_or(0);
        (self.first..self.end).map(|i| bar(calls(i))).collect()
    }

    /// The times at both ends of the scale, in the width of a histogram.
    pub(super) fn title(self) -> String {
        let bound = |bucket: usize| time(1u64.checked_shl(bucket.fit::<u32>()).unwrap_or(u64::MAX));
        let low = match self.first {
            0 | 1 => "0".into(),
            first => bound(first - 1),
        };
        let (high, width) = (bound(self.end.saturating_sub(1)), self.end - self.first);
        match width.checked_sub(low.len() + 1) {
            _ if self.end == 0 => "HISTOGRAM".into(),
            Some(width_left) if width_left >= high.len() => {
                format!("{low}{high:>0$}", width - low.len())
            }
            _ => format!("{low}..{high}"),
        }
    }
}

/// The state of printing: the part that was printed already.
#[derive(Debug, Default)]
pub(super) struct PrintState {
    any: bool,
}

impl PrintState {
    /// The text of a report; the last one comes with the outcome of the session.
    pub(super) fn report(
        &mut self,
        shape: &ReportShape,
        report: &Report,
        outcome: Option<&Outcome>,
    ) -> String {
        let first = !std::mem::replace(&mut self.any, true);
        let mut rows: Vec<Row<'_>> = report.rows.iter().collect();
        shape.usual_order().sort(&mut rows, false);
        let left = rows.split_off(rows.len().min(shape.top));
        match shape.form {
            ReportFormat::Text => {
                let gap = if first { "" } else { "\n" };
                format!("{gap}{}", text(shape, report, &rows, &left))
            }
            ReportFormat::Json => {
                let object = object(shape, report, &rows, outcome).to_string();
                format!("{}\n", spile_plain::json(&object))
            }
            ReportFormat::Csv => values(shape, report, &rows, first),
        }
    }
}

/// The parts of the line above the table.
pub(super) fn headline(shape: &ReportShape, report: &Report, sum: &Calls) -> Vec<String> {
    let mut parts = Vec::new();
    if shape.intervals {
        parts.push(format!("{:.3} s: ", report.end as f64 / 1e9));
    }
    parts.push(format!("{} calls", sum.count));
    parts.push(format!(" in {:.3} s", report.seconds()));
    if shape.timed {
        parts.push(format!(", {} in them", time(sum.total)));
    }
    parts
}

fn text(shape: &ReportShape, report: &Report, rows: &[Row<'_>], left: &[Row<'_>]) -> String {
    let sum = report.sum();
    let seconds = report.seconds();
    let scale = HistogramScale::for_rows(rows.iter().map(|r| r.1), ascii_only());
    let mut lines = vec![headline(shape, report, &sum).concat()];
    let columns = shape.columns();
    let mut table: Vec<Vec<String>> = Vec::new();
    if !rows.is_empty() {
        table.push(columns.iter().map(|c| c.title(scale)).collect());
    }
    table.extend(cells(&columns, rows, seconds, scale));
    lines.extend(aligned(&columns, &table));
    if !left.is_empty() {
        let calls: u64 = left.iter().map(|r| r.1.count).sum();
        lines.push(format!(
            "and {calls} calls in {} other groups (--top 0 shows all)",
            left.len()
        ));
    }
    let mut out = lines.join("\n") + "\n";
    if shape.timed && sum.count > 0 {
        let mut buckets = vec![0; 64];
        buckets.extend(&sum.buckets);
        buckets.resize(Hist::Log.buckets() as usize, 0);
        let _ = write!(
            out,
            "\nNanoseconds of all calls:\n{}",
            Hist::Log.draw(&buckets)
        );
    }
    if report.unfit > 0 {
        let _ = writeln!(
            out,
            "{} calls are missing: the tables were full",
            report.unfit
        );
    }
    out
}

/// The texts of rows.
pub(super) fn cells(
    columns: &[Column],
    rows: &[Row<'_>],
    seconds: f64,
    scale: HistogramScale,
) -> Vec<Vec<String>> {
    let texts = |row: &Row<'_>| {
        let texts = columns.iter().map(|c| c.text(*row, seconds, scale));
        texts.collect()
    };
    rows.iter().map(texts).collect()
}

/// Lines with aligned columns, without trailing blanks.
fn aligned(columns: &[Column], table: &[Vec<String>]) -> Vec<String> {
    let width = |i: usize| {
        let cells = table.iter().filter_map(|row| row.get(i));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let cell = |(i, text): (usize, &String)| {
        let width = widths[i];
        match columns[i].alignment() {
            Alignment::Right => format!("{text:>width$}"),
            _ => format!("{text:<width$}"),
        }
    };
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_owned()
    };
    table.iter().map(line).collect()
}

/// The upper bounds of the non-empty buckets, each with its number of calls.
fn bounds(calls: &Calls) -> impl Iterator<Item = (u64, u64)> {
    let bound = |i: usize| 1u64.checked_shl(i.fit::<u32>()).unwrap_or(u64::MAX);
    let buckets = calls.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
    buckets.map(move |(i, n)| (bound(i), *n))
}

/// A field of a group in JSON and in comma-separated values: its name, whether it is shown, and its value.
type Field = (&'static str, bool, fn(&Row<'_>) -> Value);

/// The fields that a shape shows, in the order of comma-separated values.
fn fields(shape: &ReportShape) -> impl Iterator<Item = Field> + Clone + use<> {
    let fields: [Field; 10] = [
        ("calls", true, |r| json!(r.1.count)),
        ("total_ns", shape.timed, |r| json!(r.1.total)),
        ("mean_ns", shape.timed, |r| json!(r.1.mean())),
        ("max_ns", shape.timed, |r| json!(r.1.max)),
        ("histogram", shape.timed, |r| {
            let bucket = |(bound, calls)| json!({ "below_ns": bound, "calls": calls });
            bounds(r.1).map(bucket).collect()
        }),
        ("pid", shape.process, |r| json!(r.0.pid)),
        ("tid", shape.thread, |r| json!(r.0.tid)),
        ("name", shape.process, |r| json!(r.0.comm)),
        ("error", shape.error, |r| match r.0.error {
            0 => Value::Null,
            _ => json!(r.0.error_name()),
        }),
        ("syscall", shape.name, |r| json!(r.0.call)),
    ];
    fields.into_iter().filter(|field| field.1)
}

fn object(
    shape: &ReportShape,
    report: &Report,
    rows: &[Row<'_>],
    outcome: Option<&Outcome>,
) -> Value {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let row = |row: &Row<'_>| -> Value {
        let fields = fields(shape);
        let fields = fields.map(|(name, _, value)| (name.to_owned(), value(row)));
        Value::Object(fields.collect())
    };
    let mut out = json!({
        "begin": seconds(report.begin),
        "end": seconds(report.end),
        "calls": report.sum().count,
        "groups": report.rows.len(),
        "missing": report.unfit,
        "rows": rows.iter().map(row).collect::<Value>(),
    });
    if let Some(outcome) = outcome {
        let account = &outcome.losses;
        out["account"] = json!({
            "errors": account.errors,
            "skipped": account.skipped_total(),
            "lost_output": account.lost_output,
            "overflows": account.overflows,
        });
    }
    out
}

/// A value of a field as a cell of comma-separated values.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => spile_plain::cell(text),
        Value::Array(buckets) => {
            let bucket = |b: &Value| format!("{}:{}", b["below_ns"], b["calls"]);
            buckets.iter().map(bucket).collect::<Vec<_>>().join(" ")
        }
        number => number.to_string(),
    }
}

fn values(shape: &ReportShape, report: &Report, rows: &[Row<'_>], head: bool) -> String {
    let fields = fields(shape);
    let mut out = String::new();
    if head {
        let names: Vec<_> = fields.clone().map(|f| f.0).collect();
        let _ = writeln!(out, "begin,end,{}", names.join(","));
    }
    let (begin, end) = (report.begin as f64 / 1e9, report.end as f64 / 1e9);
    for row in rows {
        let cells: Vec<_> = fields.clone().map(|f| cell(&f.2(row))).collect();
        let _ = writeln!(out, "{begin:.3},{end:.3},{}", cells.join(","));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report {
            begin: 0,
            end: 2_000_000_000,
            unfit: 3,
            ..Report::default()
        };
        for (call, comm, error, count, total, max, bucket) in [
            ("read", "a,b", 0, 4, 8_000, 5_000, 12),
            ("openat", "sh", 2, 20, 10_000, 900, 9),
        ] {
            let mut buckets = vec![0; bucket + 1];
            buckets[bucket] = count;
            let group = GroupKey {
                call: call.into(),
                error,
                pid: 12,
                tid: 13,
                comm: comm.into(),
            };
            let calls = Calls {
                count,
                total,
                max,
                buckets,
            };
            report.rows.insert(group, calls);
        }
        report
    }

    fn all(form: ReportFormat) -> ReportShape {
        ReportShape {
            form,
            name: true,
            error: true,
            process: true,
            thread: true,
            timed: true,
            top: 20,
            intervals: true,
        }
    }

    #[test]
    fn reports_are_tables() {
        let plain = ReportShape {
            name: true,
            top: 1,
            ..ReportShape::default()
        };
        let text = PrintState::default().report(&plain, &report(), None);
        assert_eq!(
            text,
            "24 calls in 2.000 s\nCALLS  CALLS/S  SYSTEM CALL\n   20       10  openat\n\
             and 4 calls in 1 other groups (--top 0 shows all)\n3 calls are missing: the tables were full\n"
        );
        let mut shown = PrintState::default();
        shown.report(&all(ReportFormat::Text), &report(), None);
        let text = shown.report(&all(ReportFormat::Text), &report(), None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            ["", "2.000 s: 24 calls in 2.000 s, 18.0us in them"]
        );
        assert_eq!(
            lines[2],
            "CALLS  CALLS/S   TOTAL    MEAN     MAX  256ns..4.10us  PID  TID  NAME  ERROR   SYSTEM CALL"
        );
        assert!(
            lines[3].starts_with("   20       10  10.0us   500ns   900ns  "),
            "{text}"
        );
        assert!(
            lines[3].ends_with("   12   13  sh    ENOENT  openat"),
            "{text}"
        );
        assert!(
            lines[4].ends_with("   12   13  a,b   -       read"),
            "{text}"
        );
    }

    #[test]
    fn reports_are_comma_separated_values() {
        let mut shown = PrintState::default();
        let text = shown.report(&all(ReportFormat::Csv), &report(), None);
        assert_eq!(
            text,
            "begin,end,calls,total_ns,mean_ns,max_ns,histogram,pid,tid,name,error,syscall\n\
             0.000,2.000,20,10000,500,900,512:20,12,13,sh,ENOENT,openat\n\
             0.000,2.000,4,8000,2000,5000,4096:4,12,13,\"a,b\",,read\n"
        );
        assert!(
            !shown
                .report(&all(ReportFormat::Csv), &report(), None)
                .contains("begin")
        );
    }

    #[test]
    fn reports_are_json_objects() {
        let text = PrintState::default().report(&all(ReportFormat::Json), &report(), None);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["missing"], 3);
        assert_eq!(value["rows"][0]["error"], "ENOENT");
        assert_eq!(value["rows"][1]["error"], Value::Null);
        assert_eq!(
            value["rows"][1]["histogram"],
            json!([{ "below_ns": 4096, "calls": 4 }])
        );
        assert!(value.get("account").is_none());
    }

    #[test]
    fn names_of_threads_do_nothing_to_a_terminal() {
        let mut report = report();
        let rows = std::mem::take(&mut report.rows).into_iter();
        let names = ["=1+1\x1b[2J", "a\u{9b}\n"].into_iter();
        report.rows = rows
            .zip(names)
            .map(|((group, calls), name)| {
                let comm = name.to_owned();
                (GroupKey { comm, ..group }, calls)
            })
            .collect();
        for form in [ReportFormat::Text, ReportFormat::Csv, ReportFormat::Json] {
            let text = PrintState::default().report(&all(form), &report, None);
            assert!(
                !text.contains(|c| spile_plain::acts_on_terminal(c) && c != '\n'),
                "{text}"
            );
            match form {
                ReportFormat::Text => assert!(text.contains("=1+1\\033[2J"), "{text}"),
                ReportFormat::Csv => assert!(text.contains(",\"'=1+1\\033[2J\","), "{text}"),
                ReportFormat::Json => {
                    let value: Value = serde_json::from_str(&text).unwrap();
                    let names = value["rows"].as_array().unwrap().iter().map(|r| &r["name"]);
                    let names: Vec<_> = names.filter_map(Value::as_str).collect();
                    assert!(names.contains(&"a\u{9b}\n"), "{names:?}");
                }
            }
        }
    }

    #[test]
    fn times_have_units() {
        let cases = [
            (0, "0ns"),
            (999, "999ns"),
            (1_000, "1.00us"),
            (12_345, "12.3us"),
            (999_499, "999us"),
            (999_999, "1.00ms"),
            (61_000_000_000, "61.0s"),
            (3_600_000_000_000, "3600s"),
        ];
        for (ns, text) in cases {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn histograms_share_a_scale() {
        let calls = |buckets: &[u64]| Calls {
            buckets: buckets.to_vec(),
            ..Calls::default()
        };
        let (a, b) = (calls(&[0, 0, 8, 1]), calls(&[0, 0, 0, 0, 2]));
        let scale = HistogramScale::for_rows([&a, &b].into_iter(), true);
        assert_eq!(
            (scale.draw(&a.buckets), scale.draw(&b.buckets)),
            ("@. ".into(), "  @".into())
        );
        assert_eq!(scale.title(), "2ns..16ns");
        assert_eq!(
            HistogramScale::for_rows([].into_iter(), true).title(),
            "HISTOGRAM"
        );
    }
}
