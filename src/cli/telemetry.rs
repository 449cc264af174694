//! Export to OpenTelemetry: begins with a run, and ends soon after its result.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::Clock;
use crate::model::{CaFile, RequestTimers, http_client};
use crate::telemetry::{ExportError, RunEnd, SpanRecorder, TelemetryExporter, read_settings};

use super::process_context::SharedOutput;
use super::settings::Settings;
use super::signals::SignalState;

/// Time limit of the wait for the collector at the end of the process.
const FLUSH_LIMIT: Duration = Duration::from_millis(2500);

/// Like [`FLUSH_LIMIT`], after an interrupt: the process has to end soon.
const INTERRUPTED_FLUSH_LIMIT: Duration = Duration::from_millis(300);

/// Begins the export, if the variables ask for it. Returns warnings about variables without effect,
/// too.
pub(super) fn start(
    settings: &Settings,
    shared: &SharedOutput,
    clock: Clock,
) -> (Option<TelemetryExporter>, Vec<String>) {
    let setup = read_settings(&settings.variables);
    let mut warnings = setup.warnings;
    let Some(collectors) = setup.settings else { return (None, warnings) };
    for secret in collectors.secrets() {
        shared.secrets.add(secret);
    }
    let mut terms = settings.endpoint.connection.clone();
    terms.ca_files.extend(collectors.certificate.clone().map(CaFile::from));
    // All collectors of a run are reached in the same way.
    let url = collectors.urls().next().unwrap_or_default().to_owned();
    let exporter = match http_client(&url, RequestTimers::default(), &terms) {
        Ok(client) => {
            let redactor = Arc::clone(&shared.redactor);
            Some(TelemetryExporter::start(collectors, client, redactor, clock))
        }
        Err(error) => {
            warnings.push(format!("nothing is exported to OpenTelemetry: {error}"));
            None
        }
    };
    (exporter, warnings)
}

/// Sends the remaining data.
pub(super) async fn finish(
    exporter: TelemetryExporter,
    spans: SpanRecorder,
    end: RunEnd,
    signals: &SignalState,
) -> Result<(), ExportError> {
    let limit = if signals.interrupt().is_some() { INTERRUPTED_FLUSH_LIMIT } else { FLUSH_LIMIT };
    exporter.finish(spans, end, limit).await
}
