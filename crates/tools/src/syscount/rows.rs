//! Collects the script's rows into reports of groups of calls.

use std::collections::HashMap;

use spile_abi::names;

use spile_runtime::io::rows::Row;

use crate::rows::Fields;

/// Calls of 32-bit programs have their numbers from here on, see `NrSet` of the IR.
const COMPAT: u32 = spile_ir::NrSet::COMPAT;

/// The key of a group; parts that are not used are empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(super) struct GroupKey {
    /// Name of the call.
    pub call: String,
    /// Number of the error, 0 for none.
    pub error: u32,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the process, or of the thread.
    pub comm: String,
}

impl GroupKey {
    /// The error's name; "" for none.
    pub(super) fn error_name(&self) -> String {
        match names::errno_name(self.error) {
            Some(name) => name.to_owned(),
            None if self.error == 0 => String::new(),
            None => self.error.to_string(),
        }
    }
}

/// Number and duration of calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Calls {
    /// Number of calls.
    pub count: u64,
    /// Total time in nanoseconds; 0 if calls are not timed.
    pub total: u64,
    /// Longest time in nanoseconds.
    pub max: u64,
    /// Calls by duration: entry `n` has those below 2^n ns that are in no earlier entry.
    pub buckets: Vec<u64>,
}

impl Calls {
    /// Adds other calls.
    pub(super) fn add(&mut self, other: &Calls) {
        self.count = self.count.saturating_add(other.count);
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.max(other.max);
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (sum, n) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*n);
        }
    }

    /// Mean time of a call in nanoseconds.
    pub(super) fn mean(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }
}

/// The counts between two moments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Report {
    /// Begin of the report, in nanoseconds since counting began.
    pub begin: u64,
    /// End of the report, in nanoseconds since counting began.
    pub end: u64,
    /// Number of calls that were not counted for lack of space, since counting began.
    pub unfit: u64,
    /// Whether it is the last report of the session.
    pub last: bool,
    /// The groups.
    pub rows: HashMap<GroupKey, Calls>,
}

impl Report {
    /// Its length in seconds.
    pub(super) fn seconds(&self) -> f64 {
        (self.end.saturating_sub(self.begin)) as f64 / 1e9
    }

    /// The sum of all groups.
    pub(super) fn sum(&self) -> Calls {
        let mut sum = Calls::default();
        self.rows.values().for_each(|calls| sum.add(calls));
        sum
    }
}

/// Collects rows.
#[derive(Debug, Default)]
pub(super) struct Reader {
    start: u64,
    before: u64,
    open: Report,
    /// The group of the last row, which histogram rows belong to.
    group: GroupKey,
}

impl Reader {
    /// Takes a row; returns the report that it completes.
    pub(super) fn row(&mut self, row: &Row<'_>) -> Result<Option<Report>, String> {
        if let "done" | "last" = row.name {
            self.open.last = row.name == "last";
            return Ok(Some(std::mem::take(&mut self.open)));
        }
        let taken = self.take(row.name, &mut Fields::new(row));
        let wrong = || format!("the script printed {row:?}, which is not a row");
        taken.map(|()| None).ok_or_else(wrong)
    }

    fn take(&mut self, name: &str, f: &mut Fields<'_>) -> Option<()> {
        match name {
            "start" => self.start = f.integer()?,
            "report" => {
                self.open.begin = self.before;
                self.open.end = f.integer::<u64>()?.saturating_sub(self.start);
                self.open.unfit = f.integer()?;
                self.before = self.open.end;
            }
            "row" | "timed" => {
                self.group = GroupKey {
                    call: call_name(f.integer()?),
                    error: f.integer()?,
                    pid: f.integer()?,
                    tid: f.integer()?,
                    comm: f.string()?.into_owned(),
                };
                let mut calls = Calls {
                    count: f.integer()?,
                    ..Calls::default()
                };
                if name == "timed" {
                    (calls.total, calls.max) = (f.ns()?, f.ns()?);
                }
                let group = self.group.clone();
                self.open.rows.entry(group).or_default().add(&calls);
            }
            "bucket" => {
                // The script's buckets of negative times count to that of 0 ns.
                let bucket = f.integer::<i64>()?.saturating_sub(64).clamp(0, 64);
                let bucket = usize::try_from(bucket).ok()?;
                let buckets = &mut self.open.rows.get_mut(&self.group)?.buckets;
                if buckets.len() <= bucket {
                    buckets.resize(bucket + 1, 0);
                }
                buckets[bucket] = buckets[bucket].saturating_add(f.integer()?);
            }
            _ => return None,
        }
        Some(())
    }
}

/// The name of a system call; "" for -1, which stands for all.
fn call_name(nr: i64) -> String {
    let Ok(nr) = u32::try_from(nr) else {
        return String::new();
    };
    let (number, suffix) = match nr.checked_sub(COMPAT) {
        None => (nr, ""),
        Some(number) => (number, " (32-bit)"),
    };
    match spile_syscalls::by_nr(nr) {
        Some(call) => format!("{}{suffix}", call.name),
        None => format!("syscall_{number}{suffix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::with_row;

    fn read(rows: &[&str]) -> Vec<Report> {
        let mut reader = Reader::default();
        let reports = rows.iter().map(|row| with_row(row, |row| reader.row(row)));
        reports.filter_map(Result::unwrap).collect()
    }

    #[test]
    fn reports_follow_each_other() {
        let reports = read(&[
            "start 1000",
            "report 3000 0",
            "row 0 0 0 0 \"\" 5",
            "done",
            "report 7000 2",
            "timed -1 2 7 8 \"a b\" 3 600 400",
            "bucket 71 2",
            "bucket 73 1",
            "last",
        ]);
        assert_eq!((reports[0].begin, reports[0].end), (0, 2000));
        assert_eq!((reports[1].begin, reports[1].end), (2000, 6000));
        assert_eq!(reports[1].unfit, 2);
        assert!(!reports[0].last && reports[1].last);
        let (group, calls) = reports[1].rows.iter().next().unwrap();
        assert_eq!((&*group.call, &*group.comm), ("", "a b"));
        assert_eq!(group.error_name(), "ENOENT");
        assert_eq!((calls.count, calls.mean(), calls.max), (3, 200, 400));
        assert_eq!(calls.buckets, [0, 0, 0, 0, 0, 0, 0, 2, 0, 1]);
        let (group, calls) = reports[0].rows.iter().next().unwrap();
        assert_eq!((&*group.call, calls.count), ("read", 5));
    }

    #[test]
    fn malformed_rows_are_errors() {
        for row in [
            "",
            "row",
            "row x 0 0 0 \"\" 5",
            "row 0 0 0 0 5 5",
            "row 0 0 0 -1 \"\" 5",
            "timed 0 0 0 0 \"\" 5 6",
            "bucket 70 1",
            "report 0",
        ] {
            let taken = with_row(row, |row| Reader::default().row(row));
            assert!(taken.is_err(), "{row}");
        }
    }

    #[test]
    fn calls_have_names_or_numbers() {
        assert_eq!(call_name(1), "write");
        assert_eq!(call_name(-1), "");
        assert_eq!(call_name(1023), "syscall_1023");
        assert_eq!(call_name(1024 + 4), "write (32-bit)");
    }
}
