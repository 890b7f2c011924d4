//! Runs the commands in README.md, CONTRIBUTING.md and docs:
//!
//! - A block of `sh` has to succeed and to print something. In CONTRIBUTING.md each line of such a
//!   block is a command of its own.
//! - In a block of `text`, a line that begins with `# spile` is a command, and its output has to
//!   contain the lines after it. Lines that begin with `spile profile` or `mpirun` have a
//!   description after spaces.
//! - A code span of the prose whose first word is a program of `PROGRAMS` is a command. A span that
//!   only names a subcommand and its options, such as `spile report --json`, runs with `--help`,
//!   so that an option that does not exist is an error.
//! - An example of the manual page (`.Dl`).
//!
//! A command that cannot run here is in `NOT_RUN` with its reason; its target, package, test or
//! chore must exist nevertheless. `docs/errors.md` has a test for its blocks,
//! `crates/spile/tests/explain.rs`.
//!
//! `sudo` does nothing here, and files for `/usr/local` go to a folder of the test.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed};
use spile_testing::files::{below, root};

/// Programs whose names begin a command in the prose.
const PROGRAMS: &[&str] = &[
    "addr2line",
    "bpftool",
    "bpftrace",
    "cargo",
    "debuginfod-find",
    "dtrace",
    "gdb",
    "git",
    "go",
    "make",
    "mpirun",
    "perf",
    "readelf",
    "spile",
    "srun",
    "stap",
    "strace",
    "systemctl",
    "ulimit",
];

/// Commands that are not run here, by their first words, with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    (
        "make demo",
        "builds a release and installs packages; CI runs it on a fresh machine",
    ),
    ("make test", "the tests are what runs this"),
    ("make deny", "`make test` has run it"),
    (
        "make install",
        "builds a release; crates/spile/tests/install.rs has the rest",
    ),
    (
        "cargo build",
        "builds what this test needs built before it runs",
    ),
    ("cargo fmt", "`make test` begins with it"),
    ("cargo install", "builds a release: minutes"),
    (
        "cargo insta",
        "asks at a terminal, and is a program of its own",
    ),
    ("cargo metadata", "xtask/tests has the test that runs it"),
    (
        "cargo +nightly fuzz",
        "needs a nightly compiler, and does not end",
    ),
    ("cargo test", "the tests themselves"),
    ("MUTANTS=200 cargo test", "the tests themselves"),
    (
        "cargo xtask",
        "takes minutes, or sessions that no other session may disturb",
    ),
    ("BLESS=1 cargo test", "rewrites files of the repository"),
    (
        "INSTA_UPDATE=always cargo test",
        "rewrites files of the repository",
    ),
    ("git diff", "shows what a developer has changed"),
    (
        "systemctl enable",
        "needs an installed unit, and systemd as process 1",
    ),
    (
        "mpirun -n 4",
        "needs MPI and a job: crates/spile/tests/ranks.rs has both",
    ),
    (
        "srun -n 4",
        "needs Slurm: crates/spile/tests/slurm.rs has it",
    ),
    (
        "spile profile --cgroup GROUP",
        "needs a control group: crates/spile/tests/groups.rs has some",
    ),
    (
        "spile profile srun ./app",
        "a command that the text advises against",
    ),
    (
        "debuginfod-find debuginfo",
        "needs a server of debugging information",
    ),
    (
        "spile -e 'probe process(\"/usr/bin/shop\")",
        "a program that is made up: tests/cases/markers.toml has real ones",
    ),
    ("spile -L 'process(\"/usr/bin/shop\")", "as before"),
    (
        "spile attach",
        "reads a session in the background: tests/cases/options.toml has some",
    ),
    ("spile stop", "as before"),
    (
        "spile -F script.stp",
        "as before, with a script that is made up",
    ),
    ("spile syscount -p 1234", "a process that is made up"),
    (
        "spile syscount --live",
        "needs a terminal: crates/spile/tests/live.rs has one",
    ),
    ("spile profile -p PID", "a process that is made up"),
    ("spile profile --live -p PID", "a process that is made up"),
    (
        "spile profile --noise --cpus 2-7",
        "processors that not every machine has: crates/spile/tests/noise.rs",
    ),
    (
        "spile fmt tapset/",
        "rewrites files of the repository; crates/syntax/tests/fmt.rs checks them",
    ),
    ("spile -p1", "lacks its script"),
    ("spile --explain CODE", "CODE stands for a code"),
    ("spile -L PROBE", "PROBE stands for a probe point"),
    ("spile -l PATTERN", "PATTERN stands for a pattern"),
    ("spile fmt FILE", "FILE stands for a file"),
    ("spile fmt --check FILE", "FILE stands for a file"),
    ("spile report FOLDER", "FOLDER stands for a folder"),
    (
        "spile report --html",
        "lacks its file: crates/spile/tests/profile.rs has one",
    ),
    ("spile syscount -p", "lacks its process"),
    ("spile script.stp", "a script that is made up"),
    ("sudo spile script.stp", "a script that is made up"),
    // Commands of other programs, named for what they do.
    ("addr2line -e", "lacks its program"),
    ("dtrace -h", "a program of SystemTap's"),
    (
        "go tool pprof",
        "lacks its profile: crates/spile/tests/export.rs has one",
    ),
    ("perf ", "a program for comparison"),
    ("readelf -n", "lacks its program"),
    ("stap -p4", "SystemTap, for comparison"),
    ("stap fmt", "a script called fmt, which does not exist"),
    ("strace -f -c", "a program for comparison"),
    ("ulimit -v", "lacks its limit"),
];

