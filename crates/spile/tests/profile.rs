//! `spile profile` on the live kernel: the time of threads with known lifetimes adds up, and calls
//! are counted exactly. The programs are `lives.c`, `waits.c`, `regions.c` and `fault-waits.c` of `tests/programs`.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use spile_profile::file::read_path;
use spile_profile::model::{ContextKind, Profile, Thread, TimePart};

mod common;
use common::compiled;

/// The program, compiled once.
static LIVES: LazyLock<PathBuf> = LazyLock::new(|| compiled("lives", "lives", &[]));

/// Runs `spile profile -o FILE` with these arguments; returns the profile and the output.
fn record(args: &[&str]) -> (Profile, Output) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.spile");
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "-o", file.to_str().unwrap()])
        .args(args)
        .env("OMP_WAIT_POLICY", "passive")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let read = read_path(&file).unwrap_or_else(|e| panic!("{e:?}: {said}"));
    assert!(read.notes.is_empty(), "{said}");
    (read.profile, output)
}

fn lives(args: &[&str]) -> (Profile, Output) {
    let command = ["--", LIVES.to_str().unwrap()];
    record(&[&command[..], args].concat())
}

/// Number of finished calls of that name, in all threads.
fn count(profile: &Profile, call: &str) -> u64 {
    let calls = profile.data.calls.iter();
    calls.filter(|c| c.call == call).map(|c| c.count).sum()
}

/// Calls of that name that the end of their thread cut short.
fn cut(profile: &Profile, call: &str) -> usize {
    let calls = profile.data.calls.iter();
    calls
        .filter(|c| c.call == call && c.unfinished.is_some())
        .count()
}

/// Asserts that no part of a thread's time is missing and none is counted twice. Lost events can
/// only shift time from one part to another.
#[track_caller]
fn closes(profile: &Profile) {
    let at = profile.data.at_ns;
    assert!(!profile.data.threads.is_empty());
    for thread in &profile.data.threads {
        let (wall, residual) = (thread.wall(at), thread.residual(at));
        assert!(
            residual.unsigned_abs() <= wall / 100,
            "{residual} of {wall}: {thread:?}"
        );
        assert!(thread.ended_ns.is_none_or(|e| e <= at), "{thread:?}");
    }
    for call in &profile.data.calls {
        assert!(call.time() <= at, "an absolute time: {call:?}");
        assert!(
            call.cpu + call.blocked + call.runnable <= call.total,
            "{call:?}"
        );
        let open = call.unfinished_parts.unwrap_or_default();
        assert_eq!(open.sum(), call.unfinished.unwrap_or(0), "{call:?}");
        assert_eq!(call.parts().sum(), call.time(), "{call:?}");
        assert!(call.min <= call.max && call.max <= call.total, "{call:?}");
    }
}

fn thread(profile: &Profile, tid: u32) -> &Thread {
    let found = profile.data.threads.iter().find(|t| t.tid == tid);
    found.unwrap_or_else(|| panic!("no thread {tid}"))
}

#[test]
fn calls_are_counted_exactly() {
    let (profile, _) = lives(&["calls", "100000"]);
    closes(&profile);
    assert_eq!(count(&profile, "getppid"), 100_000);
    assert_eq!(count(&profile, "exit_group"), 1);
    assert_eq!(profile.data.threads.len(), 1);
    assert_eq!(profile.end.unwrap().status, Some(0));
}

/// The calls of the library that reports regions, and of the dynamic linker that loads it, do not
/// count: there are as many calls of each name as without the library.
#[test]
fn calls_of_the_region_library_are_not_counted() {
    let again = format!("{0} calls 7; exec {0} children", LIVES.to_str().unwrap());
    let calls = |options: &[&str]| {
        let command = ["--", "sh", "-c", again.as_str()];
        let (profile, _) = record(&[options, &command].concat());
        closes(&profile);
        let mut calls: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for call in &profile.data.calls {
            let sum = calls.entry(call.call.clone()).or_default();
            sum.0 += call.count;
            sum.1 += call.failures();
        }
        calls
    };
    let with = calls(&[]);
    assert_eq!(with["getppid"].0, 7 + 9 + 1, "of the shell, too");
    assert_eq!(with, calls(&["--no-regions"]));
}

