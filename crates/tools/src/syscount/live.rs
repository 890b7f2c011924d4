//! `--live`: the table that is refreshed in place.

mod fit;

use std::ops::ControlFlow;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};
use spile_cast::Cast;

use super::rows::Report;
use super::show::{Column, HistogramScale, ReportShape, Row, cells, headline};
use crate::screen::{self, View};

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

    /// Sorts by the column `by` locations to the right.
    fn sort_by_neighbour(&mut self, by: isize) {
        let columns = self.shape.columns();
        let index = columns.iter().position(|c| *c == self.order).unwrap_or(0);
        let next = index.cast_signed() + by;
        self.order = columns[next.rem_euclid(columns.len().cast_signed()).cast_unsigned()];
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
        let text = screen::parts(&parts, width);
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
                let text = Line::from(screen::text(&texts[*i], *width, self.ascii));
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

impl View for ViewState {
    fn key(&mut self, key: KeyEvent) -> ControlFlow<()> {
        self.above = screen::scrolled(self.above, key.code).unwrap_or(self.above);
        match key.code {
            _ if screen::quits(&key) => return ControlFlow::Break(()),
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
            _ => {}
        }
        self.above = self.above.min(self.shown.rows.len().saturating_sub(1));
        ControlFlow::Continue(())
    }

    fn draw(&self, frame: &mut Frame<'_>) {
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
        let keys = screen::parts(&keys, usize::from(foot.width));
        let dim = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Paragraph::new(keys).style(dim), foot);
    }
}

#[cfg(test)]
mod tests;
