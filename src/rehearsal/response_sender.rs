//! Sends a response, and injects the fault of its step.

use std::time::Duration;

use super::cloud_protocols::EventFormat;
use super::connection::{ClientGone, ServerConnection};
use super::render::{self, Framing, RenderedResponse};
use super::scenario::{ChunkTiming, FaultPosition, ScriptStep, ScriptedFault, ScriptedFaultKind};
use super::sse;

/// The state of a connection after a response. The error means that the client disconnected before
/// the response was complete.
pub(super) type SendResult = Result<ConnectionState, ClientGone>;

pub(super) enum ConnectionState {
    /// The connection is kept for the next request.
    Open(ServerConnection),
    /// The server has closed the connection.
    Closed,
}

/// The ratio of the script's time to real time.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeScale(pub(super) f64);

impl TimeScale {
    fn to_real_time(self, scripted: Duration) -> Duration {
        Duration::try_from_secs_f64(scripted.as_secs_f64() / self.0).unwrap_or(Duration::MAX)
    }
}

/// Options for sending a response.
#[derive(Clone, Copy)]
struct SendOptions {
    framing: Framing,
    keep_alive: bool,
    time_scale: TimeScale,
    events: EventFormat,
}

impl SendOptions {
    /// Marks the body as incomplete. With an announced length this requires closing the connection.
    fn incomplete(self) -> Self {
        Self { keep_alive: self.keep_alive && self.framing == Framing::Chunked, ..self }
    }
}

/// Performs a step that answers a connection instead of a request.
pub(super) async fn break_connection(
    connection: ServerConnection,
    fault: &ScriptedFault,
    time_scale: TimeScale,
) {
    let events = EventFormat::Sse;
    let options = SendOptions { framing: Framing::Bare, keep_alive: false, time_scale, events };
    // The connection is over in any case.
    let _ = inject_fault(connection, fault, options).await;
}

/// Sends `response` with the delays and faults of `step`.
pub(super) async fn send_response(
    mut connection: ServerConnection,
    response: &RenderedResponse,
    step: &ScriptStep,
    time_scale: TimeScale,
) -> SendResult {
    connection.wait_silently(time_scale.to_real_time(step.delay)).await?;
    let fault = step.fault.as_ref();
    let keep_alive = response.keep_alive && !step.closes_early;
    let options =
        SendOptions { framing: response.framing, keep_alive, time_scale, events: response.events };
    if let Some(fault) = fault.filter(|fault| fault.after == FaultPosition::Request) {
        let ScriptedFaultKind::Insert(bytes) = &fault.kind else {
            return inject_fault(connection, fault, options).await;
        };
        connection.write(bytes).await?;
    }
    let half = fault.filter(|fault| fault.after == FaultPosition::HalfHead);
    let head =
        if half.is_some() { &response.head[..response.head.len() / 2] } else { &response.head };
    connection.write(head).await?;
    if let Some(fault) = half {
        return inject_fault(connection, fault, options).await;
    }
    let break_at = fault.and_then(|fault| offset(fault.after, response)).zip(fault);
    let body = units(&response.pieces, step.timing.chunk);
    let (before, after) = match break_at {
        Some((offset, _)) => split(body, offset),
        None => (body, Vec::new()),
    };
    write_body(&mut connection, &before, step.timing, options).await?;
    if let Some((_, fault)) = break_at {
        let ScriptedFaultKind::Insert(bytes) = &fault.kind else {
            return inject_fault(connection, fault, options).await;
        };
        let rest: Vec<_> = std::iter::once(bytes.clone()).chain(after).collect();
        write_body(&mut connection, &rest, step.timing, options).await?;
    }
    end(connection, options).await
}

