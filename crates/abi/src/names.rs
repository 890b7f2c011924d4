//! Names of error numbers and of signals, from data. All processors have the generic numbers.

use std::borrow::Cow;
use std::sync::OnceLock;

const ERRNO: &str = include_str!("../data/errno.tsv");
const SIGNALS: &str = include_str!("../data/signals.tsv");

/// The first real-time signal by the kernel's numbers.
pub const SIGRTMIN: u32 = 32;
/// The last real-time signal.
pub const SIGRTMAX: u32 = 64;

/// The first error number that stays within the kernel: programs never see it, and the C library has no
/// description.
pub const KERNEL_ERRORS: u32 = 512;

type NameTable = Vec<(u32, &'static str)>;

fn errors() -> &'static NameTable {
    static TABLE: OnceLock<NameTable> = OnceLock::new();
    TABLE.get_or_init(|| parse(ERRNO))
}

fn signals() -> &'static NameTable {
    static TABLE: OnceLock<NameTable> = OnceLock::new();
    TABLE.get_or_init(|| parse(SIGNALS))
}

fn parse(text: &'static str) -> NameTable {
    text.lines()
        .filter_map(|line| {
            let (number, name) = line.split_once('\t')?;
            Some((number.parse().ok()?, name))
        })
        .collect()
}

fn name_in(table: &NameTable, number: u32) -> Option<&'static str> {
    table
        .iter()
        .find(|entry| entry.0 == number)
        .map(|entry| entry.1)
}

fn number_in(table: &NameTable, name: &str) -> Option<u32> {
    table
        .iter()
        .find(|entry| entry.1 == name)
        .map(|entry| entry.0)
}

/// The name of a positive error number, such as `ENOENT` for 2; numbers from [`KERNEL_ERRORS`] on are the
/// kernel's own (`ERESTARTSYS`).
#[must_use]
pub fn errno_name(errno: u32) -> Option<&'static str> {
    name_in(errors(), errno)
}

/// The number of an error by name; synonyms (`EWOULDBLOCK`) too.
#[must_use]
pub fn errno_number(name: &str) -> Option<u32> {
    number_in(errors(), name)
}

/// All error numbers and names, synonyms last.
pub fn all_errors() -> impl Iterator<Item = (u32, &'static str)> {
    errors().iter().copied()
}

/// The name of a signal: `SIGKILL`, `SIGRTMIN`, `SIGRTMIN+3`, `SIGRTMAX`;
/// `None` for 0 and above 64.
#[must_use]
pub fn signal_name(signal: u32) -> Option<Cow<'static, str>> {
    match signal {
        SIGRTMIN => Some("SIGRTMIN".into()),
        SIGRTMAX => Some("SIGRTMAX".into()),
        33..64 => Some(format!("SIGRTMIN+{}", signal - SIGRTMIN).into()),
        _ => name_in(signals(), signal).map(Cow::Borrowed),
    }
}

/// The number of a signal by name, with or without its `SIG`; synonyms
/// (`SIGIOT`) and `SIGRTMIN+N` too.
#[must_use]
pub fn signal_number(name: &str) -> Option<u32> {
    let bare = name.strip_prefix("SIG").unwrap_or(name);
    if bare == "RTMAX" {
        return Some(SIGRTMAX);
    }
    if let Some(rest) = bare.strip_prefix("RTMIN") {
        let above: u32 = match rest.strip_prefix('+') {
            Some(number) => number.parse().ok()?,
            None if rest.is_empty() => 0,
            None => return None,
        };
        return (above <= SIGRTMAX - SIGRTMIN).then(|| SIGRTMIN + above);
    }
    signals()
        .iter()
        .find(|entry| &entry.1[3..] == bare)
        .map(|entry| entry.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_by_number_and_name() {
        assert_eq!(errno_name(2), Some("ENOENT"));
        assert_eq!(errno_name(11), Some("EAGAIN"));
        assert_eq!(errno_name(35), Some("EDEADLK"));
        assert_eq!(errno_name(512), Some("ERESTARTSYS"));
        assert_eq!(errno_name(0), None);
        assert_eq!(errno_number("EWOULDBLOCK"), Some(11));
        assert_eq!(errno_number("EHWPOISON"), Some(133));
        // 41 and 58 were never assigned.
        let missing: Vec<u32> = (1..=133).filter(|&n| errno_name(n).is_none()).collect();
        assert_eq!(missing, [41, 58]);
        assert_eq!(all_errors().count(), ERRNO.lines().count() - 1);
    }

    #[test]
    fn signals_by_number_and_name() {
        assert_eq!(signal_name(9).as_deref(), Some("SIGKILL"));
        assert_eq!(signal_name(6).as_deref(), Some("SIGABRT"));
        assert_eq!(signal_name(32).as_deref(), Some("SIGRTMIN"));
        assert_eq!(signal_name(34).as_deref(), Some("SIGRTMIN+2"));
        assert_eq!(signal_name(64).as_deref(), Some("SIGRTMAX"));
        assert_eq!((signal_name(0), signal_name(65)), (None, None));
        assert_eq!(signal_number("SIGCHLD"), Some(17));
        assert_eq!(signal_number("TERM"), Some(15));
        assert_eq!(signal_number("SIGRTMIN+2"), Some(34));
        assert_eq!(signal_number("SIGRTMIN+99"), None);
        assert_eq!(signal_number("NOSUCH"), None);
        for n in 1..=64 {
            let name = signal_name(n).expect("named");
            assert_eq!(signal_number(&name), Some(n), "{name}");
        }
    }
}
