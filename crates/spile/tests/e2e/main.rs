//! End-to-end cases on the live kernel. The cases are data: `tests/cases/*.toml`.
//!
//! ```toml
//! [[case]]
//! name = "counts are exact"
//! shell = "SPILE -e '...' | head -1"      # instead of all of these: a shell's command line
//! script = 'global a; probe syscall_any { a <<< 1 } ...'   # or file = "path" (a real script)
//! args = ["-c", "LOAD calls 1 1000"]      # LOAD is the workload program
//! stdin = ""                              # text for standard input
//! stdout = "exact text"
//! stdout_has = ["regex", ...]             # each must match somewhere (multi-line mode)
//! stdout_lacks = ["regex"]
//! stderr_has = ["regex"]
//! stderr_lacks = ["regex"]
//! status = 0
//! expects = "workload"                    # where the values come from, see `Expects`: the case counts
//!                                         # for the names of the library that its scripts use
//! kernel = true                           # needs BPF; false: runs anywhere
//! needs = ["kprobes"]                     # what not every machine has, see needs.rs
//! vm = true                               # in the short run on other kernels, `cargo xtask vm`
//! long = true                             # runs by its name, in guests, and with SPILE_LONG=1 (`make test-all`)
//! signal_after = "regex"                  # send `signal` once stdout has it
//! signal = "INT"
//! lines = 3                               # number of lines on stdout
//! scrape = ["regex", ...]                 # --prometheus is added; samples as the real parser
//!                                         # prints them: name{label="value"} number
//! scrape_after = "regex"                  # the first scrape once stderr has it
//! ```
//! No case may depend on the speed of the machine: a case waits for what has to come first, and a
//! sum over time is checked by a lower bound, never by an upper one.
//!
//! `SPILE` and `LOAD` are the programs, `EXAMPLES` is the folder of SystemTap's examples, `PROGRAMS`
//! that of the sources in `tests/programs`, `BUILT` that of `cargo xtask programs`, `DIR` an empty folder of the case. After each case no
//! BPF program or map of it may be left.

mod leaks;
mod needs;
mod scrape;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed};
use serde::Deserialize;

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    shell: Option<String>,
    script: Option<String>,
    file: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    stdin: Option<String>,
    stdout: Option<String>,
    #[serde(default)]
    stdout_has: Vec<String>,
    #[serde(default)]
    stdout_lacks: Vec<String>,
    #[serde(default)]
    stderr_has: Vec<String>,
    #[serde(default)]
    stderr_lacks: Vec<String>,
    #[serde(default)]
    status: i32,
    #[expect(dead_code, reason = "crates/sema/tests/tapset/coverage.rs uses it")]
    expects: Option<spile_testing::files::Expects>,
    #[serde(default = "yes")]
    kernel: bool,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    vm: bool,
    #[serde(default)]
    long: bool,
    signal_after: Option<String>,
    #[serde(default = "sigint")]
    signal: String,
    lines: Option<usize>,
    #[serde(default)]
    scrape: Vec<String>,
    scrape_after: Option<String>,
}

fn yes() -> bool {
    true
}

fn sigint() -> String {
    "INT".into()
}

/// Time limits of a case and of a long one, which an emulated guest runs ten times as slowly: only a
/// hanging one takes so long.
const LIMITS: [Duration; 2] = [Duration::from_secs(300), Duration::from_secs(3600)];
/// Time limit for the rest of the output. Processes that a case left running hold the streams open,
/// and the wait is in vain.
const STREAMS: Duration = Duration::from_secs(20);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The workload program, which cargo builds next to the tests.
fn load() -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    exe.parent()
        .and_then(Path::parent)
        .expect("target folder")
        .join("load")
}

/// Replaces the words that stand for paths.
fn fill(text: &str, dir: &Path) -> String {
    let examples = spile_testing::files::examples().unwrap_or(Path::new("/EXAMPLES"));
    text.replace("SPILE", env!("CARGO_BIN_EXE_spile"))
        .replace("LOAD", &load().display().to_string())
        .replace("EXAMPLES", &examples.display().to_string())
        .replace(
            "PROGRAMS",
            &root().join("tests/programs").display().to_string(),
        )
        .replace("BUILT", &needs::built().display().to_string())
        .replace("DIR", &dir.display().to_string())
}

