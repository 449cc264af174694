//! The Bash tool: runs each command in a new shell.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::HumanBytes;
use nix::sys::signal::Signal;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::process::{Job, ProgramTerms, RunningJob, Supervisor, find_program};
use crate::transcript::{Block, exit_note};

use super::background::{BackgroundTasks, CommandKeeper, TaskStart};
use super::capture::{CapturedOutput, OutputCapture, OutputFolder};
use super::command::{AwaitedEnd, CommandEnd, EndedCommand, exit_code, wait_for_end};
use super::environment::CommandEnv;
use super::final_cwd::{CwdReport, FinalCwd};
use super::input::{BashInput, lowered};
use super::outcome::ToolOutcome;
use super::paths::{WorkFolders, resolve};
use super::sandbox::{CommandScope, PlainScope, Sandbox};
use super::settings::{CommandSettings, ToolSettings};
use super::shell_lexer::{self, base_name};
use super::shell_wrappers::inner_command;
use super::toolbox_setup::background_tasks;
use super::withheld::{FailedCommand, WithheldNotes};

/// The maximum length of a command, in bytes: the kernel accepts no argument longer than 128 KiB.
const COMMAND_BYTES_MAX: usize = 120_000;

/// The heading for a command whose job init process was killed.
const UNKNOWN: &str = "unknown: the process that looked after the command was killed, \
                       and the command with it.";
/// The heading for a command that the kernel killed.
const KILLED_FOR_MEMORY: &str = "137 (killed by SIGKILL, while the kernel ended processes because \
                                 the machine or its control group ran out of memory)";
/// The beginning of the result of a task started in the background. Its id follows.
pub const STARTED_IN_BACKGROUND: &str = "Runs in the background as ";

/// Lets git work where the user's settings cannot be read: without them, it trusts no working tree
/// of another user. It can change nothing there.
const PLAIN_GIT: [(&str, &str); 6] = [
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("XDG_CONFIG_HOME", "/dev/null"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "safe.directory"),
    ("GIT_CONFIG_VALUE_0", "*"),
];

