//! Standard input for `input.line` and `input.char` probes. Other processes share the descriptor,
//! so it stays blocking: it is read once each time it is ready.

use std::os::fd::BorrowedFd;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// Limit on the bytes of a line.
const MAX_LINE: usize = 1 << 16;

/// An input event: a byte, and the line that the byte ends. Only an unterminated last line comes
/// without a byte.
#[derive(Debug, PartialEq, Eq)]
pub struct InputEvent {
    /// The byte for `input.char`.
    pub byte: Option<u8>,
    /// The line for `input.line`, with its newline, as scripts expect it.
    pub line: Option<Vec<u8>>,
}

/// Collects bytes into lines.
#[derive(Debug, Default)]
pub struct Input {
    line: Vec<u8>,
    /// Whether it is a regular file, which is always ready and which epoll refuses.
    pub always_ready: bool,
    /// Whether the input has ended.
    pub ended: bool,
    /// The terminal's original settings.
    terminal: Option<Termios>,
}

impl Input {
    /// Standard input.
    pub fn fd() -> BorrowedFd<'static> {
        rustix::stdio::stdin()
    }

    /// Switches a terminal to single characters, shown if `echo` is set. Dropping this restores the
    /// settings.
    pub fn characters(&mut self, echo: bool) {
        let Ok(before) = tcgetattr(Input::fd()) else {
            return;
        };
        let mut now = before.clone();
        now.local_modes.remove(LocalModes::ICANON);
        now.local_modes.set(LocalModes::ECHO, echo);
        // A background process would be stopped by this.
        let group = Some(rustix::process::getpgrp());
        if tcgetpgrp(Input::fd()).ok() == group
            && tcsetattr(Input::fd(), OptionalActions::Now, &now).is_ok()
        {
            self.terminal = Some(before);
        }
    }

    /// Reads once, and returns the events for probes in order.
    pub fn read(&mut self) -> Vec<InputEvent> {
        let mut chunk = [0; 4096];
        match rustix::io::read(Input::fd(), &mut chunk) {
            Ok(0) => self.end(),
            Ok(n) => self.take(&chunk[..n]),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Vec::new(),
            Err(_) => self.end(),
        }
    }

    fn end(&mut self) -> Vec<InputEvent> {
        self.ended = true;
        let rest = std::mem::take(&mut self.line);
        if rest.is_empty() {
            Vec::new()
        } else {
            vec![InputEvent {
                byte: None,
                line: Some(rest),
            }]
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<InputEvent> {
        let mut typed = Vec::new();
        for &b in bytes {
            if self.line.len() < MAX_LINE || b == b'\n' {
                self.line.push(b);
            }
            typed.push(InputEvent {
                byte: Some(b),
                line: (b == b'\n').then(|| std::mem::take(&mut self.line)),
            });
        }
        typed
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Some(before) = &self.terminal {
            // A terminal that is gone needs no settings.
            let _ = tcsetattr(Input::fd(), OptionalActions::Now, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(byte: impl Into<Option<u8>>, line: Option<&[u8]>) -> InputEvent {
        InputEvent {
            byte: byte.into(),
            line: line.map(Into::into),
        }
    }

    #[test]
    fn input_is_taken_as_bytes_and_lines() {
        let mut input = Input::default();
        assert_eq!(input.take(b"a"), [typed(b'a', None)]);
        assert_eq!(
            input.take(b"b\nc"),
            [
                typed(b'b', None),
                typed(b'\n', Some(b"ab\n")),
                typed(b'c', None)
            ]
        );
        assert_eq!(input.end(), [typed(None, Some(b"c"))]);
        assert!(input.ended && input.end().is_empty());
    }
}
