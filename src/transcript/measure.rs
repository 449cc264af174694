//! How large a conversation is, in tokens, without a tokenizer.
//!
//! Two figures, for two questions. The *bound* is for money: no request costs more, since a
//! token covers at least one byte. The *estimate* is for the context window: it errs high, but
//! not by much. Both start from what the service itself counted in its last reply, and measure
//! only what came after.

use serde_json::Value;

use super::weigh::weight;
use super::{Block, Message, ToolDefinition, Usage, media};

/// What the service may wrap around a block: markers, names of parts, the role.
const BLOCK_OVERHEAD: u64 = 64;
/// What the service may add to a request by itself, and to one that has tools.
const REQUEST_OVERHEAD: u64 = 256;
const TOOLS_OVERHEAD: u64 = 1_024;
/// The most that one image can cost after the service scaled it down.
const IMAGE_TOKENS_MAX: u64 = 5_000;
/// A page of a PDF is seen as an image and read as text. Counted as bytes of text, the bound is the
/// dearest image and a page full of words; the estimate is a dense page on most models.
const PAGE_BYTES: u64 = 14_000;
/// The most that a document can cost whose bytes are not in the request.
const LINKED_DOCUMENT_TOKENS_MAX: u64 = 1_000_000;
/// A byte count below this many per token is taken for a service that does not count.
const BYTES_PER_TOKEN_MAX: u64 = 64;

/// How few tokens a reply can have been. A service that counts fewer does not count: some name one
/// token when a reply begins, and none when it ends.
pub fn min_tokens(content: &[Block]) -> u64 {
    let of = |block: &Block| match block {
        Block::Text { text } => u64::from(!text.is_empty()),
        Block::Thinking { thinking, .. } => u64::from(!thinking.is_empty()),
        // It has a name and an input.
        Block::ToolUse { .. } => 2,
        Block::RedactedThinking { .. }
        | Block::ToolResult { .. }
        | Block::Image { .. }
        | Block::Document { .. }
        | Block::Other(_) => 0,
    };
    content.iter().map(of).sum()
}

/// A conversation and its size. Earlier messages can only be changed through [`History::edit`],
/// so the size is always that of the messages.
#[derive(Clone, Debug)]
pub struct History {
    messages: Vec<Message>,
    meter: Meter,
}

impl History {
    /// A history that is sent with `fixed` bytes of system prompt and tools, as
    /// [`fixed_bytes`] counts them.
    pub fn new(messages: Vec<Message>, fixed: u64) -> Self {
        let mut meter = Meter::begin(fixed);
        meter.record_edit(&messages);
        Self { messages, meter }
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What is sent with every request is now of this size, as [`fixed_bytes`] counts it.
    pub fn set_fixed_bytes(&mut self, fixed: u64) {
        self.meter.fixed = ContentSize { bytes: fixed, weight: fixed, tokens: 0 };
        self.meter.record_edit(&self.messages);
    }

    /// Adds to the end. What has the role of the last message becomes part of it.
    pub fn push(&mut self, message: Message) {
        self.meter.record_appended(&message.content);
        self.join(message);
    }

    /// Adds the reply to what the history holds, whose exact size is now known.
    pub fn push_reply(&mut self, message: Message, usage: &Usage) {
        self.meter.record_usage(usage);
        self.meter.record_kept_reply(&message.content, usage);
        self.join(message);
    }

    /// Learns from a reply that does not enter the history.
    pub fn observe_usage(&mut self, usage: &Usage) {
        self.meter.record_usage(usage);
    }

    /// Changes anything, and measures everything anew.
    pub fn edit<T>(&mut self, change: impl FnOnce(&mut Vec<Message>) -> T) -> T {
        let outcome = change(&mut self.messages);
        self.meter.record_edit(&self.messages);
        outcome
    }

    /// Forgets what the service counted, because another model, which counts differently, is
    /// asked from now on.
    pub fn model_changed(&mut self) {
        self.meter.record_edit(&self.messages);
    }

    /// No request with these messages has more input tokens.
    pub fn upper_bound(&self) -> u64 {
        self.meter.upper_bound()
    }

    /// About how many input tokens a request with these messages has; rather too many.
    pub fn estimate(&self) -> u64 {
        self.meter.estimate()
    }

    /// About how many of them every request has, whatever its messages.
    pub fn fixed(&self) -> u64 {
        self.meter.fixed.estimate_tokens(self.meter.density)
    }

    /// What the service's counts have taught so far. An edit does not forget it.
    pub fn density(&self) -> TokenDensity {
        self.meter.density
    }

    fn join(&mut self, message: Message) {
        match self.messages.last_mut() {
            Some(last) if last.role == message.role => last.content.extend(message.content),
            Some(_) | None => self.messages.push(message),
        }
    }
}

/// The arithmetic of a [`History`], for those who keep the messages themselves. It believes what
/// it is told: every change but [`Meter::added`] must be announced by [`Meter::edited`].
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    fixed: ContentSize,
    /// All messages.
    total: ContentSize,
    /// What the service counted, as far as it did.
    counted: Option<u64>,
    /// What came after it counted.
    since: ContentSize,
    /// From what the service counted before.
    density: TokenDensity,
}

