//! Attaching and detaching: under load, again and again, where it is refused, and where the process ends meanwhile.

use std::process::{Command, Stdio};
use std::time::Duration;

use spile_inject::{Error, FunctionHook, Refusal, attach};

use crate::image::Counting;
use crate::target::{Target, compile, printed, usual};

const FUNCTIONS: [&str; 4] = ["plain", "relative", "floating", "signalled"];

/// Rounds of attaching and detaching.
fn many() -> u32 {
    if std::env::var_os("SPILE_LONG").is_some() {
        1000
    } else {
        50
    }
}

fn rounds(words: &str, rounds: u32) {
    let program = usual();
    let expected = printed(&program, "1 1");
    let counting = Counting::new();
    let mut target = Target::start(&program, words);
    let hooks = target.hooks(&FUNCTIONS, counting.look);
    let before = target.code(&hooks);
    let (mut stopped, mut back) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let hits = counting.hits();
        let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
        assert_eq!(attached.hooked(), 4);
        stopped.push(attached.stopped());
        if round % 10 == 0 {
            while counting.hits() == hits {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        back.push(attached.detach(&[]).unwrap());
    }
    assert_eq!(target.code(&hooks), before);
    assert_eq!(target.own_maps(), [""; 0]);
    assert_eq!(counting.strange(), 0);
    for times in [&mut stopped, &mut back] {
        times.sort();
        println!(
            "stopped: median {:?}, longest {:?}",
            times[times.len() / 2],
            times.last().unwrap()
        );
    }
    target.go();
    let lines = target.until("signals");
    let registers = |line: &str| line.split(' ').next_back().map(str::to_owned);
    assert_eq!(registers(&lines[lines.len() - 2]), registers(&expected[0]));
    assert_eq!(target.end().code(), Some(7));
}

#[test]
fn again_and_again_under_load() {
    rounds("8 0", many());
}

#[test]
fn again_and_again_in_a_storm_of_signals() {
    rounds("8 0 signals", many());
}

/// Calls that block go on blocking, with the time that was left.
#[test]
fn interrupted_calls_go_on() {
    let program = compile("gcc -O2 -pthread", "blocked.c");
    let mut target = Target::start(&program, "");
    let counting = Counting::new();
    let hooks = target.hooks(&["plain"], counting.count);
    std::thread::sleep(Duration::from_millis(20));
    for _ in 0..20 {
        let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
        attached.detach(&[]).unwrap();
    }
    let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
    target.go();
    assert_eq!(
        target.line(),
        "poll 1 read 1 nanosleep 0 futex 0 sigsuspend 1 errors 0"
    );
    assert_eq!(counting.hits(), 6);
    attached.detach(&[]).unwrap();
    assert_eq!(target.end().code(), Some(7));
}

#[test]
fn a_stopped_process_stays_stopped() {
    let mut target = Target::start(&usual(), "2 100");
    let counting = Counting::new();
    let hooks = target.hooks(&["plain"], counting.count);
    let kill = |signal: &str| {
        let done = Command::new("kill")
            .args([signal, &target.pid().to_string()])
            .status();
        assert!(done.unwrap().success());
    };
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", target.pid())).unwrap();
        stat.rsplit(") ").next().unwrap()[..1].to_owned()
    };
    let settled = |wanted: &str| {
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            state() == wanted
        })
    };
    kill("-STOP");
    assert!(settled("T"));
    let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
    assert!(settled("T"), "{}", state());
    kill("-CONT");
    target.go();
    target.until("signals");
    assert_eq!(counting.hits(), 200);
    attached.detach(&[]).unwrap();
    assert_eq!(target.end().code(), Some(7));
}

#[test]
fn a_killed_program_leaves_its_count() {
    let counting = Counting::new();
    let target = Target::start(&usual(), "4 0");
    let hooks = target.hooks(&["plain"], counting.count);
    let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
    while counting.hits() < 1000 {
        std::thread::yield_now();
    }
    let pid = target.pid();
    target.kill();
    let hits = counting.hits();
    assert!(hits >= 1000);
    assert!(matches!(attached.detach(&[]), Err(Error::Ended)));
    assert!(matches!(
        attach(pid, &counting.image(), &hooks),
        Err(Error::Ended)
    ));
    assert_eq!(counting.hits(), hits);
}

/// Processes that end while we attach.
#[test]
fn ends_in_the_middle() {
    for delay in (0..100).map(|n| n * 30) {
        let counting = Counting::new();
        let target = Target::start(&usual(), "4 0");
        let hooks = target.hooks(&FUNCTIONS, counting.count);
        let pid = target.pid();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(delay));
            target.kill()
        });
        let result = attach(pid, &counting.image(), &hooks).and_then(|a| a.detach(&[]));
        assert!(matches!(result, Ok(_) | Err(Error::Ended)), "{result:?}");
        // That it was killed is there for its parent.
        let status = killer.join().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(libc::SIGKILL)
        );
    }
}

