//! One session of the program, in a process and a folder of its own: its output, its end, and the
//! errors that no script may cause.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit of a session. It ends by itself within seconds, so only a hanging one takes so long,
/// even on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Time limit for a session's child processes to end after it.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum number of bytes stored of a stream.
const KEPT: usize = 32 << 20;

/// A script and the options of its session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    pub script: String,
    /// `LOAD` stands for the workload program.
    pub args: Vec<String>,
}

impl Run {
    /// As a file of `cases`: the options in the first line.
    pub(crate) fn as_case(&self) -> String {
        let args = shlex::try_join(self.args.iter().map(String::as_str));
        format!("// {}\n{}", args.unwrap_or_default(), self.script)
    }

    /// The inverse of `as_case`.
    pub(crate) fn from_case(text: &str) -> Run {
        let (first, script) = text.split_once('\n').unwrap_or((text, ""));
        let args = first.trim_start_matches('/').trim();
        Run {
            script: script.into(),
            args: shlex::split(args).unwrap_or_default(),
        }
    }
}

/// The end of a session.
pub(crate) struct Done {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
    /// Why no script may end like this.
    pub wrong: Option<String>,
}

impl Done {
    /// A number of the account: the one before or after these words.
    pub(crate) fn skipped(&self) -> u64 {
        self.number(|l| l.split_once("skipped probes: ").map(|(_, n)| n))
    }

    /// Number of output records that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.number(|l| {
            let at = l.find(" lost messages")?;
            l[..at].rsplit(' ').next()
        })
    }

    fn number(&self, of: impl Fn(&str) -> Option<&str>) -> u64 {
        let mut found = self.err.lines().filter_map(of);
        found
            .next()
            .and_then(|n| n.trim().parse().ok())
            .unwrap_or(0)
    }

    /// Whether analysis refused the script or its options.
    pub(crate) fn refused(&self) -> bool {
        let pass = |l: &str| l.starts_with("Pass ") && l.ends_with(" failed.");
        self.status == Some(1) && self.err.lines().any(pass)
    }
}

/// The workload program, which cargo builds next to the tests.
pub(crate) fn load() -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    let target = exe.parent().and_then(Path::parent);
    target.expect("target folder").join("load")
}

/// Text of a stream, read in the background.
fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut all, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
        while let Ok(n @ 1..) = from.read(&mut chunk) {
            let left = KEPT.saturating_sub(all.len());
            all.extend_from_slice(&chunk[..n.min(left)]);
        }
        String::from_utf8_lossy(&all).into_owned()
    })
}

/// Waits for the end; `None` on timeout.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let until = Instant::now() + LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            _ => return None,
        }
    }
}

/// Whether processes of a group are still alive after the time limit.
fn stays(group: u32) -> bool {
    let until = Instant::now() + PATIENCE;
    // SAFETY: signal 0 is delivered to no process.
    while unsafe { libc::kill(-(group as i32), 0) } == 0 {
        if Instant::now() > until {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Messages that no script and no option may cause.
const NEVER: &[&str] = &[
    "panicked at",
    "internal error",
    "bug in spile",
    "verifier refused",
    "stack overflow",
    "could not be read: a bug",
];

fn wrong(status: Option<ExitStatus>, err: &str) -> Option<String> {
    let Some(status) = status else {
        return Some("it hangs".into());
    };
    if let Some(line) = err.lines().find(|l| NEVER.iter().any(|n| l.contains(n))) {
        return Some(line.into());
    }
    match (status.code(), status.signal()) {
        (Some(0 | 1), _) => None,
        (Some(n), _) => Some(format!("status {n}")),
        (None, signal) => Some(format!("signal {signal:?}")),
    }
}

/// Runs a script.
pub(crate) fn run(run: &Run) -> Done {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = format!("sessions-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    // An earlier run may have left it.
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    let load = load().display().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(run.args.iter().map(|a| a.replace("LOAD", &load)))
        .args(["-e", &run.script])
        .current_dir(&dir)
        .env("TMPDIR", &dir)
        .env_remove("LD_LIBRARY_PATH")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let out = reader(child.stdout.take().expect("a pipe"));
    let err = reader(child.stderr.take().expect("a pipe"));
    let status = wait(&mut child);
    let group = child.id();
    let mut left = status.is_some() && stays(group);
    if status.is_none() || left {
        // SAFETY: the group is that of our child.
        unsafe { libc::kill(-(group as i32), libc::SIGKILL) };
        let _ = child.wait();
    }
    let (out, err) = (out.join().expect("read"), err.join().expect("read"));
    let mut wrong = wrong(status, &err);
    if wrong.is_none() && left {
        wrong = Some("processes stay".into());
    }
    left = std::fs::read_dir(&dir).is_ok_and(|mut d| d.next().is_some());
    if wrong.is_none() && left {
        wrong = Some("files stay".into());
    }
    let _ = std::fs::remove_dir_all(&dir);
    Done {
        status: status.and_then(|s| s.code()),
        out,
        err,
        wrong,
    }
}
