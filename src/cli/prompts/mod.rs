//! Prompt files of repositories and of the user: agents, commands, skills and output styles.
//!
//! ```text
//! .claude/agents/**.md           a kind of sub-agent
//! .claude/commands/**.md         a prompt, called as /name
//! .claude/skills/NAME/SKILL.md   a prompt that the model may use by itself too
//! .claude/output-styles/**.md    an output style: a part of the system prompt
//! ```
//!
//! The folder `.outlast` and the user's own folders have the same layout. Reading them executes
//! nothing, and files of an untrusted repository cannot grant permissions or choose a model.

mod agents;
mod call;
mod commands;
mod fill;
mod folders;
mod library;
mod search;

pub use folders::{FileTrust, LibrarySearch};
pub use library::{
    CommandKind, NamedAgent, OutputStyle, PromptCommand, PromptLibrary, RequestedSettings,
    SkillFolder,
};

pub(super) use agents::parse_flag as agents_of_flag;
pub(super) use call::{ExpandedCommand, ServerPromptCall};
pub(super) use fill::Placeholders;
