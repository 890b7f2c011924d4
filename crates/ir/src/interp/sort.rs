//! The orders of `foreach`.

use std::cmp::Ordering;

use super::element::{Cell, Element};
use crate::stats::Stat;
use crate::{Extract, SortKey, SortSpec};

/// Sorts elements; equal ones stay in their order in both directions. Numbers compare as
/// numbers, strings byte by byte, statistics by their count or by what `extract` gives.
pub(crate) fn sort_elements(
    elements: &mut [Element],
    spec: SortSpec,
    extract: impl Fn(&Stat, Extract) -> i128,
) {
    let compare = |a: &Element, b: &Element| match spec.by {
        SortKey::Key(i) => match (a.keys.get(i as usize), b.keys.get(i as usize)) {
            (Some(a), Some(b)) => a.cmp(b),
            _ => Ordering::Equal,
        },
        SortKey::Value => a.cell.value().cmp(&b.cell.value()),
        SortKey::Stat(what) => {
            let get = |c: &Cell| match c {
                Cell::Stats(s) => extract(s, what),
                Cell::Scalar(v) => v.as_long().into(),
            };
            get(&a.cell).cmp(&get(&b.cell))
        }
    };
    if spec.descending {
        elements.sort_by(|a, b| compare(b, a));
    } else {
        elements.sort_by(compare);
    }
}
