//! The order of versions.

use std::cmp::Ordering;

/// The order of version texts, that of glibc's `strverscmp`: at the first difference runs of digits
/// compare by value, but runs that begin with 0 as fractions; everything else by bytes.
pub(super) fn version_order(l: &[u8], r: &[u8]) -> Ordering {
    let same = l.iter().zip(r).take_while(|(a, b)| a == b).count();
    let digits = |s: &[u8]| s.iter().take_while(|b| b.is_ascii_digit()).count();
    // The start of the run of digits with the difference.
    let run = l[..same].iter().rev().take_while(|b| b.is_ascii_digit());
    let start = same - run.count();
    let whole = |s: &[u8]| matches!(s.get(start), Some(b'1'..=b'9'));
    let bytes = |s: &[u8]| s.get(same).copied();
    if whole(l) && whole(r) {
        let by_length = digits(&l[same..]).cmp(&digits(&r[same..]));
        return by_length.then_with(|| bytes(l).cmp(&bytes(r)));
    }
    let zeros = start < same && l[start..same].iter().all(|b| *b == b'0');
    let digit = |s: &[u8]| bytes(s).is_some_and(|b| b.is_ascii_digit());
    match (digit(l), digit(r)) {
        // More leading zeros make a smaller fraction: `1.00` < `1.01` < `1.0`.
        (true, false) if zeros => Ordering::Less,
        (false, true) if zeros => Ordering::Greater,
        _ => bytes(l).cmp(&bytes(r)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_by_strverscmp() {
        let less = |a: &str, b: &str| version_order(a.as_bytes(), b.as_bytes()).is_lt();
        assert!(less("2.6.9", "2.6.24"));
        assert!(less("2.6.24", "6.1.0"));
        assert!(less("5.6", "5.6.1"));
        assert!(!less("6.12.0", "6.9"));
        // The order that glibc documents for `strverscmp`.
        let order = ["000", "00", "01", "010", "09", "0", "1", "9", "10"];
        for (i, a) in order.iter().enumerate() {
            for (j, b) in order.iter().enumerate() {
                assert_eq!(
                    version_order(a.as_bytes(), b.as_bytes()),
                    i.cmp(&j),
                    "{a} {b}"
                );
            }
        }
    }
}