/// Only a hanging session takes so long.
const LIMIT: Duration = Duration::from_secs(300);

/// A block of commands, with its location.
struct Block {
    location: String,
    text: String,
    /// Lines that its output has to contain; `None`: any output, and success.
    prints: Option<Vec<String>>,
}

/// The commands in a block of `text`: their locations and their output.
fn commands(lines: &[(usize, &str)]) -> Vec<(usize, String, Vec<String>)> {
    let mut found: Vec<(usize, String, Vec<String>)> = Vec::new();
    for (at, line) in lines {
        let open = found
            .last()
            .is_some_and(|(_, text, _)| text.matches('\'').count() % 2 == 1);
        if open {
            let (_, text, _) = found.last_mut().expect("one is open");
            *text += &format!("\n{line}");
        } else if let Some(command) = line.strip_prefix("# ").filter(|c| c.starts_with("spile ")) {
            let command = command.split("   ").next().unwrap_or(command);
            found.push((*at, command.to_owned(), Vec::new()));
        } else if line.starts_with("spile profile") || line.starts_with("mpirun ") {
            let command = line.split("   ").next().unwrap_or(line);
            found.push((*at, command.to_owned(), Vec::new()));
        } else if let Some((_, _, prints)) = found.last_mut() {
            prints.push(line.trim().to_owned());
        }
    }
    found
}

/// A command that ends by itself.
fn that_ends(command: String) -> String {
    let tool = ["spile syscount", "spile profile --system"]
        .iter()
        .any(|t| command.starts_with(t));
    match tool && ![" -c ", " -d ", " -- "].iter().any(|o| command.contains(o)) {
        true => command + " -d 1",
        false => command,
    }
}

/// The commands in a document's blocks.
fn in_blocks(name: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if !line.starts_with("```") {
            continue;
        }
        let block = lines.by_ref().take_while(|(_, line)| *line != "```");
        let block: Vec<_> = block.collect();
        let location = |at: usize| format!("{name}:{}", at + 1);
        match line {
            "```sh" if name == "CONTRIBUTING.md" => {
                found.extend(block.iter().map(|(at, line)| Block {
                    location: location(*at),
                    text: line.split("  #").next().unwrap_or(line).trim().to_owned(),
                    prints: None,
                }));
            }
            "```sh" => found.push(Block {
                location: location(at),
                text: block
                    .iter()
                    .map(|(_, line)| *line)
                    .collect::<Vec<_>>()
                    .join("\n"),
                prints: None,
            }),
            "```text" => {
                found.extend(
                    commands(&block)
                        .into_iter()
                        .map(|(at, text, prints)| Block {
                            location: location(at),
                            text,
                            prints: (!prints.is_empty()).then_some(prints),
                        }),
                )
            }
            _ => {}
        }
    }
    found
}

