//! Tables and paragraphs fitted to a width.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A column.
pub(super) struct Column {
    pub head: Cow<'static, str>,
    /// Priority for dropping where the width is short: the highest goes first; 0 is never dropped.
    pub drop: u8,
}

/// A table: the first column is text, which is cut if necessary; the others are numbers.
pub(super) struct TextTable {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<String>>,
    /// Minimum width that the first column is cut to before columns are dropped.
    pub narrow: usize,
}

impl TextTable {
    pub(super) fn new(columns: &[(&'static str, u8)]) -> TextTable {
        let columns = columns.iter();
        TextTable {
            columns: columns
                .map(|&(head, drop)| Column {
                    head: head.into(),
                    drop,
                })
                .collect(),
            rows: Vec::new(),
            narrow: 18,
        }
    }

    /// Adds a column behind the others.
    pub(super) fn add(&mut self, head: String, drop: u8) {
        let head = head.into();
        self.columns.push(Column { head, drop });
    }

    /// The cells as text, the width of each column, and the columns to show.
    fn laid_out(&self) -> (Vec<Vec<String>>, Vec<usize>, Vec<usize>) {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| escape(cell)).collect())
            .collect();
        let mut widths: Vec<usize> = self.columns.iter().map(|c| c.head.width()).collect();
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let shown = (0..self.columns.len())
            // A column without any content is not shown.
            .filter(|c| self.columns[*c].drop == 0 || rows.iter().any(|r| has_content(&r[*c])))
            .collect();
        (rows, widths, shown)
    }

    /// Whether all columns fit except those with a priority above `least`.
    pub(super) fn fits(&self, width: usize, least: u8) -> bool {
        let (_, widths, shown) = self.laid_out();
        let kept = shown.iter().filter(|c| self.columns[**c].drop <= least);
        let mut total = 0;
        for column in kept {
            total += match column {
                0 => widths[0].min(self.narrow),
                _ => widths[*column] + 2,
            };
        }
        total <= width
    }

    /// The table's text, ending in a newline.
    pub(super) fn render(&self, width: usize) -> String {
        let (rows, mut widths, mut shown) = self.laid_out();
        loop {
            let others: usize = shown[1..].iter().map(|c| widths[*c] + 2).sum();
            if others + widths[0].min(self.narrow) <= width {
                widths[0] = widths[0].min(width - others);
                break;
            }
            let worst = shown.iter().rev().max_by_key(|c| self.columns[**c].drop);
            let worst = worst.copied().filter(|c| self.columns[*c].drop > 0);
            let Some(worst) = worst else {
                widths[0] = widths[0].min(self.narrow);
                break;
            };
            shown.retain(|c| *c != worst);
        }
        let heads: Vec<_> = self.columns.iter().map(|c| c.head.to_string()).collect();
        let mut out = String::new();
        for row in std::iter::once(&heads).chain(&rows) {
            let mut line = String::new();
            for column in &shown {
                let cell = match *column {
                    0 => shortened(&row[0], widths[0]),
                    _ => shorten(&row[*column], widths[*column]),
                };
                let padding = " ".repeat(widths[*column] - cell.width());
                if *column == 0 {
                    line += &format!("{cell}{padding}");
                } else {
                    line += &format!("  {padding}{cell}");
                }
            }
            out += &shorten(line.trim_end(), width);
            out.push('\n');
        }
        out
    }
}

fn has_content(cell: &str) -> bool {
    !matches!(cell, "" | "-" | "0")
}

/// Names come from programs: escapes characters that move a terminal's cursor.
pub(super) fn escape(text: &str) -> String {
    let visible = |c: char| {
        c.width().is_some()
            && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let shown = |c| match c {
        '\n' | '\t' => ' ',
        c if visible(c) => c,
        _ => '?',
    };
    text.chars().map(shown).collect()
}

/// The beginning of a text that fits, with a mark where it is cut.
pub(super) fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut left = width.saturating_sub(1);
    for c in text.chars() {
        let Some(rest) = left.checked_sub(c.width().unwrap_or(0)) else {
            break;
        };
        left = rest;
        out.push(c);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// Like [`cut`], but keeps the line or the address of a location in brackets at the end, by which
/// regions of one name differ: `parallel main (pro…:21)`.
fn shortened(text: &str, width: usize) -> String {
    let location = text.rfind('(').filter(|_| text.ends_with(')'));
    let end = location.and_then(|open| Some(open + text[open..].rfind([':', '+'])?));
    match end.map(|end| &text[end..]) {
        Some(end) if text.width() > width && end.width() * 2 <= width => {
            shorten(text, width - end.width()) + end
        }
        _ => shorten(text, width),
    }
}

/// One line with as many clauses as fit; the first one always.
pub(super) fn clauses(start: &str, clauses: &[String], width: usize) -> String {
    let mut line = escape(start);
    for (i, clause) in clauses.iter().enumerate() {
        let clause = escape(clause);
        let comma = if i == 0 { "" } else { ", " };
        if i > 0 && line.width() + comma.width() + clause.width() > width {
            break;
        }
        line += comma;
        line += &clause;
    }
    line = shorten(&line, width);
    line.push('\n');
    line
}

/// Lines of words, all but the first indented; a word longer than a line is not broken.
pub fn paragraph(text: &str, indent: &str, width: usize) -> String {
    let mut out = String::new();
    let mut line = String::new();
    for word in escape(text).split(' ') {
        if !line.trim_end().is_empty() && line.width() + 1 + word.width() > width {
            out += &line;
            out.push('\n');
            line = format!("{indent}{word}");
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
    }
    out + &line + "\n"
}

/// A table under its title, with the number of rows left out.
pub(super) fn section(title: &str, table: &TextTable, width: usize, left: usize) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{title}\n{}", table.render(width));
    if left > 0 {
        out += &format!("and {left} more\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_too_long_are_shortened() {
        let of = |text, width| {
            let text = shortened(text, width);
            assert!(text.width() <= width, "{text}");
            text
        };
        assert_eq!(of("main (pi.c:21)", 14), "main (pi.c:21)");
        assert_eq!(
            of("implicit barrier (pi.c:21)", 21),
            "implicit barrier…:21)"
        );
        assert_eq!(
            of("parallel (libsolver.so+0x1131)", 24),
            "parallel (libso…+0x1131)"
        );
        assert_eq!(of("parallel (libsolver.so+0x1131)", 12), "parallel (l…");
        assert_eq!(of("a (b) implicit", 8), "a (b) i…");
        assert_eq!(of("über (größe:1)", 13), "über (grö…:1)");
        assert_eq!(of("x(:)", 0), "");
    }
}
