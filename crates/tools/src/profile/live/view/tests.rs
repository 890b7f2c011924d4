//! Tests of the view, on a terminal in memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyModifiers;
use spile_profile::model::{
    Activity, CallTotals, Options, Sample, SampleRate, Snapshot, StackFrame, Thread, TimeParts,
};

use super::*;

const MS: Ns = 1_000_000;

/// An interval of a second: a thread that computes, and one that waits for a pipe.
fn profile() -> Profile {
    let thread = |tid, name: &str, user: Ns, blocked: Ns| Thread {
        tid,
        pid: 4000,
        name: name.into(),
        parts: TimeParts {
            user,
            syscall_cpu: 50 * MS,
            blocked,
            runnable: 1000 * MS - 50 * MS - user - blocked,
            ..TimeParts::default()
        },
        ..Thread::default()
    };
    let read = |tid, blocked| CallTotals {
        tid,
        call: "read".into(),
        count: 3,
        total: 50 * MS + blocked,
        cpu: 50 * MS,
        blocked,
        ..CallTotals::default()
    };
    let sample = |tid, activity, function: &str| Sample {
        tid,
        activity,
        frames: vec![
            StackFrame {
                function: function.into(),
                file: Some("/src/work.c".into()),
                line: Some(12),
                ..StackFrame::default()
            }
            .into(),
        ],
        count: 9,
        ..Sample::default()
    };
    let waits = Sample {
        call: "read".into(),
        object: Some("a pipe".into()),
        ns: 900 * MS,
        ..sample(4001, Activity::Blocked, "next_task")
    };
    let samples = Some(SampleRate {
        event: "cpu-clock".into(),
        hz: 99,
    });
    Profile {
        header: Header {
            command: vec!["./app".into(), "a b".into()],
            options: Options {
                samples,
                ..Options::default()
            },
            ..Header::default()
        },
        data: Snapshot {
            at_ns: 1000 * MS,
            threads: vec![
                thread(4000, "app", 800 * MS, 0),
                thread(4001, "worker\u{1b}[2J", 0, 900 * MS),
            ],
            calls: vec![read(4000, 0), read(4001, 900 * MS)],
            samples: vec![sample(4000, Activity::User, "crunch"), waits],
            ..Snapshot::default()
        },
        ..Profile::default()
    }
}

fn view() -> LiveTables {
    let profile = profile();
    let mut view = LiveTables::new(&profile.header, false);
    view.ascii = true;
    view.take(profile, 5000 * MS);
    view
}

fn screen(view: &LiveTables, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let lines = terminal
        .backend()
        .buffer()
        .content
        .chunks(usize::from(width));
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    };
    lines.map(line).collect()
}

fn press(view: &mut LiveTables, keys: &str) -> ControlFlow<()> {
    keys.chars().try_for_each(|c| {
        let code = match c {
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        view.key(KeyEvent::new(code, KeyModifiers::NONE))
    })
}

#[test]
fn threads_are_shown_from_60_columns_on() {
    let view = view();
    assert_eq!(
        screen(&view, 60, 7),
        "\
./app 'a b': 1.00 s of 5.00 s, 0.90 CPUs busy, 2 threads
 t threads   f functions   w waits
 TID THREAD         CPUv  USER KERNEL BLOCKED  RUNQ PROCESS
4000 app           85.0% 80.0%   5.0%    0.0% 15.0% 4000 app
4001 worker\\033[2J  5.0%  0.0%   5.0%   90.0%  5.0% 4000 app

q quit  ? help  t f w table  s sort  r reverse  space freeze
"
    );
}

#[test]
fn functions_and_waits_are_shown() {
    let mut view = view();
    assert!(press(&mut view, "f").is_continue());
    let functions = screen(&view, 80, 9);
    assert!(
        functions.contains("88.9% 800 ms crunch   running       1 work.c:12"),
        "{functions}"
    );
    assert!(press(&mut view, "\t").is_continue());
    let waits = screen(&view, 80, 9);
    assert!(
        waits.contains("100.0% 900 ms read a pipe       1 next_task (work.c:12)"),
        "{waits}"
    );
    // In a narrow terminal the least important columns are left out.
    let narrow = screen(&view, 30, 9);
    assert!(
        narrow.contains("read") && !narrow.contains("next_task"),
        "{narrow}"
    );
}

#[test]
fn keys_sort_freeze_and_explain() {
    let mut view = view();
    let first = |view: &LiveTables| {
        let text = screen(view, 80, 10);
        text.lines().nth(3).unwrap_or_default()[..4].to_owned()
    };
    assert_eq!(first(&view), "4000");
    assert!(press(&mut view, "r").is_continue());
    assert_eq!(first(&view), "4001");
    // From CPU to USER, KERNEL and BLOCKED.
    assert!(press(&mut view, "sss").is_continue());
    assert_eq!(first(&view), "4001");
    assert!(screen(&view, 80, 10).contains("BLOCKEDv"));
    assert!(press(&mut view, "SSSS").is_continue());
    assert!(screen(&view, 80, 10).contains("THREAD^"));
    assert!(press(&mut view, " ").is_continue());
    let mut empty = Profile::default();
    empty.data.at_ns = 1000 * MS;
    view.take(empty, 6000 * MS);
    assert!(screen(&view, 80, 10).contains("[frozen]"));
    assert_eq!(first(&view), "4000");
    assert!(press(&mut view, " ").is_continue());
    assert!(screen(&view, 80, 10).contains("0 threads"));
    assert!(press(&mut view, "?").is_continue());
    let help = screen(&view, 60, 20);
    assert!(help.contains("on has no function yet."), "{help}");
    // Esc leaves the help, then the view.
    assert!(press(&mut view, "\u{1b}").is_continue());
    assert!(press(&mut view, "\u{1b}").is_break());
    assert!(press(&mut view, "q").is_break());
}

#[test]
fn the_view_is_drawn_at_any_size() {
    let mut view = view();
    for keys in ["", "f", "w", "?", "t"] {
        assert!(press(&mut view, keys).is_continue());
        for (width, height) in [(1, 1), (1, 50), (2, 3), (7, 4), (300, 1), (300, 60)] {
            screen(&view, width, height);
        }
    }
    for code in [
        KeyCode::End,
        KeyCode::PageDown,
        KeyCode::Down,
        KeyCode::Up,
        KeyCode::Home,
    ] {
        let key = KeyEvent::new(code, KeyModifiers::NONE);
        assert!(view.key(key).is_continue());
        screen(&view, 60, 5);
    }
    assert!(
        LiveTables::new(&Header::default(), false)
            .key(KeyCode::End.into())
            .is_continue()
    );
}

#[test]
fn tables_are_printed_without_a_terminal() {
    let text = super::super::tables::print(profile(), 5000 * MS, (70, 1));
    assert!(text.starts_with("./app 'a b': 1.00 s of 5.00 s"), "{text}");
    assert_eq!(text.matches("and 1 more").count(), 2, "{text}");
    assert!(text.lines().all(|line| line.len() <= 70), "{text}");
    assert!(text.contains("crunch") && text.contains("a pipe"), "{text}");
}
