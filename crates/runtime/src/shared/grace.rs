//! Grace periods: waiting until no kernel handler still runs that began before some change of
//! the state memory (another generation, handlers turned off).
//!
//! Handlers of the supported events run with preemption off up to Linux 6.18. So once this
//! thread has run on every online CPU, each handler that began before is over. That costs
//! 0.05 ms a CPU, where `membarrier(MEMBARRIER_CMD_GLOBAL)`, which is `synchronize_rcu`, took 5
//! to 30 ms when measured. Newer kernels run handlers of tracepoints with preemption on, where
//! only the latter is right; it also serves where this thread may not run on every CPU, and
//! where there are so many CPUs that the visit would take longer.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use spile_kernel::machine::{online_cpus, tracepoints_preempted, version};

use crate::shared::state::State;

/// More CPUs than this are not visited one by one.
const MOST_VISITS: usize = 64;
/// How long handlers that are still marked busy after a visit are waited for.
const PATIENCE: Duration = Duration::from_millis(20);

/// How to wait, found out once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// Runs on every CPU once.
    Visit,
    /// Asks the kernel.
    Barrier,
}

impl Grace {
    /// The cheapest way that is right on this machine.
    pub fn choose() -> Grace {
        if !tracepoints_preempted(version()) && online_cpus().len() <= MOST_VISITS {
            Grace::Visit
        } else {
            Grace::Barrier
        }
    }

    /// Waits until every handler that began before the call is over. False when that could
    /// not be made sure of.
    pub fn wait(self, state: &State) -> bool {
        (self == Grace::Visit && visit().is_ok() && settled(state)) || barrier() || by_busy(state)
    }
}

/// Runs on every online CPU once.
fn visit() -> rustix::io::Result<()> {
    let before = sched_getaffinity(None)?;
    let visits = online_cpus().into_iter().try_for_each(|cpu| {
        let mut one = CpuSet::new();
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(rustix::io::Errno::INVAL);
        }
        one.set(cpu as usize);
        sched_setaffinity(None, &one)
    });
    let restored = sched_setaffinity(None, &before);
    visits.and(restored)
}

/// After a visit no handler from before is left. One that is marked busy began later, unless
/// handlers can be preempted after all; such a mark goes soon.
fn settled(state: &State) -> bool {
    by_busy(state)
}

/// Waits until each CPU was seen without a handler.
fn by_busy(state: &State) -> bool {
    let since = Instant::now();
    (0..state.cpus()).all(|cpu| {
        while state.busy(cpu) {
            if since.elapsed() > PATIENCE {
                return false;
            }
            std::thread::yield_now();
        }
        true
    })
}

/// `membarrier(MEMBARRIER_CMD_GLOBAL)`; false where the kernel does not offer it.
fn barrier() -> bool {
    // SAFETY: the call takes three numbers and no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_is_restored() {
        let before = sched_getaffinity(None).unwrap();
        let _ = visit();
        assert_eq!(before, sched_getaffinity(None).unwrap());
    }

    #[test]
    fn both_ways_end() {
        let layout = spile_bpf::layout::Layout {
            shared_size: spile_bpf::layout::shared::END,
            cpu_stride: 128,
            cpus: 2,
            globals: vec![],
            handlers: vec![],
            programs: vec![],
            records: vec![],
            stacks: None,
            tree: None,
            pages: false,
            critical: None,
        };
        let state = State::plain(&layout).unwrap();
        assert!(Grace::Visit.wait(&state) && Grace::Barrier.wait(&state));
    }
}
