//! The reason why a command failed, and messages on the terminal.

use std::fmt;
use std::io::Write;

/// The reason why a run failed. Diagnostics of the script were printed already.
#[derive(Debug)]
pub enum Failure {
    /// The script has errors, which were printed.
    Reported,
    /// Any other reason.
    Other(String),
}

impl Failure {
    /// Prints the reason on standard error.
    pub fn print(&self, color: bool) {
        match self {
            Failure::Reported => {}
            Failure::Other(text) if color => {
                let text = crate::lines(text);
                print_stderr_raw(&format!("\x1b[1;31mERROR:\x1b[0m {text}\n"));
            }
            Failure::Other(text) => print_stderr(format_args!("ERROR: {text}\n")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Reported => f.write_str("the script has errors"),
            Failure::Other(text) => f.write_str(text),
        }
    }
}

/// Prints to standard error, in one write, with control characters escaped.
pub fn print_stderr(text: impl fmt::Display) {
    print_stderr_raw(&crate::lines(&text.to_string()));
}

/// Prints to standard error unchanged. Where it is closed or full, the text is dropped.
pub fn print_stderr_raw(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Prints lines to standard error, with control characters escaped.
pub fn print_stderr_lines(lines: &[String]) {
    for line in lines {
        print_stderr(format_args!("{line}\n"));
    }
}

/// Prints to standard output, with control characters escaped. A reader that has ended, such as
/// `head`, is not a failure.
pub fn print_stdout(text: impl fmt::Display) -> Result<(), Failure> {
    write_stdout(crate::lines(&text.to_string()).as_bytes())
}

/// Writes to standard output as [`print_stdout`], unchanged.
pub fn write_stdout(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(fail(format_args!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}

/// A failure with this text.
pub fn fail(text: impl fmt::Display) -> Failure {
    Failure::Other(text.to_string())
}
