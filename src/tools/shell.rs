//! The Bash tool: runs each command in a new shell.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::process::{
    Job, RunningJob, StartUnknown, Supervisor, find_program, limit_to_raise, timeout_while_running,
};
use crate::text::millis;
use crate::transcript::exit_note;

use super::background::{BackgroundTasks, CommandKeeper, TaskStart};
use super::capture::{CapturedOutput, OutputCapture, OutputFolder};
use super::command::{AwaitedEnd, EndedCommand, wait_for_end};
use super::command_report::CommandReport;
use super::command_settings::CommandSettings;
use super::credentials::CredentialSet;
use super::environment::CommandEnv;
use super::final_cwd::FinalCwd;
use super::git_settings::{self, ConfigFolders, GitSettings};
use super::hook_index::{self, HookIndex};
use super::input::{BashInput, lowered};
use super::outcome::{ToolError, ToolOutcome};
use super::paths::WorkFolders;
use super::sandbox::{CommandScope, PlainScope, Sandbox};
use super::settings::ToolSettings;
use super::shell_folder::ShellFolder;
use super::shell_program::ShellProgram;
use super::toolbox_setup::background_tasks;
use super::withheld::{FailedCommand, WithheldNotes, names};

/// The environment variable in which a shell receives the command. It unsets it.
const TEXT_VARIABLE: &str = "OUTLAST_COMMAND";

/// The beginning of the result of a task started in the background. Its id follows.
pub const STARTED_IN_BACKGROUND: &str = "Runs in the background as ";

/// The time limit for git to list its settings.
const GIT_SETTINGS_LIMIT: Duration = Duration::from_secs(5);

/// The maximum size of the list, in bytes.
const GIT_SETTINGS_BYTES_MAX: usize = 1 << 20;

/// The state that is kept between commands.
#[derive(Debug)]
pub(super) struct ShellSession {
    pub(super) program: ShellProgram,
    pub(super) environment: CommandEnv,
    settings: CommandSettings,
    output_limit: usize,
    pub(super) scratch: Arc<OutputFolder>,
    pub(super) supervisor: Supervisor,
    pub(super) background: Arc<BackgroundTasks>,
    pub(super) folder: ShellFolder,
    pub(super) sandbox: Arc<Sandbox>,
    /// The settings of git for commands without a rule in a folder, until another command runs.
    git_settings: Mutex<Option<(PathBuf, GitSettings)>>,
    /// The index of the git hook that outlast runs in, unless its variable is passed to all
    /// commands.
    hook_index: Option<HookIndex>,
    /// Notes about credentials that failing commands named but did not get.
    pub(super) withheld: WithheldNotes,
}

impl ShellSession {
    pub(super) fn new(
        settings: &ToolSettings,
        environment: CommandEnv,
        cwd: &Path,
        scratch: Arc<OutputFolder>,
        sandbox: Arc<Sandbox>,
    ) -> Self {
        let is_passed = environment.get(hook_index::VARIABLE).is_some();
        let index = HookIndex::find(&settings.environment, cwd).filter(|_| !is_passed);
        Self {
            program: ShellProgram::find(environment.get("PATH").unwrap_or_default(), cwd),
            environment,
            settings: settings.commands.clone(),
            output_limit: settings.results.built_in(),
            scratch,
            supervisor: settings.supervisor.clone(),
            background: background_tasks(settings),
            folder: ShellFolder::new(cwd),
            sandbox,
            git_settings: Mutex::default(),
            hook_index: index,
            withheld: WithheldNotes::default(),
        }
    }

    /// Lowers the timeout to the maximum. Returns a note for the model if that changed it.
    pub(super) fn lower_timeout(&self, input: &mut BashInput) -> Option<String> {
        let CommandSettings { background_lifetime, .. } = self.settings;
        let most =
            if input.run_in_background { background_lifetime } else { self.settings.longest() };
        let most = millis(most);
        input.timeout.filter(|timeout| *timeout > most)?;
        input.timeout = Some(most);
        Some(lowered("timeout", format!("{most} ms")))
    }