/// Tokens that a service makes of a thousand bytes of ordinary text; rather too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenDensity(u64);

/// Bytes that become tokens, and tokens that are not made of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ContentSize {
    /// For the bound: as many bytes as the service may make of it.
    bytes: u64,
    /// For the estimate: as many bytes of ordinary text as have the same tokens.
    weight: u64,
    tokens: u64,
}

impl TokenDensity {
    /// Errs high for prose and code.
    pub const USUAL: Self = Self(334);
    /// A token covers at least one byte.
    const HIGHEST: Self = Self(1_000);

    /// About how many tokens so many bytes of ordinary text are.
    pub fn tokens(self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.0).div_ceil(1_000)
    }

    /// As many bytes of ordinary text as fit in so many tokens.
    pub fn bytes(self, tokens: u64) -> u64 {
        tokens.saturating_mul(1_000) / self.0
    }

    /// About how many tokens `text` is.
    pub fn of_text(self, text: &str) -> u64 {
        self.tokens(weight(text))
    }

    /// About how many tokens these messages are.
    pub fn of(self, messages: &[Message]) -> u64 {
        let blocks = messages.iter().flat_map(|message| &message.content);
        ContentSize::of(blocks).estimate_tokens(self)
    }

    /// About how many tokens these blocks are.
    pub fn of_blocks<'a>(self, blocks: impl IntoIterator<Item = &'a Block>) -> u64 {
        ContentSize::of(blocks).estimate_tokens(self)
    }
}

impl Meter {
    pub fn begin(fixed: u64) -> Self {
        let fixed = ContentSize { bytes: fixed, weight: fixed, tokens: 0 };
        let (total, since) = (ContentSize::default(), ContentSize::default());
        Self { fixed, total, counted: None, since, density: TokenDensity::USUAL }
    }

    /// Blocks were added at the end.
    pub fn record_appended(&mut self, blocks: &[Block]) {
        let size = ContentSize::of(blocks);
        self.total = self.total.plus(size);
        self.since = self.since.plus(size);
    }

    /// The service answered a request with exactly the messages so far. A count that cannot be
    /// true is not believed.
    pub fn record_usage(&mut self, usage: &Usage) {
        let sent = self.fixed.plus(self.total);
        let input = usage.input();
        if input == 0 || input < sent.bytes / BYTES_PER_TOKEN_MAX {
            return;
        }
        self.counted = Some(input);
        self.since = ContentSize::default();
        let text = input.saturating_sub(sent.tokens).saturating_mul(1_100);
        let density = text.checked_div(sent.weight).map_or(TokenDensity::USUAL, TokenDensity);
        // Media are counted at the most that they can cost, so what seems to be left for the text
        // beside them is too little: it may raise what was learned, not lower it.
        let least = if sent.tokens > 0 { self.density } else { TokenDensity::USUAL };
        self.density = density.clamp(least, TokenDensity::HIGHEST);
    }

