//! `spile syscount --live` and `spile profile --live` on a terminal: the state of the terminal after each way out, at
//! any size. And what `spile profile --live` prints without one.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Only a hanging session takes so long.
const LIMIT: Duration = Duration::from_secs(120);
/// Switches to the alternate screen, and back.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const CURSOR: &str = "\x1b[?25h";

/// A program on a pseudo-terminal of its own.
struct Terminal {
    ours: Option<File>,
    theirs: OwnedFd,
    before: libc::termios,
    seen: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

fn modes(fd: &OwnedFd) -> libc::termios {
    // SAFETY: an all-zero termios is valid, and the kernel fills it for a descriptor of ours.
    unsafe {
        let mut modes = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(fd.as_raw_fd(), &raw mut modes), 0);
        modes
    }
}

fn start(columns: u16, lines: u16, args: &[&str]) -> Terminal {
    start_tool("syscount", columns, lines, args)
}

fn start_tool(tool: &str, columns: u16, lines: u16, args: &[&str]) -> Terminal {
    let size = libc::winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: both pointers are valid for writes; null pointers ask for no name and no modes.
    let (ours, theirs) = unsafe {
        let none = std::ptr::null_mut();
        let made = libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            none,
            none.cast(),
            &raw const size,
        );
        assert_eq!(made, 0);
        (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    };
    let before = modes(&theirs);
    let side = || Stdio::from(theirs.try_clone().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_spile"));
    command
        .arg(tool)
        .args(args)
        .env("LANG", "C.UTF-8")
        .env("TERM", "xterm");
    // SAFETY: between fork and exec only system calls are made. The terminal becomes the session's
    // own, so that the program is notified of its end, even if the test's parent ignores that
    // signal, as under `nohup`.
    unsafe {
        use std::os::unix::process::CommandExt;
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        });
    }
    let child = command
        .stdin(side())
        .stdout(side())
        .stderr(side())
        .spawn()
        .unwrap();
    let ours = File::from(ours);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut from, to) = (ours.try_clone().unwrap(), Arc::clone(&seen));
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut piece) {
            to.lock().unwrap().extend_from_slice(&piece[..n]);
        }
    });
    Terminal {
        ours: Some(ours),
        theirs,
        before,
        seen,
        child,
    }
}

impl Terminal {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    fn wait_for(&mut self, text: &str) {
        self.wait_for_times(1, text);
    }

