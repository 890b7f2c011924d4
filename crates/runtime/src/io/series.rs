//! The files of `-o`: one file, or a series of files that follow one another.
//!
//! In: a name, and the limits of `-S`. Out: the descriptor of the current file, and how much of a text
//! goes there before the next one. With limits the names end in `.0`, `.1` and so on, as SystemTap
//! names them. A signal starts the next file, with or without limits. The first file without limits can
//! be a pipe or a device; all others are regular files.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use spile_plain::files;

use crate::error::Error;
use crate::machine::clock;

/// The limits of a series of files (`-S SIZE[,N]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesLimits {
    /// Bytes of a file. A line that is longer has a file of its own.
    pub bytes: u64,
    /// Number of files to keep; older ones are removed.
    pub files: Option<u32>,
}

/// The files of an output.
#[derive(Debug)]
pub(super) struct FileSeries {
    /// The name, with forms of `strftime`.
    name: String,
    limits: Option<SeriesLimits>,
    /// Number of the current file.
    number: u64,
    /// Bytes in the current file.
    written: u64,
    /// The files that exist, if their number is limited.
    kept: VecDeque<String>,
}

impl FileSeries {
    /// Creates the first file. `wait` passes some time if it is a pipe that nobody reads yet; its error
    /// ends the wait.
    pub(super) fn create(
        name: String,
        limits: Option<SeriesLimits>,
        wait: impl FnMut() -> io::Result<()>,
    ) -> Result<(FileSeries, OwnedFd), Error> {
        let mut series = FileSeries {
            name,
            limits,
            number: 0,
            written: 0,
            kept: VecDeque::new(),
        };
        let fd = series.open(wait)?;
        Ok((series, fd))
    }

    /// Creates the next file, and removes the oldest one if there are too many.
    pub(super) fn next(&mut self) -> Result<OwnedFd, Error> {
        self.number += 1;
        self.written = 0;
        self.open(|| Ok(()))
    }

    fn open(&mut self, wait: impl FnMut() -> io::Result<()>) -> Result<OwnedFd, Error> {
        let name = clock::strftime(&self.name).map_err(|e| Error::Output(self.name.clone(), e))?;
        let (path, file) = match (self.limits, self.number) {
            (None, 0) => (name.clone(), any_file(&name, wait)),
            (_, number) => {
                let path = format!("{name}.{number}");
                let file = files::create(Path::new(&path));
                (path, file)
            }
        };
        let file = file.map_err(|e| Error::Output(path.clone(), e))?;
        if let Some(most) = self.limits.and_then(|l| l.files) {
            self.kept.push_back(path);
            while self.kept.len() > most.max(1) as usize {
                // A file that somebody has moved away is no longer there.
                self.kept.pop_front().map(std::fs::remove_file);
            }
        }
        Ok(file.into())
    }

    /// The number of bytes of a text that go to the current file: whole lines as far as there is space.
    /// 0 if the next file has to take them.
    pub(super) fn space_for(&self, text: &[u8]) -> usize {
        let Some(limits) = self.limits else {
            return text.len();
        };
        let space = limits.bytes.saturating_sub(self.written);
        let space = usize::try_from(space).unwrap_or(usize::MAX);
        if text.len() <= space {
            return text.len();
        }
        let is_end = |b: &u8| *b == b'\n';
        match text[..space].iter().rposition(is_end) {
            Some(end) => end + 1,
            None if self.written > 0 => 0,
            None => text.iter().position(is_end).map_or(text.len(), |i| i + 1),
        }
    }

    /// Counts bytes of the current file.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }
}

/// Creates a file, or opens a pipe or a device.
fn any_file(path: &str, mut wait: impl FnMut() -> io::Result<()>) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.custom_flags(flags.bits().cast_signed());
    loop {
        match options.open(path) {
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => wait()?,
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(bytes: u64, written: u64) -> FileSeries {
        FileSeries {
            name: String::new(),
            limits: Some(SeriesLimits { bytes, files: None }),
            number: 0,
            written,
            kept: VecDeque::new(),
        }
    }

    #[test]
    fn whole_lines_go_to_a_file() {
        assert_eq!(series(10, 0).space_for(b"one\ntwo\nthree\n"), 8);
        assert_eq!(series(10, 0).space_for(b"one\ntwo\nt\n"), 10);
        assert_eq!(series(10, 6).space_for(b"one\ntwo\n"), 4);
        assert_eq!(series(10, 9).space_for(b"one\ntwo\n"), 0);
        assert_eq!(series(10, 10).space_for(b""), 0);
    }

    #[test]
    fn a_line_that_fits_no_file_has_one_of_its_own() {
        assert_eq!(series(4, 0).space_for(b"a long line\nb\n"), 12);
        assert_eq!(series(4, 0).space_for(b"no end"), 6);
        assert_eq!(series(4, 2).space_for(b"a long line\nb\n"), 0);
    }
}
