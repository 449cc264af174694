//! The recovery core under any events: what the tests hold of it holds here.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../recovery/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the tests of it are not run here")]
mod recovery;

fuzz_target!(|data: &[u8]| recovery::arbitrary::play(data));
