//! `--live`: the table that is refreshed in place. [`ViewState`] holds the content and handles keys, and
//! needs no terminal. [`LiveView`] gives it a terminal, and restores the terminal on every way out.

mod fit;

use std::cell::RefCell;
use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spile_cast::Cast;
use spile_runtime::ExternalSource;

use super::rows::{Reader, Report};
use super::show::{Column, HistogramScale, ReportShape, Row, ascii_only, cells, headline};
use spile_plain::messages::{Failure, fail};

/// Help on keys.
const KEYS: [&str; 6] = [
    "q quit",
    "  ←→ column",
    "  r reverse",
    "  space freeze",
    "  t interval/total",
    "  ↑↓ scroll",
];

/// The content of the view, and its settings.
pub(super) struct ViewState {
    shape: ReportShape,
    ascii: bool,
    order: Column,
    reverse: bool,
    /// Only keys change the view.
    frozen: bool,
    /// Counts since counting began, instead of since the last report.
    whole: bool,
    /// Number of rows scrolled off the top.
    above: usize,
    last: Report,
    total: Report,
    shown: Report,
}

impl ViewState {
    /// A view without a report.
    pub(super) fn new(shape: ReportShape, ascii: bool) -> ViewState {
        ViewState {
            shape: ReportShape {
                intervals: true,
                ..shape
            },
            ascii,
            order: shape.usual_order(),
            reverse: false,
            frozen: false,
            whole: false,
            above: 0,
            last: Report::default(),
            total: Report::default(),
            shown: Report::default(),
        }
    }

    /// Takes a report.
    pub(super) fn report(&mut self, report: Report) {
        self.total.end = report.end;
        self.total.unfit = report.unfit;
        for (group, calls) in &report.rows {
            self.total.rows.entry(group.clone()).or_default().add(calls);
        }
        self.last = report;
        if !self.frozen {
            self.choose();
        }
    }

    fn choose(&mut self) {
        let shown = if self.whole { &self.total } else { &self.last };
        self.shown = shown.clone();
    }

    /// Handles a key; `Break` ends the session.
    pub(super) fn key(&mut self, key: KeyEvent) -> ControlFlow<()> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
            KeyCode::Char('c' | 'd') if control => return ControlFlow::Break(()),
            KeyCode::Left | KeyCode::Char('<' | 'h') => self.sort_by_neighbour(-1),
            KeyCode::Right | KeyCode::Char('>' | 'l') => self.sort_by_neighbour(1),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char(' ' | 'f') => {
                self.frozen = !self.frozen;
                if !self.frozen {
                    self.choose();
                }
            }
            KeyCode::Char('t') => {
                self.whole = !self.whole;
                self.choose();
            }
            KeyCode::Up | KeyCode::Char('k') => self.above = self.above.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.above += 1,
            KeyCode::PageUp => self.above = self.above.saturating_sub(10),
            KeyCode::PageDown => self.above += 10,
            KeyCode::Home => self.above = 0,
            KeyCode::End => self.above = usize::MAX,
            _ => {}
        }
        self.above = self.above.min(self.shown.rows.len().saturating_sub(1));
        ControlFlow::Continue(())
    }

    /// Sorts by the column `by` locations to the right.
    fn sort_by_neighbour(&mut self, by: isize) {
        let columns = self.shape.columns();
        let index = columns.iter().position(|c| *c == self.order).unwrap_or(0);
        let next = index.cast_signed() + by;
        self.order = columns[next.rem_euclid(columns.len().cast_signed()).cast_unsigned()];
    }

    /// Draws it.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let [head, middle, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(self.head(usize::from(head.width)), head);
        self.table(frame, middle);
        // Other keys do the same as arrows.
        let keys = KEYS.map(|help| match self.ascii {
            true => help.replace("←→", "</>").replace("↑↓", "j/k"),
            false => help.to_owned(),
        });
        let keys = fit::parts(&keys, usize::from(foot.width));
        let dim = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Paragraph::new(keys).style(dim), foot);
    }

    /// The line above the table. Parts at its end that do not fit are left out.
    fn head(&self, width: usize) -> Paragraph<'static> {
        let mut parts = headline(&self.shape, &self.shown, &self.shown.sum());
        if self.whole {
            parts.push(" (total)".into());
        }
        if self.frozen {
            parts.push(" [frozen]".into());
        }
        if self.shown.unfit > 0 {
            parts.push(format!(" {} calls missing", self.shown.unfit));
        }
        let text = fit::parts(&parts, width);
        Paragraph::new(text).style(Style::new().add_modifier(Modifier::BOLD))
    }

    fn table(&self, frame: &mut Frame<'_>, area: Rect) {
        let columns = self.shape.columns();
        let mut rows: Vec<Row<'_>> = self.shown.rows.iter().collect();
        self.order.sort(&mut rows, self.reverse);
        rows.truncate(self.shape.top);
        let above = self.above.min(rows.len().saturating_sub(1));
        // One line is the head's.
        let fit = usize::from(area.height).saturating_sub(1);
        let rows = &rows[above..(above + fit).min(rows.len())];
        let scale = HistogramScale::for_rows(rows.iter().map(|r| r.1), self.ascii);
        let seconds = self.shown.seconds();
        let titles: Vec<String> = columns.iter().map(|c| self.title(*c, scale)).collect();
        let texts = cells(&columns, rows, seconds, scale);
        let width = |i: usize| {
            let cells = texts.iter().map(|row| &row[i]).chain([&titles[i]]);
            cells.map(|c| Line::raw(c).width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns.len()).map(width).collect();
        let shown = fit::columns(&columns, &widths, self.order, usize::from(area.width));
        let line = |texts: &Vec<String>| {
            let cells = shown.iter().map(|(i, width)| {
                let text = Line::from(fit::text(&texts[*i], *width, self.ascii));
                Cell::from(Text::from(text.alignment(columns[*i].alignment())))
            });
            TableRow::new(cells)
        };
        let head = line(&titles).style(Style::new().add_modifier(Modifier::REVERSED));
        let lengths = shown
            .iter()
            .map(|(_, w)| Constraint::Length(u16::try_from(*w).unwrap_or(u16::MAX)));
        let table = Table::new(texts.iter().map(line), lengths)
            .column_spacing(fit::SPACING.fit::<u16>())
            .header(head);
        frame.render_widget(table, area);
    }

    /// The title of a column, marked where rows are sorted by it.
    fn title(&self, column: Column, scale: HistogramScale) -> String {
        let title = column.title(scale);
        let marks = if self.ascii {
            ['v', '^']
        } else {
            ['▼', '▲']
        };
        // Numbers are sorted in descending order, texts in ascending order.
        let is_text = column.alignment() == Alignment::Left && column != Column::Histogram;
        let up = self.reverse != is_text;
        match column == self.order {
            true => format!("{title}{}", marks[usize::from(up)]),
            false => title,
        }
    }
}

