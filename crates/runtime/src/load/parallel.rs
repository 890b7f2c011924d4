//! Work that the kernel takes long for, done by several threads at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::thread::sched_getaffinity;
use spile_kernel::process::spawn_masked;

/// Enough for a system call.
const STACK: usize = 256 << 10;

/// What several threads take items from, and where their results go.
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

    /// Takes items until there are none.
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

    fn take(&self) -> Vec<R> {
        std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Does something with each item, by up to so many threads, this one among them; items are begun in
/// their order. Gives the results in the order in which they came. Where there can be no more
/// threads, the others do their work.
pub(crate) fn side_by_side<T: Send, R: Send>(
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
    queue.take()
}

/// What other threads do meanwhile.
pub(crate) struct Begun<T, R> {
    queue: Arc<Queue<T, R>>,
    each: fn(T) -> R,
    threads: Vec<JoinHandle<()>>,
}

/// As [`side_by_side`], by so many other threads until [`Begun::finish`].
pub(crate) fn begin<T: Send + 'static, R: Send + 'static>(
    items: Vec<T>,
    threads: usize,
    each: fn(T) -> R,
) -> Begun<T, R> {
    let threads = threads.min(items.len());
    let queue = Arc::new(Queue::new(items));
    let thread = |_| {
        let queue = Arc::clone(&queue);
        spawn_masked(move || queue.work(each))
    };
    Begun {
        threads: (0..threads).map_while(thread).collect(),
        queue,
        each,
    }
}

impl<T, R> Begun<T, R> {
    /// Helps with what is left, and waits for the others.
    pub(crate) fn finish(self) -> Vec<R> {
        self.queue.work(self.each);
        for thread in self.threads {
            // One that panicked has no result of its item.
            let _ = thread.join();
        }
        self.queue.take()
    }
}

/// So many threads can be at work in the kernel. (The standard library also looks for quotas, in half
/// a dozen files of cgroups.)
pub(crate) fn processors() -> usize {
    sched_getaffinity(None).map_or(1, |own| own.count().max(1) as usize)
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
                let mut done = begin((0..n).collect(), threads, |i: u32| i + 1).finish();
                done.sort_unstable();
                assert_eq!(done, (1..=n).collect::<Vec<_>>(), "{threads}");
            }
        }
    }
}
