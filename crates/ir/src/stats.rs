//! The value of a statistic: what `<<<` adds up and the extractors read.
//!
//! Handlers in the kernel keep 64 bits of a sum, and count the sums that passed them. Then the sum is known
//! only where the smallest and the largest value are kept: it lies between them times their number, and in a
//! range of less than 2^64 only one number has the 64 bits that were kept.

use spile_cast::Cast;

use crate::{Extract, Hist, StatsSpec};

/// A statistic's running totals. Sums and squares are kept in 128 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Number of values.
    pub count: u64,
    /// Sum of the values. Parts that handlers in the kernel added wrap at 64 bits.
    pub sum: i128,
    /// Smallest value; `i64::MAX` when empty.
    pub min: i64,
    /// Largest value; `i64::MIN` when empty.
    pub max: i64,
    /// Sum of the squares of the values.
    pub sumsq: u128,
    /// The histogram's buckets; empty without a histogram.
    pub buckets: Vec<u64>,
}

impl Default for Stat {
    fn default() -> Self {
        Stat {
            count: 0,
            sum: 0,
            min: i64::MAX,
            max: i64::MIN,
            sumsq: 0,
            buckets: Vec::new(),
        }
    }
}

/// The error of an extractor that needs a value and is used on an empty statistic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmptyAggregate;

impl std::fmt::Display for EmptyAggregate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("empty aggregate")
    }
}

impl Stat {
    /// An empty statistic with the buckets that `spec` asks for.
    pub fn new(spec: &StatsSpec) -> Stat {
        let buckets = spec.hist.map_or(0, |h| h.buckets() as usize);
        Stat {
            buckets: vec![0; buckets],
            ..Stat::default()
        }
    }

    /// Adds one value.
    pub fn add(&mut self, hist: Option<Hist>, v: i64) {
        self.count = self.count.wrapping_add(1);
        self.sum = self.sum.wrapping_add(v.into());
        self.min = self.min.min(v);
        self.max = self.max.max(v);
        let abs = u128::from(v.unsigned_abs());
        self.sumsq = self.sumsq.wrapping_add(abs * abs);
        if let Some(hist) = hist
            && let Some(b) = self.buckets.get_mut(hist.bucket(v))
        {
            *b = b.wrapping_add(1);
        }
    }

