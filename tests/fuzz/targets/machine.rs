//! The recovery core under any events: what the tests hold of it holds here.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../recovery/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the tests of it are not run here")]
mod recovery;

#[path = "../../support"]
mod support {
    #[expect(dead_code, reason = "the tests of the core use a part of it")]
    pub(crate) mod golden;
    pub(crate) mod rotation;
}

fuzz_target!(|data: &[u8]| recovery::arbitrary::play(data));
