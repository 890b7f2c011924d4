//! The event sources of a session, on one epoll instance.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use spile_cast::Cast;

/// A source of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSource {
    /// Records from the kernel.
    Ring,
    /// A signal.
    Signal,
    /// The end of the followed process.
    Child,
    /// Standard input.
    Stdin,
    /// A reader or writer of a `procfs` file.
    Files,
    /// Tables of user files that were read.
    Tables,
    /// A client of the metrics address.
    Listener,
    /// A descriptor of the program that embeds spile.
    Outside,
    /// A client of a session in the background.
    Clients,
    /// A timer, by its index in the session's list.
    Timer(u32),
    /// A connection of the metrics address, by token.
    Conn(u64),
}

impl EventSource {
    fn pack(self) -> u64 {
        match self {
            EventSource::Ring => 0,
            EventSource::Signal => 1,
            EventSource::Child => 2,
            EventSource::Stdin => 3,
            EventSource::Listener => 4,
            EventSource::Files => 5,
            EventSource::Outside => 6,
            EventSource::Tables => 7,
            EventSource::Clients => 8,
            EventSource::Timer(n) => 1 << 32 | u64::from(n),
            EventSource::Conn(n) => 1 << 63 | n,
        }
    }

    fn unpack(word: u64) -> Option<EventSource> {
        match word {
            0 => Some(EventSource::Ring),
            1 => Some(EventSource::Signal),
            2 => Some(EventSource::Child),
            3 => Some(EventSource::Stdin),
            4 => Some(EventSource::Listener),
            5 => Some(EventSource::Files),
            6 => Some(EventSource::Outside),
            7 => Some(EventSource::Tables),
            8 => Some(EventSource::Clients),
            _ if word >> 63 == 1 => Some(EventSource::Conn(word & !(1 << 63))),
            _ if word >> 32 == 1 => Some(EventSource::Timer(word.low32())),
            _ => None,
        }
    }
}

/// An epoll instance.
pub struct EventLoop {
    epoll: OwnedFd,
}

impl EventLoop {
    /// Creates an empty instance.
    pub fn new() -> io::Result<EventLoop> {
        Ok(EventLoop {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// Waits until a descriptor is readable.
    pub fn add(&self, fd: BorrowedFd<'_>, source: EventSource) -> io::Result<()> {
        let data = epoll::EventData::new_u64(source.pack());
        Ok(epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)?)
    }

    /// Waits until a descriptor is writable, or readable again.
    pub fn modify(&self, fd: BorrowedFd<'_>, source: EventSource, write: bool) -> io::Result<()> {
        let flags = if write {
            epoll::EventFlags::OUT
        } else {
            epoll::EventFlags::IN
        };
        Ok(epoll::modify(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(source.pack()),
            flags,
        )?)
    }

    /// Stops waiting for a descriptor.
    pub fn remove(&self, fd: BorrowedFd<'_>) {
        // A closed descriptor is removed already.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// The ready sources, after at most `timeout`, in the order in which they became ready.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<EventSource>> {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs().cast_signed(),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let mut ready = Vec::with_capacity(32);
        match epoll::wait(&self.epoll, spare_capacity(&mut ready), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(ready
            .iter()
            .filter_map(|e| EventSource::unpack(e.data.u64()))
            .collect())
    }
}

/// A timer that fires every `period`, with a deviation of up to `randomize`.
pub struct Timer {
    fd: OwnedFd,
    period: Duration,
    randomize: Duration,
}

fn timespec(d: Duration) -> Timespec {
    Timespec {
        tv_sec: d.as_secs().cast_signed(),
        tv_nsec: i64::from(d.subsec_nanos()),
    }
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
    fn sources_survive_packing() {
        for source in [
            EventSource::Ring,
            EventSource::Signal,
            EventSource::Child,
            EventSource::Stdin,
            EventSource::Listener,
            EventSource::Files,
            EventSource::Outside,
            EventSource::Tables,
            EventSource::Clients,
            EventSource::Timer(0),
            EventSource::Timer(u32::MAX),
            EventSource::Conn(0),
            EventSource::Conn(1 << 40),
        ] {
            assert_eq!(EventSource::unpack(source.pack()), Some(source));
        }
    }

    #[test]
    fn deviations_stay_in_range() {
        let (period, most) = (Duration::from_millis(10), Duration::from_millis(3));
        for random in [0, 1, u64::MAX, 12_345_678] {
            let d = jitter(period, most, random);
            assert!(d >= period - most && d <= period + most);
        }
        assert!(jitter(most, period, 0) > Duration::ZERO);
    }

    #[test]
    fn timers_hit() {
        let events = EventLoop::new().unwrap();
        let timers = [
            Timer::new(2_000_000, 0).unwrap(),
            Timer::new(1_000_000, 500_000).unwrap(),
        ];
        for (i, timer) in timers.iter().enumerate() {
            events
                .add(timer.as_fd(), EventSource::Timer(i as u32))
                .unwrap();
            timer.start(7).unwrap();
        }
        let mut hits = [0; 2];
        while hits[0] < 3 || hits[1] < 3 {
            for source in events.wait(Some(Duration::from_secs(1))).unwrap() {
                let EventSource::Timer(i) = source else {
                    panic!("{source:?}")
                };
                hits[i as usize] += u32::from(timers[i as usize].acknowledge(3).unwrap());
            }
        }
    }
}
