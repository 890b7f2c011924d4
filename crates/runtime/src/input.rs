//! Standard input for `input.line` and `input.char` probes. The descriptor is shared with other
//! processes, so it is not made non-blocking: it is read once whenever it is ready.

use std::os::fd::BorrowedFd;

/// Most bytes of a line that are kept.
const MAX_LINE: usize = 1 << 16;

/// What was typed: a byte, and the line that it ends. Only a last line without a newline comes
/// without a byte.
#[derive(Debug, PartialEq, Eq)]
pub struct Typed {
    /// For `input.char`.
    pub byte: Option<u8>,
    /// For `input.line`: with its newline, as scripts expect it.
    pub line: Option<Vec<u8>>,
}

/// Collects lines.
#[derive(Debug, Default)]
pub struct Input {
    line: Vec<u8>,
    /// A regular file is always ready and epoll refuses it.
    pub always_ready: bool,
    /// Nothing more comes.
    pub ended: bool,
}

impl Input {
    /// Standard input.
    pub fn fd() -> BorrowedFd<'static> {
        rustix::stdio::stdin()
    }

    /// Reads once; gives what probes are to see, in order.
    pub fn read(&mut self) -> Vec<Typed> {
        let mut chunk = [0; 4096];
        match rustix::io::read(Input::fd(), &mut chunk) {
            Ok(0) => self.end(),
            Ok(n) => self.take(&chunk[..n]),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Vec::new(),
            Err(_) => self.end(),
        }
    }

    fn end(&mut self) -> Vec<Typed> {
        self.ended = true;
        let rest = std::mem::take(&mut self.line);
        if rest.is_empty() {
            Vec::new()
        } else {
            vec![Typed {
                byte: None,
                line: Some(rest),
            }]
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<Typed> {
        let mut typed = Vec::new();
        for &b in bytes {
            if self.line.len() < MAX_LINE || b == b'\n' {
                self.line.push(b);
            }
            typed.push(Typed {
                byte: Some(b),
                line: (b == b'\n').then(|| std::mem::take(&mut self.line)),
            });
        }
        typed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(byte: impl Into<Option<u8>>, line: Option<&[u8]>) -> Typed {
        Typed {
            byte: byte.into(),
            line: line.map(Into::into),
        }
    }

    #[test]
    fn lines_and_bytes() {
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
