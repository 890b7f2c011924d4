//! Families of locations in code: their components become queries, and queries become locations.

use std::sync::Arc;

use spile_ir::{HostKind, Space};
use spile_syntax::ast::{Component, Literal};
use spile_syntax::diag::{DiagResult, Diagnostic};
use spile_syntax::pretty::{literal, point_text};

use super::kinds::PointMatch;
use crate::codes;
use crate::facts::*;
use crate::probe::point::{self, bad_argument, named, number_in, process_number, string_of};
use spile_glob::is_pattern;

/// Maximum of `.callees(N)`.
const MOST_CALLS: u32 = 16;

/// Locations that a point means.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CodeMatch {
    /// The address space of the code.
    pub space: Space,
    /// At the return of functions.
    pub ret: bool,
    /// Only in the target's processes.
    pub tree: bool,
    /// The point matches several locations, or can: some of them may be left out.
    pub several: bool,
    /// The component that names them: `function`.
    word: Arc<str>,
    /// The components after it: `.call`.
    tail: String,
    /// The locations.
    pub locations: Vec<MatchedLocation>,
}

/// A location that a point matches.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MatchedLocation {
    /// The module of the location.
    pub module: FoundModule,
    /// The location.
    pub location: FoundLocation,
}

impl CodeMatch {
    /// The point of one location, as a script would write it.
    pub(crate) fn point(&self, matched: &MatchedLocation) -> String {
        let location = &matched.location;
        let quoted = |text: &str| literal(&Literal::Str(text.as_bytes().into()));
        let head = match &matched.module.module {
            ProbeModule::Kernel => "kernel".to_owned(),
            ProbeModule::KernelModule(name) => format!("module({})", quoted(name)),
            ProbeModule::File(path) => format!("process({})", quoted(path)),
        };
        let mut what = location.name.to_string();
        if let Some(file) = &location.file {
            what.push_str(&format!("@{file}"));
            if location.line != 0 {
                what.push_str(&format!(":{}", location.line));
            }
        }
        let provider = location.provider.as_ref();
        let provider = provider.map_or(String::new(), |p| format!(".provider({})", quoted(p)));
        let label = location.label.as_ref();
        let label = label.map(|name| format!(".label({})", quoted(name)));
        // No spare capacity: listings hold tens of thousands.
        [
            &head,
            &provider,
            ".",
            &self.word,
            "(",
            &quoted(&what),
            ")",
            label.as_ref().unwrap_or(&self.tail),
        ]
        .concat()
    }
}

/// The matches of a point of such a family.
pub(super) fn resolve(
    facts: &dyn Facts,
    comps: &[Component],
    suggest: bool,
) -> DiagResult<Vec<PointMatch>> {
    let mut modules = modules(facts, comps)?;
    let user = comps.first().is_some_and(|c| &*c.name == "process");
    let one = comps
        .first()
        .is_some_and(|c| matches!(c.arg, Some(Literal::Num(_))));
    if !one {
        // For a process's files, its children count as well.
        modules.iter_mut().for_each(|m| m.pid = None);
        modules.dedup();
    }
    let words = ["function", "statement", "mark", "plt"];
    let Some(index) = comps.iter().position(|c| words.contains(&&*c.name)) else {
        return Ok(Vec::new());
    };
    let what = &comps[index];
    let query = query(comps, what)?;
    let mut locations = Vec::new();
    let mut why = None;
    for module in &modules {
        match facts.locations(&module.module, &query) {
            Ok(more) => locations.extend(more.into_iter().map(|location| MatchedLocation {
                module: module.clone(),
                location,
            })),
            Err(reason) => why = Some(reason),
        }
    }
    let ret = named(comps, "return").is_some();
    if locations.is_empty() {
        let unknown = why.is_none();
        let error = no_locations(&modules, what, why);
        return match suggest && unknown {
            true => with_way_out(facts, &modules, what, error).err(),
            false => error.err(),
        };
    }
    // A callee is shown as the function that it is.
    let calls = |c: &Component| matches!(&*c.name, "callee" | "callees");
    let behind = match comps[index + 1..].split_first() {
        Some((first, rest)) if calls(first) => rest,
        _ => &comps[index + 1..],
    };
    let tail = match point_text(behind) {
        tail if tail.is_empty() => tail,
        tail => format!(".{tail}"),
    };
    Ok(vec![PointMatch::Code(CodeMatch {
        space: if user { Space::User } else { Space::Kernel },
        ret,
        // A host of processes is in no others.
        tree: user && !one && facts.has_target() && facts.host() == HostKind::Kernel,
        several: locations.len() > 1 || comps.iter().any(matches_several),
        word: what.name.as_ref().into(),
        tail,
        locations,
    })])
}

