//! The parts that every handler has: numbers, jumps, calls, errors, entry and exit, and subprograms
//! that several handlers share.
//!
//! In: a body and its [`BodyContext`](crate::lower::body_context::BodyContext). Out: its code from the first test
//! to the exit, and the shared subprograms. Invariant: every way out goes through the label `done`,
//! where locks and the busy word are released. Programs around handlers are made in
//! [`crate::programs`] and `compile`.
//!
//! | file | what it lowers |
//! |---|---|
//! | `entry` | the code around a handler's body |
//! | `prefilter` | the leading tests, which run before everything else |
//! | `arith` | numbers |
//! | `calls` | activations of functions, and errors that pass through them |
//! | `error_kinds` | the errors that instructions raise |
//! | `errors` | raising, catching, messages |
//! | `resumable_loop` | bodies with loops |
//! | `outline` | operations with helper calls, as subprograms of several handlers |
//! | `global_subprogram` | subprograms that the verifier checks once, for all arguments |

pub(crate) mod arith;
pub(crate) mod calls;
pub(crate) mod entry;
pub(crate) mod error_kinds;
pub(crate) mod errors;
pub(crate) mod global_subprogram;
pub(crate) mod outline;
pub(crate) mod prefilter;
pub(crate) mod resumable_loop;
