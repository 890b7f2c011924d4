//! The types of values, and the operators and choices of instructions. The rest of the definition,
//! formats, statistics and events build on them.

use std::fmt;
use std::sync::Arc;

use spile_cast::Cast;

use super::operators::words;
use crate::form::{Form, Printer, form};
use crate::token::{Reader, Res};

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
    /// An integer or a string.
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

words! {
    /// A value that can be extracted from a statistic.
    Extract "an extractor" {
        Count "count", Sum "sum", Min "min", Max "max", Avg "avg", Variance "variance",
    }

    /// The memory that an address refers to.
    Space "a memory" { Kernel "kernel", User "user" }

    /// The destination of a `print`.
    Stream "a stream" {
        /// The script's output.
        Out "out",
        /// Standard error, with `WARNING: ` before the text.
        Warn "warn",
        /// A command for the shell (`system()`).
        System "system",
        /// The output goes on in another file (`switch_file()`); the text does not count.
        NextFile "next_file",
    }
}

/// The form of an integer in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IntTy {
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether it is extended with its sign.
    pub signed: bool,
}

impl Form for IntTy {
    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> fmt::Result {
        let sign = if self.signed { "s" } else { "u" };
        p.item(format_args!("{sign}{}", u32::from(self.size) * 8))
    }

    fn opt(_: &[&str], r: &mut Reader) -> Res<Option<Self>> {
        Ok(r.opt_by(|word| {
            let signed = word.starts_with('s');
            let bits: u8 = word.strip_prefix(['s', 'u'])?.parse().ok()?;
            let size = bits / 8;
            matches!(bits, 8 | 16 | 32 | 64).then_some(IntTy { size, signed })
        }))
    }

    fn expected(_: &[&str]) -> String {
        "`u8` to `s64`".into()
    }
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

form! {
    enum SortKey "a sort key" { Key "key" (index), Value "value", Stat "" (what) }
}

impl Form for SortSpec {
    fn print(&self, _: &[&str], p: &mut Printer<'_, '_>) -> fmt::Result {
        self.descending.print(&["asc", "desc"], p)?;
        self.by.print(&[], p)
    }

    fn opt(_: &[&str], r: &mut Reader) -> Res<Option<Self>> {
        let descending = bool::opt(&["asc", "desc"], r)?;
        let spec = |descending| Form::read(&[], r).map(|by| SortSpec { by, descending });
        descending.map(spec).transpose()
    }
}
