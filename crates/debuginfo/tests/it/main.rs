//! The crate over files that compilers and linkers make here, and over damaged ones.

mod ask;
mod build;
mod damage;
mod dwarf;
mod exits;
mod files;
