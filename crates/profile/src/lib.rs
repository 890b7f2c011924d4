//! Profiles: the time of a command's threads in the operating system. The model, its files, and
//! merging of ranks; reports and exports. Nothing about kernels or scripts, and no I/O except on
//! paths and writers that the caller passes.
//!
//! | module | what |
//! |---|---|
//! | [`time`] | times, and the parts of a thread's time |
//! | [`model`] | processes, threads, system calls, contexts, stacks, events |
//! | `frames` | frames of stacks, equal ones as one |
//! | [`interpreter`] | interpreters whose programs' functions are in stacks |
//! | [`file`] | JSON Lines with snapshots: the writer, and a reader for whatever it meets |
//! | [`run`] | the profiles of a run as one: ranks, nodes, imbalance |
//! | `summary_sums` | the sums of a run, profile by profile |
//! | [`sleeping_threads`] | threads that only sleep |
//! | `merge` | what reports show of a run, profile by profile |
//! | [`quiet`] | threads that hardly ran: what they waited for at both ends |
//! | [`regions`] | times in regions, and who waits for whom |
//! | [`paths`] | where in the program time was spent |
//! | `samples` | measured times, divided by samples |
//! | [`answer`] | what matters most, in sentences |
//! | [`event_counts`] | counted events, by function and region |
//! | [`imbalance`] | who the others wait for, and in which region |
//! | [`peers`] | calls of MPI by the ranks that they are for |
//! | `waits` | what threads wait for: locks, barriers, other ranks |
//! | [`changes`] | what differs between two sets of runs by more than the noise |
//! | [`timeline`] | the trace: what each thread did, one thing within another |
//! | [`export`] | formats of other tools |
//! | [`html`] | the report as a page for a browser |
//! | [`json`] | the summary, and differences, as JSON |
//! | [`report`] | text: the summary, the table by thread, differences; machines |
//! | [`noise`] | what interrupts a program that only computes |
//! | [`system`] | what a machine did: processors, interrupts, processes |

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod answer;
pub mod changes;
pub mod event_counts;
pub mod export;
pub mod file;
mod frames;
pub mod html;
pub mod imbalance;
pub mod interpreter;
pub mod json;
mod merge;
pub mod model;
pub mod noise;
pub mod paths;
pub mod peers;
pub mod quiet;
pub mod regions;
pub mod report;
pub mod run;
mod samples;
pub mod sleeping_threads;
mod summary_sums;
pub mod system;
pub mod time;
pub mod timeline;
mod waits;

pub use frames::SharedFrames;
pub use merge::MergedRun;
pub use model::*;
pub use run::Run;
pub use waits::WaitKind;
