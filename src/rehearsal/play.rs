//! Sends a response, and breaks it where the script says.

use std::time::Duration;

use super::connection::{Client, Connection};
use super::render::{self, Framing, Take};
use super::scenario::{Fault, Harm, Pace, Place, Step};
use super::sse;

/// What became of the connection.
pub(super) enum Fate {
    /// It waits for the next request.
    Open(Connection),
    /// We ended it.
    Ended,
    /// The client left before we were done.
    Abandoned,
}

/// How fast the script's time passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tempo(pub(super) f64);

impl Tempo {
    fn real(self, scripted: Duration) -> Duration {
        Duration::try_from_secs_f64(scripted.as_secs_f64() / self.0).unwrap_or(Duration::MAX)
    }
}

/// How a response goes out, and what becomes of the connection after it.
#[derive(Clone, Copy)]
struct Manner {
    framing: Framing,
    keep_alive: bool,
    tempo: Tempo,
}

impl Manner {
    /// A body of an announced length that ends early takes the connection with it.
    fn torn(self) -> Self {
        Self { keep_alive: self.keep_alive && self.framing == Framing::Chunked, ..self }
    }
}

/// Plays a step that answers a connection and not a request.
pub(super) async fn play_at_accept(connection: Connection, fault: &Fault, tempo: Tempo) {
    let manner = Manner { framing: Framing::Bare, keep_alive: false, tempo };
    strike(connection, fault, manner).await;
}

/// Sends `take` as `step` says.
pub(super) async fn play(
    mut connection: Connection,
    take: &Take,
    step: &Step,
    tempo: Tempo,
) -> Fate {
    if connection.linger(tempo.real(step.delay)).await == Client::Gone {
        return Fate::Abandoned;
    }
    let fault = step.fault.as_ref();
    let keep_alive = take.keep_alive && !step.hangs_up;
    let manner = Manner { framing: take.framing, keep_alive, tempo };
    if let Some(fault) = fault.filter(|fault| fault.after == Place::Request) {
        let Harm::Insert(bytes) = &fault.harm else {
            return strike(connection, fault, manner).await;
        };
        if connection.write(bytes).await == Client::Gone {
            return Fate::Abandoned;
        }
    }
    let half = fault.filter(|fault| fault.after == Place::HalfHead);
    let head = if half.is_some() { &take.head[..take.head.len() / 2] } else { &take.head };
    if connection.write(head).await == Client::Gone {
        return Fate::Abandoned;
    }
    if let Some(fault) = half {
        return strike(connection, fault, manner).await;
    }
    let break_at = fault.and_then(|fault| offset(fault.after, take)).zip(fault);
    let body = units(&take.pieces, step.pace.chunk);
    let (before, after) = match break_at {
        Some((offset, _)) => split(body, offset),
        None => (body, Vec::new()),
    };
    if say(&mut connection, &before, step.pace, manner).await == Client::Gone {
        return Fate::Abandoned;
    }
    if let Some((_, fault)) = break_at {
        let Harm::Insert(bytes) = &fault.harm else {
            return strike(connection, fault, manner).await;
        };
        let rest: Vec<_> = std::iter::once(bytes.clone()).chain(after).collect();
        if say(&mut connection, &rest, step.pace, manner).await == Client::Gone {
            return Fate::Abandoned;
        }
    }
    end(connection, manner).await
}

/// Where in the body a fault strikes, in bytes.
fn offset(place: Place, take: &Take) -> Option<usize> {
    let length = |pieces: &[Vec<u8>]| pieces.iter().map(Vec::len).sum::<usize>();
    let whole = length(&take.pieces);
    let is_stream = take.framing == Framing::Chunked && take.pieces.len() > 1;
    let offset = match place {
        Place::Accept | Place::Request | Place::HalfHead => return None,
        Place::Headers => 0,
        Place::Events(count) if is_stream => length(&take.pieces[..count.min(take.pieces.len())]),
        Place::Events(_) => whole / 2,
        Place::Bytes(count) => count.min(whole),
        Place::Delta => {
            let last =
                take.pieces.iter().rposition(|piece| piece.starts_with(b"event: content_block_d"));
            match last {
                Some(last) => length(&take.pieces[..last]) + take.pieces[last].len() / 2,
                None => whole / 2,
            }
        }
    };
    Some(offset)
}

/// The body, cut into what is written at once.
fn units(pieces: &[Vec<u8>], chunk: Option<usize>) -> Vec<Vec<u8>> {
    match chunk {
        Some(size) => pieces.concat().chunks(size.max(1)).map(<[u8]>::to_vec).collect(),
        None => pieces.to_vec(),
    }
}

/// Splits what is written at an offset in bytes.
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

/// Writes body bytes in their framing and at their pace.
async fn say(connection: &mut Connection, units: &[Vec<u8>], pace: Pace, manner: Manner) -> Client {
    let pause = manner.tempo.real(pace.pause);
    for (number, unit) in units.iter().enumerate() {
        if number > 0 && connection.linger(pause).await == Client::Gone {
            return Client::Gone;
        }
        if connection.write(&framed(manner.framing, unit)).await == Client::Gone {
            return Client::Gone;
        }
    }
    Client::Here
}

fn framed(framing: Framing, bytes: &[u8]) -> Vec<u8> {
    match framing {
        Framing::Length | Framing::Bare => bytes.to_vec(),
        Framing::Chunked if bytes.is_empty() => Vec::new(),
        Framing::Chunked => [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
    }
}

/// Does the harm that ends an answer.
async fn strike(mut connection: Connection, fault: &Fault, manner: Manner) -> Fate {
    match &fault.harm {
        Harm::Reset => {
            connection.reset();
            Fate::Ended
        }
        Harm::Close | Harm::Insert(_) => {
            connection.close().await;
            Fate::Ended
        }
        Harm::End => end(connection, manner.torn()).await,
        Harm::Stall => {
            let client = connection.linger(manner.tempo.real(fault.hold)).await;
            hold_ended(connection, client).await
        }
        Harm::Pings { every } => {
            let ping = framed(manner.framing, &sse::ping());
            let mut left = fault.hold;
            while !left.is_zero() {
                let pause = (*every).max(Duration::from_millis(1)).min(left);
                left -= pause;
                if connection.write(&ping).await == Client::Gone
                    || connection.linger(manner.tempo.real(pause)).await == Client::Gone
                {
                    return Fate::Abandoned;
                }
            }
            hold_ended(connection, Client::Here).await
        }
        Harm::Error(error) => {
            let event = sse::event("error", &render::envelope(error, None));
            match connection.write(&framed(manner.framing, &event)).await {
                Client::Here => end(connection, manner.torn()).await,
                Client::Gone => Fate::Abandoned,
            }
        }
    }
}

async fn hold_ended(connection: Connection, client: Client) -> Fate {
    match client {
        Client::Gone => Fate::Abandoned,
        Client::Here => {
            connection.close().await;
            Fate::Ended
        }
    }
}

/// Ends the body as its framing wants, and the connection if it must.
async fn end(mut connection: Connection, manner: Manner) -> Fate {
    if manner.framing == Framing::Chunked && connection.write(b"0\r\n\r\n").await == Client::Gone {
        return Fate::Abandoned;
    }
    if manner.keep_alive {
        return Fate::Open(connection);
    }
    connection.close().await;
    Fate::Ended
}
