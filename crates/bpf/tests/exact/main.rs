//! Compares compiled handlers with the reference interpreter, on the running kernel: output, errors
//! and globals have to be equal. Skipped if BPF is not allowed.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

mod controller_hits;
mod decimals;
mod directed;
mod formats;
mod iterate;
mod large;
mod layouts;
mod listings;
mod machine;
#[path = "../common/process.rs"]
mod process;
mod races;
mod random;
mod regexes;
mod substrings;
mod world;
