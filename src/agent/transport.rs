//! The interface between a run and the model service: HTTP in production, a script in tests.

use std::pin::Pin;
use std::time::Duration;

use crate::model::{ModelClient, ModelReply, RateLimits, Renewal, RequestContent, StreamProgress};
use crate::recovery::{EndpointStatus, Fault, ModelCall, OptionalField};

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

    /// Waits, no longer than `limit`, for a renewal that the end of the process must not interrupt.
    fn finish_renewal(&self, limit: Duration) -> TransportFuture<'_, ()>;

    /// Returns whether the endpoint has answered this process successfully.
    fn endpoint_status(&self) -> EndpointStatus;

    /// Returns the host of the service.
    fn host(&self) -> String;

    /// Returns true if requests to `model` may have the field: no setting forbids it, and the
    /// service has not refused it.
    fn accepts_field(&self, model: &str, field: OptionalField) -> bool;

    /// Sends requests to `model` without the field from now on.
    fn drop_field(&self, model: &str, field: OptionalField);

    /// Returns the rate limits that the latest response reported.
    fn rate_limits(&self) -> Option<RateLimits>;

    /// Returns the name of the rate limit for requests to `model`, which the runs of this host
    /// share.
    fn limit_of(&self, model: &str) -> String;
}

impl Transport for ModelClient {
    fn attempt<'a>(
        &'a self,
        content: &'a RequestContent<'a>,
        call: &'a ModelCall,
        progress: &'a mut (dyn FnMut(StreamProgress) + Send),
    ) -> TransportFuture<'a, Result<ModelReply, Box<Fault>>> {
        Box::pin(self.attempt(content, call, progress))
    }

    fn count_tokens<'a>(
        &'a self,
        content: &'a RequestContent<'a>,
    ) -> TransportFuture<'a, Result<Option<u64>, Box<Fault>>> {
        Box::pin(self.count_tokens(content))
    }

    fn refresh(&self) -> TransportFuture<'_, Renewal> {
        Box::pin(self.refresh())
    }

    fn finish_renewal(&self, limit: Duration) -> TransportFuture<'_, ()> {
        Box::pin(self.finish_renewal(limit))
    }

    fn endpoint_status(&self) -> EndpointStatus {
        self.endpoint_status()
    }

    fn host(&self) -> String {
        self.host()
    }

    fn accepts_field(&self, model: &str, field: OptionalField) -> bool {
        self.accepts_field(model, field)
    }

    fn drop_field(&self, model: &str, field: OptionalField) {
        self.drop_field(model, field);
    }

    fn rate_limits(&self) -> Option<RateLimits> {
        self.rate_limits()
    }

    fn limit_of(&self, model: &str) -> String {
        self.limit_of(model)
    }
}
