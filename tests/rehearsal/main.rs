//! The tests of the fake model server: `cargo test -p outlast-rehearsal` compiles it and the core only.

mod access;
mod builtin;
mod client;
mod faults;
mod files;
mod replies;
mod request_validator;
mod rules;
mod servers;
mod turns;
