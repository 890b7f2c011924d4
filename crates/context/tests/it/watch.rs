//! Runs programs under the watcher, and parses its output.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::build::shared;

/// A region as announced.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub kind: u32,
    pub parent: u32,
    pub name: String,
    /// `FILE+OFFSET`, or a number.
    pub code: String,
}

/// The announcements and queries of one process.
#[derive(Default, Debug)]
pub(crate) struct Process {
    /// The threads that announced their word.
    pub locations: Vec<u32>,
    pub regions: HashMap<u32, Region>,
    /// Label, number, thread.
    pub words: Vec<(String, u32, u32)>,
    pub refused: Vec<u64>,
}

impl Process {
    /// The names from the outermost region to this one, separated by slashes.
    pub(crate) fn path(&self, number: u32) -> String {
        let mut names = Vec::new();
        let mut at = number;
        while at != 0 {
            let region = &self.regions[&at];
            names.push(region.name.as_str());
            at = region.parent;
        }
        names.reverse();
        names.join("/")
    }

    /// The paths of threads that queried with a label, without duplicates.
    pub(crate) fn paths(&self, label: &str) -> Vec<String> {
        let asked = self.words.iter().filter(|(l, ..)| l == label);
        let mut paths: Vec<String> = asked.map(|(_, number, _)| self.path(*number)).collect();
        paths.sort();
        paths.dedup();
        paths
    }

    /// The only region with this path.
    pub(crate) fn region(&self, path: &str) -> &Region {
        let all: Vec<&Region> = self.all(path);
        assert_eq!(all.len(), 1, "{path}: {:?}", self.regions);
        all[0]
    }

    /// All regions with this path.
    pub(crate) fn all(&self, path: &str) -> Vec<&Region> {
        let mut numbers: Vec<&u32> = self.regions.keys().collect();
        numbers.sort();
        let of_path = numbers.into_iter().filter(|n| self.path(**n) == path);
        of_path.map(|n| &self.regions[n]).collect()
    }
}

/// The source line of a region: that of the call before its return address.
pub(crate) fn line(region: &Region) -> u32 {
    let (file, offset) = region.code.rsplit_once('+').expect("in a file");
    let offset = u64::from_str_radix(offset.trim_start_matches("0x"), 16).expect("a number");
    // Programs that are not position-independent are linked to 0x400000.
    let mut lines = [0, 0x40_0000].iter().map(|base| {
        let at = format!("{:#x}", base + offset - 1);
        let out = Command::new("addr2line")
            .args(["-e", file, &at])
            .output()
            .expect("addr2line, of binutils as gcc's assembler");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let line = text.trim().split([':', ' ']).nth(1).map(str::parse);
        line.and_then(Result::ok).unwrap_or(0)
    });
    lines.find(|line| *line != 0).unwrap_or(0)
}

/// Runs a program with the library under the watcher. Returns the processes in the order of their
/// first announcement, without those that only announced their word.
pub(crate) fn watch(program: &[&str], variables: &[(&str, &Path)]) -> Vec<Process> {
    let mut command = Command::new(shared("watch"));
    command.arg("env");
    let mut set = std::ffi::OsString::from("LD_PRELOAD=");
    set.push(shared("context.so"));
    command.arg(set);
    for (name, value) in variables {
        let mut set = std::ffi::OsString::from(format!("{name}="));
        set.push(value);
        command.arg(set);
    }
    let out = command.args(program).output().expect("the watcher");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{program:?}: {:?} {said}", out.status);
    parse(&String::from_utf8_lossy(&out.stdout))
}

/// Parses the watcher's lines, of any number of processes.
pub(crate) fn parse(text: &str) -> Vec<Process> {
    let mut seen: Vec<(u32, Process)> = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let Some(Ok(pid)) = words.next().map(str::parse::<u32>) else {
            continue;
        };
        let at = seen.iter().position(|(p, _)| *p == pid);
        let at = at.unwrap_or_else(|| {
            seen.push((pid, Process::default()));
            seen.len() - 1
        });
        let process = &mut seen[at].1;
        let number = |word: Option<&str>| word.expect(line).parse::<u32>().expect(line);
        match words.next() {
            Some("place") => {
                let thread = number(words.nth(1));
                assert!(!process.locations.contains(&thread), "said twice: {line}");
                process.locations.push(thread);
            }
            Some("region") => {
                let id = number(words.next());
                let (kind, parent) = (number(words.next()), number(words.next()));
                let rest: Vec<&str> = words.collect();
                let (code, name) = rest.split_last().expect(line);
                let region = Region {
                    kind,
                    parent,
                    name: name.join(" "),
                    code: (*code).to_owned(),
                };
                let before = process.regions.insert(id, region);
                assert!(before.is_none(), "announced twice: {line}");
            }
            Some("word") => {
                let value = number(words.next());
                let label = words.next().expect(line).to_owned();
                process.words.push((label, value, number(words.next())));
            }
            Some("refused") => process.refused.push(u64::from(number(words.next()))),
            // Lines of the program itself.
            _ => {}
        }
    }
    let all = seen.into_iter().map(|(_, process)| process);
    all.filter(|p| !p.words.is_empty() || !p.regions.is_empty())
        .collect()
}
