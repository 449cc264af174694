//! The Messages API client: over real sockets where sockets matter, on recorded bytes elsewhere.

mod bodies;
mod certificates;
mod connections;
mod credentials;
mod headers;
mod oauth;
mod pace;
mod prices;
mod proxies;
mod replies;
mod requests;
mod server;
mod settlement;
mod stop_reasons;
mod streams;
mod timers;

use std::path::PathBuf;
use std::time::Duration;

use outlast::model::{Answer, Client, Credential, Endpoint, Progress, Prompt, Secret, Timers};
use outlast::recovery::{Ask, Connection, Fault, Mode, Purpose};
use outlast::transcript::{Block, Message};

/// Longer than anything here takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_mins(4);

const STREAMING: Ask = Ask {
    purpose: Purpose::Reply,
    fast: false,
    yields: true,
    rung: 0,
    cap: 8192,
    mode: Mode::Streaming,
    connection: Connection::Pooled,
    attempt: 1,
};
const WHOLE: Ask = Ask { mode: Mode::Whole, ..STREAMING };
const FRESH: Ask = Ask { connection: Connection::Fresh, ..STREAMING };

fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn recorded(path: &str) -> Vec<u8> {
    std::fs::read(data(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn endpoint(url: &str) -> Endpoint {
    let mut endpoint = Endpoint::new(url, Credential::ApiKey(Secret::new("sk-test-8301746295")));
    let long = PATIENCE;
    endpoint.timers = Timers {
        connect: long,
        first_byte: long,
        idle: long,
        progress: long,
        reply: long,
        whole: long,
        dead_path: long,
    };
    endpoint
}

fn client(url: &str) -> Client {
    Client::new(endpoint(url)).expect("the endpoint is right")
}

/// Asks once, and hands every progress to `watch`.
async fn ask_watched(
    client: &Client,
    ask: Ask,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<Answer, Fault> {
    let messages = [Message::user(vec![Block::text("hello")])];
    let prompt = Prompt {
        model: "m",
        system: "be brief",
        tools: &[],
        messages: &messages,
        thinking: None,
        fast: false,
        source: None,
    };
    let asked = client.ask(&prompt, &ask, watch);
    let result = tokio::time::timeout(PATIENCE, asked).await.expect("an attempt always ends");
    result.map_err(|fault| *fault)
}

async fn ask(client: &Client, ask: Ask) -> Result<Answer, Fault> {
    ask_watched(client, ask, &mut |_| {}).await
}
