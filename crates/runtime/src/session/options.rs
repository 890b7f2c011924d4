//! How a session is to run.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use spile_bpf::layout::Object;
use spile_ir::Program;

use crate::attach::staleness::FileState;
use crate::io::child::Watched;
use crate::io::output;
use crate::load::map_prealloc::Tables;

/// The process that a session is about, which `target()` and `process` without a name mean.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TargetProcess {
    /// None: `target()` is 0.
    #[default]
    None,
    /// `-x`: a process that runs.
    Pid(u32),
    /// `-c`: a command that is started once the probes are armed; the session ends with it.
    Command(String),
}

/// How a session runs.
#[derive(Default)]
pub struct Options {
    /// `-x` or `-c`.
    pub target: TargetProcess,
    /// The session ends with the process of `-x`, too.
    pub ends_with_process: bool,
    /// Errors of handlers are counted and not printed, and no reason for another exit status than 0.
    pub suppress_errors: bool,
    /// The command of `-c`, where it was forked before.
    pub held: Option<Watched>,
    /// `-o`.
    pub output: output::Target,
    /// Files in which places were looked up, as they were then.
    pub looked_at: Vec<(PathBuf, FileState)>,
    /// `-T`: the session ends after this.
    pub timeout: Option<Duration>,
    /// The name of the session, and of the directory of `procfs` files.
    pub name: String,
    /// Programs and libraries whose stacks are walked though nothing of them runs yet (`-d`).
    pub objects: Vec<PathBuf>,
    /// Where `prometheus` probes are served, `host:port`.
    pub prometheus: Option<String>,
    /// `-t`: the report and the details of the account.
    pub timing: bool,
    /// `-w`: no `WARNING:` lines.
    pub quiet: bool,
    /// Unread globals print themselves at the end; false with `--no-global-var-display`.
    pub display_globals: bool,
    /// Called once the probes are armed, right before the command of `-c` starts, with how those
    /// are attached that [`crate::Session::means`] does not have.
    pub armed: Option<Armed>,
    /// Another descriptor to wait for, as that of a keyboard.
    pub outside: Option<Outside>,
    /// Maps of the object that are being made already.
    pub ahead: Option<Tables>,
    /// Compiles the program with its script lines: for the message, where the kernel's verifier
    /// refuses it.
    pub with_lines: Option<Compile>,
    /// Compiles it without fentry, fexit and sessions, where the kernel refuses them.
    pub without: Option<Compile>,
}

/// What is waited for beside the session's own, and what to do when it can be read: `Break` ends
/// the session.
pub struct Outside {
    /// Of a terminal, a pipe, a socket.
    pub fd: OwnedFd,
    /// Called while `fd` can be read; it has to read. Also when the terminal has another size.
    pub ready: Box<dyn FnMut() -> ControlFlow<()>>,
}

/// Is told how the last probes are attached, a line each.
pub type Armed = Box<dyn FnOnce(&[String])>;

/// Compiles a program; `None` where that fails.
pub type Compile = Box<dyn FnOnce(&Program) -> Option<Object>>;