/// The state that is kept between commands.
#[derive(Debug)]
pub(super) struct ShellSession {
    pub(super) program: PathBuf,
    pub(super) environment: CommandEnv,
    settings: CommandSettings,
    output_limit: usize,
    scratch: Arc<OutputFolder>,
    supervisor: Supervisor,
    pub(super) background: Arc<BackgroundTasks>,
    /// The folder in which the next command starts.
    cwd: Mutex<PathBuf>,
    /// That folder as the session has recorded it.
    recorded_cwd: Mutex<PathBuf>,
    /// The file to which the next command reports its final folder, if the last one has left it.
    spare_report: Mutex<Option<FinalCwd>>,
    sandbox: Arc<Sandbox>,
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
        Self {
            program: find_shell(&environment, cwd),
            environment,
            settings: settings.commands.clone(),
            output_limit: settings.results.built_in(),
            scratch,
            supervisor: settings.supervisor.clone(),
            background: background_tasks(settings),
            cwd: Mutex::new(cwd.to_path_buf()),
            recorded_cwd: Mutex::new(cwd.to_path_buf()),
            spare_report: Mutex::default(),
            sandbox,
            withheld: WithheldNotes::default(),
        }
    }

    pub(super) fn cwd(&self) -> PathBuf {
        self.cwd.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the folder in which the next command starts, if it is another one than at the last
    /// call.
    pub(super) fn take_new_cwd(&self) -> Option<PathBuf> {
        let cwd = self.cwd();
        let mut recorded = self.recorded_cwd.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = *recorded != cwd;
        recorded.clone_from(&cwd);
        is_new.then_some(cwd)
    }

    /// Starts the next command in `folder`. Returns false if it is gone, or the run may not work
    /// there.
    pub(super) fn go_on_in(&self, folder: &Path, places: &WorkFolders) -> bool {
        let is_usable = folder.is_dir() && resolve(folder) == folder && places.contains(folder);
        if is_usable {
            self.set_cwd(folder.to_path_buf());
            let _ = self.take_new_cwd();
        }
        is_usable
    }

    /// The file to which a command reports its final folder.
    async fn report_file(&self) -> Option<FinalCwd> {
        let spare = self.spare_report().take().filter(FinalCwd::is_in_place);
        if spare.is_some() { spare } else { FinalCwd::create(&self.scratch).await.ok() }
    }

    fn spare_report(&self) -> MutexGuard<'_, Option<FinalCwd>> {
        self.spare_report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn dropped(&self) -> &[String] {
        &self.environment.dropped
    }

    /// The environment of its commands.
    pub(super) fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment.variables
    }

    pub(super) fn scratch(&self) -> &Arc<OutputFolder> {
        &self.scratch
    }

    /// The variable `PATH` of its commands.
    pub(super) fn path_variable(&self) -> OsString {
        self.environment.get("PATH").unwrap_or_default().into()
    }

    /// The supervisor that starts its commands.
    pub(super) fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    pub(super) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    pub(super) fn shared_sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    /// Lowers the timeout to the maximum. Returns a note for the model if that changed it.
    pub(super) fn lower_timeout(&self, input: &mut BashInput) -> Option<String> {
        let CommandSettings { background_lifetime, .. } = self.settings;
        let most =
            if input.run_in_background { background_lifetime } else { self.settings.longest() };
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        input.timeout.filter(|timeout| *timeout > most)?;
        input.timeout = Some(most);
        Some(lowered("timeout", format!("{most} ms")))
    }

    pub(super) async fn run(
        &self,
        input: &BashInput,
        mut scope: CommandScope,
        places: &WorkFolders,
        cancel: &CancellationToken,
    ) -> ToolOutcome {
        if cancel.is_cancelled() {
            return ToolOutcome::interrupted();
        }
        let mut notes = Vec::new();
        let cwd = self.usable_cwd(places, &mut notes);
        let whereabouts = match &scope {
            CommandScope::Sandbox(_) | CommandScope::Plain(PlainScope { may_move: true, .. }) => {
                self.report_file().await
            }
            // Other commands cannot change the folder, and could not write the file that reports
            // it.
            CommandScope::Reading | CommandScope::Plain(_) => None,
        };
        if let (CommandScope::Plain(plain), Some(whereabouts)) = (&mut scope, &whereabouts) {
            plain.outputs.push(whereabouts.path().to_path_buf());
        }
        let job = self.job(&input.command, &cwd, whereabouts.as_ref(), &scope);
        let limit = input.timeout.map_or(self.settings.timeout, Duration::from_millis);
        let is_plain = matches!(scope, CommandScope::Plain(_));
        let granted = match &scope {
            CommandScope::Sandbox(granted) => granted.clone(),
            CommandScope::Reading | CommandScope::Plain(_) => Vec::new(),
        };
        let running = match self.launch(job, &cwd, scope).await {
            Ok(running) => running,
            Err(why) => return ToolOutcome::failure(why.to_string()),
        };
        let egress = running.egress.clone();
        let (ended, captured) = self.run_to_end(running, limit, cancel).await;
        if let Some(whereabouts) = whereabouts {
            let (report, spare) = whereabouts.read().await;
            *self.spare_report() = spare;
            self.update_cwd(report, places, &mut notes);
        }
        if ended.left_behind {
            notes.push(
                "Processes that the command left running were stopped. To keep one, start it \
                 with run_in_background."
                    .to_string(),
            );
        }
        let failed = ended.status.is_none_or(|status| !status.success());
        if failed {
            notes.extend(self.sandbox.hint(&captured.err, is_plain));
            notes.extend(self.withheld.note(
                &self.environment,
                &self.sandbox,
                &FailedCommand {
                    command: &input.command,
                    output: &captured.both,
                    granted: &granted,
                },
            ));
        }
        let refused = egress.map_or_else(Vec::new, |egress| egress.refusals());
        notes.extend(self.sandbox.refusal_note(&refused));
        let memory = self.settings.memory;
        CommandReport { command: &input.command, limit, memory, ended, captured, notes }.outcome()
    }

    /// Starts a command in the background. `call` is the id of the tool call.
    pub(super) async fn start_in_background(
        &self,
        call: &str,
        input: &BashInput,
        scope: CommandScope,
        places: &WorkFolders,
    ) -> ToolOutcome {
        if let Err(why) = self.background.check_capacity() {
            return ToolOutcome::failure(why.to_string());
        }
        let mut notes = Vec::new();
        let cwd = self.usable_cwd(places, &mut notes);
        let job = self.job(&input.command, &cwd, None, &scope);
        let running = match self.launch(job, &cwd, scope).await {
            Ok(running) => running,
            Err(why) => return ToolOutcome::failure(why.to_string()),
        };
        let id = self.background.register(
            running,
            &TaskStart {
                call,
                command: &input.command,
                description: input.description.as_deref(),
                lifetime: input
                    .timeout
                    .map_or(self.settings.background_lifetime, Duration::from_millis),
                output_limit: self.output_limit,
                scratch: Arc::clone(&self.scratch),
                keeper: CommandKeeper {
                    _supervisor: self.supervisor.clone(),
                    _sandbox: Arc::clone(&self.sandbox),
                },
                sandbox: Arc::clone(&self.sandbox),
            },
        );
        notes.insert(0, format!("{STARTED_IN_BACKGROUND}{id}."));
        let detail = json!({
            "stdout": "",
            "stderr": "",
            "interrupted": false,
            "backgroundTaskId": id,
        });
        ToolOutcome::text(notes.join("\n"), detail)
    }

    /// Runs a command of the user, not of the model: in `cwd`, without changing the folder in which
    /// the model's next command starts.
    ///
    /// # Errors
    /// The command could not be started.
    pub(super) async fn run_for_user(
        &self,
        text: &str,
        cwd: &Path,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<(EndedCommand, CapturedOutput), StartError> {
        if cancel.is_cancelled() {
            return Err(StartError::Cancelled);
        }
        let scope = CommandScope::Sandbox(Vec::new());
        let running = self.launch(self.job(text, cwd, None, &scope), cwd, scope).await?;
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

    /// Starts a command with sandbox rules made from the current file system.
    async fn launch(
        &self,
        mut job: Job,
        cwd: &Path,
        scope: CommandScope,
    ) -> Result<RunningJob, StartError> {
        // A failure is reported when an output cannot be saved.
        let _ = self.scratch.hold().await;
        if !self.sandbox.is_off_for(&scope) {
            let sandbox = Arc::clone(&self.sandbox);
            // This accesses the disk. If it fails, the command is not run, as it would run without
            // a sandbox.
            let rules = tokio::task::spawn_blocking(move || sandbox.rules(&scope));
            let rules = rules.await.map_err(|_| StartError::Sandbox)?;
            job.landlock = rules.map_err(|error| StartError::Relay { error })?;
        }
        let started = self.supervisor.start(&job).await;
        started.map_err(|error| StartError::Program {
            program: self.program.clone(),
            error,
            missing_cwd: (!cwd.is_dir()).then(|| cwd.to_path_buf()),
        })
    }

    /// The folder in which the command starts: the one where the last command ended, if it still
    /// exists.
    fn usable_cwd(&self, places: &WorkFolders, notes: &mut Vec<String>) -> PathBuf {
        let cwd = self.cwd();
        if cwd.is_dir() {
            return cwd;
        }
        let home = places.cwd().to_path_buf();
        notes.push(format!(
            "{} is gone; the working directory is {} again.",
            cwd.display(),
            home.display()
        ));
        self.set_cwd(home.clone());
        home
    }

    fn set_cwd(&self, cwd: PathBuf) {
        *self.cwd.lock().unwrap_or_else(PoisonError::into_inner) = cwd;
    }

    fn job(
        &self,
        text: &str,
        cwd: &Path,
        whereabouts: Option<&FinalCwd>,
        scope: &CommandScope,
    ) -> Job {
        let trap = whereabouts.map_or(String::new(), FinalCwd::trap);
        // The text is no argument of itself: scripts that it sources look at theirs.
        let script = format!("{trap}eval \"shift; $1\"");
        let granted = match scope {
            CommandScope::Sandbox(granted) => granted.as_slice(),
            CommandScope::Reading | CommandScope::Plain(_) => &[],
        };
        let mut environment = self.environment.for_command(granted);
        environment.push(("PWD".into(), cwd.into()));
        if let CommandScope::Plain(plain) = scope {
            environment.extend(PLAIN_GIT.map(|(name, value)| (name.into(), value.into())));
            environment.push(("PATH".into(), plain.path.clone()));
        }
        let of_apt = self.sandbox.apt_config();
        environment.extend(of_apt.map(|path| ("APT_CONFIG".into(), path.into())));
        environment.extend(self.sandbox.own_temp().map(|temp| ("TMPDIR".into(), temp.into())));
        Job {
            program: self.program.clone(),
            arguments: ["-c", &script, "bash", text].map(OsString::from).to_vec(),
            cwd: cwd.to_path_buf(),
            environment,
            input: false,
            memory: self.settings.memory,
            landlock: None,
            terms: ProgramTerms::default(),
        }
    }

    /// Makes the folder in which the command ended the working directory, unless the run may not
    /// work there.
    fn update_cwd(&self, reported: CwdReport, places: &WorkFolders, notes: &mut Vec<String>) {
        match reported {
            CwdReport::Nothing => {}
            CwdReport::Folder(there) if there == self.cwd() => {}
            CwdReport::Folder(there) if places.contains(&there) => self.set_cwd(there),
            CwdReport::Folder(there) => {
                let home = places.cwd().to_path_buf();
                notes.push(format!(
                    "{} is outside the working directories; the working directory is {} again.",
                    there.display(),
                    home.display()
                ));
                self.set_cwd(home);
            }
            CwdReport::Invalid => notes.push(format!(
                "Where the command ended cannot be told; the working directory is still {}.",
                self.cwd().display()
            )),
        }
    }
}

/// The reason that no shell could run a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCommand {
    #[error("the command is empty")]
    Empty,
    #[error("the command contains a NUL character")]
    ContainsNul,
    #[error(
        "the command is {bytes} bytes long; at most {COMMAND_BYTES_MAX}. Write it to a file and \
         run that."
    )]
    TooLong { bytes: usize },
}

