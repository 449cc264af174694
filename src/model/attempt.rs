//! Makes one HTTP attempt, under all timers, and reads the response.

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Request, Response};
use tokio::time::{Instant, timeout, timeout_at};

use crate::process::timeout_while_running;
use crate::recovery::{FailureStage, Fault, FaultKind, ModelCall, ReplyMode, Timer};
use crate::response_body::{ResponseBody, unread_compression};

use super::answer::{
    ModelReply, StreamProgress, invalid_response, parse_message, parse_received,
    without_further_lines,
};
use super::assemble::{AssemblyStep, ReplyAssembly};
use super::error_body::truncate_message;
use super::event_checks::is_event_line;
use super::fault::{
    body_text, fault_of_response, fault_without_response, torn_body, with_named_wait,
};
use super::headers::{RateLimits, request_id, wall_clock};
use super::service::StreamParser;
use super::timers::RequestTimers;
use super::transport::ConnectionMade;

/// Limits on reading the body of an error: size in bytes, and time.
const ERROR_LIMIT: usize = 64 * 1024;
const ERROR_TIME: Duration = Duration::from_secs(5);
/// The most bytes of a foreign body that are quoted.
const OPENING_BYTES: usize = 200;
/// Maximum size of a reply, in bytes. Far above any output limit, and below any memory limit.
const REPLY_LIMIT: usize = 64 * 1024 * 1024;
/// Maximum wait for the end of the stream after its last event. Only a connection whose stream was
/// read to the end can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum wait for the last event once everything else of the reply has arrived.
const LAST_EVENT_TIMEOUT: Duration = Duration::from_secs(2);
/// A timer that is this late did not expire while the process ran: the process was stopped, or the
/// machine was suspended. The same time remains to read the bytes that arrived meanwhile.
const FROZEN: Duration = Duration::from_secs(2);
/// Maximum average bytes per token in a whole reply. Real tokens have three to five; runs of white
/// space have more.
const TOKEN_BYTES: u64 = 32;
/// Extra bytes per reply, so that a small output cap leaves room for a few long tokens.
const REPLY_MARGIN: u64 = 64 * 1024;

/// One attempt in progress.
#[derive(Debug)]
pub(super) struct Attempt {
    mode: ReplyMode,
    /// The output cap, in tokens.
    cap: u32,
    timers: RequestTimers,
    /// The host, for display.
    destination: String,
    began: Instant,
    first_byte: Duration,
    dialled: ConnectionMade,
    limits: Option<RateLimits>,
    request_id: Option<String>,
}

impl Attempt {
    pub(super) fn begin(
        timers: &RequestTimers,
        call: &ModelCall,
        request_bytes: usize,
        destination: String,
    ) -> Self {
        Self {
            mode: call.mode,
            cap: call.cap,
            timers: *timers,
            destination,
            began: Instant::now(),
            first_byte: timers.first_byte_for(request_bytes),
            dialled: ConnectionMade::default(),
            limits: None,
            request_id: None,
        }
    }

    /// The rate limits in the response headers, for any status.
    pub(super) fn rate_limits(&mut self) -> Option<RateLimits> {
        self.limits.take()
    }

