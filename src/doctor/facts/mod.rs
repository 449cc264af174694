//! Facts: functions that read the state of the machine and do not interpret it.

pub mod hooks;
pub mod install;
pub mod machine;
pub mod profile;
pub mod servers;
pub mod service;
pub mod shell;
pub mod store;