/// The reason that a command was not started.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("the run is to end")]
    Cancelled,
    #[error("failed to make the sandbox ready")]
    Sandbox,
    #[error("failed to start the relay for the network of commands: {error}")]
    Relay { error: io::Error },
    #[error(
        "failed to start {}: {error}{}",
        program.display(),
        missing_cwd.as_deref().map_or(String::new(), missing_note)
    )]
    Program { program: PathBuf, error: io::Error, missing_cwd: Option<PathBuf> },
}

/// Rejects a command that no shell could run.
///
/// # Errors
/// The command is empty or too long, or it contains a NUL character.
pub(super) fn check_command(command: &str) -> Result<(), InvalidCommand> {
    if command.trim().is_empty() {
        Err(InvalidCommand::Empty)
    } else if command.contains('\0') {
        Err(InvalidCommand::ContainsNul)
    } else if command.len() > COMMAND_BYTES_MAX {
        Err(InvalidCommand::TooLong { bytes: command.len() })
    } else {
        Ok(())
    }
}

fn find_shell(environment: &CommandEnv, cwd: &Path) -> PathBuf {
    let path = environment.get("PATH").unwrap_or_default();
    find_program(&["bash", "/bin/bash", "sh"], path, cwd)
        .unwrap_or_else(|| PathBuf::from("/bin/sh"))
}

