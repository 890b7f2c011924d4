//! The profile file, written during the recording, so that a recorder that is killed leaves the
//! account so far.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use spile_kernel::resources::error_text;
use spile_profile::file::{self, Writer};
use spile_profile::model::{Header, Profile};

use super::rows::ProfileBuilder;
use spile_plain::files;
use spile_plain::messages::{Failure, fail};

/// A profile file.
pub(super) struct RecordingFile {
    path: PathBuf,
    file: File,
    header: Header,
    /// Created with the first account, because the header includes the first rows.
    writer: Option<Writer<File>>,
    wrong: Option<io::Error>,
}

/// The name of a file in a folder, with `number` behind the program's name.
pub(super) fn file_name(number: &str, header: &Header) -> String {
    let program = header
        .command
        .first()
        .and_then(|c| Path::new(c).file_name());
    let name = program.map_or("profile".into(), |n| n.to_string_lossy());
    let mut header = header.clone();
    // The command's process id is not known yet; the recorder's serves as well.
    header.pid = header.pid.or(Some(std::process::id()));
    file::name(&format!("{name}{number}"), &header)
}

impl RecordingFile {
    /// Creates the file: within `to` where that is a folder, or where ranks share it.
    pub(super) fn new(to: &Path, header: &Header) -> Result<RecordingFile, Failure> {
        let wrong = |path: &Path, e: io::Error| {
            fail(format_args!("{}: {}", path.display(), error_text(&e)))
        };
        let mut path = to.to_owned();
        if to.is_dir() || header.rank.is_some() {
            std::fs::create_dir_all(to).map_err(|e| wrong(to, e))?;
            path = to.join(file_name("", header));
        }
        Ok(RecordingFile {
            file: files::create(&path).map_err(|e| wrong(&path, e))?,
            path,
            header: header.clone(),
            writer: None,
            wrong: None,
        })
    }

    fn writer(&mut self) -> io::Result<&mut Writer<File>> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => Writer::new(self.file.try_clone()?, &self.header)?,
        };
        Ok(self.writer.insert(writer))
    }

    /// Writes a part of the trace. An error is reported at the end.
    pub(super) fn events(&mut self, rows: &mut ProfileBuilder) {
        self.complete_header(rows);
        let done = self.writer().and_then(|w| w.events(&rows.events));
        rows.events.clear();
        self.wrong = self.wrong.take().or(done.err());
    }

    /// Completes the header from the first rows.
    fn complete_header(&mut self, rows: &ProfileBuilder) {
        if self.writer.is_none() {
            self.header.started_unix_ns = rows.started_unix_ns;
            self.header.pid = self.header.pid.or_else(|| rows.first_process());
        }
    }

    /// Writes the account so far. An error is reported at the end.
    pub(super) fn account(&mut self, rows: &ProfileBuilder) {
        self.complete_header(rows);
        let done = self.writer().and_then(|w| w.snapshot(&rows.snapshot()));
        self.wrong = self.wrong.take().or(done.err());
    }

    /// Writes the last account.
    pub(super) fn end(mut self, profile: &Profile) -> Result<(), Failure> {
        let path = self.path.clone();
        let mut last = || -> io::Result<()> {
            if let Some(wrong) = self.wrong.take() {
                return Err(wrong);
            }
            if self.writer.is_none() {
                self.header = profile.header.clone();
            }
            self.writer()?.snapshot(&profile.data)?;
            if let (Some(writer), Some(end)) = (self.writer.take(), &profile.end) {
                writer.end(end)?.sync_all()?;
            }
            Ok(())
        };
        last().map_err(|e| fail(format_args!("{}: {e}", path.display())))
    }
}
