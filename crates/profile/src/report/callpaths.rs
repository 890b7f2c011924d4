//! The call paths with most time below them, two lines each.

use std::collections::HashMap;

use unicode_width::UnicodeWidthStr as _;

use super::table::{TextTable, escape, shorten};
use super::units::{percent, time};
use super::view::View;
use crate::model::Ns;
use crate::paths::{LocationKind, PathLocation, calls};
use crate::run::{Summary, WITHIN};
use crate::summary_sums::Member;

/// Indentation of a path.
const INDENT: &str = "    ";

/// The sum over all threads for one path.
#[derive(Debug, Default)]
struct PathSum {
    count: u64,
    ns: Ns,
    /// The line in the program with most of the time.
    line: Option<(Ns, String)>,
}

/// Paths to calls, as they are shown. Those of one profile are added to those of the others, in any order.
#[derive(Debug, Default)]
pub(crate) struct CallPaths {
    /// Whether stacks were recorded.
    recorded: bool,
    sums: HashMap<(String, String), PathSum>,
}

impl CallPaths {
    /// The paths of a profile. Whether they are shown is known when all profiles are.
    pub(crate) fn of(member: &Member<'_>, view: &View) -> CallPaths {
        let profile = member.profile;
        let mut out = CallPaths {
            recorded: !profile.data.stacks.is_empty(),
            ..CallPaths::default()
        };
        if !profile.header.options.stacks && !out.recorded {
            return out;
        }
        for thread in calls(profile) {
            if member.asleep.contains(&thread.tid) {
                continue;
            }
            for sample in thread.samples.iter().filter(|s| s.is_call()) {
                let Some((call, way)) = sample.path.split_last() else {
                    continue;
                };
                // Paths that look the same are merged: they differ only further out.
                let shown = end(&path_names(way), view.width.saturating_sub(INDENT.len()));
                let sum = PathSum {
                    count: sample.count,
                    ns: sample.ns,
                    line: source_line(way).map(|line| (sample.ns, line)),
                };
                out.add((call.name().to_owned(), shown), sum);
            }
        }
        out
    }

    /// Adds those of another profile.
    pub(crate) fn join(&mut self, other: CallPaths) {
        self.recorded |= other.recorded;
        for (path, sum) in other.sums {
            self.add(path, sum);
        }
    }

    fn add(&mut self, path: (String, String), other: PathSum) {
        let sum = self.sums.entry(path).or_default();
        sum.count = sum.count.saturating_add(other.count);
        sum.ns = sum.ns.saturating_add(other.ns);
        sum.line = sum.line.take().max(other.line);
    }

    /// The heaviest paths, where stacks were recorded.
    pub(super) fn text(&self, summary: &Summary, width: usize, top: usize) -> String {
        if !self.recorded {
            return String::new();
        }
        let mut paths: Vec<(&(String, String), &PathSum)> = self.sums.iter().collect();
        paths.sort_by(|a, b| (b.1.ns, a.0).cmp(&(a.1.ns, b.0)));
        let mut table = TextTable::new(&[
            ("call", 0),
            ("time", 0),
            ("share", 0),
            ("calls", 0),
            ("mean", 2),
            ("line", 1),
        ]);
        let in_calls = summary.in_calls() as f64;
        for ((call, _), sum) in paths.iter().take(top) {
            table.rows.push(vec![
                call.clone(),
                time(sum.ns),
                percent(sum.ns as f64, in_calls),
                sum.count.to_string(),
                time(sum.ns.checked_div(sum.count).unwrap_or(0)),
                sum.line.as_ref().map_or("-".to_owned(), |l| l.1.clone()),
            ]);
        }
        let text = table.render(width);
        let mut lines = text.lines();
        let mut out = format!("\nCall paths\n{}\n", lines.next().unwrap_or_default());
        for (line, ((_, way), _)) in lines.zip(&paths) {
            out += &format!("{line}\n{INDENT}{way}\n");
        }
        if paths.len() > top {
            out += &format!("and {} more\n", paths.len() - top);
        }
        out
    }
}

/// Regions and functions from the outermost on; repetitions are merged.
fn path_names(way: &[PathLocation]) -> String {
    let mut names: Vec<(String, usize)> = Vec::new();
    for location in way {
        let mut name = escape(location.name());
        // Without a name, the address in the file.
        if let (true, Some(module)) = (name.starts_with("0x"), &location.module) {
            name = format!("{}+{name}", escape(module));
        }
        match names.last_mut() {
            Some((last, times)) if *last == name => *times += 1,
            _ => names.push((name, 1)),
        }
    }
    if !way.iter().any(|p| p.kind == LocationKind::Function) {
        names.push(("(no stack)".to_owned(), 1));
    }
    let names = names.into_iter().map(|(name, times)| match times {
        1 => name,
        _ => format!("{name} ({times} times)"),
    });
    names.collect::<Vec<_>>().join(WITHIN)
}

/// File and line of the program's own innermost function; otherwise the location of the region.
fn source_line(way: &[PathLocation]) -> Option<String> {
    let of_program = |p: &&PathLocation| p.kind == LocationKind::Function && !p.in_library();
    let region = |p: &&PathLocation| p.kind == LocationKind::Region;
    let lined = |p: &&PathLocation| p.line.is_some();
    let function = way.iter().rev().filter(of_program).find(lined);
    let location = function.or_else(|| way.iter().rev().filter(region).find(lined))?;
    location.file_and_line()
}

/// The end of the path that fits: names next to the call matter most.
fn end(way: &str, width: usize) -> String {
    let mut rest = way;
    while rest.width() + (if rest.len() < way.len() { 4 } else { 0 }) > width {
        match rest.split_once(WITHIN) {
            Some((_, inner)) => rest = inner,
            None => return shorten(rest, width),
        }
    }
    match rest.len() < way.len() {
        true => format!("…{WITHIN}{rest}"),
        false => rest.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_keep_their_end() {
        assert_eq!(end("a > b > c", 9), "a > b > c");
        assert_eq!(end("aa > b > c", 9), "… > b > c");
        assert_eq!(end("aa > bbbbbb > cccc", 9), "… > cccc");
        assert_eq!(end("abcdefghijkl", 5), "abcd…");
    }

    #[test]
    fn recursion_is_shown_once() {
        let location = |name: &str| PathLocation::new(name, LocationKind::Function);
        let way: Vec<PathLocation> = ["main", "f", "f", "f", "g"].map(location).to_vec();
        assert_eq!(path_names(&way), "main > f (3 times) > g");
        assert_eq!(path_names(&[]), "(no stack)");
    }
}
