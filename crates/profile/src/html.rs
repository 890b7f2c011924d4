//! The report as one page for a browser: bars by thread, a time line of the trace, a flame graph,
//! sortable tables. The page contains its styles, its program (`html/page.js`, `html/timeline.js`)
//! and the data, and loads nothing from elsewhere. The rows of its tables are those of the report as
//! JSON ([`crate::json`]), from which the program computes shares and means.

mod timeline;

use serde_json::{Value, json};

use crate::answer::{By, findings};
use crate::json;
use crate::model::TimePart;
use crate::paths::{Node, PathLocation, threads};
use crate::report::{failed, head};
use crate::run::Run;

/// Width of the lines at the top, in columns.
const COLUMNS: usize = 120;

/// The page.
pub fn html(run: &Run) -> String {
    let summary = run.summary();
    let part =
        |part: TimePart| json!({ "key": part.key(), "name": part.name(), "short": part.short() });
    let data = json!({
        "report": json::report(run, &summary),
        "head": head(run, &summary, &findings(run, By::Function), COLUMNS),
        "parts": TimePart::ALL.map(part),
        "trees": trees(run),
        "trace": timeline::trace(run),
        "failed": failed(run),
        "missing": run.regions_missing(),
    });
    // Within a script element no text may look like its end.
    let data = data.to_string().replace('<', "\\u003c");
    let title = run.profiles.first().map(|p| p.header.command_line());
    let parts = [
        ("@TITLE@", escape(&title.unwrap_or_default())),
        ("@STYLE@", include_str!("html/page.css").to_owned()),
        ("@DATA@", data),
        (
            "@PROGRAM@",
            include_str!("html/timeline.js").to_owned() + include_str!("html/page.js"),
        ),
    ];
    // One pass, because the inserted text may contain such words.
    let mut page = String::new();
    let mut rest = include_str!("html/page.html");
    for (mark, text) in &parts {
        let (before, behind) = rest.split_once(mark).unwrap_or((rest, ""));
        page += before;
        page += text;
        rest = behind;
    }
    page + rest
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// A tree for each thread, without the time outside of calls.
fn trees(run: &Run) -> Value {
    let mut out = Vec::new();
    for profile in &run.profiles {
        for thread in threads(profile) {
            let mut title = thread.title();
            if run.profiles.len() > 1 {
                title = format!("{}: {title}", profile.title());
            }
            let tree = Node::from_samples(PathLocation::default(), &thread.samples);
            out.push(json!({ "title": title, "tree": node(&tree) }));
        }
    }
    out.into()
}

fn node(node: &Node) -> Value {
    let location = &node.location;
    let module = location.module.clone().or(location.file.clone());
    json!({
        "n": location.name, "k": location.kind.name(), "m": module, "t": node.inclusive,
        "c": node.count, "ch": node.children.iter().map(self::node).collect::<Vec<_>>(),
    })
}
