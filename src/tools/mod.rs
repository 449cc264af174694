//! The tools that the model can call, and their permissions.
//!
//! A call is parsed by [`Toolbox::prepare`] and checked by [`Toolbox::authorize`], which returns a
//! [`Permit`]. With it, [`Toolbox::run`] always returns a [`ToolOutcome`], even if the tool fails,
//! hangs or panics.

mod acceptance;
mod added_folders;
mod agents;
mod attach;
mod background;
mod backtracking;
mod bash_forms;
mod built_in_calls;
mod call_paths;
mod capture;
mod catalog;
mod coercion;
mod command;
mod command_report;
mod command_settings;
mod confinement;
mod credentials;
mod domain;
mod edit;
mod encoding;
mod environment;
mod external;
mod external_calls;
mod file_history;
mod file_names;
mod files_read;
mod final_cwd;
mod git_settings;
mod glob;
mod glob_limits;
mod glob_readings;
mod grep;
mod grep_results;
mod head_and_tail;
mod hook_index;
mod input;
mod input_fields;
mod input_forms;
mod input_names;
mod line_diff;
mod line_end_reader;
mod media;
mod notebook;
mod notebook_edit;
mod offered_name;
mod outcome;
mod panic_guard;
mod paths;
mod permission;
mod permit;
mod prepared_call;
mod protected_paths;
mod read;
mod real_paths;
mod replace_file;
mod requirement;
mod run_interface;
mod sandbox;
mod schema;
mod secret_values;
mod settings;
mod shell;
mod shell_folder;
mod shell_lexer;
mod shell_program;
mod shell_wrappers;
mod structured;
mod text;
mod text_file;
mod todo;
mod tool_name;
mod tool_search;
mod toolbox;
mod toolbox_setup;
mod walk;
mod web;
mod withheld;
mod write;

pub use crate::types::{ChildEnvironment, OnDenied, PermissionMode, SandboxMode};
pub use acceptance::Acceptance;
pub use agents::{AgentCall, AgentDefinition, GENERAL_PURPOSE, OnFailure, SubagentToolsError};
pub use attach::{LineRange, NotAttached, ReadDenial};
pub use background::{
    AgentEnded, BackgroundAgent, BackgroundClosed, BackgroundEnd, BackgroundKind, BackgroundTask,
    BackgroundTasks, KeptCommands, NoSuchTask, StoppableTask, TaskStops,
};
pub use catalog::{AGENT, TASK, WEB_SEARCH, built_in_names, is_agent_tool};
pub use command_settings::{CommandSettings, InvalidCommand};
pub use confinement::Confinement;
pub use domain::InvalidHost;
pub use encoding::decode_text;
pub use environment::hook_environment;
pub use external::{ExternalResult, ExternalTools};
pub use file_history::{FileHistory, RestoreError, RestoreMode, RestoredFiles};
pub use files_read::FilesRead;
pub use glob_limits::check_glob;
pub use input::{ToolSearchInput, WebSearchInput};
pub use line_diff::{DiffHunk, DiffLine, diff_lines, parse_patch};
pub use media::prompt_image;
pub use offered_name::{offered_name, other_name};
pub use outcome::{Effect, GrantSource, ToolOutcome, ToolRefusal, refusal_reason};
pub use panic_guard::end_tasks;
pub use permission::{
    LivePermissions, PermissionUpdate, RuleError, RuleList, UpdateError, absolute_rule,
    anchor_rule, check_rule, rule_below,
};
pub use permit::{DelegatedCall, Permit};
pub use prepared_call::PreparedCall;
pub use requirement::{RequirementCheck, RequirementEnd, RequirementReport};
pub use sandbox::{
    ChooseProxy, DomainLists, Egress, EgressGap, EgressOptions, Enforced, InvalidEntry,
    ProbeFailure, ProxyScheme, SandboxError, SandboxGaps, SandboxSettings, SandboxState,
    SettingsFolders, TerminalAccess, UpstreamProxy, is_sandbox_path, owns_git_directory,
    settings_folders,
};
pub use schema::{AnswerSchema, BadSchema, SCHEMA_BYTES_MAX};
pub use secret_values::secret_values;
pub use settings::{
    AcceptanceSettings, BadSettings, Offered, PermissionSettings, Requirement, ResultLimits,
    ToolSettings,
};
pub use shell::STARTED_IN_BACKGROUND;
pub use shell_program::ShellProgram;
pub use structured::{Delivery, OtherCalls, STRUCTURED_OUTPUT};
pub use text::{NUL_SIGN, is_binary};
pub use tool_name::{ToolName, classify_tool_name, is_comment_rule, known_names, nearest_tool};
pub use tool_search::DeferredTools;
pub use toolbox::Toolbox;
pub use web::{FetchSettings, MakeClient, WebClient, WebClientError, WebSettings};