/// The commands among a document's code spans, which may continue on the next line.
fn in_prose(name: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut prose = String::new();
    let mut in_block = false;
    for line in text.lines() {
        let fence = line.starts_with("```");
        in_block ^= fence;
        prose += if in_block || fence { "" } else { line };
        prose.push('\n');
    }
    // Each second piece between backquotes is a span.
    let mut line = 1;
    for (number, piece) in prose.split('`').enumerate() {
        let text = piece.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut words = text
            .split(' ')
            .skip_while(|word| *word == "sudo" || word.contains('='));
        let is_program = words.next().is_some_and(|word| PROGRAMS.contains(&word));
        if number % 2 == 1 && is_program && words.next().is_some() {
            found.push(Block {
                location: format!("{name}:{line}"),
                text,
                prints: None,
            });
        }
        line += piece.matches('\n').count();
    }
    found
}

/// The examples of the manual page.
fn in_manual(name: &str, text: &str) -> Vec<Block> {
    let lines = text.lines().enumerate();
    let examples = lines.filter_map(|(at, line)| Some((at, line.strip_prefix(".Dl ")?)));
    examples
        .map(|(at, line)| Block {
            location: format!("{name}:{}", at + 1),
            text: line.to_owned(),
            prints: None,
        })
        .collect()
}

/// Each command of the documents once, where it is first.
fn blocks() -> Vec<Block> {
    let mut files = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    files.extend(below(&root().join("docs"), &["md", "1"]));
    let mut found: Vec<Block> = Vec::new();
    for file in files {
        let name = file
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&file).expect("text");
        let mut of_file = match name.as_str() {
            "spile.1" => in_manual(&name, &text),
            "errors.md" => Vec::new(),
            _ => in_blocks(&name, &text),
        };
        if name != "spile.1" {
            of_file.extend(in_prose(&name, &text));
        }
        for block in of_file {
            if found.iter().all(|other| other.text != block.text) {
                found.push(block);
            }
        }
    }
    found
}

/// Where a word after `-p` or `--test` leads in the repository.
fn package(name: &str) -> std::path::PathBuf {
    match name {
        "xtask" => root().join("xtask"),
        "spile-workloads" => root().join("tests/workloads"),
        _ => root()
            .join("crates")
            .join(name.strip_prefix("spile-").unwrap_or(name)),
    }
}

/// A chore, a package, a test or a target that a command names and the repository lacks.
fn missing(text: &str) -> Option<String> {
    let chores = std::fs::read_to_string(root().join("xtask/src/main.rs")).expect("chores");
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |word: &str| {
        let at = words.iter().position(|w| *w == word)?;
        words.get(at + 1).copied()
    };
    if let Some(chore) = after("xtask") {
        // The usage of a chore goes on to the next.
        let usages = chores
            .split_once("const USAGE")
            .map_or("", |(_, text)| text);
        let usages = usages.split_once("\";").map_or("", |(text, _)| text);
        let usage = usages
            .split("cargo xtask ")
            .find(|usage| usage.split_whitespace().next() == Some(chore));
        let Some(usage) = usage else {
            return Some(format!("`cargo xtask {chore}`"));
        };
        let options = words.iter().filter(|w| w.starts_with("--") && w.len() > 2);
        let parts = words.iter().skip_while(|w| **w != "bench").skip(1);
        let mut all = options.chain(parts);
        return match chore {
            // These arguments are for cargo's own tests.
            "test" => None,
            _ => all
                .find(|w| !usage.contains(w.trim_matches(['[', ']'])))
                .map(|w| format!("`{w}` of `cargo xtask {chore}`")),
        };
    }
    if words.first() == Some(&"make") {
        let rules = std::fs::read_to_string(root().join("Makefile")).expect("a Makefile");
        let target = words.get(1).copied().unwrap_or_default();
        let rule = format!("{target}:");
        return (!rules.lines().any(|l| l.starts_with(&rule))).then_some(rule);
    }
    let package = package(after("-p").filter(|_| words.contains(&"cargo"))?);
    let test = after("--test").map_or_else(
        || package.join("Cargo.toml"),
        |test| match package.join("tests").join(format!("{test}.rs")) {
            file if file.exists() => file,
            _ => package.join("tests").join(test).join("main.rs"),
        },
    );
    (!test.exists()).then(|| test.display().to_string())
}

