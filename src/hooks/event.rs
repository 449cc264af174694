//! What hooks are told of, and what a hook can do about it.

/// The moments at which hooks run (SPEC 14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookEvent {
    SessionStart,
    UserPromptSubmit,
    PreToolUse,
    PostToolUse,
    PostToolUseFailure,
    Stop,
    StopFailure,
    SubagentStart,
    SubagentStop,
    PreCompact,
    SessionEnd,
    Notification,
}

/// What the words of a hook that objects (exit code 2, or `decision: block`) are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectionUse {
    /// They keep it from happening.
    Prevents,
    /// It has happened; the model is told.
    Informs,
    /// Nothing: nobody waits for this hook's opinion.
    Ignored,
}

/// Events of the same convention that never come up here. A hook for one of them is no mistake.
const UNSUPPORTED: [&str; 18] = [
    "Setup",
    "UserPromptExpansion",
    "PermissionRequest",
    "PermissionDenied",
    "PostToolBatch",
    "PostCompact",
    "InstructionsLoaded",
    "ConfigChange",
    "CwdChanged",
    "FileChanged",
    "DirectoryAdded",
    "WorktreeCreate",
    "WorktreeRemove",
    "TaskCreated",
    "TaskCompleted",
    "Elicitation",
    "ElicitationResult",
    "TeammateIdle",
];

impl HookEvent {
    pub const ALL: [Self; 12] = [
        Self::SessionStart,
        Self::UserPromptSubmit,
        Self::PreToolUse,
        Self::PostToolUse,
        Self::PostToolUseFailure,
        Self::Stop,
        Self::StopFailure,
        Self::SubagentStart,
        Self::SubagentStop,
        Self::PreCompact,
        Self::SessionEnd,
        Self::Notification,
    ];

    /// As settings and hooks write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionStart => "SessionStart",
            Self::UserPromptSubmit => "UserPromptSubmit",
            Self::PreToolUse => "PreToolUse",
            Self::PostToolUse => "PostToolUse",
            Self::PostToolUseFailure => "PostToolUseFailure",
            Self::Stop => "Stop",
            Self::StopFailure => "StopFailure",
            Self::SubagentStart => "SubagentStart",
            Self::SubagentStop => "SubagentStop",
            Self::PreCompact => "PreCompact",
            Self::SessionEnd => "SessionEnd",
            Self::Notification => "Notification",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name() == name)
    }

    /// Whether a tool call is what happens.
    pub fn is_tool_event(self) -> bool {
        match self {
            Self::PreToolUse | Self::PostToolUse | Self::PostToolUseFailure => true,
            Self::SessionStart
            | Self::UserPromptSubmit
            | Self::Stop
            | Self::StopFailure
            | Self::SubagentStart
            | Self::SubagentStop
            | Self::PreCompact
            | Self::SessionEnd
            | Self::Notification => false,
        }
    }

    /// Whether it comes up in a sub-agent's work, and not only in the run's own.
    pub(super) fn occurs_in_subagents(self) -> bool {
        match self {
            Self::PreToolUse
            | Self::PostToolUse
            | Self::PostToolUseFailure
            | Self::SubagentStart
            | Self::SubagentStop
            | Self::PreCompact
            | Self::Notification => true,
            Self::SessionStart
            | Self::UserPromptSubmit
            | Self::Stop
            | Self::StopFailure
            | Self::SessionEnd => false,
        }
    }

    /// Whether there is something that a matcher can be compared with.
    pub(super) fn has_subject(self) -> bool {
        match self {
            Self::UserPromptSubmit | Self::Stop => false,
            Self::SessionStart
            | Self::PreToolUse
            | Self::PostToolUse
            | Self::PostToolUseFailure
            | Self::StopFailure
            | Self::SubagentStart
            | Self::SubagentStop
            | Self::PreCompact
            | Self::SessionEnd
            | Self::Notification => true,
        }
    }

    /// Whether what a hook prints as plain text is told to the model.
    pub(super) fn takes_plain_text(self) -> bool {
        matches!(self, Self::SessionStart | Self::UserPromptSubmit)
    }

    pub fn objection(self) -> ObjectionUse {
        match self {
            Self::UserPromptSubmit
            | Self::PreToolUse
            | Self::Stop
            | Self::SubagentStop
            | Self::PreCompact => ObjectionUse::Prevents,
            Self::PostToolUse | Self::PostToolUseFailure => ObjectionUse::Informs,
            Self::SessionStart
            | Self::StopFailure
            | Self::SubagentStart
            | Self::SessionEnd
            | Self::Notification => ObjectionUse::Ignored,
        }
    }
}

/// Whether other programs of this convention know an event that outlast has no use for.
pub fn is_unsupported(name: &str) -> bool {
    UNSUPPORTED.contains(&name)
}
