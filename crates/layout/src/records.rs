//! Records that handlers send: output, errors, and requests to the controller.

use spile_cast::Cast;
use spile_ir::{FormatId, GlobalId, HandlerId, Program, SiteId, Ty, interp};

/// The shape of an output record: one piece of a ring-buffer record.
#[derive(Debug, Clone)]
pub struct RecordShape {
    /// The format, or the kind of message.
    pub what: RecordKind,
    /// Types of the fields in order. A number takes 8 bytes; a string takes 8 bytes of length
    /// (without the NUL), then its bytes, padded with arbitrary bytes to a multiple of 8.
    pub fields: Vec<Ty>,
    /// Number of words behind the fields: the buckets of a histogram.
    pub words: u32,
}

impl RecordShape {
    /// A shape without words behind the fields.
    pub fn new(what: RecordKind, fields: Vec<Ty>) -> RecordShape {
        RecordShape {
            what,
            fields,
            words: 0,
        }
    }
}

/// The meaning of an output record.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordKind {
    /// `print`: render the format with the fields.
    Print {
        /// Where the text goes.
        stream: spile_ir::Stream,
        /// The format to render.
        fmt: FormatId,
    },
    /// A string of user memory for the controller to read. Eight numbers: the read's number; the
    /// address; the largest length; a [`Quote`]; and the process, as the address of its
    /// `task_struct`, thread id, `start_boottime` and `self_exec_id`. In later records of the same
    /// CPU a mark stands for the string: the word at [`shared::MARK`], the read's number in hex and
    /// a semicolon.
    Deferred,
    /// A file that a stack unwind met for the first time. Six numbers: the file's number, a process
    /// that has it mapped, start and end of the mapping, device, inode. Then [`FILE_NAMES`] times
    /// [`FILE_NAME`] bytes: the names of its path, innermost first, NUL-terminated; an empty name
    /// ends them.
    File,
    /// A process called `execve`. Two numbers: the process, and the time on the monotonic clock.
    Executed,
    /// The rest of a user stack that a handler could not unwind: its words are pages.
    Copy,
    /// `print(@hist_log(x))`: the words are the buckets of this histogram.
    Hist(spile_ir::Hist),
    /// An uncaught error; for its fields see [`ErrorKind`].
    Error {
        /// The kind of error.
        kind: ErrorKind,
        /// The position in the script.
        site: SiteId,
        /// The handler that failed.
        handler: HandlerId,
    },
    /// An uncaught error that passed through calls. Fields: index into `kinds`, site, number of
    /// callers, [`spile_ir::MAX_CALLERS`] of them (innermost first), the kind's number, the kind's
    /// text.
    Rethrown {
        /// The kinds that the error can have.
        kinds: Vec<ErrorKind>,
        /// The handler that failed.
        handler: HandlerId,
    },
}

/// In the quoting field of a deferred read, the bits from this one on hold the number plus one of
/// the constant to print if the memory cannot be read; 0 for none.
pub const SUBSTITUTE_SHIFT: u32 = 8;

/// How a string of user memory is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quote {
    /// Unchanged.
    No,
    /// Unprintable bytes escaped.
    Escaped,
    /// Escaped and in quotes.
    Quoted,
}

/// The lowest error number (`MAX_ERRNO`), negated.
pub const LOWEST_ERROR: i32 = -4095;

/// The message of [`ErrorKind::Decision`].
pub const DECISION: &str =
    "a decision is 0 (allowed) or a negative error number down to -4095 (denied)";

/// The message of a handler with too many statements.
pub const MAXACTION: &str = "MAXACTION exceeded";
/// The message of calls that nest too deeply.
pub const MAXNESTING: &str = "MAXNESTING exceeded";

/// Errors of kernel handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// `division by 0`
    DivisionByZero,
    /// `empty aggregate`
    EmptyAggregate,
    /// `Array overflow, check MAXMAPENTRIES`; for aggregates `aggregation overflow in X`
    Overflow(GlobalId),
    /// `histogram index out of range`
    HistIndex,
    /// `read fault at 0x...`: one field, the address
    ReadFault,
    /// `kernel string copy fault at 0x...`: one field, the address
    KernelStrFault,
    /// `user string copy fault at 0x...`: one field, the address
    UserStrFault,
    /// `error("...")`: one field, the text
    Raised,
    /// `MAXACTION exceeded`
    MaxAction,
    /// `MAXNESTING exceeded`
    MaxNesting,
    /// `the counter cannot be read`
    Counter,
    /// `a packet can be dropped (0) or accepted (1)`
    Verdict,
    /// A decision that the kernel does not take.
    Decision,
    /// `write fault at 0x...`: one field, the address
    WriteFault,
    /// `the signal cannot be sent`
    Signal,
}

impl ErrorKind {
    /// The type of the value that an error of this kind carries, if any. `max_string` is the size in bytes of the
    /// longest string.
    pub fn field(self, max_string: u32) -> Option<Ty> {
        match self {
            ErrorKind::ReadFault
            | ErrorKind::WriteFault
            | ErrorKind::KernelStrFault
            | ErrorKind::UserStrFault => Some(Ty::Long),
            ErrorKind::Raised => Some(Ty::Str(max_string.fit())),
            _ => None,
        }
    }

    /// The message, up to the digits of an address; empty if it is the string that the error carries.
    pub fn message(self, program: &Program) -> String {
        let text = match self {
            ErrorKind::DivisionByZero => "division by 0",
            ErrorKind::EmptyAggregate => "empty aggregate",
            ErrorKind::HistIndex => "histogram index out of range",
            ErrorKind::ReadFault => "read fault at 0x",
            ErrorKind::WriteFault => "write fault at 0x",
            ErrorKind::Signal => "the signal cannot be sent",
            ErrorKind::KernelStrFault => "kernel string copy fault at 0x",
            ErrorKind::UserStrFault => "user string copy fault at 0x",
            ErrorKind::MaxAction => MAXACTION,
            ErrorKind::MaxNesting => MAXNESTING,
            ErrorKind::Counter => "the counter cannot be read",
            ErrorKind::Decision => DECISION,
            ErrorKind::Verdict => "a packet can be dropped (0) or accepted (1)",
            ErrorKind::Raised => "",
            ErrorKind::Overflow(g) => match program.globals.get(g.index()) {
                Some(global) => return interp::overflow(global),
                None => interp::ARRAY_OVERFLOW,
            },
        };
        text.to_owned()
    }
}

/// # A record in the ring buffer
/// One record holds all that one run of a handler sent:
/// ```text
/// u32 handler id | u32 bytes in use (this header included) | pieces...
/// piece: u64 index into Layout::records | fields
/// ```
/// A record can be longer than its pieces; readers stop at "bytes in use".
pub struct RingRecord;
