//! The options of a session.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use spile_ir::ProgramFacts;

use crate::attach::staleness::FileState;
use crate::io::background::Armed;
use crate::io::child::WatchedProcess;
use crate::io::output;
use crate::load::CompileFn;
use crate::load::map_prealloc::PremadeMaps;

/// The session's target process, for `target()` and for `process` without a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TargetProcess {
    /// No target: `target()` is 0.
    #[default]
    None,
    /// `-x`: a running process.
    Pid(u32),
    /// `-c`: a command that starts once the probes are armed; its end ends the session.
    Command(String),
}

/// How a session runs.
#[derive(Default)]
pub struct SessionOptions {
    /// Facts about the program's bodies, if they are known already.
    pub facts: Option<Rc<ProgramFacts>>,
    /// The target process (`-x` or `-c`).
    pub target: TargetProcess,
    /// The folder of a control group whose processes are followed like descendants of the target.
    pub group: Option<PathBuf>,
    /// Whether the session also ends with the process of `-x`.
    pub ends_with_process: bool,
    /// Whether handlers' errors are counted but not printed, and do not change the exit status.
    pub suppress_errors: bool,
    /// Whether the elements that full arrays turn away are counted, and not printed as errors.
    pub suppress_overflows: bool,
    /// Whether stacks and other texts of addresses that are keys of arrays are not cut to the length of a string.
    pub whole_keys: bool,
    /// The command of `-c`, if it was already forked.
    pub suspended_child: Option<WatchedProcess>,
    /// The destination of output (`-o`).
    pub output: output::OutputTarget,
    /// Files in which locations were resolved, with their state at that time.
    pub looked_at: Vec<(PathBuf, FileState)>,
    /// `-T`: the session ends after this time.
    pub timeout: Option<Duration>,
    /// How long the session sleeps after each round of records from the kernel, and is not woken by
    /// handlers that print; by default a short time if there were few.
    pub rest: Option<Duration>,
    /// The name of the session, and of the directory of its `procfs` files.
    pub name: String,
    /// Programs and libraries whose stacks are unwound although no process runs them yet (`-d`).
    pub objects: Vec<PathBuf>,
    /// The address on which `prometheus` probes are served, `host:port`.
    pub prometheus: Option<String>,
    /// `-t`: print the report, and the details of the loss report.
    pub timing: bool,
    /// `-w`: suppress `WARNING:` lines.
    pub quiet: bool,
    /// Whether unread globals print themselves at the end; false with `--no-global-var-display`.
    pub display_globals: bool,
    /// Called once the probes are armed, right before the command of `-c` starts, with the attach
    /// kinds that [`crate::Session::attach_kinds`] does not contain.
    pub armed: Option<OnArmed>,
    /// For a session in the background: its parent, which waits until the probes are armed.
    pub background: Option<Armed>,
    /// Another descriptor to wait for, such as a keyboard.
    pub outside: Option<ExternalSource>,
    /// Maps of the object that are already being created.
    pub ahead: Option<PremadeMaps>,
    /// Compiles the program with its script lines, for the message if the kernel's verifier refuses
    /// it.
    pub with_lines: Option<CompileFn>,
    /// Compiles the program without fentry, fexit and sessions, for a kernel that refuses them.
    pub fallback: Option<CompileFn>,
}

/// An additional event source, and the callback for its events: `Break` ends the session.
pub struct ExternalSource {
    /// The descriptor of a terminal, a pipe or a socket.
    pub fd: OwnedFd,
    /// Called while `fd` is readable, and has to read it; called also when the terminal's size
    /// changes.
    pub ready: Box<dyn FnMut() -> ControlFlow<()>>,
}

/// Callback with the attach kinds of the last probes, one line each.
pub type OnArmed = Box<dyn FnOnce(&[String])>;
