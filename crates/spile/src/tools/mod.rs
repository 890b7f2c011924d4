//! Ready-made tools: each is a script of `tools/`, which prints rows, and a front end that shows
//! them. Options of a tool set the script's globals (`-G`), which the optimiser folds.

pub mod profile;
pub mod syscount;
pub mod system;

use std::ops::ControlFlow;
use std::time::Duration;

use spile_runtime::TargetProcess;
use spile_runtime::io::output;
use spile_runtime::{Outcome, Outside, session};

use crate::cli::Cli;
use crate::passes::{self, End, Script};
use crate::report::{Failure, fail};

mod built_in {
    include!(concat!(env!("OUT_DIR"), "/tools.rs"));
}

/// The text of a tool's script.
pub fn script(name: &str) -> Option<&'static str> {
    let file = built_in::FILES
        .iter()
        .find(|(file, _)| file.strip_suffix(".stp") == Some(name));
    Some(file?.1)
}

/// A run of a tool's script.
#[derive(Default)]
pub struct Run {
    /// Name of the script in `tools/`, without `.stp`.
    pub tool: &'static str,
    /// `$1`, `@1`, ...
    pub args: Vec<String>,
    /// Values of the script's globals.
    pub settings: Vec<(&'static str, String)>,
    /// Size of the output buffer in megabytes, if not the default.
    pub buffer_mb: Option<u32>,
    /// Handlers read only process memory that is resident, because the process wrote it.
    pub resident: bool,
    /// How long the session sleeps between two rounds of records.
    pub rest: Option<Duration>,
    /// Limits, as for `-D`.
    pub limits: Vec<String>,
    /// Whose handlers run: everybody's until the session is ended, or those of a process, with which it ends.
    pub target: TargetProcess,
    /// The session ends after this time.
    pub timeout: Option<Duration>,
    /// An additional event source of the session.
    pub outside: Option<Outside>,
    /// Print neither warnings nor the account: the tool reports them from the outcome.
    pub quiet: bool,
    /// Verbosity, as for `-v`.
    pub verbose: u8,
    /// Called when the probes are armed.
    pub armed: Option<session::Armed>,
}

impl Run {
    /// A run of a tool's script.
    pub fn of(tool: &'static str) -> Run {
        Run {
            tool,
            ..Run::default()
        }
    }

    /// Sets a global of the script.
    pub fn set(&mut self, name: &'static str, value: impl ToString) {
        self.settings.push((name, value.to_string()));
    }

    /// Compiles the script and runs it to the end. `row` gets each printed line without its
    /// newline, and returns `Break` to end the session.
    pub fn run(
        self,
        color: bool,
        mut row: impl FnMut(&[u8]) -> ControlFlow<()> + 'static,
    ) -> Result<Outcome, Failure> {
        self.run_printing(color, move |line, _| row(line))
    }

    /// Like [`Run::run`]; text that `row` adds to its second argument goes to standard output.
    pub fn run_printing(
        self,
        color: bool,
        mut row: impl FnMut(&[u8], &mut Vec<u8>) -> ControlFlow<()> + 'static,
    ) -> Result<Outcome, Failure> {
        let name = self.tool;
        let text = script(name).ok_or_else(|| fail(format_args!("{name}: no such tool")))?;
        let mut cli = Cli {
            verbose: self.verbose,
            no_warnings: self.quiet,
            timeout: self.timeout.map(|t| t.as_secs_f64()),
            buffer_mb: self.buffer_mb,
            defines: self.limits,
            resident: self.resident,
            rest_between: self.rest,
            no_global_var_display: true,
            suppress_time_limits: true,
            // Losses are reported at the end, and do not end the session.
            suppress_handler_errors: true,
            ..Cli::default()
        };
        cli.globals = self
            .settings
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        match self.target {
            TargetProcess::None => {}
            TargetProcess::Pid(pid) => cli.pid = Some(pid),
            TargetProcess::Command(command) => cli.command = Some(command),
        }
        let script = Script {
            texts: vec![(format!("tools/{name}.stp"), text.as_bytes().to_vec())],
            args: self.args,
        };
        let mut rest = Vec::new();
        let sink = move |bytes: &[u8], out: &mut Vec<u8>| {
            lines(&mut rest, bytes, &mut |line| row(line, out))
        };
        let (outside, armed) = (self.outside, self.armed);
        let ended = passes::drive(&cli, Some(script), color, |options| {
            options.output = output::OutputTarget::Sink(Box::new(sink));
            options.outside = outside;
            options.ends_with_process = true;
            // Handler errors are reported, and count for the exit status.
            options.suppress_errors = false;
            options.armed = armed.or(options.armed.take());
        })?;
        match ended {
            End::Ran(outcome) => Ok(*outcome),
            End::Shown(_) => Err(fail(format_args!("{name}: the script did not run"))),
        }
    }
}

/// Passes whole lines to `row`; an unfinished last line stays in `rest`.
fn lines(
    rest: &mut Vec<u8>,
    bytes: &[u8],
    row: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut parts = bytes.split(|b| *b == b'\n');
    let last = parts.next_back().unwrap_or_default();
    for part in parts {
        rest.extend_from_slice(part);
        let wanted = row(rest);
        rest.clear();
        wanted?;
    }
    rest.extend_from_slice(last);
    ControlFlow::Continue(())
}

/// A text in quotes with C escapes, as `string_quoted` writes it.
pub fn unquoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = Vec::new();
    let mut bytes = inner.bytes();
    while let Some(b) = bytes.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        out.push(match bytes.next()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'a' => 7,
            b'b' => 8,
            b'v' => 11,
            b'f' => 12,
            first @ b'0'..=b'3' => {
                let rest = [bytes.next()?, bytes.next()?];
                let digits = [first, rest[0], rest[1]].map(|d| d.wrapping_sub(b'0'));
                if digits.iter().any(|d| *d > 7) {
                    return None;
                }
                digits[0] << 6 | digits[1] << 3 | digits[2]
            }
            // A character by its code point.
            kind @ (b'u' | b'U') => {
                let digits = if kind == b'u' { 4 } else { 8 };
                let mut number = 0;
                for _ in 0..digits {
                    number = number << 4 | char::from(bytes.next()?).to_digit(16)?;
                }
                let c = char::from_u32(number)?;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            other => other,
        });
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        let text = r#""a\"\\\n\303\251\u20AC\U0001F600""#;
        assert_eq!(unquoted(text).unwrap(), "a\"\\\né€😀");
        for bad in [r#""\u12""#, r#""\uD800""#, r#""\12""#, "a"] {
            assert_eq!(unquoted(bad), None, "{bad}");
        }
    }

    #[test]
    fn lines_come_whole() {
        let mut seen = Vec::new();
        let mut rest = Vec::new();
        for piece in ["a\nb", "", "c\n\nd", "e"] {
            let mut row = |l: &[u8]| {
                seen.push(String::from_utf8_lossy(l).into_owned());
                ControlFlow::Continue(())
            };
            assert!(lines(&mut rest, piece.as_bytes(), &mut row).is_continue());
        }
        assert_eq!(seen, ["a", "bc", ""]);
        assert_eq!(rest, b"de");
        let stop = lines(&mut rest, b"\nx\n", &mut |_| ControlFlow::Break(()));
        assert!(stop.is_break());
    }
}
