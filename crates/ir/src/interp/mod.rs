//! The reference interpreter: it defines the results for every other executor, and executes
//! controller handlers.
//!
//! In: a program and an [`Env`], which has the globals, the machine and the output. Out: the
//! effects on that environment, or the error that ended the handler. Which handler runs when, and
//! with which locks, is decided by the caller.
//!
//! It keeps its own call stack (bounded by MAXNESTING), so no script can overflow the host's.
//! It never panics: a program that the verifier refuses ends in an error. Runs are
//! deterministic given the [`Env`].

mod array;
mod element;
mod env;
mod exec;
mod foreach;
mod globals;
mod last_match;
mod sort;
mod strings;
pub(crate) mod value;

pub use array::MemArray;
pub use element::{
    AGGREGATE_OVERFLOW, ARRAY_OVERFLOW, Cell, Element, is_overflow, matches, overflow,
};
pub use env::{Env, Globals, iterate_elements};
pub use exec::{Limit, run};
pub use foreach::ForeachIter;
pub use globals::MemGlobals;
pub use strings::{
    TokenizeState, evaluate, invalid_unicode, string_to_fp, strtol, substr, unicode,
};
pub use value::{Fault, ScriptError, Value};

#[cfg(any(test, feature = "testgen"))]
#[path = "../tests/testenv.rs"]
pub mod testenv;