    /// Runs a command in the foreground.
    pub(super) async fn run(
        &self,
        input: &BashInput,
        mut scope: CommandScope,
        places: &WorkFolders,
        cancel: &CancellationToken,
    ) -> Result<ToolOutcome, ToolError> {
        if cancel.is_cancelled() {
            return Err(ToolError::interrupted());
        }
        let mut notes = Vec::new();
        let cwd = self.folder.usable(places, &mut notes);
        let final_cwd = match &scope {
            _ if input.has_own_folder => None,
            CommandScope::Sandbox(_) | CommandScope::Plain(PlainScope { may_move: true, .. }) => {
                self.folder.report_file(&self.scratch).await
            }
            // Other commands cannot change the folder, and could not write the file that reports
            // it.
            CommandScope::Reading | CommandScope::Plain(_) => None,
        };
        if let (CommandScope::Plain(plain), Some(final_cwd)) = (&mut scope, &final_cwd) {
            plain.outputs.push(final_cwd.path().to_path_buf());
        }
        let is_plain = matches!(scope, CommandScope::Plain(_));
        let granted = granted_to(&scope).to_vec();
        let limit = input.timeout.map_or(self.settings.timeout, Duration::from_millis);
        let running =
            self.start(&input.command, (&cwd, places), final_cwd.as_ref(), scope, cancel).await?;
        let egress = running.egress.clone();
        let (ended, captured) = self.run_to_end(running, limit, cancel).await;
        let has_failed = ended.status.is_none_or(|status| !status.success());
        if let Some(final_cwd) = final_cwd {
            let has_moved = !has_failed && names(&input.command, "cd");
            self.folder.update(final_cwd, has_moved, places, &mut notes).await;
        }
        if ended.left_behind {
            notes.push(
                "Processes that the command left running were stopped. To keep one, start it \
                 with run_in_background."
                    .to_string(),
            );
        }
        notes.extend(self.sandbox.hint(&captured.text, has_failed, is_plain));
        if has_failed {
            let (command, output) = (&*input.command, &*captured.text);
            let failed = FailedCommand { command, output, granted: &granted };
            notes.extend(self.withheld.note(&self.environment, &self.sandbox, &failed));
        }
        let refused = egress.map_or_else(Vec::new, |egress| egress.refusals());
        notes.extend(self.sandbox.refusal_note(&refused));
        let memory = self.settings.memory;
        let report =
            CommandReport { command: &input.command, limit, memory, ended, captured, notes };
        Ok(report.outcome())
    }

    /// Starts a command in the background. `call` is the id of the tool call.
    pub(super) async fn start_in_background(
        &self,
        call: &str,
        input: &BashInput,
        scope: CommandScope,
        places: &WorkFolders,
    ) -> Result<ToolOutcome, ToolError> {
        self.background.check_capacity()?;
        let mut notes = Vec::new();
        let cwd = self.folder.usable(places, &mut notes);
        let cancel = CancellationToken::new();
        let running = self.start(&input.command, (&cwd, places), None, scope, &cancel).await?;
        let lifetime = self.settings.background_lifetime;
        let id = self.background.register(
            running,
            &TaskStart {
                call,
                command: &input.command,
                description: input.description.as_deref(),
                lifetime: input.timeout.map_or(lifetime, Duration::from_millis),
                output_limit: self.output_limit,
                scratch: Arc::clone(&self.scratch),
                keeper: CommandKeeper {
                    _supervisor: self.supervisor.clone(),
                    sandbox: Arc::clone(&self.sandbox),
                },
            },
        )?;
        notes.insert(0, format!("{STARTED_IN_BACKGROUND}{id}."));
        let detail = json!({
            "stdout": "",
            "stderr": "",
            "interrupted": false,
            "backgroundTaskId": id,
        });
        Ok(ToolOutcome::text(notes.join("\n"), detail))
    }

