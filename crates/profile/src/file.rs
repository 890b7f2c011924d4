//! Profile files: JSON Lines. Each line is an object with one key, which is the kind of row.
//!
//! ```text
//! {"header":{"format":"spile-profile","version":1,...}}
//! {"thread":{...}}                   rows of the first account, in any order
//! {"call":{...}}
//! {"snapshot":{"number":1,"rows":2,"at_ns":1000000000}}
//! {"event":{...}}                    trace: stands once, before or between accounts
//! {"thread":{...}}                   the second account, which replaces the first
//! {"call":{...}}
//! {"snapshot":{"number":2,"rows":2,"at_ns":2000000000}}
//! {"end":{"at_ns":2000000000,"status":0}}
//! ```
//!
//! A reader counts rows of unknown kinds as rows of accounts, and skips them. An account counts
//! if its `snapshot` line exists and is preceded by as many rows as it says, so a file that was
//! cut short anywhere still has its last complete account.

mod find;
mod reader;
mod writer;

use serde::{Deserialize, Serialize};

use crate::model::{
    Call, Context, ContextTime, Event, Futex, Header, Ns, Process, Recorder, RecordingEnd, Stack,
    Thread,
};

pub use find::{FoundProfiles, find};
pub use reader::{FileNote, ReadProfile, UnusableFile, read, read_path};
pub use writer::{Writer, name};

/// The extension of file names.
pub const EXTENSION: &str = "spile";

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Row {
    Header(Header),
    Process(Process),
    Thread(Thread),
    Context(Context),
    ContextTime(ContextTime),
    Call(Call),
    Stack(Stack),
    Futex(Futex),
    Recorder(Recorder),
    Lost(LossRow),
    Event(Event),
    Snapshot(AccountEnd),
    End(RecordingEnd),
}

/// The kinds of rows in [`Row`].
const KINDS: [&str; 13] = [
    "header",
    "process",
    "thread",
    "context",
    "context_time",
    "call",
    "stack",
    "futex",
    "recorder",
    "lost",
    "event",
    "snapshot",
    "end",
];

/// A reason of losses, with their number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LossRow {
    what: String,
    count: u64,
}

/// The end of an account.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct AccountEnd {
    number: u64,
    rows: u64,
    at_ns: Ns,
}
