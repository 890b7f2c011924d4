//! Which names a file of the tapset defines, found without parsing it: `build.rs` writes that down,
//! with what other files each needs, so that only those that a script needs are parsed.
//!
//! It counts on the form that `spile fmt` gives files: definitions begin at the beginning of a line.

/// The words of a text: what can be names, in comments and strings too.
pub fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| !b.is_ascii_alphanumeric() && *b != b'_')
        .filter(|w| w.first().is_some_and(|b| !b.is_ascii_digit()))
}

/// The names that a file defines: functions, globals and macros; of aliases the first component.
/// Words of a global's first value may be among them.
// For the build script only.
#[allow(dead_code)]
pub fn defined(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let line = rest.lines().next().unwrap_or_default();
        let item = line.strip_prefix("private ").unwrap_or(line);
        if let Some(function) = item.strip_prefix("function ") {
            names.extend(first(function));
        } else if let Some(define) = item.strip_prefix("@define ") {
            names.extend(first(define));
        } else if let Some(globals) = item.strip_prefix("global ") {
            names.extend(words(globals.as_bytes()).filter_map(|w| std::str::from_utf8(w).ok()));
        } else if let Some(points) = rest.strip_prefix("probe ") {
            // An alias has `=` before its body, a probe has not.
            let head = points.split('{').next().unwrap_or_default();
            if let Some((aliases, _)) = head.split_once('=') {
                names.extend(aliases.split(',').filter_map(first));
            }
        }
        rest = rest[line.len()..].trim_start_matches(['\r', '\n']);
    }
    names.sort_unstable();
    names.dedup();
    names
}

fn first(text: &str) -> Option<&str> {
    let word = words(text.as_bytes()).next()?;
    std::str::from_utf8(word).ok()
}
