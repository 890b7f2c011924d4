//! Tests the library in real programs, of gcc, clang, OpenMPI and MPICH if they are installed.
//! `tests/programs/context-watch.c` takes the place of the BPF program.

#![cfg(target_arch = "x86_64")]

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

mod build;
mod mpi;
mod openmp;
mod other;
mod watch;
