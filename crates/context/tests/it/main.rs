//! The library in real programs: those of gcc, clang, OpenMPI and MPICH where they are installed,
//! with `tests/programs/context-watch.c` in the place of a BPF program.

#![cfg(target_arch = "x86_64")]

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

mod build;
mod mpi;
mod openmp;
mod other;
mod watch;
