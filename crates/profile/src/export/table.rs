//! Tables of distinct values, as formats have them whose parts refer to each other by number.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Distinct values, numbered from 0 in the order of their first use.
#[derive(Debug)]
pub(super) struct Table<T> {
    numbers: HashMap<T, usize>,
    /// The values by number.
    pub values: Vec<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table {
            numbers: HashMap::new(),
            values: Vec::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    /// A table whose value 0 is given.
    pub(super) fn with(first: T) -> Table<T> {
        let mut table = Table::default();
        table.number(&first);
        table
    }

    /// The number of a value, which is added if it is new.
    pub(super) fn number<Q>(&mut self, value: &Q) -> usize
    where
        T: Borrow<Q>,
        Q: ToOwned<Owned = T> + Eq + Hash + ?Sized,
    {
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let number = self.values.len();
        self.values.push(value.to_owned());
        self.numbers.insert(value.to_owned(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_number() {
        let mut table = Table::<String>::default();
        let numbers = ["a", "b", "a"].map(|text| table.number(text));
        assert_eq!(numbers, [0, 1, 0]);
        assert_eq!(table.values, ["a", "b"]);
    }
}
