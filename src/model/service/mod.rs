//! The services that offer the models. They differ in URL, version field and stream format;
//! everything else of a request and its reply is the same.
//!
//! ```text
//! messages  /v1/messages                                    header anthropic-version    SSE
//! foundry   /v1/messages                                    header anthropic-version    SSE
//! vertex    /projects/P/locations/R/.../M:streamRawPredict  field anthropic_version     SSE
//! bedrock   /model/M/invoke-with-response-stream            field anthropic_version     AWS events
//! ```

mod canonical_name;
mod event_stream;
mod framing;
mod kind;
mod model_id;
mod urls;

pub use canonical_name::canonical_name;
pub use event_stream::{DamagedFrame, EventStreamParser};
pub(super) use framing::StreamParser;
pub use kind::ServiceKind;
pub use model_id::{model_id, region_surcharge};
pub(super) use urls::ServiceUrls;
