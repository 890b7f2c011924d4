//! The event sources of a session, on one epoll instance.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use spile_cast::Cast;

use crate::error::Error;
use crate::machine::clock::timespec;

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

fn waiting(e: rustix::io::Errno) -> Error {
    Error::System("waiting for events", e.into())
}

/// An epoll instance.
pub struct EventLoop {
    epoll: OwnedFd,
}

impl EventLoop {
    /// Creates an empty instance.
    pub fn new() -> Result<EventLoop, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        Ok(EventLoop {
            epoll: epoll.map_err(|e| Error::System("epoll", e.into()))?,
        })
    }

    /// Waits until a descriptor is readable.
    pub fn add(&self, fd: impl AsFd, source: EventSource) -> Result<(), Error> {
        let data = epoll::EventData::new_u64(source.pack());
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN).map_err(waiting)
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
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Vec<EventSource>, Error> {
        let timeout = timeout.map(timespec);
        let mut ready = Vec::with_capacity(32);
        match epoll::wait(&self.epoll, spare_capacity(&mut ready), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(waiting(e)),
        }
        Ok(ready
            .iter()
            .filter_map(|e| EventSource::unpack(e.data.u64()))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::timer::Timer;

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
