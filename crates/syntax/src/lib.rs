//! Text to syntax tree: sources, lexer, preprocessor, parser, pretty-printer, formatter,
//! diagnostics.
//!
//! ```text
//! Sources ─► lexer ─► preproc (arguments, macros, conditionals) ─► parser ─► ast::File
//! ```
//!
//! No I/O: files come in as bytes, the environment as [`preproc::PreprocEnv`]. Every pass takes
//! time linear in its input, never panics, and goes on after an error so that one run shows several
//! errors.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

pub mod ast;
pub mod codes;
pub mod diag;
pub mod fmt;
pub mod lexer;
pub mod parser;
pub mod preproc;
pub mod pretty;
pub mod source;
pub mod token;
pub mod visit;
