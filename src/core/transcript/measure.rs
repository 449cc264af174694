//! Estimates the size of a conversation in tokens, without a tokenizer.
//!
//! There are two figures. The *bound* is for cost: no request has more tokens, since a token covers
//! at least one byte. The *estimate* is for the context window: it is slightly too high. Both start
//! from the token count in the service's last reply, and measure only what was added since.

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::token_estimate::plain_text_bytes;
use super::validity::{violation_at_end, violations_from};
use super::{Block, Message, OtherFields, Role, ToolDefinition, Usage, media};

/// Bytes that the service may add around a block: markers, field names, the role.
const BLOCK_OVERHEAD: u64 = 64;
/// Bytes that the service may add to a request, and to a request with tools.
const REQUEST_OVERHEAD: u64 = 256;
const TOOLS_OVERHEAD: u64 = 1_024;
/// Maximum number of tokens of one image, which the service scales down.
const IMAGE_TOKENS_MAX: u64 = 5_000;
/// A PDF page is read as an image and as text. In bytes of text, the bound is the largest image
/// plus a page full of words; the estimate is a dense page on most models.
const PAGE_BYTES: u64 = 14_000;
/// Maximum number of tokens of a document that is linked by URL.
const LINKED_DOCUMENT_TOKENS_MAX: u64 = 1_000_000;
/// Maximum length of the JSON of a message that is kept for later requests, in bytes. For images,
/// the memory would outweigh the saved time.
const SERIALIZED_MAX: usize = 64 << 10;
/// A service that reports fewer tokens than bytes divided by this is assumed not to count.
const BYTES_PER_TOKEN_MAX: u64 = 64;

/// The minimum number of tokens of a reply. A service that reports fewer does not count: some
/// report one token when a reply begins, and none at its end.
pub fn min_tokens(content: &[Block]) -> u64 {
    let of = |block: &Block| match block {
        Block::Text { text } => u64::from(!text.is_empty()),
        Block::Thinking { thinking, .. } => u64::from(!thinking.is_empty()),
        // A call has at least a name and an input.
        Block::ToolUse { .. } => 2,
        Block::RedactedThinking { .. }
        | Block::ToolResult { .. }
        | Block::Image { .. }
        | Block::Document { .. }
        | Block::Other(_) => 0,
    };
    content.iter().map(of).sum()
}

/// The JSON of one message, unless it is too large to be kept.
pub type SerializedMessage = Option<Box<RawValue>>;

/// A conversation and its measured size. Earlier messages can only be changed through
/// [`History::edit`], which keeps the size up to date.
#[derive(Clone, Debug)]
pub struct History {
    messages: Vec<Message>,
    meter: Meter,
    /// The JSON of the first messages, for all but large ones. The last message is never among them,
    /// as blocks may be added to it.
    serialized: Vec<SerializedMessage>,
    /// The number of messages that are known to be valid. The last message is never among them, as
    /// blocks may be added to it.
    valid: usize,
    /// The token counts of the last reply, of an earlier process. `None` once the messages before
    /// it, or the model, have changed.
    resumed: Option<Usage>,
}

impl History {
    /// Creates a history that is sent with `fixed` bytes of system prompt and tools, as counted by
    /// [`fixed_bytes`].
    pub fn new(messages: Vec<Message>, fixed: u64) -> Self {
        let mut meter = Meter::begin(fixed);
        meter.record_edit(&messages);
        Self { messages, meter, serialized: Vec::new(), valid: 0, resumed: None }
    }

