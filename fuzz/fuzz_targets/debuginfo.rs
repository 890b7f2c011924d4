//! Arbitrary bytes as an ELF file with debugging information: `cargo +nightly fuzz run debuginfo`.
//! The same function runs over damaged files under `cargo test -p spile-debuginfo`.
#![no_main]

#[path = "../../crates/debuginfo/tests/it/ask.rs"]
mod ask;

libfuzzer_sys::fuzz_target!(|data: &[u8]| ask::ask(data.to_vec()));
