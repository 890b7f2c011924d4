//! Programs that spile adds to those of a script's handlers.
//!
//! In: the plan's offsets. Out: functions. None of them holds code of a script.
//!
//! | module | its one job |
//! |---|---|
//! | [`process_tree`] | marks the target's descendants at forks |
//! | `unfollowed` | counts executions by which the target's processes lose their breakpoints |
//! | `forked_calls` | copies values of entries for the children of forks |
//! | `exec_notifier` | tells the controller of each `execve` |
//! | `dispatch` | goes from a system call's number to its handlers |
//! | [`critical_section`] | copies globals under their locks for the controller |

pub(crate) mod critical_section;
pub(crate) mod dispatch;
pub(crate) mod exec_notifier;
pub(crate) mod forked_calls;
pub(crate) mod process_tree;
#[cfg(test)]
mod tests;
pub(crate) mod unfollowed;

/// The tracepoint of forks; its arguments are the tasks of the parent, which is the current task, and of
/// the child.
pub(crate) const FORK: &str = "sched_process_fork";
/// The tracepoint of executions; its first argument is the current task. The new program's memory is in
/// place, the kernel has taken the perf events away, and none of its instructions has run yet.
pub(crate) const EXEC: &str = "sched_process_exec";
