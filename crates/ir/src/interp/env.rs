//! The interpreter's interface to the world.

use super::element::{Cell, Element};
use super::foreach::ForeachIter;
use super::sort::sort_elements;
use super::value::{Fault, Value};
use crate::Extract;
use crate::intrinsics::Intrinsic;
use crate::stats::{EmptyAggregate, Stat};
use crate::{FormatId, GlobalId, SortKey, SortSpec, Space, Stream, Ty};

/// The globals of a program. Implementations may rely on keys and values having the global's types
/// and widths.
///
/// Reads of missing array elements give the type's zero and add nothing.
pub trait Globals {
    /// The value of a scalar.
    ///
    /// # Errors
    /// The errors of the memory behind the global; like every error here, the script can catch it.
    fn gload(&mut self, g: GlobalId) -> Result<Value, Fault>;
    /// Sets a scalar.
    ///
    /// # Errors
    /// See [`Globals::gload`].
    fn gstore(&mut self, g: GlobalId, v: Value) -> Result<(), Fault>;
    /// Adds to a number; returns the value before.
    ///
    /// # Errors
    /// See [`Globals::gload`].
    fn gadd(&mut self, g: GlobalId, v: i64) -> Result<i64, Fault>;
    /// An element of an array of scalars.
    ///
    /// # Errors
    /// See [`Globals::gload`].
    fn aget(&mut self, g: GlobalId, keys: &[Value]) -> Result<Value, Fault>;
    /// Sets an element.
    ///
    /// # Errors
    /// `Array overflow, check MAXMAPENTRIES`.
    fn aset(&mut self, g: GlobalId, keys: &[Value], v: Value) -> Result<(), Fault>;
    /// Adds to an element, where a missing one counts as 0; returns the value before.
    ///
    /// # Errors
    /// `Array overflow, check MAXMAPENTRIES`.
    fn aadd(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<i64, Fault>;
    /// Whether an element matches; `None` is `*`.
    ///
    /// # Errors
    /// See [`Globals::gload`].
    fn ahas(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<bool, Fault>;
    /// Deletes the elements that match; `None` is `*`.
    ///
    /// # Errors
    /// See [`Globals::gload`].
    fn adel(&mut self, g: GlobalId, keys: &[Option<Value>]) -> Result<(), Fault>;
    /// Empties an array or a statistic, sets a scalar to 0 or "".
    ///
    /// # Errors
    /// See [`Globals::gload`].
    fn gclear(&mut self, g: GlobalId) -> Result<(), Fault>;
    /// Adds a value to a statistic.
    ///
    /// # Errors
    /// `Array overflow, check MAXMAPENTRIES`.
    fn stat_add(&mut self, g: GlobalId, keys: &[Value], v: i64) -> Result<(), Fault>;
    /// A copy of a statistic; `None` when the statistic is missing or empty.
    ///
    /// # Errors
    /// See [`Globals::gload`].
    fn stat_get(&mut self, g: GlobalId, keys: &[Value]) -> Result<Option<Stat>, Fault>;
    /// A copy of the elements that match, in insertion order. `slice` is empty or has one entry for
    /// each key; `None` is `*`.
    ///
    /// # Errors
    /// See [`Globals::gload`].
    fn elements(&mut self, g: GlobalId, slice: &[Option<Value>]) -> Result<Vec<Element>, Fault>;
    /// The elements of a `foreach`: those that match, sorted, up to the limit. Marks are sorted by
    /// the texts that they stand for.
    ///
    /// # Errors
    /// See [`Globals::gload`].
    fn iterate(
        &mut self,
        g: GlobalId,
        slice: &[Option<Value>],
        sort: Option<SortSpec>,
        limit: Option<usize>,
    ) -> Result<ForeachIter, Fault> {
        let elements = self.elements(g, slice)?;
        Ok(iterate_elements(
            elements,
            sort,
            limit,
            Stat::sort_word,
            |_| None,
        ))
    }
}

/// Everything outside a handler's registers: globals, the machine, output.
pub trait Env {
    /// The type of the globals.
    type Globals: Globals;
    /// The globals.
    fn globals(&mut self) -> &mut Self::Globals;
    /// Runs an intrinsic that needs the world. Intrinsics on operands alone do not come here.
    ///
    /// # Errors
    /// The intrinsic's own errors; see its row in the table.
    fn intrinsic(&mut self, f: Intrinsic, args: &[Value]) -> Result<Value, Fault>;
    /// Fills `buf` from memory.
    ///
    /// # Errors
    /// `read fault at 0x...`.
    fn read_memory(&mut self, space: Space, addr: u64, buf: &mut [u8]) -> Result<(), Fault>;
    /// The text of a string that contains a mark; `None` for any other value.
    fn text(&self, _: &Value) -> Option<Value> {
        None
    }
    /// The array key that a string with a mark becomes, where keys have type `ty`: its text, cut to
    /// the width. `None` for any other value.
    fn key(&self, _: &Value, _: Ty) -> Option<Value> {
        None
    }
    /// The value that an iteration gives for a key that is part of a marked text: the mark of the whole
    /// text.
    fn key_mark(&self, _: &Value) -> Option<Value> {
        None
    }
    /// Takes the values of a print; `false` asks for its text instead.
    fn print_values(&mut self, _: Stream, _: FormatId, _: &[Value]) -> bool {
        false
    }
    /// Output of the script; never split further than the script's own statements.
    fn print(&mut self, stream: Stream, text: &[u8]);
    /// Whether the handler ends here, because what runs it has to end. It is asked now and then by
    /// handlers that run for long.
    fn must_stop(&mut self) -> bool {
        false
    }
    /// Counts a string that was cut to fit its slot.
    fn truncated(&mut self);
    /// The value of an extractor.
    ///
    /// # Errors
    /// Those of [`Stat::extract`].
    fn extract(&mut self, stat: &Stat, extractor: Extract) -> Result<i64, EmptyAggregate> {
        stat.extract(extractor)
    }
}

/// [`Globals::iterate`] over a copy of the elements. `extract` returns the number by which a statistic is
/// sorted, `text` the text of a string with marks.
pub fn iterate_elements(
    mut elements: Vec<Element>,
    sort: Option<SortSpec>,
    limit: Option<usize>,
    extract: impl Fn(&Stat, Extract) -> i128,
    text: impl Fn(&Value) -> Option<Value>,
) -> ForeachIter {
    if let Some(spec) = sort {
        for element in elements.iter_mut().filter(|_| spec.by == SortKey::Value) {
            if let Cell::Scalar(value @ Value::Str(_)) = &mut element.cell
                && let Some(text) = text(value)
            {
                *value = text;
            }
        }
        sort_elements(&mut elements, spec, extract);
    }
    elements.truncate(limit.unwrap_or(usize::MAX));
    elements.into()
}
