//! The loss report of a session: errors and losses, by kind. If all counts are zero, the numbers that a
//! script printed are exact.

use spile_ir::Limits;

/// Hits that did not run, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SkippedHits {
    /// Another handler was running on the CPU.
    pub reentrancy: u64,
    /// A lock could not be taken within MAXTRYLOCK attempts.
    pub lock: u64,
    /// The kernel had no memory for an update.
    pub no_memory: u64,
    /// The kernel itself skipped the hit, because the same program was running on the CPU.
    pub kernel_recursion: u64,
    /// Returns of functions that the kernel could not track, because there were too many at a time.
    pub missed_returns: u64,
    /// Hits by the controller's own actions, while it held a lock that they needed. They are not
    /// part of the observed system, and count neither in [`SkippedHits::total`] nor for MAXSKIPPED.
    pub own_actions: u64,
    /// Hits by interrupts and task switches in the controller's thread while it held a lock.
    pub held: u64,
}

impl SkippedHits {
    /// The total of all reasons, without `own_actions` and `held`.
    pub fn total(&self) -> u64 {
        self.by_reason().iter().map(|(n, _)| n).sum()
    }

    /// The counts, each with the name of its reason.
    fn by_reason(&self) -> [(u64, &'static str); 5] {
        [
            (self.lock, "lock timeout"),
            (self.reentrancy, "reentrancy"),
            (self.no_memory, "no memory"),
            (self.kernel_recursion, "kernel recursion"),
            (self.missed_returns, "missed returns"),
        ]
    }
}

/// The counts of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LossReport {
    /// Uncaught errors of handlers.
    pub errors: u64,
    /// Hits that did not run.
    pub skipped: SkippedHits,
    /// Output records that did not fit in the ring buffer.
    pub lost_output: u64,
    /// Lines of output that were not written: the reader was gone, the disk was full, or a second
    /// signal ended the wait.
    pub unwritten: u64,
    /// Strings truncated to their limit.
    pub truncated: u64,
    /// Values of statistics that are wrong or may be, because the sum passed 64 bits.
    pub inexact: u64,
    /// Returns of calls whose values of the entry (`@entry`) were missing, if some were dropped for newer ones.
    pub unseen: u64,
    /// Array elements from several CPUs that together exceeded the array's limit.
    pub overflows: u64,
    /// Strings of user memory that could not be read; the output contains the reason.
    pub unreadable: u64,
    /// Files in user stacks that could not be opened.
    pub unnamed: u64,
    /// User frames that were found without unwind rows, because the rows were not loaded yet.
    pub guessed: u64,
    /// Files in user stacks whose unwind rows did not fit in the kernel's table.
    pub no_rows: u64,
    /// User files whose symbols or lines did not fit in the kernel's table.
    pub no_tables: u64,
    /// Lines of `/tmp/perf-PID.map` that could not be read.
    pub bad_names: u64,
    /// Symbols that handlers looked up in files whose symbols were not loaded.
    pub unknown_symbols: u64,
    /// Stacks deeper than MAXBACKTRACE.
    pub cut_stacks: u64,
    /// Programs that the target's processes executed and in which they have no breakpoints.
    pub unfollowed: u64,
    /// Changes of processes that handlers made in guru mode.
    pub acts: u64,
    /// Records that do not match the layout.
    pub malformed: u64,
    /// Names of locks, with the timeouts of controller handlers.
    pub controller_lock_timeouts: Vec<(String, u64)>,
}

impl LossReport {
    /// Hits that did not run, in kernel and controller together.
    pub fn skipped_total(&self) -> u64 {
        let in_controller = self.controller_lock_timeouts.iter().map(|(_, n)| n);
        self.skipped.total() + in_controller.sum::<u64>()
    }

    /// Counts a controller handler that could not take a lock.
    pub fn controller_missed(&mut self, global: &str) {
        let timeouts = &mut self.controller_lock_timeouts;
        match timeouts.iter_mut().find(|(name, _)| name == global) {
            Some((_, n)) => *n += 1,
            None => timeouts.push((global.to_owned(), 1)),
        }
    }

    /// Whether there is nothing to report.
    pub fn is_clean(&self) -> bool {
        *self == LossReport::default()
    }

    /// Whether the errors exceed MAXERRORS, which ends the session.
    pub fn too_many_errors(&self, limits: &Limits) -> bool {
        self.errors > limits.maxerrors
    }

    /// Whether the skipped hits exceed MAXSKIPPED, which ends the session.
    pub fn too_many_skipped(&self, limits: &Limits) -> bool {
        self.skipped_total() > limits.maxskipped
    }

