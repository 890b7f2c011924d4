//! Views that are refreshed in place. A [`View`] holds the content and handles keys, and needs no terminal. [`Live`]
//! gives it a terminal, and restores the terminal on every way out.

use std::cell::RefCell;
use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::text::Line;
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spile_plain::messages::{Failure, fail};
use spile_runtime::ExternalSource;

/// The content of a view.
pub(crate) trait View {
    /// Draws it.
    fn draw(&self, frame: &mut Frame<'_>);

    /// Handles a key; `Break` ends the view.
    fn key(&mut self, key: KeyEvent) -> ControlFlow<()>;

    /// Called when a key has ended the view, after the terminal was restored. `Break` ends the session.
    fn ended(&mut self) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

/// Whether a key ends a view.
pub(crate) fn quits(key: &KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c' | 'd') => control,
        _ => false,
    }
}

/// A view on a terminal.
pub(crate) struct Live {
    view: Rc<RefCell<dyn View>>,
    screen: Option<Screen>,
    failed: Option<Failure>,
}

/// A terminal in raw mode, showing its alternate screen. Dropping it, also in a panic, restores the
/// terminal.
struct Screen {
    terminal: DefaultTerminal,
    size: Option<(u16, u16)>,
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.terminal.show_cursor();
        ratatui::restore();
    }
}

impl Live {
    /// A view without a terminal.
    pub(crate) fn new(view: Rc<RefCell<dyn View>>) -> Rc<RefCell<Live>> {
        Rc::new(RefCell::new(Live {
            view,
            screen: None,
            failed: None,
        }))
    }

    /// Takes the terminal.
    pub(crate) fn open(&mut self) {
        match ratatui::try_init() {
            Ok(terminal) => {
                self.screen = Some(Screen {
                    terminal,
                    size: None,
                });
                let _ = self.draw();
            }
            Err(e) => {
                ratatui::restore();
                self.failed = Some(fail(format_args!(
                    "--live: the terminal cannot be used: {e}"
                )));
            }
        }
    }

    /// Restores the terminal; returns why it could not be used, if so.
    pub(crate) fn close(&mut self) -> Option<Failure> {
        self.screen = None;
        self.failed.take()
    }

    /// Ends the session with a failure.
    pub(crate) fn fails(&mut self, failure: Failure) -> ControlFlow<()> {
        self.failed.get_or_insert(failure);
        ControlFlow::Break(())
    }

    /// Draws the view, if it has a terminal.
    pub(crate) fn draw(&mut self) -> ControlFlow<()> {
        let Some(screen) = &mut self.screen else {
            return ControlFlow::Continue(());
        };
        screen.size = event_size();
        match screen.terminal.draw(|frame| self.view.borrow().draw(frame)) {
            Ok(_) => ControlFlow::Continue(()),
            // A terminal that went away ends the session, as with any other reader.
            Err(_) => ControlFlow::Break(()),
        }
    }

    /// Polls the keyboard and the terminal's size.
    fn poll(&mut self) -> ControlFlow<()> {
        if self.failed.is_some() {
            return ControlFlow::Break(());
        }
        let Some(screen) = &self.screen else {
            return ControlFlow::Continue(());
        };
        let mut changed = screen.size != event_size();
        if hung_up() {
            return ControlFlow::Break(());
        }
        while event::poll(Duration::ZERO).is_ok_and(|ready| ready) {
            match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    if self.view.borrow_mut().key(key).is_break() {
                        // Keys are not read any more: Ctrl-C is a signal again.
                        self.screen = None;
                        return self.view.borrow_mut().ended();
                    }
                }
                Ok(_) => {}
                Err(_) => return ControlFlow::Break(()),
            }
            changed = true;
        }
        match changed {
            true => self.draw(),
            false => ControlFlow::Continue(()),
        }
    }
}

fn event_size() -> Option<(u16, u16)> {
    ratatui::crossterm::terminal::size().ok()
}

/// Whether the keyboard's other end is closed.
fn hung_up() -> bool {
    let stdin = rustix::stdio::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    poll(&mut fds, Some(&now)).is_err() || fds[0].revents().intersects(gone)
}

/// The keyboard, as an additional source of events for the session. (The session also polls when
/// the terminal's size has changed. SIGWINCH is blocked: `crossterm` forgets keys that arrive
/// together with the signal until the next key.)
pub(crate) fn keyboard_source(live: &Rc<RefCell<Live>>) -> io::Result<ExternalSource> {
    let live = Rc::clone(live);
    Ok(ExternalSource {
        fd: rustix::stdio::stdin().try_clone_to_owned()?,
        ready: Box::new(move || live.borrow_mut().poll()),
    })
}

/// The number of rows above the shown part after a key that scrolls; `None` for other keys.
pub(crate) fn scrolled(above: usize, key: KeyCode) -> Option<usize> {
    Some(match key {
        KeyCode::Up | KeyCode::Char('k') => above.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => above + 1,
        KeyCode::PageUp => above.saturating_sub(10),
        KeyCode::PageDown => above + 10,
        KeyCode::Home => 0,
        KeyCode::End => usize::MAX,
        _ => return None,
    })
}

/// The columns that fit in a width, each with its index and its own width. `ranked`: their indexes and least
/// widths, the most important first; `widths`: the widths that they need.
pub(crate) fn fit(
    ranked: impl Iterator<Item = (usize, usize)>,
    widths: &[usize],
    spacing: usize,
    width: usize,
) -> Vec<(usize, usize)> {
    let mut left = width;
    let mut shown: Vec<(usize, usize)> = Vec::new();
    for (index, least) in ranked {
        let gap = if shown.is_empty() { 0 } else { spacing };
        // After a column that does not fit, less important ones are not shown either.
        let Some(rest) = left.checked_sub(gap + least) else {
            break;
        };
        left = rest;
        shown.push((index, least));
    }
    for (index, width) in &mut shown {
        let more = left.min(widths[*index] - *width);
        *width += more;
        left -= more;
    }
    shown.sort_unstable();
    shown
}

/// Whether the locale cannot show characters beyond ASCII.
pub(crate) fn ascii_only() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    let locale = locale.unwrap_or_default().to_lowercase();
    !(locale.contains("utf-8") || locale.contains("utf8"))
}

/// A text in `width` columns of a terminal, with a mark where it is cut.
pub(crate) fn text(text: &str, width: usize, ascii: bool) -> String {
    if Line::raw(text).width() <= width {
        return text.to_owned();
    }
    let mark = if ascii { '~' } else { '…' };
    let mut cut: String = text.to_owned();
    while Line::raw(&*cut).width() >= width.max(1) {
        cut.pop();
    }
    cut.push(mark);
    cut
}

/// As many parts of a line as fit; earlier parts are more important.
pub(crate) fn parts(parts: &[String], width: usize) -> String {
    let mut line = String::new();
    for part in parts {
        if Line::raw(&*line).width() + Line::raw(&**part).width() > width {
            break;
        }
        line.push_str(part);
    }
    line
}
