//! Rows, and the accounts made from them.

use super::builder::TID_BITS;
use super::*;
use crate::rows::with_row;

fn key(tid: i64, started: i64) -> i64 {
    started << TID_BITS | tid
}

fn account(rows: &[String]) -> Snapshot {
    let mut all = ProfileBuilder::default();
    for row in rows {
        with_row(row, |row| all.row(row));
    }
    all.finish(&[], |_, _| Some("poll".into()))
}

fn thread(snapshot: &Snapshot, tid: u32) -> &Thread {
    snapshot.threads.iter().find(|t| t.tid == tid).unwrap()
}

#[test]
fn closes() {
    let t = key(70, -5);
    let account = account(&[
        "begin 1000 99000".into(),
        format!("exec {t} 1 1100 70 1 70 0 \"app\""),
        format!("exit {t} 2100 70 1 256 \"app\" \"-\""),
        format!("user {t} 300 100 0"),
        format!("call {t} 0 read 3 500 10 400 250 50 20 77"),
        format!("error {t} 0 read EAGAIN 2"),
        format!("fault {t} 0 0 4 60"),
        format!("ready {t} 0 10"),
        format!("irq {t} 0 2 30"),
        "end".into(),
        "account 3000 0 0".into(),
    ]);
    let read = &account.calls[0];
    assert_eq!((read.count, read.total, read.cpu), (3, 500, 250));
    assert_eq!((read.blocked, read.runnable, read.bytes), (180, 50, 77));
    assert_eq!(read.errors["EAGAIN"], 2);
    let thread = thread(&account, 70);
    assert_eq!((thread.started_ns, thread.ended_ns), (100, Some(1100)));
    assert_eq!((thread.parts.user, thread.parts.syscall_cpu), (300, 250));
    assert_eq!((thread.parts.blocked, thread.parts.runnable), (180, 160));
    assert_eq!(thread.parts.fault_minor, Times { count: 4, ns: 60 });
    assert_eq!(
        thread.residual(account.at_ns),
        1000 - 300 - 250 - 180 - 160 - 60 - 30
    );
    assert_eq!(
        (account.processes[0].status, &*account.processes[0].comm),
        (Some(256), "app")
    );
    assert!(account.lost.is_empty());
}

#[test]
fn what_is_open_counts_as_unfinished() {
    let [a, b, c] = [key(71, 1), key(72, 1), key(73, 1)];
    let account = account(&[
        "begin 0 0".into(),
        format!("start {a} 71 1 \"a\""),
        format!("start {b} 71 1 \"a\""),
        format!("start {c} 71 1 \"a\""),
        format!("open {a} 1 futex 60 20 30 5 0 0"),
        format!("open {b} 0 - 40 10 0 1 0 0"),
        format!("open {c} -2 - 9 0 9 0 0 0"),
        "end".into(),
        "account 100 2 0".into(),
    ]);
    assert_eq!(account.calls[0].unfinished, Some(60));
    assert_eq!(
        (account.calls[0].count, &*account.calls[0].call),
        (0, "futex")
    );
    let a = thread(&account, 71);
    assert_eq!((a.parts.syscall_cpu, a.parts.blocked), (5, 50));
    let b = thread(&account, 72);
    assert_eq!((b.parts.user, b.parts.runnable), (29, 10));
    assert_eq!(account.calls[1].call, "poll");
    assert_eq!(account.lost.len(), 1);
}