    /// Adds all values of another statistic.
    pub fn merge(&mut self, other: &Stat) {
        if other.count == 0 {
            return;
        }
        self.count = self.count.wrapping_add(other.count);
        self.sum = self.sum.wrapping_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sumsq = self.sumsq.wrapping_add(other.sumsq);
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.wrapping_add(*theirs);
        }
    }

    /// Whether no value was added yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value of an extractor. The bit shift of `@variance(x, shift)` scales values up before
    /// the division and the result down after it. The variance here is exact until it is cut to an
    /// integer, so every shift gives the same number. Sums wrap at 64 bits, as in the kernel.
    ///
    /// # Errors
    /// `Min`, `Max`, `Avg` and `Variance` of an empty statistic.
    pub fn extract(&self, extractor: Extract) -> Result<i64, EmptyAggregate> {
        match extractor {
            Extract::Count => return Ok(self.count.cast_signed()),
            Extract::Sum => return Ok(self.sum.low64().cast_signed()),
            _ if self.count == 0 => return Err(EmptyAggregate),
            _ => {}
        }
        Ok(match extractor {
            Extract::Min => self.min,
            Extract::Max => self.max,
            Extract::Avg => {
                (i128::from(self.sum.low64().cast_signed()) / i128::from(self.count)).fit()
            }
            _ => self.variance(),
        })
    }

    /// As [`Stat::extract`], but right for a sum that passed 64 bits where it is known. `wrapped` says whether
    /// a sum passed 64 bits in the kernel. The second part of the result says whether the value is
    /// certain to be right.
    ///
    /// # Errors
    /// Those of [`Stat::extract`].
    pub fn extract_exactly(
        &self,
        extractor: Extract,
        wrapped: bool,
    ) -> Result<(i64, bool), EmptyAggregate> {
        let value = self.extract(extractor)?;
        let sums = matches!(extractor, Extract::Sum | Extract::Avg | Extract::Variance);
        if !sums || self.count == 0 {
            return Ok((value, true));
        }
        let Some(sum) = self.exact_sum(wrapped) else {
            return Ok((value, false));
        };
        Ok(match extractor {
            Extract::Sum => (value, i64::try_from(sum).is_ok()),
            Extract::Avg => ((sum / i128::from(self.count)).low64().cast_signed(), true),
            _ => (self.variance_with(sum), self.squares_fit()),
        })
    }

    /// The number by which a kernel handler's `foreach` sorts: [`Stat::extract`]; 0 where the statistic is empty.
    pub fn sort_word(&self, extractor: Extract) -> i128 {
        self.extract(extractor).unwrap_or(0).into()
    }

    /// The number by which `foreach` sorts: [`Stat::extract_exactly`], and the whole sum where it is known;
    /// 0 where the statistic is empty.
    pub fn sort_key(&self, extractor: Extract, wrapped: bool) -> i128 {
        let whole = self
            .exact_sum(wrapped)
            .filter(|_| extractor == Extract::Sum && self.count > 0);
        let other = || {
            self.extract_exactly(extractor, wrapped)
                .map_or(0, |(n, _)| n.into())
        };
        whole.unwrap_or_else(other)
    }

    /// The sum without a limit of 64 bits. If sums `wrapped`, it is known where the smallest and the
    /// largest value are kept and leave only one possible sum.
    pub fn exact_sum(&self, wrapped: bool) -> Option<i128> {
        const WRAP: i128 = 1 << 64;
        if !wrapped {
            return Some(self.sum);
        }
        if self.min > self.max {
            return None;
        }
        let times = |value: i64| i128::from(self.count).checked_mul(i128::from(value));
        let (least, most) = (times(self.min)?, times(self.max)?);
        let sum = least.checked_add(self.sum.checked_sub(least)?.rem_euclid(WRAP))?;
        (sum <= most && sum.checked_add(WRAP).is_none_or(|next| next > most)).then_some(sum)
    }

    /// Whether the sum of the squares cannot have passed 128 bits.
    fn squares_fit(&self) -> bool {
        let most = u128::from(self.min.unsigned_abs().max(self.max.unsigned_abs()));
        (most * most).checked_mul(u128::from(self.count)).is_some()
    }

    fn variance(&self) -> i64 {
        self.variance_with(self.sum.low64().cast_signed().into())
    }

    /// `(n * sumsq - sum^2) / (n * (n - 1))`, without a rounding step before the division; 0 for
    /// one value, `i64::MAX` where the result does not fit.
    fn variance_with(&self, sum: i128) -> i64 {
        if self.count < 2 {
            return 0;
        }
        let (hi, lo) = mul_wide(self.sumsq, self.count);
        let (hi_square, lo_square) = square_wide(sum.unsigned_abs());
        let (lo, borrow) = lo.overflowing_sub(lo_square);
        let hi = hi.checked_sub(hi_square);
        let Some(hi) = hi.and_then(|hi| hi.checked_sub(u128::from(borrow))) else {
            return 0;
        };
        let n = u128::from(self.count);
        i64::try_from(div_wide(hi, lo, n * (n - 1))).unwrap_or(i64::MAX)
    }
}

/// `a * b` as high and low 128 bits.
fn mul_wide(a: u128, b: u64) -> (u128, u128) {
    let b = u128::from(b);
    let low = (a & u128::from(u64::MAX)) * b;
    let high = (a >> 64) * b + (low >> 64);
    (high >> 64, (high << 64) | (low & u128::from(u64::MAX)))
}

/// `a * a` as high and low 128 bits.
fn square_wide(a: u128) -> (u128, u128) {
    let low_half = a & u128::from(u64::MAX);
    let high_half = a >> 64;
    let cross = low_half * high_half;
    let (low, carry) = (low_half * low_half).overflowing_add(cross << 65);
    let high = high_half * high_half + (cross >> 63) + u128::from(carry);
    (high, low)
}

