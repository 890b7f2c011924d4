//! Programs that spile adds to those of a script's handlers.
//!
//! In: the plan's offsets. Out: functions. None of them holds code of a script.
//!
//! | module | its one job |
//! |---|---|
//! | [`process_tree`] | marks the target's descendants at forks |
//! | `exec_notifier` | tells the controller of each `execve` |
//! | `dispatch` | goes from a system call's number to its handlers |
//! | [`critical_section`] | copies globals under their locks for the controller |

pub(crate) mod critical_section;
pub(crate) mod dispatch;
pub(crate) mod exec_notifier;
pub(crate) mod process_tree;
