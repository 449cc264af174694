//! Parses the wording of refusals: the true context window, the block at fault, and the kind of its
//! fault.
//!
//! Wording can change at any time, so every result is a hint that should be acted on only once.

use serde::{Deserialize, Serialize};

use super::{BlockPath, ClassifiedFault, ErrorClass, Fault, FaultKind, RejectedContent};
use crate::text::contains_any;

/// A part of requests that a service may refuse, and that a request can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionalField {
    Thinking,
    /// The absent field for thinking, if the service thinks by default: it is turned off
    /// explicitly.
    ThinkingByDefault,
    Effort,
    /// The cache breakpoints.
    CacheControl,
    /// The system prompt as a list of blocks, which may have cache breakpoints, and not as a
    /// string.
    SystemBlocks,
    /// The images of the conversation.
    Images,
    Streaming,
}

impl OptionalField {
    /// The fields that ask a model for thinking or effort, and their absence. A refusal that names
    /// both is about effort if it names that first: one of thinking may name effort as its
    /// replacement.
    pub const REASONING: &'static [Self] = &[Self::Effort, Self::ThinkingByDefault, Self::Thinking];
    /// The fields for the prompt cache. A system prompt without blocks has no cache breakpoints.
    pub const CACHE_MARKS: &'static [Self] = &[Self::CacheControl, Self::SystemBlocks];
}

/// A field that a service has refused for a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedField {
    /// The host of the service, since other services may accept the field.
    pub host: String,
    pub model: String,
    pub field: OptionalField,
}

/// The plausible sizes of a context window, in tokens.
const WINDOWS: std::ops::RangeInclusive<u64> = 256..=100_000_000;

/// Phrases before the size of the window, most specific first. All in lower case.
const BEFORE_THE_WINDOW: &[&str] = &[
    "context limit of ",
    "maximum context length is ",
    "maximum context length of ",
    "context length is only ",
    "context length of only ",
    "maximum prompt length is ",
    "available context size (",
    "tokens allowed (",
    "context window of ",
    "context window is ",
    "context window size of ",
    "(tpm): limit ",
    "n_ctx",
    "max_model_len",
    "maximum model length of ",
    "max_seq_len",
    "max_num_tokens",
    "max input tokens",
    "token limit",
    "tokens limit",
    "in the prompt cannot exceed ",
    "must have less than ",
    "must be <= ",
    "> ",
    "exceeds ",
    "limit of ",
];

/// Phrases of overflows that count the requested output: the API, `OpenAI` and vLLM, `OpenRouter`,
/// TGI, `SiliconFlow`.
const OUTPUT: [&str; 9] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "the completion",
    "completion tokens",
    "in the output",
    "output tokens",
    "max_total_tokens",
];

/// Signs that a sentence about streaming, or about tools in it, refuses it: Bedrock, gateways,
/// `OpenAI`.
const NOT_STREAMED: [&str; 10] = [
    "not support",
    "n't support",
    "unsupported",
    "disabled",
    "must be false",
    "should be false",
    "not implemented",
    "not allowed",
    "not enabled",
    "must be verified",
];

/// Optional fields, as refusals name them.
const FIELDS: [&str; 4] = ["thinking", "reasoning", "cache_control", "prompt caching"];

/// Signs that a sentence refuses a field.
const FIELD_REFUSED: [&str; 10] = [
    "not support",
    "n't support",
    "unsupported",
    "extra inputs",
    "unknown field",
    "unknown parameter",
    "unrecognized",
    "not enabled",
    "not allowed",
    "support the requested parameters",
];

/// Phrases of refusals of a conversation that ends with the model, as after a pause: the API, which
/// also refuses white space at its end, Mistral, Perplexity.
const ENDS_WITH_MODEL: [&str; 5] = [
    "assistant message prefill",
    "must end with a user",
    "end with trailing whitespace",
    "last role user",
    "last message must",
];

/// Phrases of a content filter that stopped the output: the API, Bedrock.
const FILTERED_OUTPUT: [&str; 3] = [
    "output blocked by content filter",
    "blocked by content filtering policy",
    "generated text has been blocked by our content filters",
];