/// The position of a fault in the body, in bytes.
fn offset(place: FaultPosition, response: &RenderedResponse) -> Option<usize> {
    let length = |pieces: &[Vec<u8>]| pieces.iter().map(Vec::len).sum::<usize>();
    let whole = length(&response.pieces);
    let is_stream = response.framing == Framing::Chunked && response.pieces.len() > 1;
    let offset = match place {
        FaultPosition::Accept | FaultPosition::Request | FaultPosition::HalfHead => return None,
        FaultPosition::Headers => 0,
        FaultPosition::Events(count) if is_stream => {
            length(&response.pieces[..count.min(response.pieces.len())])
        }
        FaultPosition::Events(_) => whole / 2,
        FaultPosition::Bytes(count) => count.min(whole),
        FaultPosition::Delta => {
            let is_delta = |piece: &Vec<u8>| piece.starts_with(b"event: content_block_d");
            match response.pieces.iter().rposition(is_delta) {
                Some(last) => length(&response.pieces[..last]) + response.pieces[last].len() / 2,
                None => whole / 2,
            }
        }
    };
    Some(offset)
}

/// Splits the body into single writes.
fn units(pieces: &[Vec<u8>], chunk: Option<usize>) -> Vec<Vec<u8>> {
    match chunk {
        Some(size) => pieces.concat().chunks(size.max(1)).map(<[u8]>::to_vec).collect(),
        None => pieces.to_vec(),
    }
}

/// Splits the writes at a byte offset.
fn split(units: Vec<Vec<u8>>, offset: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut before, mut after, mut room) = (Vec::new(), Vec::new(), offset);
    for mut unit in units {
        let rest = unit.split_off(room.min(unit.len()));
        room -= unit.len();
        before.push(unit);
        after.push(rest);
    }
    before.retain(|unit| !unit.is_empty());
    after.retain(|unit| !unit.is_empty());
    (before, after)
}

/// Writes body bytes in their framing, with pauses.
async fn write_body(
    connection: &mut ServerConnection,
    units: &[Vec<u8>],
    timing: ChunkTiming,
    options: SendOptions,
) -> Result<(), ClientGone> {
    let pause = options.time_scale.to_real_time(timing.pause);
    for (number, unit) in units.iter().enumerate() {
        if number > 0 {
            connection.wait_silently(pause).await?;
        }
        connection.write(&framed(options.framing, unit)).await?;
    }
    Ok(())
}

fn framed(framing: Framing, bytes: &[u8]) -> Vec<u8> {
    match framing {
        Framing::Length | Framing::Bare => bytes.to_vec(),
        Framing::Chunked if bytes.is_empty() => Vec::new(),
        Framing::Chunked => [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
    }
}

/// Injects the fault that ends a response.
async fn inject_fault(
    mut connection: ServerConnection,
    fault: &ScriptedFault,
    options: SendOptions,
) -> SendResult {
    match &fault.kind {
        ScriptedFaultKind::Reset => connection.reset(),
        ScriptedFaultKind::Close | ScriptedFaultKind::Insert(_) => connection.close().await,
        ScriptedFaultKind::End => return end(connection, options.incomplete()).await,
        ScriptedFaultKind::Stall => {
            connection.wait_silently(options.time_scale.to_real_time(fault.hold)).await?;
            connection.close().await;
        }
        ScriptedFaultKind::Pings { every } => {
            let ping = framed(options.framing, &options.events.encode(sse::ping()));
            let mut left = fault.hold;
            while !left.is_zero() {
                let pause = (*every).max(Duration::from_millis(1)).min(left);
                left -= pause;
                connection.write(&ping).await?;
                connection.wait_silently(options.time_scale.to_real_time(pause)).await?;
            }
            connection.close().await;
        }
        ScriptedFaultKind::Error(error) => {
            let event = options.events.encode(sse::event("error", &render::envelope(error, None)));
            connection.write(&framed(options.framing, &event)).await?;
            return end(connection, options.incomplete()).await;
        }
    }
    Ok(ConnectionState::Closed)
}

/// Ends the body as its framing requires, and closes the connection if necessary.
async fn end(mut connection: ServerConnection, options: SendOptions) -> SendResult {
    if options.framing == Framing::Chunked {
        connection.write(b"0\r\n\r\n").await?;
    }
    if options.keep_alive {
        return Ok(ConnectionState::Open(connection));
    }
    connection.close().await;
    Ok(ConnectionState::Closed)
}
