//! Writes a file that is usable wherever it is cut short.

use std::io::{self, Write};

use serde::Serialize;

use super::row::{AccountEnd, EXTENSION, LossRow};
use crate::model::{Header, RecordingEnd, Snapshot, TimedEvent};

/// Writes one profile, an account at a time. Each call ends in one `write` and a `flush`, so that
/// earlier data is complete whatever happens to the process later. (After a crash of the machine
/// data can be lost: nothing is synced.)
///
/// Each account is complete. The caller takes them while the command runs, at growing intervals so
/// that the file stays small: at 1, 2, 4, 8 ... seconds, and at the end.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    buffer: Vec<u8>,
    accounts: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the first line.
    ///
    /// # Errors
    /// Those of the writer, here and in the other methods.
    pub fn new(to: W, header: &Header) -> io::Result<Writer<W>> {
        let mut writer = Writer {
            to,
            buffer: Vec::new(),
            accounts: 0,
        };
        writer.rows("header", [header])?;
        writer.out()?;
        Ok(writer)
    }

    /// Writes an account, which replaces earlier ones.
    pub fn snapshot(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let lost = snapshot.lost.iter().map(|(what, count)| LossRow {
            what: what.clone(),
            count: *count,
        });
        let rows = self.rows("process", &snapshot.processes)?
            + self.rows("thread", &snapshot.threads)?
            + self.rows("context", &snapshot.contexts)?
            + self.rows("context_time", &snapshot.context_times)?
            + self.rows("call", &snapshot.calls)?
            + self.rows("stack", &snapshot.stacks)?
            + self.rows("sample", &snapshot.samples)?
            + self.rows("event_count", &snapshot.event_counts)?
            + self.rows("waker", &snapshot.wakers)?
            + self.rows("futex", &snapshot.futexes)?
            + self.rows("ends", &snapshot.ends)?
            + self.rows("recorder", [snapshot.recorder])?
            + self.rows("lost", lost)?;
        self.accounts += 1;
        let end = AccountEnd {
            number: self.accounts,
            rows,
            at_ns: snapshot.at_ns,
        };
        self.rows("snapshot", [end])?;
        self.out()
    }

    /// Writes a part of the trace.
    pub fn events(&mut self, events: &[TimedEvent]) -> io::Result<()> {
        self.rows("event", events)?;
        self.out()
    }

    /// Writes the last line, and returns the writer.
    pub fn end(mut self, end: &RecordingEnd) -> io::Result<W> {
        self.rows("end", [end])?;
        self.out()?;
        Ok(self.to)
    }

    /// Adds rows of a kind, of [`super::row::KINDS`], and gives their number.
    fn rows<R: Serialize>(
        &mut self,
        kind: &str,
        rows: impl IntoIterator<Item = R>,
    ) -> io::Result<u64> {
        let mut count = 0;
        for row in rows {
            write!(self.buffer, "{{\"{kind}\":")?;
            serde_json::to_writer(&mut self.buffer, &row)?;
            self.buffer.extend_from_slice(b"}\n");
            count += 1;
        }
        Ok(count)
    }

    fn out(&mut self) -> io::Result<()> {
        let done = self.to.write_all(&self.buffer);
        self.buffer.clear();
        done?;
        self.to.flush()
    }
}

/// The name of a file in a run's folder: `NAME.HOST.RANK.spile`, with the process id if there is no
/// rank. Characters that are not safe in file names become `_`.
pub fn name(name: &str, header: &Header) -> String {
    let mut text = String::new();
    for (part, dot) in [(name, '_'), (&header.host, '.')] {
        text.extend(part.chars().map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '+' => c,
            '.' => dot,
            _ => '_',
        }));
        text.push('.');
    }
    let number = match (&header.rank, header.pid) {
        (Some(rank), _) => format!("{:05}", rank.rank),
        (None, Some(pid)) => pid.to_string(),
        (None, None) => "all".to_owned(),
    };
    text += &format!("{number}.{EXTENSION}");
    text
}