/// The note for the model about a command that took too much memory.
pub(super) fn memory_exceeded_note(taken: u64, bound: Option<u64>) -> String {
    let bound = bound.map_or(String::new(), |bound| format!(" ({})", HumanBytes(bound)));
    format!(
        "Out of memory: the command was stopped when it took {}. All commands of the run together \
         may take no more than the setting commandMemory{bound}; this one took most. Let it work \
         on less at a time, or with fewer processes.",
        HumanBytes(taken)
    )
}

fn missing_note(cwd: &Path) -> String {
    format!(" (the working directory {} does not exist)", cwd.display())
}

/// True if an exit code of 1 is this command's negative result and not a failure.
fn exit_code_1_is_a_result(command: &str) -> bool {
    let Ok(parts) = shell_lexer::split(command) else { return false };
    let words = parts.last().map_or(&[][..], |last| inner_command(&last.words));
    let name = |at: usize| words.get(at).map(|word| base_name(&word.plain));
    match name(0) {
        Some("git") => matches!(name(1), Some("grep" | "diff")),
        Some(
            "grep" | "egrep" | "fgrep" | "zgrep" | "rg" | "diff" | "cmp" | "find" | "test" | "[",
        ) => true,
        Some(_) | None => false,
    }
}

/// Builds the result of an ended command for the model and for programs.
struct CommandReport<'a> {
    command: &'a str,
    limit: Duration,
    /// The maximum memory of all commands together, in bytes.
    memory: Option<u64>,
    ended: EndedCommand,
    captured: CapturedOutput,
    notes: Vec<String>,
}

