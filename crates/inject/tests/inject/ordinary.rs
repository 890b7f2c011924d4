//! The same as an ordinary user, and on an ordinary user's programs as root.

use std::process::{Command, Stdio};

use spile_inject::{Error, attach};

use crate::image::Counting;
use crate::target::{SOURCES, Target, folder, source, usual};

/// Somebody who owns nothing.
const USER: u32 = 65_533;

fn as_user(program: &std::path::Path) -> Command {
    // SAFETY: a number.
    if unsafe { libc::geteuid() } != 0 {
        skip!("only root can become another user");
    }
    let mut command = Command::new("setpriv");
    command.args([
        &format!("--reuid={USER}"),
        &format!("--regid={USER}"),
        "--clear-groups",
    ]);
    command.arg(program);
    command
}

/// Runs tests of this program as another user.
fn run(tests: &str) {
    let program = folder().join(tests.trim_end_matches(':'));
    let mut command = as_user(&program);
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for name in ["hooked.c", "blocked.c", "filtered.c"] {
        std::fs::copy(source(name), folder().join(name)).unwrap();
    }
    let output = command
        .arg(tests)
        .env(SOURCES, folder())
        .env_remove("SPILE_LONG")
        .env_remove("SPILE_REQUIRE_KERNEL")
        .stdin(Stdio::null())
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(
        text.contains("0 failed") && !text.contains(" 0 passed"),
        "{text}"
    );
}

#[test]
fn counts_as_an_ordinary_user() {
    run("exact::");
}

#[test]
fn attaching_as_an_ordinary_user() {
    run("attaching::");
}

#[test]
fn root_hooks_programs_of_others() {
    let program = usual();
    let mut command = as_user(&program);
    command
        .args(["4", "1000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut target = Target::spawn(&program, command);
    assert!(target.line().starts_with("ready"));
    let counting = Counting::new();
    let hooks = target.hooks(&["plain"], counting.look);
    let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
    target.go();
    target.until("signals");
    assert_eq!((counting.hits(), counting.strange()), (4000, 0));
    assert!(
        counting
            .records()
            .iter()
            .all(|r| r.owner == 0 || (r.uid, r.egid) == (USER, USER))
    );
    attached.detach(&[]).unwrap();
    assert_eq!(target.own_maps(), [""; 0]);
    assert_eq!(target.end().code(), Some(7));
}

/// The first process is root's.
#[test]
fn processes_of_others_are_refused() {
    // SAFETY: a number.
    if unsafe { libc::geteuid() } == 0 {
        return run("ordinary::processes_of_others");
    }
    let counting = Counting::new();
    let target = Target::start(&usual(), "1 1");
    let hooks = target.hooks(&["plain"], counting.count);
    let error = attach(1, &counting.image(), &hooks).unwrap_err();
    assert!(matches!(error, Error::NotOwned | Error::Yama(_)), "{error}");
    target.end();
}
