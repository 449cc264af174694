//! See the module of the same name.

mod builtin;
mod client;
mod faults;
mod files;
mod referee;
mod replies;
mod turns;
