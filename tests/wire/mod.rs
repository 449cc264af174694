//! The Messages API client: over real sockets where sockets matter, on recorded bytes elsewhere.

mod bodies;
mod certificates;
mod cloud_identities;
mod cloud_protocols;
mod clouds;
mod connections;
mod credentials;
mod gateway_streams;
mod headers;
mod oauth;
mod prices;
mod proxies;
mod reasoning;
mod refused_statuses;
mod replies;
mod requests;
mod server;
mod settlement;
mod stop_reasons;
mod streams;
mod timers;
mod token_count;

use std::path::PathBuf;
use std::time::Duration;

use outlast::model::{
    Credential, ModelClient, ModelReply, ModelService, RequestContent, RequestTimers, Secret,
    StreamProgress,
};
use outlast::recovery::{CallPurpose, ConnectionChoice, Fault, ModelCall, ReplyMode};
use outlast::transcript::{Block, Message};
use tokio::runtime::Builder;

use server::{Server, stream};

/// Longer than anything here takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_mins(4);

pub(crate) const STREAMING: ModelCall = ModelCall {
    purpose: CallPurpose::Reply,
    fast: false,
    may_wait_for_shared_limit: true,
    model_index: 0,
    cap: 8192,
    mode: ReplyMode::Streaming,
    connection: ConnectionChoice::Pooled,
    attempt: 1,
};
const WHOLE: ModelCall = ModelCall { mode: ReplyMode::Whole, ..STREAMING };
const FRESH: ModelCall = ModelCall { connection: ConnectionChoice::Fresh, ..STREAMING };

fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn recorded(path: &str) -> Vec<u8> {
    std::fs::read(data(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn endpoint(url: &str) -> ModelService {
    let mut endpoint =
        ModelService::new(url, Credential::ApiKey(Secret::new("sk-test-8301746295")));
    let long = PATIENCE;
    endpoint.timers = RequestTimers {
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

fn client(url: &str) -> ModelClient {
    ModelClient::new(endpoint(url)).expect("the endpoint is right")
}

/// Sends a request, and returns its body.
fn sent_body(content: &RequestContent<'_>, call: &ModelCall) -> String {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let server = Server::answering(stream(&recorded("streams/text.sse"))).await;
        // Not every request asks for the form of this reply.
        let _ = client(&server.url).attempt(content, call, &mut |_| {}).await;
        let request = server.requests().pop().expect("one came");
        request.split_once("\r\n\r\n").expect("it has a body").1.to_owned()
    })
}

/// Asks once, and hands every progress to `watch`.
pub(crate) async fn ask_watched(
    client: &ModelClient,
    ask: ModelCall,
    watch: &mut (dyn FnMut(StreamProgress) + Send),
) -> Result<ModelReply, Fault> {
    let messages = [Message::user(vec![Block::text("hello")])];
    let prompt = RequestContent {
        model: "m",
        system: "be brief",
        messages: &messages,
        ..RequestContent::default()
    };
    let asked = client.attempt(&prompt, &ask, watch);
    let result = tokio::time::timeout(PATIENCE, asked).await.expect("an attempt always ends");
    result.map_err(|fault| *fault)
}

async fn ask(client: &ModelClient, ask: ModelCall) -> Result<ModelReply, Fault> {
    ask_watched(client, ask, &mut |_| {}).await
}
