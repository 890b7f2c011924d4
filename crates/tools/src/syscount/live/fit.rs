//! Fits a table to a terminal: columns are dropped by rank, texts are cut, numbers never are.

use super::super::show::Column;
use crate::screen;

/// Blanks between two columns.
pub(super) const SPACING: usize = 2;

/// Columns by importance, the most important first. The column that rows are sorted by comes before
/// them.
const RANKS: [Column; 11] = [
    Column::Call,
    Column::Calls,
    Column::Total,
    Column::Pid,
    Column::Tid,
    Column::Comm,
    Column::Error,
    Column::Mean,
    Column::Max,
    Column::Rate,
    Column::Histogram,
];

/// Minimum width of a text that is cut.
fn min_width(column: Column, width: usize) -> usize {
    match column {
        Column::Call => width.min(8),
        Column::Comm => width.min(6),
        _ => width,
    }
}

/// The columns that fit, each with its index among those given and its width. `widths` are the
/// widths they need.
pub(super) fn columns(
    columns: &[Column],
    widths: &[usize],
    order: Column,
    width: usize,
) -> Vec<(usize, usize)> {
    let location = |wanted: Column| columns.iter().position(|c| *c == wanted);
    let ranks = std::iter::once(order).chain(RANKS.into_iter().filter(|c| *c != order));
    let ranked = ranks.filter_map(|c| {
        let index = location(c)?;
        Some((index, min_width(c, widths[index])))
    });
    screen::fit(ranked, widths, SPACING, width)
}
