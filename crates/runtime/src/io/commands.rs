//! The commands that a script runs by `system()`: in the background, each by a shell.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command};

use crate::io::child::with_own_signals;

/// Commands that wait and that run.
#[derive(Debug, Default)]
pub struct Commands {
    /// Those that wait; None where a command starts at once.
    held: Option<Vec<Vec<u8>>>,
    running: Vec<Child>,
}

impl Commands {
    /// Keeps commands from here on: what they do is to be seen from the beginning.
    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// The commands that were kept, in their order; from here on none is.
    pub fn release(&mut self) -> Vec<Vec<u8>> {
        self.held.take().unwrap_or_default()
    }

    /// Starts a command, or keeps it.
    ///
    /// # Errors
    /// Where no process can be had for it.
    pub fn run(&mut self, command: &[u8]) -> io::Result<()> {
        if let Some(held) = &mut self.held {
            held.push(command.to_owned());
            return Ok(());
        }
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(OsStr::from_bytes(command));
        self.running.push(with_own_signals(&mut shell).spawn()?);
        Ok(())
    }

    /// Buries those that ended.
    pub fn reap(&mut self) {
        self.running
            .retain_mut(|c| matches!(c.try_wait(), Ok(None)));
    }
}
