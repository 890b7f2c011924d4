//! Staleness of probed files. Locations are offsets, which are meaningless in another version of the
//! file. A probe stays at the file that it was attached to, even if the path later refers to
//! another one.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use spile_ir::{CodeLocation, Event, Program};

use crate::error::Error;

/// The identity and version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// Device and inode.
    identity: (u64, u64),
    size: u64,
    /// Modification time: seconds and nanoseconds.
    modified: (i64, i64),
}

impl FileState {
    /// The state of the file that a path refers to now; `None` if there is none.
    pub fn read(path: &Path) -> Option<FileState> {
        let meta = std::fs::metadata(path).ok()?;
        Some(FileState {
            identity: (meta.dev(), meta.ino()),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        })
    }
}

/// The probed files.
#[derive(Debug, Default)]
pub(crate) struct Staleness {
    files: Vec<(PathBuf, FileState)>,
    next: usize,
}

impl Staleness {
    /// Keeps the inspected files that the program probes.
    pub(crate) fn new(program: &Program, looked_at: &[(PathBuf, FileState)]) -> Staleness {
        let mut paths = std::collections::HashSet::new();
        for handler in &program.handlers {
            let Event::Code(probe) = &handler.event else {
                continue;
            };
            for site in &probe.sites {
                if let CodeLocation::File { path, .. } = &site.location {
                    paths.insert(Path::new(&**path));
                }
            }
        }
        let probed = |f: &&(PathBuf, FileState)| paths.contains(&*f.0);
        Staleness {
            files: looked_at.iter().filter(probed).cloned().collect(),
            next: 0,
        }
    }

    /// Checks the files right after probes were attached by path.
    ///
    /// # Errors
    /// [`Error::Changed`] if a file differs from the one that was inspected.
    pub(crate) fn unchanged(&self) -> Result<(), Error> {
        for (path, then) in &self.files {
            let change = match FileState::read(path) {
                None => "removed",
                Some(now) if now.identity != then.identity => "replaced",
                Some(now) if now != *then => "changed",
                Some(_) => continue,
            };
            return Err(Error::Changed(path.display().to_string(), change));
        }
        Ok(())
    }

    /// Checks the next file; returns a warning if its path refers to another file now.
    pub(crate) fn check_next(&mut self) -> Option<String> {
        let index = self.next.checked_rem(self.files.len())?;
        self.next = index + 1;
        let (path, then) = &self.files[index];
        // Such paths disappear with their process.
        if path.starts_with("/proc") {
            return None;
        }
        let change = match FileState::read(path) {
            None => "removed",
            Some(now) if now.identity != then.identity => "replaced",
            Some(_) => return None,
        };
        let text = format!(
            "{} was {change}: only processes that run the old file are probed",
            path.display()
        );
        self.files.swap_remove(index);
        Some(text)
    }

    /// Checks all files.
    pub(crate) fn check_all(&mut self) -> Vec<String> {
        (0..self.files.len())
            .filter_map(|_| self.check_next())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_change_are_noticed() {
        let path = std::env::temp_dir().join(format!("spile-probed-{}", std::process::id()));
        let other = path.with_extension("new");
        let watch = || Staleness {
            files: vec![(path.clone(), FileState::read(&path).expect("a file"))],
            next: 0,
        };
        std::fs::write(&path, "abc").expect("written");
        let mut files = watch();
        assert!(files.unchanged().is_ok());
        assert_eq!(files.check_next(), None);
        std::fs::write(&path, "a").expect("written");
        assert!(matches!(
            files.unchanged(),
            Err(Error::Changed(_, "changed"))
        ));
        assert_eq!(files.check_next(), None);
        let mut files = watch();
        std::fs::write(&other, "abc").expect("written");
        std::fs::rename(&other, &path).expect("renamed");
        assert!(matches!(
            files.unchanged(),
            Err(Error::Changed(_, "replaced"))
        ));
        assert!(
            files
                .check_next()
                .is_some_and(|t| t.contains("was replaced"))
        );
        assert!(files.check_all().is_empty());
        let mut files = watch();
        std::fs::remove_file(&path).expect("removed");
        assert!(matches!(
            files.unchanged(),
            Err(Error::Changed(_, "removed"))
        ));
        assert_eq!(files.check_all().len(), 1);
    }
}
