//! Folded stacks, and speedscope's JSON.

use serde_json::{Value, json};

use super::files::ExportFiles;
use super::table::Table;
use crate::paths::{PathLocation, threads};
use crate::run::Run;

/// A line for each path: `rank 0;4001 pi;main;futex NANOSECONDS`.
pub(super) fn folded(run: &Run) -> ExportFiles {
    let mut out = String::new();
    for profile in &run.profiles {
        for thread in threads(profile) {
            let start = format!("{};{}", word(&profile.title()), word(&thread.title()));
            for sample in &thread.samples {
                out += &start;
                for location in &sample.path {
                    out.push(';');
                    out += &word(&location.shown());
                }
                out += &format!(" {}\n", sample.ns);
            }
        }
    }
    vec![("profile.folded".to_owned(), out.into_bytes())]
}

/// A name without the separators of names and lines.
fn word(name: &str) -> String {
    let chars = name.chars();
    let name: String = chars
        .map(|c| if c.is_control() || c == ';' { '_' } else { c })
        .collect();
    match name.trim() {
        "" => "?".to_owned(),
        name => name.to_owned(),
    }
}

/// One profile for each thread, with its paths and their nanoseconds.
pub(super) fn speedscope(run: &Run) -> ExportFiles {
    let mut frames = Table::default();
    let mut profiles = Vec::new();
    for profile in &run.profiles {
        for thread in threads(profile) {
            let mut samples = Vec::new();
            let mut weights = Vec::new();
            let mut end = 0u64;
            for sample in &thread.samples {
                let path = sample.path.iter().map(|at| frames.number(at));
                samples.push(path.collect::<Vec<_>>());
                weights.push(sample.ns);
                end = end.saturating_add(sample.ns);
            }
            profiles.push(json!({
                "type": "sampled",
                "name": format!("{}, {}", profile.title(), thread.title()),
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": end,
                "samples": samples,
                "weights": weights,
            }));
        }
    }
    let command = run.profiles.first().map(|p| p.header.command_line());
    let value = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("spile@", env!("CARGO_PKG_VERSION")),
        "name": command.unwrap_or_default(),
        "activeProfileIndex": 0,
        "shared": { "frames": frames.values.iter().map(frame).collect::<Vec<_>>() },
        "profiles": profiles,
    });
    super::files::json("profile.speedscope.json", &value)
}

fn frame(location: &PathLocation) -> Value {
    let mut frame = json!({ "name": location.shown() });
    if let Some(file) = location.file.as_ref().or(location.module.as_ref()) {
        frame["file"] = file.as_str().into();
    }
    if let Some(line) = location.line {
        frame["line"] = line.into();
    }
    frame
}
