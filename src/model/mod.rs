//! The service on the wire.

use std::time::Duration;

use serde_json::Value;

use crate::recovery::{Ask, Fault, Money};
use crate::transcript::{Block, Message, ToolDefinition, Usage};

/// A model of the chain: what it is called, holds and costs.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// The name sent to the service.
    pub name: String,
    /// Tokens.
    pub context_window: u64,
    /// Tokens.
    pub max_output: u32,
    /// `None` when no price is known: then no budget can be kept.
    pub prices: Option<Prices>,
}

/// What tokens of one model cost, per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    pub input: Money,
    pub output: Money,
    pub cache_read: Money,
    pub cache_write: Money,
}

/// What a request says.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    pub model: &'a str,
    pub system: &'a str,
    pub tools: &'a [ToolDefinition],
    pub messages: &'a [Message],
    /// The thinking budget, in tokens.
    pub thinking: Option<u32>,
}

/// Something that happened while a reply streamed in.
#[derive(Clone, Debug)]
pub enum Progress {
    /// The status line and headers came: the service is alive.
    Accepted,
    /// Any byte, pings included.
    Bytes(usize),
    /// An event of the stream as the service sent it, pings left out.
    Event(Value),
    /// A content block is complete.
    Block { index: usize, block: Block },
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub id: String,
    /// The model that the service says answered.
    pub model: String,
    /// Complete blocks only.
    pub content: Vec<Block>,
    /// Whether a tool call was cut off by the output limit and left out of `content`.
    pub cut_tool_call: bool,
    /// `end_turn`, `tool_use`, `max_tokens` and so on, in the service's words.
    pub stop_reason: String,
    pub usage: Usage,
    pub request_id: Option<String>,
    pub first_token: Option<Duration>,
}

/// A client of one endpoint.
pub struct Client {}

impl Client {
    /// Makes one attempt at one request. Exactly one request goes out.
    ///
    /// # Errors
    /// The facts of the failure. Nothing is retried here.
    pub async fn ask(
        &self,
        _prompt: &Prompt<'_>,
        _ask: &Ask,
        _progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Answer, Box<Fault>> {
        std::future::pending().await
    }
}
