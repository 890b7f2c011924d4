//! Waits at the barriers of OpenMP, asleep and spinning, with the function that reached the barrier, where the
//! library has symbols and where it has none; and in calls of MPI.

use spile_profile::answer::{By, Finding, findings};
use spile_profile::json::json;
use spile_profile::model::*;
use spile_profile::report::{View, text};
use spile_profile::{Profile, Run, WaitKind};

const MS: Ns = 1_000_000;

/// Frames of the program, with a line, and of gcc's library.
fn frames(names: &[&str]) -> Vec<Frame> {
    let frame = |name: &&str| {
        let (function, line) = match name.split_once(':') {
            Some((function, line)) => (function, line.parse().ok()),
            None => (*name, None),
        };
        Frame::new(StackFrame {
            function: function.to_owned(),
            module: Some(
                if line.is_some() {
                    "heat"
                } else {
                    "libgomp.so.1.0.0"
                }
                .to_owned(),
            ),
            file: line.map(|_| "heat.c".to_owned()),
            line,
        })
    };
    names.iter().map(frame).collect()
}

/// Two threads in a region of a second: the first works, and the second is blocked for 600 ms and on the processor
/// for 400 ms, with a stack each, in a context.
fn waiting(context: u32, frames: &[Frame]) -> Run {
    let mut profile = Profile::default();
    profile.header.options.samples = Some(SampleRate {
        event: "cpu-clock".to_owned(),
        hz: 99,
    });
    let data = &mut profile.data;
    data.at_ns = 1000 * MS;
    for (id, parent, kind, name, line) in [
        (1, None, ContextKind::OmpRegion, "solve", 11),
        (2, Some(1), ContextKind::OmpBarrier, "barrier", 15),
        (3, Some(1), ContextKind::OmpBarrier, "implicit barrier", 11),
        (4, Some(1), ContextKind::OmpBarrier, "critical", 18),
        (5, None, ContextKind::Mpi, "MPI_Allreduce", 31),
    ] {
        data.contexts.push(Context {
            id,
            parent,
            kind,
            name: name.to_owned(),
            file: Some("heat.c".to_owned()),
            line: Some(line),
            ..Context::default()
        });
    }
    for (tid, user, blocked) in [(1, 1000 * MS, 0), (2, 400 * MS, 600 * MS)] {
        data.threads.push(Thread {
            tid,
            pid: 1,
            parts: TimeParts {
                user,
                blocked,
                ..TimeParts::default()
            },
            ..Thread::default()
        });
    }
    data.calls.push(CallTotals {
        tid: 2,
        context,
        call: "futex".to_owned(),
        count: 6,
        total: 600 * MS,
        blocked: 600 * MS,
        ..CallTotals::default()
    });
    for (activity, call) in [(Activity::User, ""), (Activity::Blocked, "futex")] {
        data.samples.push(Sample {
            tid: 2,
            context,
            activity,
            call: call.to_owned(),
            frames: frames.to_vec(),
            count: 6,
            ns: if call.is_empty() { 0 } else { 600 * MS },
            ..Sample::default()
        });
    }
    Run::new(vec![profile])
}

/// The places of the second thread, asleep and on the processor.
fn places(context: u32, names: &[&str]) -> [Finding; 2] {
    let found = findings(&waiting(context, &frames(names)), By::Function);
    let place = |ns| found.iter().find(|f| f.ns == ns).expect("a place").clone();
    [place(600 * MS), place(400 * MS)]
}

#[test]
fn waits_at_a_barrier_are_named_with_the_function_that_reached_it() {
    let own = ["0x1f823", "solve._omp_fn.0:15", "0x1cd8e"];
    let named = [
        "gomp_team_barrier_wait_end",
        "solve._omp_fn.0:15",
        "gomp_thread_start",
    ];
    // The region tells, or the function.
    for (context, names) in [(2, own), (2, named), (1, named), (0, named)] {
        let [asleep, spinning] = places(context, &names);
        assert_eq!(
            asleep.sentence(),
            "waiting at a barrier in `solve._omp_fn.0` (heat.c:15)"
        );
        assert_eq!(
            spinning.sentence(),
            "waiting at a barrier in `solve._omp_fn.0` (heat.c:15), spinning on the processor"
        );
    }
    // A thread of the pool has no function of the program at its region's end.
    let [asleep, spinning] = places(3, &["0x1f823", "0x1cd8e"]);
    assert_eq!(
        asleep.sentence(),
        "waiting at a barrier in `solve` (heat.c:11)"
    );
    assert!(
        spinning
            .sentence()
            .contains("`solve` (heat.c:11), spinning")
    );
}

#[test]
fn other_waits_of_openmp_are_none_at_a_barrier() {
    let [asleep, running] = places(4, &["0x1f823", "solve._omp_fn.0:18", "0x1cd8e"]);
    assert_eq!(
        asleep.sentence(),
        "waiting in futex in `solve._omp_fn.0` (heat.c:18)"
    );
    assert_eq!(running.wait, None);
    // A thread of the pool without work.
    let [asleep, running] = places(0, &["gomp_barrier_wait_end", "gomp_thread_start"]);
    assert_eq!((asleep.wait, running.wait), (Some(WaitKind::Work), None));
    // Work that is sampled at the barrier's edge.
    let [_, running] = places(2, &["solve._omp_fn.0:14", "0x1cd8e"]);
    assert_eq!(running.wait, None);
}

