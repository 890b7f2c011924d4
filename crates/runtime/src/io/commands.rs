//! Commands that a script runs with `system()`: in the background, each in a shell.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command};

use spile_kernel::process::with_all_signals;

/// Commands that wait or run.
#[derive(Debug, Default)]
pub struct Commands {
    /// The waiting commands; `None` if commands start at once.
    waiting: Option<Vec<Vec<u8>>>,
    running: Vec<Child>,
}

impl Commands {
    /// Holds commands from here on, so that probes observe them from their start.
    pub fn hold(&mut self) {
        self.waiting.get_or_insert_default();
    }

    /// Returns the held commands in order; later commands start at once.
    pub fn release(&mut self) -> Vec<Vec<u8>> {
        self.waiting.take().unwrap_or_default()
    }

    /// Starts a command, or holds it.
    ///
    /// # Errors
    /// The process cannot be created.
    pub fn run(&mut self, command: &[u8]) -> io::Result<()> {
        if let Some(held) = &mut self.waiting {
            held.push(command.to_owned());
            return Ok(());
        }
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(OsStr::from_bytes(command));
        self.running.push(with_all_signals(&mut shell).spawn()?);
        Ok(())
    }

    /// Reaps commands that have ended.
    pub fn reap(&mut self) {
        self.running
            .retain_mut(|c| matches!(c.try_wait(), Ok(None)));
    }
}
