//! Wildcards in probe points: `*`, `?` and `[...]` within a component, `**` across components.

/// Longer patterns match nothing: no name is that long.
pub const MAX_PATTERN: usize = 512;

/// Whether a text holds a wildcard.
pub fn is_pattern(text: &str) -> bool {
    text.bytes().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// Whether `text` as a whole matches the pattern. With `dots`, `*` stops at dots and `**` does
/// not. Takes time proportional to the product of both lengths at most.
pub fn matches(pattern: &str, text: &str, dots: bool) -> bool {
    let (p, t) = (pattern.as_bytes(), text.as_bytes());
    if p.len() > MAX_PATTERN {
        return false;
    }
    // `reach[i]`: the pattern so far matches the first i bytes.
    let mut reach = vec![false; t.len() + 1];
    reach[0] = true;
    let mut at = 0;
    while at < p.len() {
        let mut next = vec![false; t.len() + 1];
        if p[at] == b'*' {
            let across = !dots || p.get(at + 1) == Some(&b'*');
            let mut open = false;
            for i in 0..=t.len() {
                if i > 0 && t[i - 1] == b'.' && !across {
                    open = false;
                }
                open |= reach[i];
                next[i] = open;
            }
            at += if p.get(at + 1) == Some(&b'*') { 2 } else { 1 };
        } else {
            let used = class_len(&p[at..]).unwrap_or(1);
            for i in 0..t.len() {
                next[i + 1] = reach[i] && one(&p[at..at + used], t[i]);
            }
            at += used;
        }
        reach = next;
    }
    reach[t.len()]
}

/// Length of a class `[...]` at the start, if there is a whole one.
fn class_len(p: &[u8]) -> Option<usize> {
    if p.first() != Some(&b'[') {
        return None;
    }
    let body = 1 + usize::from(matches!(p.get(1), Some(b'!' | b'^')));
    let end = p.get(body + 1..)?.iter().position(|b| *b == b']')?;
    Some(body + end + 2)
}

fn one(p: &[u8], byte: u8) -> bool {
    match p {
        [b'?'] => byte != b'.',
        [b'[', body @ .., b']'] if !body.is_empty() => {
            let negated = matches!(body[0], b'!' | b'^');
            let body = &body[usize::from(negated)..];
            let mut at = 0;
            let mut hit = false;
            while at < body.len() {
                if at + 2 < body.len() && body[at + 1] == b'-' {
                    hit |= (body[at]..=body[at + 2]).contains(&byte);
                    at += 3;
                } else {
                    hit |= body[at] == byte;
                    at += 1;
                }
            }
            hit != negated
        }
        _ => p == [byte],
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn long_patterns_match_nothing() {
        assert!(!matches(&"*".repeat(1 << 20), "a", false));
    }

    #[test]
    fn patterns() {
        for (pattern, text, dots, expected) in [
            ("*", "open", true, true),
            ("*", "open.return", true, false),
            ("**", "open.return", true, true),
            ("syscall.*", "syscall.open", true, true),
            ("syscall.*", "syscall.open.return", true, false),
            ("syscall.**", "syscall.open.return", true, true),
            ("**.return", "syscall.open.return", true, true),
            ("sched_*", "sched_switch", false, true),
            ("a*b*c", "axxbyyc", false, true),
            ("a*b*c", "axxbyy", false, false),
            ("[a-c]x", "bx", false, true),
            ("[!a-c]x", "bx", false, false),
            ("[]]", "]", false, true),
            ("[", "[", false, true),
            ("?", "", false, false),
            ("", "", false, true),
            ("*", "", false, true),
        ] {
            assert_eq!(matches(pattern, text, dots), expected, "{pattern} {text}");
        }
    }
}
