//! The fuzzer of `src/sse.rs`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::sse::run(data));