/// A view on a terminal.
pub(super) struct LiveView {
    view: ViewState,
    reader: Reader,
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

impl LiveView {
    /// A view without a terminal.
    pub(super) fn new(shape: ReportShape) -> Rc<RefCell<LiveView>> {
        Rc::new(RefCell::new(LiveView {
            view: ViewState::new(shape, ascii_only()),
            reader: Reader::default(),
            screen: None,
            failed: None,
        }))
    }

    /// Takes the terminal.
    pub(super) fn open(&mut self) {
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
    pub(super) fn close(&mut self) -> Option<Failure> {
        self.screen = None;
        self.failed.take()
    }

    /// Takes a row of the script.
    pub(super) fn row(&mut self, row: &spile_runtime::io::rows::Row<'_>) -> ControlFlow<()> {
        match self.reader.row(row) {
            Ok(Some(report)) => {
                self.view.report(report);
                self.draw()
            }
            Ok(None) => ControlFlow::Continue(()),
            Err(e) => self.fails(fail(e)),
        }
    }

    fn fails(&mut self, failure: Failure) -> ControlFlow<()> {
        self.failed.get_or_insert(failure);
        ControlFlow::Break(())
    }

    fn draw(&mut self) -> ControlFlow<()> {
        let Some(screen) = &mut self.screen else {
            return ControlFlow::Continue(());
        };
        screen.size = event_size();
        match screen.terminal.draw(|frame| self.view.draw(frame)) {
            Ok(_) => ControlFlow::Continue(()),
            // A terminal that went away ends the session, as with any other reader.
            Err(_) => ControlFlow::Break(()),
        }
    }

    /// Polls the keyboard and the terminal's size.
    pub(super) fn poll(&mut self) -> ControlFlow<()> {
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
        while event::poll(std::time::Duration::ZERO).is_ok_and(|ready| ready) {
            match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => self.view.key(key)?,
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
pub(super) fn keyboard_source(live: &Rc<RefCell<LiveView>>) -> io::Result<ExternalSource> {
    let live = Rc::clone(live);
    Ok(ExternalSource {
        fd: rustix::stdio::stdin().try_clone_to_owned()?,
        ready: Box::new(move || live.borrow_mut().poll()),
    })
}

#[cfg(test)]
mod tests;
