//! The values of a row of a tool's script, in order. A missing value or one of another type is
//! `None`.

use std::borrow::Cow;

use spile_runtime::io::rows::Row;
use spile_runtime::shared::ring_record::FieldValue;

/// The values of a row that were not taken yet.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a>(std::slice::Iter<'a, FieldValue<'a>>);

impl<'a> Fields<'a> {
    /// The values of a row.
    pub(crate) fn new(row: &Row<'a>) -> Fields<'a> {
        Fields(row.values.iter())
    }

    /// An integer, if it fits.
    pub(crate) fn integer<T: TryFrom<i64>>(&mut self) -> Option<T> {
        match self.0.next()? {
            FieldValue::Long(n) => T::try_from(*n).ok(),
            FieldValue::Str(_) => None,
        }
    }

    /// An integer that stands for true or false.
    pub(crate) fn flag(&mut self) -> Option<bool> {
        Some(self.integer::<i64>()? != 0)
    }

    /// A duration in nanoseconds; negative differences between clocks of different processors count
    /// as 0.
    pub(crate) fn ns(&mut self) -> Option<u64> {
        Some(self.integer::<i64>()?.max(0).cast_unsigned())
    }

    /// A string; bytes that are not UTF-8 are replaced.
    pub(crate) fn string(&mut self) -> Option<Cow<'a, str>> {
        match self.0.next()? {
            FieldValue::Str(string) => Some(String::from_utf8_lossy(string)),
            FieldValue::Long(_) => None,
        }
    }
}

#[cfg(test)]
pub(crate) use tests::with_row;

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `take` with a row that is written as text: its name, then values after blanks, texts that
    /// are numbers or contain blanks in quotes.
    pub(crate) fn with_row<R>(text: &str, take: impl FnOnce(&Row<'_>) -> R) -> R {
        let mut rest = text;
        let mut words = Vec::new();
        while !rest.is_empty() {
            let (word, after) = match rest.strip_prefix('"').map(|r| r.split_once('"').unwrap()) {
                Some((_, after)) => (
                    &rest[..rest.len() - after.len()],
                    after.trim_start_matches(' '),
                ),
                None => rest.split_once(' ').unwrap_or((rest, "")),
            };
            words.push(word);
            rest = after;
        }
        let values: Vec<FieldValue<'_>> = words.iter().skip(1).map(|word| value(word)).collect();
        take(&Row {
            name: words.first().copied().unwrap_or_default(),
            values: &values,
        })
    }

    fn value(word: &str) -> FieldValue<'_> {
        match word.parse() {
            Ok(number) => FieldValue::Long(number),
            Err(_) => FieldValue::Str(word.trim_matches('"').as_bytes()),
        }
    }

    #[test]
    fn values_have_types() {
        with_row("row -5 300 1 \"a b\" 7", |row| {
            let mut f = Fields::new(row);
            assert_eq!(row.name, "row");
            assert_eq!(
                (f.ns(), f.integer::<u8>(), f.flag()),
                (Some(0), None, Some(true))
            );
            assert_eq!(f.string().as_deref(), Some("a b"));
            assert_eq!((f.string(), f.integer::<u8>()), (None, None));
        });
    }
}