    /// The reply that `usage` came with was added at the end. Follows [`Meter::replied`].
    pub fn record_kept_reply(&mut self, blocks: &[Block], usage: &Usage) {
        let size = ContentSize::of(blocks);
        self.total = self.total.plus(size);
        let wrapped =
            u64::try_from(blocks.len()).unwrap_or(u64::MAX).saturating_mul(BLOCK_OVERHEAD);
        let exact =
            ContentSize { bytes: 0, weight: 0, tokens: usage.output_tokens.saturating_add(wrapped) };
        let known = self.counted.is_some() && usage.output_tokens > 0;
        self.since = self.since.plus(if known { exact } else { size });
    }

    /// Messages were changed: what the service counted no longer holds.
    pub fn record_edit(&mut self, messages: &[Message]) {
        self.counted = None;
        self.since = ContentSize::default();
        self.total = ContentSize::of(messages.iter().flat_map(|message| &message.content));
    }

    /// No request has more input tokens.
    pub fn upper_bound(&self) -> u64 {
        let everything = self.fixed.plus(self.total).bound();
        match self.counted {
            Some(tokens) => tokens.saturating_add(self.since.bound()),
            None => everything,
        }
    }

    /// About how many input tokens the next request has; rather too many than too few.
    pub fn estimate(&self) -> u64 {
        let guess = match self.counted {
            Some(tokens) => tokens.saturating_add(self.since.estimate_tokens(self.density)),
            None => self.fixed.plus(self.total).estimate_tokens(self.density),
        };
        guess.min(self.upper_bound())
    }
}

impl ContentSize {
    pub(super) fn of<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Self {
        blocks.into_iter().map(block_size).fold(Self::default(), Self::plus)
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            weight: self.weight.saturating_add(other.weight),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    fn bound(self) -> u64 {
        self.bytes.saturating_add(self.tokens)
    }

    pub(super) fn estimate_tokens(self, density: TokenDensity) -> u64 {
        density.tokens(self.weight).saturating_add(self.tokens)
    }
}

/// The bytes that every request has beside its messages.
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
    let known = |bytes| ContentSize { bytes, weight: bytes, tokens: 0 };
    let words = |text: &str| ContentSize { bytes: bytes(text), weight: weight(text), tokens: 0 };
    let json = |value: &Value| ContentSize {
        bytes: max_json_bytes(value),
        weight: weight(&value.to_string()),
        tokens: 0,
    };
    let fixed = |tokens| ContentSize { bytes: 0, weight: 0, tokens };
    known(BLOCK_OVERHEAD).plus(match block {
        Block::Text { text } => words(text),
        Block::Thinking { thinking, signature } => words(thinking).plus(known(bytes(signature))),
        Block::RedactedThinking { data } => known(bytes(data)),
        Block::ToolUse { id, name, input } => known(bytes(id) + bytes(name)).plus(json(input)),
        Block::ToolResult { tool_use_id, content, is_error: _ } => {
            known(bytes(tool_use_id)).plus(ContentSize::of(content))
        }
        Block::Image { .. } => fixed(IMAGE_TOKENS_MAX),
        Block::Document { source } => match source.get("type").and_then(Value::as_str) {
            Some("base64") => known(media::pages(source).saturating_mul(PAGE_BYTES)),
            Some("text" | "content") => known(max_json_bytes(source)).plus(fixed(IMAGE_TOKENS_MAX)),
            Some(_) | None => fixed(LINKED_DOCUMENT_TOKENS_MAX),
        },
        Block::Other(value) => json(value),
    })
}

fn bytes(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// The most bytes that `value` can take as JSON, however the service writes it for the model:
/// with spaces, with everything beyond ASCII escaped.
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
