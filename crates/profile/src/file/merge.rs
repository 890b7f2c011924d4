//! Merges the files of a run for a report. First the headers are read, which say how many files the run has and in which
//! order they are; then each file is read, merged and dropped, as many at a time as there are processors.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::find::{Runs, each, files, rank};
use super::reader::{UnusableFile, read_file, read_header};
use crate::frames::SharedFrames;
use crate::merge::{MergedRun, Merger, Part};
use crate::model::Header;
use crate::report::View;

/// Number of frames that are kept for further files.
const FRAMES: usize = 1 << 16;

/// A file whose header could be read.
#[derive(Debug)]
struct Found<'a> {
    path: &'a Path,
    /// Among all files, as they were named.
    index: usize,
    header: Header,
    /// Its run, and its number there.
    run: usize,
    number: usize,
}

/// Reads files, and those in folders, like [`super::find_accounts`], and merges the profiles for a report as text, or as
/// JSON without a view. `None` if there are none. The second value has messages about files, one line each.
pub fn merge(
    paths: &[PathBuf],
    run: Option<&str>,
    view: Option<&View>,
) -> (Option<MergedRun>, Vec<String>) {
    let (files, mut said) = files(paths);
    let headers = each(&files, |path, (): &mut ()| read_header(path));
    let mut messages: Vec<Vec<String>> = vec![Vec::new(); files.len()];
    let mut found = Vec::new();
    for (index, (path, header)) in files.iter().zip(headers).enumerate() {
        match header {
            Ok(header) => found.push(Found {
                path,
                index,
                header,
                run: 0,
                number: 0,
            }),
            Err(bad) => messages[index].push(message(path, &bad)),
        }
    }
    found.sort_by_key(|f| (rank(&f.header), f.header.started_unix_ns, f.path));
    let mut runs = Runs::default();
    let mut counts: Vec<usize> = Vec::new();
    for file in &mut found {
        file.run = runs.number(&file.header);
        counts.resize(runs.len(), 0);
        file.number = counts[file.run];
        counts[file.run] += 1;
    }
    let mergers: Vec<Mutex<Merger>> = counts.iter().map(|n| Mutex::new(Merger::new(*n))).collect();
    let read = each(&found, |file, frames: &mut SharedFrames| {
        let read = read_file(file.path, false, frames)?;
        let part = Part::new(&read.profile, file.number, counts[file.run], view);
        let whole = read.profile.data.at_ns > 0;
        drop(read.profile);
        frames.limit(FRAMES);
        locked(&mergers[file.run]).add(part);
        Ok::<_, UnusableFile>((whole, read.notes))
    });
    for (file, read) in found.iter().zip(read) {
        match read {
            Ok((whole, notes)) => {
                runs.add(file.run, whole);
                let notes = notes.iter();
                let notes = notes.map(|note| format!("{}: {note}", file.path.display()));
                messages[file.index].extend(notes);
            }
            Err(bad) => messages[file.index].push(message(file.path, &bad)),
        }
    }
    said.extend(messages.into_iter().flatten());
    let chosen = runs.choose(run, &mut said);
    let Some(chosen) = chosen else {
        return (None, said);
    };
    for file in found.iter().filter(|file| file.run != chosen) {
        said.push(runs.not_used(file.path, file.run, chosen));
    }
    let merged = std::mem::take(&mut *locked(&mergers[chosen])).finish();
    (
        Some(merged).filter(|merged| !merged.run.profiles.is_empty()),
        said,
    )
}

fn message(path: &Path, bad: &UnusableFile) -> String {
    format!("{}: {bad}", path.display())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
