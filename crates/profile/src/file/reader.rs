//! Reads files, including damaged ones.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;
use std::str::FromStr;

use super::row::{AccountEnd, KINDS, Row};
use crate::frames::SharedFrames;
use crate::model::{FORMAT, Header, Profile, Snapshot, TimedEvent, VERSION};

/// Maximum length of a line in bytes; a longer one is damaged.
const LONGEST: u64 = 64 << 20;

/// The result of reading a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadProfile {
    /// The last complete account, and the whole trace.
    pub profile: Profile,
    /// Number of complete accounts.
    pub accounts: u64,
    /// Messages about the file.
    pub notes: Vec<FileNote>,
}

/// The reason why a file could not be used.
#[derive(Debug)]
pub enum UnusableFile {
    /// It cannot be read.
    Io(io::Error),
    /// The file is empty.
    Empty,
    /// It is another kind of file.
    Foreign,
    /// It has the format of another release, with this version.
    Version(u64),
    /// The first line is cut short or damaged.
    Header(String),
}

impl fmt::Display for UnusableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnusableFile::Io(e) => write!(f, "cannot be read: {e}"),
            UnusableFile::Empty => f.write_str("is empty"),
            UnusableFile::Foreign => f.write_str("is not a profile of spile"),
            UnusableFile::Version(version) => write!(
                f,
                "has version {version} of the format; this spile reads version {VERSION}"
            ),
            UnusableFile::Header(why) => write!(f, "has a damaged first line: {why}"),
        }
    }
}

/// A message about a file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileNote {
    /// The last line is missing: the recorder was killed, or is still running. With the number of
    /// complete accounts.
    Truncated(u64),
    /// A malformed line: its number from 1. The account that contains it does not count.
    Damaged(u64),
    /// Number of further damaged lines, beyond those reported one by one.
    MoreDamaged(u64),
    /// An account with missing rows: its number.
    Incomplete(u64),
    /// Rows of a kind that this release does not know, which were skipped: the kind, and their
    /// number.
    Unknown(String, u64),
}

impl fmt::Display for FileNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileNote::Truncated(0) => f.write_str(
                "is truncated before its first complete checkpoint (is the recorder still running?)",
            ),
            FileNote::Truncated(n) => write!(
                f,
                "is truncated (is the recorder still running?); its last complete checkpoint, number {n}, is used"
            ),
            FileNote::Damaged(line) => write!(f, "line {line} is damaged"),
            FileNote::MoreDamaged(n) => write!(f, "{n} more lines are damaged"),
            FileNote::Incomplete(n) => write!(f, "checkpoint {n} lacks rows and is not used"),
            FileNote::Unknown(kind, n) => {
                write!(
                    f,
                    "{n} rows of kind `{kind}`, of a newer spile, are not used"
                )
            }
        }
    }
}

/// Reads a file.
///
/// # Errors
/// See [`UnusableFile`].
pub fn read_path(path: &Path) -> Result<ReadProfile, UnusableFile> {
    read_file(path, true, &mut SharedFrames::default())
}

/// Like [`read_path`], with or without the trace. Files that are read with the same `frames` share
/// them.
pub(super) fn read_file(
    path: &Path,
    trace: bool,
    frames: &mut SharedFrames,
) -> Result<ReadProfile, UnusableFile> {
    let file = spile_plain::files::open(path).map_err(UnusableFile::Io)?;
    read_content(BufReader::with_capacity(1 << 18, file), trace, frames)
}

/// Reads the header of a file.
pub(super) fn read_header(path: &Path) -> Result<Header, UnusableFile> {
    let file = spile_plain::files::open(path).map_err(UnusableFile::Io)?;
    let mut lines = Lines::default();
    let first = lines.next(&mut BufReader::new(file));
    header(
        first
            .map_err(UnusableFile::Io)?
            .ok_or(UnusableFile::Empty)?,
    )
}

/// Reads the content of a file.
///
/// # Errors
/// See [`UnusableFile`]. Damage after the first line is not an error, but a note.
pub fn read(from: impl BufRead) -> Result<ReadProfile, UnusableFile> {
    read_content(from, true, &mut SharedFrames::default())
}

fn read_content(
    mut from: impl BufRead,
    trace: bool,
    frames: &mut SharedFrames,
) -> Result<ReadProfile, UnusableFile> {
    let mut lines = Lines::default();
    let first = lines
        .next(&mut from)
        .map_err(UnusableFile::Io)?
        .ok_or(UnusableFile::Empty)?;
    let mut reading = ReaderState {
        number: 1,
        trace,
        ..ReaderState::default()
    };
    reading.out.profile.header = header(first)?;
    loop {
        match lines.next(&mut from) {
            Ok(Some(line)) => reading.line(line, frames),
            Ok(None) => break,
            // The rest is unreadable, as if the file ended here.
            Err(_) => {
                reading.number += 1;
                reading.damaged();
                break;
            }
        }
    }
    Ok(reading.finish())
}

