//! A model service for benches: it reads requests, and replies with commands.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::time::Instant;

/// Reads one request. Returns when its first byte arrived, or nothing at the end.
pub(crate) fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Instant> {
    let mut arrived = None;
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.fill_buf().ok()?.is_empty() || reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        arrived.get_or_insert_with(Instant::now);
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length is a number");
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    arrived
}

/// The reply to a request after `turn` others: a command, or the end after `turns` commands.
pub(crate) fn reply(turn: usize, turns: usize) -> String {
    let (block, delta, reason) = if turn < turns {
        (
            format!(r#"{{"type":"tool_use","id":"toolu_{turn}","name":"Bash","input":{{}}}}"#),
            // Another command each time, or it would be a loop.
            format!(
                r#"{{"type":"input_json_delta","partial_json":"{{\"command\":\"true {turn} > made\"}}"}}"#
            ),
            "tool_use",
        )
    } else {
        let text = r#"{"type":"text_delta","text":"done"}"#.to_owned();
        (r#"{"type":"text","text":""}"#.to_owned(), text, "end_turn")
    };
    let events = [
        (
            "message_start",
            format!(
                r#"{{"type":"message_start","message":{{"id":"msg_{turn}","type":"message","role":"assistant","model":"bench","content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":10,"output_tokens":1}}}}}}"#
            ),
        ),
        (
            "content_block_start",
            format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#),
        ),
        (
            "content_block_delta",
            format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#),
        ),
        ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#.to_owned()),
        (
            "message_delta",
            format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":5}}}}"#
            ),
        ),
        ("message_stop", r#"{"type":"message_stop"}"#.to_owned()),
    ];
    let body = events.map(|(name, data)| format!("event: {name}\ndata: {data}\n\n")).concat();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