/// The form of a command that runs: one that only names a subcommand and its options asks for
/// help, and one that would go on for ever gets a time.
fn as_run(block: &Block) -> String {
    let command = &block.text;
    let mut words = command.split(' ').skip_while(|word| *word == "sudo");
    let subcommand = words.next() == Some("spile")
        && words.next().is_some_and(|word| {
            ["diff", "fmt", "lsp", "profile", "report", "syscount"].contains(&word)
        });
    if subcommand && words.all(|word| word.starts_with('-')) {
        return format!("{command} --help");
    }
    that_ends(command.clone())
}

/// A program of the test's own, first in `PATH`.
fn program(folder: &Path, name: &str, text: &str) -> std::io::Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text)?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755))
}

fn run(text: &str, prints: Option<&[String]>) -> Result<(), Failed> {
    if !rustix::process::geteuid().is_root() {
        spile_testing::skip("not root");
    }
    let folder = tempfile::tempdir()?;
    program(folder.path(), "sudo", "#!/bin/sh\nexec \"$@\"\n")?;
    let spile = env!("CARGO_BIN_EXE_spile");
    program(
        folder.path(),
        "spile",
        &format!("#!/bin/sh\nexec {spile} \"$@\"\n"),
    )?;
    program(
        folder.path(),
        "app",
        "#!/bin/sh\nls -R /etc >/dev/null 2>&1\nexit 0\n",
    )?;
    std::os::unix::fs::symlink(root().join("examples"), folder.path().join("examples"))?;
    let mut path = folder.path().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let local = folder.path().join("local").display().to_string();
    let out = std::fs::File::create(folder.path().join("out"))?;
    let err = std::fs::File::create(folder.path().join("err"))?;
    let mut child = Command::new("/bin/sh")
        .args(["-e", "-c", &text.replace("/usr/local", &local)])
        .current_dir(folder.path())
        .env("PATH", path)
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()?;
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begin.elapsed() > LIMIT {
            child.kill()?;
            return Err("it does not end".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = |name: &str| std::fs::read(folder.path().join(name)).unwrap_or_default();
    let said = String::from_utf8_lossy(&text("err")).into_owned();
    if let Some(prints) = prints {
        let printed = String::from_utf8_lossy(&text("out")).into_owned() + &said;
        let missing = prints.iter().find(|line| !printed.contains(line.as_str()));
        return match missing {
            None => Ok(()),
            Some(line) => Err(format!("it does not print `{line}`:\n{printed}").into()),
        };
    }
    let redirected = Path::new(&local).exists();
    match status.success()
        && (redirected || !(text("out").is_empty() && said.is_empty()))
        && !said.contains("error[")
    {
        true => Ok(()),
        false => Err(format!("{status}, {} bytes of output\n{said}", text("out").len()).into()),
    }
}

/// Makes system calls that fail, as some program always does on a machine in use. Some commands
/// print only these.
fn keep_busy() {
    std::thread::spawn(|| {
        loop {
            let _ = std::fs::metadata("/nonexistent");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

fn main() -> std::process::ExitCode {
    let mut args = Arguments::from_args();
    // Sessions trace the whole machine.
    args.test_threads = Some(1);
    let mut trials = Vec::new();
    let mut excused = Vec::new();
    for block in blocks() {
        let text = as_run(&block);
        match NOT_RUN.iter().find(|(begin, _)| text.starts_with(begin)) {
            Some((begin, _)) => excused.push(*begin),
            None => trials.push(spile_testing::trial(block.location.clone(), move || {
                run(&text, block.prints.as_deref())
            })),
        }
        if let Some(name) = missing(&block.text) {
            let why = format!("`{}` names {name}, which does not exist", block.text);
            trials.push(spile_testing::trial(block.location, move || {
                Err(Failed::from(why.clone()))
            }));
        }
    }
    assert!(trials.len() >= 20, "where are the commands?");
    let gone = NOT_RUN.iter().find(|(begin, _)| !excused.contains(begin));
    assert!(
        gone.is_none(),
        "no block begins with this any more: {gone:?}"
    );
    keep_busy();
    spile_testing::conclude(&args, trials)
}
