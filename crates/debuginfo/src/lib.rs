//! Symbols and debugging information of programs, libraries and the kernel.
//!
//! Answers queries about ELF files: names and addresses, separate debugging information, DWARF.
//! Files are mapped, and only the parts that an answer needs are read. Every file is treated as
//! hostile: damaged bytes make an answer empty or an [`Error`], never a panic or an endless loop.
//!
//! Addresses are those of the file as linked. Its load address is the caller's concern.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

mod aarch64;
mod ada;
pub mod breakpoints;
mod caches;
mod calls;
pub mod cfi;
mod code;
mod convention;
pub mod copies;
mod debuginfod;
pub mod demangle;
mod dwarf;
pub mod dynamic;
mod enclosing;
mod entries;
mod error;
pub mod exits;
mod find;
mod flow;
mod functions;
pub mod go_entry;
mod haskell;
pub mod ifunc;
mod image;
mod index;
mod kernel;
mod labels;
mod languages;
mod lines;
mod loc_program;
mod location;
mod map;
mod module;
mod partial;
pub mod plt;
pub mod processors;
mod prologue;
pub mod relocations;
mod scopes;
pub mod sdt;
mod split;
pub mod stack_hazards;
mod statements;
mod strided;
mod symbolize;
mod symbols;
pub mod tail_calls;
mod thread_local;
pub mod trust;
mod types;
mod unit;
mod unlinked;
pub mod unwind;
pub mod uprobes;
mod variables;
mod variants;
mod x86_64;

pub use caches::TypeId;
pub use calls::{CallKind, Calls, DescribedCall, JumpAt};
pub use convention::{ReturnConvention, ReturnWord};
pub use dwarf::Dwarf;
pub use error::Error;
pub use find::SearchPaths;
pub use functions::{FunctionLocation, LocationKinds, Pattern};
pub use image::{Image, Segment};
pub use kernel::{KernelQuery, ModuleListings, build_id_of_notes};
pub use labels::LabelLocation;
pub use loc_program::{LocBinary, LocStep, Location, Unavailable};
pub use module::DebugFile;
pub use split::MissingUnits;
pub use statements::{LineQuery, StatementLocation, Statements};
pub use symbolize::{LinesFrom, SourceFrame};
pub use symbols::{Binding, ElfSymbol, ElfSymbols, SymbolKind};
pub use types::{CType, Member};
pub use unit::Die;
pub use unlinked::PlacedSection;
pub use variables::DwarfVariable;
pub use variants::Variants;