impl CommandReport<'_> {
    fn outcome(self) -> ToolOutcome {
        let (heading, is_error) = self.status_line();
        let mut parts: Vec<&str> = Vec::new();
        parts.extend(heading.as_deref());
        let output = self.captured.both.trim_end_matches('\n');
        if !output.trim().is_empty() {
            parts.push(output);
        } else if heading.is_none() {
            parts.push("(no output)");
        }
        parts.extend(self.notes.iter().map(String::as_str));
        ToolOutcome {
            content: vec![Block::text(parts.join("\n"))],
            is_error,
            detail: json!({
                "stdout": self.captured.out,
                "stderr": self.captured.err,
                "exit_code": self.ended.status.map(exit_code),
                "interrupted": self.ended.cause == CommandEnd::Cancelled,
                "timed_out": self.ended.cause == CommandEnd::TimedOut,
                "memory_exceeded": matches!(self.ended.cause, CommandEnd::MemoryExceeded(_)),
                "output_bytes": self.captured.bytes,
                "output_file": self.captured.file,
            }),
            denied: None,
        }
    }

    fn status_line(&self) -> (Option<String>, bool) {
        let gone = match self.ended.status {
            Some(_) => "was stopped",
            None => "could not be stopped: it hangs in the kernel",
        };
        match (self.ended.cause, self.ended.status) {
            (CommandEnd::Cancelled, _) => {
                (Some(format!("Interrupted by user: the command {gone}.")), true)
            }
            (CommandEnd::TimedOut, _) => {
                let limit = humantime::format_duration(self.limit);
                let advice = "What needs longer can run with run_in_background";
                (Some(format!("Timed out after {limit}: the command {gone}. {advice}.")), true)
            }
            (CommandEnd::MemoryExceeded(taken), _) => {
                (Some(memory_exceeded_note(taken, self.memory)), true)
            }
            (CommandEnd::KilledForMemory, _) => (Some(exit_note(KILLED_FOR_MEMORY)), true),
            (CommandEnd::Exited, None) => (Some(exit_note(UNKNOWN)), true),
            (CommandEnd::Exited, Some(status)) => match (exit_code(status), status.signal()) {
                (0, _) => (None, false),
                (1, None) if exit_code_1_is_a_result(self.command) => {
                    (Some(exit_note("1 (no match, or a difference)")), false)
                }
                (code, Some(number)) => {
                    let name = Signal::try_from(number).map_or("a signal", Signal::as_str);
                    (Some(exit_note(format_args!("{code} (killed by {name})"))), true)
                }
                (code, None) => (Some(exit_note(code)), true),
            },
        }
    }
}
