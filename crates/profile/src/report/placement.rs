//! The lines about threads that often move to another processor, and that use the memory of another node.

use super::table::paragraph;
use super::units::counted;
use crate::model::{NodePages, Ns, TimePart};
use crate::run::{Entity, Summary};

/// Moves for each second on a processor, and moves in all, from which on the report names a thread: each move costs
/// it the contents of its caches.
const FREQUENT: u128 = 100;

/// Pages that a thread must have used for the report to name it, and the share of those on other nodes in percent.
const PAGES: u64 = 100;
const REMOTE: u64 = 20;

/// All threads, those that only sleep too.
fn all_threads(summary: &Summary) -> impl Iterator<Item = &Entity> + Clone {
    let asleep = summary.asleep.iter().map(|sleeper| &sleeper.unit);
    summary.threads.iter().chain(asleep)
}

/// One line if a thread moved often.
pub(super) fn migrations(summary: &Summary, width: usize) -> String {
    let threads = all_threads(summary);
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

/// One line if much of the memory that a thread used was on other nodes.
pub(super) fn remote_memory(summary: &Summary, width: usize) -> String {
    let found = all_threads(summary).filter_map(|thread| Some((thread, thread.node_pages?)));
    let far = found.filter(|(_, pages)| is_remote(*pages));
    let Some((thread, pages)) = far.max_by_key(|(_, pages)| pages.remote) else {
        return String::new();
    };
    let said = format!(
        "Memory of other nodes: thread {} used {} there, of {} that NUMA balancing looked at",
        thread.title,
        counted(pages.remote, "page"),
        pages.local.saturating_add(pages.remote),
    );
    format!("\n{}", paragraph(&said, "  ", width))
}

fn is_remote(pages: NodePages) -> bool {
    let all = u128::from(pages.local) + u128::from(pages.remote);
    all >= PAGES.into() && u128::from(pages.remote) * 100 >= all * u128::from(REMOTE)
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

    #[test]
    fn memory_of_other_nodes_matters_if_it_is_much() {
        let pages = |local, remote| is_remote(NodePages { local, remote });
        assert!(pages(80, 20));
        assert!(!pages(79, 20));
        assert!(!pages(81, 20));
        assert!(pages(0, u64::MAX));
    }
}