/// Phrases of a content filter that refuses the request: Azure, `LiteLLM` and its guardrails,
/// Bedrock, Portkey, Cloudflare, `OpenRouter`, `OpenAI`, `DeepSeek`, `DashScope`. Not of a
/// guardrail that does not exist.
const FILTERED_INPUT: [&str; 18] = [
    "content management policy",
    "contentpolicyviolation",
    "violated guardrail",
    "violated content safety",
    "guardrail raised an exception",
    "guardrail checks defined in the config failed",
    "guardrail denied",
    "blocked by guardrail",
    "content blocked",
    "prompt blocked",
    "blocked by content",
    "blocked by our content",
    "blocked entity detected",
    "requires moderation",
    "violating our usage policy",
    "content exists risk",
    "inappropriate content",
    "considered high risk",
];

/// Names of images as a kind of input.
const IMAGE_INPUT: [&str; 10] = [
    "image input",
    "image_url",
    "image content",
    "images",
    "'image'",
    "\"image\"",
    "`image`",
    "multimodal",
    "multi-modal",
    "vision",
];

/// Signs that the model does not accept a kind of input: `OpenRouter`, Bedrock, Ollama and
/// llama.cpp, Mistral, vLLM.
const NOT_TAKEN: [&str; 7] = [
    "no endpoints found that support",
    "n't support",
    "not support",
    "not enabled",
    "not a multimodal",
    "not a multi-modal",
    "not a vision",
];

/// Whole phrases that mean that the model takes no images: `DeepSeek`, z.ai.
const NO_IMAGE_INPUT: [&str; 2] = ["unknown variant `image", "allowed values: ['text']"];

/// Signs of a request that a gateway rewrote, so that its message indices differ from ours.
const REWRITTEN: [&str; 4] = ["tool_calls", "tool_call_id", "image_url", "openaiexception"];

impl Fault {
    /// The message in lower case. Some encoders escape `>`, and gateways quote their output.
    pub(super) fn words(&self) -> String {
        self.detail().to_ascii_lowercase().replace("\\u003e", ">")
    }

    /// The maximum number of images, if the refusal names one.
    pub fn most_images(&self) -> Option<usize> {
        let words = self.words();
        let counts = ["too many images", "too much media", "image(s) may be provided"];
        if !contains_any(&words, &counts) {
            return None;
        }
        let most = ["> ", "at most ", "maximum of "]
            .iter()
            .find_map(|before| number_at(words.split_once(before)?.1));
        usize::try_from(most?).ok()
    }

    /// True if a content filter stopped the output. That depends on the sampled reply, so the same
    /// request may be answered. A filter that stopped the prompt would stop it again.
    pub fn is_filtered_output(&self) -> bool {
        let FaultKind::Refused { status: 200 | 400, message, .. } = &self.kind else {
            return false;
        };
        contains_any(&message.to_ascii_lowercase(), &FILTERED_OUTPUT)
    }
}

impl ClassifiedFault {
    /// The service's own figure for the context window, in tokens, if this is an overflow that
    /// names one.
    pub fn named_window(&self) -> Option<u64> {
        if self.failure.class != ErrorClass::PromptTooLong {
            return None;
        }
        let words = self.fault.words();
        BEFORE_THE_WINDOW.iter().find_map(|before| {
            let mut after = words.match_indices(before).map(|(at, _)| &words[at + before.len()..]);
            after.find_map(|after| number_at(after).filter(|number| WINDOWS.contains(number)))
        })
    }

    /// True if an overflow counts input and output together, as far as its wording shows.
    pub fn counts_output(&self) -> bool {
        let words = self.fault.words();
        self.failure.class == ErrorClass::PromptTooLong && contains_any(&words, &OUTPUT)
    }

    /// True if the service accepts no images of any size for this model.
    pub fn refuses_all_images(&self) -> bool {
        self.failure.class == ErrorClass::ImageTooLarge
            && (self.fault.most_images() == Some(0)
                || refuses_images(&self.fault.detail().to_ascii_lowercase()))
    }

    /// The position that the refusal names, if that is in the conversation.
    pub fn rejected_block(&self) -> Option<BlockPath> {
        let words = self.rejection_text()?;
        if contains_any(&words, &REWRITTEN) {
            return None;
        }
        named(&words, "messages").find_map(parse_block_path)
    }

