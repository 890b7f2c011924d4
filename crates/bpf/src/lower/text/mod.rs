//! Strings, formats and output.
//!
//! In: operands that are slots of the per-CPU area or constants. Out: code that fills slots,
//! or appends to the processor's output. Invariant: a slot has zeros behind its text. The formats
//! of numbers are those of [`spile_ir::fmt`], which renders the controller's.
//!
//! | file | what it lowers |
//! |---|---|
//! | `strings`, `compare` | copies, comparisons, substrings |
//! | `search`, `replace`, `quote`, `unicode` | string functions that work byte by byte |
//! | `format`, `append` | text built from formats |
//! | `decimal` | text to floating-point numbers |
//! | `regex` | regular expressions |
//! | `fields` | arguments of formats, fields of records |
//! | `escapes` | the table of escapes |
//! | `memory` | `%m` and `%M` |
//! | `output` | records of the ring buffer |

pub(crate) mod append;
pub(crate) mod compare;
pub(crate) mod decimal;
pub(crate) mod escapes;
pub(crate) mod fields;
pub(crate) mod format;
pub(crate) mod memory;
pub(crate) mod output;
pub(crate) mod quote;
pub(crate) mod regex;
pub(crate) mod replace;
pub(crate) mod search;
pub(crate) mod strings;
pub(crate) mod unicode;
