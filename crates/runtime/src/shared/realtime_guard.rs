//! A short time at real-time priority, in which this thread is not switched out for ordinary
//! threads.
//!
//! A controller handler that is switched out while it holds locks makes kernel handlers on all
//! processors wait, and then skip their hits. It therefore holds locks as a real-time thread of the
//! lowest priority, which only interrupts and other real-time threads preempt. It reads maps in the
//! same way on kernels where a switch at that point would lose other threads' hits. If real-time
//! priority is not allowed (CAP_SYS_NICE), the thread continues as it is; skipped hits are counted
//! in both cases.

/// Restores the previous scheduling policy when dropped.
#[derive(Debug)]
pub struct RealtimeGuard {
    policy: i32,
    param: libc::sched_param,
}

impl RealtimeGuard {
    /// Raises the priority; `None` if that is not allowed, or the thread already is a real-time
    /// one.
    pub fn begin() -> Option<RealtimeGuard> {
        // SAFETY: all-zero bytes are a valid `sched_param`; the calls read and write only it,
        // and 0 means this thread.
        unsafe {
            let policy = libc::sched_getscheduler(0);
            let mut param: libc::sched_param = std::mem::zeroed();
            if policy != libc::SCHED_OTHER || libc::sched_getparam(0, &raw mut param) != 0 {
                return None;
            }
            let urgent = libc::sched_param { sched_priority: 1 };
            let fifo = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
            let allowed = libc::sched_setscheduler(0, fifo, &raw const urgent) == 0;
            allowed.then_some(RealtimeGuard { policy, param })
        }
    }
}

impl Drop for RealtimeGuard {
    fn drop(&mut self) {
        // SAFETY: as in `begin`. Going back to what was is always allowed.
        unsafe { libc::sched_setscheduler(0, self.policy, &raw const self.param) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i32 {
        // SAFETY: asks for this thread's policy; touches no memory.
        unsafe { libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK }
    }

    #[test]
    fn guard_restores_the_policy() {
        let before = policy();
        let urgent = RealtimeGuard::begin();
        assert_eq!(urgent.is_some(), policy() == libc::SCHED_FIFO);
        drop(urgent);
        assert_eq!(policy(), before);
    }
}
