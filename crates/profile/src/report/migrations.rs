//! The line about threads that often move to another processor.

use super::table::paragraph;
use super::units::counted;
use crate::model::{Ns, TimePart};
use crate::run::{Entity, Summary};

/// Moves for each second on a processor, and moves in all, from which on the report names a thread: each move costs
/// it the contents of its caches.
const FREQUENT: u128 = 100;

/// One line if a thread moved often.
pub(super) fn migrations(summary: &Summary, width: usize) -> String {
    let asleep = summary.asleep.iter().map(|sleeper| &sleeper.unit);
    let threads = summary.threads.iter().chain(asleep);
    let of = |thread: &Entity| thread.migrations.unwrap_or(0);
    let all = threads
        .clone()
        .fold(0, |sum: u64, thread| sum.saturating_add(of(thread)));
    let often = threads.filter(|thread| is_frequent(of(thread), on_a_cpu(thread)));
    let Some(thread) = often.max_by_key(|thread| of(thread)) else {
        return String::new();
    };
    let moves = of(thread);
    let second = u128::from(moves) * 1_000_000_000 / u128::from(on_a_cpu(thread).max(1));
    let said = format!(
        "Threads moved to another processor {}: thread {} {moves} times, {second} for each second that it ran",
        counted(all, "time"),
        thread.title,
    );
    format!("\n{}", paragraph(&said, "  ", width))
}

fn on_a_cpu(thread: &Entity) -> Ns {
    let on = TimePart::ALL.iter().filter(|part| part.on_a_cpu());
    on.fold(0, |sum, part| sum.saturating_add(thread.sum.part(*part)))
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
