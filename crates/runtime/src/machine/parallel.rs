//! Runs slow system calls in several threads.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::thread::sched_getaffinity;
use spile_kernel::process::spawn_masked;

/// Stack size in bytes; enough for a system call.
const STACK: usize = 256 << 10;

/// The queue from which threads take items, and the location for results.
struct Queue<T, R> {
    rest: Mutex<std::vec::IntoIter<T>>,
    done: Mutex<Vec<R>>,
}

impl<T, R> Queue<T, R> {
    fn new(items: Vec<T>) -> Queue<T, R> {
        Queue {
            rest: Mutex::new(items.into_iter()),
            done: Mutex::new(Vec::new()),
        }
    }

    /// Processes items until the queue is empty.
    fn work(&self, each: impl Fn(T) -> R) {
        loop {
            let next = self
                .rest
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .next();
            let Some(item) = next else { return };
            let result = each(item);
            self.done
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(result);
        }
    }

    fn results(&self) -> Vec<R> {
        std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Processes each item with up to `threads` threads, including this one. Items start in order, and
/// results are returned in the order of the items. If threads cannot be created, the existing ones
/// do the work.
pub(crate) fn in_parallel<T: Send, R: Send>(
    items: Vec<T>,
    threads: usize,
    each: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let threads = threads.min(items.len());
    let queue = Queue::new(items);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let builder = std::thread::Builder::new().stack_size(STACK);
            if builder.spawn_scoped(scope, || queue.work(&each)).is_err() {
                break;
            }
        }
        queue.work(&each);
    });
    queue.results()
}

/// Items that other threads are processing.
pub(crate) struct Pending<T, R> {
    queue: Arc<Queue<T, R>>,
    each: fn(T) -> R,
    threads: Vec<JoinHandle<()>>,
}

/// Starts to process items in other threads, as [`in_parallel`] does, until [`Pending::finish`].
pub(crate) fn begin<T: Send + 'static, R: Send + 'static>(
    items: Vec<T>,
    threads: usize,
    each: fn(T) -> R,
) -> Pending<T, R> {
    let threads = threads.min(items.len());
    let queue = Arc::new(Queue::new(items));
    let thread = |_| {
        let queue = Arc::clone(&queue);
        spawn_masked(move || queue.work(each))
    };
    Pending {
        threads: (0..threads).map_while(thread).collect(),
        queue,
        each,
    }
}

impl<T, R> Pending<T, R> {
    /// Helps with the items that are left, and waits for the other threads.
    pub(crate) fn finish(self) -> Vec<R> {
        self.queue.work(self.each);
        for thread in self.threads {
            // The item of a thread that panicked has no result.
            let _ = thread.join();
        }
        self.queue.results()
    }
}

/// The number of threads that can work in the kernel at a time. The standard library's function
/// also reads half a dozen cgroup files for quotas.
pub(crate) fn processors() -> usize {
    sched_getaffinity(None).map_or(1, |own| own.count().max(1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_done_once_by_any_number_of_threads() {
        for threads in [0, 1, 2, 50] {
            for n in [0, 1, 2, 40] {
                let mut done = in_parallel((0..n).collect(), threads, |i: u32| i + 1);
                done.sort_unstable();
                assert_eq!(done, (1..=n).collect::<Vec<_>>(), "{threads}");
                let mut done = begin((0..n).collect(), threads, |i: u32| i + 1).finish();
                done.sort_unstable();
                assert_eq!(done, (1..=n).collect::<Vec<_>>(), "{threads}");
            }
        }
    }
}