/// Whether a component can match several locations: a pattern, all lines, or a range of lines.
fn matches_several(c: &Component) -> bool {
    match &c.arg {
        Some(Literal::Str(_)) => {
            let text = location_text(c);
            let lines = text.rsplit_once([':', '+']).map_or("", |(_, lines)| lines);
            is_pattern(&text) || (&*c.name == "statement" && lines.contains(['-', ',']))
        }
        Some(Literal::Num(_)) => &*c.name == "callees",
        None => matches!(
            &*c.name,
            "function" | "statement" | "mark" | "plt" | "callees"
        ),
    }
}

/// The modules that the first components name.
fn modules(facts: &dyn Facts, comps: &[Component]) -> DiagResult<Vec<FoundModule>> {
    let mut modules = Vec::new();
    for c in comps {
        let find = |query: &ModuleQuery| point::modules(facts, query, c);
        match (&*c.name, string_of(c)) {
            ("kernel" | "kprobe", _) => modules.push(FoundModule {
                module: ProbeModule::Kernel,
                pid: None,
            }),
            ("module", Some(name)) => modules = find(&ModuleQuery::KernelModule(name))?,
            ("process", Some(path)) => modules = find(&ModuleQuery::Path(path))?,
            ("process", None) if c.arg.is_none() => modules = find(&ModuleQuery::Target)?,
            ("process", None) => modules = find(&ModuleQuery::Pid(process_number(c)?))?,
            ("library", Some(name)) => {
                for FoundModule {
                    module: program,
                    pid,
                } in std::mem::take(&mut modules)
                {
                    let name = name.clone();
                    modules.extend(find(&ModuleQuery::Library { program, pid, name })?);
                }
            }
            _ => {}
        }
    }
    Ok(modules)
}

/// The query of the component `what`; the components after it narrow it.
fn query(comps: &[Component], what: &Component) -> DiagResult<CodeQuery> {
    let option = |name: &str| named(comps, name);
    let has = |name: &str| option(name).is_some();
    if let Some(Literal::Num(n)) = what.arg {
        return Ok(CodeQuery::Address {
            address: n.cast_unsigned(),
            absolute: has("absolute"),
        });
    }
    let text = location_text(what);
    Ok(match &*what.name {
        "plt" => CodeQuery::Plt(text),
        "mark" => CodeQuery::Mark {
            provider: option("provider").and_then(string_of),
            name: text,
        },
        "statement" => {
            let (name, file, lines) = location(&text, what)?;
            CodeQuery::Statement {
                name,
                file,
                lines,
                nearest: has("nearest"),
            }
        }
        _ => {
            let (name, file, lines) = location(&text, what)?;
            let kinds = [
                ("return", FunctionKind::Return),
                ("call", FunctionKind::Call),
                ("exported", FunctionKind::Exported),
                ("inline", FunctionKind::Inline),
            ];
            let kind = kinds.into_iter().find(|(word, _)| has(word));
            let text_of = |word: &str| option(word).and_then(string_of);
            let callee = || text_of("callee").map(|name| FunctionPart::Callees { name, depth: 1 });
            let label = || text_of("label").map(FunctionPart::Label);
            let callees = option("callees").map(callees).transpose()?;
            CodeQuery::Function {
                name,
                file,
                lines,
                kind: kind.map_or(FunctionKind::Any, |(_, kind)| kind),
                part: callees.or_else(callee).or_else(label),
            }
        }
    })
}

/// `.callees` and `.callees(N)`.
fn callees(c: &Component) -> DiagResult<FunctionPart> {
    let depth = match c.arg {
        Some(Literal::Num(_)) => {
            let what = format!("a number of calls from 1 to {MOST_CALLS}");
            number_in(c, 1..=MOST_CALLS, &what)?
        }
        _ => 1,
    };
    Ok(FunctionPart::Callees {
        name: "*".into(),
        depth,
    })
}

/// Splits `NAME@FILE:LINES` into its parts.
fn location(text: &str, c: &Component) -> DiagResult<(Arc<str>, Option<Arc<str>>, LinePattern)> {
    let Some((name, rest)) = text.split_once('@') else {
        return Ok((text.into(), None, LinePattern::Any));
    };
    // File names may contain these characters, so the text after the last one has to be a line.
    let split = rest
        .rsplit_once([':', '+'])
        .filter(|(_, n)| n.starts_with(|c: char| c.is_ascii_digit() || c == '*'));
    let Some((file, line)) = split else {
        return Ok((name.into(), Some(rest.into()), LinePattern::Any));
    };
    let number = |n: &str| {
        n.parse::<u32>()
            .map_err(|_| bad_argument(c, "numbers of lines"))
    };
    let lines = if line == "*" {
        LinePattern::All
    } else if rest[file.len()..].starts_with('+') {
        LinePattern::Relative(number(line)?)
    } else {
        let part = |part: &str| match part.split_once('-') {
            Some((from, to)) => Ok((number(from)?, number(to)?)),
            None => number(part).map(|n| (n, n)),
        };
        LinePattern::Absolute(line.split(',').map(part).collect::<DiagResult<_>>()?)
    };
    Ok((name.into(), Some(file.into()), lines))
}

