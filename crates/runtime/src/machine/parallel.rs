//! Runs slow system calls and long computations in several threads.

use std::iter::Enumerate;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, available_parallelism};

use rustix::thread::sched_getaffinity;
use spile_kernel::process::spawn_masked;

/// Stack size in bytes; enough for a system call.
const STACK: usize = 256 << 10;
/// Stack size of threads that compute: that of the standard library.
const LARGE_STACK: usize = 2 << 20;

/// The queue from which threads take items, and the location for results.
struct Queue<T, R> {
    rest: Mutex<Enumerate<std::vec::IntoIter<T>>>,
    done: Mutex<Vec<(usize, R)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T, R> Queue<T, R> {
    fn new(items: Vec<T>) -> Queue<T, R> {
        Queue {
            rest: Mutex::new(items.into_iter().enumerate()),
            done: Mutex::new(Vec::new()),
        }
    }

    /// Processes items until the queue is empty.
    fn work(&self, each: impl Fn(T) -> R) {
        loop {
            let next = locked(&self.rest).next();
            let Some((index, item)) = next else { return };
            let result = each(item);
            locked(&self.done).push((index, result));
        }
    }

    /// The results in the order of their items.
    fn results(&self) -> Vec<R> {
        let mut results = std::mem::take(&mut *locked(&self.done));
        results.sort_unstable_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Works with up to `threads` threads, including this one.
    fn share(&self, threads: usize, stack: usize, each: impl Fn(T) -> R + Sync)
    where
        T: Send,
        R: Send,
    {
        std::thread::scope(|scope| {
            for _ in 1..threads {
                let builder = std::thread::Builder::new().stack_size(stack);
                if builder.spawn_scoped(scope, || self.work(&each)).is_err() {
                    break;
                }
            }
            self.work(&each);
        });
    }
}

/// Makes a system call for each item with up to `threads` threads, including this one. Items start in order, and
/// results are returned in the order of the items. If threads cannot be created, the existing ones
/// do the work.
pub(crate) fn in_parallel<T: Send, R: Send>(
    items: Vec<T>,
    threads: usize,
    each: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let threads = threads.min(items.len());
    let queue = Queue::new(items);
    queue.share(threads, STACK, each);
    queue.results()
}

/// Computes a result for each item as [`in_parallel`] does, on up to as many processors as this process may use.
pub(crate) fn compute<T: Send, R: Send>(
    items: Vec<T>,
    most: usize,
    each: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let threads = match items.len().min(most) {
        0 | 1 => 1,
        most => available_parallelism().map_or(1, NonZero::get).min(most),
    };
    let queue = Queue::new(items);
    queue.share(threads, LARGE_STACK, each);
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
    sched_getaffinity(None).map_or(1, |allowed| allowed.count().max(1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_done_once_by_any_number_of_threads() {
        for threads in [0, 1, 2, 50] {
            for n in [0, 1, 2, 40] {
                let done = in_parallel((0..n).collect(), threads, |i: u32| i + 1);
                assert_eq!(done, (1..=n).collect::<Vec<_>>(), "{threads}");
                let done = begin((0..n).collect(), threads, |i: u32| i + 1).finish();
                assert_eq!(done, (1..=n).collect::<Vec<_>>(), "{threads}");
            }
        }
    }
}
