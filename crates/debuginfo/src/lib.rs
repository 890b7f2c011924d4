//! Symbols and debugging information of programs, libraries and the kernel.
//!
//! Answers questions about ELF files: names and addresses, separate debugging information,
//! DWARF. Files are mapped and looked at where an answer needs it. Every file is taken for
//! hostile: wrong bytes make an answer empty or an [`Error`], never a panic or an endless loop.
//!
//! Addresses are those that the file was linked to. Where it is loaded is the caller's matter.

pub mod cfi;
mod debuginfod;
pub mod demangle;
mod error;
mod find;
mod image;
mod map;
mod module;
pub mod plt;
pub mod sdt;
mod symbols;

pub use error::Error;
pub use find::Search;
pub use image::{Image, Segment};
pub use module::Module;
pub use symbols::{Binding, Symbol, SymbolKind, Symbols};
