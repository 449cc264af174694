//! Export to OpenTelemetry, if its standard variables request it: a span for each run, request,
//! tool call, wait and sub-agent, and metrics, in the `GenAI` semantic conventions. Texts of the
//! model, the user and the tools are not exported.

mod exporter;
mod metrics;
mod otlp;
mod recorder;
mod settings;
mod span;
mod span_sender;

pub use exporter::{ExportError, TelemetryExporter};
pub use recorder::{RunEnd, SpanRecorder};
pub use settings::{ExportSettings, ExportSetup, read_settings};
