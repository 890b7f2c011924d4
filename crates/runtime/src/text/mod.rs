//! Texts that kernel handlers leave to the controller.
//!
//! In: addresses, stacks and marks from kernel handlers. Out: text. Separate threads read files, so
//! that output and timers do not wait for them. What is printed is not decided here.
//!
//! | module | its one job |
//! |---|---|
//! | [`symbolic`] | texts of stacks and symbols, and of marks in strings |
//! | [`deferred`] | strings of user memory that was not resident |
//! | [`user_files`] | user files: symbols, lines, unwind rows |
//! | [`kernel_files`] | files of the kernel and its modules |

pub mod deferred;
pub mod kernel_files;
pub mod symbolic;
pub mod user_files;
