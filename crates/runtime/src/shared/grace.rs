//! Grace periods: wait until no kernel handler is running that started before a change of the state
//! memory (a new generation, handlers disabled).
//!
//! Up to Linux 6.18, handlers of the supported events run with preemption off. Once this thread has
//! run on every online CPU, each handler that started before has ended. That costs 0.05 ms per CPU;
//! `membarrier(MEMBARRIER_CMD_GLOBAL)`, which is `synchronize_rcu`, took 5 to 30 ms when measured.
//! Newer kernels run tracepoint handlers with preemption on, where only `membarrier` is correct. It
//! also serves if this thread may not run on every CPU, and on machines with more CPUs than a visit
//! is worth.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use spile_kernel::machine::{online_cpus, tracepoints_preempted, version};

use crate::shared::state::StateMemory;

/// Machines with more CPUs use the barrier.
const MOST_VISITS: usize = 64;
/// How long to wait for handlers that are still marked busy after a visit.
const PATIENCE: Duration = Duration::from_millis(20);

/// How to wait; chosen once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GracePeriod {
    /// Runs on every CPU once.
    Visit,
    /// Calls `membarrier`.
    Barrier,
    /// Watches the marks that handlers set: in processes, handlers can be preempted.
    Busy,
}

impl GracePeriod {
    /// The cheapest method that is correct on this machine.
    pub fn choose() -> GracePeriod {
        if !tracepoints_preempted(version()) && online_cpus().len() <= MOST_VISITS {
            GracePeriod::Visit
        } else {
            GracePeriod::Barrier
        }
    }

    /// Waits until every handler that started before the call has ended. Returns false if that is
    /// not certain.
    pub fn wait(self, state: &StateMemory) -> bool {
        match self {
            GracePeriod::Visit => {
                (visit().is_ok() && quiescent(state)) || barrier() || by_busy(state)
            }
            GracePeriod::Barrier => barrier() || by_busy(state),
            // The barrier orders the caller's words before the look at the marks.
            GracePeriod::Busy => barrier() && by_busy(state),
        }
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

/// After a visit no earlier handler is left. A busy mark belongs to a later handler, unless
/// handlers can be preempted after all; such a mark disappears soon.
fn quiescent(state: &StateMemory) -> bool {
    by_busy(state)
}

/// Waits until each CPU was observed without a handler.
fn by_busy(state: &StateMemory) -> bool {
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

/// Calls `membarrier(MEMBARRIER_CMD_GLOBAL)`; false if the kernel does not offer it.
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
    fn both_kinds_of_grace_period_end() {
        let layout = spile_layout::Layout {
            shared_size: spile_layout::shared::END,
            cpu_stride: 128,
            cpus: 2,
            ..spile_layout::Layout::default()
        };
        let state = StateMemory::in_memory(&layout).unwrap();
        assert!(GracePeriod::Visit.wait(&state) && GracePeriod::Barrier.wait(&state));
    }
}
