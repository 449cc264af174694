//! Sends spans to the collector during a run, and the remaining spans and the metrics at its end.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use reqwest::{Client, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::agent::Clock;
use crate::model::headers::parse_retry_after;
use crate::secrets::Redactor;

use super::metrics::RunMetrics;
use super::otlp;
use super::recorder::{RunEnd, SpanRecorder};
use super::settings::{Collector, ExportSettings};
use super::span::{Span, TraceId};
use super::span_sender::SpanSender;

/// Interval at which ended spans are sent (OpenTelemetry SDK, `OTEL_BSP_SCHEDULE_DELAY`).
const INTERVAL: Duration = Duration::from_secs(5);

/// Capacity of the queue of ended spans (OpenTelemetry SDK, `OTEL_BSP_MAX_QUEUE_SIZE`). Further
/// spans are dropped.
const QUEUE: usize = 2048;

/// Maximum number of spans in a request (OpenTelemetry SDK, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`).
const BATCH: usize = 512;

/// HTTP statuses after which a request is retried (OTLP over HTTP).
const RETRIED: [u16; 4] = [429, 502, 503, 504];

/// Pause before the second attempt. It doubles for each further one, and is never shorter than
/// `retry-after`.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Maximum total of the pauses of a request, so that the request fits into the end of a run.
const PAUSES_MAX: Duration = Duration::from_millis(1500);

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    #[error("{url} answered with status {status}")]
    Refused { url: String, status: StatusCode },
    #[error("the collector did not take everything within {}", humantime::format_duration(*.0))]
    Late(Duration),
    #[error("{0} spans were dropped: the collector is too slow")]
    Dropped(u64),
}

/// The HTTP client for the collector, with the redaction of secrets.
#[derive(Clone)]
struct CollectorLink {
    client: Client,
    redactor: Arc<Redactor>,
}

impl CollectorLink {
    /// Sends one request, with retries while the collector is overloaded.
    async fn post(&self, collector: &Collector, mut body: Value) -> Result<(), ExportError> {
        self.redactor.redact_json(&mut body);
        let url = || self.redactor.redact(&collector.url);
        let begun = Instant::now();
        let (mut pause, mut paused) = (FIRST_PAUSE, Duration::ZERO);
        loop {
            let left = collector.timeout.saturating_sub(begun.elapsed());
            let mut request = self.client.post(&collector.url).timeout(left).json(&body);
            for (name, value) in &collector.headers {
                request = request.header(name, value);
            }
            let answer = request.send().await.map_err(|error| ExportError::Unreachable {
                url: url(),
                why: self.redactor.redact(&error.without_url().to_string()),
            })?;
            let status = answer.status();
            if status.is_success() {
                return Ok(());
            }
            let retry_after =
                parse_retry_after(answer.headers(), status.as_u16(), "", SystemTime::now());
            let wait = retry_after.map_or(pause, |requested| requested.wait.max(pause));
            paused += wait;
            let is_late = paused > PAUSES_MAX || begun.elapsed() + wait > collector.timeout;
            if is_late || !RETRIED.contains(&status.as_u16()) {
                return Err(ExportError::Refused { url: url(), status });
            }
            sleep(wait).await;
            pause *= 2;
        }
    }
}

/// The export of one run.
pub struct TelemetryExporter {
    settings: ExportSettings,
    link: CollectorLink,
    clock: Clock,
    sender: SpanSender,
    sending: JoinHandle<Result<(), ExportError>>,
}

impl TelemetryExporter {
    /// Starts the export. `client` uses the proxies and certificates of the run.
    pub fn start(
        settings: ExportSettings,
        client: Client,
        redactor: Arc<Redactor>,
        clock: Clock,
    ) -> Self {
        let link = CollectorLink { client, redactor };
        let (queue, ended) = mpsc::channel(QUEUE);
        let sender = SpanSender { queue, dropped: Arc::default() };
        let sending = tokio::spawn(send_spans(settings.clone(), link.clone(), ended));
        Self { settings, link, clock, sender, sending }
    }

    pub fn recorder(&self) -> SpanRecorder {
        let parent = self.settings.parent.map(|parent| parent.span);
        SpanRecorder::new(self.sender.clone(), parent, self.clock)
    }

    /// Sends the remaining spans and the metrics, within `limit`.
    ///
    /// # Errors
    /// Some telemetry was not exported.
    pub async fn finish(
        self,
        recorder: SpanRecorder,
        end: RunEnd,
        limit: Duration,
    ) -> Result<(), ExportError> {
        let Self { settings, link, clock, sender: SpanSender { queue, dropped }, sending } = self;
        let (metrics, begun) = recorder.finish(end);
        // The sending task ends when the queue is closed.
        drop(queue);
        let abort = sending.abort_handle();
        let rest = async {
            let times = (begun, clock.date());
            let (spans, metrics) =
                tokio::join!(sending, send_metrics(&settings, &link, &metrics, times));
            // The panic hook has already reported a panic.
            spans.unwrap_or(Ok(())).and(metrics)
        };
        let sent = timeout(limit, rest).await.unwrap_or_else(|_| {
            abort.abort();
            Err(ExportError::Late(limit))
        });
        let dropped = dropped.load(Ordering::Relaxed);
        sent.and(if dropped > 0 { Err(ExportError::Dropped(dropped)) } else { Ok(()) })
    }
}

async fn send_metrics(
    settings: &ExportSettings,
    link: &CollectorLink,
    metrics: &RunMetrics,
    times: (SystemTime, SystemTime),
) -> Result<(), ExportError> {
    let Some(collector) = &settings.metrics else { return Ok(()) };
    let body = otlp::metrics_request(&settings.resource, metrics, times);
    link.post(collector, body).await
}

/// Sends ended spans until the queue is closed, also after an error. Returns the first error.
async fn send_spans(
    settings: ExportSettings,
    link: CollectorLink,
    mut ended: mpsc::Receiver<Span>,
) -> Result<(), ExportError> {
    let trace = settings.parent.map_or_else(TraceId::random, |parent| parent.trace);
    let mut result = Ok(());
    let mut batch = Vec::new();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let room = BATCH - batch.len();
        let (is_due, is_open) = tokio::select! {
            biased;
            taken = ended.recv_many(&mut batch, room) => (batch.len() >= BATCH, taken > 0),
            _ = ticks.tick() => (true, true),
        };
        if (is_due || !is_open) && !batch.is_empty() {
            let spans = mem::take(&mut batch);
            if let Some(collector) = &settings.traces {
                let body = otlp::trace_request(&settings.resource, trace, &spans);
                result = result.and(link.post(collector, body).await);
            }
        }
        if !is_open {
            return result;
        }
    }
}
