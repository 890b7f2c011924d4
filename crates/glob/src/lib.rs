//! Patterns of probe points, functions, files and tracepoints: the one matcher of all crates.
//!
//! The rules are those of fnmatch(3), like SystemTap's: `*` matches any text, `?` any byte;
//! `[a-c]`, `[!a]` and `[^a]` are classes; `\` escapes the next character; a `[` without its `]`
//! matches itself. A pattern matches a name as a whole.
//!
//! Names of probe points have components separated by dots ([`matches_point`]): there only `**`
//! matches across a dot.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

/// Maximum length of a pattern: the length of the longest path. Longer patterns match nothing.
const MAX_PATTERN: usize = 4096;

/// Whether a text contains a character that makes it a pattern. An escaped one counts too, because
/// the matcher has to remove the `\`.
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The text that every match begins with.
#[must_use]
pub fn literal_prefix(pattern: &str) -> &str {
    let end = pattern.find(['*', '?', '[', '\\']);
    &pattern[..end.unwrap_or(pattern.len())]
}

/// Whether `name` as a whole matches the pattern. Takes time proportional to the product of both
/// lengths at most.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    run(pattern.as_bytes(), name.as_bytes(), None)
}

/// Like [`matches`], for a dotted name of a probe point: `*`, `?` and classes stop at dots, and
/// `**` does not.
#[must_use]
pub fn matches_point(pattern: &str, point: &str) -> bool {
    run(pattern.as_bytes(), point.as_bytes(), Some(b'.'))
}

/// `separator`: the byte that only `**` and the byte itself match.
fn run(pattern: &[u8], name: &[u8], separator: Option<u8>) -> bool {
    if pattern.len() > MAX_PATTERN {
        return false;
    }
    let (mut p, mut n) = (0, 0);
    // Where to resume when the last `*`, or else the last `**`, has to match one more byte.
    let mut star: Option<(usize, usize)> = None;
    let mut across: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            let stars = pattern[p..].iter().take_while(|&&c| c == b'*').count();
            p += stars;
            if separator.is_none() || stars > 1 {
                (across, star) = (Some((p, n)), None);
            } else {
                star = Some((p, n));
            }
        } else if let Some(used) = match_byte(&pattern[p..], name[n], separator) {
            p += used;
            n += 1;
        } else if let Some((after, eaten)) = star.filter(|&(_, at)| Some(name[at]) != separator) {
            (p, n) = (after, eaten + 1);
            star = Some((p, n));
        } else if let Some((after, eaten)) = across {
            (p, n) = (after, eaten + 1);
            (across, star) = (Some((p, n)), None);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// Matches one byte against the head of the pattern; returns the number of pattern bytes used.
fn match_byte(pattern: &[u8], byte: u8, separator: Option<u8>) -> Option<usize> {
    let free = Some(byte) != separator;
    match *pattern.first()? {
        b'?' => free.then_some(1),
        b'[' => match class(&pattern[1..], byte) {
            Some((true, len)) if free => Some(1 + len),
            Some(_) => None,
            None => (byte == b'[').then_some(1),
        },
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        c => (c == byte).then_some(1),
    }
}

/// Parses a class after its `[`: whether `byte` is in it, and its length.
fn class(text: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    let mut index = start;
    let mut hit = false;
    loop {
        let low = *text.get(index)?;
        if low == b']' && index > start {
            return Some((hit != negated, index + 1));
        }
        match (text.get(index + 1), text.get(index + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                hit |= (low..=high).contains(&byte);
                index += 3;
            }
            _ => {
                hit |= low == byte;
                index += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_names_matches_any_text() {
        for (pattern, name, expected) in [
            ("sched_*", "sched_switch", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("?", "", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("sys_?nter", "sys_enter", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[", "[", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\?*", "a?b", true),
            ("a\\?*", "axb", false),
            ("*switch", "sched_switch", true),
            ("*", "foo.part.0", true),
            ("foo?part?0", "foo.part.0", true),
            ("**x", "a.x", true),
            ("*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_star_in_points_stops_at_a_dot() {
        for (pattern, point, expected) in [
            ("*", "open", true),
            ("*", "open.return", false),
            ("**", "open.return", true),
            ("syscall.*", "syscall.open", true),
            ("syscall.*", "syscall.open.return", false),
            ("syscall.**", "syscall.open.return", true),
            ("**.return", "syscall.open.return", true),
            ("**.*a", "x.b.a", true),
            ("**.*a*", "x.a.b.ca", true),
            ("**.o*.return", "o.x.open.return", true),
            ("a.*b.**", "a.xb.c.d", true),
            ("a.*b.**", "a.x.b.c", false),
            ("*?*", ".", false),
            ("a?b", "a.b", false),
            ("a[.]b", "a.b", false),
            ("a[!x]b", "a.b", false),
            ("*.*", "a.b", true),
            ("*.*", "a.b.c", false),
        ] {
            assert_eq!(matches_point(pattern, point), expected, "{pattern} {point}");
        }
    }

    #[test]
    fn long_patterns_match_nothing() {
        assert!(!matches(&"*".repeat(1 << 20), "a"));
    }

    #[test]
    fn names_with_wildcards_are_patterns() {
        assert!(is_pattern("a*") && is_pattern("a?") && is_pattern("[a]"));
        assert!(!is_pattern("sched_switch"));
        assert_eq!(literal_prefix("sched_*x"), "sched_");
        assert_eq!(literal_prefix("a\\*b*"), "a");
        assert_eq!(literal_prefix("plain"), "plain");
    }
}