#[test]
fn the_summary_is_printed_as_json() {
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "--json", "--", LIVES.to_str().unwrap()])
        .args(["calls", "1000"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let line = said.lines().find(|l| l.starts_with('{'));
    let report: serde_json::Value = serde_json::from_str(line.unwrap_or(&said)).unwrap();
    let calls = report["calls"].as_array().unwrap();
    let getppid = calls.iter().find(|c| c["name"] == "getppid").unwrap();
    assert_eq!(getppid["count"], 1000);
    assert_eq!(report["recordings"][0]["status"], 0);
}

/// Two threads wait until the recording ends: the one that started the program remains.
#[test]
fn a_thread_that_only_sleeps_is_in_the_account() {
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "--json", "-d", "0.5", "--"])
        .args([LIVES.to_str().unwrap(), "wait"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let line = said.lines().find(|l| l.starts_with('{'));
    let report: serde_json::Value = serde_json::from_str(line.unwrap_or(&said)).unwrap();
    let list = |name: &str| report[name].as_array().unwrap().clone();
    assert_eq!((list("threads").len(), list("asleep").len()), (1, 1));
    let asleep = &list("asleep")[0];
    assert_eq!(asleep["mostly_in"], "pause");
    assert_eq!(report["all"]["time"], list("threads")[0]["time"]);
    let calls = list("calls");
    let pause = calls.iter().find(|c| c["name"] == "pause").unwrap();
    assert_eq!(pause["unfinished"]["count"], 1, "{pause}");
}

#[test]
fn threads_that_come_and_go_are_counted() {
    let (profile, _) = lives(&["threads", "2000"]);
    closes(&profile);
    assert_eq!(profile.data.threads.len(), 2001);
    assert_eq!(count(&profile, "getppid"), 2000);
    assert_eq!(count(&profile, "exit"), 2000);
    assert!(profile.data.threads.iter().all(|t| t.ended_ns.is_some()));
}

#[test]
fn a_thread_that_executes_a_program_becomes_the_leader() {
    let (profile, _) = lives(&["exec-thread"]);
    closes(&profile);
    assert_eq!(count(&profile, "getppid"), 7);
    let pid = profile.header.pid.unwrap();
    assert_eq!(profile.data.threads.len(), 3);
    let mut open = profile.data.calls.iter().filter(|c| c.unfinished.is_some());
    let open = open.find(|c| c.call == "execve");
    let open = open.expect("the call of the thread that became the leader");
    assert_ne!(open.tid, pid);
    assert!(thread(&profile, open.tid).ended_ns < thread(&profile, pid).ended_ns);
}

#[test]
fn children_of_every_kind_are_followed() {
    let (profile, _) = lives(&["children"]);
    closes(&profile);
    assert_eq!(count(&profile, "getppid"), 3 + 5 + 1);
    assert_eq!(profile.data.processes.len(), 4);
    let status = |s| {
        profile
            .data
            .processes
            .iter()
            .filter(|p| p.status == Some(s))
            .count()
    };
    assert_eq!((status(0), status(4 << 8)), (3, 1));
    for (call, times) in [("vfork", 1), ("clone", 1), ("clone3", 1), ("wait4", 3)] {
        assert_eq!(count(&profile, call), times, "{call}");
    }
}

#[test]
fn signals_within_calls_do_not_disturb_the_account() {
    let (profile, _) = lives(&["signals"]);
    closes(&profile);
    let of = |call: &str| {
        profile
            .data
            .calls
            .iter()
            .filter(|c| c.call == call)
            .collect::<Vec<_>>()
    };
    assert_eq!(count(&profile, "pause"), 1);
    assert_eq!(of("pause")[0].errors["ERESTARTNOHAND"], 1);
    // The read is interrupted, and restarted by the kernel.
    let read = of("read");
    let interrupted: u64 = read
        .iter()
        .filter_map(|c| c.errors.get("ERESTARTSYS"))
        .sum();
    assert_eq!(interrupted, 1);
    assert_eq!(count(&profile, "rt_sigreturn"), 2);
    assert!(of("rt_sigreturn").iter().all(|c| c.errors.is_empty()));
}

#[test]
fn threads_killed_within_calls_have_ends() {
    let (profile, output) = lives(&["killed"]);
    closes(&profile);
    assert_eq!(output.status.code(), Some(128 + 9));
    assert_eq!(profile.end.as_ref().unwrap().status, Some(9));
    assert!(profile.data.threads.iter().all(|t| t.ended_ns.is_some()));
    assert_eq!((count(&profile, "pause"), cut(&profile, "pause")), (0, 1));
    assert_eq!(count(&profile, "kill"), 1);
}

/// Threads that end call `exit`. One of them ends the process by `exit_group`, and the others stay
/// in their states until then.
#[test]
fn threads_that_end_in_calls_have_ends() {
    let (profile, _) = lives(&["ends", "50"]);
    closes(&profile);
    let threads = &profile.data.threads;
    assert_eq!(threads.len(), 101);
    assert!(threads.iter().all(|t| t.ended_ns.is_some()));
    let ends = ["exit", "exit_group", "pause"].map(|call| count(&profile, call));
    assert_eq!(ends, [50, 1, 0]);
    assert_eq!(cut(&profile, "pause"), 50);
    let calls = || profile.data.calls.iter();
    assert_eq!(calls().filter(|c| c.unfinished.is_some()).count(), 50);
    assert!(
        calls().all(|c| c.call != "pause" || c.errors.is_empty()),
        "what the end of a thread cut short has not failed"
    );
}

/// A fault that waits is on no processor. The program's faults are served 50 ms after they were
/// asked for.
#[test]
fn faults_that_wait_are_counted() {
    let program = compiled("fault-waits", "fault-waits", &[]);
    let (profile, output) = record(&["--", program.to_str().unwrap()]);
    if output.status.code() == Some(77) {
        spile_testing::skip!("no userfaultfd");
    }
    closes(&profile);
    let waits = thread(&profile, profile.header.pid.unwrap()).parts;
    assert!(waits.blocked + waits.runnable >= 250_000_000, "{waits:?}");
    let faults = waits.fault_minor.ns + waits.fault_major.ns;
    assert!(faults < 125_000_000, "{waits:?}");
}

#[test]
fn parts_of_time_add_up() {
    let (profile, _) = lives(&["pages", "2000"]);
    closes(&profile);
    let faults = profile.data.threads[0].parts.fault_minor;
    assert!((2000..2500).contains(&faults.count), "{faults:?}");
    let (profile, _) = lives(&["mixed", "100"]);
    closes(&profile);
    let pid = profile.header.pid.unwrap();
    let mut others: Vec<&Thread> = profile
        .data
        .threads
        .iter()
        .filter(|t| t.tid != pid)
        .collect();
    others.sort_by_key(|t| t.tid);
    let [sleeps, naps, spins] = others[..] else {
        panic!("{others:?}")
    };
    // How long they wait for a processor is the machine's business.
    let most = |t: &Thread| {
        TimePart::ALL
            .into_iter()
            .filter(|p| *p != TimePart::Runnable)
            .max_by_key(|p| p.time_in(&t.parts))
            .unwrap()
    };
    // A sleep of 100 ms begins before the thread leaves its processor.
    let slept = 98_000_000;
    assert!(
        sleeps.parts.blocked >= slept && most(sleeps) == TimePart::Blocked,
        "{sleeps:?}"
    );
    assert!(naps.parts.blocked >= slept, "{naps:?}");
    assert!(spins.parts.blocked < 50_000_000, "{spins:?}");
    assert!(
        matches!(most(spins), TimePart::User | TimePart::Runnable),
        "{spins:?}"
    );
    let waits = thread(&profile, pid);
    assert!(waits.parts.blocked >= slept, "{waits:?}");
}

/// Some kernels do not show the switches from some threads: here three of four are left out of the
/// script. Events of the scheduler replace them, and blocked time is never processor time.
#[test]
fn switches_within_calls_are_not_shown_as_time_off() {
    let script = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "--print-script"])
        .output()
        .unwrap();
    let script = String::from_utf8(script.stdout).unwrap();
    let shown = "if (n && target_set_pid(next_pid)";
    assert_eq!(script.matches(shown).count(), 1);
    let script = script.replace(shown, &format!("{shown} && !randint(4)"));
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["-e", &script, "-G", "trace=1", "-c"])
        .arg(format!("{} mixed 100", LIVES.to_str().unwrap()))
        .output()
        .unwrap();
    let rows = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = rows.lines().map(|r| r.split('\t').collect()).collect();
    let of = |kind: &'static str| rows.iter().filter(move |r| r[0] == kind);
    let number = |field: &str| field.parse::<u64>().unwrap();
    let unseen = number(of("account").next().unwrap()[2]);
    assert!(unseen > 20, "{unseen} of some hundred");
    let naps = of("call").find(|r| r[3] == "clock_nanosleep" && r[4] == "50");
    let naps = naps.unwrap_or_else(|| panic!("{rows:?}"));
    let blocked = number(naps[8]) - number(naps[9]);
    assert!(blocked >= 98_000_000, "{naps:?}");
    assert!(
        number(naps[5]) - blocked < number(naps[9]) + 20_000_000,
        "{naps:?}"
    );
    // The rows of the trace have it as well.
    let off = of("off").filter(|r| r[1] == naps[1] && r[3] == "0");
    let off: u64 = off
        .map(|r| number(r[6]) - number(r[4]) - number(r[5]))
        .sum();
    assert!(off >= 98_000_000, "{off} of {blocked}");
}

