//! An array in ordinary memory: keys and values one after the other in insertion order, and an
//! index from keys to positions. An element of an array of a million numbers with a number as key
//! takes some 40 bytes.

use std::cmp::Reverse;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use spile_cast::Cast;

use super::element::{ARRAY_OVERFLOW, Cell, Element, matches};
use super::foreach::ForeachIter;
use super::value::{Fault, Value};
use crate::stats::Stat;
use crate::{ElemTy, Hist, SortKey, SortSpec, StatsSpec, Ty};

/// Number of gaps, left by deleted elements, from which on the array can be compacted.
const GAPS: usize = 64;

/// An array in memory. Elements are numbered by their position.
#[derive(Debug, Clone)]
pub struct MemArray {
    /// Number of fields of a key.
    fields: usize,
    /// The keys, field after field; those of gaps are zeros.
    keys: Vec<Value>,
    values: Values,
    /// By element: false for a gap.
    present: Vec<bool>,
    /// Positions of elements by their keys.
    index: HashTable<u32>,
    hasher: RandomState,
    /// All positions before this one are gaps.
    first: usize,
    max: usize,
    wrap: bool,
}

/// The values of an array.
#[derive(Debug, Clone)]
enum Values {
    Scalars(Ty, Vec<Value>),
    Stats(StatWords, Vec<u64>),
}

/// The layout of a statistic in words: count, sum, minimum, maximum, squares and buckets, each only
/// where the statistic keeps it.
#[derive(Debug, Clone, Copy)]
struct StatWords {
    sum: Option<usize>,
    min: Option<usize>,
    max: Option<usize>,
    sumsq: Option<usize>,
    buckets: usize,
    hist: Option<Hist>,
    size: usize,
}

impl StatWords {
    fn new(spec: &StatsSpec) -> StatWords {
        let mut size = 1;
        let mut take = |wanted: bool, words: usize| {
            wanted.then(|| {
                size += words;
                size - words
            })
        };
        let sum = take(spec.keeps_sum(), 2);
        let min = take(spec.min, 1);
        let max = take(spec.max, 1);
        let sumsq = take(spec.variance, 2);
        let buckets = size;
        size += spec.hist.map_or(0, |h| h.buckets() as usize);
        StatWords {
            sum,
            min,
            max,
            sumsq,
            buckets,
            hist: spec.hist,
            size,
        }
    }

    fn read(&self, words: &[u64]) -> Stat {
        let mut stat = Stat {
            count: words[0],
            buckets: words[self.buckets..].to_vec(),
            ..Stat::default()
        };
        if stat.count > 0 {
            stat.min = self
                .min
                .map_or(stat.min, |offset| words[offset].cast_signed());
            stat.max = self
                .max
                .map_or(stat.max, |offset| words[offset].cast_signed());
            let wide =
                |offset: usize| u128::from(words[offset]) | u128::from(words[offset + 1]) << 64;
            stat.sum = self
                .sum
                .map_or(stat.sum, |offset| wide(offset).cast_signed());
            stat.sumsq = self.sumsq.map_or(stat.sumsq, wide);
        }
        stat
    }

    fn write(&self, stat: &Stat, words: &mut [u64]) {
        words[0] = stat.count;
        for (offset, number) in [(self.min, stat.min), (self.max, stat.max)] {
            if let Some(offset) = offset {
                words[offset] = number.cast_unsigned();
            }
        }
        let wide = [
            (self.sum, stat.sum.cast_unsigned()),
            (self.sumsq, stat.sumsq),
        ];
        for (offset, number) in wide {
            if let Some(offset) = offset {
                words[offset] = number.low64();
                words[offset + 1] = (number >> 64) as u64;
            }
        }
        for (to, n) in words[self.buckets..].iter_mut().zip(&stat.buckets) {
            *to = *n;
        }
    }
}

