//! The files of a report: named files, and those in folders, of one run.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::reader::read_path;
use super::row::EXTENSION;
use crate::model::Profile;

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
    let mut found_profiles = FoundProfiles::default();
    let mut profiles = Vec::new();
    let mut seen = HashSet::new();
    let mut take = |path: &Path, profiles: &mut _, said: &mut _| {
        // A file can be named and be in a folder as well.
        if path.canonicalize().map_or(true, |whole| seen.insert(whole)) {
            read_into(path, profiles, said);
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
    one_run(&mut profiles, run, &mut found_profiles.said);
    profiles.sort_by_key(|(path, profile)| {
        let header = &profile.header;
        let rank = header.rank.as_ref().map_or(u32::MAX, |r| r.rank);
        (rank, header.started_unix_ns, path.clone())
    });
    found_profiles.profiles = profiles;
    found_profiles
}

fn read_into(path: &Path, profiles: &mut Vec<(PathBuf, Profile)>, said: &mut Vec<String>) {
    match read_path(path) {
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
