//! Timers as descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::machine::clock::timespec;

/// A timer that fires every `period`, with a deviation of up to `randomize`.
pub struct Timer {
    fd: OwnedFd,
    period: Duration,
    randomize: Duration,
}

impl Timer {
    /// Creates a timer without starting it.
    pub fn new(period_ns: u64, randomize_ns: u64) -> io::Result<Timer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Timer {
            fd: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            period: Duration::from_nanos(period_ns.max(1)),
            randomize: Duration::from_nanos(randomize_ns),
        })
    }

    /// Starts the timer; `random` is any number, used for the deviation.
    pub fn start(&self, random: u64) -> io::Result<()> {
        let (first, interval) = if self.randomize.is_zero() {
            (self.period, self.period)
        } else {
            (jitter(self.period, self.randomize, random), Duration::ZERO)
        };
        let spec = Itimerspec {
            it_interval: timespec(interval),
            it_value: timespec(first),
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }

    /// Acknowledges that the timer fired, and restarts it if its period varies. Returns whether it
    /// really fired. Several unhandled expirations count as one.
    pub fn acknowledge(&self, random: u64) -> io::Result<bool> {
        let mut count = [0u8; 8];
        match rustix::io::read(&self.fd, &mut count) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        if !self.randomize.is_zero() {
            self.start(random)?;
        }
        Ok(true)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The period with a deviation of at most `most` in both directions; never zero.
fn jitter(period: Duration, most: Duration, random: u64) -> Duration {
    let nanoseconds = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    let (period, most) = (nanoseconds(period), nanoseconds(most));
    let span = most.saturating_mul(2).saturating_add(1);
    Duration::from_nanos(
        period
            .saturating_sub(most)
            .saturating_add(random % span)
            .max(1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_stay_in_range() {
        let (period, most) = (Duration::from_millis(10), Duration::from_millis(3));
        for random in [0, 1, u64::MAX, 12_345_678] {
            let d = jitter(period, most, random);
            assert!(d >= period - most && d <= period + most);
        }
        assert!(jitter(most, period, 0) > Duration::ZERO);
    }
}
