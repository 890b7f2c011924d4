//! The attachments of a session. Dropping them detaches.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use spile_kernel::bpf::link_info;
use spile_kernel::perf::PerfEvent;
use spile_kernel::process::spawn_masked;
use spile_layout::shared;

use crate::attach::arming::{Progress, close_all};
use crate::attach::followed::Following;
use crate::attach::perf_events;
use crate::attach::site::RefusedLocation;
use crate::attach::summary::AttachSummary;
use crate::shared::state::StateMemory;

/// Limit on the links that are closed in parallel.
const MOST_CLOSERS: usize = 128;

/// Attached programs; dropping it detaches them.
#[derive(Default)]
pub struct Links {
    /// Links. They come first, because those of perf events hold the events.
    pub(crate) fds: Vec<OwnedFd>,
    pub(crate) events: Vec<PerfEvent>,
    /// What lets the links hit in the target's processes.
    pub(crate) following: Option<Following>,
    /// Attachments that the kernel detaches without waiting: raw tracepoints (0.04 ms each,
    /// serialised by the kernel), and events that the processor or the kernel itself counts.
    pub(crate) points: Vec<OwnedFd>,
    pub(crate) counted: Vec<PerfEvent>,
    /// Watchpoints in processes that run a program.
    pub(crate) processes: perf_events::ProcessWatchpoints,
    /// Locations in code that could not be probed.
    pub(crate) refused: Vec<RefusedLocation>,
    /// The attach kinds of programs in code, for `-v`.
    pub(crate) attach_kinds: Vec<String>,
    /// Attach kinds that are not in `attach_kinds` yet.
    pub(crate) unreported: Vec<AttachSummary>,
    /// Indexes of links at returns of functions.
    pub(crate) returns: Vec<usize>,
}

impl Drop for Links {
    fn drop(&mut self) {
        let following = self.following.take();
        let followed = following.as_ref().map_or(0, Following::open);
        let links = self.fds.len() + self.events.len() + followed;
        let progress = Progress::new("detaching", "links", links);
        close_all(std::mem::take(&mut self.fds), MOST_CLOSERS, &progress);
        close_all(std::mem::take(&mut self.events), MOST_CLOSERS, &progress);
        if let Some(following) = following {
            following.close(&progress);
        }
        // The other fields are dropped after this.
    }
}

/// Attachments that another thread releases; dropping it waits for that. Their programs may still be
/// called meanwhile.
pub(crate) struct Detaching(Option<JoinHandle<()>>);

impl Drop for Detaching {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // Dropping descriptors does not panic.
            let _ = thread.join();
        }
    }
}

impl Links {
    /// Number of links.
    pub fn len(&self) -> usize {
        self.fds.len() + self.events.len() + self.points.len() + self.counted.len()
    }

    /// Whether nothing is attached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The attach kinds of programs in code, one line for each probe.
    pub fn attach_kinds(&self) -> &[String] {
        &self.attach_kinds
    }

    /// Hits of functions that the kernel skipped: at entries, and at returns.
    pub fn missed(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for (index, fd) in self.fds.iter().enumerate() {
            let missed = link_info(fd.as_fd()).map_or(0, |info| info.missed);
            match self.returns.contains(&index) {
                true => sums.1 += missed,
                false => sums.0 += missed,
            }
        }
        sums
    }

    /// Executions by which processes of the target lost their breakpoints.
    pub(crate) fn unfollowed(&self, state: &StateMemory) -> u64 {
        let follows = self.following.as_ref().is_some_and(Following::has_sets);
        let count = state.shared(shared::UNFOLLOWED);
        if follows {
            count.load(Ordering::Relaxed)
        } else {
            0
        }
    }

    /// Detaches. What the kernel detaches without waiting for running programs is left to another
    /// thread: each tracepoint takes 0.1 ms, because it changes code on all processors.
    pub(crate) fn detach(mut self) -> Detaching {
        let points = std::mem::take(&mut self.points);
        let counted = std::mem::take(&mut self.counted);
        Detaching(spawn_masked(move || drop((points, counted))))
    }

    /// The locations that could not be probed.
    pub fn refused(&self) -> &[RefusedLocation] {
        &self.refused
    }
}