    /// Continues the history of an earlier process, with the token counts of its last reply, if
    /// nothing before that reply was changed since.
    pub fn resume(messages: Vec<Message>, last_usage: Option<Usage>) -> Self {
        Self { resumed: last_usage, ..Self::new(messages, 0) }
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Serializes the messages that were added since the last call, so that a request serializes
    /// only its last message anew. An error is left to the request, which serializes the rest.
    pub fn serialize(&mut self) {
        let complete = self.messages.len().saturating_sub(1);
        for message in &self.messages[self.serialized.len().min(complete)..complete] {
            let Ok(json) = to_raw_value(message) else { break };
            self.serialized.push((json.get().len() <= SERIALIZED_MAX).then_some(json));
        }
    }

    /// The JSON of the first messages, as far as it is kept.
    pub fn serialized(&self) -> &[SerializedMessage] {
        &self.serialized
    }

    /// Updates the size of the system prompt and tools, as counted by [`fixed_bytes`].
    pub fn set_fixed_bytes(&mut self, fixed: u64) {
        self.meter.fixed = ContentSize::of_bytes(fixed);
        self.meter.record_edit(&self.messages);
        if let Some(usage) = self.resumed {
            self.meter.record_earlier_reply(&self.messages, &usage);
        }
    }

    /// Appends a message. Consecutive messages of one role are merged.
    pub fn push(&mut self, message: Message) {
        self.meter.record_appended(&message.content);
        message.join(&mut self.messages);
    }

    /// Appends a reply and updates the size with its exact token counts.
    pub fn push_reply(&mut self, message: Message, usage: &Usage) {
        self.resumed = None;
        self.meter.record_usage(usage);
        self.meter.record_kept_reply(&message.content, usage);
        message.join(&mut self.messages);
    }

    /// Updates the size with the service's token count of exactly these messages. The count is an
    /// estimate itself, so it does not lower the number of tokens that replies have shown.
    pub fn record_count(&mut self, tokens: u64) {
        let input_tokens = tokens.max(self.meter.least);
        self.meter.record_usage(&Usage { input_tokens, ..Usage::default() });
    }

    /// The last token count of the service, of these messages or of all but the latest.
    pub fn counted(&self) -> Option<u64> {
        self.meter.counted
    }

    /// True if the service has counted exactly these messages.
    pub fn is_counted(&self) -> bool {
        self.meter.counted.is_some() && self.meter.since == ContentSize::default()
    }

    /// Updates the token density from a reply that is not added to the history.
    pub fn observe_usage(&mut self, usage: &Usage) {
        self.meter.record_usage(usage);
    }

    /// Applies any change, measures all messages again, and drops their JSON.
    pub fn edit<T>(&mut self, change: impl FnOnce(&mut Vec<Message>) -> T) -> T {
        let outcome = change(&mut self.messages);
        self.meter.record_edit(&self.messages);
        self.resumed = None;
        self.serialized.clear();
        self.valid = 0;
        outcome
    }

    /// True if [`violations`](super::violations) finds nothing, or nothing but the end of a paused
    /// reply. Only messages that were added since the last check are checked.
    pub fn is_sendable(&mut self, is_paused: bool) -> bool {
        let is_valid = violations_from(&self.messages, self.valid).is_empty();
        if is_valid {
            self.valid = self.messages.len().saturating_sub(1);
        }
        is_valid && (is_paused || violation_at_end(&self.messages).is_none())
    }

    /// The maximum number of input tokens of a request with these messages.
    pub fn upper_bound(&self) -> u64 {
        self.meter.upper_bound()
    }

    /// The estimated number of input tokens of a request with these messages; slightly too high.
    pub fn estimate(&self) -> u64 {
        self.meter.estimate()
    }

    /// The estimated tokens of the system prompt and tools.
    pub fn fixed(&self) -> u64 {
        self.meter.fixed.estimate_tokens(self.meter.density)
    }

    /// The token density learned so far. Edits do not reset it.
    pub fn density(&self) -> TokenDensity {
        self.meter.density
    }
}

/// The arithmetic of a [`History`], for callers that keep the messages themselves. Every change
/// except [`Meter::record_appended`] must be reported with [`Meter::record_edit`].
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    fixed: ContentSize,
    /// The size of all messages.
    total: ContentSize,
    /// The last token count of the service, if any.
    counted: Option<u64>,
    /// The size of the content that was added after that count.
    since: ContentSize,
    /// Tokens that the next request certainly has: the counted ones, and those of the reply to that
    /// request.
    least: u64,
    /// Learned from earlier token counts.
    density: TokenDensity,
}

/// Tokens per thousand bytes of ordinary text; slightly too high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenDensity(u64);

/// The size of content: bytes that become tokens, and tokens of images and documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ContentSize {
    /// For the bound: the maximum number of bytes.
    bytes: u64,
    /// For the estimate: the equivalent number of bytes of ordinary text.
    plain_text_bytes: u64,
    tokens: u64,
}

impl TokenDensity {
    /// Slightly too high for prose and code.
    pub const USUAL: Self = Self(334);
    /// A token covers at least one byte.
    const HIGHEST: Self = Self(1_000);

