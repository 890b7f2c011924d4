//! Threads that hardly ran, a paragraph for those that did the same.

use super::table::paragraph;
use crate::quiet::QuietThread;

/// Number of threads that are named.
const NAMED: usize = 4;

/// The paragraphs of at most `top` places, those of most threads first.
pub(super) fn quiet(threads: &[QuietThread], width: usize, top: usize) -> String {
    let mut places: Vec<(String, Vec<&str>)> = Vec::new();
    for thread in threads {
        let sentence = thread.sentence();
        match places.iter_mut().find(|(place, _)| *place == sentence) {
            Some((_, titles)) => titles.push(&thread.title),
            None => places.push((sentence, vec![&thread.title])),
        }
    }
    if places.is_empty() {
        return String::new();
    }
    places.sort_by_key(|(_, titles)| std::cmp::Reverse(titles.len()));
    let mut out = "\nThreads that hardly ran\n".to_owned();
    for (sentence, titles) in places.iter().take(top) {
        let named = titles[..titles.len().min(NAMED)].join(", ");
        let more = match titles.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        out += &paragraph(&format!("{named}{more}: {sentence}"), "  ", width);
    }
    match places.len().saturating_sub(top) {
        0 => out,
        n => out + &format!("and {n} more\n"),
    }
}
