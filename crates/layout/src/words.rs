//! Words of the state memory through which the session, handlers and the controller talk.

/// Word offsets (in bytes) in the shared area that every object has.
pub mod shared {
    /// Nonzero while handlers may run; the loader sets it when the `begin` probes are done.
    pub const RUNNING: u32 = 0;
    /// Low bit: the generation that handlers write per-CPU deltas to.
    pub const GENERATION: u32 = 8;
    /// The result of `target()`, a process number.
    pub const TARGET: u32 = 16;
    /// Wall clock minus monotonic clock in nanoseconds; the controller updates it.
    pub const CLOCK_OFFSET: u32 = 24;
    /// Seconds west of UTC.
    pub const TZ_OFFSET: u32 = 32;
    /// 16 bytes: the zone's abbreviation.
    pub const TZ_NAME: u32 = 40;
    /// Set to 1 by `exit()`, and by an error when MAXERRORS is used up.
    pub const EXIT: u32 = 56;
    /// Number of errors so far in kernel handlers (atomic).
    pub const ERRORS: u32 = 64;
    /// The last insertion sequence number (atomic).
    pub const SEQ: u32 = 72;
    /// Address of the first `struct page`; 0 if the loader could not determine it.
    pub const PAGES: u32 = 80;
    /// Address of the kernel's direct map.
    pub const MEMORY: u32 = 88;
    /// 16 characters and a NUL: the word that marks a string for the controller to read; see
    /// [`crate::RecordKind::Deferred`]. Empty if it reads none.
    pub const MARK: u32 = 96;
    /// Always 0, but unknown to the kernel's verifier, which would follow every path once for each known
    /// number.
    pub const ZERO: u32 = 120;
    /// Flags with which handlers send records: 0, or [`NO_WAKEUP`] while the controller rests.
    pub const WAKE: u32 = 128;
    /// New records do not wake the controller. The kernel's ring buffer has the same flag.
    pub const NO_WAKEUP: u64 = 1;
    /// Programs that processes of the target executed and in which they have no breakpoints, because
    /// the kernel took their perf events away (atomic).
    pub const UNFOLLOWED: u32 = 136;
    /// First free word. Locks and shared scalars follow; they change often, and start on a cache
    /// line of their own.
    pub const END: u32 = 192;
}

/// Offsets of the words of [`crate::stack_words`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackWords {
    /// Offset in the shared area.
    pub offset: u32,
    /// The tracepoints, in order.
    pub points: Vec<String>,
    /// Whether kernel stacks are taken.
    pub kernel: bool,
    /// Whether user stacks are unwound, and not only addresses looked up.
    pub rows: bool,
    /// Offset in the shared area of the last file number, if user stacks are taken.
    pub files: Option<u32>,
    /// Whether kernel handlers look up user symbols themselves.
    pub symbols: bool,
    /// Whether they look up positions in the source.
    pub lines: bool,
}

/// Bytes of the sequence number at the start of a value.
pub const SEQUENCE: u32 = 8;
/// The value that a handler writes into a lock. The controller's values have more than 32 bits.
pub const HELD: i32 = 1;
/// Bytes of the bits of the target's descendants, one bit for each possible process number
/// (`PID_MAX_LIMIT` of 64-bit kernels).
pub const TREE_BYTES: u32 = (4 << 20) / 8;
/// Word offsets (in bytes) in each per-CPU area that every object has.
pub mod percpu {
    /// Nonzero while a handler runs on this CPU; in some objects its number plus one. All bits are
    /// set in the controller's critical section.
    pub const BUSY: u32 = 0;
    /// Hits turned away because a handler was running on this CPU.
    pub const SKIP_REENTRANT: u32 = 8;
    /// Hits turned away because a lock could not be taken.
    pub const SKIP_LOCK: u32 = 16;
    /// Ring-buffer records that did not fit.
    pub const LOST_OUTPUT: u32 = 24;
    /// Strings truncated to their limit.
    pub const TRUNCATED: u32 = 32;
    /// Updates that failed because the kernel had no memory.
    pub const NO_MEMORY: u32 = 40;
    /// Strings of user memory whose read was deferred to the controller.
    pub const DEFERRED: u32 = 48;
    /// User frames that were found by frame pointers, because the rows of their file were not
    /// loaded.
    pub const GUESSED: u32 = 56;
    /// Stacks deeper than MAXBACKTRACE.
    pub const CUT_STACKS: u32 = 64;
    /// Hits that the controller's own actions caused while it held a lock that they needed.
    pub const SKIP_OWN: u32 = 72;
    /// The same for events of interrupts and task switches, some of which are not the controller's
    /// own.
    pub const SKIP_HELD: u32 = 80;
    /// Symbols that handlers looked up in files whose symbols were not loaded.
    pub const UNNAMED: u32 = 88;
    /// First free word: handler counters follow.
    pub const END: u32 = 96;
}

/// Counters of one handler in each per-CPU area, as word offsets from its [`crate::HandlerInfo::counters`].
/// `TIME_*` are used only if run times are recorded (`-t`).
pub mod counters {
    /// Hits that ran (not the ones turned away).
    pub const HITS: u32 = 0;
    /// Sum of run times, nanoseconds.
    pub const TIME_SUM: u32 = 8;
    /// Shortest run time, nanoseconds; 0 without hits.
    pub const TIME_MIN: u32 = 16;
    /// Longest run time, nanoseconds.
    pub const TIME_MAX: u32 = 24;
    /// Sum of squares of run times.
    pub const TIME_SQ: u32 = 32;
    /// Bytes of a handler's counters.
    pub const SIZE: u32 = 40;
}