    pub(super) async fn run(
        &mut self,
        http: &reqwest::Client,
        request: Request,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<ModelReply, Fault> {
        let result = match self.mode {
            ReplyMode::Streaming => self.send_and_read(http, request, progress).await,
            ReplyMode::Whole => {
                let limit = self.timers.whole;
                let reply = self.send_and_read(http, request, progress);
                match timeout_while_running(limit, reply).await {
                    Some(result) => result,
                    None => Err(Fault::new(timed_out(Timer::Whole), self.stage_without_response())),
                }
            }
        };
        result.map_err(|mut fault| {
            fault.request_id = fault.request_id.or(self.request_id.take());
            fault
        })
    }

    async fn send_and_read(
        &mut self,
        http: &reqwest::Client,
        request: Request,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<ModelReply, Fault> {
        let response = self.send(http, request).await?;
        self.limits = RateLimits::parse(response.headers());
        self.request_id = request_id(response.headers());
        if !response.status().is_success() {
            return Err(read_error_response(response).await);
        }
        progress(StreamProgress::Accepted(self.limits.clone()));
        let mut answer = self.read_reply(response, progress).await?;
        answer.request_id = self.request_id.take();
        Ok(answer)
    }

    async fn send(&self, http: &reqwest::Client, request: Request) -> Result<Response, Fault> {
        let sending = self.dialled.track(http.execute(request));
        let result = match self.mode {
            ReplyMode::Whole => Some(sending.await),
            ReplyMode::Streaming => {
                let left = self.first_byte.saturating_sub(self.began.elapsed());
                timeout_while_running(left, sending).await
            }
        };
        match result {
            Some(Ok(response)) => Ok(response),
            Some(Err(error)) => {
                Err(fault_without_response(error, &self.destination, self.stage_without_response()))
            }
            None => Err(Fault::new(timed_out(Timer::FirstByte), self.stage_without_response())),
        }
    }

    fn stage_without_response(&self) -> FailureStage {
        if self.dialled.was_made() {
            FailureStage::FreshConnection
        } else {
            FailureStage::StaleConnection
        }
    }

    /// Reads a streamed or whole reply: the response format may differ from the request.
    async fn read_reply(
        &self,
        response: Response,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<ModelReply, Fault> {
        if let Some(why) = unread_compression(response.headers()) {
            return Err(Fault::new(invalid_response(why), FailureStage::Status));
        }
        let mut body = TimedBody::new(self, response);
        let broken = |kind| match self.mode {
            ReplyMode::Streaming => Fault::new(kind, FailureStage::Stream),
            ReplyMode::Whole => Fault::new(kind, FailureStage::Status),
        };
        let invalid = |kind| Fault::new(kind, FailureStage::Status);
        let first = loop {
            // Skips a byte-order mark and blank lines. They are dropped: a compressed body may have
            // millions, and each piece would be searched again with every further one.
            if let Some(at) = body.read_ahead.iter().position(|byte| !is_padding(*byte)) {
                body.read_ahead.drain(..at);
                break body.read_ahead[0];
            }
            body.read_ahead.clear();
            let piece = body.next(progress).await.map_err(broken)?;
            let piece = piece.ok_or_else(|| match self.mode {
                ReplyMode::Streaming => {
                    broken(torn_stream("the stream ended before its first event"))
                }
                ReplyMode::Whole => invalid(invalid_response("the body is empty".to_owned())),
            })?;
            body.read_ahead.extend_from_slice(&piece);
        };
        match first {
            b'{' | b'[' => {
                if body.begins_with_event(progress).await.map_err(broken)? {
                    return self.read_stream(body, progress).await;
                }
                while let Some(piece) = body.next(progress).await.map_err(broken)? {
                    body.read_ahead.extend_from_slice(&piece);
                }
                let message = without_further_lines(&body.read_ahead);
                if let Some(received) = parse_received(message) {
                    progress(StreamProgress::Received(received));
                }
                parse_message(message).map_err(|kind| {
                    with_named_wait(invalid(kind), &String::from_utf8_lossy(message))
                })
            }
            b'<' => {
                let detail = format!("the body is {}", self.read_page(body, progress).await);
                Err(invalid(FaultKind::HtmlPage { detail }))
            }
            _ => self.read_stream(body, progress).await,
        }
    }

    /// The title of an HTML page that came instead of a reply. Reads the part that arrives in time.
    async fn read_page(
        &self,
        mut body: TimedBody<'_>,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> String {
        let reading = async {
            while body.read_ahead.len() < ERROR_LIMIT
                && let Ok(Some(piece)) = body.next(progress).await
            {
                body.read_ahead.extend_from_slice(&piece);
            }
        };
        // A slow or truncated page is still reported as a page.
        let _ = timeout(ERROR_TIME, reading).await;
        truncate_message(body_text(&body.read_ahead))
    }

    async fn read_stream(
        &self,
        mut body: TimedBody<'_>,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<ModelReply, Fault> {
        let mut frames = StreamParser::for_response(&body.headers, &body.read_ahead);
        let mut assembly = ReplyAssembly::default();
        let mut first_token = None;
        let mut piece = std::mem::take(&mut body.read_ahead);
        let opening = piece[..piece.len().min(OPENING_BYTES)].to_vec();
        'stream: loop {
            let mut ready = Vec::new();
            let pushed = frames.push(&piece, &mut ready);
            for frame in ready {
                match assembly
                    .process_event(&frame, progress)
                    .map_err(|kind| with_named_wait(fault_at_stage(&assembly, kind), &frame.data))?
                {
                    AssemblyStep::Idle => {}
                    AssemblyStep::Content => body.record_progress(),
                    AssemblyStep::Last => {
                        body.drain().await.map_err(|kind| fault_at_stage(&assembly, kind))?;
                        break 'stream;
                    }
                }
                if assembly.has_begun() {
                    first_token.get_or_insert_with(|| self.began.elapsed());
                }
            }
            pushed
                .map_err(|error| fault_at_stage(&assembly, invalid_response(error.to_string())))?;
            if assembly.written() > self.max_reply_bytes() {
                return Err(fault_at_stage(&assembly, self.too_long()));
            }
            if assembly.is_whole() {
                body.start_last_event_timer();
            }
            piece = match body.next(progress).await {
                Ok(Some(bytes)) => bytes,
                // The reply is complete without the missing event.
                Ok(None) | Err(_) if assembly.is_whole() => break,
                Ok(None) => {
                    if take_last_event(&mut frames, &mut assembly, progress)
                        .map_err(|fault| *fault)?
                    {
                        break;
                    }
                    let is_foreign = frames.is_foreign(&opening) || assembly.is_foreign();
                    let kind = match assembly.unnamed_error() {
                        Some(error) => error.clone(),
                        None if is_foreign => foreign_body(&opening),
                        None => cut_stream(),
                    };
                    return Err(fault_at_stage(&assembly, kind));
                }
                Err(kind) => return Err(fault_at_stage(&assembly, kind)),
            };
        }
        let stage = failure_stage(&assembly);
        let reply = assembly.finish().map_err(|kind| Fault::new(kind, stage))?;
        Ok(ModelReply { first_token, ..reply })
    }

    /// The maximum number of bytes that the model can have written within its output cap.
    fn max_reply_bytes(&self) -> u64 {
        u64::from(self.cap) * TOKEN_BYTES + REPLY_MARGIN
    }

    fn too_long(&self) -> FaultKind {
        let (bytes, cap) = (self.max_reply_bytes(), self.cap);
        invalid_response(format!(
            "the reply has more than {bytes} bytes, although the output cap is {cap} tokens"
        ))
    }
}

/// Processes an event without the empty line after it, at the end of a stream. True if it completes
/// the reply. An event that makes no sense was cut.
fn take_last_event(
    frames: &mut StreamParser,
    assembly: &mut ReplyAssembly,
    progress: &mut (dyn FnMut(StreamProgress) + Send),
) -> Result<bool, Box<Fault>> {
    let mut events = Vec::new();
    if frames.push(b"\n\n", &mut events).is_err() {
        return Ok(false);
    }
    for event in &events {
        match assembly.process_event(event, progress) {
            Ok(_) => {}
            Err(kind @ FaultKind::Refused { .. }) => {
                let fault = fault_at_stage(assembly, kind);
                return Err(Box::new(with_named_wait(fault, &event.data)));
            }
            Err(_) => return Ok(false),
        }
    }
    Ok(assembly.is_whole())
}

fn failure_stage(assembly: &ReplyAssembly) -> FailureStage {
    if assembly.has_block() { FailureStage::Block } else { FailureStage::Stream }
}

fn fault_at_stage(assembly: &ReplyAssembly, kind: FaultKind) -> Fault {
    Fault::new(kind, failure_stage(assembly))
}

fn torn_stream(detail: &str) -> FaultKind {
    FaultKind::TornStream { detail: detail.to_owned() }
}

fn cut_stream() -> FaultKind {
    torn_stream("the stream ended before its last event")
}

/// The fault of a complete body that is neither a message nor a stream of one: the text of a proxy,
/// or the reply of another API.
fn foreign_body(opening: &[u8]) -> FaultKind {
    let opening = String::from_utf8_lossy(opening);
    invalid_response(format!("the body is not of the Messages API: {opening:?}"))
}

/// A response body, read under the timers.
struct TimedBody<'a> {
    attempt: &'a Attempt,
    headers: HeaderMap,
    body: ResponseBody,
    /// The start of the attempt, plus the time for which the process was frozen.
    began: Instant,
    read_ahead: Vec<u8>,
    received: usize,
    last_byte: Option<Instant>,
    last_progress: Instant,
    /// Time from which only the last event is missing.
    whole_since: Option<Instant>,
}

impl<'a> TimedBody<'a> {
    fn new(attempt: &'a Attempt, response: Response) -> Self {
        Self {
            attempt,
            headers: response.headers().clone(),
            body: ResponseBody::new(response),
            began: attempt.began,
            read_ahead: Vec::new(),
            received: 0,
            last_byte: None,
            last_progress: Instant::now(),
            whole_since: None,
        }
    }