fn command(case: &Case, dir: &Path) -> Result<Command, Failed> {
    let mut cmd = Command::new(match case.shell {
        Some(_) => "/bin/sh",
        None => env!("CARGO_BIN_EXE_spile"),
    });
    cmd.current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::piped());
    cmd.env("TZ", "UTC");
    // Cargo sets it; the loader of every workload would search libraries there.
    cmd.env_remove("LD_LIBRARY_PATH");
    // With it, Python writes the parts of a line one by one, and other lines come in between.
    cmd.env_remove("PYTHONUNBUFFERED");
    match (&case.shell, &case.script, &case.file) {
        (Some(line), None, None) => {
            cmd.args(["-c", &fill(line, dir)]);
        }
        (None, Some(s), None) => {
            cmd.args(["-e", s]);
        }
        (None, None, Some(f)) => {
            let path = root().join(fill(f, dir));
            if !path.exists() {
                let path = path.display();
                return Err(format!("{path} is not there: install systemtap-doc").into());
            }
            cmd.arg(path);
        }
        (None, None, None) => {}
        _ => return Err("a case has one of shell, script and file".into()),
    }
    if !case.scrape.is_empty() {
        cmd.args(["--prometheus", "127.0.0.1:0"]);
    }
    cmd.args(case.args.iter().map(|a| fill(a, dir)));
    Ok(cmd)
}

/// The content of a stream so far.
type Text = Arc<Mutex<Vec<u8>>>;

/// Collects a stream in the background.
fn reader(mut from: impl Read + Send + 'static) -> (Text, std::thread::JoinHandle<()>) {
    let text = Text::default();
    let all = Arc::clone(&text);
    let thread = std::thread::spawn(move || {
        let mut chunk = [0; 8192];
        // A read error ends the text; the comparison then shows the missing part.
        while let Ok(n @ 1..) = from.read(&mut chunk) {
            all.lock().expect("no panic").extend_from_slice(&chunk[..n]);
        }
    });
    (text, thread)
}

fn so_far(text: &Text) -> String {
    String::from_utf8_lossy(&text.lock().expect("no panic")).into_owned()
}

fn signal(child: &Child, name: &str) -> Result<(), Failed> {
    Command::new("kill")
        .args(["-s", name, &child.id().to_string()])
        .status()
        .map(drop)
        .map_err(|e| e.to_string().into())
}

