//! The files of a report: named files, and those in folders, of one run.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

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
fn rank(header: &Header) -> u32 {
    header.rank.as_ref().map_or(u32::MAX, |r| r.rank)
}

/// Reads files and folders, in the order of ranks, then of starts.
fn read_all(paths: &[PathBuf], trace: bool) -> FoundProfiles {
    let mut found_profiles = FoundProfiles::default();
    let mut profiles = Vec::new();
    let mut seen = HashSet::new();
    let mut take = |path: &Path, profiles: &mut _, said: &mut _| {
        // A file can be named and be in a folder as well.
        if path.canonicalize().map_or(true, |whole| seen.insert(whole)) {
            read_into(path, trace, profiles, said);
        }
    };
    for path in paths {
        if !path.is_dir() {
            take(path, &mut profiles, &mut found_profiles.said);
            continue;
        }
        let before = profiles.len() + found_profiles.said.len();
        match std::fs::read_dir(path) {
            Ok(entries) => {
                let entries = entries.flatten().map(|e| e.path());
                let mut files: Vec<_> = entries
                    .filter(|p| p.extension().is_some_and(|e| e == EXTENSION) && !p.is_dir())
                    .collect();
                files.sort();
                for file in files {
                    take(&file, &mut profiles, &mut found_profiles.said);
                }
            }
            Err(e) => found_profiles
                .said
                .push(format!("{}: cannot be read: {e}", path.display())),
        }
        if profiles.len() + found_profiles.said.len() == before {
            found_profiles.said.push(format!(
                "{}: no file in it ends in .{EXTENSION}",
                path.display()
            ));
        }
    }
    profiles.sort_by_key(|(path, profile)| {
        let header = &profile.header;
        (rank(header), header.started_unix_ns, path.clone())
    });
    found_profiles.profiles = profiles;
    found_profiles
}

fn read_into(
    path: &Path,
    trace: bool,
    profiles: &mut Vec<(PathBuf, Profile)>,
    said: &mut Vec<String>,
) {
    match read_file(path, trace) {
        Ok(read) => {
            let notes = read.notes.iter();
            said.extend(notes.map(|note| format!("{}: {note}", path.display())));
            profiles.push((path.to_owned(), read.profile));
        }
        Err(bad) => said.push(format!("{}: {bad}", path.display())),
    }
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
