//! Tests on files that compilers and linkers make here, and on damaged ones.

mod aarch64;
mod breakpoints;
mod build;
mod damage;
mod dwarf;
mod exits;
mod files;
mod inside;
mod queries;