    /// True if the refusal is about the definition of this tool: by its index among all tools, by
    /// its name (`OpenAI`), or because there are too many before it.
    pub fn rejects_tool(&self, index: usize, name: &str) -> bool {
        let words = self.rejection_text().filter(|words| !words.contains("cache_control"));
        let Some(words) = words else { return false };
        if let Some(most) = most_tools(&words) {
            return index >= most;
        }
        // To Gemini, all definitions are parts of its first tool.
        let mut lists = ["function_declarations", "tools"].into_iter();
        let blamed = lists.find_map(|list| named(&words, list).find_map(index_after));
        let is_named = |after: &str| !after.starts_with(|next| is_word_letter(next) || next == '-');
        match blamed {
            Some((blamed, _)) => blamed == index,
            None => {
                words.contains("schema") && named(&words, &name.to_ascii_lowercase()).any(is_named)
            }
        }
    }

    /// The content that the refusal rejects, if editing the conversation may help.
    pub fn rejected_content(&self) -> Option<RejectedContent> {
        let words = self.rejection_text()?;
        let class = self.failure.class;
        let is_media = matches!(
            class,
            ErrorClass::ImageTooLarge | ErrorClass::PdfTooLarge | ErrorClass::RequestTooLarge
        );
        if is_media || is_about_media(&words) {
            Some(RejectedContent::Media)
        } else if class == ErrorClass::ToolUseMismatch {
            Some(RejectedContent::Pairs)
        } else if refuses_signed_thinking(&words) {
            Some(RejectedContent::Thinking)
        } else if words.contains("thinking") && words.contains("expected") {
            // The conversation lacks thinking: there is nothing to remove. See
            // `is_about_asking_for_thinking`.
            None
        } else if is_about_thinking(&words) {
            Some(RejectedContent::Thinking)
        } else {
            let is_named = || self.rejected_block().is_some();
            (contains_any(&words, &ENDS_WITH_MODEL) || is_named()).then_some(RejectedContent::Block)
        }
    }

    /// True if a request without the field may be accepted instead.
    pub fn refuses(&self, field: OptionalField) -> bool {
        match field {
            OptionalField::Thinking => self.is_about_asking_for_thinking(),
            OptionalField::ThinkingByDefault => self.demands_thinking(),
            OptionalField::Effort => self.is_about_effort(),
            OptionalField::CacheControl => self.is_about_cache_marks(),
            OptionalField::SystemBlocks => self.demands_system_string(),
            OptionalField::Images => self.refuses_all_images(),
            OptionalField::Streaming => self.refuses_streaming(),
        }
    }

    /// True if the same request without streaming may be accepted.
    fn refuses_streaming(&self) -> bool {
        self.rejection_text().is_some_and(|words| refuses_streaming(&words))
    }

    /// True if the refusal is about thinking that the conversation lacks or the service does not
    /// offer.
    fn is_about_asking_for_thinking(&self) -> bool {
        self.rejection_text().is_some_and(|words| contains_any(&words, &["thinking", "reasoning"]))
    }

    /// True if the service demands thinking back that the conversation has lost: Kimi, `DeepSeek`.
    /// The API's "expected `thinking`" is for requests that ask for thinking.
    fn demands_thinking(&self) -> bool {
        const DEMANDS: [&str; 4] = ["passed back", "is missing", "missing thinking", "missing `"];
        self.rejection_text().is_some_and(|words| {
            contains_any(&words, &["thinking", "reasoning_content"])
                && contains_any(&words, &DEMANDS)
        })
    }

    /// True if the refusal is about effort. It must name effort before thinking: a refusal of
    /// thinking may name effort as its replacement.
    fn is_about_effort(&self) -> bool {
        self.rejection_text().is_some_and(|words| {
            let effort =
                ["output_config", "effort"].iter().filter_map(|name| words.find(name)).min();
            effort.is_some_and(|at| words.find("thinking").is_none_or(|other| at < other))
        })
    }