    /// Starts a command of the model, which reports its last folder in `final_cwd`.
    async fn start(
        &self,
        command: &str,
        (cwd, places): (&Path, &WorkFolders),
        final_cwd: Option<&FinalCwd>,
        mut scope: CommandScope,
        cancel: &CancellationToken,
    ) -> Result<RunningJob, ToolError> {
        let git = self.find_git_settings(&mut scope, cwd, places, cancel).await;
        let job = self.job(command, cwd, final_cwd, (&scope, &git));
        self.launch(job, cwd, scope).await
    }

    /// Runs a command of the user, not of the model: in `cwd`, without changing the folder in which
    /// the model's next command starts.
    pub(super) async fn run_for_user(
        &self,
        text: &str,
        cwd: &Path,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<(EndedCommand, CapturedOutput), ToolError> {
        if cancel.is_cancelled() {
            return Err("the run is to end".into());
        }
        let scope = CommandScope::Sandbox(Vec::new());
        let job = self.job(text, cwd, None, (&scope, &GitSettings::default()));
        let running = self.launch(job, cwd, scope).await?;
        Ok(self.run_to_end(running, limit, cancel).await)
    }

    async fn run_to_end(
        &self,
        running: RunningJob,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> (EndedCommand, CapturedOutput) {
        let mut capture = OutputCapture::new(self.output_limit, Arc::clone(&self.scratch));
        let ended = wait_for_end(running, limit, cancel, &mut capture, AwaitedEnd::First).await;
        (ended, capture.finish().await)
    }

    /// Returns the settings of git for a command without a rule, and lets it read the files that
    /// they name. They stay the same until a command runs that may change them.
    async fn find_git_settings(
        &self,
        scope: &mut CommandScope,
        cwd: &Path,
        places: &WorkFolders,
        cancel: &CancellationToken,
    ) -> GitSettings {
        let known = || self.git_settings.lock();
        let CommandScope::Plain(plain) = scope else { return GitSettings::default() };
        let Some(hides) = &plain.git else { return GitSettings::default() };
        let last = known().clone().filter(|(folder, _)| folder == cwd);
        let settings = if let Some((_, settings)) = last {
            settings
        } else {
            let outside = Path::new("/");
            let git = find_program(&["git"], &plain.path, cwd).unwrap_or_default();
            let path = &plain.path;
            let outer = self.query_git(&git, outside, (&git_settings::OUTER_QUERY, path), cancel);
            let own = self.query_git(&git, cwd, (&git_settings::OWN_QUERY, path), cancel);
            let (outer, own) = (outer.await.unwrap_or_default(), own.await.unwrap_or_default());
            let config = self.environment.get("XDG_CONFIG_HOME");
            let folders = ConfigFolders { home: places.home.as_deref(), config };
            GitSettings::parse((&outer, &own), &folders, |path| !hides(path))
        };
        *known() = Some((cwd.to_path_buf(), settings.clone()));
        plain.named.extend(settings.files.iter().cloned());
        settings
    }

    /// Lists the settings of git in a folder. It may read all that commands with a rule may read.
    async fn query_git(
        &self,
        git: &Path,
        cwd: &Path,
        (query, path): (&[&str], &OsStr),
        cancel: &CancellationToken,
    ) -> Option<String> {
        let scope = CommandScope::Reading;
        let mut job = self.job("", cwd, None, (&scope, &GitSettings::default()));
        git.clone_into(&mut job.program);
        job.arguments = query.iter().map(OsString::from).collect();
        job.environment.push(("PATH".into(), path.into()));
        job.joins_output = false;
        self.confine(&mut job, scope).await.ok()?;
        let output = self.supervisor.output(&job, GIT_SETTINGS_BYTES_MAX);
        let output = timeout_while_running(GIT_SETTINGS_LIMIT, output);
        let output = cancel.run_until_cancelled(output).await??.ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Sets the sandbox rules of a job, made from the current file system. If they cannot be made,
    /// the job may not be started: it would run without a sandbox.
    async fn confine(&self, job: &mut Job, scope: CommandScope) -> Result<(), ToolError> {
        if !self.sandbox.is_off_for(&scope) {
            let sandbox = Arc::clone(&self.sandbox);
            // This accesses the disk.
            let rules = tokio::task::spawn_blocking(move || sandbox.rules(&scope));
            let rules = rules.await.map_err(|_| "failed to make the sandbox ready")?;
            job.landlock = rules.map_err(|error| {
                format!("failed to start the relay for the network of commands: {error}")
            })?;
        }
        Ok(())
    }

    /// Starts a command in the sandbox.
    async fn launch(
        &self,
        mut job: Job,
        cwd: &Path,
        scope: CommandScope,
    ) -> Result<RunningJob, ToolError> {
        // A failure is reported when an output cannot be saved.
        let _ = self.scratch.hold().await;
        if !matches!(scope, CommandScope::Plain(_)) {
            *self.git_settings.lock() = None;
        }
        self.confine(&mut job, scope).await?;
        self.supervisor.start(&job).await.map_err(|error| {
            if StartUnknown::is_cause_of(&error) {
                return exit_note(format_args!("unknown: {error}")).into();
            }
            let program = self.program.path().display();
            let note = match limit_to_raise(&error) {
                Some(advice) => format!("; {advice}"),
                None if cwd.is_dir() => String::new(),
                None => format!(" (the working directory {} does not exist)", cwd.display()),
            };
            format!("failed to start {program}: {error}{note}").into()
        })
    }

    fn job(
        &self,
        text: &str,
        cwd: &Path,
        final_cwd: Option<&FinalCwd>,
        (scope, git): (&CommandScope, &GitSettings),
    ) -> Job {
        let trap = final_cwd.map_or(String::new(), FinalCwd::trap);
        // The text is passed in a variable: as an argument of the process, `pkill -f` and `pgrep
        // -f` would match it; as `$1`, sourced scripts would see it.
        let take = format!("set -- \"${TEXT_VARIABLE}\"; unset {TEXT_VARIABLE}");
        let script = format!("{take}; {trap}eval \"shift; $1\"");
        // Without this variable, bash looks for the user's shell in the user database at each start,
        // which may ask a server.
        let mut environment = vec![("SHELL".into(), self.program.path().into())];
        environment.extend(self.environment.for_command(granted_to(scope)));
        environment.push(("PWD".into(), cwd.into()));
        if let CommandScope::Plain(plain) = scope {
            git.add_to(&mut environment);
            environment.push(("PATH".into(), plain.path.clone()));
        }
        git_settings::add_settings(&mut environment, &git_settings::FOREGROUND);
        let index = self.hook_index.as_ref().and_then(|index| index.for_line(text, cwd));
        environment.extend(index.map(|path| (hook_index::VARIABLE.into(), path.into())));
        let of_apt = self.sandbox.apt_config();
        environment.extend(of_apt.map(|path| ("APT_CONFIG".into(), path.into())));
        environment.extend(self.sandbox.own_temp().map(|temp| ("TMPDIR".into(), temp.into())));
        environment.push((TEXT_VARIABLE.into(), text.into()));
        let arguments = ["-c", &script, self.program.name()];
        Job {
            joins_output: true,
            memory: self.settings.memory,
            ..Job::new(self.program.path(), arguments, cwd, environment)
        }
    }
}

/// The credentials that a command gets.
fn granted_to(scope: &CommandScope) -> &[&'static CredentialSet] {
    match scope {
        CommandScope::Sandbox(granted) => granted,
        CommandScope::Reading | CommandScope::Plain(_) => &[],
    }
}