    fn record_progress(&mut self) {
        self.last_progress = Instant::now();
    }

    fn start_last_event_timer(&mut self) {
        self.whole_since.get_or_insert_with(Instant::now);
    }

    /// The next bytes, or `None` at the end.
    async fn next(
        &mut self,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<Option<Vec<u8>>, FaultKind> {
        let chunk = loop {
            let Some((deadline, timer)) = self.deadline() else {
                break self.body.chunk().await;
            };
            if let Ok(chunk) = timeout_at(deadline, self.body.chunk()).await {
                break chunk;
            }
            let late = deadline.elapsed();
            if late < FROZEN {
                return Err(timed_out(timer));
            }
            self.postpone(late + FROZEN);
        };
        let Some(bytes) = chunk.map_err(torn_body)? else { return Ok(None) };
        self.last_byte = Some(Instant::now());
        self.received += bytes.len();
        if self.received > REPLY_LIMIT {
            return Err(invalid_response(format!("the reply has more than {REPLY_LIMIT} bytes")));
        }
        progress(StreamProgress::Bytes(bytes.len()));
        Ok(Some(bytes))
    }

    /// Reads the first line. True if it is an event.
    async fn begins_with_event(
        &mut self,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<bool, FaultKind> {
        let mut searched = 0;
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.read_ahead[searched..]) {
                return Ok(is_event_line(&self.read_ahead[..searched + end]));
            }
            searched = self.read_ahead.len();
            let Some(piece) = self.next(progress).await? else { return Ok(false) };
            self.read_ahead.extend_from_slice(&piece);
        }
    }

