//! `cargo xtask test [--guests] [ARGUMENT]...`: runs all tests and ends with one line of counts.
//!
//! Arguments are those of `cargo test`. With `--guests` the short run of `cargo xtask vm` goes on beside the
//! tests, which mostly wait: it begins when they are built.
//! A skipped test reports itself (`tests/testing`). Before the last line, the names of skipped tests and the
//! beginnings of what failed tests print stand once more: a CI system may keep only the end of a long log.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::cargo;

/// Prefix of the reason of a test that needs another kernel (`spile_testing::IN_A_GUEST`).
const IN_A_GUEST: &str = "runs in a guest";

/// Lines of the output of a failed test that are printed again.
const REPEATED_LINES: usize = 12;

/// The results of tests.
#[derive(Default, PartialEq, Eq, Debug)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
    in_a_guest: u64,
    /// Test programs without a result: they did not compile, or crashed.
    unfinished: u64,
    /// Lines about tests that failed or were skipped.
    remarks: Vec<String>,
    /// How many more lines of a failed test's output belong into `remarks`.
    to_repeat: usize,
}

impl Counts {
    /// Counts a line of the output of `cargo test`.
    fn line(&mut self, line: &str) {
        self.remark(line);
        if let Some(result) = line.strip_prefix("test result: ") {
            let number = |what: &str| {
                let mut parts = result.split([';', '.']).map(str::trim);
                let number = parts.find_map(|part| part.strip_suffix(what))?;
                number.trim().parse::<u64>().ok()
            };
            self.passed += number(" passed").unwrap_or(0);
            self.failed += number(" failed").unwrap_or(0);
            self.ignored += number(" ignored").unwrap_or(0);
        } else if line.starts_with("test ") && line.contains(&format!("ignored ({IN_A_GUEST}: ")) {
            self.in_a_guest += 1;
        }
    }

    /// Keeps a line that says which test was skipped or tried again, or how one failed.
    fn remark(&mut self, line: &str) {
        if line.starts_with("---- ") {
            self.to_repeat = REPEATED_LINES;
        } else if line == "failures:" {
            self.to_repeat = 0;
        }
        let skipped = line.starts_with("test ")
            && line.contains(" ... ignored")
            && !line.contains(IN_A_GUEST);
        let tried_again = line.starts_with("second try, under load: ");
        if skipped || tried_again || (self.to_repeat > 0 && !line.trim().is_empty()) {
            self.to_repeat = self.to_repeat.saturating_sub(1);
            self.remarks.push(line.to_owned());
        }
    }

    /// Whether everything that ran passed.
    fn all_passed(&self) -> bool {
        self.failed + self.unfinished == 0 && self.passed > 0
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = self.ignored.saturating_sub(self.in_a_guest);
        write!(
            f,
            "tests: {} passed, {skipped} skipped, {} left to guests, {} failed",
            self.passed, self.in_a_guest, self.failed
        )?;
        match self.unfinished {
            0 => Ok(()),
            _ => f.write_str(", and not all ran to their end"),
        }
    }
}

/// Runs the tests, prints their output, and counts; the status is zero if all passed.
pub(crate) fn run(args: &[String]) {
    let (guests, args) = match args {
        [first, rest @ ..] if first == "--guests" => (true, rest),
        _ => (false, args),
    };
    let (begin, begun) = channel();
    let (counts, guests) = std::thread::scope(|s| {
        let guests = guests.then(|| s.spawn(|| beside(begun)));
        let counts = counted(args, begin);
        (counts, guests.map(|g| g.join()))
    });
    let counts = counts.unwrap_or_else(|why| {
        eprintln!("cargo test: {why}");
        std::process::exit(1);
    });
    let (others, well) = match guests {
        Some(ended) => guests_say(ended.unwrap_or_else(|_| Err("they panicked".into()))),
        None => (String::new(), true),
    };
    for remark in &counts.remarks {
        println!("{remark}");
    }
    println!("{counts}{others}");
    if !(counts.all_passed() && well) {
        std::process::exit(1);
    }
}

/// The part of the last line about other kernels, and whether the tests passed there.
fn guests_say(ended: Result<(String, bool), String>) -> (String, bool) {
    match ended {
        Ok((kernels, true)) => (format!("; guests: all passed on {kernels}"), true),
        Ok((kernels, false)) => (format!("; guests: FAILED, of {kernels}"), false),
        Err(why) => (format!("; guests: {why}"), false),
    }
}

/// Runs the guests once the tests are built, or have ended.
fn beside(begun: Receiver<()>) -> Result<(String, bool), String> {
    let _ = begun.recv();
    spile_guests::short()
}

/// Runs the tests; sends when the first one begins.
fn counted(args: &[String], begin: Sender<()>) -> std::io::Result<Counts> {
    let mut child = cargo()
        .arg("test")
        .args(args)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut counts = Counts::default();
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).split(b'\n') {
            let line = line?;
            if line.starts_with(b"running ") {
                let _ = begin.send(());
            }
            counts.line(&String::from_utf8_lossy(&line));
            let mut to = std::io::stdout().lock();
            to.write_all(&line)?;
            to.write_all(b"\n")?;
        }
    }
    if !child.wait()?.success() && counts.failed == 0 {
        counts.unfinished = 1;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Counts {
        let mut counts = Counts::default();
        text.lines().for_each(|l| counts.line(l));
        counts
    }

    #[test]
    fn results_are_added_up() {
        let text = "\
running 3 tests
test a ... ok
test b ... ignored (no privileges)
test kernel::c   ... ignored (runs in a guest: kprobes)
test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 4 filtered out; finished in 0.00s
test result: FAILED. 20 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s
";
        let counts = counts(text);
        assert!(!counts.all_passed());
        let line = "tests: 21 passed, 1 skipped, 1 left to guests, 3 failed";
        assert_eq!(counts.to_string(), line);
    }

    #[test]
    fn what_failed_and_what_was_skipped_is_repeated() {
        let text = "\
test a ... ignored (runs in a guest: kprobes)
test b ... ignored (no privileges)
second try, under load: d it took too long
test c ... FAILED

failures:

---- c stdout ----

thread 'c' panicked at x.rs:1:
left is not right

failures:
    c

test result: FAILED. 0 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
        let expected = [
            "test b ... ignored (no privileges)",
            "second try, under load: d it took too long",
            "---- c stdout ----",
            "thread 'c' panicked at x.rs:1:",
            "left is not right",
        ];
        assert_eq!(counts(text).remarks, expected);
    }

    #[test]
    fn nothing_is_not_well() {
        assert!(!counts("error: could not compile").all_passed());
        assert!(counts("test result: ok. 1 passed; 0 failed; 0 ignored").all_passed());
    }
}
