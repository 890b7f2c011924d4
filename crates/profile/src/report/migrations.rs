//! The line about threads that often move to another processor.

use super::table::paragraph;
use super::units::counted;
use crate::model::{Ns, Thread, thread_title};
use crate::run::Run;
use crate::sleeping_threads::on_a_cpu;

/// Moves for each second on a processor, and moves in all, from which on the report names a thread: each move costs
/// it the contents of its caches.
const FREQUENT: u128 = 100;

/// One line if a thread moved often.
pub(super) fn migrations(run: &Run, width: usize) -> String {
    let threads = run
        .profiles
        .iter()
        .flat_map(|p| p.data.threads.iter().map(move |thread| (p, thread)));
    let of = |thread: &Thread| thread.migrations.unwrap_or(0);
    let all = threads
        .clone()
        .fold(0, |sum: u64, (_, t)| sum.saturating_add(of(t)));
    let often = threads.filter(|(_, thread)| is_frequent(of(thread), on_a_cpu(thread)));
    let Some((profile, thread)) = often.max_by_key(|(_, thread)| of(thread)) else {
        return String::new();
    };
    let moves = of(thread);
    let second = u128::from(moves) * 1_000_000_000 / u128::from(on_a_cpu(thread).max(1));
    let rank = match run.profiles.len() {
        1 => String::new(),
        _ => format!(" of {}", profile.title()),
    };
    let said = format!(
        "Threads moved to another processor {}: thread {}{rank} {moves} times, {second} for each second that it ran",
        counted(all, "time"),
        thread_title(thread.tid, Some(thread)),
    );
    format!("\n{}", paragraph(&said, "  ", width))
}

fn is_frequent(moves: u64, ran: Ns) -> bool {
    let moves = u128::from(moves);
    moves >= FREQUENT && moves * 1_000_000_000 >= FREQUENT * u128::from(ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_matter_if_they_are_frequent() {
        assert!(is_frequent(100, 1_000_000_000));
        assert!(!is_frequent(99, 1));
        assert!(!is_frequent(100, 1_000_000_001));
        assert!(is_frequent(u64::MAX, u64::MAX));
    }
}
