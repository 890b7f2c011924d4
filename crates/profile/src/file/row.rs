//! The rows of profile files.

use serde::{Deserialize, Serialize};

use crate::model::{
    BothEnds, CallTotals, Context, ContextTime, EventCount, Futex, Header, Ns, Process,
    RecorderCost, RecordingEnd, Sample, Stack, Thread, TimedEvent, Waker,
};

/// The extension of file names.
pub const EXTENSION: &str = "spile";

/// A line.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Row {
    Header(Header),
    Process(Process),
    Thread(Thread),
    Context(Context),
    ContextTime(ContextTime),
    Call(CallTotals),
    Stack(Stack),
    Sample(Sample),
    EventCount(EventCount),
    Waker(Waker),
    Futex(Futex),
    Ends(BothEnds),
    Recorder(RecorderCost),
    Lost(LossRow),
    Event(TimedEvent),
    Snapshot(AccountEnd),
    End(RecordingEnd),
}

/// The kinds of rows in [`Row`].
pub(super) const KINDS: [&str; 17] = [
    "header",
    "process",
    "thread",
    "context",
    "context_time",
    "call",
    "stack",
    "sample",
    "event_count",
    "waker",
    "futex",
    "ends",
    "recorder",
    "lost",
    "event",
    "snapshot",
    "end",
];

/// A reason of losses, with their number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LossRow {
    pub(super) what: String,
    pub(super) count: u64,
}

/// The end of an account.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct AccountEnd {
    pub(super) number: u64,
    pub(super) rows: u64,
    pub(super) at_ns: Ns,
}
