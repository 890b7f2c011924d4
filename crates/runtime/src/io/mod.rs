//! The outside world of a session.
//!
//! In: descriptors, processes, sockets. Out: bytes and events for the session's one loop.
//! Invariant: no call here blocks for a time that another process decides, except output to a
//! reader that pauses (`reader_wait`).
//!
//! | module | its one job |
//! |---|---|
//! | [`output`], `reader_wait` | the script's output, and how long it waits for its reader |
//! | [`series`] | files that follow one another |
//! | [`rows`] | the script's output as typed values |
//! | [`background`], [`recorder`] | sessions that leave the terminal, and clients that attach to them |
//! | [`input`] | standard input for `input.*` probes |
//! | [`child`] | the command of `-c` and the process of `-x` |
//! | [`commands`] | commands of `system()` |
//! | [`procfs`] | files of `procfs` probes |
//! | [`prometheus`] | answers scrapes over HTTP |

pub mod background;
pub mod child;
pub mod commands;
pub mod input;
pub mod output;
pub mod procfs;
pub mod prometheus;
pub(crate) mod reader_wait;
pub mod recorder;
pub mod rows;
pub mod series;
