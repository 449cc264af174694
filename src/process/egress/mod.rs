//! Holds a job to a list of domains, without privileges: the calls that make, connect, bind and
//! open sockets are decided by outlast (seccomp user notification).
//!
//! ```text
//! command ──socket, connect, bind, listen──► kernel ──notification──► notifier (thread of outlast)
//!    └────connected to────► relay in outlast ◄──source address: target── connection register ◄─┘
//! ```
//!
//! The kernel executes none of these calls with arguments that another thread could change after
//! the decision. The notifier creates the socket itself, passes a copy to the command, and makes
//! later calls on its own duplicate. The only exception is `bind` of Unix and netlink sockets: a
//! thread that replaces one of them by a TCP socket gains nothing, since `connect` and `listen`
//! check the bound address again.

mod address;
mod decision;
mod filter;
mod job_egress;
mod kept_sockets;
mod local_ports;
mod notification;
mod notifier;
mod pending_connect;
mod probe;
mod refusal;
mod session;
mod unix_paths;

pub(super) use filter::SocketFilter;
pub use job_egress::{
    ConnectionRegister, ConnectionTarget, EgressTerms, JobEgress, RegisteredConnection, RunEgress,
    UnixSocketTerms,
};
pub(super) use notifier::start_notifier;
pub(super) use probe::run_probe;
pub use probe::{PROBE_ARGUMENT, ProbeResult};
pub use refusal::{Refusal, RefusalLog, RefusalReason};
pub use session::SessionEgress;
