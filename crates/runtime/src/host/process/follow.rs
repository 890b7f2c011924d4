//! Follows the target's processes into the programs that they execute and the libraries that they load. A thread that is
//! about to execute a program, or has mapped code, asks for it and waits; a thread of its own answers. It traces the other
//! until the program is there, and hooks the places in it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use spile_kernel::process::spawn_masked;
use spile_native::requests::{Request, Requests};

use super::target::Target;
use super::targets::Targets;
use crate::error::Error;

/// How long to wait for requests before looking whether the session has ended.
const PATIENCE: Duration = Duration::from_millis(100);

/// The thread that answers requests.
pub(super) struct Follower {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    targets: Arc<Targets>,
    requests: Requests,
    over: AtomicBool,
    /// Records whose requests are answered right now.
    answered: Mutex<HashSet<usize>>,
}

impl Follower {
    /// `None` if there is no thread left: processes then wait for a moment, and are not followed.
    pub(super) fn new(targets: &Arc<Targets>) -> Option<Follower> {
        let shared = Arc::new(Shared {
            targets: Arc::clone(targets),
            requests: targets.image.requests(),
            over: AtomicBool::new(false),
            answered: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let thread = spawn_masked(move || own.answer_all())?;
        Some(Follower {
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        self.shared.requests.interrupt();
        if let Some(thread) = self.thread.take() {
            // A panic of it was printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn answer_all(self: Arc<Self>) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        while !self.is_over() {
            let seen = self.requests.seen();
            for request in self.requests.waiting() {
                if self.begin(request.record) {
                    let own = Arc::clone(&self);
                    threads.extend(spawn_masked(move || own.answer(request)));
                }
            }
            threads.retain(|thread| !thread.is_finished());
            if self.requests.wait(seen, PATIENCE).is_err() {
                break;
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn begin(&self, record: usize) -> bool {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.insert(record)
    }

    /// Lets the thread of a request go on.
    fn end(&self, request: Request) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.requests.release(request.record);
        answered.remove(&request.record);
        drop(answered);
        if !waited {
            self.warn(request.thread, "it did not wait so long");
        }
    }

    /// Answers a request. What this thread traces goes on when it ends.
    fn answer(&self, request: Request) {
        let result = match request.has_mapped {
            true => {
                let result = self.targets.mapped(request.thread);
                self.end(request);
                result
            }
            false => self.follow(request),
        };
        match result {
            Ok(()) | Err(Error::NoProcess(..)) => {}
            Err(Error::Enter(process, why)) => self.warn(process, &why),
            Err(e) => self.warn(request.thread, &e.to_string()),
        }
    }

    fn follow(&self, request: Request) -> Result<(), Error> {
        let followed = spile_inject::follow(request.thread, || self.end(request));
        let process = match followed {
            Ok(Some(process)) => process,
            Ok(None) | Err(spile_inject::Error::Ended) => return Ok(()),
            Err(e) => return Err(Error::Enter(request.thread, e.to_string())),
        };
        let mut target = Target::new(process);
        target.enter(&self.targets, true)?;
        self.targets.add(target)
    }

    fn warn(&self, process: u32, why: &str) {
        let text = format!("process {process} is not followed further: {why}");
        let mut entered = self.targets.entered();
        self.targets.warn(&mut entered, std::iter::once(text));
    }
}
