//! Tells the event loop that records wait. A process wakes its reader by a futex, which no event loop can wait for, so a
//! thread does, and writes to a descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use spile_kernel::process::spawn_masked;
use spile_native::ring::SharedRing;

/// How long the thread waits before it looks whether the session has ended.
const PATIENCE: Duration = Duration::from_millis(100);

/// The thread, and the descriptor that it writes.
pub(super) struct Wakeup {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    ready: OwnedFd,
    /// Whether the session has seen that records wait, but not yet taken all of them.
    told: AtomicBool,
    over: AtomicBool,
}

impl Wakeup {
    /// Waits for records of a ring.
    ///
    /// # Errors
    /// There is no descriptor or thread left.
    pub(super) fn new(ring: SharedRing) -> io::Result<Wakeup> {
        let shared = Arc::new(Shared {
            ready: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            told: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = spawn_masked(move || own.tell(&ring))
            .ok_or_else(|| io::Error::from(io::ErrorKind::WouldBlock))?;
        Ok(Wakeup { shared, thread })
    }

    /// The descriptor.
    pub(super) fn readiness(&self) -> BorrowedFd<'_> {
        self.shared.ready.as_fd()
    }

    /// All records were taken.
    pub(super) fn taken(&self) {
        // It may be empty.
        let _ = rustix::io::read(&self.shared.ready, &mut [0; 8]);
        self.shared.told.store(false, Ordering::Release);
        self.unpark();
    }

    fn unpark(&self) {
        self.thread.thread().unpark();
    }
}

impl Shared {
    fn tell(&self, ring: &SharedRing) {
        while !self.over.load(Ordering::Acquire) {
            if self.told.load(Ordering::Acquire) {
                std::thread::park_timeout(PATIENCE);
            } else if ring.wait(PATIENCE).unwrap_or(false) {
                self.told.store(true, Ordering::Release);
                let _ = rustix::io::write(&self.ready, &1u64.to_ne_bytes());
            }
        }
    }
}

/// The thread ends a little later; nobody waits for it.
impl Drop for Wakeup {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        self.unpark();
    }
}
