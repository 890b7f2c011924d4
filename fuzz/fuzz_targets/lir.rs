//! Arbitrary bytes through reader, verifier, printer, interpreter and simplifier of LIR:
//! `cargo +nightly fuzz run lir`. The same function runs for a bounded number of inputs under
//! `cargo test -p spile-lir --test properties`.
#![no_main]

#[path = "../../crates/lir/tests/common/robust.rs"]
mod robust;
use robust::all_stages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| all_stages(data));
