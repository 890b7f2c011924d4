//! The files of a report: named files, and those in folders, of one run.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::reader::{ReadProfile, UnusableFile, read_file};
use super::row::EXTENSION;
use crate::frames::SharedFrames;
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
fn rank(header: &Header) -> u32 {
    header.rank.as_ref().map_or(u32::MAX, |r| r.rank)
}

/// Reads files and folders, in the order of ranks, then of starts.
fn read_all(paths: &[PathBuf], trace: bool) -> FoundProfiles {
    let (files, mut said) = files(paths);
    let mut profiles = Vec::new();
    for (path, read) in files.iter().zip(read_files(&files, trace)) {
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
fn files(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
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

/// Reads files, several at a time, and gives them in their order.
fn read_files(files: &[PathBuf], trace: bool) -> Vec<Result<ReadProfile, UnusableFile>> {
    let next = AtomicUsize::new(0);
    let read_some = || {
        let mut frames = SharedFrames::default();
        let mut some = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = files.get(index) else {
                return some;
            };
            some.push((index, read_file(path, trace, &mut frames)));
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut read = thread::scope(|scope| {
        let others = 1..processors.min(files.len());
        let others: Vec<_> = others.map(|_| scope.spawn(read_some)).collect();
        let mut read = read_some();
        for other in others {
            match other.join() {
                Ok(some) => read.extend(some),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        read
    });
    read.sort_by_key(|(index, _)| *index);
    read.into_iter().map(|(_, read)| read).collect()
}

/// Keeps the profiles of one run, and reports that the others are not used.
fn one_run(profiles: &mut Vec<(PathBuf, Profile)>, run: Option<&str>, said: &mut Vec<String>) {
    let mut runs: Vec<(usize, u64, String)> = Vec::new();
    for (_, profile) in profiles.iter() {
        let header = &profile.header;
        let whole = usize::from(profile.data.at_ns > 0);
        match runs.iter_mut().find(|(_, _, id)| *id == header.run) {
            Some((files, start, _)) => {
                *files += whole;
                *start = (*start).min(header.started_unix_ns);
            }
            None => runs.push((whole, header.started_unix_ns, header.run.clone())),
        }
    }
    let wanted = runs
        .iter()
        .filter(|(_, _, id)| run.is_none_or(|run| id.starts_with(run)))
        .max();
    let Some((_, _, wanted)) = wanted.cloned() else {
        if let Some(run) = run {
            said.push(format!("no file belongs to a run `{run}`"));
            profiles.clear();
        }
        return;
    };
    profiles.retain(|(path, profile)| {
        let same = profile.header.run == wanted;
        if !same {
            said.push(format!(
                "{}: belongs to run {}, not to {wanted}, and is not used (--run chooses)",
                path.display(),
                profile.header.run
            ));
        }
        same
    });
}
