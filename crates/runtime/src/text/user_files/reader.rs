//! Reads files of programs beside the event loop: the tables of one with 100,000 symbols take longer than
//! output and timers can wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use spile_debuginfo::Module;

use super::names::Tables;
use super::packed;

/// A file that is to be read.
pub struct Job {
    /// Its number.
    pub number: u64,
    /// Device and inode.
    pub key: (u64, u64),
    /// Its path.
    pub path: String,
    /// The file; none where it could not be opened.
    pub module: Option<Arc<Module>>,
    /// What is wanted of it.
    pub wanted: Wanted,
}

/// What kernel handlers look up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Unwind rows.
    pub rows: bool,
    /// Symbols, and lines.
    pub names: Option<bool>,
}

/// What was read of a file.
pub struct Contents {
    /// The file's number.
    pub number: u64,
    /// Device and inode.
    pub key: (u64, u64),
    /// Its unwind rows; none if these are only its tables.
    pub rows: Option<Vec<u64>>,
    /// Its symbols.
    pub tables: Option<Tables>,
}

impl Job {
    /// Reads its unwind rows.
    pub fn rows(&self) -> Contents {
        let module = self.module.as_deref();
        let walked = module.filter(|_| self.wanted.rows);
        Contents {
            number: self.number,
            key: self.key,
            rows: Some(walked.map(packed).unwrap_or_default()),
            tables: None,
        }
    }

    /// Reads its tables, if they are wanted.
    fn tables(&self) -> Option<Contents> {
        let lines = self.wanted.names?;
        Some(Contents {
            number: self.number,
            key: self.key,
            rows: None,
            tables: Some(Tables::of(&self.path, self.module.as_deref(), lines)),
        })
    }

    /// Reads all of it.
    pub fn read(&self) -> Contents {
        Contents {
            tables: self.tables().and_then(|c| c.tables),
            ..self.rows()
        }
    }
}

/// Reads several at once; in their order.
pub fn read_all(jobs: Vec<Job>) -> Vec<Contents> {
    let threads = thread::available_parallelism().map_or(1, Into::into);
    let threads = threads.min(jobs.len());
    let todo = Mutex::new(jobs.into_iter().enumerate());
    let work = || {
        let mut done = Vec::new();
        loop {
            let next = todo.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((at, job)) = next else { return done };
            done.push((at, job.read()));
        }
    };
    let mut all = thread::scope(|scope| {
        let more =
            (1..threads).filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok());
        let more: Vec<_> = more.collect();
        let mut all = work();
        all.extend(more.into_iter().filter_map(|t| t.join().ok()).flatten());
        all
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, read)| read).collect()
}

/// The thread that reads, and the way to it and back.
pub struct Reader {
    jobs: Option<Sender<Job>>,
    done: Option<Receiver<Contents>>,
    /// Readable when something was read.
    ready: Arc<OwnedFd>,
}

impl Reader {
    /// One whose thread begins with the first job.
    pub fn new() -> io::Result<Reader> {
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Reader {
            jobs: None,
            done: None,
            ready: Arc::new(ready),
        })
    }

    /// What is readable when something was read.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Has a file read; gives it back where there is no thread.
    pub fn read(&mut self, job: Job) -> Option<Job> {
        if self.jobs.is_none()
            && let Err(_refused) = self.start()
        {
            return Some(job);
        }
        match &self.jobs {
            Some(jobs) => jobs.send(job).err().map(|e| e.0),
            None => Some(job),
        }
    }

    fn start(&mut self) -> io::Result<()> {
        let (jobs, todo) = channel::<Job>();
        let (give, done) = channel();
        let ready = Arc::clone(&self.ready);
        // It ends when the session drops its end, after the file that it reads.
        thread::Builder::new()
            .name("spile files".into())
            .spawn(move || {
                for job in todo {
                    // Rows first: they are there sooner, and stacks wait for them.
                    let rows = std::iter::once_with(|| Some(job.rows()));
                    let tables = std::iter::once_with(|| job.tables());
                    for read in rows.chain(tables).flatten() {
                        if give.send(read).is_err() {
                            return;
                        }
                        let _ = rustix::io::write(&ready, &1u64.to_ne_bytes());
                    }
                }
            })?;
        (self.jobs, self.done) = (Some(jobs), Some(done));
        Ok(())
    }

    /// What was read since the last call.
    pub fn take(&self) -> Vec<Contents> {
        let _ = rustix::io::read(&*self.ready, &mut [0; 8]);
        self.done.iter().flat_map(Receiver::try_iter).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::event::{PollFd, PollFlags, poll};
    use spile_debuginfo::Search;

    use super::*;

    fn job(number: u64, wanted: Wanted) -> Job {
        let path = "/proc/self/exe";
        let module = Module::open(Path::new(path), &Search::from_env()).expect("own program");
        Job {
            number,
            key: (number, 7),
            path: path.into(),
            module: Some(Arc::new(module)),
            wanted,
        }
    }

    #[test]
    fn what_the_thread_reads_is_what_is_in_the_file() {
        let wanted = Wanted {
            rows: true,
            names: Some(false),
        };
        let mut reader = Reader::new().expect("a descriptor");
        assert!(reader.take().is_empty());
        for number in 1..3 {
            assert!(reader.read(job(number, wanted)).is_none());
        }
        let mut read = Vec::new();
        while read.len() < 4 {
            let mut fds = [PollFd::new(&reader.ready, PollFlags::IN)];
            poll(&mut fds, None).expect("readable");
            read.extend(reader.take());
        }
        let [same] = &read_all(vec![job(9, wanted)])[..] else {
            panic!("one file");
        };
        for (number, parts) in (1..).zip(read.chunks(2)) {
            assert!(
                parts
                    .iter()
                    .all(|p| (p.number, p.key) == (number, (number, 7)))
            );
            assert_eq!((&parts[0].rows, &parts[0].tables), (&same.rows, &None));
            assert_eq!((&parts[1].rows, &parts[1].tables), (&None, &same.tables));
        }
    }
}
