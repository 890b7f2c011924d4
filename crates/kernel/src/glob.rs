//! Shell-like patterns for the names of probe points: `*`, `?` and `[...]`.

/// Whether a text holds a character that makes it a pattern.
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    memchr::memchr3(b'*', b'?', b'[', text.as_bytes()).is_some()
}

/// Whether `name` as a whole matches the pattern. `[a-c]`, `[!a]` and `[^a]`
/// work as in a shell; a `[` without its `]` stands for itself. Takes time
/// proportional to the product of both lengths at most.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to resume when the last `*` has to swallow one byte more.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
        } else if let Some(used) = one(&pattern[p..], name[n]) {
            p += used;
            n += 1;
        } else if let Some((after, eaten)) = star {
            p = after;
            n = eaten + 1;
            star = Some((after, n));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// Matches one byte against the head of the pattern; says how many bytes of
/// the pattern were used.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => match class(&pattern[1..], byte) {
            Some((true, len)) => Some(1 + len),
            Some((false, _)) => None,
            None => (byte == b'[').then_some(1),
        },
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        c => (c == byte).then_some(1),
    }
}

/// Reads a class behind its `[`: whether `byte` is in it, and its length.
fn class(text: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    let mut at = start;
    let mut hit = false;
    loop {
        let low = *text.get(at)?;
        if low == b']' && at > start {
            return Some((hit != negated, at + 1));
        }
        match (text.get(at + 1), text.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                hit |= (low..=high).contains(&byte);
                at += 3;
            }
            _ => {
                hit |= low == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("sched_*", "sched_switch", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
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
            ("*switch", "sched_switch", true),
            ("*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_a_pattern() {
        assert!(is_pattern("a*") && is_pattern("a?") && is_pattern("[a]"));
        assert!(!is_pattern("sched_switch"));
    }
}
