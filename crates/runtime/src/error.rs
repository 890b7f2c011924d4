//! Errors of starting and running a session.

use std::fmt;
use std::io;

use spile_kernel::bpf::BpfError;
use spile_kernel::resources::error_text;

/// An error of a session; its text includes a remedy if there is one.
#[derive(Debug)]
pub enum Error {
    /// Loading BPF programs is not permitted.
    Privileges,
    /// The kernel has no BPF.
    NoBpf,
    /// The verifier refused a program.
    Rejected {
        /// Name of the program in the object.
        program: String,
        /// The handlers in the program.
        handlers: Vec<String>,
        /// The position in the script, if the log names one.
        location: Option<String>,
        /// The end of the verifier's log.
        log: String,
    },
    /// A program could not be attached to this event.
    Attach(String, io::Error),
    /// A request to end the session came while programs were attached: the number of locations that were
    /// attached to, and that of all locations.
    Stopped {
        /// Locations that were attached to.
        done: usize,
        /// All locations.
        total: usize,
    },
    /// A file changed since locations in it were resolved: its path, and the kind of change.
    Changed(String, &'static str),
    /// Handlers cannot get into this process: why not.
    Enter(u32, String),
    /// The session's processes do not see this event.
    NoProcessEvent(String),
    /// The kernel does not support programs at a hook: what it lacks, and what to use instead.
    NoHook(String),
    /// The processor does not support this perf event.
    NoCounter(String),
    /// The process of `-x` does not exist.
    NoProcess(u32, io::Error),
    /// The command of `-c` could not be started.
    Command(String, io::Error),
    /// The output file could not be opened.
    Output(String, io::Error),
    /// The directory of `procfs` files, or a file in it, cannot be created.
    Directory(String, io::Error),
    /// Listening on the metrics address failed.
    Listen(String, io::Error),
    /// A system call failed during this step.
    System(&'static str, io::Error),
    /// Compiler and runtime disagree: a bug.
    Internal(String),
}

impl Error {
    /// The error of an attachment to `event`.
    pub(crate) fn attach(event: String, why: BpfError) -> Error {
        Error::Attach(event, to_io_error(why))
    }
}

/// The system's error, if a call failed.
pub(crate) fn to_io_error(why: BpfError) -> io::Error {
    match why {
        BpfError::Call { errno, .. } => errno.into(),
        why => io::Error::other(why),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Privileges => write!(
                f,
                "no permission to load BPF programs: run as root, or give the program \
                 CAP_BPF and CAP_PERFMON (setcap cap_bpf,cap_perfmon+ep)"
            ),
            Error::NoBpf => write!(
                f,
                "this kernel cannot load BPF programs (CONFIG_BPF_SYSCALL is needed, \
                 Linux 6.1 or newer)"
            ),
            Error::Rejected {
                program,
                handlers,
                location,
                log,
            } => {
                writeln!(f, "the kernel's verifier refused the program {program} of")?;
                for handler in handlers {
                    writeln!(f, "    {handler}")?;
                }
                if let Some(location) = location {
                    writeln!(f, "near {location}.")?;
                }
                writeln!(
                    f,
                    "This is a bug in spile, please report it with the script and this:"
                )?;
                write!(f, "{log}")
            }
            Error::Stopped { done, total } => write!(
                f,
                "the session was ended before it ran: {done} of {total} locations were attached to \
                 (patterns with fewer functions are attached to sooner)"
            ),
            Error::Changed(path, what) => write!(
                f,
                "{path} was {what} after its code was looked up: start again"
            ),
            Error::Attach(what, e) => {
                write!(f, "cannot attach to {what}: {}", error_text(e))?;
                match e.raw_os_error() {
                    Some(libc::ENOENT) => write!(f, " (the running kernel does not have it)"),
                    Some(libc::EPERM | libc::EACCES) => {
                        write!(f, " (run as root, or with CAP_BPF and CAP_PERFMON)")
                    }
                    _ => Ok(()),
                }
            }
            Error::Enter(pid, why) => write!(f, "handlers cannot run in process {pid}: {why}"),
            Error::NoProcessEvent(what) => write!(
                f,
                "handlers in processes do not see {what} yet: --runtime=kernel does, as root"
            ),
            Error::NoHook(why) => f.write_str(why),
            Error::NoCounter(what) => write!(
                f,
                "this machine does not have the {what}: many virtual machines hide the \
                 processor's counters; the kernel's own events are always there \
                 (perf.sw.cpu_clock samples by time)"
            ),
            Error::NoProcess(pid, e) => write!(f, "cannot follow process {pid}: {}", error_text(e)),
            Error::Command(command, e) => write!(f, "cannot start {command}: {}", error_text(e)),
            Error::Output(path, e) => write!(f, "cannot write {path}: {}", error_text(e)),
            Error::Directory(path, e) => {
                write!(f, "cannot serve files in {path}: {}", error_text(e))
            }
            Error::Listen(addr, e) => write!(f, "cannot listen at {addr}: {}", error_text(e)),
            Error::System(what, e) => write!(f, "{what}: {}", error_text(e)),
            Error::Internal(what) => write!(f, "internal error, please report it: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Attach(_, e)
            | Error::NoProcess(_, e)
            | Error::Command(_, e)
            | Error::Output(_, e)
            | Error::Directory(_, e)
            | Error::Listen(_, e)
            | Error::System(_, e) => Some(e),
            Error::Stopped { .. }
            | Error::Changed(..)
            | Error::Enter(..)
            | Error::NoProcessEvent(_)
            | Error::NoCounter(_)
            | Error::NoHook(_)
            | Error::Privileges
            | Error::NoBpf
            | Error::Rejected { .. }
            | Error::Internal(_) => None,
        }
    }
}
