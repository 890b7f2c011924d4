//! Tests that can say at run time that they were skipped, and why.
//!
//! Rust's own test harness knows two ends of a test that runs. One that finds that it has nothing to
//! test here (no privileges, a program that is not installed) would have to return, and is shown as
//! passed. With this crate it calls [`skip`], and is shown as `ignored (reason)`.
//!
//! A test program of this kind has `harness = false` in its manifest, and begins with
//!
//! ```text
//! #[macro_use]
//! extern crate spile_testing;
//! spile_testing::main!();
//! ```
//!
//! All its tests are written as usual, with `#[test]`, in any module.
//!
//! Where the environment has `SPILE_REQUIRE_KERNEL=1`, as in CI, a skipped test is a failed one.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

pub mod files;
pub mod rehearsal;

#[doc(hidden)]
pub use inventory;
pub use libtest_mimic;
pub use spile_testing_macros::test;

/// A test that the attribute `#[test]` has registered.
#[doc(hidden)]
pub struct Test {
    pub module: &'static str,
    pub name: &'static str,
    pub run: fn(),
}

inventory::collect!(Test);

/// Defines the function `main` of a test program.
#[macro_export]
macro_rules! main {
    () => {
        fn main() -> ::std::process::ExitCode {
            $crate::run()
        }
    };
}

/// [`skip`] with a reason as of `format!`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {
        $crate::skip(::std::format_args!($($reason)+))
    };
}

/// The payload with which a skipped test unwinds.
struct Skipped(String);

/// Ends the running test, which has nothing to test here.
///
/// To be called on the test's own thread.
pub fn skip(reason: impl Display) -> ! {
    // No panic, which would print a message.
    resume_unwind(Box::new(Skipped(reason.to_string())))
}

/// Ends the running test, which needs another kernel: `cargo xtask vm` runs it in a guest.
///
/// Never a failure, because nothing that could be installed here would change it.
pub fn skip_for_guest(need: impl Display) -> ! {
    resume_unwind(Box::new(ForGuest(need.to_string())))
}

/// The payload with which a test that needs another kernel unwinds.
struct ForGuest(String);

/// Begins the reason of a test that needs another kernel.
pub const IN_A_GUEST: &str = "runs in a guest";

/// Reports that one of several variants of the running test is left out. The other variants cover
/// it.
///
/// A failure where no test may be skipped.
pub fn skip_variant(what: impl Display) {
    assert!(
        !skips_fail(),
        "left out, where SPILE_REQUIRE_KERNEL allows it not: {what}"
    );
    eprintln!("left out: {what}");
}

/// Whether a test may not be skipped: `SPILE_REQUIRE_KERNEL` is set, and not `0`.
pub fn skips_fail() -> bool {
    std::env::var_os("SPILE_REQUIRE_KERNEL").is_some_and(|v| !v.is_empty() && v != "0")
}

/// The end of a test that is skipped for this reason.
fn skipped(reason: impl Display) -> Result<Completion, Failed> {
    // The reason is a part of the line with the test's result.
    let reason = reason.to_string();
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    if skips_fail() {
        return Err(format!("skipped, where SPILE_REQUIRE_KERNEL allows none: {reason}").into());
    }
    Ok(Completion::ignored_with(reason))
}

/// A test of libtest-mimic that may call [`skip`]. [`conclude`] names it if it is slow, or needed a second try.
pub fn trial(
    name: impl Into<String>,
    run: impl Fn() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let name = name.into();
    Trial::ignorable_test(name.clone(), move || {
        let since = Instant::now();
        let first = catch_unwind(AssertUnwindSafe(|| outcome(&run)));
        let end = match first {
            Ok(Ok(end)) => Ok(end),
            failed if !is_loaded() => failed.unwrap_or_else(|payload| resume_unwind(payload)),
            failed => {
                let why = failed.map_or(String::new(), |end| {
                    end.err()
                        .and_then(|e| e.message().map(str::to_owned))
                        .unwrap_or_default()
                });
                println!("second try, under load: {name} {why}");
                outcome(&run)
            }
        };
        let took = since.elapsed();
        if took >= SLOW {
            let mut slow = SLOW_TESTS.lock().unwrap_or_else(PoisonError::into_inner);
            slow.push((took, name));
        }
        end
    })
}

/// Whether work kept half of the processors busy in the last minute. Tests of times and of processes of the whole machine then can fail,
/// and have a second try. On an idle machine they have none.
fn is_loaded() -> bool {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = text
        .split(' ')
        .next()
        .and_then(|load| load.parse::<f64>().ok());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    load.is_some_and(|load| load > processors as f64 / 2.0)
}

/// A test that takes longer is named at the end.
const SLOW: Duration = Duration::from_secs(10);

/// The slow tests that have run, with their time.
static SLOW_TESTS: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Runs the trials that the arguments ask for, and then lists the slow ones, the slowest first.
pub fn conclude(arguments: &Arguments, trials: Vec<Trial>) -> ExitCode {
    let code = libtest_mimic::run(arguments, trials).exit_code();
    let mut slow = SLOW_TESTS.lock().unwrap_or_else(PoisonError::into_inner);
    slow.sort_by(|a, b| b.cmp(a));
    for (took, name) in slow.iter() {
        println!("slow: {:6.1} s  {name}", took.as_secs_f64());
    }
    code
}

/// Runs a test to its end.
fn outcome(run: impl Fn() -> Result<(), Failed>) -> Result<Completion, Failed> {
    let payload = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(ended) => return ended.map(|()| Completion::Completed),
        Err(payload) => payload,
    };
    let payload = match payload.downcast::<Skipped>() {
        Ok(skip) => return skipped(skip.0),
        Err(payload) => payload,
    };
    match payload.downcast::<ForGuest>() {
        Ok(need) => Ok(Completion::ignored_with(format!(
            "{IN_A_GUEST}: {}",
            need.0
        ))),
        // The panic has printed its message; the harness shows it once more.
        Err(payload) => resume_unwind(payload),
    }
}

/// The name within the program: `races::counts` of `exact::races` and `counts`.
fn name_within(module: &str, name: &str) -> String {
    match module.split_once("::") {
        Some((_, inner)) => format!("{}::{name}", inner.trim_start_matches("tests::")),
        None => name.to_owned(),
    }
}

/// Runs the tests of this program that its arguments ask for.
pub fn run() -> ExitCode {
    let arguments = Arguments::from_args();
    let tests = inventory::iter::<Test>.into_iter();
    let mut trials: Vec<_> = tests
        .map(|t| {
            let run = t.run;
            trial(name_within(t.module, t.name), move || {
                run();
                Ok(())
            })
        })
        .collect();
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    conclude(&arguments, trials)
}
