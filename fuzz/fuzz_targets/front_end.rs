//! Arbitrary bytes through lexer, preprocessor, parser, diagnostics and pretty-printer:
//! `cargo +nightly fuzz run front_end`. The same function runs for a bounded number of inputs
//! under `cargo test -p spile-syntax --test robustness`.
#![no_main]

#[path = "../../crates/syntax/tests/common/front_end.rs"]
mod front_end;
use front_end::front_end;

libfuzzer_sys::fuzz_target!(|data: &[u8]| front_end(data));
