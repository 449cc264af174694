//! Limits commands to a list of domains: the lists, a resolver that returns made-up addresses, and
//! a relay through which all connections to the outside go.
//!
//! ```text
//! name ──► resolver ──► made-up address ──connect──► notifier (process) ──► relay
//!                                                                              │
//!          made-up address ──► name ──► lists ──► real address ──► its check ──► connected
//! ```
//!
//! Programs need no proxy settings; those with resolvers of their own find a proxy in the usual
//! variables.

mod body;
mod destination;
mod dns;
mod egress;
mod http_proxy;
mod lists;
mod names;
mod outgoing;
mod probe;
mod refusal_note;
mod relay;
mod upstream;

pub use egress::{Egress, EgressOptions};
pub use lists::{DomainLists, InvalidEntry};
pub use probe::{EgressGap, ProbeFailure};
pub(super) use refusal_note::refusal_note;
pub use upstream::{ChooseProxy, ProxyScheme, UpstreamProxy};