#[test]
fn a_thread_that_executes_takes_its_leaders_number() {
    let [leader, other] = [key(80, 0), key(81, 0)];
    let account = account(&[
        "begin 0 0".into(),
        format!("start {leader} 80 1 \"a\""),
        format!("start {other} 80 1 \"a\""),
        format!("exit {leader} 50 80 1 0 \"a\" \"-\""),
        format!("exec {leader} 1 60 80 1 81 0 \"b\""),
        format!("exit {leader} 90 80 1 0 \"b\" \"-\""),
        // Its end was not seen: it was in the call that executes since 30.
        format!("open {other} 1 execve 70 0 0 0 0 0"),
        "end".into(),
        "account 100 0 0".into(),
    ]);
    let leader = thread(&account, 80);
    assert_eq!(
        (leader.wall(100), leader.ended_ns, &*leader.name),
        (80, Some(90), "b")
    );
    let other = thread(&account, 81);
    assert_eq!(other.ended_ns, Some(60));
    assert_eq!(account.calls[0].unfinished, Some(30));
}

#[test]
fn numbers_that_are_used_again_are_other_threads() {
    let [first, second] = [key(90, 1), key(90, 5)];
    let (one, other) = (1024 + 10, 5 * 1024 + 20);
    let account = account(&[
        "begin 0 0".into(),
        format!("start {first} 90 1 \"a\""),
        format!("exit {first} {one} 90 1 0 \"a\" \"-\""),
        format!("start {second} 90 1 \"b\""),
        format!("exit {second} {other} 90 1 0 \"b\" \"-\""),
        format!("call {first} 0 close 1 5 5 5 0 0 0 0"),
        format!("call {second} 0 close 1 7 7 7 0 0 0 0"),
        "end".into(),
        "account 100 0 0".into(),
    ]);
    assert_eq!(thread(&account, 90).wall(9000), 10);
    assert_eq!(thread(&account, REUSED + 90).wall(9000), 20);
    assert_eq!(account.calls.len(), 2);
}

#[test]
fn malformed_rows_are_counted() {
    let mut rows = ProfileBuilder::default();
    for row in [
        "what 1",
        "",
        "user 1",
        "user x 1 1 1",
        "start 1 x 2 3 \"n\"",
    ] {
        with_row(row, |row| rows.row(row));
    }
    with_row("end", |row| rows.row(row));
    assert!(with_row("account 1 0 0", |row| rows.row(row)));
    assert!(rows.ended);
    let account = rows.finish(&[(5, 5)], |_, _| None);
    assert_eq!(
        account.threads.iter().map(|t| t.tid).collect::<Vec<_>>(),
        [1, 5]
    );
    assert_eq!(account.lost.values().sum::<u64>(), 5);
}

#[test]
fn regions_belong_to_processes() {
    let [a, b] = [key(91, 1), key(92, 1)];
    let account = account(&[
        "begin 0 0".into(),
        format!("start {a} 91 1 \"a\""),
        format!("start {b} 92 1 \"b\""),
        "region 91 4294967298 1 2 \"barrier\" \"main._omp_fn.0\tpi.c:20\" /bin/pi+0x1239".into(),
        "region 91 4294967297 0 1 \"parallel\" \"main._omp_fn.0\tpi.c:19\" /bin/pi+0x1230".into(),
        "region 92 4294967297 0 4 \"MPI_Barrier\" \"0x55\t0x55\" /lib/libsolver.so+0x55".into(),
        format!("call {a} 4294967298 futex 1 5 5 5 0 0 0 0"),
        format!("call {b} 4294967297 futex 1 7 7 7 0 0 0 0"),
        format!("call {b} 77 futex 1 7 7 7 0 0 0 0"),
        format!("error {b} 77 futex EAGAIN 1"),
        "end".into(),
        "account 100 0 0".into(),
    ]);
    let context = |call: usize| {
        let id = account.calls[call].context;
        account.contexts.iter().find(|c| c.id == id).unwrap()
    };
    let barrier = context(0);
    assert_eq!(
        (barrier.kind, &*barrier.name),
        (ContextKind::OmpBarrier, "barrier")
    );
    let region = account
        .contexts
        .iter()
        .find(|c| Some(c.id) == barrier.parent)
        .unwrap();
    assert_eq!(
        (&*region.name, region.file.as_deref(), region.line),
        ("main", Some("pi.c"), Some(19))
    );
    assert_eq!(
        (context(1).kind, &*context(1).name),
        (ContextKind::Mpi, "MPI_Barrier")
    );
    assert_eq!((context(1).file.as_deref(), context(1).line), (None, None));
    let location = (context(1).module.as_deref(), context(1).address);
    assert_eq!(location, (Some("/lib/libsolver.so"), Some(0x55)));
    assert_eq!(context(2).name, "(not announced)");
    assert_eq!((account.calls.len(), account.lost.len()), (3, 0));
}

