//! Runs the commands in README.md and docs/*.md. A block of `sh` has to succeed and to print
//! something. In a block of `text` a line that begins with `# spile` is a command, and its output
//! has to contain the lines after it. Lines that begin with `spile profile` have a description
//! after spaces. (`docs/errors.md` has a test of its own, `crates/spile/tests/explain.rs`.)
//!
//! `sudo` does nothing here, and files for `/usr/local` go to a folder of the test.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed};
use spile_testing::files::{below, root};

/// Blocks that are not run here, by their first line, with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    (
        "make demo",
        "builds a release and installs packages; CI runs it on a fresh machine",
    ),
    ("make test", "the tests are what runs this"),
    (
        "spile -e 'probe process(\"/usr/bin/shop\")",
        "a program that is made up: tests/cases/markers.toml has real ones",
    ),
    ("spile -L 'process(\"/usr/bin/shop\")", "as before"),
    ("spile syscount -p 1234", "a process that is made up"),
    (
        "spile syscount --live",
        "needs a terminal: crates/spile/tests/live.rs has one",
    ),
    ("spile profile -p PID", "a process that is made up"),
    (
        "spile profile --noise --cpus 2-7",
        "processors that not every machine has: crates/spile/tests/noise.rs",
    ),
];

/// Only a hanging session takes so long.
const LIMIT: Duration = Duration::from_secs(300);

/// A block of commands, with its place.
struct Block {
    place: String,
    text: String,
    /// Lines that its output has to contain; `None`: any output, and success.
    prints: Option<Vec<String>>,
}

/// The commands in a block of `text`: their places and their output.
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
        } else if line.starts_with("spile profile") {
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

fn blocks() -> Vec<Block> {
    let mut files = vec![root().join("README.md")];
    files.extend(below(&root().join("docs"), &["md"]));
    let mut found = Vec::new();
    for file in files.iter().filter(|f| !f.ends_with("errors.md")) {
        let name = file
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(file).expect("text");
        let mut lines = text.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            if !line.starts_with("```") {
                continue;
            }
            let block = lines.by_ref().take_while(|(_, line)| *line != "```");
            let block: Vec<_> = block.collect();
            match line {
                "```sh" => found.push(Block {
                    place: format!("{name}:{}", at + 1),
                    text: block
                        .iter()
                        .map(|(_, line)| *line)
                        .collect::<Vec<_>>()
                        .join("\n"),
                    prints: None,
                }),
                "```text" => found.extend(commands(&block).into_iter().map(
                    |(at, text, prints)| Block {
                        place: format!("{name}:{}", at + 1),
                        text,
                        prints: (!prints.is_empty()).then_some(prints),
                    },
                )),
                _ => {}
            }
        }
    }
    found
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

fn main() {
    let mut args = Arguments::from_args();
    // Sessions trace the whole machine.
    args.test_threads = Some(1);
    let mut trials = Vec::new();
    let mut excused = Vec::new();
    for Block {
        place,
        text,
        prints,
    } in blocks()
    {
        let text = that_ends(text);
        match NOT_RUN.iter().find(|(begin, _)| text.starts_with(begin)) {
            Some((begin, _)) => excused.push(*begin),
            None => trials.push(spile_testing::trial(place, move || {
                run(&text, prints.as_deref())
            })),
        }
    }
    assert!(trials.len() >= 5, "where are the commands?");
    let gone = NOT_RUN.iter().find(|(begin, _)| !excused.contains(begin));
    assert!(
        gone.is_none(),
        "no block begins with this any more: {gone:?}"
    );
    keep_busy();
    libtest_mimic::run(&args, trials).exit();
}
