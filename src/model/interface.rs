//! The interface between a run and the model service: HTTP in production, a script in tests.

use std::pin::Pin;
use std::time::Duration;

use crate::recovery::{EndpointStatus, Fault, ModelCall, OptionalField};

use super::answer::{ModelReply, StreamProgress};
use super::credentials::Renewal;
use super::headers::RateLimits;
use super::request::RequestContent;

/// A boxed future, so that endpoints of different kinds can stand in one model chain.
pub type TransportFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Sends requests to one endpoint of the model service. It never retries: each failure is reported.
pub trait Transport: Send + Sync {
    /// Makes one attempt at one request. Dropping the future cancels it.
    fn attempt<'a>(
        &'a self,
        content: &'a RequestContent<'a>,
        call: &'a ModelCall,
        progress: &'a mut (dyn FnMut(StreamProgress) + Send),
    ) -> TransportFuture<'a, Result<ModelReply, Box<Fault>>>;

    /// Returns the input tokens of a request, which the service counts at no cost. `None` if it
    /// does not, and a fault if it cannot for now.
    fn count_tokens<'a>(
        &'a self,
        content: &'a RequestContent<'a>,
    ) -> TransportFuture<'a, Result<Option<u64>, Box<Fault>>>;

    /// Fetches a new credential, if possible.
    fn refresh(&self) -> TransportFuture<'_, Renewal>;

    /// Waits, no longer than `limit`, for work that the end of the process must not interrupt: a
    /// login that is being renewed and not yet saved.
    fn finish_renewal(&self, limit: Duration) -> TransportFuture<'_, ()>;

    /// Returns the standing of the endpoint: proven once it has answered this process successfully.
    fn endpoint_status(&self) -> EndpointStatus;

    /// Returns the host of the service, without the rest of its address, which may hold secrets.
    fn host(&self) -> String;

    /// Returns true if requests to `model` may have the field: no setting forbids it, and the
    /// service has not refused it.
    fn accepts_field(&self, model: &str, field: OptionalField) -> bool;

    /// Sends requests to `model` without the field from now on: the service refuses it.
    fn drop_field(&self, model: &str, field: OptionalField);

    /// Returns the rate limits that the latest response reported.
    fn rate_limits(&self) -> Option<RateLimits>;

    /// Returns the name of the rate limit for requests to `model`, which the runs of this host
    /// share.
    fn limit_of(&self, model: &str) -> String;
}
