//! The view of `--live` on a terminal.

use std::ops::ControlFlow;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use rustix::process::{Signal, kill_current_process_group};
use spile_profile::model::{Header, Ns, Profile};

use super::tables::{Interval, Kind, fit, subject};
use crate::screen::{self, View, ascii_only};

/// Help on keys, the most important first.
const KEYS: [&str; 6] = [
    "q quit",
    "  ? help",
    "  t f w table",
    "  s sort",
    "  r reverse",
    "  space freeze",
];

/// The page that `?` shows.
const HELP: &str = "\
t f w  threads, functions on processors, waits
Tab    the next table
s S    sort by the next column, by the one before
r      reverse the order
space  freeze the tables; again: go on
up, down, PageUp, PageDown, Home, End  scroll
q, Esc, Ctrl-C  end the recording, print its report

All times are those of the last interval. A thread's CPU
(USER: in the program, KERNEL), BLOCKED (asleep) and RUNQ
(ready without a processor) add up to it. A wait that goes
on has no function yet.";

/// The tables, and what of them is shown.
pub(super) struct LiveTables {
    subject: String,
    /// Whether ending the view interrupts the command.
    of_command: bool,
    ascii: bool,
    kind: Kind,
    /// The column by which each table is sorted, and whether its order is reversed.
    orders: [(usize, bool); 3],
    above: usize,
    help: bool,
    frozen: bool,
    last: (Interval, Ns),
    shown: Option<(Interval, Ns)>,
}

/// Interrupts the command, as Ctrl-C does on a terminal that is not in raw mode. The signal also ends the session.
fn interrupt() {
    let _ = kill_current_process_group(Signal::INT);
}

impl LiveTables {
    /// A view without an interval.
    pub(super) fn new(header: &Header, of_command: bool) -> LiveTables {
        LiveTables {
            subject: subject(header),
            of_command,
            ascii: ascii_only(),
            kind: Kind::default(),
            orders: Kind::ALL.map(|(kind, ..)| (kind.usual_order(), false)),
            above: 0,
            help: false,
            frozen: false,
            last: (Interval::default(), 0),
            shown: None,
        }
    }

    /// Takes the profile of an interval that ended after `elapsed`.
    pub(super) fn take(&mut self, profile: Profile, elapsed: Ns) {
        self.last = (Interval::new(profile), elapsed);
        if !self.frozen {
            self.shown = Some(std::mem::take(&mut self.last));
        }
    }

    fn order(&mut self) -> &mut (usize, bool) {
        let index = Kind::ALL.iter().position(|(kind, ..)| *kind == self.kind);
        &mut self.orders[index.unwrap_or(0)]
    }

    /// Sorts by the column `by` columns to the right.
    fn sort_by_neighbour(&mut self, by: isize) {
        let columns = self.kind.columns().len().cast_signed();
        let order = self.order();
        let next = (order.0.cast_signed() + by).rem_euclid(columns);
        *order = (next.cast_unsigned(), false);
    }

    fn change_to(&mut self, kind: Kind) {
        (self.kind, self.above, self.help) = (kind, 0, false);
    }

    fn rows(&self) -> usize {
        let rows = self.shown.as_ref();
        rows.map_or(0, |(interval, _)| interval.rows(self.kind, 0, false).len())
    }

