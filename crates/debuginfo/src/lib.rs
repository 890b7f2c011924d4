//! Symbols and debugging information of programs, libraries and the kernel.
//!
//! Answers questions about ELF files: names and addresses, separate debugging information,
//! DWARF. Files are mapped and looked at where an answer needs it. Every file is taken for
//! hostile: wrong bytes make an answer empty or an [`Error`], never a panic or an endless loop.
//!
//! Addresses are those that the file was linked to. Where it is loaded is the caller's matter.

pub mod cfi;
mod convention;
mod debuginfod;
pub mod demangle;
mod dwarf;
pub mod dynamic;
mod error;
pub mod exceptions;
pub mod exits;
mod find;
mod functions;
mod image;
mod index;
mod kernel;
mod lines;
mod location;
mod map;
mod module;
mod needed;
pub mod plt;
mod scopes;
pub mod sdt;
mod statements;
mod symbolize;
mod symbols;
pub mod trust;
mod types;
mod unlinked;
mod variables;

pub use convention::{Returned, Word};
pub use dwarf::{Die, Dwarf};
pub use error::Error;
pub use find::Search;
pub use functions::{FunctionPlace, Pattern, Which};
pub use image::{Image, Segment};
pub use kernel::{Listed, Wanted, build_id_of_notes};
pub use location::{Absent, LocBinary, LocOp, Location};
pub use module::Module;
pub use statements::{LineQuery, StatementPlace, Statements};
pub use symbolize::{Frame, LinesFrom};
pub use symbols::{Binding, Symbol, SymbolKind, Symbols};
pub use types::{Member, Type, TypeId};
pub use unlinked::Placed;
pub use variables::Variable;
