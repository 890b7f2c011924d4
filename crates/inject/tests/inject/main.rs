//! Hooks in programs of every kind: the counts are those that the programs print, and the programs do not notice.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

mod image;
mod target;

mod attaching;
mod exact;
mod ordinary;
mod times;
