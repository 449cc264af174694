//! What people keep in their repositories and folders for a model: kinds of sub-agents, commands,
//! skills.
//!
//! ```text
//! .claude/agents/**.md           a kind of sub-agent
//! .claude/commands/**.md         a prompt, called as /name
//! .claude/skills/NAME/SKILL.md   the same, and the model is told that it is there
//! ```
//!
//! The same in `.outlast`, and in the user's own folders. None of it runs anything, and what a
//! repository that is not trusted keeps gives no right and chooses no model.

mod agents;
mod call;
mod commands;
mod fill;
mod folders;
mod library;

pub use commands::{CommandKind, PromptCommand};
pub use library::{LibrarySearch, NamedAgent, PromptLibrary, SkillFolder};

pub(super) use agents::of_flag as agents_of_flag;
pub(super) use call::ExpandedCommand;
pub(super) use fill::Placeholders;
