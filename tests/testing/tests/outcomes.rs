//! How tests of this harness end: the program runs itself, once for each way.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::process::Command;

/// Set for the program that this one starts.
const INNER: &str = "SPILE_TESTING_INNER";

fn inner() -> bool {
    std::env::var_os(INNER).is_some()
}

/// Runs one of the tests below in a program of its own: whether it succeeds, and what it prints.
fn ends(test: &str, required: &str) -> (bool, String) {
    let program = std::env::current_exe().expect("own path");
    let done = Command::new(program)
        .args(["--exact", test])
        .env(INNER, "1")
        .env("SPILE_REQUIRE_KERNEL", required)
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    (done.status.success(), text)
}

mod samples {
    #[test]
    fn skips() {
        if super::inner() {
            spile_testing::skip("no privileges\nof two lines");
        }
    }

    #[test]
    fn fails() {
        assert!(!super::inner(), "as it should");
    }
}

#[test]
fn a_skipped_test_says_why() {
    for required in ["", "0"] {
        let (well, text) = ends("samples::skips", required);
        assert!(well, "{text}");
        let line = "test samples::skips ... ignored (no privileges of two lines)";
        assert!(text.lines().any(|l| l == line), "{text}");
        assert!(text.contains("0 passed; 0 failed; 1 ignored"), "{text}");
    }
}

#[test]
fn a_skipped_test_fails_where_none_may_be() {
    let (well, text) = ends("samples::skips", "1");
    assert!(!well && text.contains("no privileges"), "{text}");
    assert!(text.contains("0 passed; 1 failed; 0 ignored"), "{text}");
}

#[test]
fn other_tests_pass_and_fail_as_usual() {
    let (well, text) = ends("samples::fails", "1");
    assert!(!well && text.contains("as it should"), "{text}");
    let (well, text) = ends("a_skipped_test_says_why", "1");
    assert!(
        well && text.contains("1 passed; 0 failed; 0 ignored"),
        "{text}"
    );
}
