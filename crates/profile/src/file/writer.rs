//! Writes a file that is usable wherever it is cut short.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::row::{AccountEnd, EXTENSION, LossRow, Row};
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
        writer.row(&Row::Header(header.clone()))?;
        writer.out()?;
        Ok(writer)
    }

    /// Writes an account, which replaces earlier ones.
    pub fn snapshot(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let mut rows = 0;
        let lost = snapshot.lost.iter().map(|(what, count)| LossRow {
            what: what.clone(),
            count: *count,
        });
        let account = (snapshot.processes.iter().cloned().map(Row::Process))
            .chain(snapshot.threads.iter().cloned().map(Row::Thread))
            .chain(snapshot.contexts.iter().cloned().map(Row::Context))
            .chain(snapshot.context_times.iter().cloned().map(Row::ContextTime))
            .chain(snapshot.calls.iter().cloned().map(Row::Call))
            .chain(snapshot.stacks.iter().cloned().map(Row::Stack))
            .chain(snapshot.samples.iter().cloned().map(Row::Sample))
            .chain(snapshot.wakers.iter().cloned().map(Row::Waker))
            .chain(snapshot.futexes.iter().cloned().map(Row::Futex))
            .chain([Row::Recorder(snapshot.recorder)])
            .chain(lost.map(Row::Lost));
        for row in account {
            self.row(&row)?;
            rows += 1;
        }
        self.accounts += 1;
        self.row(&Row::Snapshot(AccountEnd {
            number: self.accounts,
            rows,
            at_ns: snapshot.at_ns,
        }))?;
        self.out()
    }

    /// Writes a part of the trace.
    pub fn events(&mut self, events: &[TimedEvent]) -> io::Result<()> {
        /// Like [`Row::Event`], without a copy of the event.
        #[derive(serde::Serialize)]
        struct BorrowedEvent<'a> {
            event: &'a TimedEvent,
        }
        for event in events {
            serde_json::to_writer(&mut self.buffer, &BorrowedEvent { event })?;
            self.buffer.push(b'\n');
        }
        self.out()
    }

    /// Writes the last line, and returns the writer.
    pub fn end(mut self, end: &RecordingEnd) -> io::Result<W> {
        self.row(&Row::End(end.clone()))?;
        self.out()?;
        Ok(self.to)
    }

    fn row(&mut self, row: &Row) -> io::Result<()> {
        serde_json::to_writer(&mut self.buffer, row)?;
        self.buffer.push(b'\n');
        Ok(())
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
    // Writing to a String cannot fail.
    let _ = write!(text, "{number}.{EXTENSION}");
    text
}
