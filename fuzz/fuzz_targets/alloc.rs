//! Scripts for the malloc, made up by libFuzzer: `ci/fuzz.sh`, or `cargo +nightly fuzz run alloc`. What a script does,
//! and what must hold, is in the library's tests, which run random ones too.
#![no_main]

// The tests use more of it.
#[allow(dead_code)]
#[path = "../../crates/corelocal/tests/scripted/mod.rs"]
mod scripted;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| scripted::run(scripted::of_bytes(bytes)));
