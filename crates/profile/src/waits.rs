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
    /// The end of another thread.
    Thread,
    /// A condition that another thread signals.
    Condition,
    /// A semaphore that another thread posts.
    Semaphore,
    /// The end or a change of a child process.
    Child,
    /// A time of its own choice.
    Timer,
    /// Work: a thread of a pool or of a language's run time without any.
    Work,
    /// Events: connections, requests, answers.
    Events,
}

impl WaitKind {
    /// What a call waits for whoever makes it.
    pub(crate) fn of_call(call: &str) -> Option<WaitKind> {
        match call {
            "nanosleep" | "clock_nanosleep" => Some(WaitKind::Timer),
            "wait4" | "waitid" => Some(WaitKind::Child),
            "epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "accept" | "accept4" => {
                Some(WaitKind::Events)
            }
            _ => None,
        }
    }

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            WaitKind::Lock => "lock",
            WaitKind::Barrier => "barrier",
            WaitKind::Mpi => "MPI",
            WaitKind::Thread => "thread",
            WaitKind::Condition => "condition",
            WaitKind::Semaphore => "semaphore",
            WaitKind::Child => "child",
            WaitKind::Timer => "timer",
            WaitKind::Work => "work",
            WaitKind::Events => "events",
        }
    }

    /// What it is the wait for, in a sentence.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            WaitKind::Lock => "a lock",
            WaitKind::Barrier => "a barrier",
            WaitKind::Mpi => "other ranks",
            WaitKind::Thread => "the end of a thread",
            WaitKind::Condition => "a condition",
            WaitKind::Semaphore => "a semaphore",
            WaitKind::Child => "a child",
            WaitKind::Timer => "a timer",
            WaitKind::Work => "work",
            WaitKind::Events => "events",
        }
    }

    /// Whether it is idle by design: nothing is to be done.
    pub(crate) fn is_idle(self) -> bool {
        matches!(self, WaitKind::Work | WaitKind::Events)
    }

    /// Whether a call of another thread ends it, at the same futex.
    pub(crate) fn has_waker(self) -> bool {
        matches!(
            self,
            WaitKind::Lock | WaitKind::Condition | WaitKind::Semaphore
        )
    }

    /// Whether it is a wait for threads or ranks that work together, which no thread without work makes.
    pub(crate) fn is_for_partners(self) -> bool {
        matches!(self, WaitKind::Lock | WaitKind::Barrier | WaitKind::Mpi)
    }
}

/// Functions that wait for a lock, by parts of their names.
const LOCKS: &[&str] = &[
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
    "PyThread_acquire_lock",
];

/// Functions that wait for a thread's end, by parts of their names.
const JOINS: &[&str] = &[
    "pthread_join",
    "pthread_clockjoin",
    "pthread_timedjoin",
    "thrd_join",
];

/// Functions that wait for a condition, by parts of their names.
const CONDITIONS: &[&str] = &[
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "cnd_wait",
    "cnd_timedwait",
    // Rust: std and parking_lot.
    "Condvar::wait",
    "ObjectMonitor::wait",
];

/// Functions that wait for a semaphore, by parts of their names.
const SEMAPHORES: &[&str] = &["sem_wait", "sem_timedwait", "sem_clockwait"];

/// Functions in which threads without work wait, by parts of their names.
const IDLE: &[&str] = &[
    // clang's library of OpenMP.
    "__kmp_fork_barrier",
    // Go.
    "runtime.stopm",
    "runtime.mPark",
    "runtime.findRunnable",
    "runtime.findrunnable",
    "runtime.sysmon",
    "runtime.templateThread",
    // Rust: rayon and tokio.
    "rayon_core::sleep::",
    "::worker::Context::park",
    // The pool of libuv, which Node uses.
    "uv_cond_wait",
    // Java's virtual machine, and the pools of its library.
    "CompileQueue::get",
    "VMThread::wait_for_operation",
    "WatcherThread::sleep",
    "G1ServiceThread::",
    "G1ConcurrentMarkThread::run_service",
    "G1ConcurrentRefineThread::run_service",
    "MonitorDeflationThread::",
    "ServiceThread::service_thread_entry",
    "ThreadPoolExecutor.getTask",
    "ForkJoinPool.awaitWork",
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
    Thread,
    Condition,
    Semaphore,
    Barrier,
    /// It waits at a barrier, or as below in a thread of gcc's pool without work.
    GccBarrier,
    /// The first function of gcc's threads.
    GccStart,
    /// Threads without work wait here.
    Idle,
}

/// Roles by parts of functions' names.
const BY_PART: [(Role, &[&str]); 5] = [
    (Role::Lock, LOCKS),
    (Role::Idle, IDLE),
    (Role::Thread, JOINS),
    (Role::Condition, CONDITIONS),
    (Role::Semaphore, SEMAPHORES),
];

impl Role {
    fn of(name: &str) -> Option<Role> {
        let clang = || name.starts_with("__kmp") && name.contains("barrier");
        let mut by_part = BY_PART.iter();
        if let Some((role, _)) = by_part.find(|(_, parts)| parts.iter().any(|p| name.contains(p))) {
            Some(*role)
        } else if name.starts_with("gomp_barrier_wait") {
            Some(Role::GccBarrier)
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
        let mut has = [false; Role::Idle as usize + 1];
        for frame in frames {
            if let Some(role) = self.0.get(frame, |frame| Role::of(&frame.function)) {
                has[role as usize] = true;
            }
        }
        let has = |role: Role| has[role as usize];
        if has(Role::Lock) {
            return Some(WaitKind::Lock);
        }
        if has(Role::Idle) || has(Role::GccBarrier) && has(Role::GccStart) && !has(Role::Barrier) {
            return Some(WaitKind::Work);
        }
        let others = [
            (Role::Barrier, WaitKind::Barrier),
            (Role::GccBarrier, WaitKind::Barrier),
            (Role::Thread, WaitKind::Thread),
            (Role::Condition, WaitKind::Condition),
            (Role::Semaphore, WaitKind::Semaphore),
        ];
        others
            .into_iter()
            .find(|(role, _)| has(*role))
            .map(|(_, kind)| kind)
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
        for (names, kind) in [
            ("futex_wait __pthread_clockjoin_ex main", WaitKind::Thread),
            (
                "pthread_cond_wait@@GLIBC_2.3.2 take main",
                WaitKind::Condition,
            ),
            ("__new_sem_wait_slow64 sem_wait take", WaitKind::Semaphore),
            // The thread takes its lock again after the condition was signalled.
            ("__lll_lock_wait pthread_cond_wait take", WaitKind::Lock),
        ] {
            assert_eq!(of(names), Some(kind), "{names}");
        }
        for idle in [
            "gomp_barrier_wait_end gomp_thread_start",
            "__kmp_hyper_barrier_release __kmp_fork_barrier __kmp_launch_thread",
            "runtime.futex.abi0 runtime.mPark runtime.stopm runtime.findRunnable",
            "pthread_cond_wait Monitor::wait CompileQueue::get",
        ] {
            assert_eq!(of(idle), Some(WaitKind::Work), "{idle}");
        }
        assert_eq!(of("poll main"), None);
    }
}
