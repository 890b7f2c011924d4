//! What every handler has: numbers, jumps, calls, errors, its beginning and end, and subprograms that
//! several handlers share.
//!
//! | file | what it lowers |
//! |---|---|
//! | `entry` | what stands around a handler's body |
//! | `arith` | numbers |
//! | `calls` | activations of functions, and errors that pass through them |
//! | `errors` | failing, catching, messages |
//! | `resumable_loop` | bodies with loops |
//! | `outline` | code that many handlers share as subprograms |
//! | `global_subprogram` | subprograms that the verifier checks once, for all arguments |
//! | `pool` | constants, subprograms and record shapes of an object |

pub(crate) mod arith;
pub(crate) mod calls;
pub(crate) mod entry;
pub(crate) mod errors;
pub(crate) mod global_subprogram;
pub(crate) mod outline;
pub(crate) mod pool;
pub(crate) mod resumable_loop;