impl MemArray {
    /// An empty array for at most `max` elements, whose keys have that number of fields.
    pub fn new(fields: usize, elem: &ElemTy, max: u32, wrap: bool) -> MemArray {
        MemArray {
            fields,
            keys: Vec::new(),
            values: match elem {
                ElemTy::Scalar(ty) => Values::Scalars(*ty, Vec::new()),
                ElemTy::Stats(spec) => Values::Stats(StatWords::new(spec), Vec::new()),
            },
            present: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::new(),
            first: 0,
            max: max as usize,
            wrap,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the array is empty.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    fn key(&self, n: usize) -> &[Value] {
        &self.keys[n * self.fields..(n + 1) * self.fields]
    }

    fn find(&self, keys: &[Value]) -> Option<usize> {
        let hash = self.hasher.hash_one(keys);
        let entry = self.index.find(hash, |n| self.key(*n as usize) == keys);
        entry.map(|n| *n as usize)
    }

    /// Whether there is an element with these keys.
    pub fn has(&self, keys: &[Value]) -> bool {
        self.find(keys).is_some()
    }

    /// An element's integer or string; `None` for a missing element or an array of statistics.
    pub fn value(&self, keys: &[Value]) -> Option<&Value> {
        match &self.values {
            Values::Scalars(_, values) => values.get(self.find(keys)?),
            Values::Stats(..) => None,
        }
    }

    /// An element's statistic; `None` for a missing element or an array of scalars.
    pub fn stat(&self, keys: &[Value]) -> Option<Stat> {
        match self.cell(self.find(keys)?) {
            Cell::Stats(stat) => Some(stat),
            Cell::Scalar(_) => None,
        }
    }

    fn cell(&self, n: usize) -> Cell {
        match &self.values {
            Values::Scalars(_, values) => Cell::Scalar(values[n].clone()),
            Values::Stats(words, values) => {
                Cell::Stats(words.read(&values[n * words.size..(n + 1) * words.size]))
            }
        }
    }

    /// The position of an element, which is inserted if it is missing.
    fn location(&mut self, keys: &[Value]) -> Result<usize, Fault> {
        if keys.len() != self.fields {
            return Err("a key with the wrong number of fields".into());
        }
        if let Some(n) = self.find(keys) {
            return Ok(n);
        }
        if self.len() >= self.max {
            if !self.wrap {
                return Err(ARRAY_OVERFLOW.into());
            }
            self.remove_oldest();
        }
        self.close_gaps();
        let n = self.present.len();
        let Ok(number) = u32::try_from(n) else {
            return Err(ARRAY_OVERFLOW.into());
        };
        self.keys.extend_from_slice(keys);
        self.present.push(true);
        match &mut self.values {
            Values::Scalars(ty, values) => values.push(Value::zero(*ty)),
            Values::Stats(words, values) => values.resize(values.len() + words.size, 0),
        }
        let hash = |n: &u32| self.hasher.hash_one(key(&self.keys, self.fields, *n));
        self.index
            .insert_unique(self.hasher.hash_one(keys), number, hash);
        Ok(n)
    }

    /// An element's integer or string, inserted as zero if it is missing; `None` in an array of
    /// statistics.
    ///
    /// # Errors
    /// [`ARRAY_OVERFLOW`] when the array is full and does not wrap.
    pub fn value_mut(&mut self, keys: &[Value]) -> Result<Option<&mut Value>, Fault> {
        let n = self.location(keys)?;
        Ok(match &mut self.values {
            Values::Scalars(_, values) => values.get_mut(n),
            Values::Stats(..) => None,
        })
    }

    /// Changes an element's statistic, which is inserted if it is missing; false in an array of
    /// scalars.
    fn change(&mut self, keys: &[Value], f: impl FnOnce(&mut Stat)) -> Result<bool, Fault> {
        let n = self.location(keys)?;
        let Values::Stats(words, values) = &mut self.values else {
            return Ok(false);
        };
        let location = &mut values[n * words.size..(n + 1) * words.size];
        let mut stat = words.read(location);
        f(&mut stat);
        words.write(&stat, location);
        Ok(true)
    }

    /// Adds a value to an element's statistic; false in an array of scalars.
    ///
    /// # Errors
    /// See [`MemArray::value_mut`].
    pub fn add(&mut self, keys: &[Value], v: i64) -> Result<bool, Fault> {
        let hist = match &self.values {
            Values::Stats(words, _) => words.hist,
            Values::Scalars(..) => None,
        };
        self.change(keys, |stat| stat.add(hist, v))
    }

    /// Adds a whole statistic to an element's; false in an array of scalars.
    ///
    /// # Errors
    /// See [`MemArray::value_mut`].
    pub fn merge(&mut self, keys: &[Value], delta: &Stat) -> Result<bool, Fault> {
        self.change(keys, |stat| stat.merge(delta))
    }

    /// Deletes an element.
    pub fn remove(&mut self, keys: &[Value]) {
        let hash = self.hasher.hash_one(keys);
        let same = |n: &u32| key(&self.keys, self.fields, *n) == keys;
        if let Ok(entry) = self.index.find_entry(hash, same) {
            let (n, _) = entry.remove();
            self.forget(n as usize);
        }
    }

    /// Turns the position of an element that has left the index into a gap.
    fn forget(&mut self, n: usize) {
        self.present[n] = false;
        // Frees the strings.
        self.keys[n * self.fields..(n + 1) * self.fields].fill(Value::Long(0));
        if let Values::Scalars(_, values) = &mut self.values {
            values[n] = Value::Long(0);
        }
    }

    fn remove_oldest(&mut self) {
        while self.present.get(self.first) == Some(&false) {
            self.first += 1;
        }
        if self.first < self.present.len() {
            let keys = self.key(self.first).to_vec();
            self.remove(&keys);
        }
    }

    /// Compacts the array where there are more gaps than elements.
    fn close_gaps(&mut self) {
        let gaps = self.present.len() - self.index.len();
        if gaps < GAPS.max(self.index.len()) {
            return;
        }
        keep_rows(&mut self.keys, self.fields.max(1), &self.present);
        match &mut self.values {
            Values::Scalars(_, values) => keep_rows(values, 1, &self.present),
            Values::Stats(words, values) => keep_rows(values, words.size, &self.present),
        }
        self.present = vec![true; self.index.len()];
        self.first = 0;
        self.index.clear();
        let hash = |n: &u32| self.hasher.hash_one(key(&self.keys, self.fields, *n));
        for n in 0..self.present.len().fit::<u32>() {
            self.index.insert_unique(hash(&n), n, hash);
        }
    }

    /// Deletes all elements.
    pub fn clear(&mut self) {
        self.keys = Vec::new();
        match &mut self.values {
            Values::Scalars(_, values) => *values = Vec::new(),
            Values::Stats(_, values) => *values = Vec::new(),
        }
        self.present = Vec::new();
        self.index = HashTable::new();
        self.first = 0;
    }

    /// Positions of the elements that match, in insertion order.
    fn numbers<'a>(&'a self, slice: &'a [Option<Value>]) -> impl Iterator<Item = usize> + 'a {
        let positions = self.first..self.present.len();
        positions.filter(move |n| self.present[*n] && matches(slice, self.key(*n)))
    }

    /// Whether any element matches.
    pub fn any(&self, slice: &[Option<Value>]) -> bool {
        self.numbers(slice).next().is_some()
    }

    /// Deletes the elements that match.
    pub fn remove_all(&mut self, slice: &[Option<Value>]) {
        let gone: Vec<usize> = self.numbers(slice).collect();
        for n in gone {
            let keys = self.key(n).to_vec();
            self.remove(&keys);
        }
    }

    /// A copy of the elements that match, in insertion order.
    pub fn elements(&self, slice: &[Option<Value>]) -> Vec<Element> {
        let element = |n| Element {
            keys: self.key(n).into(),
            cell: self.cell(n),
        };
        self.numbers(slice).map(element).collect()
    }

    /// Whether no statistic has a sum above 64 bits.
    pub fn sums_fit(&self) -> bool {
        let Values::Stats(words, values) = &self.values else {
            return true;
        };
        let Some(offset) = words.sum else { return true };
        // The high word repeats the sign of the low one.
        let fits =
            |n: usize| values[n * words.size + offset + 1] == sign(values[n * words.size + offset]);
        self.numbers(&[]).all(fits)
    }

    /// The elements of a `foreach`: those that match, sorted, up to the limit.
    pub fn iterate(
        &self,
        slice: &[Option<Value>],
        sort: Option<SortSpec>,
        limit: Option<usize>,
    ) -> ForeachIter {
        let numbers = self.numbers(slice);
        let limit = limit.unwrap_or(usize::MAX);
        let chosen: Vec<u32> = match sort {
            None => numbers.take(limit).map(|n| n.fit::<u32>()).collect(),
            Some(spec) => self.sorted(numbers, spec, limit),
        };
        let mut iter = ForeachIter::new(self.fields, chosen.len());
        for n in chosen {
            let value = match &self.values {
                Values::Scalars(_, values) => values[n as usize].clone(),
                Values::Stats(words, values) => {
                    Value::Long(values[n as usize * words.size].cast_signed())
                }
            };
            iter.push(self.key(n as usize), value);
        }
        iter
    }

    /// The first `limit` positions in the order asked for. Equal elements stay in insertion order
    /// in both directions.
    fn sorted(
        &self,
        numbers: impl Iterator<Item = usize>,
        spec: SortSpec,
        limit: usize,
    ) -> Vec<u32> {
        let value = |n: usize| match (&self.values, spec.by) {
            (_, SortKey::Key(i)) => self.key(n).get(i as usize).cloned(),
            (Values::Scalars(_, values), _) => Some(values[n].clone()),
            (Values::Stats(..), SortKey::Stat(what)) => match self.cell(n) {
                Cell::Stats(s) => Some(Value::Long(s.extract(what).unwrap_or(0))),
                Cell::Scalar(v) => Some(v),
            },
            (Values::Stats(words, values), _) => {
                Some(Value::Long(values[n * words.size].cast_signed()))
            }
        };
        // Numbers take less space, and compare faster.
        let mut numbers = numbers.peekable();
        let one = numbers.peek().and_then(|n| value(*n));
        if matches!(one, Some(Value::Str(_))) {
            let pairs = numbers.map(|n| (value(n), n.fit::<u32>())).collect();
            return first(pairs, spec.descending, limit);
        }
        let number = |n: usize| value(n).map_or(0, |v| v.as_long());
        let pairs = numbers.map(|n| (number(n), n.fit::<u32>())).collect();
        first(pairs, spec.descending, limit)
    }
}

/// The key of an element.
fn key(keys: &[Value], fields: usize, n: u32) -> &[Value] {
    &keys[n as usize * fields..][..fields]
}

/// Keeps the rows of `width` values whose elements are present.
fn keep_rows<T>(values: &mut Vec<T>, width: usize, present: &[bool]) {
    let mut n = 0;
    values.retain(|_| {
        n += 1;
        present[(n - 1) / width]
    });
}

/// 64 times the sign of a number.
fn sign(word: u64) -> u64 {
    (word.cast_signed() >> 63).cast_unsigned()
}

/// The positions of the first pairs in that order.
fn first<T: Ord>(mut pairs: Vec<(T, u32)>, descending: bool, limit: usize) -> Vec<u32> {
    let order = |a: &(T, u32), b: &(T, u32)| match descending {
        true => (Reverse(&a.0), a.1).cmp(&(Reverse(&b.0), b.1)),
        false => (&a.0, a.1).cmp(&(&b.0, b.1)),
    };
    if limit < pairs.len() {
        if limit > 0 {
            pairs.select_nth_unstable_by(limit - 1, order);
        }
        pairs.truncate(limit);
    }
    pairs.sort_unstable_by(order);
    pairs.into_iter().map(|(_, n)| n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::sort::sort_elements;
    use proptest::prelude::*;

    /// A simple model of the array: a list.
    #[derive(Default)]
    struct ListModel(Vec<(Vec<Value>, i64)>);

    impl ListModel {
        fn set(&mut self, keys: &[Value], v: i64, (max, wrap): (usize, bool)) -> bool {
            if let Some((_, old)) = self.0.iter_mut().find(|(k, _)| k == keys) {
                *old = v;
                return true;
            }
            if self.0.len() >= max {
                if !wrap {
                    return false;
                }
                self.0.remove(0);
            }
            self.0.push((keys.to_vec(), v));
            true
        }
    }

    fn keys(n: u16, text: bool) -> Vec<Value> {
        let second = match text {
            true => Value::from(&*format!("{}", n % 7)),
            false => Value::Long(i64::from(n) % 7),
        };
        vec![Value::Long(i64::from(n)), second]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn behaves_like_a_list(
            ops in proptest::collection::vec((0u8..8, 0u16..400, -9i64..9), 0..900),
            (wrap, text) in (any::<bool>(), any::<bool>()),
            max in 1u32..300,
        ) {
            let mut array = MemArray::new(2, &ElemTy::Scalar(Ty::Long), max, wrap);
            let mut model = ListModel::default();
            for (op, n, v) in ops {
                let key = keys(n, text);
                match op {
                    0 => {
                        array.remove(&key);
                        model.0.retain(|(k, _)| *k != key);
                    }
                    1 if n % 50 == 0 => {
                        let slice = [None, Some(key[1].clone())];
                        prop_assert_eq!(array.any(&slice), model.0.iter().any(|(k, _)| k[1] == key[1]));
                        array.remove_all(&slice);
                        model.0.retain(|(k, _)| k[1] != key[1]);
                    }
                    2 if n == 0 => {
                        array.clear();
                        model.0.clear();
                    }
                    _ => {
                        let done = array.value_mut(&key).map(|location| *location.unwrap() = Value::Long(v));
                        prop_assert_eq!(done.is_ok(), model.set(&key, v, (max as usize, wrap)));
                    }
                }
                let value = model.0.iter().find(|(k, _)| *k == key).map(|(_, v)| Value::Long(*v));
                prop_assert_eq!(array.value(&key), value.as_ref());
            }
            prop_assert_eq!(array.len(), model.0.len());
            let element = |(k, v): &(Vec<Value>, i64)| Element {
                keys: k.clone().into(),
                cell: Cell::Scalar(Value::Long(*v)),
            };
            let elements: Vec<Element> = model.0.iter().map(element).collect();
            prop_assert_eq!(array.elements(&[]), elements.clone());
            for (by, descending) in [
                (SortKey::Value, false), (SortKey::Value, true), (SortKey::Key(1), false), (SortKey::Key(1), true),
            ] {
                let spec = SortSpec { by, descending };
                let mut sorted = elements.clone();
                sort_elements(&mut sorted, spec, Stat::sort_word);
                for limit in [None, Some(0), Some(1), Some(5), Some(1000)] {
                    let mut wanted = sorted.clone();
                    wanted.truncate(limit.unwrap_or(usize::MAX));
                    let wanted: Vec<_> = ForeachIter::from(wanted).collect();
                    let got: Vec<_> = array.iterate(&[], Some(spec), limit).collect();
                    prop_assert_eq!(got, wanted);
                }
            }
        }
    }

    #[test]
    fn statistics_keep_what_is_asked_for() {
        for hist in [None, Some(Hist::Log)] {
            let spec = StatsSpec {
                sum: true,
                min: true,
                max: true,
                variance: true,
                hist,
            };
            let elem = ElemTy::Stats(spec.clone());
            let mut array = MemArray::new(1, &elem, 10, false);
            let mut wanted = Stat::new(&spec);
            for v in [5, -3, i64::MAX, i64::MIN, 0] {
                wanted.add(hist, v);
                assert_eq!(array.add(&[1.into()], v), Ok(true));
            }
            assert_eq!(array.stat(&[1.into()]), Some(wanted.clone()));
            assert_eq!(array.merge(&[2.into()], &wanted), Ok(true));
            assert_eq!(array.merge(&[2.into()], &Stat::new(&spec)), Ok(true));
            assert_eq!(array.stat(&[2.into()]), Some(wanted));
            assert_eq!(array.stat(&[3.into()]), None);
        }
    }
}
