//! Names of error numbers and of signals, from data. All processors have the generic numbers.

use std::borrow::Cow;
use std::sync::LazyLock;

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

static ERRORS: LazyLock<NameTable> = LazyLock::new(|| parse(ERRNO));
static SIGNAL_NAMES: LazyLock<NameTable> = LazyLock::new(|| parse(SIGNALS));

fn parse(text: &'static str) -> NameTable {
    text.lines()
        .filter_map(|line| {
            let (number, name) = line.split_once('\t')?;
            Some((number.parse().ok()?, name))
        })
        .collect()
}

fn name_in(table: &NameTable, number: u32) -> Option<&'static str> {
    let row = table.iter().find(|row| row.0 == number);
    row.map(|row| row.1)
}

/// The name of a positive error number, such as `ENOENT` for 2; numbers from [`KERNEL_ERRORS`] on are the
/// kernel's own (`ERESTARTSYS`).
#[must_use]
pub fn errno_name(errno: u32) -> Option<&'static str> {
    name_in(&ERRORS, errno)
}

/// All error numbers and names, synonyms last.
pub fn all_errors() -> impl Iterator<Item = (u32, &'static str)> {
    ERRORS.iter().copied()
}

/// The name of a signal: `SIGKILL`, `SIGRTMIN`, `SIGRTMIN+3`, `SIGRTMAX`;
/// `None` for 0 and above 64.
#[must_use]
pub fn signal_name(signal: u32) -> Option<Cow<'static, str>> {
    match signal {
        SIGRTMIN => Some("SIGRTMIN".into()),
        SIGRTMAX => Some("SIGRTMAX".into()),
        33..64 => Some(format!("SIGRTMIN+{}", signal - SIGRTMIN).into()),
        _ => name_in(&SIGNAL_NAMES, signal).map(Cow::Borrowed),
    }
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
        let number = |name| {
            all_errors()
                .find(|(_, n)| *n == name)
                .map(|(number, _)| number)
        };
        assert_eq!(number("EWOULDBLOCK"), Some(11));
        assert_eq!(number("EHWPOISON"), Some(133));
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
        assert!((1..=64).all(|n| signal_name(n).is_some()));
    }
}
