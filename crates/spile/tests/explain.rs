//! The pages of `spile --explain`, which are those of `docs/errors.md`: each command causes the
//! diagnostic of its page. Each code is in a test or an example.

use std::path::Path;
use std::process::Command;

use libtest_mimic::{Arguments, Failed};
use spile_testing::files::{below, root};

/// Folders with the tests of codes.
const TESTS: [&str; 4] = ["tests/cases", "crates", "docs", "xtask/tests"];

fn pages() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("docs/errors.md")).expect("pages");
    let pages = text.split("\n## ").skip(1);
    pages
        .filter_map(|page| page.split_once('\n'))
        .map(|(code, text)| (code.to_owned(), text.to_owned()))
        .collect()
}

/// The command of a page, in a folder of its own.
fn gives_its_message(code: &str, command: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let program = Path::new(env!("CARGO_BIN_EXE_spile"));
    let mut path = program.parent().expect("a folder").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let done = Command::new("/bin/sh")
        .args(["-c", command])
        .current_dir(folder.path())
        .env("PATH", path)
        .output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    let kind = if code.starts_with('E') {
        "error"
    } else {
        "warning"
    };
    // A file of `-I` that has errors is left out with a warning.
    let left_out = format!("--explain {code}`");
    match said.contains(&format!("{kind}[{code}]")) || said.contains(&left_out) {
        true => Ok(()),
        false => Err(format!("{command}\n{said}").into()),
    }
}

fn explain(code: &str) -> (bool, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["--explain", code])
        .output()
        .expect("it starts");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (
        done.status.success(),
        text(&done.stdout),
        text(&done.stderr),
    )
}

fn as_typed() -> Result<(), Failed> {
    for code in ["E0301", "e0301", "W0502", " w0502 "] {
        let (well, page, _) = explain(code);
        let begin = format!("{}: ", code.trim().to_uppercase());
        assert!(well && page.starts_with(&begin), "{code}: {page}");
    }
    let (well, page, said) = explain("E0300");
    assert!(!well && page.is_empty() && said.contains("E0301"), "{said}");
    assert!(!explain("nonsense").0);
    Ok(())
}

/// A code whose page has no command is in another test.
fn in_another_test(code: &str) -> Result<(), Failed> {
    let mut files = Vec::new();
    for folder in TESTS {
        files.extend(below(&root().join(folder), &["toml", "rs", "snap"]));
    }
    let is_test = |path: &Path| {
        let path = path.to_string_lossy().into_owned();
        path.contains("/tests") && !path.contains("/target/")
    };
    let found = files.iter().filter(|path| is_test(path)).any(|path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.contains(code)
    });
    match found {
        true => Ok(()),
        false => Err("no test has it".into()),
    }
}

fn main() -> std::process::ExitCode {
    let args = Arguments::from_args();
    let mut trials = vec![spile_testing::trial("a code as one types it", as_typed)];
    for (code, page) in pages() {
        let command = page
            .split_once("```sh\n")
            .and_then(|(_, rest)| rest.split_once("\n```"));
        let command = command.map(|(command, _)| command.to_owned());
        trials.push(spile_testing::trial(code.clone(), move || match &command {
            Some(command) => gives_its_message(&code, command),
            None => in_another_test(&code),
        }));
    }
    spile_testing::conclude(&args, trials)
}