fn header(line: &[u8]) -> Result<Header, UnusableFile> {
    // The version comes first: another one may have other fields.
    let value: serde_json::Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(e) if line.starts_with(b"{\"header\"") => {
            return Err(UnusableFile::Header(e.to_string()));
        }
        Err(_) => return Err(UnusableFile::Foreign),
    };
    let header = &value["header"];
    if header["format"] != FORMAT {
        return Err(UnusableFile::Foreign);
    }
    match header["version"].as_u64() {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => return Err(UnusableFile::Version(version)),
        None => return Err(UnusableFile::Header("no version".to_owned())),
    }
    match serde_json::from_value(value) {
        Ok(Row::Header(header)) => Ok(header),
        Ok(_) => Err(UnusableFile::Foreign),
        Err(e) => Err(UnusableFile::Header(e.to_string())),
    }
}

/// Lines of bytes with a maximum length.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    fn next(&mut self, from: &mut impl BufRead) -> io::Result<Option<&[u8]>> {
        self.buffer.clear();
        let n = from.take(LONGEST).read_until(b'\n', &mut self.buffer)?;
        if n == 0 {
            return Ok(None);
        }
        let line = self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer);
        Ok(Some(line))
    }
}

/// Number of damaged lines that are reported one by one.
const TOLD: u64 = 3;

#[derive(Default)]
struct ReaderState {
    out: ReadProfile,
    /// The number of the current line, from 1.
    number: u64,
    /// Whether events are kept.
    trace: bool,
    /// The account that is being read, with its rows.
    next: Snapshot,
    rows: u64,
    spoilt: bool,
    damaged: u64,
    /// The last line was damaged; it may only be cut short.
    last_damaged: bool,
    unknown: std::collections::BTreeMap<String, u64>,
}

impl ReaderState {
    fn line(&mut self, line: &[u8], frames: &mut SharedFrames) {
        self.number += 1;
        self.last_damaged = false;
        match row(line) {
            Ok(row) => self.row(row, frames),
            Err(_) => match unknown(line) {
                Some(kind) => {
                    *self.unknown.entry(kind).or_default() += 1;
                    self.rows += 1;
                }
                None => self.damaged(),
            },
        }
    }

    fn damaged(&mut self) {
        self.damaged += 1;
        if self.damaged <= TOLD {
            self.out.notes.push(FileNote::Damaged(self.number));
        }
        self.spoilt = true;
        self.last_damaged = true;
    }

    fn row(&mut self, row: Row, frames: &mut SharedFrames) {
        let next = &mut self.next;
        match row {
            Row::Process(row) => next.processes.push(row),
            Row::Thread(row) => next.threads.push(row),
            Row::Context(row) => next.contexts.push(row),
            Row::ContextTime(row) => next.context_times.push(row),
            Row::Call(row) => next.calls.push(row),
            Row::Stack(mut row) => {
                frames.share(&mut row.frames);
                next.stacks.push(row);
            }
            Row::Sample(mut row) => {
                frames.share(&mut row.frames);
                frames.share(&mut row.kernel);
                next.samples.push(row);
            }
            Row::EventCount(mut row) => {
                frames.share(&mut row.frames);
                frames.share(&mut row.kernel);
                next.event_counts.push(row);
            }
            Row::Waker(mut row) => {
                frames.share(&mut row.frames);
                next.wakers.push(row);
            }
            Row::Futex(row) => next.futexes.push(row),
            Row::Ends(mut row) => {
                let waits = [&mut row.begin, &mut row.end].into_iter().flatten();
                waits.for_each(|wait| frames.share(&mut wait.frames));
                next.ends.push(row);
            }
            Row::Recorder(row) => next.recorder = row,
            Row::Lost(row) => {
                let count = next.lost.entry(row.what).or_default();
                *count = count.saturating_add(row.count);
            }
            Row::Event(row) => {
                if self.trace {
                    self.out.profile.events.push(row);
                }
                return;
            }
            Row::Snapshot(mark) => return self.account(mark),
            Row::End(end) => {
                self.out.profile.end = Some(end);
                return;
            }
            // A second file was appended: its rows are not of this run.
            Row::Header(_) => {
                self.spoilt = true;
                return;
            }
        }
        self.rows += 1;
    }

    fn account(&mut self, mark: AccountEnd) {
        let mut account = std::mem::take(&mut self.next);
        let rows = std::mem::take(&mut self.rows);
        if std::mem::take(&mut self.spoilt) || rows != mark.rows {
            self.out.notes.push(FileNote::Incomplete(mark.number));
            return;
        }
        account.at_ns = mark.at_ns;
        self.out.profile.data = account;
        self.out.accounts += 1;
    }

    fn finish(mut self) -> ReadProfile {
        let notes = &mut self.out.notes;
        // An incomplete last line is reported as a truncated file.
        if self.out.profile.end.is_none() && self.last_damaged {
            self.damaged -= 1;
            if self.damaged < TOLD {
                notes.pop();
            }
        }
        if self.damaged > TOLD {
            notes.push(FileNote::MoreDamaged(self.damaged - TOLD));
        }
        if self.out.profile.end.is_none() {
            notes.push(FileNote::Truncated(self.out.accounts));
        }
        let unknown = self.unknown.into_iter();
        notes.extend(unknown.map(|(kind, n)| FileNote::Unknown(kind, n)));
        self.out
    }
}

