//! The interface of a run to its tools, besides their calls: acceptance, sandbox, environment, end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::process::CommandSandbox;
use crate::secrets::KnownSecrets;

use super::acceptance::Acceptance;
use super::background::{BackgroundTasks, TaskStops};
use super::external::truncated;
use super::file_names;
use super::permission::{PermissionUpdate, UpdateError};
use super::requirement::{RequirementCheck, RequirementState};
use super::sandbox::{CommandScope, SandboxGaps, SandboxState};
use super::structured::{Delivery, OtherCalls};
use super::toolbox::{ToolSet, Toolbox};
use super::withheld::{names, withheld_variable};
use crate::types::{OnDenied, PermissionMode, PermissionPrompt, ReadFile};

impl Toolbox {
    /// Returns a text as the result of a tool: cut in the middle if it is too long, and then saved
    /// whole to a file that it names.
    pub async fn within_limit(&self, text: &str) -> String {
        truncated(text, self.tools.results.built_in(), &self.tools.shell.scratch).await
    }

    /// Returns a text of a hook: its beginning if it is longer than `most` characters, with the
    /// file that has it whole.
    pub async fn beginning(&self, text: &str, most: usize) -> String {
        let Some((end, _)) = text.char_indices().nth(most) else { return text.to_owned() };
        let place = match self.tools.shell.scratch.keep("hook", text.as_bytes()).await {
            Ok(path) => format!("the whole text is in {}", path.display()),
            Err(error) => format!("the whole text could not be saved: {error}"),
        };
        format!("{} [… cut after {most} characters; {place}]", &text[..end])
    }

    /// Names of variables that are hidden from commands because they are, or look like, secrets.
    pub fn dropped_variables(&self) -> &[String] {
        &self.tools.shell.environment.dropped
    }

    /// The background tasks of the run.
    pub fn background(&self) -> &BackgroundTasks {
        &self.tools.shell.background
    }

    /// The tasks that a host can stop.
    pub fn task_stops(&self) -> &TaskStops {
        &self.settings.stops
    }

    /// Stops all background tasks of the run. Those that are still running `patience` after the
    /// request to stop are killed.
    pub async fn stop_and_wait(&self, patience: Duration) {
        if self.background().stop_all(patience).await {
            // Dropping a command kills its process group; this kills processes that have left the
            // group.
            self.kill_remaining_processes().await;
        }
    }

    /// The steps of the model's list that are not completed.
    pub fn open_todos(&self) -> Vec<String> {
        self.tools.todos.open()
    }

    /// The effective sandbox of commands.
    pub fn sandbox(&self) -> &SandboxState {
        self.tools.shell.sandbox.state()
    }

    /// The paths that commands may write to, with links resolved.
    pub fn writable_places(&self) -> &[PathBuf] {
        self.tools.shell.sandbox.writable()
    }

    /// The sandbox of commands, for programs in folders that commands may write to.
    pub fn command_sandbox(&self) -> CommandSandbox {
        let sandbox = Arc::clone(&self.tools.shell.sandbox);
        Box::new(move || sandbox.rules(&CommandScope::Sandbox(Vec::new())))
    }

    /// The gaps of the sandbox on this machine.
    pub fn sandbox_gaps(&self) -> &SandboxGaps {
        self.tools.shell.sandbox.gaps()
    }

    /// The reason that the sandbox is weaker than requested, as one line for a warning. `None` if
    /// it is not.
    pub fn sandbox_warning(&self) -> Option<&str> {
        self.tools.shell.sandbox.warning()
    }

    /// Secrets that permission rules name but that are still withheld from commands.
    pub fn withheld_despite_rules(&self) -> Vec<String> {
        let is_named =
            |name: &str| self.settings.permissions.allow.iter().any(|rule| names(rule, name));
        let withheld = self.tools.shell.environment.withheld_secrets();
        withheld.filter(|name| is_named(name)).map(|name| withheld_variable(&name)).collect()
    }

    /// The warnings of tools since they were last taken.
    pub fn take_warnings(&self) -> Vec<String> {
        self.tools.shell.withheld.take()
    }

    /// The policy for the run when a call is denied.
    pub fn on_denied(&self) -> OnDenied {
        self.settings.permissions.on_denied
    }

    /// The tool that decides permission prompts. `None` if there is none or the mode forbids
    /// prompts.
    pub fn prompt_tool(&self) -> Option<&PermissionPrompt> {
        let tool = self.settings.prompt_tool.as_ref();
        tool.filter(|_| self.settings.permissions.mode != PermissionMode::DontAsk)
    }

