//! Times, shares and sizes as texts.

use crate::model::Ns;

/// A time with its unit, in at most four figures.
pub fn time(ns: Ns) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    for (unit, name) in UNITS {
        let value = ns as f64 / unit;
        // A value that would round to 1000 of a unit is shown as 1 of the next.
        let digits = match value {
            v if v >= 99.95 => 0,
            v if v >= 9.995 => 1,
            v if v >= 0.9995 => 2,
            _ => continue,
        };
        return format!("{value:.digits$} {name}");
    }
    format!("{ns} ns")
}

/// Like [`time`], for a number that can be negative.
pub(super) fn signed(ns: i64) -> String {
    let minus = if ns < 0 { "-" } else { "" };
    format!("{minus}{}", time(ns.unsigned_abs()))
}

/// A share in percent.
pub(super) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 {
        format!("{:.1}%", part * 100.0 / whole)
    } else {
        "-".to_owned()
    }
}

/// A number of bytes with its unit.
pub(super) fn bytes(n: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 || value >= 9.95 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// "1 thread", "2 threads".
pub fn counted(n: u64, noun: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{s}")
}
