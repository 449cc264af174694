//! The flags of the following turns, with the changes that a host makes to them.

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::cli::args::RunArgs;
use crate::cli::usage::UsageError;
use crate::config::first_reading::FirstReading;
use crate::config::kinds::ThinkingTokens;
use crate::config::values::InvalidValue;
use crate::host::Initialize;
use crate::types::PermissionMode;

/// The flag of the mode.
const PERMISSION_MODE: &str = "permission-mode";

/// The flag with the same meaning as the mode `bypassPermissions`.
const SKIP_PERMISSIONS: &str = "dangerously-skip-permissions";

/// The flag of the budget for thinking.
const MAX_THINKING: &str = "max-thinking-tokens";

/// The flags that set the budget for thinking.
const THINKING: [&str; 2] = [MAX_THINKING, "thinking"];

/// The flags of the next turn.
#[derive(Clone, Debug)]
pub(super) struct TurnArgs {
    /// The flags, with the changes of the host.
    pub(super) run: RunArgs,
    /// The model of the command line, or else the model that the host's first change replaced.
    model: Option<String>,
    /// The budget for thinking of the command line, by flag.
    thinking: [(&'static str, Option<String>); 2],
    /// The MCP servers that the host has set, by name.
    pub(super) servers: Map<String, Value>,
    /// True if the host may choose `bypassPermissions`.
    pub(super) may_bypass: bool,
}

impl TurnArgs {
    /// Returns the flags of the first turn: the folder is trusted, as the host chose it, and the
    /// budget is checked after each reply, as the SDKs document it.
    pub(super) fn new(args: &RunArgs) -> Self {
        let mut run = args.clone();
        run.session.trust_project = true;
        // The host chose the working folder, too, so a resumed session moves there.
        run.session.names_folder = true;
        run.session.gives_options_anew = true;
        run.session.first_reading = Some(FirstReading::default());
        run.flags.give_default("budget-mode", "after");
        let mode = run.flags.texts(PERMISSION_MODE).last();
        let may_bypass = run.flags.has(SKIP_PERMISSIONS)
            || run.compatibility.allow_dangerously_skip_permissions
            || mode.is_some_and(|mode| mode == PermissionMode::BypassPermissions.name());
        let model = run.flags.texts("model").last().cloned();
        let thinking = THINKING.map(|flag| (flag, run.flags.texts(flag).last().cloned()));
        Self { run, model, thinking, servers: Map::new(), may_bypass }
    }

    /// Without a kept session, the turns share a session in a temporary folder, and each resumes
    /// it. If that folder cannot be created, each turn begins without the earlier messages.
    pub(super) fn use_private_sessions(&mut self) -> Option<TempDir> {
        let session = &mut self.run.session;
        let private = session.no_session_persistence.then(|| tempfile::tempdir().ok()).flatten()?;
        session.no_session_persistence = false;
        session.own_folder = Some(private.path().to_owned());
        Some(private)
    }

    /// Applies the options that the host sends before its first prompt. Flags of the command line
    /// outrank them.
    ///
    /// # Errors
    /// A plugin has no folder.
    pub(super) fn initialize(&mut self, request: Initialize) -> Result<(), UsageError> {
        let Initialize { system_prompt, append_system_prompt, agents, json_schema, .. } = request;
        let run = &mut self.run;
        if run.model.system_prompt_file.is_none() {
            run.model.system_prompt = run.model.system_prompt.take().or(system_prompt);
        }
        if run.model.append_system_prompt_file.is_none() {
            let given = run.model.append_system_prompt.take();
            run.model.append_system_prompt = given.or(append_system_prompt);
        }
        let text = |value: serde_json::Value| value.to_string();
        run.prompts.agents = run.prompts.agents.take().or(agents.map(text));
        run.acceptance.json_schema = run.acceptance.json_schema.take().or(json_schema.map(text));
        run.output.stream.subagent_text |= request.forwards_subagent_text;
        if !request.sdk_servers.is_empty() {
            run.mcp.mcp_config.push(json!({ "mcpServers": request.sdk_servers }).to_string());
        }
        if let Some(servers) = request.servers {
            run.mcp.mcp_config.push(json!({ "mcpServers": servers }).to_string());
        }
        run.prompts.skills = request.skills;
        run.tools.aliases = request.tool_aliases;
        if run.session.begins_session() {
            run.session.name = run.session.name.take().or(request.title);
        }
        for plugin in request.plugins.iter().filter_map(Value::as_array).flatten() {
            let folder = plugin["path"].as_str().ok_or_else(|| {
                UsageError::new(format!(
                    "initialize: plugins: {plugin} names no folder; give its path"
                ))
            })?;
            let has_servers = plugin["skipMcpDiscovery"] != true;
            run.prompts.host_plugins.push((folder.into(), has_servers));
        }
        Ok(())
    }

    /// Returns true if the model before the host's first change is not known.
    pub(super) fn lacks_first_model(&self) -> bool {
        self.model.is_none()
    }

    /// Sets the model before the host's first change: a session records only the last model.
    pub(super) fn set_first_model(&mut self, model: &str) {
        self.model = Some(model.to_owned());
    }

    /// Sets the model of the following turns; `None`: the first model.
    pub(super) fn set_model(&mut self, model: Option<String>) {
        let model = model.or_else(|| self.model.clone());
        self.run.flags.replace("model", model);
    }

    /// Sets the maximum number of thinking tokens in a reply of the following turns; `None`: that
    /// of the command line.
    ///
    /// # Errors
    /// The number is not a valid budget.
    pub(super) fn set_thinking(&mut self, tokens: Option<u32>) -> Result<(), InvalidValue> {
        if let Some(tokens) = tokens {
            ThinkingTokens::parse(&tokens.to_string())?;
        }
        for (flag, of_command_line) in &self.thinking {
            let own = tokens.filter(|_| *flag == MAX_THINKING).map(|tokens| tokens.to_string());
            let text = if tokens.is_some() { own } else { of_command_line.clone() };
            self.run.flags.replace(flag, text);
        }
        Ok(())
    }

    /// Sets the MCP servers of the host, in place of those that were set before.
    pub(super) fn set_servers(&mut self, servers: Map<String, Value>) {
        let flag = |servers: &Map<String, Value>| json!({ "mcpServers": servers }).to_string();
        let before = flag(&self.servers);
        self.run.mcp.mcp_config.retain(|given| *given != before);
        if !servers.is_empty() {
            self.run.mcp.mcp_config.push(flag(&servers));
        }
        self.servers = servers;
    }

    /// Parses the name of a mode.
    ///
    /// # Errors
    /// There is no such mode.
    pub(super) fn mode(mode: &str) -> Result<PermissionMode, UsageError> {
        PermissionMode::parse(mode)
            .ok_or_else(|| UsageError::new(format!("there is no permission mode {mode:?}")))
    }

    /// Sets the permission mode of the following turns.
    pub(super) fn set_mode(&mut self, mode: PermissionMode) {
        self.run.flags.replace(SKIP_PERMISSIONS, None);
        self.run.flags.replace(PERMISSION_MODE, Some(mode.name().to_owned()));
    }

    /// Makes the next turn begin a new session with this id.
    pub(super) fn begin_session(&mut self, session_id: &str) {
        self.resume(session_id);
        self.run.session.resume = None;
        self.run.session.session_id = Some(session_id.to_owned());
    }

    /// Makes the next turn resume this session.
    pub(super) fn resume(&mut self, session_id: &str) {
        let session = &mut self.run.session;
        session.resume = Some(session_id.to_owned());
        session.go_on = false;
        session.resume_or_start = None;
        session.session_id = None;
        // The host may have renamed the session since.
        session.name = None;
        session.fork_session = false;
        // The contract is now that of this process.
        session.gives_options_anew = false;
        (session.resume_session_at, session.resume_drops_turn) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{CliRequest, parse};

    #[test]
    fn a_title_of_the_host_is_that_of_a_new_session() {
        const ID: &str = "00000000-0000-4000-8000-000000000000";
        let rows: [(&[&str], Option<&str>); 7] = [
            (&[], Some("Herons")),
            (&["--session-id", ID], Some("Herons")),
            (&["--name", "Own"], Some("Own")),
            (&["--resume", ID], None),
            (&["--continue"], None),
            (&["--resume-or-start", ID], None),
            (&["--resume", ID, "--fork-session"], Some("Herons")),
        ];
        for (flags, title) in rows {
            let words = [&["run"], flags].concat();
            let words: Vec<String> = words.into_iter().map(ToOwned::to_owned).collect();
            let parsed = parse(&words);
            let Ok(CliRequest::Run(args)) = parsed else { panic!("{flags:?}: {:?}", parsed.err()) };
            let mut turn = TurnArgs::new(&args);
            let request = Initialize { title: Some("Herons".to_owned()), ..Initialize::default() };
            assert!(turn.initialize(request).is_ok());
            assert_eq!(turn.run.session.name.as_deref(), title, "{flags:?}");
        }
    }
}
