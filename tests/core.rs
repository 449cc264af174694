//! The tests of the pure core: `cargo test -p outlast-core` compiles nothing else.

mod json;
mod pacing;
mod recovery;
mod secrets;
mod support {
    pub(crate) mod golden;
    pub(crate) mod rotation;
}
mod transcript;
