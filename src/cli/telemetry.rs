//! Export to OpenTelemetry: begins with a run, and ends soon after its result.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::RunOutcome;
use crate::model::{RequestTimers, http_client};
use crate::recovery::{Money, StopReason};
use crate::telemetry::{RunEnd, SpanRecorder, TelemetryExporter, read_settings};
use crate::transcript::Usage;

use super::args::Verbosity;
use super::run::RunJob;

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
pub(super) fn start(job: &RunJob) -> (Option<TelemetryExporter>, Vec<String>) {
    let setup = read_settings(&job.settings.variables);
    let mut warnings = setup.warnings;
    let Some(settings) = setup.settings else { return (None, warnings) };
    for secret in settings.secrets() {
        job.shared.secrets.add(secret);
    }
    let endpoint = &job.settings.endpoint;
    let ca_files: Vec<_> = endpoint
        .ca_files
        .iter()
        .cloned()
        .chain(settings.certificate.clone().map(Into::into))
        .collect();
    // All collectors of a run are reached in the same way.
    let url = settings.urls().next().unwrap_or_default().to_owned();
    let (timers, identity) = (RequestTimers::default(), endpoint.identity.as_ref());
    let client = http_client(&url, timers, &ca_files, identity, &endpoint.proxies);
    let exporter = match client {
        Ok(client) => {
            let redactor = Arc::clone(&job.shared.redactor);
            Some(TelemetryExporter::start(settings, client, redactor, job.clock))
        }
        Err(error) => {
            warnings.push(format!("nothing is exported to OpenTelemetry: {error}"));
            None
        }
    };
    (exporter, warnings)
}

/// Sends the remaining data. A failure is a warning: it does not change how the run ended.
pub(super) async fn finish(
    job: &RunJob,
    exporter: TelemetryExporter,
    spans: SpanRecorder,
    facts: &RunFacts,
    exit_code: u8,
) {
    let end = RunEnd {
        reason: facts.reason.name(),
        exit_code,
        is_error: exit_code != 0,
        cost: facts.cost,
        turns: facts.turns,
        usage: facts.usage,
    };
    let limit =
        if job.signals.interrupt().is_some() { INTERRUPTED_FLUSH_LIMIT } else { FLUSH_LIMIT };
    if let Err(error) = exporter.finish(spans, end, limit).await
        && (job.host.is_none() || job.settings.output.verbosity == Some(Verbosity::Detail))
    {
        job.shared.warn(&format!("telemetry was not exported: {error}"));
    }
}
