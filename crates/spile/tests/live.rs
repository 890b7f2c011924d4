//! `spile syscount --live` on a terminal: the state of the terminal after each way out, at any
//! size.

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
        .arg("syscount")
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
        let status = self.end();
        assert!(status.success(), "{status}: {:?}", self.text());
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
