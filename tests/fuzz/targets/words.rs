//! The fuzzer of `src/words.rs`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::words::run(data));