#[test]
fn each_account_stands_for_itself() {
    let t = key(70, -5);
    let mut rows = ProfileBuilder::default();
    let take = |rows: &mut ProfileBuilder, text: &[String]| {
        let each = text.iter().map(|r| with_row(r, |row| rows.row(row)));
        each.last() == Some(true)
    };
    let first = [
        "begin 1000 99000".into(),
        format!("exec {t} 1 1100 70 1 70 0 \"app\""),
        format!("user {t} 300 0 0"),
        format!("call {t} 0 read 3 500 10 400 0 0 0 77"),
        "account 2000 0 0".into(),
    ];
    assert!(take(&mut rows, &first));
    let account = rows.snapshot();
    assert_eq!(
        (
            account.at_ns,
            account.threads[0].parts.user,
            account.calls[0].count
        ),
        (1000, 300, 3)
    );
    assert_eq!(account.processes.len(), 1);
    // Rows in the meantime leave the account unchanged.
    take(&mut rows, &[format!("exit {t} 2500 70 1 0 \"app\" \"-\"")]);
    assert_eq!(rows.snapshot().calls.len(), 1);
    let second = [
        "end".into(),
        format!("user {t} 400 0 0"),
        format!("call {t} 0 read 4 600 10 400 0 0 0 78"),
        "account 3000 0 0".into(),
    ];
    assert!(take(&mut rows, &second) && rows.ended);
    let account = rows.finish(&[], |_, _| None);
    let thread = &account.threads[0];
    assert_eq!(
        (thread.parts.user, thread.parts.syscall_cpu, &*thread.name),
        (400, 600, "app")
    );
    assert_eq!((account.calls.len(), account.calls[0].bytes), (1, 78));
}

/// They come in rows of their own, before an account and not within it.
#[test]
fn a_thread_s_start_and_the_call_that_ends_it_are_in_each_account() {
    let t = key(64, 2);
    let mut rows = ProfileBuilder::default();
    let take = |rows: &mut ProfileBuilder, more: &[String]| {
        for row in more {
            with_row(row, |row| rows.row(row));
        }
    };
    take(
        &mut rows,
        &[
            "begin 0 0".into(),
            format!("start {t} 64 1 \"app\""),
            format!("started {t} 0 50 30 20 4"),
            format!("exit {t} 95 64 1 0 \"app\" \"exit_group\" 0 40 10 0 3"),
            format!("call {t} 0 read 2 30 10 20 0 0 0 7"),
            "account 100 0 0".into(),
        ],
    );
    let first = rows.snapshot();
    take(
        &mut rows,
        &[
            format!("call {t} 0 read 2 30 10 20 0 0 0 7"),
            "end".into(),
            "account 200 0 0".into(),
        ],
    );
    for account in [first, rows.finish(&[], |_, _| None)] {
        let call = |name| account.calls.iter().find(|c| c.call == name).unwrap();
        let (start, end) = (call("(start)"), call("exit_group"));
        assert_eq!((start.count, start.total, start.min), (1, 50, 50));
        assert_eq!((start.cpu, start.blocked, start.runnable), (20, 6, 20));
        assert_eq!((end.count, end.total, end.max), (1, 40, 40));
        assert_eq!((end.cpu, end.blocked, end.runnable), (30, 7, 0));
        let thread = thread(&account, 64);
        let sums = &thread.parts;
        assert_eq!(
            (sums.syscall_cpu, sums.blocked, sums.runnable),
            (80, 13, 20)
        );
        assert_eq!(account.calls.len(), 3);
        assert!(account.lost.is_empty());
    }
}