    /// The names of the tables, with the shown one marked.
    fn tabs(&self) -> Line<'static> {
        let tabs = Kind::ALL.iter().flat_map(|(kind, key, name)| {
            let style = match *kind == self.kind {
                true => Style::new().add_modifier(Modifier::REVERSED),
                false => Style::new(),
            };
            [
                Span::styled(format!(" {key} {name} "), style),
                Span::raw(" "),
            ]
        });
        let mut line: Vec<Span<'_>> = tabs.collect();
        if self.frozen {
            line.push(Span::raw("[frozen]"));
        }
        Line::from(line)
    }

    fn table(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some((interval, _)) = &self.shown else {
            frame.render_widget(Paragraph::new("The first interval goes on."), area);
            return;
        };
        let index = Kind::ALL.iter().position(|(kind, ..)| *kind == self.kind);
        let (order, reverse) = self.orders[index.unwrap_or(0)];
        let columns = self.kind.columns();
        let rows = interval.rows(self.kind, order, reverse);
        let above = self.above.min(rows.len().saturating_sub(1));
        // One line is the head's.
        let lines = usize::from(area.height).saturating_sub(1);
        let rows = &rows[above..(above + lines).min(rows.len())];
        let fitted = fit(self.kind, rows, order, usize::from(area.width));
        let marks = if self.ascii {
            ['v', '^']
        } else {
            ['▼', '▲']
        };
        let titles: Vec<String> = columns
            .iter()
            .enumerate()
            .map(|(i, column)| match i == order {
                true => format!(
                    "{}{}",
                    column.title,
                    marks[usize::from(column.is_text != reverse)]
                ),
                false => column.title.to_owned(),
            })
            .collect();
        let line = |texts: &Vec<String>| {
            let cells = fitted.columns.iter().map(|(i, width)| {
                let text = Line::from(screen::text(&texts[*i], *width, self.ascii));
                let side = match columns[*i].is_text {
                    true => Alignment::Left,
                    false => Alignment::Right,
                };
                Cell::from(Text::from(text.alignment(side)))
            });
            Row::new(cells)
        };
        let head = line(&titles).style(Style::new().add_modifier(Modifier::REVERSED));
        let widths = fitted.columns.iter();
        let widths = widths.map(|(_, w)| Constraint::Length(u16::try_from(*w).unwrap_or(u16::MAX)));
        let table = Table::new(fitted.rows.iter().map(line), widths)
            .column_spacing(1)
            .header(head);
        frame.render_widget(table, area);
    }
}

impl View for LiveTables {
    fn key(&mut self, key: KeyEvent) -> ControlFlow<()> {
        self.above = screen::scrolled(self.above, key.code).unwrap_or(self.above);
        match key.code {
            KeyCode::Esc if self.help => self.help = false,
            _ if screen::quits(&key) => return ControlFlow::Break(()),
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Tab => {
                let index = Kind::ALL.iter().position(|(kind, ..)| *kind == self.kind);
                let next = (index.unwrap_or(0) + 1) % Kind::ALL.len();
                self.change_to(Kind::ALL[next].0);
            }
            KeyCode::Char('s' | '>') | KeyCode::Right => self.sort_by_neighbour(1),
            KeyCode::Char('S' | '<') | KeyCode::Left => self.sort_by_neighbour(-1),
            KeyCode::Char('r') => {
                let order = self.order();
                order.1 = !order.1;
            }
            KeyCode::Char(' ') => {
                self.frozen = !self.frozen;
                if !self.frozen && self.last.0.length > 0 {
                    self.shown = Some(std::mem::take(&mut self.last));
                }
            }
            KeyCode::Char(c) => {
                if let Some((kind, ..)) = Kind::ALL.iter().find(|(_, key, _)| *key == c) {
                    self.change_to(*kind);
                }
            }
            _ => {}
        }
        self.above = self.above.min(self.rows().saturating_sub(1));
        ControlFlow::Continue(())
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let line = Constraint::Length(1);
        let areas = Layout::vertical([line, line, Constraint::Min(0), line]);
        let [head, tabs, middle, foot] = areas.areas(frame.area());
        let parts = match &self.shown {
            Some((interval, elapsed)) => interval.head(&self.subject, *elapsed),
            None => vec![self.subject.clone()],
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let width = usize::from(head.width);
        let text = screen::parts(
            &[&[screen::text(&parts[0], width, self.ascii)], &parts[1..]].concat(),
            width,
        );
        frame.render_widget(Paragraph::new(text).style(bold), head);
        frame.render_widget(Paragraph::new(self.tabs()), tabs);
        match self.help {
            true => frame.render_widget(Paragraph::new(HELP), middle),
            false => self.table(frame, middle),
        }
        let keys = screen::parts(&KEYS.map(str::to_owned), usize::from(foot.width));
        let dim = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Paragraph::new(keys).style(dim), foot);
    }

    fn ended(&mut self) -> ControlFlow<()> {
        if self.of_command {
            interrupt();
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests;
