//! What a profile is: where the time of a command's threads went in the operating system. The
//! model, its files, and merging of ranks; reports and exports. Nothing about kernels or scripts,
//! and no I/O but on paths and writers that are given.
//!
//! | module | what |
//! |---|---|
//! | [`model`] | processes, threads, system calls, contexts, stacks, events |
//! | [`file`] | JSON Lines with snapshots: the writer, and a reader for whatever it meets |
//! | [`run`] | the profiles of a run as one: ranks, nodes, imbalance |
//! | [`report`] | text: the summary, the table by thread, differences |

pub mod file;
pub mod model;
pub mod report;
pub mod run;
#[cfg(any(test, feature = "testgen"))]
pub mod testgen;

pub use model::*;
pub use run::Run;