/// `(hi * 2^128 + lo) / d`, `u128::MAX` where it does not fit. `d` is not 0.
fn div_wide(hi: u128, lo: u128, d: u128) -> u128 {
    if hi == 0 {
        return lo / d;
    }
    if hi >= d {
        return u128::MAX;
    }
    // Long division bit by bit; `hi` is the running remainder, always below `d`.
    let (mut rem, mut quot) = (hi, 0u128);
    for i in (0..128).rev() {
        let carry = rem >> 127 != 0;
        rem = (rem << 1) | ((lo >> i) & 1);
        quot <<= 1;
        if carry || rem >= d {
            rem = rem.wrapping_sub(d);
            quot |= 1;
        }
    }
    quot
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[i64]) -> Stat {
        let mut s = Stat::default();
        values.iter().for_each(|v| s.add(None, *v));
        s
    }

    #[test]
    fn extractors_of_small_sets_are_exact() {
        let s = of(&[1, 2, 3, 4, 10]);
        let get = |w| s.extract(w).unwrap();
        assert_eq!(get(Extract::Count), 5);
        assert_eq!(get(Extract::Sum), 20);
        assert_eq!(get(Extract::Min), 1);
        assert_eq!(get(Extract::Max), 10);
        assert_eq!(get(Extract::Avg), 4);
        // Squares of the distances: 9+4+1+0+36 = 50, over 4.
        assert_eq!(get(Extract::Variance), 12);
        assert_eq!(of(&[7]).extract(Extract::Variance), Ok(0));
        assert_eq!(of(&[-3, -4]).extract(Extract::Avg), Ok(-3));
    }

    #[test]
    fn empty_has_a_count_and_a_sum_only() {
        let s = Stat::default();
        assert_eq!(s.extract(Extract::Count), Ok(0));
        assert_eq!(s.extract(Extract::Sum), Ok(0));
        for w in [Extract::Min, Extract::Max, Extract::Avg, Extract::Variance] {
            assert_eq!(s.extract(w), Err(EmptyAggregate));
        }
    }

    #[test]
    fn variance_of_large_values_is_exact() {
        let big = 1 << 40;
        let s = of(&[big, big + 2, big + 4]);
        assert_eq!(s.extract(Extract::Variance), Ok(4));
        let s = of(&[i64::MIN, i64::MAX]);
        assert_eq!(s.extract(Extract::Variance), Ok(i64::MAX));
    }

    #[test]
    fn sums_that_pass_64_bits_are_found() {
        let wrap = |s: &Stat| Stat {
            sum: (s.sum as i64).into(),
            ..s.clone()
        };
        let get = |s: &Stat, what| wrap(s).extract_exactly(what, true).expect("not empty");
        let base = 1_000_000_000_000_000;
        let mut s = Stat::default();
        (0..160_000).for_each(|i| s.add(None, base + i % 1000));
        assert_eq!(
            wrap(&s).exact_sum(true),
            Some(160_000 * i128::from(base) + 160 * 499_500)
        );
        assert_eq!(get(&s, Extract::Avg), (base + 499, true));
        assert_eq!(get(&s, Extract::Variance), (83_333, true));
        assert_eq!(get(&s, Extract::Sum), (s.sum as i64, false));
        assert_eq!(get(&s, Extract::Max), (base + 999, true));
        let negative = of(&[i64::MIN + 3; 5]);
        assert_eq!(get(&negative, Extract::Avg), (i64::MIN + 3, true));
        assert_eq!(get(&negative, Extract::Variance).0, 0);
        // A wide range leaves several sums.
        let wide = of(&[i64::MIN, i64::MAX, 5, 5]);
        assert_eq!(wrap(&wide).exact_sum(true), None);
        assert!(!get(&wide, Extract::Avg).1);
        let known = |s: &Stat, what| s.extract_exactly(what, false);
        assert_eq!(known(&wide, Extract::Avg), Ok((2, true)));
        // Without these values a sum is known only if none wrapped.
        let unknown = Stat {
            min: i64::MAX,
            max: i64::MIN,
            ..s.clone()
        };
        assert_eq!(get(&unknown, Extract::Sum), (s.sum as i64, false));
        assert_eq!(known(&unknown, Extract::Avg), Ok((base + 499, true)));
        assert_eq!(known(&unknown, Extract::Sum), Ok((s.sum as i64, false)));
        assert_eq!(get(&of(&[1, 2, 3]), Extract::Sum), (6, true));
        for value in [
            0,
            1,
            3,
            u128::from(u64::MAX),
            u128::MAX >> 1,
            (1 << 100) + 12345,
        ] {
            let (hi, lo) = square_wide(value);
            let low = value.wrapping_mul(value);
            assert_eq!(lo, low, "{value}");
            assert_eq!(div_wide(hi, lo, value.max(1)), value);
        }
    }

    #[test]
    fn statistics_are_sorted_by_whole_sums() {
        let (large, small) = (of(&[i64::MAX; 3]), of(&[i64::MAX; 2]));
        let wrap = |s: &Stat| Stat {
            sum: (s.sum as i64).into(),
            ..s.clone()
        };
        for (large, small, wrapped) in [
            (large.clone(), small.clone(), false),
            (wrap(&large), wrap(&small), true),
        ] {
            let key = |s: &Stat, what| s.sort_key(what, wrapped);
            assert_eq!(key(&large, Extract::Sum), 3 * i128::from(i64::MAX));
            assert!(key(&large, Extract::Sum) > key(&small, Extract::Sum));
            assert_eq!(key(&large, Extract::Avg), i64::MAX.into());
        }
        assert_eq!(Stat::default().sort_key(Extract::Avg, true), 0);
        assert_eq!(Stat::default().sort_key(Extract::Sum, true), 0);
    }

    #[test]
    fn merging_equals_adding() {
        let h = Some(Hist::Log);
        let spec = StatsSpec {
            hist: h,
            ..StatsSpec::default()
        };
        let (mut a, mut b, mut all) = (Stat::new(&spec), Stat::new(&spec), Stat::new(&spec));
        for i in -50..80i64 {
            let v = i * i * i;
            if i % 3 == 0 { &mut a } else { &mut b }.add(h, v);
            all.add(h, v);
        }
        a.merge(&b);
        a.merge(&Stat::default());
        assert_eq!(a, all);
    }
}
