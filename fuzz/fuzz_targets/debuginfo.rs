//! Arbitrary bytes as an ELF file with debugging information: `cargo +nightly fuzz run debuginfo`.
//! The same function runs over damaged files under `cargo test -p spile-debuginfo`.
#![no_main]

#[path = "../../crates/debuginfo/tests/it/queries.rs"]
mod queries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| queries::run_all(data.to_vec()));