#[test]
fn a_process_whose_end_was_seen_before_its_threads_had_gone() {
    let [a, b] = [key(60, 1), key(61, 1)];
    let mut rows = ProfileBuilder::default();
    for row in [
        "begin 0 0".into(),
        format!("exec {a} 1 10 60 1 60 0 \"app\""),
        format!("start {b} 60 1 \"app\""),
        "end".into(),
        format!("call {b} 0 futex 2 30 10 20 0 0 0 0"),
        format!("open {a} 1 exit_group 40 0 0 5 0 0"),
        format!("open {b} 1 futex 50 45 0 0 0 0"),
        "account 100 0 0".into(),
    ] {
        with_row(&row, |row| rows.row(row));
    }
    rows.process_ended(60, 9);
    let account = rows.finish(&[], |_, _| None);
    assert!(account.threads.iter().all(|t| t.ended_ns == Some(100)));
    assert_eq!(account.processes[0].status, Some(9));
    let call = |name| account.calls.iter().find(|c| c.call == name).unwrap();
    let (exit, futex) = (call("exit_group"), call("futex"));
    assert_eq!(
        (exit.count, exit.total, exit.cpu, exit.unfinished),
        (1, 40, 35, None)
    );
    assert_eq!(
        (futex.count, futex.total, futex.min, futex.max),
        (2, 30, 10, 20)
    );
    let open = futex.unfinished_parts.unwrap();
    assert_eq!(
        (futex.unfinished, open.blocked, open.cpu),
        (Some(50), 45, 5)
    );
}

#[test]
fn a_call_that_a_threads_end_cut_short_is_in_each_account() {
    let t = key(62, 0);
    let mut rows = ProfileBuilder::default();
    let account = |rows: &mut ProfileBuilder, more: &[String]| {
        for row in more {
            with_row(row, |row| rows.row(row));
        }
    };
    account(
        &mut rows,
        &[
            "begin 0 0".into(),
            format!("start {t} 62 1 \"app\""),
            format!("cut {t} 0 read 90 60 50 20 5"),
            format!("exit {t} 95 62 1 0 \"app\" \"-\""),
            format!("call {t} 0 read 2 30 10 20 0 0 0 7"),
            "account 100 0 0".into(),
            format!("call {t} 0 read 2 30 10 20 0 0 0 7"),
            "end".into(),
            "account 200 0 0".into(),
        ],
    );
    let account = rows.finish(&[], |_, _| None);
    let read = &account.calls[0];
    assert_eq!((read.count, read.total, read.max), (2, 30, 20));
    let open = read.unfinished_parts.unwrap();
    let parts = (open.cpu, open.blocked, open.runnable, open.taken);
    assert_eq!((read.unfinished, parts), (Some(60), (10, 25, 20, 5)));
    assert_eq!((read.parts().sum(), read.time()), (90, 90));
    let thread = thread(&account, 62);
    assert_eq!((thread.parts.blocked, thread.parts.runnable), (25, 20));
    assert_eq!(thread.parts.syscall_cpu, 40);
}

