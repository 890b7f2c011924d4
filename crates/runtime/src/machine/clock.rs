//! Clocks and the time zone of the controller.

use std::ffi::CString;
use std::fs;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, Timespec};
use spile_cast::Cast;
use spile_kernel::machine::{clock_ns, hz};
pub use spile_kernel::machine::{monotonic_ns as mono_ns, realtime_offset_ns as offset_ns};

/// Wall-clock time in nanoseconds since 1970.
pub fn real_ns() -> i64 {
    clock_ns(ClockId::Realtime)
}

/// A time as system calls take it.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// The time zone: seconds west of UTC, and its abbreviation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeZone {
    /// Seconds west of UTC, daylight saving time included.
    pub west: i64,
    /// The abbreviation, such as `CET`; at most 15 bytes.
    pub name: String,
}

/// The current time zone.
pub fn zone() -> TimeZone {
    let local = local_time().ok().filter(|tm| !tm.tm_zone.is_null());
    let Some(tm) = local else {
        return TimeZone {
            west: 0,
            name: "UTC".into(),
        };
    };
    // SAFETY: the zone's name is a string of the C library's that stays until the zone changes, and it is
    // copied here.
    let name = unsafe { std::ffi::CStr::from_ptr(tm.tm_zone) }.to_string_lossy();
    TimeZone {
        west: -tm.tm_gmtoff,
        name: name.chars().filter(char::is_ascii).take(15).collect(),
    }
}

/// The current local time.
fn local_time() -> io::Result<libc::tm> {
    let now = real_ns() / 1_000_000_000;
    tzset();
    // SAFETY: both pointers are to live values of the right type.
    unsafe {
        let mut tm = std::mem::zeroed::<libc::tm>();
        match libc::localtime_r(&raw const now, &raw mut tm).is_null() {
            true => Err(io::Error::last_os_error()),
            false => Ok(tm),
        }
    }
}

/// Replaces `strftime` forms by the current local time.
pub fn strftime(format: &str) -> io::Result<String> {
    if !format.contains('%') {
        return Ok(format.to_owned());
    }
    // An empty result looks like one that does not fit; an additional byte distinguishes them.
    let padded = CString::new(format!("{format}_"))?;
    let tm = local_time()?;
    let mut text = vec![0u8; 4096];
    let to = text.as_mut_ptr().cast();
    // SAFETY: the broken-down time and the format are live values of the right types, and the length given is
    // that of the buffer.
    let len = unsafe { libc::strftime(to, text.len(), padded.as_ptr(), &raw const tm) };
    // 0 means that the text did not fit.
    let len = len.checked_sub(1).ok_or(io::ErrorKind::InvalidFilename)?;
    text.truncate(len);
    String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidFilename.into())
}

unsafe extern "C" {
    /// Reads the zone from the environment; `localtime_r` alone need not.
    safe fn tzset();
}

/// The kernel's `jiffies`: ticks since boot plus the initial value (five minutes before the 32-bit
/// counter wraps).
pub fn jiffies() -> i64 {
    let hz = i64::from(hz());
    let initial = i64::from((-300i32).wrapping_mul(hz.fit()).cast_unsigned());
    (clock_ns(ClockId::MonotonicCoarse) / (1_000_000_000 / hz.max(1))).wrapping_add(initial)
}

/// The kernel's name of this task.
pub fn comm() -> Vec<u8> {
    let mut name = fs::read("/proc/thread-self/comm").unwrap_or_default();
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_agree() {
        let by_offset = mono_ns() + offset_ns();
        assert!((real_ns() - by_offset).abs() < 50_000_000);
    }

    #[test]
    fn names_are_filled_with_the_date() {
        assert_eq!(strftime("plain_").unwrap(), "plain_");
        assert_eq!(strftime("100%%").unwrap(), "100%");
        let year = strftime("x-%Y.log").unwrap();
        assert!(year.len() == 10 && year["x-".len()..6].parse::<u32>().unwrap() > 2000);
        assert_eq!(strftime("%F").unwrap().len(), "2000-01-01".len());
        assert!(strftime(&"%c".repeat(1000)).is_err());
        assert!(strftime("%Y\0").is_err());
    }

    #[test]
    fn zone_and_ticks_are_plausible() {
        let zone = zone();
        assert!(zone.west.abs() <= 86_400 && !zone.name.is_empty());
        assert!(jiffies() > 0);
        assert!(!comm().is_empty());
    }
}
