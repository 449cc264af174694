//! All tests but those of the pure core (`tests/core.rs`) and of the fake model server
//! (`tests/rehearsal/main.rs`), in one binary: a change links once.

#![deny(unsafe_code)]

mod agent;
mod batch;
mod cli;
mod doctor;
mod dropin;
#[expect(unreachable_pub, reason = "it is also the library of the fuzz targets")]
#[path = "fuzz/src/lib.rs"]
mod fuzz;
mod hooks;
mod host;
mod hostile;
mod journal;
mod manual;
mod map;
mod mcp;
mod sdk;
/// Those that need more than the core.
mod secrets {
    #[expect(dead_code, reason = "the tests of the core use the rest of it")]
    pub(crate) mod examples;
    mod speed;
}
mod support;
mod tidy;
mod tools;
mod transcript {
    #[expect(dead_code, reason = "the tests of the core use the rest of it")]
    pub(crate) mod arbitrary;
}
mod trials;
mod wire;