    fn is_about_cache_marks(&self) -> bool {
        let FaultKind::Refused { status, message, .. } = &self.fault.kind else { return false };
        let words = message.to_ascii_lowercase();
        let names = ["cache_control", "cachecontrol", "cachepoint", "prompt caching"];
        (matches!(status, 200 | 400 | 403 | 422) || refuses_field(&words))
            && contains_any(&words, &names)
    }

    /// True if the service takes the system prompt as a string only.
    fn demands_system_string(&self) -> bool {
        self.rejection_text().is_some_and(|words| {
            let mut parts = words.split(|letter| !is_word_letter(letter));
            let names = |name: &str| parts.clone().any(|part| part == name);
            let names_role = names("role") || names("messages");
            names("system") && !names_role && parts.any(|part| ["str", "string"].contains(&part))
        })
    }

    /// The message of a refusal that may be about the conversation, in lower case.
    fn rejection_text(&self) -> Option<String> {
        let FaultKind::Refused { status, message, .. } = &self.fault.kind else { return None };
        let words = message.to_ascii_lowercase();
        if !matches!(status, 200 | 400 | 413 | 422) && !refuses_part(&words) {
            return None;
        }
        let about_the_conversation = matches!(
            self.failure.class,
            ErrorClass::InvalidRequest
                | ErrorClass::ImageTooLarge
                | ErrorClass::PdfTooLarge
                | ErrorClass::RequestTooLarge
                | ErrorClass::ToolUseMismatch
        );
        about_the_conversation.then_some(words)
    }
}

fn is_word_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The number at the start of `text`, after a few signs, without its thousands separators.
fn number_at(text: &str) -> Option<u64> {
    let signs = text.chars().take(4).take_while(|one| " :=(\"'\\`".contains(*one)).count();
    let mut digits = String::new();
    let mut rest = &text[signs..];
    loop {
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        digits.push_str(&rest[..length]);
        let thousands = rest[length..]
            .strip_prefix(',')
            .filter(|rest| length > 0 && rest.bytes().take_while(u8::is_ascii_digit).count() == 3);
        match thousands {
            Some(more) => rest = more,
            None => return digits.parse().ok(),
        }
    }
}

/// The text after each occurrence of a whole word.
fn named<'a>(words: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let starts =
        words.match_indices(name).filter(|(at, _)| !words[..*at].ends_with(is_word_letter));
    starts.map(|(at, found)| &words[at + found.len()..])
}

/// Parses the path after the word "messages": `.3.content.1`, `[3].content[1]`, `",3,"content",1`.
fn parse_block_path(after: &str) -> Option<BlockPath> {
    let (message, rest) = index_after(after)?;
    let Some(rest) = word_after(rest, "content") else {
        return ends_here(rest).then_some(BlockPath { message, block: None, inner: None });
    };
    let Some((block, rest)) = index_after(rest) else {
        return Some(BlockPath { message, block: None, inner: None });
    };
    let path = rest.split([':', ' ']).next().unwrap_or_default();
    if path.contains("cache_control") {
        // A cache breakpoint of the request, which no block of the conversation has.
        return None;
    }
    let result = ["tool_result", "toolresult"].iter().find_map(|name| word_after(rest, name));
    let result = result.unwrap_or(rest);
    let inner = word_after(result, "content").and_then(index_after).map(|(inner, _)| inner);
    Some(BlockPath { message, block: Some(block), inner })
}

/// Skips the separators between the steps of a path, in all notations that services use.
fn skip_signs(text: &str) -> Option<&str> {
    let sign = |at: usize, one: char| {
        ".[]\"',\\".contains(one) || (one == ' ' && text[..at].ends_with(','))
    };
    let length = text.char_indices().take_while(|&(at, one)| sign(at, one)).count();
    (1..=8).contains(&length).then(|| &text[length..])
}

fn index_after(text: &str) -> Option<(usize, &str)> {
    // "messages, 3 of them" is not a path.
    let rest = skip_signs(text).filter(|_| !text.starts_with(','))?;
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    let index = rest[..length].parse().ok().filter(|_| length <= 6)?;
    let rest = &rest[length..];
    if let Some(rest) = rest.strip_prefix(".member") {
        // Amazon counts from one there.
        return Some((usize::checked_sub(index, 1)?, rest));
    }
    let whole = !rest.starts_with(is_word_letter);
    whole.then_some((index, rest))
}

