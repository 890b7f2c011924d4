//! The semaphores of markers: a program asks its semaphore whether a tracer listens, before it computes what the marker has.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Semaphores of a process.
pub(super) struct Semaphores {
    /// The process's memory as it was when it was opened: a program that the process executes later has another one.
    memory: File,
    addresses: BTreeSet<u64>,
    raised: bool,
}

impl Semaphores {
    /// The semaphores at these addresses, not raised yet.
    ///
    /// # Errors
    /// Those of opening the process's memory.
    pub(super) fn new(pid: u32, addresses: BTreeSet<u64>) -> io::Result<Semaphores> {
        let mut options = OpenOptions::new();
        let path = format!("/proc/{pid}/mem");
        Ok(Semaphores {
            memory: options.read(true).write(true).open(path)?,
            addresses,
            raised: false,
        })
    }

    /// Adds to each word, which has 16 bits.
    fn add(&self, number: u16) -> io::Result<()> {
        self.addresses.iter().try_for_each(|address| {
            let mut word = [0; 2];
            self.memory.read_exact_at(&mut word, *address)?;
            let word = u16::from_ne_bytes(word).wrapping_add(number);
            self.memory.write_all_at(&word.to_ne_bytes(), *address)
        })
    }

    /// Raises them, once.
    ///
    /// # Errors
    /// Those of writing to the process's memory.
    pub(super) fn raise(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.raised, true) {
            true => Ok(()),
            false => self.add(1),
        }
    }

    /// Takes back what [`Semaphores::raise`] did.
    pub(super) fn lower(&mut self) {
        if std::mem::take(&mut self.raised) {
            // A process that has ended has no semaphores.
            let _ = self.add(u16::MAX);
        }
    }
}
