//! Sessions on the simulated host.

mod simulated;

use simulated::*;

use crate::io::output::OutputTarget;
use crate::options::SessionOptions;

/// The hits of a probe point, each by the same process.
fn hits(point: &'static str, n: usize) -> Vec<Event> {
    vec![Event::Hit(point, SHELL); n]
}

const SWITCHES: &str = "
    global n, by, sizes
    probe kernel.trace(\"sched_switch\") {
        n++
        by[execname()] <<< pid()
        sizes[pid()] += 2
    }
    probe end {
        printf(\"%d\\n\", n)
        foreach (name+ in by) printf(\"%s %d %d\\n\", name, @count(by[name]), @max(by[name]))
        foreach (p+ in sizes) printf(\"%d %d\\n\", p, sizes[p])
    }";

#[test]
fn deltas_of_all_generations_add_up() {
    let other = Process {
        pid: 9,
        execname: "cat",
    };
    let mut events = hits("sched_switch", 3);
    events.extend([Event::Read, Event::Hit("sched_switch", other), Event::Read]);
    events.extend(hits("sched_switch", 2));
    let run = run(SWITCHES, &events, Faults::default());
    assert_eq!(run.out, "6\ncat 1 9\nsh 5 77\n9 2\n77 10\n");
    assert_eq!((run.left, run.early), (0, 0));
    assert_eq!(run.ended.expect("an end").exit_code, 0);
}

#[test]
fn a_timer_takes_deltas_while_handlers_add() {
    let script = "
        global n, sum
        probe kernel.trace(\"sched_switch\") { n++ }
        probe timer.ms(1) { sum += n; n = 0 }
        probe end { printf(\"%d\\n\", sum + n) }";
    let mut events = Vec::new();
    for _ in 0..200 {
        events.extend(hits("sched_switch", 50));
        events.push(Event::Read);
    }
    assert_eq!(run(script, &events, Faults::default()).out, "10000\n");
}

#[test]
fn output_is_in_the_order_of_events() {
    let script = "
        probe begin { println(\"begin\") }
        probe kernel.trace(\"sched_switch\") { printf(\"%s %d\\n\", execname(), pid()) }
        probe kernel.trace(\"signal_generate\") { println(\"signal\") }
        probe end { println(\"end\") }";
    let events = [
        Event::Hit("sched_switch", SHELL),
        Event::Read,
        Event::Hit("signal_generate", SHELL),
        Event::Hit("sched_switch", SHELL),
    ];
    let run = run(script, &events, Faults::default());
    assert_eq!(run.out, "begin\nsh 77\nsignal\nsh 77\nend\n");
}

#[test]
fn nothing_stays_after_a_failed_start() {
    let script = "
        probe kernel.trace(\"sched_switch\") { println(1) }
        probe kernel.trace(\"signal_generate\") { println(2) }
        probe kernel.trace(\"sched_process_exit\") { println(3) }";
    for n in 0..3 {
        let load = Faults {
            load: Some(n),
            ..Faults::default()
        };
        let attach = Faults {
            attach: Some(n),
            ..Faults::default()
        };
        for faults in [load, attach] {
            let run = run(script, &hits("sched_switch", 1), faults);
            assert!(run.ended.is_err());
            assert_eq!((run.left, run.out.as_str()), (0, ""));
        }
    }
}

#[test]
fn refused_markers_end_the_session() {
    let faults = Faults {
        visible: true,
        ..Faults::default()
    };
    let run = run(SWITCHES, &hits("sched_switch", 1), faults);
    let why = run.ended.expect_err("a refusal").to_string();
    assert!(why.contains("markers are refused"), "{why}");
    assert_eq!(run.left, 0);
}

#[test]
fn records_that_do_not_fit_are_counted() {
    let script = "
        global n
        probe kernel.trace(\"sched_switch\") { n++; printf(\"%d\\n\", pid()) }
        probe end { printf(\"%d hits\\n\", n) }";
    let faults = Faults {
        ring: Some(100),
        ..Faults::default()
    };
    let run = run(script, &hits("sched_switch", 10), faults);
    let losses = run.ended.expect("an end").losses;
    let lines = run.out.lines().filter(|line| *line == "77").count() as u64;
    assert_eq!(lines + losses.lost_output, 10);
    assert!(losses.lost_output > 0 && lines > 0);
    assert!(run.out.ends_with("10 hits\n"));
}

#[test]
fn hits_that_the_host_loses_are_reported() {
    let mut events = hits("sched_switch", 1);
    events.extend([Event::Lose(3, 2), Event::Reenter(5)]);
    let outcome = run(SWITCHES, &events, Faults::default()).ended;
    let skipped = outcome.expect("an end").losses.skipped;
    let counts = (
        skipped.kernel_recursion,
        skipped.missed_returns,
        skipped.reentrancy,
    );
    assert_eq!(counts, (3, 2, 5));
}

#[test]
fn too_many_skipped_hits_end_the_session_with_an_error() {
    let events = [
        Event::Reenter(1_000),
        Event::Read,
        Event::Hit("sched_switch", SHELL),
    ];
    let run = run(SWITCHES, &events, Faults::default());
    assert_eq!(run.ended.expect("an end").exit_code, 1);
    // `end` probes do not run after an error.
    assert_eq!((run.left, run.out.as_str()), (0, ""));
}

#[test]
fn an_error_of_a_handler_ends_the_session() {
    let script = "
        probe kernel.trace(\"sched_switch\") { println(1 / (pid() - 77)) }
        probe error { println(\"error\") }
        probe end { println(\"end\") }";
    let run = run(script, &hits("sched_switch", 3), Faults::default());
    let outcome = run.ended.expect("an end");
    assert_eq!((outcome.exit_code, run.out.as_str()), (1, "error\n"));
    assert!(outcome.losses.errors >= 1);
}

#[test]
fn exit_ends_the_session_before_later_events() {
    let script = "
        global n
        probe kernel.trace(\"sched_switch\") { n++ }
        probe kernel.trace(\"signal_generate\") { exit() }
        probe end { printf(\"%d\\n\", n) }";
    let mut events = hits("sched_switch", 2);
    events.extend([Event::Hit("signal_generate", SHELL), Event::Read]);
    events.extend([Event::Read, Event::Hit("sched_switch", SHELL)]);
    let run = run(script, &events, Faults::default());
    assert_eq!((run.out.as_str(), run.left), ("2\n", 0));
}

#[test]
fn a_full_array_is_an_error_with_its_name() {
    let script = "
        global s[2]
        probe kernel.trace(\"sched_switch\") { s[pid()] <<< 1 }
        probe end { println(\"end\") }";
    let process = |pid| Process {
        pid,
        execname: "sh",
    };
    let events: Vec<Event> = (0..3)
        .map(|pid| Event::Hit("sched_switch", process(pid)))
        .collect();
    let outcome = run(script, &events, Faults::default()).ended;
    assert_eq!(outcome.expect("an end").exit_code, 1);
}

#[test]
fn globals_that_nothing_reads_print_themselves() {
    let script = "global n, last
        probe kernel.trace(\"sched_switch\") { n++; last = execname() }";
    let run = run(script, &hits("sched_switch", 4), Faults::default());
    assert_eq!(run.out, "n=4\nlast=\"sh\"\n");
}

#[test]
fn a_full_disk_is_an_error() {
    let options = SessionOptions {
        output: OutputTarget::File("/dev/full".into(), None),
        ..SessionOptions::default()
    };
    let script = "probe kernel.trace(\"sched_switch\") { println(pid()) }";
    let run = run_with(script, &hits("sched_switch", 2), Faults::default(), options);
    assert_eq!(run.ended.expect("an end").exit_code, 1);
    assert_eq!(run.left, 0);
}

#[test]
fn shared_globals_are_seen_by_both_sides() {
    let script = "
        global last, seen
        probe begin { last = 5; seen[5] = \"begin\" }
        probe kernel.trace(\"sched_switch\") {
            if (last in seen) printf(\"%s\\n\", seen[last])
            last = pid(); seen[last] = execname()
        }
        probe end { printf(\"%d %s\\n\", last, seen[last]) }";
    let run = run(script, &hits("sched_switch", 2), Faults::default());
    assert_eq!(run.out, "begin\nsh\n77 sh\n");
}