fn run(case: &Case) -> Result<(), Failed> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let before = leaks::loaded();
    let mut child = command(case, dir.path())?
        .spawn()
        .map_err(|e| e.to_string())?;
    let (out, out_end) = reader(child.stdout.take().expect("piped"));
    let (err, err_end) = reader(child.stderr.take().expect("piped"));
    let mut stdin = child.stdin.take().expect("piped");
    if let Some(text) = &case.stdin {
        // The program may end without reading its input.
        let _ = stdin.write_all(text.as_bytes());
        drop(stdin);
    }
    let start = Instant::now();
    let mut signalled = false;
    let mut scraped = Ok(());
    if !case.scrape.is_empty() {
        scraped = scrape::until(&case.scrape, case.scrape_after.as_deref(), &|| so_far(&err));
        signalled = true;
        signal(&child, &case.signal)?;
    }
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break status;
        }
        if let (Some(pattern), false) = (&case.signal_after, signalled)
            && matches(pattern, &so_far(&out))?
        {
            signalled = true;
            signal(&child, &case.signal)?;
        }
        if start.elapsed() > LIMITS[usize::from(case.long)] {
            let _ = child.kill();
            let (out, err) = (so_far(&out), so_far(&err));
            return Err(
                format!("did not end in time\n--- stdout\n{out}\n--- stderr\n{err}").into(),
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let deadline = Instant::now() + STREAMS;
    while !(out_end.is_finished() && err_end.is_finished()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (out, err) = (so_far(&out), so_far(&err));
    scraped
        .and_then(|()| check(case, status.code(), &out, &err))
        .and_then(|()| leaks::none_left(&before))
        .map_err(|why| Failed::from(format!("{why}\n--- stdout\n{out}\n--- stderr\n{err}")))
}

/// Whether a pattern matches somewhere; `^` and `$` match at lines.
fn matches(pattern: &str, text: &str) -> Result<bool, String> {
    let re = regex::Regex::new(&format!("(?m){pattern}")).map_err(|e| e.to_string())?;
    Ok(re.is_match(text))
}

fn check(case: &Case, status: Option<i32>, out: &str, err: &str) -> Result<(), String> {
    if status != Some(case.status) {
        return Err(format!("exit status {status:?}, expected {}", case.status));
    }
    if let Some(want) = &case.stdout
        && out != want
    {
        return Err(format!("stdout differs, expected:\n{want}"));
    }
    if let Some(n) = case.lines
        && out.lines().count() != n
    {
        return Err(format!("{} lines, expected {n}", out.lines().count()));
    }
    for (text, name, patterns, wanted) in [
        (out, "stdout", &case.stdout_has, true),
        (out, "stdout", &case.stdout_lacks, false),
        (err, "stderr", &case.stderr_has, true),
        (err, "stderr", &case.stderr_lacks, false),
    ] {
        for p in patterns {
            if matches(p, text)? != wanted {
                let verb = if wanted { "lacks" } else { "has" };
                return Err(format!("{name} {verb} /{p}/"));
            }
        }
    }
    if err.contains("panicked at") {
        return Err("it panicked".into());
    }
    Ok(())
}

/// Why kernel cases cannot run here, if so.
fn no_kernel() -> Option<String> {
    let out = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args([
            "-e",
            "probe kernel.trace(\"sched_switch\") { } probe begin { exit() }",
        ])
        .output()
        .ok()?;
    (!out.status.success()).then(|| String::from_utf8_lossy(&out.stderr).into_owned())
}

/// Files whose cases also run with `-u`: a script's behaviour must not depend on the optimiser.
const ALSO_UNOPTIMISED: [&str; 5] = [
    "constructs",
    "kernel-ops",
    "language",
    "operators",
    "probes",
];

/// The case with `-u`, if that makes a difference.
fn unoptimised(stem: &str, case: &Case) -> Option<Case> {
    let runs = case.script.is_some() && case.status == 0;
    (runs && ALSO_UNOPTIMISED.contains(&stem)).then(|| {
        let mut twin = case.clone();
        twin.args.insert(0, "-u".into());
        twin
    })
}

fn main() -> std::process::ExitCode {
    let mut args = Arguments::from_args();
    // Cases count events of the whole machine and measure times, so they run one after the other.
    args.test_threads = Some(1);
    let no_kernel = no_kernel();
    let every = args.filter.is_some() || needs::all_cases();
    let mut trials = Vec::new();
    for (stem, cases) in spile_testing::files::cases::<Case>() {
        for case in cases {
            if !needs::in_this_run(case.vm) || (case.long && !every) {
                continue;
            }
            let missing = needs::missing(&case.needs)
                .unwrap_or_else(|why| panic!("{stem}, {}: {why}", case.name));
            let why = no_kernel.clone().filter(|_| case.kernel);
            let trial = |name: String, case: Case| {
                let (missing, why) = (missing.clone(), why.clone());
                spile_testing::trial(name, move || {
                    if let Some(missing) = missing.clone() {
                        missing.skip();
                    }
                    if let Some(why) = &why {
                        spile_testing::skip(why);
                    }
                    run(&case)
                })
            };
            if let Some(twin) = unoptimised(&stem, &case) {
                trials.push(trial(format!("-u {stem}::{}", case.name), twin));
            }
            trials.push(trial(format!("{stem}::{}", case.name), case));
        }
    }
    spile_testing::conclude(&args, trials)
}