#[test]
fn bytes_and_errors_are_counted() {
    let (profile, _) = lives(&["bytes", "100"]);
    closes(&profile);
    let call = |name| profile.data.calls.iter().find(|c| c.call == name).unwrap();
    assert_eq!(call("write").bytes, 100_000);
    assert!(call("read").bytes >= 100_000);
    assert!(call("close").errors["EBADF"] >= 100);
}

#[test]
fn a_process_that_runs_already_is_recorded() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let mut child = Command::new(&*LIVES)
        .arg("ready")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let recording = |name: &str, more: &[&str]| {
        let file = dir.path().join(name);
        let mut spile = Command::new(env!("CARGO_BIN_EXE_spile"))
            .args(["profile", "-v", "-o", file.to_str().unwrap()])
            .args(["-p", &child.id().to_string()])
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(spile.stderr.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("starting run")));
        (spile, said, file)
    };
    // Two threads without any event.
    let (mut spile, said, file) = recording("idle", &["-d", "0.2"]);
    said.for_each(drop);
    assert!(spile.wait().unwrap().success());
    let profile = read_path(&file).unwrap().profile;
    closes(&profile);
    assert_eq!(profile.data.threads.len(), 2);
    assert!(
        profile
            .data
            .threads
            .iter()
            .all(|t| t.parts.blocked == profile.data.at_ns)
    );
    let mut open: Vec<&str> = profile.data.calls.iter().map(|c| &*c.call).collect();
    open.sort_unstable();
    assert_eq!(open, ["pause", "read"]);
    // The same, until the process ends.
    let (mut spile, said, file) = recording("whole", &[]);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    said.for_each(drop);
    assert!(spile.wait().unwrap().success());
    let profile = read_path(&file).unwrap().profile;
    closes(&profile);
    assert_eq!(count(&profile, "getppid"), 11);
    // It was already in the call when the recording began.
    let read = profile
        .data
        .calls
        .iter()
        .find(|c| c.call == "read")
        .unwrap();
    assert_eq!((read.count, read.unfinished), (1, None));
    assert_eq!(profile.data.threads.len(), 2);
}

