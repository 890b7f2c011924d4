//! The layouts of values.

use spile_ir::{ElemTy, Hist, StatsSpec};

use super::allocator::BumpAllocator;
use crate::{AggLayout, ValueLayout};

/// The layout of an array's element.
pub(crate) fn element(elem: &ElemTy) -> ValueLayout {
    match elem {
        ElemTy::Scalar(ty) => ValueLayout::Scalar(*ty),
        ElemTy::Stats(spec) => ValueLayout::Stats(agg_layout(spec)),
    }
}

/// The layout of a statistic.
pub(crate) fn agg_layout(spec: &StatsSpec) -> AggLayout {
    let mut words = BumpAllocator::from(0);
    let count = words.alloc(8);
    let mut word = |wanted: bool, bytes: u32| wanted.then(|| words.alloc(bytes));
    let sum = word(spec.keeps_sum(), 8);
    let min = word(spec.min, 8);
    let max = word(spec.max, 8);
    let sumsq = word(spec.variance, 16);
    let buckets = spec.hist.map(Hist::buckets);
    let hist = buckets.map(|n| (words.alloc(8 * n), n));
    AggLayout {
        count,
        sum,
        min,
        max,
        sumsq,
        hist,
        size: words.at(),
    }
}
