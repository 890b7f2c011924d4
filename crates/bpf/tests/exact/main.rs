//! Compiled handlers against the reference interpreter, on the running kernel: the same
//! program gives the same output, the same errors, the same globals. Skipped where BPF is not allowed.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

mod decimals;
mod directed;
mod formats;
mod iterate;
mod large;
mod layouts;
mod listings;
mod machine;
mod own;
mod parts;
mod races;
mod random;
mod regexes;
mod world;