#[test]
fn a_recorder_that_is_killed_leaves_an_account() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.spile");
    let mut spile = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "--checkpoint", "1", "-o", file.to_str().unwrap()])
        .args(["--", LIVES.to_str().unwrap(), "bytes", "1000000000"])
        .spawn()
        .unwrap();
    let account = || {
        read_path(&file)
            .ok()
            .filter(|read| read.profile.data.at_ns > 0)
    };
    while account().is_none() {
        assert!(spile.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    spile.kill().unwrap();
    spile.wait().unwrap();
    let read = account().unwrap();
    assert!(read.profile.end.is_none() && !read.notes.is_empty());
    let command = read.profile.header.pid.unwrap();
    let killed = Command::new("kill")
        .args(["-9", &command.to_string()])
        .status();
    assert!(killed.unwrap().success());
    let calls = ["write", "read", "close"].map(|call| count(&read.profile, call));
    assert!(
        calls.iter().all(|n| n.abs_diff(calls[0]) < 100 && *n > 0),
        "{calls:?}"
    );
}

#[test]
fn regions_of_openmp_are_recorded() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/regions.c");
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("regions");
    let done = Command::new("cc")
        .args(["-g", "-O2", "-fopenmp", "-o"])
        .args([&program, &source])
        .status();
    assert!(done.unwrap().success());
    let (profile, output) = record(&["--", program.to_str().unwrap()]);
    closes(&profile);
    let said = String::from_utf8_lossy(&output.stderr);
    let line = |what: &str| {
        let text = std::fs::read_to_string(&source).unwrap();
        1 + text.lines().position(|l| l.contains(what)).unwrap() as u32
    };
    let region = |kind: ContextKind, at: u32| {
        let mut found = profile.data.contexts.iter();
        found.find(|c| c.kind == kind && c.line.is_some_and(|l| (at..at + 2).contains(&l)))
    };
    let first = region(ContextKind::OmpRegion, line("first region")).expect(&said);
    let second = region(ContextKind::OmpRegion, line("second region")).expect(&said);
    assert!(
        first.name.starts_with("work") && second.name == "main",
        "{first:?} {second:?}"
    );
    // The sleeps of one thread are in it, and the other threads wait in its barrier.
    let within = |id: u32, call: &str| {
        let calls = profile.data.calls.iter();
        let of = calls.filter(|c| c.context == id && c.call.contains(call));
        of.map(|c| (c.count, c.blocked))
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    assert_eq!(within(first.id, "getppid").0, 4 * 5);
    assert_eq!(within(second.id, "getppid").0, 0);
    let (naps, slept) = within(second.id, "nanosleep");
    assert!(naps == 1 && slept >= 50_000_000, "{naps} {slept}: {said}");
    let barrier = profile
        .data
        .contexts
        .iter()
        .find(|c| c.kind == ContextKind::OmpBarrier && c.parent == Some(second.id));
    let waits = within(barrier.expect(&said).id, "futex");
    assert!(waits.1 >= 3 * 40_000_000, "{waits:?}: {said}");
    let text = "By region: implicit barrier (regions.c:";
    assert!(said.contains(text), "{said}");
}

/// Call paths of a program without frame pointers, after it has ended.
#[test]
fn call_paths_without_frame_pointers_are_whole() {
    let waits = compiled("waits", "waits-paths", &["-g", "-fomit-frame-pointer"]);
    let waits = waits.to_str().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("waits");
    std::fs::copy(waits, &program).unwrap();
    let (profile, output) = record(&["--stacks", "--", program.to_str().unwrap(), "paths", "100"]);
    closes(&profile);
    std::fs::remove_file(&program).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let stacks = &profile.data.stacks;
    let below = |call: &str, names: &[&str]| -> u64 {
        let of = stacks.iter().filter(|s| {
            let mut path = s.frames.iter().map(|f| &*f.function);
            s.call == call && names.iter().all(|n| path.any(|f| f == *n))
        });
        of.map(|s| s.count).sum()
    };
    assert_eq!(below("getppid", &["leaf", "left", "main"]), 300, "{said}");
    assert_eq!(below("getppid", &["leaf", "right", "main"]), 500, "{said}");
    let deep = [&["leaf"][..], &["deep"; 11], &["main"]].concat();
    assert_eq!(below("getppid", &deep), 1, "{said}");
    assert_eq!(below("getppid", &["main"]), count(&profile, "getppid"));
    assert_eq!(below("clock_nanosleep", &["slow", "main"]), 1, "{said}");
    let leaf = stacks.iter().flat_map(|s| &s.frames);
    let leaf = leaf.into_iter().find(|f| f.function == "leaf").unwrap();
    assert_eq!(leaf.module.as_deref(), Some("waits"));
    assert!(leaf.file.as_ref().unwrap().ends_with("waits.c") && leaf.line > Some(10));
    // Calls that return have a stack, with their whole time.
    for call in &profile.data.calls {
        let of = || stacks.iter().filter(|s| s.call == call.call);
        let (count, ns) = of().fold((0, 0), |sum, s| (sum.0 + s.count, sum.1 + s.ns));
        match call.call.as_str() {
            "execve" | "exit_group" => assert_eq!(count, 0),
            _ => assert_eq!((count, ns), (call.count, call.total), "{call:?}"),
        }
    }
    assert!(said.contains("Call paths"), "{said}");
    assert!(said.contains("main > slow > "), "{said}");
    let plain = record(&["--", waits, "paths"]).0;
    assert!(plain.data.stacks.is_empty() && plain.data.futexes.is_empty());
    assert!(plain.data.calls.iter().all(|c| c.histogram.is_none()));
}

#[test]
fn histograms_of_latency_have_every_call() {
    let waits = compiled("waits", "waits-times", &[]);
    let (profile, output) = record(&["--latency", "--", waits.to_str().unwrap(), "times", "5000"]);
    closes(&profile);
    for call in &profile.data.calls {
        let all: u64 = call.histogram.iter().flatten().sum();
        assert_eq!(all, call.count, "{call:?}");
    }
    let of = |name| profile.data.calls.iter().find(|c| c.call == name).unwrap();
    assert_eq!(of("getppid").count, 5000);
    // Sleeps of 2 ms: 2^20 ns and more.
    let naps = of("clock_nanosleep").histogram.as_ref().unwrap();
    assert_eq!(
        (naps[..20].iter().sum::<u64>(), naps[20..].iter().sum()),
        (0, 8)
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("\nLatency (bars: ") && said.contains('█'),
        "{said}"
    );
}

#[test]
fn futexes_name_waiters_and_wakers() {
    for options in [&[][..], &["-static"]] {
        let waits = compiled("waits", &format!("waits-wake{}", options.len()), options);
        let (profile, output) = record(&["--futexes", "--", waits.to_str().unwrap(), "wake", "20"]);
        closes(&profile);
        let said = String::from_utf8_lossy(&output.stderr);
        let (main, futexes) = (profile.header.pid.unwrap(), &profile.data.futexes);
        let named = |name: &str| {
            let found = futexes.iter().find(|f| f.name.as_deref() == Some(name));
            found.unwrap_or_else(|| panic!("{name}: {futexes:?} {said}"))
        };
        let gate = named("gate");
        // The last wait timed out after 20 ms; a wait that returned at once did not count.
        assert_eq!(gate.waits, 20 + 1, "{gate:?}");
        assert!(gate.max >= 20_000_000 && gate.ns >= gate.max, "{gate:?}");
        let wakes = |f: &spile_profile::model::Futex| {
            assert!(f.wakes.iter().all(|w| w.waker == main && w.woken != main));
            assert!(f.wakes.iter().map(|w| w.ns).sum::<u64>() <= f.ns);
            f.wakes.iter().map(|w| w.count).sum::<u64>()
        };
        assert_eq!(wakes(gate), 20, "{gate:?}");
        let second = named("gates+0xc");
        assert_eq!((second.waits, wakes(second)), (2, 2));
        assert!(said.contains("\nFutexes\n"), "{said}");
    }
}

#[test]
fn futexes_of_the_newer_calls_name_waiters_and_wakers() {
    let waits = compiled("waits", "waits-wake2", &[]);
    let (profile, output) = record(&["--futexes", "--", waits.to_str().unwrap(), "wake2", "20"]);
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        spile_testing::skip("this kernel has no futex_wait");
    }
    closes(&profile);
    let (main, futexes) = (profile.header.pid.unwrap(), &profile.data.futexes);
    for name in ["gate", "gates+0xc"] {
        let found = futexes.iter().find(|f| f.name.as_deref() == Some(name));
        let found = found.unwrap_or_else(|| panic!("{name}: {futexes:?} {said}"));
        assert_eq!(found.waits, 20, "{found:?}");
        let [wake] = found.wakes[..] else {
            panic!("{found:?}")
        };
        assert_eq!((wake.waker, wake.count), (main, 20), "{found:?}");
    }
    assert_eq!(count(&profile, "futex_wait"), 20);
    assert_eq!(count(&profile, "futex_waitv"), 20);
}

