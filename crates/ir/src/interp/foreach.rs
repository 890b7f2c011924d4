//! The elements of a `foreach`.

use super::element::Element;
use super::value::Value;

/// The elements of a `foreach`, keys and values one after the other, and the position in them.
#[derive(Debug, Clone, Default)]
pub struct ForeachIter {
    fields: usize,
    keys: Vec<Value>,
    values: Vec<Value>,
    position: usize,
}

impl ForeachIter {
    /// An empty iteration with space for `elements` elements whose keys have `fields` fields.
    pub fn new(fields: usize, elements: usize) -> ForeachIter {
        ForeachIter {
            fields,
            keys: Vec::with_capacity(fields * elements),
            values: Vec::with_capacity(elements),
            position: 0,
        }
    }

    /// Appends an element.
    pub fn push(&mut self, keys: &[Value], value: Value) {
        self.keys.extend_from_slice(keys);
        self.values.push(value);
    }
}

impl Iterator for ForeachIter {
    type Item = (Vec<Value>, Value);

    /// The next element's keys and value.
    fn next(&mut self) -> Option<Self::Item> {
        let value = std::mem::replace(self.values.get_mut(self.position)?, Value::Long(0));
        let keys = self
            .keys
            .get(self.position * self.fields..(self.position + 1) * self.fields)?
            .to_vec();
        self.position += 1;
        Some((keys, value))
    }
}

impl From<Vec<Element>> for ForeachIter {
    fn from(elements: Vec<Element>) -> ForeachIter {
        let fields = elements.first().map_or(0, |e| e.keys.len());
        let mut iter = ForeachIter::new(fields, elements.len());
        for e in elements {
            iter.push(&e.keys, e.cell.value());
        }
        iter
    }
}
