//! The types of values, and the operators and choices of instructions. The rest of the definition,
//! formats, statistics and events build on them.

use std::sync::Arc;

use spile_cast::Cast;

/// Bytes of a string constant, without a terminating NUL.
pub type Bytes = Arc<[u8]>;

/// The type of a register, an array key or a scalar value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ty {
    /// 64-bit signed integer.
    Long,
    /// A string; its width in bytes including the NUL, a multiple of 8 from 8 to 4,104.
    Str(u16),
}

impl Ty {
    /// The string type that holds `len` bytes and a NUL.
    pub fn str_for_len(len: usize) -> Ty {
        Ty::Str(((len + 8) / 8 * 8).min(4104).fit::<u16>())
    }

    /// Size in bytes of a value in memory (a multiple of 8).
    pub fn size(self) -> u32 {
        match self {
            Ty::Long => 8,
            Ty::Str(w) => u32::from(w),
        }
    }
}

/// The element type of an array.
#[derive(Debug, Clone, PartialEq)]
pub enum ElemTy {
    /// A number or a string.
    Scalar(Ty),
    /// A statistic.
    Stats(StatsSpec),
}

/// The values that a statistic keeps: the union over all extractors in the script.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatsSpec {
    /// `@sum` or `@avg` is used. (The count always exists.)
    pub sum: bool,
    /// `@min`
    pub min: bool,
    /// `@max`
    pub max: bool,
    /// `@variance`: an exact 128-bit sum of squares, and the sum.
    pub variance: bool,
    /// Histogram buckets.
    pub hist: Option<Hist>,
}

impl StatsSpec {
    /// Whether the sum is kept.
    pub fn keeps_sum(&self) -> bool {
        self.sum || self.variance
    }
}

/// The histogram of a statistic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hist {
    /// `@hist_log`: 128 buckets. Bucket 64 holds 0; a positive v goes to 64 + bits(v), a
    /// negative to 64 - bits(-v), clamped to 0..=127, where bits(v) is the position of the
    /// highest set bit counted from 1.
    Log,
    /// `@hist_linear`: bucket 0 underflow, 1..=n, then overflow.
    Linear {
        /// First value of bucket 1.
        low: i64,
        /// The last bucket starts at or below this.
        high: i64,
        /// Width of a bucket.
        step: i64,
    },
}

impl Hist {
    /// Number of buckets, including those for under- and overflow.
    pub fn buckets(self) -> u32 {
        match self {
            Hist::Log => 128,
            Hist::Linear { low, high, step } => ((high.wrapping_sub(low)) / step.max(1) + 3)
                .clamp(3, 4096)
                .fit::<u32>(),
        }
    }
}

/// A value that can be extracted from a statistic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[rustfmt::skip]
pub enum Extract { Count, Sum, Min, Max, Avg, Variance }

/// The memory that an address refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[rustfmt::skip]
pub enum Space { Kernel, User }

/// The destination of a `print`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// The script's output.
    Out,
    /// Standard error, with `WARNING: ` before the text.
    Warn,
    /// A command for the shell (`system()`).
    System,
    /// The output goes on in another file (`switch_file()`); the text does not count.
    NextFile,
}

/// The order of a `foreach`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SortSpec {
    /// The sort key.
    pub by: SortKey,
    /// Largest first.
    pub descending: bool,
}

/// The sort key of a `foreach`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SortKey {
    /// A key, by its index.
    Key(u32),
    /// The value; for a statistic its count.
    Value,
    /// An extractor of a statistic.
    Stat(Extract),
}