    /// Changes the permissions, for all calls from now on.
    ///
    /// # Errors
    /// The change is not valid or not allowed; nothing was changed.
    pub fn update_permissions(&self, update: &PermissionUpdate) -> Result<(), UpdateError> {
        let places = &self.tools.places;
        let folders = (places.cwd(), places.home.as_deref());
        self.settings.live.apply(update, folders, |it| places.resolve(it, places.cwd()).real)
    }

    /// Starts the supervisor of commands. Blocks briefly.
    pub fn start_supervisor(&self) {
        self.tools.shell.supervisor.start_supervisor();
    }

    /// Kills every process started in this run that is still running, in any process group. Does
    /// nothing for a sub-agent, whose processes are not distinguishable: they end with the run.
    /// While a background command outlives the run, they end with that command.
    pub async fn kill_remaining_processes(&self) {
        if !self.is_root || self.tools.shell.background.keeps_command() {
            return;
        }
        let supervisor = self.tools.shell.supervisor.clone();
        // The call has its own time limit.
        let _ = tokio::task::spawn_blocking(move || supervisor.close()).await;
    }

    /// Like [`Self::kill_remaining_processes`], outside async code. Blocks for at most a second.
    pub fn kill_remaining_processes_blocking(&self) {
        if !self.tools.shell.background.keeps_command() {
            self.tools.shell.supervisor.close();
        }
    }

    /// The environment of commands.
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.tools.shell.environment.variables
    }

    /// The shell that runs commands.
    pub fn shell(&self) -> &Path {
        self.tools.shell.program.path()
    }

    /// The reason that commands do not run in bash, as one line for a warning. `None` if they do.
    pub fn shell_warning(&self) -> Option<String> {
        self.tools.shell.program.warning()
    }

    /// Returns the files that the model has read or written since the last call.
    pub fn take_files_read(&self) -> Vec<ReadFile> {
        self.tools.seen.take_changes()
    }

    /// Adds the files that the model has read or written in an earlier process.
    pub fn restore_files_read(&self, files: Vec<ReadFile>) {
        self.tools.seen.restore(files);
    }

    /// Returns the folder in which the next command starts, if it is another one than at the last
    /// call: as text, which journals can hold and [`Self::go_on_in`] reads.
    pub fn take_new_folder(&self) -> Option<PathBuf> {
        self.tools.shell.folder.take_new().map(|folder| file_names::shown(&folder).into())
    }

    /// Starts the next command in `folder`. If it is gone or the run may not work there, returns
    /// the folder in which the next command starts instead.
    pub fn go_on_in(&self, folder: &Path) -> Option<PathBuf> {
        let ToolSet { shell, places, .. } = &*self.tools;
        (!shell.folder.go_on_in(&file_names::find(folder), places)).then(|| shell.folder.path())
    }

    /// Adds variables exported by the user's hooks to the environment of later commands. Returns
    /// the names of those rejected as credentials.
    pub fn adopt_exports(&self, exports: Vec<(String, String)>) -> Vec<String> {
        self.tools.shell.environment.add_exports(exports)
    }

    /// The secrets of the run.
    pub fn secrets(&self) -> &KnownSecrets {
        &self.settings.secrets
    }

    /// The input of a `StructuredOutput` call with the answer that the text of a reply contains, if
    /// the run needs one. It is not validated.
    pub fn answer_in_text(&self, text: &str) -> Option<Value> {
        self.tools.acceptance.answers.as_ref()?.input_in_text(text)
    }

    /// Evaluates the answers delivered by one reply. Call it once after each reply, when all of its
    /// tools have finished.
    pub fn settle_answers(&self, others: OtherCalls) -> Delivery {
        self.tools.acceptance.answers.as_ref().map_or(Delivery::Nothing, |all| all.settle(others))
    }

    /// Runs the command that must pass; returns `None` if there is none. Takes no longer than the
    /// requirement's timeout plus the few seconds needed to kill a command. Dropping the future
    /// kills the command.
    pub async fn run_requirement(&self, cancel: CancellationToken) -> Option<RequirementCheck> {
        let requirements = self.tools.acceptance.requirements.as_ref()?;
        let cwd = self.tools.places.cwd();
        let redactor = self.redactor.to_output();
        Some(requirements.check(&self.tools.shell, cwd, &redactor, &cancel).await)
    }

    /// The state of the acceptance criteria so far.
    pub fn acceptance(&self) -> Acceptance {
        let demands = &self.tools.acceptance;
        Acceptance {
            structured_output: demands.answers.as_ref().and_then(|all| all.delivered()),
            schema_attempts: demands.answers.as_ref().map(|answers| answers.attempts()),
            requirement: demands.requirements.as_ref().map(RequirementState::verified),
        }
    }
}
