//! Parses the script's rows into reports of groups of calls.

use std::collections::HashMap;

use spile_kernel::names;
use spile_kernel::syscalls::{self, Abi};

use super::super::unquoted;

/// Calls of 32-bit programs have their numbers from here on, see `NrSet` of the IR.
const COMPAT: u32 = spile_ir::NrSet::COMPAT;

/// The key of a group; parts that are not used are empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Group {
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

impl Group {
    /// The error's name; "" for none.
    pub fn error_name(&self) -> String {
        match names::errno_name(self.error) {
            Some(name) => name.to_owned(),
            None if self.error == 0 => String::new(),
            None => self.error.to_string(),
        }
    }
}

/// Number and duration of calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calls {
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
    pub fn add(&mut self, other: &Calls) {
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
    pub fn mean(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }
}

/// The counts between two moments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Begin of the report, in nanoseconds since counting began.
    pub begin: u64,
    /// End of the report, in nanoseconds since counting began.
    pub end: u64,
    /// Number of calls that were not counted for lack of room, since counting began.
    pub unfit: u64,
    /// Whether it is the last report of the session.
    pub last: bool,
    /// The groups.
    pub rows: HashMap<Group, Calls>,
}

impl Report {
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        (self.end.saturating_sub(self.begin)) as f64 / 1e9
    }

    /// The sum of all groups.
    pub fn sum(&self) -> Calls {
        let mut sum = Calls::default();
        self.rows.values().for_each(|calls| sum.add(calls));
        sum
    }
}

/// Parses rows.
#[derive(Debug, Default)]
pub struct Reader {
    start: u64,
    before: u64,
    open: Report,
}

impl Reader {
    /// Parses a line; returns the report that it completes.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<Report>, String> {
        let text = String::from_utf8_lossy(line);
        let wrong = || format!("the script printed `{text}`, which is not a row");
        let fields: Vec<&str> = text.split('\t').collect();
        match fields[..] {
            ["start", at] => {
                self.start = at.parse().map_err(|_| wrong())?;
            }
            ["report", at, unfit] => {
                let at: u64 = at.parse().map_err(|_| wrong())?;
                self.open.begin = self.before;
                self.open.end = at.saturating_sub(self.start);
                self.open.unfit = unfit.parse().map_err(|_| wrong())?;
                self.before = self.open.end;
            }
            ["row", call, error, pid, tid, comm, count, ref times @ ..] => {
                let group = Group {
                    call: call_name(call.parse().map_err(|_| wrong())?),
                    error: error.parse().map_err(|_| wrong())?,
                    pid: pid.parse().map_err(|_| wrong())?,
                    tid: tid.parse().map_err(|_| wrong())?,
                    comm: unquoted(comm).ok_or_else(wrong)?,
                };
                let calls = times_of(count, times).ok_or_else(wrong)?;
                self.open.rows.entry(group).or_default().add(&calls);
            }
            [end @ ("done" | "last")] => {
                self.open.last = end == "last";
                return Ok(Some(std::mem::take(&mut self.open)));
            }
            _ => return Err(wrong()),
        }
        Ok(None)
    }
}

/// The fields after the group.
fn times_of(count: &str, rest: &[&str]) -> Option<Calls> {
    let mut calls = Calls {
        count: count.parse().ok()?,
        ..Calls::default()
    };
    let [total, max, buckets @ ..] = rest else {
        return rest.is_empty().then_some(calls);
    };
    // Clocks of different processors can give a slightly negative time.
    let time = |text: &str| Some(text.parse::<i64>().ok()?.max(0).cast_unsigned());
    (calls.total, calls.max) = (time(total)?, time(max)?);
    for bucket in buckets {
        let (at, n) = bucket.split_once(':')?;
        let at = at.parse::<usize>().ok()?.saturating_sub(64).min(64);
        if calls.buckets.len() <= at {
            calls.buckets.resize(at + 1, 0);
        }
        calls.buckets[at] += n.parse::<u64>().ok()?;
    }
    Some(calls)
}

/// The name of a system call; "" for -1, which stands for all.
fn call_name(nr: i64) -> String {
    let Ok(nr) = u32::try_from(nr) else {
        return String::new();
    };
    let (abi, of, suffix) = match nr.checked_sub(COMPAT) {
        None => (Abi::X86_64, nr, ""),
        Some(nr) => (Abi::I386, nr, " (32-bit)"),
    };
    match syscalls::by_nr(abi, of) {
        Some(call) => format!("{}{suffix}", call.name),
        None => format!("syscall_{of}{suffix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Report> {
        let mut reader = Reader::default();
        let lines = text.lines().map(|l| reader.line(l.as_bytes()));
        lines.filter_map(Result::unwrap).collect()
    }

    #[test]
    fn reports_follow_each_other() {
        let text = "start\t1000\nreport\t3000\t0\nrow\t0\t0\t0\t0\t\"\"\t5\ndone\n\
                    report\t7000\t2\nrow\t-1\t2\t7\t8\t\"a\\tb\"\t3\t600\t400\t71:2\t73:1\nlast";
        let reports = read(text);
        assert_eq!((reports[0].begin, reports[0].end), (0, 2000));
        assert_eq!((reports[1].begin, reports[1].end), (2000, 6000));
        assert_eq!(reports[1].unfit, 2);
        assert!(!reports[0].last && reports[1].last);
        let (group, calls) = reports[1].rows.iter().next().unwrap();
        assert_eq!((&*group.call, &*group.comm), ("", "a\tb"));
        assert_eq!(group.error_name(), "ENOENT");
        assert_eq!((calls.count, calls.mean(), calls.max), (3, 200, 400));
        assert_eq!(calls.buckets, [0, 0, 0, 0, 0, 0, 0, 2, 0, 1]);
        let (group, calls) = reports[0].rows.iter().next().unwrap();
        assert_eq!((&*group.call, calls.count), ("read", 5));
    }

    #[test]
    fn what_is_no_row_is_said() {
        for line in [
            "",
            "row",
            "row\tx\t0\t0\t0\t\"\"\t5",
            "row\t0\t0\t0\t0\t\"\t5",
            "row\t0\t0\t0\t0\t\"\\\"\t5",
            "row\t0\t0\t0\t0\t\"\"\t5\t6",
            "row\t0\t0\t0\t0\t\"\"\t5\t6\t7\t8",
            "report\t0",
        ] {
            assert!(Reader::default().line(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(call_name(1), "write");
        assert_eq!(call_name(-1), "");
        assert_eq!(call_name(1023), "syscall_1023");
        assert_eq!(call_name(1024 + 4), "write (32-bit)");
        assert_eq!(unquoted(r#""a\"\\\001""#).unwrap(), "a\"\\\x01");
    }
}
