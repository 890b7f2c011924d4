//! Which functions wait for locks.

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

/// Whether a thread on this path, the outermost location first, waits for a lock.
pub(crate) fn waits_for_lock<'a>(functions: impl IntoIterator<Item = &'a str>) -> bool {
    let mut functions = functions.into_iter();
    functions.any(|name| LOCKS.iter().any(|lock| name.contains(lock)))
}
