//! The fuzzer of `src/history.rs`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::history::run(data));