fn word_after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = skip_signs(text)?.strip_prefix(word)?;
    (!rest.starts_with(is_word_letter)).then_some(rest)
}

/// True if the path ends here: it names the message itself, not a part of it such as its role.
fn ends_here(rest: &str) -> bool {
    skip_signs(rest)
        .is_none_or(|rest| !rest.starts_with(|letter: char| letter.is_ascii_alphabetic()))
}

/// True if a message, in lower case, refuses streaming.
pub(super) fn refuses_streaming(words: &str) -> bool {
    let is_whole = |rest: &str| !rest.starts_with(is_word_letter);
    let names =
        |part: &str| ["stream", "streaming"].iter().any(|name| named(part, name).any(is_whole));
    sentences(words).any(|part| names(part) && contains_any(part, &NOT_STREAMED))
}

/// True if a message, in lower case, refuses an optional field of requests.
fn refuses_field(words: &str) -> bool {
    sentences(words).any(|part| contains_any(part, &FIELDS) && contains_any(part, &FIELD_REFUSED))
}

/// True if a message, in lower case, refuses a part of the request, so that another request may be
/// accepted, whatever the status: gateways wrap what a service refuses.
pub(super) fn refuses_part(words: &str) -> bool {
    refuses_signed_thinking(words) || refuses_field(words) || refuses_streaming(words)
}

/// The sentences of a message.
pub(super) fn sentences(words: &str) -> impl Iterator<Item = &str> {
    words.split(['\n', ';']).flat_map(|line| line.split(". "))
}

/// True if a message, in lower case, says that a content filter refuses the request.
pub(super) fn refuses_content(words: &str) -> bool {
    contains_any(words, &FILTERED_INPUT)
}

/// True if a message, in lower case, says that the model takes no images. A refusal of one image,
/// such as for its format, does not count.
pub(super) fn refuses_images(words: &str) -> bool {
    const OTHER: [&str; 7] =
        ["format", "media type", "mime", "thinking", "animated", "svg", " url"];
    let is_whole = |rest: &str| !rest.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    let names_images = |part: &str| IMAGE_INPUT.iter().any(|name| named(part, name).any(is_whole));
    let refuses = |part: &str| {
        names_images(part) && contains_any(part, &NOT_TAKEN) && !contains_any(part, &OTHER)
    };
    contains_any(words, &NO_IMAGE_INPUT) || sentences(words).any(refuses)
}

/// The maximum number of tools, if a message, in lower case, says that there are too many: `OpenAI`
/// and Azure, Groq.
fn most_tools(words: &str) -> Option<usize> {
    const LIMITS: [&str; 4] =
        ["maximum length ", "maximum number of items is ", "maximum of ", "at most "];
    let tells = ["'tools': array too long", "'tools' : maximum number of items", "too many tools"];
    let (_, limit) = LIMITS.iter().find_map(|limit| words.split_once(limit))?;
    let most = number_at(limit).filter(|_| contains_any(words, &tells))?;
    usize::try_from(most).ok()
}

/// True if a message, in lower case, rejects the thinking of the conversation, whatever service is
/// behind the gateway: its signature, its encrypted content, or its kind of block.
fn refuses_signed_thinking(words: &str) -> bool {
    const PHRASES: [&str; 5] = [
        "invalid `signature` in `thinking`",
        // Gemini.
        "thought signature is not valid",
        "corrupted thought signature",
        // DeepSeek's server, and others in Rust.
        "unknown variant `thinking`",
        "unknown variant `redacted_thinking`",
    ];
    let is_unread = words.contains("encrypted content") && words.contains("verif");
    is_unread || contains_any(words, &PHRASES)
}

fn is_about_thinking(words: &str) -> bool {
    let signed = words.contains("signature") || words.contains("cannot be modified");
    words.contains("thinking") && (signed || words.contains("messages"))
}

fn is_about_media(words: &str) -> bool {
    const SIGNS: [&str; 8] = [
        "could not process image",
        "could not process pdf",
        "could not process document",
        ".image.source",
        ".pdf.source",
        ".document.source",
        "the pdf specified",
        "image cannot be empty",
    ];
    contains_any(words, &SIGNS)
}
