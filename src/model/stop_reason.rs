//! Classifies stop reasons.

use crate::recovery::Incomplete;

/// The meaning of a stop reason of any API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopKind {
    /// The model finished.
    Complete,
    /// The model finished, stated by a word of another API or in another spelling.
    ForeignEnd,
    /// The model called a tool.
    ToolUse,
    /// The output limit truncated the reply.
    OutputLimit,
    /// The context window was full before the reply ended.
    ContextLimit,
    /// The service paused a long turn.
    Paused,
    /// The model refused.
    Refused,
    /// A content filter stopped the reply.
    Filtered,
    /// The service reports that it interrupted the reply.
    BrokenOff,
    /// Any other reason, which proves nothing.
    Unknown,
}

/// All known stop reasons, in snake case: the Messages API; `OpenAI` and compatible services;
/// Bedrock; Gemini and Vertex; Cohere, Mistral, Ollama and TGI.
#[rustfmt::skip]
const KINDS: [(StopKind, &[&str]); 9] = [
    (StopKind::Complete, &["end_turn", "stop_sequence"]),
    (StopKind::ForeignEnd, &[
        "stop", "stop_token", "eos", "eos_token", "end", "end_of_text", "complete", "completed",
        "finish", "finished", "done", "finish_reason_stop",
    ]),
    (StopKind::ToolUse, &["tool_use", "tool_call", "tool_calls", "function_call"]),
    (StopKind::OutputLimit, &[
        "max_tokens", "max_output_tokens", "max_completion_tokens", "max_new_tokens", "max_length",
        "length",
    ]),
    (StopKind::ContextLimit, &[
        "model_length", "model_context_window_exceeded", "context_window_exceeded",
        "context_length_exceeded", "error_limit",
    ]),
    (StopKind::Paused, &["pause_turn"]),
    (StopKind::Refused, &["refusal"]),
    (StopKind::Filtered, &[
        "content_filter", "content_filtered", "guardrail_intervened", "sensitive", "safety",
        "image_safety", "recitation", "image_recitation", "language", "blocklist",
        "prohibited_content", "image_prohibited_content", "spii", "model_armor", "error_toxic",
    ]),
    (StopKind::BrokenOff, &[
        "error", "errored", "failed", "incomplete", "abort", "aborted", "cancel", "canceled",
        "cancelled", "user_cancel", "interrupted", "timeout", "network_error", "engine_error",
        "insufficient_system_resource", "unexpected_tool_call", "too_many_tool_calls",
        "malformed_function_call", "malformed_response", "malformed_tool_use",
        "malformed_model_output", "load",
    ]),
];

impl StopKind {
    /// Classifies a stop reason. Only the two exact values of the Messages API are its own end of a
    /// reply; all others are recognised in any spelling: `MAX_TOKENS`, `maxTokens`, `tool-calls`.
    pub fn classify(reason: &str) -> Self {
        let words = lower_snake_case(reason);
        let known = KINDS.iter().find(|(_, names)| names.contains(&words.as_str()));
        match known.map(|(kind, _)| *kind) {
            Some(Self::Complete) if words != reason => Self::ForeignEnd,
            Some(kind) => kind,
            None => Self::Unknown,
        }
    }

    /// The tool calls of the reply that are complete. Some servers close a truncated call with an
    /// empty input, so the last call of a truncated reply is never trusted.
    pub(super) fn trusted_calls(self) -> TrustedCalls {
        match self {
            Self::Complete
            | Self::ForeignEnd
            | Self::ToolUse
            | Self::Paused
            | Self::Refused
            | Self::Unknown => TrustedCalls::All,
            Self::OutputLimit | Self::ContextLimit => TrustedCalls::AllButLast,
            Self::Filtered | Self::BrokenOff => TrustedCalls::None,
        }
    }

    /// The reason why a reply without a tool call is incomplete if it ended for this stop reason.
    pub(super) fn incomplete_reason(self) -> Option<Incomplete> {
        match self {
            Self::Complete
            | Self::OutputLimit
            | Self::ContextLimit
            | Self::Paused
            | Self::Refused => None,
            Self::ToolUse => Some(Incomplete::MissingCall),
            Self::Filtered => Some(Incomplete::Filtered),
            Self::BrokenOff => Some(Incomplete::BrokenOff),
            Self::ForeignEnd | Self::Unknown => Some(Incomplete::UnknownReason),
        }
    }
}

/// The stop reasons for the end of a reply that make text an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndWords {
    OfMessagesApi,
    /// Also stop reasons of other APIs that gateways pass on, if no part of the reply is missing.
    OfAnyApi,
}

/// The tool calls of a reply that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrustedCalls {
    All,
    AllButLast,
    None,
}

/// Converts to snake case: `MAX_TOKENS`, `maxTokens` and `max-tokens` become `max_tokens`.
fn lower_snake_case(reason: &str) -> String {
    let mut words = String::with_capacity(reason.len() + 4);
    let mut after_lower = false;
    for letter in reason.trim().chars() {
        if letter.is_ascii_uppercase() && after_lower {
            words.push('_');
        }
        after_lower = letter.is_ascii_lowercase();
        words.push(if matches!(letter, '-' | ' ') { '_' } else { letter.to_ascii_lowercase() });
    }
    words
}