#[test]
fn time_in_mpi_is_that_of_its_call() {
    let sentences = |names: &[&str]| places(5, names).map(|place| place.sentence());
    let expected = [
        "waiting in futex in `MPI_Allreduce` (heat.c:31), called by `exchange`",
        "`MPI_Allreduce` (heat.c:31), called by `exchange`, on the processor",
    ];
    let c = [
        "0x2f",
        "ucp_progress",
        "PMPI_Allreduce",
        "exchange:31",
        "main:7",
    ];
    assert_eq!(sentences(&c), expected);
    let fortran = ["MPI_Allreduce", "pmpi_allreduce_", "exchange:31", "main:7"];
    assert_eq!(sentences(&fortran), expected);
    // The stack ends before the call.
    let cut = expected.map(|text| text.replace(", called by `exchange`", ""));
    assert_eq!(sentences(&["0x2f", "ucp_progress"]), cut);
    // By library, it is that which ran.
    let run = waiting(5, &frames(&c));
    let found = findings(&run, By::Module);
    assert!(found.iter().any(|f| f.function == "libgomp.so.1.0.0"));
}

#[test]
fn table_and_json_name_barriers() {
    let run = waiting(2, &frames(&["0x1f823", "solve._omp_fn.0:15"]));
    let text = text(&run, &View::new(120, 9));
    let row = |doing: &str| {
        let mut rows = text.lines();
        rows.any(|row| row.starts_with("solve._omp_fn.0 ") && row.contains(doing))
    };
    assert!(row(" barrier  "), "{text}");
    assert!(row(" barrier (on CPU) "), "{text}");
    let report: serde_json::Value = serde_json::from_str(&json(&run)).expect("JSON");
    let places = report["places"].as_array().expect("places").iter();
    let at_barrier: u64 = places
        .filter(|p| p["barrier"] == true)
        .filter_map(|p| p["time"].as_u64())
        .sum();
    assert_eq!(at_barrier, 1000 * MS);
}

#[test]
fn idle_time_stays_apart() {
    let of_go = |names: &[&str]| {
        let frame = |name: &&str| {
            Frame::new(StackFrame {
                function: (*name).to_owned(),
                module: Some("server".to_owned()),
                file: Some("/usr/lib/go/src/server.go".to_owned()),
                line: Some(7),
            })
        };
        waiting(0, &names.iter().map(frame).collect::<Vec<_>>())
    };
    let idle = of_go(&[
        "runtime.futex",
        "runtime.mPark",
        "runtime.stopm",
        "main.main",
    ]);
    let report = text(&idle, &View::new(120, 9));
    assert!(
        report.contains("30.0% of 2.00 s: idle, waiting for work or for events"),
        "{report}"
    );
    assert!(!report.contains("waiting for work in"), "{report}");
    let found = findings(&idle, By::Function);
    assert_eq!(found.last().and_then(|f| f.wait), Some(WaitKind::Work));
    // Functions of the language's library are no place of the program.
    let read = of_go(&[
        "syscall.read",
        "internal/poll.(*FD).Read",
        "os.(*File).Read",
        "main.load",
        "runtime.main",
    ]);
    let report = text(&read, &View::new(120, 9));
    assert!(
        report.contains("waiting in futex in `main.load` (server.go:7)"),
        "{report}"
    );
    assert!(!report.contains("idle"), "{report}");
}

#[test]
fn the_place_of_a_wait_is_the_programs_function_if_there_is_one() {
    let frame = |(function, module, file): &(&str, Option<&str>, &str)| {
        Frame::new(StackFrame {
            function: (*function).to_owned(),
            module: module.map(str::to_owned),
            file: Some((*file).to_owned()),
            line: Some(7),
        })
    };
    let poll = (
        "select_poll_poll",
        Some("select.cpython-311.so"),
        "selectmodule.c",
    );
    let select = ("select", None, "/usr/lib/python3.11/selectors.py");
    let run = ("_run_code", None, "<frozen runpy>");
    let main = ("main", Some("python3.11"), "python.c");
    let package = ("fetch", None, "/usr/lib/python3.11/site-packages/fetch.py");
    for (stack, place) in [
        (
            &[poll, package, select, run, main][..],
            "`fetch` (fetch.py:7)",
        ),
        (&[poll, select, run, main], "`select` (selectors.py:7)"),
        (&[poll, main], "`select_poll_poll` (selectmodule.c:7)"),
    ] {
        let report = text(
            &waiting(0, &stack.iter().map(frame).collect::<Vec<_>>()),
            &View::new(120, 9),
        );
        assert!(
            report.contains(&format!("waiting in futex in {place}")),
            "{report}"
        );
    }
}