    /// Waits until a text was written `times` times. Text that is already on the screen is not
    /// written again.
    fn wait_for_times(&mut self, times: usize, text: &str) {
        let begin = Instant::now();
        while self.text().matches(text).count() < times {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{status}, and no {text:?}: {:?}", self.text());
            }
            assert!(begin.elapsed() < LIMIT, "no {text:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until something is drawn after the present output.
    fn wait_for_drawing(&mut self) {
        let (begin, before) = (Instant::now(), self.text().len());
        while self.text().len() <= before {
            assert!(
                self.child.try_wait().unwrap().is_none(),
                "{:?}",
                self.text()
            );
            assert!(begin.elapsed() < LIMIT, "nothing drawn: {:?}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Presses keys, and waits until a word is shown that was not there. Other sizes make all of the view be drawn, because
    /// only what changed is.
    fn press_for(&mut self, keys: &str, text: &str) {
        let before = self.text().matches(text).count();
        self.press(keys);
        let begin = Instant::now();
        for columns in (79..=80).cycle() {
            self.resize(columns, 24);
            std::thread::sleep(Duration::from_millis(100));
            if self.text().matches(text).count() > before {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "no {text:?}");
        }
    }

    fn press(&self, keys: &str) {
        self.ours
            .as_ref()
            .unwrap()
            .write_all(keys.as_bytes())
            .unwrap();
    }

    fn resize(&self, columns: u16, lines: u16) {
        let size = libc::winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: the kernel reads the size.
        unsafe { libc::ioctl(self.theirs.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a signal to a child that is not waited for yet.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
    }

    fn end(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if begin.elapsed() > LIMIT {
                let _ = self.child.kill();
                panic!("does not end: {:?}", self.text());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end, and asserts that the terminal is as before.
    fn ends_well(&mut self) {
        self.ends_with(&[0]);
    }

    /// The same, with one of these exit statuses. Returns what was printed after the view.
    fn ends_with(&mut self, codes: &[i32]) -> String {
        let status = self.end();
        let expected = status.code().is_some_and(|code| codes.contains(&code));
        assert!(expected, "{status}: {:?}", self.text());
        let begin = Instant::now();
        while !self.text().contains(LEAVE) && begin.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(10));
        }
        let text = self.text();
        let left = text
            .rfind(LEAVE)
            .unwrap_or_else(|| panic!("still there: {text:?}"));
        assert!(text.matches(ENTER).count() == 1 && text[..left].contains(ENTER));
        assert!(text.contains(CURSOR), "no cursor: {text:?}");
        let after = modes(&self.theirs);
        assert_eq!(
            (after.c_iflag, after.c_oflag, after.c_lflag),
            (
                self.before.c_iflag,
                self.before.c_oflag,
                self.before.c_lflag
            )
        );
        // The rest comes through another thread.
        std::thread::sleep(Duration::from_millis(200));
        self.text().split_off(left + LEAVE.len())
    }
}

/// Skips the test where sessions cannot run.
fn need_sessions() {
    let run = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["syscount", "-d", "0.01"])
        .output();
    if !run.is_ok_and(|o| o.status.success()) {
        spile_testing::skip("system calls cannot be counted here");
    }
}

#[test]
fn keys_sort_and_freeze_the_table() {
    need_sessions();
    let mut terminal = start(80, 24, &["--live", "-i", "0.2"]);
    terminal.wait_for("calls in");
    terminal.wait_for("CALLS▼");
    terminal.press("r");
    terminal.wait_for("▲");
    terminal.press("\x1b[C");
    terminal.wait_for_times(2, "▲");
    terminal.press("t");
    terminal.wait_for("(total)");
    terminal.press(" ");
    terminal.wait_for("[frozen]");
    terminal.press("\x1b[B\x1b[6~\x1b[H\x1b[F");
    terminal.resize(1, 1);
    terminal.resize(30, 3);
    terminal.press("q");
    terminal.ends_well();
}

#[test]
fn a_key_is_taken_while_the_size_changes() {
    need_sessions();
    let mut terminal = start(80, 24, &["--live", "-i", "0.1"]);
    terminal.wait_for("calls in");
    terminal.press("r");
    terminal.wait_for("▲");
    terminal.resize(60, 20);
    terminal.press("q");
    terminal.ends_well();
}

#[test]
fn the_table_is_drawn_at_any_size() {
    need_sessions();
    for (columns, lines) in [(1, 1), (2, 2), (500, 3), (0, 0)] {
        let mut terminal = start(columns, lines, &["--live", "-L", "-i", "0.1"]);
        terminal.wait_for(ENTER);
        terminal.wait_for_drawing();
        terminal.press("\x03");
        terminal.ends_well();
    }
}

#[test]
fn signals_end_the_session_and_restore_the_terminal() {
    need_sessions();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        let mut terminal = start(80, 24, &["--live"]);
        terminal.wait_for(ENTER);
        terminal.signal(signal);
        terminal.ends_well();
    }
}

#[test]
fn the_session_ends_when_the_time_is_over() {
    need_sessions();
    let mut terminal = start(80, 24, &["--live", "-d", "0.5", "--by", "process"]);
    terminal.wait_for(ENTER);
    terminal.ends_well();
}

#[test]
fn the_session_ends_when_the_terminal_goes_away() {
    need_sessions();
    let mut terminal = start(80, 24, &["--live"]);
    terminal.wait_for(ENTER);
    terminal.signal(libc::SIGHUP);
    terminal.ours = None;
    terminal.end();
}

#[test]
fn errors_are_plain_text() {
    let mut terminal = start(80, 24, &["--live", "-p", "4194305"]);
    assert_eq!(terminal.end().code(), Some(1));
    terminal.resize(80, 24);
    let begin = Instant::now();
    while !terminal.text().contains("no such process") {
        assert!(begin.elapsed() < LIMIT, "{:?}", terminal.text());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!terminal.text().contains(ENTER));
}

/// A shell that computes, and its child, which sleeps.
const WORK: &str = "sleep 1000 & while :; do :; done";

#[test]
fn keys_switch_and_sort_the_tables_of_a_profile() {
    need_sessions();
    let script = format!("echo printed by the command; {WORK}");
    let command = ["--live", "--", "sh", "-c", &script];
    let mut terminal = start_tool("profile", 80, 24, &command);
    terminal.wait_for("BLOCKED");
    terminal.press_for("f", "FUNCTION");
    terminal.press_for("w", "OBJECT");
    terminal.press_for("s", "CALL▲");
    terminal.press_for("r", "CALL▼");
    terminal.press_for("?", "PageDown,");
    terminal.press("\x1b");
    terminal.press_for(" ", "[frozen]");
    terminal.resize(1, 1);
    terminal.resize(60, 3);
    terminal.resize(60, 20);
    assert!(!terminal.text().contains("printed by the command"));
    // This interrupts the command, as Ctrl-C does.
    terminal.press("q");
    // The command may not have ended yet.
    let after = terminal.ends_with(&[130, 0]);
    assert!(after.contains("printed by the command"), "{after}");
    assert!(after.contains("Where the time went"), "{after}");
}

/// A program that the test ends.
struct Work(Child);

impl Work {
    /// It has a process group, whose processes are those of [`WORK`].
    fn start() -> Work {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        Work(command.args(["-c", WORK]).process_group(0).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: a signal to processes that this test started.
        unsafe { libc::kill(-self.0.id().cast_signed(), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

#[test]
fn a_profile_on_a_terminal_ends_in_every_way() {
    need_sessions();
    let work = Work::start();
    let attached = ["--live", "-p", &work.pid()];
    for key in ["q", "\x03", "\x1b"] {
        let mut terminal = start_tool("profile", 80, 24, &attached);
        terminal.wait_for(ENTER);
        terminal.wait_for_drawing();
        terminal.press(key);
        let after = terminal.ends_with(&[0]);
        assert!(after.contains(&format!("pid {}", work.pid())), "{after}");
    }
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        let mut terminal = start_tool("profile", 80, 24, &attached);
        terminal.wait_for(ENTER);
        terminal.signal(signal);
        terminal.ends_well();
    }
    // Time is over, and the terminal is tiny.
    for (columns, lines) in [(1, 1), (2, 2), (500, 3), (0, 0)] {
        let timed = [&attached[..], &["-d", "1.5"]].concat();
        let mut terminal = start_tool("profile", columns, lines, &timed);
        terminal.wait_for(ENTER);
        terminal.ends_well();
    }
}

/// The rows of the threads' tables: name, then the shares of its columns.
fn thread_rows(text: &str) -> Vec<(String, Vec<f64>)> {
    let mut rows = Vec::new();
    for table in text.split(" TID ").skip(1) {
        let lines = table.lines().skip(1);
        for line in lines.take_while(|line| !line.contains("FUNCTION")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let shares = words.iter().filter_map(|word| word.strip_suffix('%'));
            let shares: Vec<f64> = shares.map(|n| n.parse().unwrap()).collect();
            rows.push((words[1].to_owned(), shares));
        }
    }
    rows
}

#[test]
fn without_a_terminal_tables_are_printed_whose_times_close() {
    need_sessions();
    let work = Work::start();
    let output = Command::new(env!("CARGO_BIN_EXE_spile"))
        .args(["profile", "--live", "-d", "4.5", "-p", &work.pid()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains('\x1b'), "{text}");
    let rows = thread_rows(&text);
    assert!(rows.len() >= 4, "{text}");
    for (name, shares) in &rows {
        let [cpu, user, kernel, blocked, ready] = shares[..] else {
            panic!("{name} {shares:?}: {text}");
        };
        let sum = user + kernel + blocked + ready;
        assert!((99.0..=101.0).contains(&sum), "{name} {shares:?}: {text}");
        assert!((user + kernel - cpu).abs() < 0.3, "{name} {shares:?}");
        match &**name {
            "sleep" => assert!(blocked > 99.0, "{text}"),
            _ => assert!(blocked < 1.0, "{text}"),
        }
    }
    assert!(text.contains("clock_nanosleep"), "{text}");
}
