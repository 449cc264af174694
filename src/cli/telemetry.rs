//! Export to OpenTelemetry: begins with a run, and ends soon after its result.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::{Clock, RunOutcome};
use crate::model::{CaFile, RequestTimers, http_client};
use crate::recovery::{Money, StopReason};
use crate::telemetry::{ExportError, RunEnd, SpanRecorder, TelemetryExporter, read_settings};
use crate::transcript::Usage;

use super::process_context::SharedOutput;
use super::settings::Settings;
use super::signals::SignalState;

/// Time limit of the wait for the collector at the end of the process.
const FLUSH_LIMIT: Duration = Duration::from_millis(2500);

/// Like [`FLUSH_LIMIT`], after an interrupt: the process has to end soon.
const INTERRUPTED_FLUSH_LIMIT: Duration = Duration::from_millis(300);

/// Facts about the end of a run, for telemetry.
pub(super) struct RunFacts {
    reason: StopReason,
    cost: Option<f64>,
    turns: u32,
    usage: Usage,
}

impl RunFacts {
    pub(super) fn of(outcome: &RunOutcome) -> Self {
        Self {
            reason: outcome.reason,
            cost: outcome.cost().map(Money::as_dollars),
            turns: outcome.stats.turns,
            usage: outcome.stats.usage,
        }
    }
}

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
    facts: &RunFacts,
    exit_code: u8,
    signals: &SignalState,
) -> Result<(), ExportError> {
    let end = RunEnd {
        reason: facts.reason.name(),
        exit_code,
        is_error: exit_code != 0,
        cost: facts.cost,
        turns: facts.turns,
        usage: facts.usage,
    };
    let limit = if signals.interrupt().is_some() { INTERRUPTED_FLUSH_LIMIT } else { FLUSH_LIMIT };
    exporter.finish(spans, end, limit).await
}
