//! Checks: pure functions from facts to findings.

mod acceptance;
mod clouds;
pub mod credentials;
pub mod environment;
pub mod hooks;
pub mod installation;
pub mod machine;
pub mod sandbox;
pub mod servers;
pub mod service;
pub mod settings;
pub mod store;
