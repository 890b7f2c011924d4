//! The output of the live view, on terminals in memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyModifiers;

use super::*;
use crate::syscount::rows::{Calls, GroupKey};

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

fn shape(timed: bool) -> ReportShape {
    ReportShape {
        name: true,
        process: true,
        timed,
        top: usize::MAX,
        ..ReportShape::default()
    }
}

fn report(end: u64, rows: &[(&str, &str, u64)]) -> Report {
    let row = |(call, comm, count): &(&str, &str, u64)| {
        let group = GroupKey {
            call: (*call).into(),
            comm: (*comm).into(),
            pid: 7,
            ..GroupKey::default()
        };
        let calls = Calls {
            count: *count,
            total: count * 1000,
            max: 2000,
            buckets: [vec![0; 10], vec![*count, 1]].concat(),
        };
        (group, calls)
    };
    Report {
        begin: end - 1_000_000_000,
        end,
        unfit: 0,
        last: false,
        rows: rows.iter().map(row).collect(),
    }
}

fn view(timed: bool) -> ViewState {
    let mut view = ViewState::new(shape(timed), true);
    view.report(report(
        1_000_000_000,
        &[("read", "a", 10), ("openat", "zsh", 30)],
    ));
    view.report(report(
        2_000_000_000,
        &[("read", "a", 40), ("close", "m", 5)],
    ));
    view
}

fn screen(view: &ViewState, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

#[test]
fn the_screen_follows_keys() {
    let mut view = view(false);
    assert_eq!(
        screen(&view, 60, 6),
        [
            "2.000 s: 45 calls in 1.000 s",
            "CALLSv  CALLS/S  PID  NAME  SYSTEM CALL",
            "    40       40    7  a     read",
            "     5      5.0    7  m     close",
            "",
            "q quit  </> column  r reverse  space freeze",
        ]
    );
    let _ = view.key(key(KeyCode::Char('t')));
    let _ = view.key(key(KeyCode::Left));
    let lines = screen(&view, 80, 7);
    assert_eq!(lines[0], "2.000 s: 85 calls in 2.000 s (total)");
    assert_eq!(lines[1], "CALLS  CALLS/S  PID  NAME  SYSTEM CALL^");
    let calls: Vec<_> = lines[2..5]
        .iter()
        .filter_map(|l| l.split(' ').next_back())
        .collect();
    assert_eq!(calls, ["close", "openat", "read"]);
    let _ = view.key(key(KeyCode::Char('r')));
    assert!(screen(&view, 80, 7)[2].ends_with("read"));
}

#[test]
fn columns_of_times_are_shown() {
    let view = view(true);
    let lines = screen(&view, 100, 5);
    assert_eq!(lines[0], "2.000 s: 45 calls in 1.000 s, 45.0us in them");
    assert!(
        lines[1].contains("TOTALv    MEAN     MAX  512ns..2.05us  PID"),
        "{lines:#?}"
    );
    assert!(
        lines[2].contains("40.0us  1.00us  2.00us  @."),
        "{lines:#?}"
    );
}

#[test]
fn frozen_views_stay() {
    let mut view = view(false);
    let _ = view.key(key(KeyCode::Char(' ')));
    let before = screen(&view, 60, 6);
    view.report(report(3_000_000_000, &[("write", "b", 1)]));
    assert!(before[0].ends_with("[frozen]"));
    assert_eq!(screen(&view, 60, 6), before);
    let _ = view.key(key(KeyCode::Char(' ')));
    assert_eq!(screen(&view, 60, 6)[0], "3.000 s: 1 calls in 1.000 s");
}

#[test]
fn any_size_and_any_keys_do_not_panic() {
    let sizes = [
        (0, 0),
        (1, 1),
        (1, 2),
        (2, 1),
        (3, 3),
        (1, 50),
        (300, 1),
        (20, 4),
    ];
    for timed in [false, true] {
        let mut view = view(timed);
        for code in [
            KeyCode::Down,
            KeyCode::End,
            KeyCode::PageDown,
            KeyCode::Up,
            KeyCode::PageUp,
            KeyCode::Home,
            KeyCode::Right,
            KeyCode::F(3),
            KeyCode::Char('r'),
        ] {
            assert!(view.key(key(code)).is_continue());
            for (width, height) in sizes {
                screen(&view, width, height);
            }
        }
        for (width, height) in sizes {
            screen(&ViewState::new(shape(timed), false), width, height);
        }
    }
    // The view can be sorted by every column, then starts again with the first.
    let mut view = view(true);
    let columns = shape(true).columns();
    for column in columns.iter().cycle().skip(3).take(columns.len()) {
        let _ = view.key(key(KeyCode::Right));
        assert_eq!(view.order, *column);
    }
}

#[test]
fn keys_end_the_view() {
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    for end in [key(KeyCode::Char('q')), key(KeyCode::Esc), control('c')] {
        assert!(view(false).key(end).is_break());
    }
    assert!(view(false).key(key(KeyCode::Char('c'))).is_continue());
}

/// Numbers in the table are never cut, at any width. A wider screen shows no column less, and a
/// wide enough one shows all.
#[test]
fn numbers_are_whole_at_every_width() {
    let large = [u64::MAX / 8, 999_999_999_999, 2_610_000, 11_360, 7];
    for (timed, thread, order) in [
        (false, true, Column::Call),
        (true, false, Column::Total),
        (true, true, Column::Pid),
    ] {
        let shape = ReportShape {
            thread,
            error: thread,
            ..shape(timed)
        };
        let columns = shape.columns();
        let mut view = ViewState::new(shape, true);
        view.order = order;
        let rows = large.iter().zip(0u32..).map(|(n, i)| {
            let group = GroupKey {
                call: ["clock_nanosleep_time64", "read"][i as usize % 2].into(),
                comm: ["with blanks 15", "a"][i as usize % 2].into(),
                pid: 4_194_304 - i,
                tid: 11_360 + i,
                error: 11,
            };
            let calls = Calls {
                count: n / 3,
                total: *n,
                max: *n,
                buckets: vec![1; 40],
            };
            (group, calls)
        });
        view.report(Report {
            end: 86_400_000_000_000,
            rows: rows.collect(),
            ..Report::default()
        });
        let titles: Vec<String> = columns
            .iter()
            .map(|c| {
                view.title(*c, HistogramScale::default())
                    .chars()
                    .take(3)
                    .collect()
            })
            .collect();
        let shown = |lines: &[String]| titles.iter().filter(|t| lines[1].contains(*t)).count();
        let all = screen(&view, 400, 9);
        let whole: Vec<&str> = all.iter().flat_map(|l| l.split_whitespace()).collect();
        let mut before = 0;
        for width in 20..=200 {
            let lines = screen(&view, width, 9);
            let number = |w: &str| w.contains(|c: char| c.is_ascii_digit()) && !w.ends_with('~');
            let cut = lines
                .iter()
                .flat_map(|l| l.split_whitespace())
                .find(|w| number(w) && !whole.contains(w));
            assert_eq!(cut, None, "{order:?} {width} {lines:#?}");
            assert!(shown(&lines) >= before, "{order:?} {width} {lines:#?}");
            before = shown(&lines);
        }
        assert_eq!(before, shown(&all));
    }
}
