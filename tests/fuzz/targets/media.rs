//! The fuzzer of `src/media.rs`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::media::run(data));
