//! The fuzzer of `src/journal.rs`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::journal::run(data));
