//! How often threads moved to another processor, and used the memory of another node.

use spile_profile::model::Thread;

use super::builder::{ProfileBuilder, REUSED};
use crate::rows::Fields;

impl ProfileBuilder {
    /// Takes the number of a thread that ends, or of one that lives, from before its account.
    pub(super) fn moved(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let (key, moves) = (f.integer()?, f.integer()?);
        let thread = self.thread(key);
        match f.flag()? {
            true => drop(self.moved_before.insert(thread, moves)),
            false => self.snapshot.threads.get_mut(thread)?.migrations = Some(moves),
        }
        Some(())
    }

    /// Takes the pages that a thread used on its own node, or on others.
    pub(super) fn node_pages(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let thread = self.thread(f.integer()?);
        let (is_local, count) = (f.flag()?, f.integer::<u64>()?);
        let pages = &mut self.snapshot.threads.get_mut(thread)?.node_pages;
        let pages = pages.get_or_insert_default();
        let of_kind = if is_local {
            &mut pages.local
        } else {
            &mut pages.remote
        };
        *of_kind = of_kind.saturating_add(count);
        Some(())
    }

    /// Completes the numbers: a thread that ended without a row did not move, and `now` gives all moves of
    /// a process's thread that lives.
    pub(crate) fn complete_migrations(&mut self, now: impl Fn(u32, u32) -> Option<u64>) {
        for (index, thread) in self.snapshot.threads.iter_mut().enumerate() {
            let Thread { pid, tid, .. } = *thread;
            thread.migrations = match thread.ended_ns {
                Some(_) => thread.migrations.or(Some(0)),
                None => {
                    let before = self.moved_before.get(&index).copied().unwrap_or(0);
                    now(pid, tid % REUSED).and_then(|now| now.checked_sub(before))
                }
            };
        }
    }
}

/// How often a thread has moved, from the text of its `/proc/PID/task/TID/sched`.
pub(crate) fn migrations_in(sched: &str) -> Option<u64> {
    let line = sched
        .lines()
        .find(|line| line.starts_with("se.nr_migrations"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_comes_from_the_line_of_migrations() {
        let text =
            "app (1, #threads: 1)\n---\nse.load.weight  :  1048576\nse.nr_migrations    :    27\n";
        assert_eq!(migrations_in(text), Some(27));
        assert_eq!(migrations_in("nr_switches : 3\n"), None);
    }
}