/// Parses a row. Names in it come from other programs, and the file can come from anybody, so
/// characters that affect a terminal are escaped.
fn row(line: &[u8]) -> serde_json::Result<Row> {
    // Only an escape or a non-ASCII character can affect a terminal.
    if line.is_ascii() && !line.contains(&b'\\') && !line.contains(&0x7f) {
        return match event(line) {
            Some(event) => Ok(Row::Event(event)),
            None => serde_json::from_slice(line),
        };
    }
    let mut value = serde_json::from_slice(line)?;
    escape_names(&mut value);
    serde_json::from_value(value)
}

/// Parses an event as [`super::Writer`] writes it, which is most lines of a trace, in a fraction of the time
/// of other JSON. `None` for any other line.
fn event(line: &[u8]) -> Option<TimedEvent> {
    let mut rest = std::str::from_utf8(line).ok()?;
    let mut event = TimedEvent {
        tid: number(&mut rest, "{\"event\":{\"tid\":")?,
        context: number(&mut rest, ",\"context\":")?,
        ..TimedEvent::default()
    };
    let name = rest.strip_prefix(",\"call\":\"")?;
    let (name, mut rest) = name.split_once('"')?;
    if name.contains(|c: char| c.is_control()) {
        return None;
    }
    event.call = name.to_owned();
    event.start_ns = number(&mut rest, ",\"start_ns\":")?;
    event.end_ns = number(&mut rest, ",\"end_ns\":")?;
    event.ret = number(&mut rest, ",\"ret\":")?;
    if let Some(end) = rest.strip_prefix(",\"open\":true") {
        (event.open, rest) = (true, end);
    }
    const WAKER: &str = ",\"waker\":";
    if rest.starts_with(WAKER) {
        event.waker = Some(number(&mut rest, WAKER)?);
    }
    (rest == "}}").then_some(event)
}

/// The number after `before`, which it takes from `text`; only one that JSON allows.
fn number<N: FromStr>(text: &mut &str, before: &str) -> Option<N> {
    let rest = text.strip_prefix(before)?;
    let digits = rest.strip_prefix('-').unwrap_or(rest);
    let end = rest.find([',', '}'])?;
    let zero = digits.starts_with('0') && end > 1;
    if zero || !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (number, behind) = rest.split_at(end);
    *text = behind;
    number.parse().ok()
}

fn escape_names(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::String(text) => {
            if let std::borrow::Cow::Owned(plain) = spile_plain::name(text) {
                *text = plain;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(escape_names),
        Value::Object(fields) => fields.values_mut().for_each(escape_names),
        _ => {}
    }
}

/// The kind of a complete row of an unknown kind.
fn unknown(line: &[u8]) -> Option<String> {
    let value: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(line).ok()?;
    let (kind, _) = value.into_iter().next()?;
    (!KINDS.contains(&kind.as_str())).then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that the fast path takes, and lines that it leaves to the parser of JSON.
    #[test]
    fn events_are_those_of_the_parser() {
        let start = r#"{"event":{"tid":7,"context":0,"call":"read","#;
        for (end, fast) in [
            (
                r#""start_ns":1,"end_ns":18446744073709551615,"ret":-11}}"#,
                true,
            ),
            (r#""start_ns":1,"end_ns":2,"ret":0,"open":true}}"#, true),
            (r#""start_ns":1,"end_ns":2,"ret":0,"open":false}}"#, false),
            (r#""start_ns":1,"end_ns":2,"ret":0,"waker":8}}"#, true),
            (
                r#""start_ns":1,"end_ns":2,"ret":0,"open":true,"waker":8}}"#,
                true,
            ),
            (r#""start_ns":1,"end_ns":2,"ret":0,"waker":null}}"#, false),
            (
                r#""start_ns":1,"end_ns":2,"ret":0,"waker":4294967296}}"#,
                false,
            ),
            (r#""start_ns":1,"end_ns":2,"ret":-0}}"#, false),
            (r#""start_ns":1,"end_ns":2}}"#, false),
            (r#""start_ns":1, "end_ns":2,"ret":0}}"#, false),
            (r#""start_ns":01,"end_ns":2,"ret":0}}"#, false),
            (r#""start_ns":+1,"end_ns":2,"ret":0}}"#, false),
            (r#""start_ns":-1,"end_ns":2,"ret":0}}"#, false),
            (r#""start_ns":1.5,"end_ns":2,"ret":0}}"#, false),
            (
                r#""start_ns":18446744073709551616,"end_ns":2,"ret":0}}"#,
                false,
            ),
            (r#""start_ns":1,"end_ns":2,"ret":0}"#, false),
            (r#""start_ns":1,"end_ns":2,"ret":0}},"#, false),
            ("", false),
        ] {
            let line = format!("{start}{end}");
            let found = event(line.as_bytes());
            assert_eq!(found.is_some(), fast, "{line}");
            if let Some(found) = found {
                let row: Row = serde_json::from_str(&line).expect("JSON");
                assert_eq!(row, Row::Event(found), "{line}");
            }
        }
    }
}