    /// The text for standard error at the end, empty if there is nothing to report; `details` adds
    /// a line for each reason.
    pub fn text(&self, details: bool) -> String {
        let mut lines = Vec::new();
        let (errors, skipped) = (self.errors, self.skipped_total());
        if errors + skipped > 0 {
            lines.push(format!(
                "Number of errors: {errors}, skipped probes: {skipped}"
            ));
        }
        if details {
            for (name, n) in &self.controller_lock_timeouts {
                lines.push(format!("Skipped due to global '{name}' lock timeout: {n}"));
            }
            let reasons = self.skipped.by_reason().into_iter().filter(|(n, _)| *n > 0);
            lines.extend(reasons.map(|(n, reason)| format!("Skipped due to {reason}: {n}")));
            if self.skipped.own_actions > 0 {
                let n = self.skipped.own_actions;
                lines.push(format!(
                    "Left out, spile's own actions while it held locks: {n}"
                ));
            }
        }
        let rest = [
            (
                self.skipped.held,
                "hits left out on processors where spile's own handlers held their locks",
            ),
            (
                self.lost_output,
                "lost messages; a larger buffer helps: -s MB",
            ),
            (self.unwritten, "lines of output that were not written"),
            (
                self.truncated,
                "strings cut to their limit; see -D MAXSTRINGLEN=N",
            ),
            (
                self.inexact,
                "values of statistics whose sum passed 64 bits, so that @sum, @avg or @variance may be \
                 wrong; smaller values help: `s <<< x / 1000`",
            ),
            (
                self.unseen,
                "returns left out, because there was no space for the values of their entries (@entry): more \
                 calls were open, or were left without a return, than the 8,192 newest",
            ),
            (
                self.overflows,
                "array elements that did not fit; see -D MAXMAPENTRIES=N",
            ),
            (
                self.unreadable,
                "strings of user memory that could not be read; the output says why",
            ),
            (
                self.unnamed,
                "files in stacks of programs that could not be opened",
            ),
            (
                self.guessed,
                "frames of programs in files that were not read yet: such stacks may end early",
            ),
            (
                self.no_rows,
                "files in stacks of programs whose unwind tables did not fit: their frames were \
                 found by frame pointers, and such stacks may end early",
            ),
            (
                self.no_tables,
                "files of programs whose symbols or lines did not fit: handlers got addresses \
                 instead of names",
            ),
            (
                self.bad_names,
                "lines of /tmp/perf-PID.map that are not `START SIZE NAME`: such generated code has no name",
            ),
            (
                self.unknown_symbols,
                "symbols in files that were not read yet: handlers got an address instead of the \
                 name",
            ),
            (
                self.cut_stacks,
                "stacks cut to their limit; see -D MAXBACKTRACE=N",
            ),
            (
                self.unfollowed,
                "programs without breakpoints, because processes of the target executed them with \
                 other rights (set-user-ID, capabilities); `process(\"PATH\")` without -c and -x \
                 sees them",
            ),
            (self.acts, "changes of processes by this script (guru mode)"),
            (
                self.malformed,
                "records that could not be read: a bug in spile, please report it",
            ),
        ];
        let rest = rest.into_iter().filter(|(n, _)| *n > 0);
        lines.extend(rest.map(|(n, what)| format!("There were {n} {what}.")));
        let lines = lines.into_iter();
        lines.map(|line| format!("WARNING: {line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_losses_is_silent() {
        let losses = LossReport::default();
        assert!(losses.is_clean());
        assert_eq!(losses.text(true), "");
    }

    #[test]
    fn totals_and_details_are_printed() {
        let mut losses = LossReport {
            errors: 2,
            lost_output: 7,
            ..LossReport::default()
        };
        losses.skipped.reentrancy = 3;
        losses.skipped.lock = 1;
        losses.controller_missed("x");
        losses.controller_missed("x");
        assert_eq!(losses.skipped_total(), 6);
        assert_eq!(
            losses.text(false),
            "WARNING: Number of errors: 2, skipped probes: 6\n\
             WARNING: There were 7 lost messages; a larger buffer helps: -s MB.\n"
        );
        assert_eq!(
            losses
                .text(true)
                .lines()
                .skip(1)
                .take(3)
                .collect::<Vec<_>>(),
            [
                "WARNING: Skipped due to global 'x' lock timeout: 2",
                "WARNING: Skipped due to lock timeout: 1",
                "WARNING: Skipped due to reentrancy: 3",
            ]
        );
    }

    #[test]
    fn own_hits_are_not_skipped_ones() {
        let mut losses = LossReport::default();
        (losses.skipped.own_actions, losses.skipped.held) = (1000, 0);
        assert_eq!(losses.skipped_total(), 0);
        assert!(!losses.too_many_skipped(&Limits::default()));
        assert_eq!(losses.text(false), "");
        assert_eq!(
            losses.text(true),
            "WARNING: Left out, spile's own actions while it held locks: 1000\n"
        );
        losses.skipped.held = 3;
        assert_eq!(
            losses.text(false),
            "WARNING: There were 3 hits left out on processors where spile's own handlers held \
             their locks.\n"
        );
    }

    #[test]
    fn limits_of_errors_and_skips_are_observed() {
        let limits = Limits::default();
        let mut losses = LossReport {
            errors: 1,
            ..LossReport::default()
        };
        assert!(losses.too_many_errors(&limits));
        losses.skipped.lock = 100;
        assert!(!losses.too_many_skipped(&limits));
        losses.skipped.no_memory = 1;
        assert!(losses.too_many_skipped(&limits));
    }
}