#[test]
fn times_off_a_processor_and_what_is_open() {
    let [a, b] = [key(60, 0), key(61, 0)];
    let mut rows = ProfileBuilder {
        trace: true,
        ..ProfileBuilder::default()
    };
    for row in [
        "begin 1000 0".into(),
        format!("start {a} 60 1 \"app\""),
        format!("start {b} 60 1 \"app\""),
        // Blocked and then ready; blocked to the end; runnable all the time.
        format!("off {a} 0 0 1020 5 1040"),
        format!("off {a} 0 0 1050 0 1060"),
        format!("off {a} 0 1 1070 3 1080"),
        "end".into(),
        format!("open {a} 1 futex 40 0 30 0 0 0"),
        format!("open {b} 0 - 50 0 20 0 0 1"),
        "account 1200 0 0".into(),
    ] {
        with_row(&row, |row| rows.row(row));
    }
    let account = rows.finish(&[(60, 62)], |_, _| Some("read".into()));
    assert!(account.lost.is_empty(), "{:?}", account.lost);
    let events = rows.events.iter();
    let found: Vec<_> = events
        .map(|e| (e.tid, &*e.call, e.start_ns, e.end_ns, e.open))
        .collect();
    let wanted = [
        (60, BLOCKED, 20, 35, false),
        (60, READY, 35, 40, false),
        (60, BLOCKED, 50, 60, false),
        (60, PREEMPTED, 70, 80, false),
        (60, "futex", 160, 200, true),
        (60, BLOCKED, 170, 200, true),
        (61, PREEMPTED, 180, 200, true),
        (62, "read", 0, 200, true),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn the_last_wakeup_within_a_wait_ended_it() {
    let [a, b] = [key(60, 1), key(61, 2)];
    let mut rows = ProfileBuilder::new(None, true);
    for row in [
        "begin 1000 0".into(),
        format!("start {a} 60 1 \"app\""),
        format!("start {b} 60 1 \"app\""),
        format!("wakeup {a} {b} 1035"),
        // Another thread's wait.
        format!("off {b} 0 0 1030 0 1036"),
        format!("off {a} 0 0 1020 5 1040"),
        // The wait after it was ended by something else.
        format!("off {a} 0 0 1050 0 1060"),
        // Woken before it left its processor; the thread was not blocked.
        format!("wakeup {a} {b} 1065"),
        format!("off {a} 0 1 1070 3 1080"),
        format!("off {a} 0 0 1085 0 1088"),
        // The wakeup of a wait whose end nobody saw.
        format!("wakeup {a} {b} 1089"),
        format!("off {a} 0 0 1090 0 1100"),
        format!("wakeup {a} {b} 1111"),
        format!("wakeup {a} {a} 1112"),
        format!("off {a} 0 0 1110 0 1120"),
    ] {
        with_row(&row, |row| rows.row(row));
    }
    let events = rows.events.iter().filter(|e| e.call == BLOCKED);
    let found: Vec<_> = events.map(|e| (e.tid, e.start_ns, e.waker)).collect();
    let wanted = [
        (61, 30, None),
        (60, 20, Some(61)),
        (60, 50, None),
        (60, 85, None),
        (60, 90, None),
        (60, 110, Some(60)),
    ];
    assert_eq!(found, wanted);
    assert!(
        rows.events
            .iter()
            .all(|e| e.call == BLOCKED || e.waker.is_none())
    );
}

#[test]
fn names_are_looked_up_at_the_first_row_and_at_the_end() {
    let [known, gone, renamed] = [key(70, -5), key(71, 2), key(72, 2)];
    let who = |tid| {
        [70, 72, 73].contains(&tid).then(|| ThreadIdentity {
            pid: 60,
            ppid: 1,
            name: "helper".into(),
            process: "app".into(),
        })
    };
    let mut rows = ProfileBuilder::new(Some(who), false);
    for row in [
        "begin 0 0".into(),
        "end".into(),
        format!("user {known} 30 0 0"),
        format!("user {gone} 10 0 0"),
        format!("start {renamed} 60 1 early"),
        format!("open {known} 0 - 70 0 0 0 0 0"),
        "account 5000 0 0".into(),
    ] {
        with_row(&row, |row| rows.row(row));
    }
    let account = rows.finish(&[(60, 73)], |_, _| None);
    let it = thread(&account, 70);
    assert_eq!((it.pid, &*it.name, it.started_ns), (60, "helper", 0));
    for tid in [72, 73] {
        assert_eq!(thread(&account, tid).name, "helper");
    }
    assert_eq!(account.processes[0].comm, "app");
    let other = thread(&account, 71);
    assert_eq!((other.pid, &*other.name, other.started_ns), (0, "", 2048));
}

#[test]
fn samples_have_the_functions_of_interpreters() {
    let t = key(70, -5);
    let function =
        |index, call, name: &str| format!("function 7 {index} {call} \"\" \"{name}\" \"a.py\" 3");
    let stack = "add+0x1 [libpython3.so]\n_PyEval_EvalFrameDefault+0x2 [libpython3.so]\nmain+0x3\n__libc_start_main+0x4";
    let account = account(&[
        "begin 1000 99000".into(),
        format!("start {t} 70 1 \"app\""),
        function(0, 0, "f"),
        function(1, 0, "g"),
        // Another thread has it, too.
        function(0, 0, "f"),
        format!("sample {t} 0 0 \"\" 3 \"\" \"{stack}\" 7"),
        format!("wait {t} 0 read 0 \"a pipe\" 1 500 \"{stack}\" 0"),
        "end".into(),
        "account 3000 0 0".into(),
    ]);
    let functions = |n: usize| {
        let frames = account.samples[n].frames.iter();
        frames.map(|f| &*f.function).collect::<Vec<_>>()
    };
    assert_eq!(functions(0), ["add", "f", "g", "main"]);
    assert_eq!(functions(1), ["add", "_PyEval_EvalFrameDefault", "main"]);
    assert_eq!(account.samples[1].object.as_deref(), Some("a pipe"));
    let f = &account.samples[0].frames[1];
    assert_eq!((f.file.as_deref(), f.line), (Some("a.py"), Some(3)));
}

#[test]
fn samples_beyond_the_table_have_no_place() {
    let t = key(70, -5);
    let account = account(&[
        "begin 1000 99000".into(),
        format!("start {t} 70 1 \"app\""),
        format!("sample {t} 0 0 \"\" 3 \"\" \"f+0x1\" 0"),
        format!("sample {t} 0 0 \"\" 2 \"\" \"g+0x1\" 0"),
        format!("sample {t} 0 1 read 4 \"\" \"g+0x1\" 0"),
        format!("taken {t} 0 0 \"\" 12"),
        format!("taken {t} 0 1 read 4"),
        // Counted events have no activity.
        format!("taken {t} 0 -117 \"\" 9"),
        "end".into(),
        "account 3000 0 0".into(),
    ]);
    let samples = account.samples.iter();
    let samples: Vec<_> = samples
        .map(|s| (s.activity, s.count, s.frames.len()))
        .collect();
    let expected = [
        (Activity::User, 3, 1),
        (Activity::User, 2, 1),
        (Activity::Call, 4, 1),
        (Activity::User, 7, 0),
    ];
    for row in expected {
        assert!(samples.contains(&row), "{row:?} of {samples:?}");
    }
    assert_eq!(samples.len(), expected.len());
    assert_eq!(account.lost.values().sum::<u64>(), 7);
}

#[test]
fn the_times_of_a_process_that_enters_a_group_begin_there() {
    let (older, newer) = (key(70, -5), key(71, 4));
    let mut rows = ProfileBuilder::default();
    for row in [
        "begin 1000 99000".to_owned(),
        format!("start {newer} 70 1 \"app\""),
        "enters 70 6000".into(),
        format!("start {older} 70 1 \"app\""),
        format!("user {older} 3000 0 0"),
        "enters 80 8000".into(),
        "end".into(),
        "account 9000 0 0".into(),
    ] {
        with_row(&row, |row| rows.row(row));
    }
    // Thread 80 has no event.
    let account = rows.finish(&[(80, 80)], |_, _| Some("poll".into()));
    for tid in [70, 71] {
        assert_eq!(thread(&account, tid).started_ns, 5000, "{tid}");
    }
    assert_eq!(thread(&account, 70).residual(account.at_ns), 0);
    let silent = thread(&account, 80);
    assert_eq!((silent.started_ns, silent.parts.blocked), (7000, 1000));
    assert!(account.lost.is_empty());
}
