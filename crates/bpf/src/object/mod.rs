//! A compiled object, as the kernel or a loader of files receives it.
//!
//! In: functions, maps and constants. Out: programs linked in memory ([`link`]), or an ELF file
//! ([`elf`]). Invariant: both hold the same instructions. Nothing here opens a file or calls the
//! kernel.
//!
//! | module | its one job |
//! |---|---|
//! | [`link`] | each program with the subprograms that it reaches |
//! | [`elf`] | writes a relocatable object for libbpf and bpftool |
//! | [`dump`] | the programs as text |
//! | [`btf`], `debug_info` | types, functions and source lines |

pub mod btf;
pub(crate) mod debug_info;
pub mod dump;
pub mod elf;
pub mod link;
