//! See the module of the same name.

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
