//! Hook events, and the effects that hooks can have on them.

/// The properties of an event: its row in the table.
struct HookEventInfo {
    name: &'static str,
    objection: ObjectionUse,
    properties: &'static [HookProperty],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HookProperty {
    /// The event is about a tool call.
    IsToolEvent,
    /// Sub-agents emit the event too.
    InSubagents,
    /// The event has a subject to compare matchers with.
    HasSubject,
    /// Plain text output of a hook is added to the model's context.
    TakesText,
}

/// Defines the events from one row each.
macro_rules! hook_events {
    ($($event:ident: $objection:ident, [$($property:ident),*];)*) => {
        /// The events at which hooks run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum HookEvent {
            $($event),*
        }

        impl HookEvent {
            pub const ALL: [Self; 13] = [$(Self::$event),*];

            const fn info(self) -> HookEventInfo {
                match self {
                    $(Self::$event => HookEventInfo {
                        name: stringify!($event),
                        objection: ObjectionUse::$objection,
                        properties: &[$(HookProperty::$property),*],
                    },)*
                }
            }
        }
    };
}

hook_events! {
    SessionStart: Ignored, [HasSubject, TakesText];
    UserPromptSubmit: Prevents, [TakesText];
    PreToolUse: Prevents, [IsToolEvent, InSubagents, HasSubject];
    PermissionRequest: Ignored, [IsToolEvent, InSubagents, HasSubject];
    PostToolUse: Informs, [IsToolEvent, InSubagents, HasSubject];
    PostToolUseFailure: Informs, [IsToolEvent, InSubagents, HasSubject];
    Stop: Prevents, [];
    StopFailure: Ignored, [HasSubject];
    SubagentStart: Ignored, [InSubagents, HasSubject];
    SubagentStop: Prevents, [InSubagents, HasSubject];
    PreCompact: Prevents, [InSubagents, HasSubject];
    SessionEnd: Ignored, [HasSubject];
    Notification: Ignored, [InSubagents, HasSubject];
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
    /// The name in settings and in hook input.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Finds an event by its name in any case: `preToolUse` and `pre_tool_use` are `PreToolUse`, and
    /// `_PreToolUse` is a comment.
    pub fn from_name(name: &str) -> Option<Self> {
        let plain: String = name.split(['_', '-']).take_while(|part| !part.is_empty()).collect();
        Self::ALL.into_iter().find(|event| event.name().eq_ignore_ascii_case(&plain))
    }

    fn has(self, property: HookProperty) -> bool {
        self.info().properties.contains(&property)
    }

    pub fn is_tool_event(self) -> bool {
        self.has(HookProperty::IsToolEvent)
    }

    pub(super) fn occurs_in_subagents(self) -> bool {
        self.has(HookProperty::InSubagents)
    }

    pub(super) fn has_subject(self) -> bool {
        self.has(HookProperty::HasSubject)
    }

    pub(super) fn takes_plain_text(self) -> bool {
        self.has(HookProperty::TakesText)
    }

    /// Returns true if a hook that fails can deny something: the event, or the permission that it
    /// asks for.
    pub fn can_be_guarded(self) -> bool {
        self.objection() == ObjectionUse::Prevents || self == Self::PermissionRequest
    }

    pub fn objection(self) -> ObjectionUse {
        self.info().objection
    }
}

/// Returns true if the convention has an event of this name that outlast does not support.
pub fn is_unsupported(name: &str) -> bool {
    UNSUPPORTED.contains(&name)
}
