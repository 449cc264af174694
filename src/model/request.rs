//! Builds the body of a request.
//!
//! The fields are ordered by their stability, so that the service finds the longest cached prefix:
//! tools, system prompt, messages, and only then fields that may differ between two attempts.

use std::iter;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::recovery::ReplyMode;
use crate::transcript::{Block, Message, Role, SerializedMessage, ToolDefinition};
use crate::types::Effort;

use super::reasoning::Reasoning;
use super::web_search::WebSearch;

/// The content of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestContent<'a> {
    pub model: &'a str,
    pub system: &'a str,
    pub tools: &'a [ToolDefinition],
    pub messages: &'a [Message],
    pub reasoning: Reasoning,
    /// The search tool of the service, in addition to `tools`.
    pub search: Option<&'a WebSearch>,
    /// True if fast mode is requested.
    pub fast: bool,
    /// The purpose of the request, such as `agent:general-purpose`, if it is not the run's own.
    pub source: Option<&'a str>,
    pub serialized: SerializedParts<'a>,
}

/// Parts of a request that are serialized already. Each entry is the JSON of the tool or message
/// with the same index.
#[derive(Clone, Copy, Debug, Default)]
pub struct SerializedParts<'a> {
    /// The JSON of the first tools.
    pub tools: &'a [Box<RawValue>],
    /// The JSON of the first messages, as far as it is known.
    pub messages: &'a [SerializedMessage],
}

/// The beta that enables fast mode.
pub(super) const FAST_BETA: &str = "fast-mode-2026-02-01";

/// The body of a request. The conversation is serialized in place, without a copy.
#[derive(Debug, Default, Serialize)]
pub(super) struct RequestBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<ToolField<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<SystemField<'a>>,
    messages: Vec<SentMessage<'a>>,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_config: Option<OutputConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) anthropic_version: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) anthropic_beta: Option<Vec<String>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ToolField<'a> {
    Serialized(&'a RawValue),
    Offered(Marked<OfferedTool<'a>>),
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum OfferedTool<'a> {
    Defined(&'a ToolDefinition),
    /// The search tool of the service.
    Search(Value),
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum SystemField<'a> {
    Blocks([Marked<SystemBlock<'a>>; 1]),
    /// For services that take no blocks.
    Text(&'a str),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "text")]
struct SystemBlock<'a> {
    text: &'a str,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct OutputConfig {
    effort: Effort,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum SentMessage<'a> {
    Serialized(&'a RawValue),
    Plain(&'a Message),
    /// A message with a cache breakpoint.
    Marked {
        role: Role,
        content: Vec<Marked<&'a Block>>,
    },
}

/// A part of a request, after which the service may end a cached prefix.
#[derive(Debug, Serialize)]
pub(super) struct Marked<T> {
    #[serde(flatten)]
    pub(super) part: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CacheControl {
    Ephemeral,
}

impl<T> Marked<T> {
    fn unmarked(part: T) -> Self {
        Self { part, cache_control: None }
    }

    fn mark(&mut self) {
        self.cache_control = Some(CacheControl::Ephemeral);
    }
}

impl<'a> RequestBody<'a> {
    /// The body without cache breakpoints.
    pub(super) fn new(content: &RequestContent<'a>, cap: u32, mode: ReplyMode) -> Self {
        let text = content.system;
        Self {
            model: Some(content.model),
            tools: tools(content),
            system: (!text.trim().is_empty())
                .then(|| SystemField::Blocks([Marked::unmarked(SystemBlock { text })])),
            messages: messages(content),
            stream: Some(mode == ReplyMode::Streaming),
            thinking: content.reasoning.thinking_field(content.model, cap),
            output_config: content
                .reasoning
                .effort_for(content.model)
                .map(|effort| OutputConfig { effort }),
            speed: content.fast.then_some("fast"),
            ..Self::empty(cap)
        }
    }

    /// A body without content.
    pub(super) fn empty(max_tokens: u32) -> Self {
        Self { max_tokens, ..Self::default() }
    }

    /// Writes the system prompt as a string.
    pub(super) fn flatten_system(&mut self) {
        if let Some(SystemField::Blocks([block])) = &self.system {
            self.system = Some(SystemField::Text(block.part.text));
        }
    }

    /// Sets the cache breakpoints of a body with these messages: after the tools, after the system
    /// prompt, at the end of the last message and of the user message before it. There the previous
    /// request ended, so its cache entry is found however long this turn is.
    pub(super) fn mark_cache(&mut self, messages: &'a [Message]) {
        if let Some(ToolField::Offered(last)) = self.tools.last_mut() {
            last.mark();
        }
        if let Some(SystemField::Blocks([system])) = &mut self.system {
            system.mark();
        }
        let Some((_, earlier)) = messages.split_last() else { return };
        let before = earlier.iter().rposition(|message| message.role == Role::User);
        for at in before.into_iter().chain([earlier.len()]) {
            if let Some(marked) = marked(&messages[at]) {
                self.messages[at] = marked;
            }
        }
    }
}

/// The tools of a request. The last one is never in its serialized form, since it may be marked.
fn tools<'a>(content: &RequestContent<'a>) -> Vec<ToolField<'a>> {
    let search = content.search.map(|search| OfferedTool::Search(search.tool(content.model)));
    let offered = content.tools.iter().map(OfferedTool::Defined).chain(search);
    let mut fields: Vec<_> = offered.map(Marked::unmarked).map(ToolField::Offered).collect();
    let unmarked = fields.len().saturating_sub(1);
    for (field, json) in fields[..unmarked].iter_mut().zip(content.serialized.tools) {
        *field = ToolField::Serialized(json);
    }
    fields
}

/// The messages of a request without cache breakpoints.
fn messages<'a>(content: &RequestContent<'a>) -> Vec<SentMessage<'a>> {
    let serialized = content.serialized.messages.iter().map(Option::as_deref);
    let serialized = serialized.chain(iter::repeat(None));
    let each = content.messages.iter().zip(serialized);
    each.map(|(message, json)| json.map_or(SentMessage::Plain(message), SentMessage::Serialized))
        .collect()
}

/// A message with a cache breakpoint at the last block that may carry one.
fn marked(message: &Message) -> Option<SentMessage<'_>> {
    let may_be_marked = |block: &Block| {
        let is_excluded = block.is_thinking() || matches!(block, Block::Other(_));
        !is_excluded && block.as_text() != Some("")
    };
    let at = message.content.iter().rposition(may_be_marked)?;
    let mut content: Vec<_> = message.content.iter().map(Marked::unmarked).collect();
    content[at].mark();
    Some(SentMessage::Marked { role: message.role, content })
}
