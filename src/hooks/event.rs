//! Hook events, and the effects that hooks can have on them.

/// The events at which hooks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookEvent {
    SessionStart,
    UserPromptSubmit,
    PreToolUse,
    PermissionRequest,
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

/// The effect of a blocking hook (exit code 2, or `decision: block`) on an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectionUse {
    /// It prevents the event.
    Prevents,
    /// The event has already happened; the reason is sent to the model.
    Informs,
    /// It is ignored.
    Ignored,
}

/// Events of the same convention that outlast never emits. Hooks for them are not an error.
const UNSUPPORTED: [&str; 17] = [
    "Setup",
    "UserPromptExpansion",
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
    pub const ALL: [Self; 13] = [
        Self::SessionStart,
        Self::UserPromptSubmit,
        Self::PreToolUse,
        Self::PermissionRequest,
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

    /// The name in settings and in hook input.
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionStart => "SessionStart",
            Self::UserPromptSubmit => "UserPromptSubmit",
            Self::PreToolUse => "PreToolUse",
            Self::PermissionRequest => "PermissionRequest",
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

    /// Returns true if the event is about a tool call.
    pub fn is_tool_event(self) -> bool {
        match self {
            Self::PreToolUse
            | Self::PermissionRequest
            | Self::PostToolUse
            | Self::PostToolUseFailure => true,
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

    /// Returns true if sub-agents emit the event too.
    pub(super) fn occurs_in_subagents(self) -> bool {
        match self {
            Self::PreToolUse
            | Self::PermissionRequest
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

    /// Returns true if the event has a subject to compare matchers with.
    pub(super) fn has_subject(self) -> bool {
        match self {
            Self::UserPromptSubmit | Self::Stop => false,
            Self::SessionStart
            | Self::PreToolUse
            | Self::PermissionRequest
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

    /// Returns true if plain text output of a hook is added to the model's context.
    pub(super) fn takes_plain_text(self) -> bool {
        matches!(self, Self::SessionStart | Self::UserPromptSubmit)
    }

    /// Returns true if a hook that fails can deny something: the event, or the permission that it
    /// asks for.
    pub(super) fn can_be_guarded(self) -> bool {
        self.objection() == ObjectionUse::Prevents || self == Self::PermissionRequest
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
            | Self::PermissionRequest
            | Self::StopFailure
            | Self::SubagentStart
            | Self::SessionEnd
            | Self::Notification => ObjectionUse::Ignored,
        }
    }
}

/// Returns true if the convention has an event of this name that outlast does not support.
pub fn is_unsupported(name: &str) -> bool {
    UNSUPPORTED.contains(&name)
}
