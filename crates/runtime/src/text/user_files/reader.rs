//! Reads user files in a separate thread: the tables of a file with 100,000 symbols take longer
//! than output and timers can wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use spile_debuginfo::DebugFile;

use super::names::FileTables;
use super::packed_rows::packed;

/// A file to read.
pub struct ReadJob {
    /// Its number.
    pub number: u64,
    /// Device and inode.
    pub key: (u64, u64),
    /// Its path.
    pub path: String,
    /// The file; `None` if it could not be opened.
    pub module: Option<Arc<DebugFile>>,
    /// The tables to read.
    pub wanted: WantedTables,
}

/// The tables that kernel handlers need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedTables {
    /// Unwind rows.
    pub rows: bool,
    /// Symbols, and whether lines are included.
    pub names: Option<bool>,
}

/// The tables that were read from a file.
pub struct ReadTables {
    /// The file's number.
    pub number: u64,
    /// Device and inode.
    pub key: (u64, u64),
    /// Its unwind rows; `None` if these are only its tables.
    pub rows: Option<Vec<u64>>,
    /// Its symbols.
    pub tables: Option<FileTables>,
}

impl ReadJob {
    /// Reads its unwind rows.
    pub fn rows(&self) -> ReadTables {
        let module = self.module.as_deref();
        let unwound = module.filter(|_| self.wanted.rows);
        ReadTables {
            number: self.number,
            key: self.key,
            rows: Some(unwound.map(packed).unwrap_or_default()),
            tables: None,
        }
    }

    /// Reads its tables, if they are needed.
    fn tables(&self) -> Option<ReadTables> {
        let lines = self.wanted.names?;
        Some(ReadTables {
            number: self.number,
            key: self.key,
            rows: None,
            tables: Some(FileTables::new(&self.path, self.module.as_deref(), lines)),
        })
    }

    /// Reads everything that is needed.
    pub fn read(&self) -> ReadTables {
        ReadTables {
            tables: self.tables().and_then(|c| c.tables),
            ..self.rows()
        }
    }
}

/// The reading thread, with channels in both directions.
pub struct TableReader {
    jobs: Option<Sender<ReadJob>>,
    done: Option<Receiver<ReadTables>>,
    /// Readable when a file was read.
    ready: Arc<OwnedFd>,
}

impl TableReader {
    /// Creates a reader, whose thread starts with the first job.
    pub fn new() -> io::Result<TableReader> {
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(TableReader {
            jobs: None,
            done: None,
            ready: Arc::new(ready),
        })
    }

    /// A descriptor that is readable when a file was read.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Has a file read; returns the job if the thread cannot be created.
    pub fn enqueue(&mut self, job: ReadJob) -> Option<ReadJob> {
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
        let (jobs, todo) = channel::<ReadJob>();
        let (give, done) = channel();
        let ready = Arc::clone(&self.ready);
        // The thread ends after its current file when the session drops its end.
        thread::Builder::new()
            .name("spile files".into())
            .spawn(move || {
                for job in todo {
                    // Rows first: they take less time, and stacks wait for them.
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

    /// The results since the last call.
    pub fn take_results(&self) -> Vec<ReadTables> {
        let _ = rustix::io::read(&*self.ready, &mut [0; 8]);
        self.done.iter().flat_map(Receiver::try_iter).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::event::{PollFd, PollFlags, poll};
    use spile_debuginfo::SearchPaths;

    use super::*;

    fn job(number: u64, wanted: WantedTables) -> ReadJob {
        let path = "/proc/self/exe";
        let module =
            DebugFile::open(Path::new(path), &SearchPaths::from_env()).expect("own program");
        ReadJob {
            number,
            key: (number, 7),
            path: path.into(),
            module: Some(Arc::new(module)),
            wanted,
        }
    }

    #[test]
    fn what_the_thread_reads_is_what_is_in_the_file() {
        let wanted = WantedTables {
            rows: true,
            names: Some(false),
        };
        let mut reader = TableReader::new().expect("a descriptor");
        assert!(reader.take_results().is_empty());
        for number in 1..3 {
            assert!(reader.enqueue(job(number, wanted)).is_none());
        }
        let mut read = Vec::new();
        while read.len() < 4 {
            let mut fds = [PollFd::new(&reader.ready, PollFlags::IN)];
            poll(&mut fds, None).expect("readable");
            read.extend(reader.take_results());
        }
        let same = job(9, wanted).read();
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
