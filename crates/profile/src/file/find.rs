//! The files of a report: named files, and those in folders, of one run.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::reader::read_file;
use super::row::EXTENSION;
use crate::model::{Header, Profile};
use crate::run::Run;

/// The profiles of one run.
#[derive(Debug, Default)]
pub struct FoundProfiles {
    /// Profiles with their files, in the order of ranks, then of starts.
    pub profiles: Vec<(PathBuf, Profile)>,
    /// Messages about files, one line each: files that are not used, with the reason, and files
    /// that were cut short.
    pub said: Vec<String>,
}

/// Reads files, and those in folders whose names end in `.spile`. If they are of several runs, the
/// run with the most files that have an account is chosen; of several such runs the last. `run`
/// chooses another by a prefix of its id.
pub fn find(paths: &[PathBuf], run: Option<&str>) -> FoundProfiles {
    find_with(paths, run, true)
}

/// Like [`find`], without traces, for reports that show none.
pub fn find_accounts(paths: &[PathBuf], run: Option<&str>) -> FoundProfiles {
    find_with(paths, run, false)
}

fn find_with(paths: &[PathBuf], run: Option<&str>, trace: bool) -> FoundProfiles {
    let mut found = read_all(paths, trace);
    one_run(&mut found.profiles, run, &mut found.said);
    found
}

/// Like [`find_accounts`], with all runs that have an account, the first to start first.
pub fn find_runs(paths: &[PathBuf]) -> (Vec<Run>, Vec<String>) {
    let mut found = read_all(paths, false);
    let mut runs: Vec<Run> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    found
        .profiles
        .sort_by_key(|(_, p)| p.header.started_unix_ns);
    for (path, profile) in found.profiles {
        if profile.data.at_ns == 0 {
            let why = format!("{}: has no account and is not used", path.display());
            found.said.push(why);
            continue;
        }
        let id = profile.header.run.clone();
        let number = *numbers.entry(id).or_insert(runs.len());
        if number == runs.len() {
            runs.push(Run::default());
        }
        runs[number].profiles.push(profile);
    }
    for run in &mut runs {
        run.profiles.sort_by_key(|p| rank(&p.header));
    }
    (runs, found.said)
}

/// The number of a rank; other recordings come after ranks.
pub(super) fn rank(header: &Header) -> u32 {
    header.rank.as_ref().map_or(u32::MAX, |r| r.rank)
}

/// Reads files and folders, in the order of ranks, then of starts.
fn read_all(paths: &[PathBuf], trace: bool) -> FoundProfiles {
    let (files, mut said) = files(paths);
    let mut profiles = Vec::new();
    let reads = each(&files, |path, frames| read_file(path, trace, frames));
    for (path, read) in files.iter().zip(reads) {
        match read {
            Ok(read) => {
                let notes = read.notes.iter();
                said.extend(notes.map(|note| format!("{}: {note}", path.display())));
                profiles.push((path.clone(), read.profile));
            }
            Err(bad) => said.push(format!("{}: {bad}", path.display())),
        }
    }
    profiles.sort_by_key(|(path, profile)| {
        let header = &profile.header;
        (rank(header), header.started_unix_ns, path.clone())
    });
    FoundProfiles { profiles, said }
}

/// The named files and those in folders, and messages about folders without any.
pub(super) fn files(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
    let (mut files, mut said) = (Vec::new(), Vec::new());
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        match std::fs::read_dir(path) {
            Ok(entries) => {
                let entries = entries.flatten().map(|e| e.path());
                let mut some: Vec<_> = entries
                    .filter(|p| p.extension().is_some_and(|e| e == EXTENSION) && !p.is_dir())
                    .collect();
                if some.is_empty() {
                    said.push(format!(
                        "{}: no file in it ends in .{EXTENSION}",
                        path.display()
                    ));
                }
                some.sort();
                files.append(&mut some);
            }
            Err(e) => said.push(format!("{}: cannot be read: {e}", path.display())),
        }
    }
    // A file can be named and be in a folder as well.
    let mut seen = HashSet::new();
    files.retain(|path| path.canonicalize().map_or(true, |whole| seen.insert(whole)));
    (files, said)
}

/// Handles items, as many at a time as there are processors, and gives the results in their order. Each thread has a
/// state.
pub(super) fn each<T: Sync, S: Default, R: Send>(
    items: &[T],
    handle: impl Fn(&T, &mut S) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let handle_some = || {
        let mut state = S::default();
        let mut some = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                return some;
            };
            some.push((index, handle(item, &mut state)));
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut results = thread::scope(|scope| {
        let others = 1..processors.min(items.len());
        let others: Vec<_> = others.map(|_| scope.spawn(handle_some)).collect();
        let mut results = handle_some();
        for other in others {
            match other.join() {
                Ok(some) => results.extend(some),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The runs that some files belong to.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: Vec<FoundRun>,
    numbers: HashMap<String, usize>,
}

/// A run, in the order by which one is chosen.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FoundRun {
    /// Number of files with an account.
    files: usize,
    /// The start of the first recording.
    start: u64,
    id: String,
}

impl Runs {
    /// The number of a file's run, from 0 on.
    pub(super) fn number(&mut self, header: &Header) -> usize {
        let start = header.started_unix_ns;
        if let Some(number) = self.numbers.get(&header.run) {
            let run = &mut self.runs[*number];
            run.start = run.start.min(start);
            return *number;
        }
        self.numbers.insert(header.run.clone(), self.runs.len());
        self.runs.push(FoundRun {
            files: 0,
            start,
            id: header.run.clone(),
        });
        self.runs.len() - 1
    }

    /// Number of runs.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Counts a file that was read, with an account or without one.
    pub(super) fn add(&mut self, number: usize, account: bool) {
        self.runs[number].files += usize::from(account);
    }

    /// The run with the most files that have an account, of those whose ids begin with `wanted`.
    pub(super) fn choose(&self, wanted: Option<&str>, said: &mut Vec<String>) -> Option<usize> {
        let runs = self.runs.iter().enumerate();
        let runs = runs.filter(|(_, run)| wanted.is_none_or(|wanted| run.id.starts_with(wanted)));
        let chosen = runs.max_by_key(|(_, run)| *run);
        if let (None, Some(wanted)) = (&chosen, wanted) {
            said.push(format!("no file belongs to a run `{wanted}`"));
        }
        chosen.map(|(number, _)| number)
    }

    /// The message about a file of a run that was not chosen.
    pub(super) fn not_used(&self, path: &Path, number: usize, chosen: usize) -> String {
        format!(
            "{}: belongs to run {}, not to {}, and is not used (--run chooses)",
            path.display(),
            self.runs[number].id,
            self.runs[chosen].id
        )
    }
}

/// Keeps the profiles of one run, and reports that the others are not used.
fn one_run(profiles: &mut Vec<(PathBuf, Profile)>, run: Option<&str>, said: &mut Vec<String>) {
    let mut runs = Runs::default();
    for (_, profile) in profiles.iter() {
        let number = runs.number(&profile.header);
        runs.add(number, profile.data.at_ns > 0);
    }
    let Some(chosen) = runs.choose(run, said) else {
        profiles.clear();
        return;
    };
    profiles.retain(|(path, profile)| {
        let number = runs.number(&profile.header);
        if number != chosen {
            said.push(runs.not_used(path, number, chosen));
        }
        number == chosen
    });
}