#[test]
fn a_daemon_does_not_delay_the_end() {
    let daemon = "setsid sleep 1000 > /dev/null 2>&1 & echo $!; \
                  until [ $(cat /proc/$!/comm) = sleep ]; do :; done";
    let (profile, output) = record(&["--", "sh", "-c", daemon]);
    let pid = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let ended = Command::new("kill").args(["-9", &pid]).status().unwrap();
    assert!(ended.success(), "{pid}");
    let daemon = profile
        .data
        .processes
        .iter()
        .find(|p| p.pid.to_string() == pid);
    assert_eq!(daemon.unwrap().ended_ns, None);
    assert!(said.contains("these processes still run:"), "{said}");
    assert!(said.contains(&format!("{pid} sleep")), "{said}");
    closes(&profile);
}

#[test]
fn wrong_commands_are_refused_with_a_reason() {
    let fails = |args: &[&str], message: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_spile"))
            .arg("profile")
            .args(args)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(message), "{said}");
        assert!(!output.status.success() && output.stdout.is_empty());
    };
    fails(&[], "no command");
    fails(
        &["--", "no-such-program"],
        "no-such-program: there is no such program",
    );
    fails(
        &["--", "/etc/passwd"],
        "there is no such program that can be run",
    );
    fails(&["-p", "999999999"], "there is no process 999999999");
    fails(&["-p", "1", "true"], "cannot be used with");
    fails(
        &["-o", "/nonexistent/folder/p", "--", "true"],
        "/nonexistent/folder/p",
    );
}

/// The disk is full before the first checkpoint, or within the trace: the command goes on, and the report is printed.
#[test]
fn a_full_disk_costs_the_file_only() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, spile) = (dir.path().display(), env!("CARGO_BIN_EXE_spile"));
    for options in ["", "--trace"] {
        let command = format!(
            "mount -t tmpfs -o size=8k none {dir} && {spile} profile {options} -o {dir}/p.spile -- \
             sh -c 'for i in 1 2 3; do ls -R /usr/include > /dev/null; done; echo end'; \
             echo $?; {spile} report {dir}/p.spile"
        );
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", &command])
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert!(
            out.starts_with("end\n1\n") && out.contains("nothing was recorded"),
            "{out}{said}"
        );
        let (report, rest) = said.split_once("ERROR: ").expect(&said);
        assert!(report.contains("Where the time went"), "{said}");
        assert!(rest.contains("p.spile: No space left on device"), "{said}");
        assert!(
            rest.contains("WARNING: ") && rest.contains("p.spile: is truncated before"),
            "{said}"
        );
    }
}
