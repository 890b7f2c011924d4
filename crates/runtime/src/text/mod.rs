//! Texts that kernel handlers leave to the controller.
//!
//! In: addresses, stacks and marks as kernel handlers sent them. Out: text. Files are read by threads of
//! their own, so that output and timers do not wait for them. Nothing here decides what is printed.
//!
//! | module | its one job |
//! |---|---|
//! | [`symbolic`] | texts of stacks and symbols, and of marks in strings |
//! | [`deferred`] | strings of user memory that was not resident |
//! | [`user_files`] | files of programs: symbols, lines, unwind rows |
//! | [`kernel_files`] | files of the kernel and its modules |

pub mod deferred;
pub mod kernel_files;
pub mod symbolic;
pub mod user_files;
