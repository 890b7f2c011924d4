//! The elements of arrays.

use std::sync::Arc;

use super::value::Value;
use crate::program::Global;
use crate::stats::Stat;

/// The message of a full array that does not wrap.
pub const ARRAY_OVERFLOW: &str = "Array overflow, check MAXMAPENTRIES";
/// The message of a full array of statistics, before its name.
pub const AGGREGATE_OVERFLOW: &str = "aggregation overflow in ";

/// Whether a handler's error is that of a full array.
#[must_use]
pub fn is_overflow(error: &str) -> bool {
    error == ARRAY_OVERFLOW || error.starts_with(AGGREGATE_OVERFLOW)
}

/// The message when an array is full.
#[must_use]
pub fn overflow(global: &Global) -> String {
    match global.kind.stats() {
        Some(_) => format!("{AGGREGATE_OVERFLOW}{}", global.name),
        None => ARRAY_OVERFLOW.into(),
    }
}

/// An element's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// An integer or a string.
    Scalar(Value),
    /// A statistic.
    Stats(Stat),
}

impl Cell {
    /// The value that `foreach (v = ...)` gives: the scalar, or a statistic's count.
    pub fn value(&self) -> Value {
        match self {
            Cell::Scalar(v) => v.clone(),
            Cell::Stats(s) => Value::Long(s.count.cast_signed()),
        }
    }
}

/// A copy of an element of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its keys.
    pub keys: Arc<[Value]>,
    /// Its value.
    pub cell: Cell,
}

/// Whether keys match a pattern; `None` is `*`, and an empty pattern matches everything.
pub fn matches(pattern: &[Option<Value>], keys: &[Value]) -> bool {
    pattern
        .iter()
        .zip(keys)
        .all(|(p, k)| p.as_ref().is_none_or(|p| p == k))
}
