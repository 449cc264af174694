//! Holds a job to a list of domains, without privileges: the calls that make, connect, bind and
//! open sockets are decided by outlast (seccomp user notification).
//!
//! ```text
//! command ──socket, connect, bind, listen──► kernel ──notification──► notifier (thread of outlast)
//!    └────connected to────► relay in outlast ◄──source address: target── connection register ◄─┘
//! ```
//!
//! The notifier never lets one of these calls go on with arguments that another thread could change
//! meanwhile. It makes the socket itself, hands a copy over, and keeps a duplicate on which it
//! later acts. The only call that the kernel executes itself is `bind` of Unix and netlink sockets.
//! A thread that puts a TCP socket in their place gains nothing: `connect` and `listen` check the
//! bound address again.

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
