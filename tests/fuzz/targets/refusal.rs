//! The fuzzer of `src/refusal.rs`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::refusal::run(data));
