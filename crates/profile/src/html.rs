//! The report as one page for a browser: what matters in sentences, a time line of the trace, a flame
//! graph of the whole time, tables. The page contains its styles, its program (`html/*.js`) and the
//! data, and loads nothing from elsewhere. The rows of its tables are those of the report as JSON
//! ([`crate::json`]), from which the program computes shares and means.

mod diff;
mod flame;
mod timeline;

pub use diff::html_diff;

use std::io::Read;

use flate2::read::DeflateDecoder;
use serde::Serialize;
use serde_json::{Value, json};

use crate::answer::idle;
use crate::json;
use crate::merge::MergedRun;
use crate::model::TimePart;
use crate::report::{failed, head};
use crate::run::{Run, Summary};

/// The page with its styles and its program (`html/`), compressed by the build script. The title and the data are missing.
const PAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/page.z"));

/// Maximum number of places in the table of places.
const PLACES: usize = 1000;

/// What the page's program reads.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PageData<'a> {
    report: json::ReportRows<'a>,
    head: Value,
    parts: [Value; 8],
    flame: flame::Flame,
    trace: Value,
    failed: Option<String>,
    missing: Vec<String>,
    losses_matter: bool,
}

/// The page.
pub fn html(run: &Run) -> String {
    let merged = MergedRun::of(run, None);
    let places = &merged.functions[..merged.functions.len().min(PLACES)];
    let part =
        |part: TimePart| json!({ "key": part.key(), "name": part.name(), "short": part.short() });
    let data = PageData {
        report: json::report(&merged, places),
        head: head_lines(&merged),
        parts: TimePart::ALL.map(part),
        flame: flame::flame(run),
        trace: timeline::trace(run),
        failed: failed(run),
        missing: run.regions_missing(),
        losses_matter: losses_matter(run, &merged.summary),
    };
    // Writing to memory cannot fail.
    let text = serde_json::to_string(&data).unwrap_or_default();
    drop(data);
    // Within a script element no text may look like its end.
    let data = text.replace('<', "\\u003c");
    drop(text);
    let title = run.profiles.first().map(|p| p.header.command_line());
    let parts = [
        ("@TITLE@", escape(&title.unwrap_or_default())),
        ("@DATA@", data),
    ];
    filled(PAGE, &parts)
}

/// A compressed page with these texts in place of its marks, in one pass, because texts may contain such words.
fn filled(packed: &[u8], parts: &[(&str, String)]) -> String {
    let mut page = String::new();
    // The build script wrote it.
    let _ = DeflateDecoder::new(packed).read_to_string(&mut page);
    let (mut out, mut rest) = (String::new(), &*page);
    for (mark, text) in parts {
        let (before, behind) = rest.split_once(mark).unwrap_or((rest, ""));
        out += before;
        out += text;
        rest = behind;
    }
    out + rest
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// The first lines of the report in three parts: the command with its facts, the sentences about the
/// first places, and the lines about the whole.
fn head_lines(merged: &MergedRun) -> Value {
    let lines = |findings| {
        let text = head(merged, findings, usize::MAX);
        text.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let all = lines(&merged.functions);
    let sentences = all.len() - lines(&[]).len();
    let (first, rest) = all.split_first().map_or(("", &[][..]), |(a, b)| (a, b));
    let (command, facts) = first.rsplit_once(": ").unwrap_or((first, ""));
    // The sentence about idle time has no place of its own.
    let idle = usize::from(idle(&merged.functions, merged.summary.total.wall).is_some());
    json!({
        "command": command, "facts": facts, "sentences": rest[..sentences], "places": sentences - idle.min(sentences),
        "lines": rest[sentences..],
    })
}

/// Whether more than a twentieth of the events was lost.
fn losses_matter(run: &Run, summary: &Summary) -> bool {
    let threads = run.profiles.iter().flat_map(|p| &p.data.threads);
    let times = threads.flat_map(|t| {
        let parts = &t.parts;
        [
            parts.fault_minor,
            parts.fault_major,
            parts.irq,
            parts.softirq,
        ]
    });
    let calls = run.profiles.iter().flat_map(|p| &p.data.calls);
    let counts = times.map(|t| t.count).chain(calls.map(|c| c.count));
    let events = counts.fold(0, u64::saturating_add);
    let lost = summary.lost.values().fold(0, |a, b| b.saturating_add(a));
    lost.saturating_mul(20) > events
}
