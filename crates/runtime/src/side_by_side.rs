//! Work that the kernel takes long for, done by several threads at a time.

use std::sync::{Mutex, PoisonError};

/// Enough for a system call.
const STACK: usize = 256 << 10;

/// Does something with each item, by up to so many threads, this one among them; items are begun in
/// their order. Gives the results in the order in which they came. Where there can be no more
/// threads, the others do their work.
pub(crate) fn side_by_side<T: Send, R: Send>(
    items: Vec<T>,
    threads: usize,
    each: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let threads = threads.min(items.len());
    let (rest, done) = (Mutex::new(items.into_iter()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let next = rest.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(item) = next else { return };
            let result = each(item);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let builder = std::thread::Builder::new().stack_size(STACK);
            if builder.spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// So many threads can be at work in the kernel.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_once_also_with_few_threads() {
        for threads in [0, 1, 2, 50] {
            for n in [0, 1, 2, 40] {
                let mut done = side_by_side((0..n).collect(), threads, |i: u32| i + 1);
                done.sort_unstable();
                assert_eq!(done, (1..=n).collect::<Vec<_>>(), "{threads}");
            }
        }
    }
}
