//! See the module of the same name.

mod access;
mod builtin;
mod client;
mod faults;
mod files;
mod referee;
mod replies;
mod rules;
mod servers;
mod turns;