/// Maximum number of markers that an error names.
const MOST_MARKERS: usize = 40;

/// The error for locations that do not exist.
fn no_locations(modules: &[FoundModule], what: &Component, why: Option<String>) -> Diagnostic {
    let owner = match modules {
        [one] => one.module.to_string(),
        _ => "these modules".to_owned(),
    };
    let (text, word) = (location_text(what), &what.name);
    let message = match why {
        Some(why) => format!("cannot probe the {word} `{text}` of {owner}: {why}"),
        None => format!("no match: {owner} has no {word} `{text}`"),
    };
    Diagnostic::error(codes::NO_LOCATION, message).at(what.span)
}

/// The location that a component names.
fn location_text(what: &Component) -> Arc<str> {
    string_of(what).unwrap_or_else(|| "*".into())
}

/// Adds a way out to the error for a location that does not exist: the most similar name, the markers
/// that there are, or where the symbols of a stripped program could come from. This may read all symbols.
fn with_way_out(
    facts: &dyn Facts,
    modules: &[FoundModule],
    what: &Component,
    error: Diagnostic,
) -> Diagnostic {
    let text = location_text(what);
    let name = text.split('@').next().unwrap_or("");
    let like = |name: &str| match &*what.name {
        "function" => Some(CodeQuery::Function {
            name: name.into(),
            file: None,
            lines: LinePattern::Any,
            kind: FunctionKind::Any,
            part: None,
        }),
        "mark" => Some(CodeQuery::Mark {
            provider: None,
            name: "*".into(),
        }),
        _ => None,
    };
    // The start of a misspelt name is usually right; of markers there are only a few.
    let start = |letters| -> String { name.chars().take(letters).collect() };
    let similar = |letters| -> Vec<FoundLocation> {
        let query = like(&format!("{}*", start(letters))).filter(|_| !is_pattern(name));
        query.map_or_else(Vec::new, |query| {
            let locations = |m: &FoundModule| facts.locations(&m.module, &query).ok();
            modules.iter().filter_map(locations).flatten().collect()
        })
    };
    let mut near = similar(3);
    // A program has fewer functions than the kernel.
    let programs = |m: &FoundModule| matches!(m.module, ProbeModule::File(_));
    if near.is_empty() && modules.iter().all(programs) {
        near = similar(1);
    }
    let error = error.did_you_mean(name, near.iter().map(|p| &*p.name));
    match (&*what.name, modules) {
        _ if !error.help.is_empty() => error,
        ("mark", _) if !is_pattern(name) => with_markers(error, &near),
        ("function" | "statement", [one]) if facts.is_stripped(&one.module) => error
            .note("the file is stripped: it has neither debugging information nor symbols of its own functions")
            .help(
                "install its debugging information (Debian's packages `NAME-dbgsym`), name a server in \
                 DEBUGINFOD_URLS, or build it with `-g` and do not strip it",
            ),
        _ => error,
    }
}

/// Adds the names of the markers that there are.
fn with_markers(error: Diagnostic, markers: &[FoundLocation]) -> Diagnostic {
    let mut names: Vec<&str> = markers.iter().map(|p| &*p.name).collect();
    names.sort_unstable();
    names.dedup();
    let shown = names.len().min(MOST_MARKERS);
    let listed = names[..shown].join("`, `");
    match names.len() - shown {
        0 if shown == 0 => error.note("it has no markers at all"),
        0 => error.help(format!("its markers are `{listed}`")),
        more => error.help(format!("its markers are `{listed}` and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_in_files_are_parsed() {
        let c = Component {
            name: "statement".into(),
            arg: None,
            span: Default::default(),
        };
        let parts = |text: &str| {
            let (name, file, lines) = location(text, &c).expect("a location");
            (name.to_string(), file.map(|f| f.to_string()), lines)
        };
        let some = |t: &str| Some(t.to_owned());
        assert_eq!(parts("f"), ("f".into(), None, LinePattern::Any));
        assert_eq!(
            parts("a::f@x.cc"),
            ("a::f".into(), some("x.cc"), LinePattern::Any)
        );
        assert_eq!(
            parts("f@x.c:*"),
            ("f".into(), some("x.c"), LinePattern::All)
        );
        assert_eq!(
            parts("f@g++/x.c+3"),
            ("f".into(), some("g++/x.c"), LinePattern::Relative(3))
        );
        assert_eq!(
            parts("*@x.c:1,5-7").2,
            LinePattern::Absolute(vec![(1, 1), (5, 7)])
        );
        assert!(location("f@x.c:1-", &c).is_err());
    }
}
