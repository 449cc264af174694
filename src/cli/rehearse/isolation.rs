//! Keeps a rehearsal apart from the user's services, keys and folders.

use std::ffi::{OsStr, OsString};

use super::super::args::RunArgs;
use super::super::run::ProcessContext;
use super::RehearsalRun;
use crate::config::environment;

/// The API key that rehearsals send. It is not valid anywhere.
const KEY: &str = "rehearsal-key";

/// Variables of the real service.
const SERVICE: [&str; 16] = [
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_MODEL",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_PROFILE",
    "ANTHROPIC_BEDROCK_BASE_URL",
    "ANTHROPIC_VERTEX_BASE_URL",
    "ANTHROPIC_FOUNDRY_BASE_URL",
    "ANTHROPIC_FOUNDRY_RESOURCE",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
    "CLAUDE_CODE_SKIP_VERTEX_AUTH",
    "CLAUDE_CODE_SKIP_FOUNDRY_AUTH",
];

/// Variables that name folders of the user. If they are unset, programs use the home folder.
const FOLDERS: [&str; 6] = [
    "CLAUDE_CONFIG_DIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
];

/// Points a run at the scripted server, and replaces the user's folders by scratch folders. The
/// user's settings, if they are requested, are read from their own place.
pub(super) fn redirect(context: &mut ProcessContext, rehearsal: &RehearsalRun, run: &RunArgs) {
    for name in SERVICE {
        context.variables.remove(OsStr::new(name));
    }
    let sources = run.session.setting_sources.as_deref().unwrap_or_default();
    let reads_settings = sources.split(',').any(|source| source.trim() == "user");
    if !reads_settings {
        for name in FOLDERS {
            context.variables.remove(OsStr::new(name));
        }
    }
    let RehearsalRun { server, scratch } = rehearsal;
    let home = scratch.home();
    let mut set = |name: &str, value: OsString| {
        context.variables.insert(OsString::from(name), value);
    };
    if !reads_settings {
        set("OUTLAST_CONFIG_DIR", home.join(environment::CONFIG_FOLDER).into());
        set("HOME", home.into());
    }
    set("ANTHROPIC_BASE_URL", server.base_url().into());
    set("ANTHROPIC_API_KEY", KEY.into());
    for (name, value) in &server.scenario().env {
        set(name, server.fill_in(value).into());
    }
    context.set_folder(scratch.path().to_path_buf());
}