    /// Extends all timers by the time for which the process was frozen.
    fn postpone(&mut self, frozen: Duration) {
        self.began += frozen;
        self.last_progress += frozen;
        for timer in [&mut self.last_byte, &mut self.whole_since].into_iter().flatten() {
            *timer += frozen;
        }
    }

    /// The timer that expires next. A request without streaming has only one, for the whole call.
    fn deadline(&self) -> Option<(Instant, Timer)> {
        if self.attempt.mode == ReplyMode::Whole {
            return None;
        }
        let timers = &self.attempt.timers;
        let silence = match self.last_byte {
            None => (self.began + self.attempt.first_byte, Timer::FirstByte),
            Some(last) => (last + timers.idle, Timer::StreamIdle),
        };
        let no_content = (self.last_progress + timers.progress, Timer::StreamProgress);
        let whole_reply = (self.began + timers.reply_for(self.attempt.cap), Timer::Reply);
        let last_event =
            self.whole_since.map(|since| (since + LAST_EVENT_TIMEOUT, Timer::StreamIdle));
        [Some(silence), Some(no_content), Some(whole_reply), last_event]
            .into_iter()
            .flatten()
            .min_by_key(|(deadline, _)| *deadline)
    }

    /// Reads to the end of the stream, so that the connection can be reused. A compressed stream
    /// has its checksum there.
    async fn drain(&mut self) -> Result<(), FaultKind> {
        let rest = async {
            loop {
                match self.body.chunk().await {
                    Ok(Some(_)) => {}
                    Err(error) if error.is_damage() => return Err(torn_body(error)),
                    Ok(None) | Err(_) => return Ok(()),
                }
            }
        };
        // On a timeout the connection is closed; the reply is complete anyway.
        timeout(DRAIN_TIMEOUT, rest).await.unwrap_or(Ok(()))
    }
}

/// Reads an error response, with the part of its body that arrives in time.
async fn read_error_response(response: Response) -> Fault {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut body = Vec::new();
    if let Some(why) = unread_compression(&headers) {
        return fault_of_response(status, &headers, why.as_bytes(), wall_clock());
    }
    // The status is valid even if the body is slow or truncated.
    let _ = timeout(ERROR_TIME, ResponseBody::new(response).read(&mut body, ERROR_LIMIT)).await;
    body.truncate(ERROR_LIMIT);
    fault_of_response(status, &headers, &body, wall_clock())
}

fn is_padding(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, 0xef | 0xbb | 0xbf)
}

fn timed_out(timer: Timer) -> FaultKind {
    FaultKind::Timeout { timer }
}