#[test]
fn refused_processes() {
    let counting = Counting::new();
    let target = Target::start(&usual(), "2 100");
    let hooks = target.hooks(&["plain"], counting.count);
    if let Ok(mut tracer) = Command::new("strace")
        .args(["-f", "-p", &target.pid().to_string()])
        .stderr(Stdio::piped())
        .spawn()
    {
        let status = format!("/proc/{}/status", target.pid());
        let wanted = format!("TracerPid:\t{}\n", tracer.id());
        while !std::fs::read_to_string(&status).unwrap().contains(&wanted) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let error = attach(target.pid(), &counting.image(), &hooks).unwrap_err();
        assert!(
            matches!(error, Error::Traced(by) if by == tracer.id()),
            "{error}"
        );
        let end = Command::new("kill")
            .arg(tracer.id().to_string())
            .status()
            .unwrap();
        assert!(end.success());
        tracer.wait().unwrap();
    }
    assert_eq!(target.own_maps(), [""; 0]);
    // Functions that are none.
    let nowhere = FunctionHook {
        address: 0x10,
        ..hooks[0]
    };
    let error = attach(target.pid(), &counting.image(), &[nowhere]).unwrap_err();
    assert!(matches!(error, Error::Refused(all) if all == [(0x10, Refusal::NoCode)]));
    assert_eq!(target.end().code(), None.or(Some(1)));
}

#[test]
fn another_program_has_no_hooks() {
    let mut target = Target::start(&usual(), "2 100 exec");
    let counting = Counting::new();
    let hooks = target.hooks(&FUNCTIONS, counting.count);
    let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
    target.go();
    assert!(target.line().starts_with("ready"));
    assert_eq!(target.own_maps(), [""; 0]);
    assert_eq!(attached.detach(&[]).unwrap(), Duration::ZERO);
    target.go();
    target.until("signals");
    assert_eq!(counting.hits(), 0);
    assert_eq!(target.end().code(), Some(7));
}

/// A second hook leads to the first one, which stays until the second one is gone.
#[test]
fn two_hooks_of_a_function() {
    let mut target = Target::start(&usual(), "2 100");
    let (first, second) = (Counting::new(), Counting::new());
    let hooks = target.hooks(&["plain"], first.count);
    let before = target.code(&hooks);
    let one = attach(target.pid(), &first.image(), &hooks).unwrap();
    let two = attach(target.pid(), &second.image(), &hooks).unwrap();
    let error = one.detach(&[]).unwrap_err();
    assert!(matches!(error, Error::Changed(_)), "{error}");
    target.go();
    target.until("signals");
    assert_eq!((first.hits(), second.hits()), (200, 200));
    two.detach(&[]).unwrap();
    assert_ne!(target.code(&hooks), before);
    assert_eq!(target.end().code(), Some(7));
}

#[test]
fn filtered_processes_are_refused() {
    let counting = Counting::new();
    let program = compile("gcc -O2 -pthread", "filtered.c");
    let mut target = Target::start(&program, "");
    let hooks = target.hooks(&["plain"], counting.count);
    let error = attach(target.pid(), &counting.image(), &hooks).unwrap_err();
    assert!(matches!(error, Error::Filtered), "{error}");
    target.go();
    assert_eq!(target.end().code(), Some(7));
}

/// Without a free file number the program stays as it was.
#[test]
fn a_full_table_of_files_is_an_error() {
    let counting = Counting::new();
    let mut target = Target::start(&usual(), "2 100");
    let hooks = target.hooks(&["plain"], counting.count);
    let limit = |n: u32| {
        let pid = target.pid().to_string();
        let done = Command::new("prlimit")
            .args(["--pid", &pid, &format!("--nofile={n}:1024")])
            .status();
        match done {
            Ok(status) => assert!(status.success()),
            Err(_) => skip!("no prlimit"),
        }
    };
    let files = || {
        let all = std::fs::read_dir(format!("/proc/{}/fd", target.pid())).unwrap();
        let numbers = all.map(|f| {
            f.unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse::<u32>()
                .unwrap()
        });
        numbers.collect::<Vec<u32>>()
    };
    let before = files();
    let free: Vec<u32> = (0..20).filter(|n| !before.contains(n)).collect();
    for open in [0, 2, 3] {
        // Numbers below the limit can be taken.
        limit(free[open]);
        let error = attach(target.pid(), &counting.image(), &hooks).unwrap_err();
        assert!(matches!(error, Error::System(..)), "{open}: {error}");
        assert!(!target.maps().contains("memfd:"));
        assert_eq!(files(), before, "{open}");
    }
    limit(free[4]);
    let attached = attach(target.pid(), &counting.image(), &hooks).unwrap();
    target.go();
    target.until("signals");
    assert_eq!(counting.hits(), 200);
    attached.detach(&[]).unwrap();
    assert_eq!(target.end().code(), Some(7));
}
