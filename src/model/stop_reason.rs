//! Classifies stop reasons.

use crate::recovery::Incomplete;

/// The meaning of a stop reason, whatever API it was copied from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopKind {
    /// The model finished.
    Complete,
    /// The model finished, in the word of another API or in another spelling.
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
const KINDS: [(&str, StopKind); 68] = {
    use StopKind as K;
    [
        ("end_turn", K::Complete),
        ("stop_sequence", K::Complete),
        ("stop", K::ForeignEnd),
        ("stop_token", K::ForeignEnd),
        ("eos", K::ForeignEnd),
        ("eos_token", K::ForeignEnd),
        ("end", K::ForeignEnd),
        ("end_of_text", K::ForeignEnd),
        ("complete", K::ForeignEnd),
        ("completed", K::ForeignEnd),
        ("finish", K::ForeignEnd),
        ("finished", K::ForeignEnd),
        ("done", K::ForeignEnd),
        ("finish_reason_stop", K::ForeignEnd),
        ("tool_use", K::ToolUse),
        ("tool_call", K::ToolUse),
        ("tool_calls", K::ToolUse),
        ("function_call", K::ToolUse),
        ("max_tokens", K::OutputLimit),
        ("max_output_tokens", K::OutputLimit),
        ("max_completion_tokens", K::OutputLimit),
        ("max_new_tokens", K::OutputLimit),
        ("max_length", K::OutputLimit),
        ("length", K::OutputLimit),
        ("model_length", K::ContextLimit),
        ("model_context_window_exceeded", K::ContextLimit),
        ("context_window_exceeded", K::ContextLimit),
        ("context_length_exceeded", K::ContextLimit),
        ("error_limit", K::ContextLimit),
        ("pause_turn", K::Paused),
        ("refusal", K::Refused),
        ("content_filter", K::Filtered),
        ("content_filtered", K::Filtered),
        ("guardrail_intervened", K::Filtered),
        ("sensitive", K::Filtered),
        ("safety", K::Filtered),
        ("image_safety", K::Filtered),
        ("recitation", K::Filtered),
        ("image_recitation", K::Filtered),
        ("language", K::Filtered),
        ("blocklist", K::Filtered),
        ("prohibited_content", K::Filtered),
        ("image_prohibited_content", K::Filtered),
        ("spii", K::Filtered),
        ("model_armor", K::Filtered),
        ("error_toxic", K::Filtered),
        ("error", K::BrokenOff),
        ("errored", K::BrokenOff),
        ("failed", K::BrokenOff),
        ("incomplete", K::BrokenOff),
        ("abort", K::BrokenOff),
        ("aborted", K::BrokenOff),
        ("cancel", K::BrokenOff),
        ("canceled", K::BrokenOff),
        ("cancelled", K::BrokenOff),
        ("user_cancel", K::BrokenOff),
        ("interrupted", K::BrokenOff),
        ("timeout", K::BrokenOff),
        ("network_error", K::BrokenOff),
        ("engine_error", K::BrokenOff),
        ("insufficient_system_resource", K::BrokenOff),
        ("unexpected_tool_call", K::BrokenOff),
        ("too_many_tool_calls", K::BrokenOff),
        ("malformed_function_call", K::BrokenOff),
        ("malformed_response", K::BrokenOff),
        ("malformed_tool_use", K::BrokenOff),
        ("malformed_model_output", K::BrokenOff),
        ("load", K::BrokenOff),
    ]
};

impl StopKind {
    /// Classifies a stop reason. Only the two exact values of the Messages API are its own end of a
    /// reply; all others are recognised in any spelling: `MAX_TOKENS`, `maxTokens`, `tool-calls`.
    pub fn classify(reason: &str) -> Self {
        let words = lower_snake_case(reason);
        let known = KINDS.iter().find(|(name, _)| *name == words).map(|(_, kind)| *kind);
        match known {
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
