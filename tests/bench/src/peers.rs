//! The programs that are compared: their command lines for the same job, and the sign that each is
//! armed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit for a tool to be armed.
const ARM_LIMIT: Duration = Duration::from_secs(20);
/// Time limit for a tool to end.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of bytes of a tool's output that are stored.
const OUTPUT_LIMIT: usize = 1 << 20;

/// A running tracer.
pub(crate) struct Running {
    child: Child,
    reader: JoinHandle<String>,
    /// Time from the start of the process until it is armed.
    pub armed: Duration,
}

/// The sign that a tool's probes are armed.
#[derive(Clone)]
pub(crate) enum Armed {
    /// It prints a line that contains this text.
    Line(&'static str),
    /// It gives no sign; wait for this long.
    After(Duration),
}

/// A tool with its arguments.
#[derive(Clone)]
pub(crate) struct Tool {
    /// Name in tables.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// See [`Armed`].
    pub armed: Armed,
}

impl Tool {
    /// A tool that prints a line with this text when it is armed.
    pub(crate) fn new(name: &str, argv: &[&str], line: &'static str) -> Tool {
        Tool {
            name: name.into(),
            argv: argv.iter().map(|s| (*s).into()).collect(),
            armed: Armed::Line(line),
        }
    }

    /// Whether its program is installed.
    pub(crate) fn installed(&self) -> bool {
        let program = Path::new(&self.argv[0]);
        program.components().count() > 1 && program.exists()
            || std::env::var_os("PATH")
                .is_some_and(|p| std::env::split_paths(&p).any(|dir| dir.join(program).is_file()))
    }

    /// Starts it and waits until it is armed.
    pub(crate) fn start(&self) -> Result<Running, String> {
        let begin = Instant::now();
        let mut child = Command::new(&self.argv[0])
            .args(&self.argv[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{}: {e}", self.argv[0]))?;
        let out = child.stdout.take().expect("piped");
        let (line, wait) = match self.armed {
            Armed::Line(text) => (text, ARM_LIMIT),
            Armed::After(time) => ("", time),
        };
        let (say, said) = channel();
        let reader = std::thread::spawn(move || read(out, line, &say));
        let heard = match self.armed {
            Armed::Line(_) => said.recv_timeout(wait).is_ok(),
            Armed::After(_) => {
                std::thread::sleep(wait);
                matches!(child.try_wait(), Ok(None))
            }
        };
        let armed = begin.elapsed();
        if !heard {
            let _ = child.kill();
            let _ = child.wait();
            let _ = reader.join();
            return Err(format!(
                "{} is not armed after {wait:?}, or ended",
                self.name
            ));
        }
        Ok(Running {
            child,
            reader,
            armed,
        })
    }
}

/// Reads all output of a tool, so that it never blocks; reports when the text appeared.
fn read(out: ChildStdout, wanted: &str, say: &Sender<()>) -> String {
    let mut out = BufReader::new(out);
    let (mut kept, mut line) = (String::new(), Vec::new());
    let mut waiting = !wanted.is_empty();
    while matches!(out.read_until(b'\n', &mut line), Ok(n) if n > 0) {
        let text = String::from_utf8_lossy(&line);
        if waiting && text.contains(wanted) {
            waiting = false;
            let _ = say.send(());
        } else if kept.len() + text.len() < OUTPUT_LIMIT {
            kept.push_str(&text);
        }
        line.clear();
    }
    kept
}

/// Kills the process unless the sender of this channel is dropped in time.
fn watchdog(pid: u32, limit: Duration) -> Sender<()> {
    let (keep, gone): (Sender<()>, Receiver<()>) = channel();
    std::thread::spawn(move || {
        if gone.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            // SAFETY: sends a signal to our own child, which is not waited for yet: the
            // sender is dropped right after that.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
    });
    keep
}

/// The cost of a finished run.
pub(crate) struct Cost {
    /// Time from the signal to the end of the process.
    pub tear_down: Duration,
    /// Peak resident memory, kilobytes.
    pub peak_kb: u64,
    /// Its output without the line that it is armed.
    pub output: String,
}

impl Running {
    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with SIGINT and waits; kills it if that does not help.
    pub(crate) fn stop(self) -> Cost {
        self.stop_within(END_LIMIT)
    }

    /// Like [`Running::stop`], with a time limit for the end.
    pub(crate) fn stop_within(self, limit: Duration) -> Cost {
        let begin = Instant::now();
        let mut status = 0;
        let keep = watchdog(self.child.id(), limit);
        // SAFETY: an all-zero rusage is valid; wait4 fills it for our own child's pid, which
        // nobody else has waited for.
        let usage = unsafe {
            libc::kill(self.child.id().cast_signed(), libc::SIGINT);
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::wait4(self.child.id().cast_signed(), &mut status, 0, &mut usage);
            usage
        };
        let tear_down = begin.elapsed();
        drop(keep);
        Cost {
            tear_down,
            peak_kb: usage.ru_maxrss.cast_unsigned(),
            output: self.reader.join().unwrap_or_default(),
        }
    }
}

/// The output of a command; `None` if it is not installed or fails. Its errors are shown.
pub fn printed(command: &mut Command) -> Option<String> {
    let out = command.stderr(Stdio::inherit()).output().ok()?;
    let text = || String::from_utf8_lossy(&out.stdout).into_owned();
    out.status.success().then(text)
}

/// The output of a program, which is killed after the time limit.
pub(crate) fn output(mut command: Command, limit: Duration) -> String {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        return "cannot be started".into();
    };
    let keep = watchdog(child.id(), limit);
    let done = child.wait_with_output();
    drop(keep);
    done.map_or_else(
        |e| e.to_string(),
        |o| String::from_utf8_lossy(&o.stdout).into_owned(),
    )
}

/// A file next to this program in the target directory.
pub(crate) fn built(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    exe.parent().expect("target folder").join(name)
}
