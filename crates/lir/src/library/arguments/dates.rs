//! Date and time.

use super::{ArgumentLayout, function, kind};
use crate::func::LirFunc;

/// Name of the constant with the names of days and months.
pub(super) const TABLE: &str = "dates";
/// Bytes of a name in it.
const NAME: i32 = 8;
/// Places for days; months follow.
const DAYS: i32 = 8;

const NAMES: [&str; 19] = [
    "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Jan", "Feb", "Mar", "Apr", "May", "Jun",
    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Days from 1 March of the year 0 to the beginning of 1970.
const EPOCH: i32 = 719_468;
const DAY: i32 = 86_400;

/// The names: seven days, a slot that is empty, twelve months, and four empty slots.
pub(super) fn table() -> Vec<u8> {
    let mut bytes = vec![0; (NAME * (DAYS + 16)) as usize];
    for (i, name) in NAMES.iter().enumerate() {
        let slot = if i < 7 { i } else { i + 1 };
        let offset = slot * NAME as usize;
        bytes[offset..offset + name.len()].copy_from_slice(name.as_bytes());
    }
    bytes
}

pub(super) fn put_date(layout: &ArgumentLayout) -> LirFunc {
    let contract = "\
Appends `Thu Jan  1 00:00:00 1970`, as C's ctime in UTC, or the number if it has more than 32 bits.
seconds: since 1970.
Cost: seven texts and numbers.";
    let name = ("put_date", contract);
    function(layout, name, ["seconds"], |t, [seconds]| {
        let f = t.f;
        let shifted = seconds + f.constant(1 << 31);
        f.if_((shifted >> 32).ne(0), || {
            t.put(kind::SIGNED, seconds);
            f.ret(0);
        });
        // From 1 March of the year 0 on, so that nothing is negative and a leap day ends its year.
        let since = seconds + f.constant(EPOCH as u64 * DAY as u64);
        let (days, time) = (since / DAY, since % DAY);
        let era = days / 146_097;
        let of_era = days % 146_097;
        let leaps = of_era / 1460 + of_era / 146_096;
        let year_of_era = (of_era - leaps + of_era / 36_524) / 365;
        let of_year = of_era - (year_of_era * 365 + year_of_era / 4 - year_of_era / 100);
        // March is 0.
        let month = (of_year * 5 + 2) / 153;
        let day = of_year - (month * 153 + 2) / 5 + 1;
        let calendar = (month + 2) % 12;
        // January and February are those of the next year.
        let year = era * 400 + year_of_era + month / 10;
        let name = |index| {
            t.text(f.data(TABLE) + (index * NAME), NAME);
        };
        // Day 0 was a Wednesday.
        name(((days + 3) % 7) & (DAYS - 1));
        t.literal(" ");
        name((calendar & 15) + DAYS);
        t.literal(" ");
        f.if_(day.lt(10), || t.literal(" "));
        t.put(kind::UNSIGNED, day);
        t.literal(" ");
        t.padded(10, time / 3600, 2);
        t.literal(":");
        t.padded(10, time / 60 % 60, 2);
        t.literal(":");
        t.padded(10, time % 60, 2);
        t.literal(" ");
        t.put(kind::UNSIGNED, year);
    })
}
