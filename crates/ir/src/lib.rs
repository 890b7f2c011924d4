//! The intermediate representation: definition, text form and reader, verifier, storage
//! classes, optimiser, and the reference interpreter. No I/O.
//!
//! | module | what |
//! |---|---|
//! | [`program`] | the definition: globals, functions, handlers, blocks, instructions |
//! | [`intrinsics`] | the table of operations that tapset functions are made of |
//! | [`fmt`] | `printf` formats: reader and rendering |
//! | [`interp`] | the reference interpreter, and globals in ordinary memory |
//! | [`text`], [`reader`], `token` | the text form |
//! | [`regex`] | regular expressions as tables |
//! | [`marks`] | the data flow of texts that only the controller can make |
//! | [`analysis`] | facts about bodies: orders of blocks, fixpoints, liveness, contents |
//! | [`opt`] | the optimiser |
//! | [`verify`] | the invariants of the IR |
//! | [`storage`] | how each global is stored |
//! | [`visit`] | the operands and effects of instructions |
//! | [`wide`] | texts of floating-point numbers and of integers of 128 bits |
//! | [`stats`], [`hist`] | values of statistics, pictures of histograms |
//! | [`event`] | the events that handlers run at |
//! | `form` | text forms that print and read from one description |
//! | `testgen` | random programs, for tests |

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod analysis;
pub mod event;
pub mod fmt;
mod form;
pub mod hist;
pub mod interp;
pub mod intrinsics;
pub mod marks;
pub mod opt;
pub mod program;
pub mod reader;
pub mod regex;
pub mod stats;
pub mod storage;
#[cfg(any(test, feature = "testgen"))]
#[path = "tests/testgen.rs"]
pub mod testgen;
pub mod text;
mod token;
pub mod verify;
pub mod visit;
pub mod wide;

pub use analysis::body_facts::{BodyFacts, ProgramFacts};
pub use event::*;
pub use intrinsics::Intrinsic;
pub use program::*;
