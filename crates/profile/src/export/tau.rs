//! TAU: a file `profile.RANK.0.THREAD` for each thread. Times are in whole microseconds. The first
//! entry is the root, the thread's wall time, as Hatchet's reader requires; then come functions
//! without their callers, then call paths.

use std::collections::BTreeMap;

use super::files::ExportFiles;
use crate::model::Ns;
use crate::paths::{LocationKind, Node, PathLocation, threads};
use crate::run::Run;

/// The name of the root that TAU's tools expect.
const ROOT: &str = ".TAU application";

/// The fields of an entry.
#[derive(Default, Clone, Copy)]
struct Entry {
    calls: u64,
    subroutines: u64,
    exclusive: Ns,
    inclusive: Ns,
}

/// A folder with the profiles.
pub(super) fn export(run: &Run) -> ExportFiles {
    let mut files = Vec::new();
    for (number, profile) in run.profiles.iter().enumerate() {
        let rank = profile
            .header
            .rank
            .as_ref()
            .map_or(number, |r| r.rank as usize);
        // Two files of one rank are two nodes in TAU.
        let first = |p: &crate::model::Profile| p.header.rank.as_ref().map(|r| r.rank as usize);
        let taken = run.profiles[..number]
            .iter()
            .any(|p| first(p) == Some(rank));
        let rank = if taken {
            run.profiles.len() + number
        } else {
            rank
        };
        for (index, thread) in threads(profile).iter().enumerate() {
            let root = Node::from_samples(PathLocation::default(), &thread.samples);
            let wall = thread.wall(profile.data.at_ns);
            let metadata = [
                // Hatchet takes the first value as the metric's name.
                ("Metric Name", "TIME".to_owned()),
                ("Hostname", profile.header.host.clone()),
                ("Command Line", profile.header.command_line()),
                ("pid", profile.header.pid.unwrap_or(0).to_string()),
                ("tid", thread.tid.to_string()),
                ("Thread Name", thread.title()),
            ];
            let text = file(&root, wall, &metadata);
            files.push((format!("profile.{rank}.0.{index}"), text.into_bytes()));
        }
    }
    files
}

fn file(root: &Node, wall: Ns, metadata: &[(&str, String)]) -> String {
    let mut flat: BTreeMap<(String, LocationKind), Entry> = BTreeMap::new();
    let mut paths = Vec::new();
    for child in &root.children {
        list(child, ROOT, &mut flat, &mut paths);
    }
    let mut out = format!(
        "{} templated_functions_MULTI_TIME\n",
        1 + flat.len() + paths.len()
    );
    out += "# Name Calls Subrs Excl Incl ProfileCalls # <metadata>";
    for (name, value) in metadata {
        let value = escape(value);
        out += &format!("<attribute><name>{name}</name><value>{value}</value></attribute>");
    }
    out += "</metadata>\n";
    let outside = Entry {
        calls: 1,
        subroutines: root
            .children
            .iter()
            .fold(0, |sum: u64, c| sum.saturating_add(c.count)),
        exclusive: wall.saturating_sub(root.inclusive),
        inclusive: wall,
    };
    line(&mut out, ROOT, &outside, "TAU_DEFAULT");
    for ((name, kind), entry) in &flat {
        line(&mut out, name, entry, group(*kind));
    }
    for (name, kind, entry) in &paths {
        line(
            &mut out,
            name,
            entry,
            &format!("{}|TAU_CALLPATH", group(*kind)),
        );
    }
    out + "0 aggregates\n"
}

fn group(kind: LocationKind) -> &'static str {
    match kind {
        LocationKind::Call => "TAU_SYSCALL",
        LocationKind::Function => "TAU_USER",
        LocationKind::Kernel => "TAU_KERNEL",
        LocationKind::Region | LocationKind::Rank | LocationKind::Thread | LocationKind::State => {
            "TAU_REGION"
        }
    }
}

fn list(
    node: &Node,
    above: &str,
    flat: &mut BTreeMap<(String, LocationKind), Entry>,
    paths: &mut Vec<(String, LocationKind, Entry)>,
) {
    let name = name(&node.location);
    let path = format!("{above}  => {name}");
    let subroutines = node
        .children
        .iter()
        .fold(0u64, |a, c| a.saturating_add(c.count));
    let entry = Entry {
        // A location that is not a call was entered an unknown number of times, at least once.
        calls: node.count.max(1),
        subroutines,
        exclusive: node.exclusive,
        inclusive: node.inclusive,
    };
    let sum = flat.entry((name, node.location.kind)).or_default();
    sum.calls = sum.calls.saturating_add(entry.calls);
    sum.subroutines = sum.subroutines.saturating_add(subroutines);
    sum.exclusive = sum.exclusive.saturating_add(entry.exclusive);
    sum.inclusive = sum.inclusive.saturating_add(entry.inclusive);
    paths.push((path.clone(), node.location.kind, entry));
    for child in &node.children {
        list(child, &path, flat, paths);
    }
}

fn line(out: &mut String, name: &str, entry: &Entry, group: &str) {
    // Microseconds, rounded.
    let us = |ns: Ns| ns / 1000 + u64::from(ns % 1000 >= 500);
    *out += &format!(
        "\"{name}\" {} {} {} {} 0 GROUP=\"{group}\"\n",
        entry.calls,
        entry.subroutines,
        us(entry.exclusive),
        us(entry.inclusive),
    );
}

/// A name without characters that have a meaning in the format: quotes, arrows, brackets of locations.
fn name(location: &PathLocation) -> String {
    let mut text = plain(&location.shown());
    if let (Some(file), Some(line)) = (&location.file, location.line) {
        // The label of a region includes the location already.
        let label = format!(" ({file}:{line})");
        if let Some(short) = location.name().strip_suffix(&label) {
            text = plain(short);
        }
        if !file.is_empty() && !file.contains(|c: char| c.is_whitespace() || "{}[]\"".contains(c)) {
            text += &format!(" [{{{file}}} {{{line},0}}]");
        }
    }
    text
}

fn plain(text: &str) -> String {
    let chars = text.chars().map(|c| match c {
        '"' => '\'',
        '[' | '{' => '(',
        ']' | '}' => ')',
        c if c.is_control() => ' ',
        c => c,
    });
    let text: String = chars.collect();
    let text = text.replace("=>", "->");
    match text.trim() {
        "" => "?".to_owned(),
        text => text.to_owned(),
    }
}

fn escape(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
