//! Judges facts. Nothing is looked at here that was not looked at before.

mod acceptance;
pub mod credentials;
pub mod environment;
pub mod hooks;
pub mod installation;
pub mod machine;
pub mod servers;
pub mod service;
pub mod settings;
pub mod store;
