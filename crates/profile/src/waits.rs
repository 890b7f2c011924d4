//! What threads wait for, as the functions on their stacks and their regions tell: locks, barriers, other ranks.

use crate::frames::ByFrame;
use crate::model::Frame;

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitKind {
    /// Another thread's release of a lock.
    Lock,
    /// The other threads of a team, asleep or spinning.
    Barrier,
    /// Other ranks, in a call of MPI, asleep or not.
    Mpi,
}

/// Functions that wait for a lock, by parts of their names.
const LOCKS: [&str; 13] = [
    "__lll_lock_wait",
    "lll_mutex_lock",
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "pthread_rwlock_",
    "mtx_lock",
    // Rust: std and parking_lot.
    "::lock_contended",
    "RawMutex::lock_slow",
    "RwLock::read_contended",
    "RwLock::write_contended",
    // Java and Python.
    "ObjectMonitor::enter",
    "take_gil",
];

/// Functions that wait at a barrier, by the beginnings of their names.
const BARRIERS: [&str; 4] = [
    "GOMP_barrier",
    "gomp_team_barrier_wait",
    "pthread_barrier_wait",
    "__pthread_barrier_wait",
];

/// What functions wait for, each looked at once.
#[derive(Debug, Default)]
pub(crate) struct WaitKinds(ByFrame<Option<Role>>);

/// A function's role in waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Lock,
    Barrier,
    /// It waits at a barrier, or as below in a thread of gcc's pool without work.
    GccBarrier,
    /// The first function of gcc's threads.
    GccStart,
    /// Threads of clang's pool without work wait here.
    Idle,
}

impl Role {
    fn of(name: &str) -> Option<Role> {
        let clang = || name.starts_with("__kmp") && name.contains("barrier");
        if LOCKS.iter().any(|lock| name.contains(lock)) {
            Some(Role::Lock)
        } else if name.starts_with("gomp_barrier_wait") {
            Some(Role::GccBarrier)
        } else if name.starts_with("__kmp_fork_barrier") {
            Some(Role::Idle)
        } else if BARRIERS.iter().any(|start| name.starts_with(start)) || clang() {
            Some(Role::Barrier)
        } else {
            (name == "gomp_thread_start").then_some(Role::GccStart)
        }
    }
}

impl WaitKinds {
    /// What a thread with these frames waits for, if it waits.
    pub(crate) fn of<'a>(
        &mut self,
        frames: impl IntoIterator<Item = &'a Frame>,
    ) -> Option<WaitKind> {
        let mut has = [false; 5];
        for frame in frames {
            if let Some(role) = self.0.get(frame, |frame| Role::of(&frame.function)) {
                has[role as usize] = true;
            }
        }
        let has = |role: Role| has[role as usize];
        if has(Role::Lock) {
            return Some(WaitKind::Lock);
        }
        let barrier = has(Role::Barrier) || has(Role::GccBarrier) && !has(Role::GccStart);
        (barrier && !has(Role::Idle)).then_some(WaitKind::Barrier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::StackFrame;

    #[test]
    fn functions_tell_what_threads_wait_for() {
        let of = |names: &str| {
            let frame = |name: &str| {
                let function = name.to_owned();
                Frame::new(StackFrame {
                    function,
                    ..StackFrame::default()
                })
            };
            let frames: Vec<Frame> = names.split(' ').map(frame).collect();
            WaitKinds::default().of(&frames)
        };
        for lock in ["__lll_lock_wait f", "futex std::sync::lock_contended main"] {
            assert_eq!(of(lock), Some(WaitKind::Lock), "{lock}");
        }
        for barrier in [
            "gomp_team_barrier_wait_end f._omp_fn.0 gomp_thread_start",
            "gomp_team_barrier_wait_final gomp_thread_start",
            "gomp_barrier_wait f main",
            "__kmp_hyper_barrier_gather __kmpc_barrier f",
            "__kmp_join_barrier __kmp_launch_thread",
            "__pthread_barrier_wait f",
        ] {
            assert_eq!(of(barrier), Some(WaitKind::Barrier), "{barrier}");
        }
        for idle in [
            "gomp_barrier_wait_end gomp_thread_start",
            "__kmp_hyper_barrier_release __kmp_fork_barrier __kmp_launch_thread",
            "poll main",
        ] {
            assert_eq!(of(idle), None, "{idle}");
        }
    }
}