    /// The estimated tokens of `bytes` of ordinary text.
    pub fn tokens(self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.0).div_ceil(1_000)
    }

    /// The bytes of ordinary text that fit in `tokens`.
    pub fn bytes(self, tokens: u64) -> u64 {
        tokens.saturating_mul(1_000) / self.0
    }

    /// The estimated tokens of `text`.
    pub fn of_text(self, text: &str) -> u64 {
        self.tokens(plain_text_bytes(text))
    }

    /// The estimated tokens of these messages.
    pub fn of(self, messages: &[Message]) -> u64 {
        self.of_blocks(messages.iter().flat_map(|message| &message.content))
    }

    /// The estimated tokens of these blocks.
    pub fn of_blocks<'a>(self, blocks: impl IntoIterator<Item = &'a Block>) -> u64 {
        ContentSize::of(blocks).estimate_tokens(self)
    }
}

impl Meter {
    pub fn begin(fixed: u64) -> Self {
        Self {
            fixed: ContentSize::of_bytes(fixed),
            total: ContentSize::default(),
            counted: None,
            since: ContentSize::default(),
            least: 0,
            density: TokenDensity::USUAL,
        }
    }

    /// Records that blocks were appended.
    pub fn record_appended(&mut self, blocks: &[Block]) {
        let size = ContentSize::of(blocks);
        self.total = self.total.plus(size);
        self.since = self.since.plus(size);
    }

    /// Records the token count for exactly the messages so far. Implausible counts are ignored.
    pub fn record_usage(&mut self, usage: &Usage) {
        let sent = self.fixed.plus(self.total);
        let input = usage.input();
        if input == 0 || input < sent.bytes / BYTES_PER_TOKEN_MAX {
            return;
        }
        (self.counted, self.least) = (Some(input), input);
        self.since = ContentSize::default();
        let text = input.saturating_sub(sent.tokens).saturating_mul(1_100);
        let density =
            text.checked_div(sent.plain_text_bytes).map_or(TokenDensity::USUAL, TokenDensity);
        // Media are counted at their maximum, so the remainder for the text is too small: the
        // density may rise, but not fall.
        let least = if sent.tokens > 0 { self.density } else { TokenDensity::USUAL };
        self.density = density.clamp(least, TokenDensity::HIGHEST);
    }

    /// Records that the reply of `usage` was appended. Must follow [`Meter::record_usage`].
    pub fn record_kept_reply(&mut self, blocks: &[Block], usage: &Usage) {
        let size = ContentSize::of(blocks);
        self.total = self.total.plus(size);
        if self.counted.is_none() || usage.output_tokens == 0 {
            self.since = self.since.plus(size);
            return;
        }
        // Thinking may be left out of later requests.
        if !blocks.iter().any(Block::is_thinking) {
            self.least = self.least.saturating_add(usage.output_tokens);
        }
        let blocks = u64::try_from(blocks.len()).unwrap_or(u64::MAX);
        let overhead = blocks.saturating_mul(BLOCK_OVERHEAD);
        let tokens = usage.output_tokens.saturating_add(overhead);
        self.since = self.since.plus(ContentSize::of_tokens(tokens));
    }

    /// Records the token counts of the last reply in `messages`, of an earlier process. The system
    /// prompt and the tools that it counted are unknown: those of this process are added to them.
    fn record_earlier_reply(&mut self, messages: &[Message], usage: &Usage) {
        let is_reply = |message: &Message| message.role == Role::Assistant;
        let Some(at) = messages.iter().rposition(is_reply) else { return };
        let measured = *self;
        self.total = ContentSize::of(messages[..at].iter().flat_map(|message| &message.content));
        self.record_usage(usage);
        self.record_kept_reply(&messages[at].content, usage);
        for message in &messages[at + 1..] {
            self.record_appended(&message.content);
        }
        (self.since, self.least) = (self.since.plus(self.fixed), 0);
        // If the system prompt and the tools are most of the request, its bytes are more exact.
        if self.upper_bound() > measured.upper_bound() {
            *self = Self { density: self.density, ..measured };
        }
    }

    /// Records that messages were changed, which invalidates the last token count.
    pub fn record_edit(&mut self, messages: &[Message]) {
        (self.counted, self.least) = (None, 0);
        self.since = ContentSize::default();
        self.total = ContentSize::of(messages.iter().flat_map(|message| &message.content));
    }

    /// The maximum number of input tokens of the next request.
    pub fn upper_bound(&self) -> u64 {
        match self.counted {
            Some(tokens) => tokens.saturating_add(self.since.bound()),
            None => self.fixed.plus(self.total).bound(),
        }
    }

