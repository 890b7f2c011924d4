//! Eviction from an array that wraps: callbacks of iterations over its elements, whose values begin with their
//! sequence numbers.
//!
//! A sequence number of 0 belongs to an insertion in progress on another processor.

use crate::builder::build;
use crate::func::LirFunc;
use crate::helpers::Helper;

/// The function that finds the oldest element.
pub const OLDEST: &str = "oldest";
/// The function that removes old elements.
pub const DROP_OLD: &str = "drop_old";

const PARAMS: [&str; 4] = ["map", "key", "value", "context"];

pub(super) fn oldest() -> LirFunc {
    let contract = "\
Lowers a number to an element's sequence number; returns 0.
value: begins with it. context: the number. map, key: not read.
Cost: two loads.";
    build(OLDEST, contract, PARAMS, |f, [_, _, value, least]| {
        let sequence = value.load_u64(0);
        f.ret_if(sequence.eq(0), 0);
        f.if_(sequence.lt(least.load_u64(0)), || {
            least.store_u64(0, sequence);
        });
    })
}

pub(super) fn drop_old() -> LirFunc {
    let contract = "\
Removes an element whose sequence number is at most a limit; returns 0.
map: the array. key: the element's. value: begins with its sequence number. context: the limit.
Cost: two loads, and the removal.";
    build(DROP_OLD, contract, PARAMS, |f, [map, key, value, limit]| {
        let sequence = value.load_u64(0);
        f.ret_if(sequence.eq(0), 0);
        f.if_(sequence.le(limit.load_u64(0)), || {
            f.helper(Helper::MapDelete, &[map, key]);
        });
    })
}
