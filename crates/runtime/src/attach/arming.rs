//! Progress of work on many locations, which a request to end the session interrupts.
//!
//! The kernel needs 0.02 to 5 ms for a location, by the number of processes that have mapped its file,
//! and no signal interrupts it there. The work is therefore done in parts, which are sized by the
//! time that they take.

use std::io::{IsTerminal, Write};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::machine::parallel::in_parallel;
use crate::machine::signals::Signals;

/// Work that takes less than this shows no progress.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval of progress messages.
const INTERVAL: Duration = Duration::from_millis(200);

/// Progress of work, shown on a terminal if it takes long.
pub(crate) struct Progress {
    /// What is done, and of what there are many.
    what: (&'static str, &'static str),
    /// Whether messages are shown.
    visible: bool,
    total: AtomicUsize,
    done: AtomicUsize,
    since: Instant,
    /// The time of the last message.
    shown: Mutex<Option<Instant>>,
}

impl Progress {
    /// Work that begins now.
    pub(crate) fn new(action: &'static str, items: &'static str, total: usize) -> Progress {
        Progress {
            what: (action, items),
            visible: std::io::stderr().is_terminal(),
            total: AtomicUsize::new(total),
            done: AtomicUsize::new(0),
            since: Instant::now(),
            shown: Mutex::new(None),
        }
    }

    /// Notes that some more is done.
    pub(crate) fn advance(&self, more: usize) {
        let done = self.done.fetch_add(more, Ordering::Relaxed) + more;
        let now = Instant::now();
        let Ok(mut shown) = self.shown.lock() else {
            return;
        };
        let due = now - self.since >= PATIENCE && shown.is_none_or(|t| now - t >= INTERVAL);
        if self.visible && due {
            *shown = Some(now);
            let ((action, items), total) = (self.what, self.total.load(Ordering::Relaxed));
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(std::io::stderr(), "\r{action}: {done} of {total} {items}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.lock().is_ok_and(|shown| shown.is_some()) {
            // Clears the line.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Attaching to locations, which signals end.
pub(crate) struct Arming {
    progress: Progress,
    /// `None` for work that does not end early.
    signals: Option<Rc<Signals>>,
}

impl Arming {
    /// Work that begins now.
    pub(crate) fn new(signals: Option<Rc<Signals>>) -> Arming {
        Arming {
            progress: Progress::new("attaching", "locations", 0),
            signals,
        }
    }

    /// Adds locations to the work.
    pub(crate) fn add(&self, locations: usize) {
        self.progress.total.fetch_add(locations, Ordering::Relaxed);
    }

    /// Notes that locations are done.
    pub(crate) fn advance(&self, locations: usize) {
        self.progress.advance(locations);
    }

    /// Whether the work goes on.
    ///
    /// # Errors
    /// [`Error::Stopped`] after a request to end the session.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Some(signals) = &self.signals else {
            return Ok(());
        };
        signals.poll();
        match signals.end_requested() {
            true => Err(Error::Stopped {
                done: self.progress.done.load(Ordering::Relaxed),
                total: self.progress.total.load(Ordering::Relaxed),
            }),
            false => Ok(()),
        }
    }
}

/// The size of parts, from the time that they take.
pub(crate) struct PartSize(usize);

impl PartSize {
    /// A part should take this time: a few of them are the delay after a signal.
    const AIM: Duration = Duration::from_millis(100);
    const FIRST: usize = 32;
    const LEAST: usize = 4;
    const MOST: usize = 512;

    /// The size of the first part.
    pub(crate) fn first() -> PartSize {
        PartSize(PartSize::FIRST)
    }

    /// Number of locations in the next part.
    pub(crate) fn get(&self) -> usize {
        self.0
    }

    /// Learns that a part of this many locations took a time. Sizes at most double, because a part says
    /// little about the next one.
    pub(crate) fn learn(&mut self, locations: usize, took: Duration) {
        let ns = took.as_nanos().max(1);
        let fits = locations as u128 * PartSize::AIM.as_nanos() / ns;
        let fits = usize::try_from(fits).unwrap_or(usize::MAX);
        self.0 = fits.min(2 * self.0).clamp(PartSize::LEAST, PartSize::MOST);
    }
}

/// Drops values whose release blocks in the kernel: it waits until no processor runs the attached
/// program, 30 to 80 ms for user code. Threads that wait at the same time share one wait.
pub(crate) fn close_all<T: Send>(values: Vec<T>, closers: usize, progress: &Progress) {
    in_parallel(values, closers, |one| {
        drop(one);
        progress.advance(1);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_long_as_their_time_allows() {
        let mut size = PartSize::first();
        for _ in 0..9 {
            size.learn(size.get(), Duration::from_micros(10));
        }
        assert_eq!(size.get(), PartSize::MOST);
        size.learn(512, Duration::from_millis(1000));
        assert_eq!(size.get(), 51);
        size.learn(51, Duration::from_secs(60));
        assert_eq!(size.get(), PartSize::LEAST);
        size.learn(4, Duration::from_millis(10));
        assert_eq!(size.get(), 8);
    }

    #[test]
    fn a_request_to_end_stops_the_work() {
        let signals = Rc::new(Signals::new().expect("signals"));
        let arming = Arming::new(Some(Rc::clone(&signals)));
        arming.add(10);
        arming.advance(3);
        assert!(arming.check().is_ok());
        signals.request_end();
        let stopped = arming.check().expect_err("a request");
        assert!(matches!(stopped, Error::Stopped { done: 3, total: 10 }));
    }
}