    /// The estimated number of input tokens of the next request; slightly too high.
    pub fn estimate(&self) -> u64 {
        let estimate = match self.counted {
            Some(tokens) => tokens.saturating_add(self.since.estimate_tokens(self.density)),
            None => self.fixed.plus(self.total).estimate_tokens(self.density),
        };
        estimate.min(self.upper_bound())
    }
}

impl ContentSize {
    fn of_bytes(bytes: u64) -> Self {
        Self { bytes, plain_text_bytes: bytes, tokens: 0 }
    }

    fn of_tokens(tokens: u64) -> Self {
        Self { tokens, ..Self::default() }
    }

    pub(super) fn of<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Self {
        blocks.into_iter().map(block_size).fold(Self::default(), Self::plus)
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            plain_text_bytes: self.plain_text_bytes.saturating_add(other.plain_text_bytes),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    fn bound(self) -> u64 {
        self.bytes.saturating_add(self.tokens)
    }

    pub(super) fn estimate_tokens(self, density: TokenDensity) -> u64 {
        density.tokens(self.plain_text_bytes).saturating_add(self.tokens)
    }
}

/// The bytes of the system prompt and tools, which every request contains.
pub fn fixed_bytes(system: &str, tools: &[ToolDefinition]) -> u64 {
    let tool_bytes = |tool: &ToolDefinition| {
        BLOCK_OVERHEAD
            + bytes(&tool.name)
            + bytes(&tool.description)
            + max_json_bytes(&tool.input_schema)
    };
    let overhead = if tools.is_empty() { 0 } else { TOOLS_OVERHEAD };
    REQUEST_OVERHEAD + overhead + bytes(system) + tools.iter().map(tool_bytes).sum::<u64>()
}

fn block_size(block: &Block) -> ContentSize {
    let of_text = |text: &str| ContentSize {
        bytes: bytes(text),
        plain_text_bytes: plain_text_bytes(text),
        tokens: 0,
    };
    let of_bytes = |text: &str| ContentSize::of_bytes(bytes(text));
    let of_json = |value: &Value| ContentSize {
        bytes: max_json_bytes(value),
        plain_text_bytes: plain_text_bytes(&value.to_string()),
        tokens: 0,
    };
    let of_fields = |others: &OtherFields| {
        if others.is_empty() { ContentSize::default() } else { of_json(&others.to_value()) }
    };
    let content = match block {
        Block::Text { text } => of_text(text),
        Block::Thinking { thinking, signature } => of_text(thinking).plus(of_bytes(signature)),
        Block::RedactedThinking { data } => of_bytes(data),
        Block::ToolUse { id, name, input, others } => {
            of_bytes(id).plus(of_bytes(name)).plus(of_json(input)).plus(of_fields(others))
        }
        Block::ToolResult { tool_use_id, content, is_error: _ } => {
            of_bytes(tool_use_id).plus(ContentSize::of(content))
        }
        Block::Image { .. } => ContentSize::of_tokens(IMAGE_TOKENS_MAX),
        Block::Document { source, others } => {
            let source = match source.get("type").and_then(Value::as_str) {
                Some("base64") => {
                    ContentSize::of_bytes(media::pages(source).saturating_mul(PAGE_BYTES))
                }
                Some("text" | "content") => ContentSize::of_bytes(max_json_bytes(source))
                    .plus(ContentSize::of_tokens(IMAGE_TOKENS_MAX)),
                Some(_) | None => ContentSize::of_tokens(LINKED_DOCUMENT_TOKENS_MAX),
            };
            of_fields(others).plus(source)
        }
        Block::Other(value) => of_json(value),
    };
    ContentSize::of_bytes(BLOCK_OVERHEAD).plus(content)
}

fn bytes(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// The maximum length of `value` as JSON in any format of the service: with spaces, and with all
/// non-ASCII characters escaped.
fn max_json_bytes(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(number) => bytes(&number.to_string()),
        Value::String(text) => max_string_bytes(text),
        Value::Array(items) => 2 + items.iter().map(|item| 2 + max_json_bytes(item)).sum::<u64>(),
        Value::Object(members) => members
            .iter()
            .map(|(name, item)| 4 + max_string_bytes(name) + max_json_bytes(item))
            .sum::<u64>()
            .saturating_add(2),
    }
}

fn max_string_bytes(text: &str) -> u64 {
    let letter = |letter: char| match letter {
        '"' | '\\' | '/' | '\n' | '\r' | '\t' => 2,
        ' '..='~' => 1,
        _escaped => 6 * u64::try_from(letter.len_utf16()).unwrap_or(2),
    };
    2 + text.chars().map(letter).sum::<u64>()
}
