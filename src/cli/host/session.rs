//! The session of a host: reads its messages, answers its requests, and runs its prompts in turn.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader};
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::agent::{self, InterruptSender};
use crate::cli::args::RunArgs;
use crate::cli::chosen_session::use_folder_of_hosts;
use crate::cli::host_turn::{HostTurn, SessionResources};
use crate::cli::output::{
    PipeSender, StreamJson, TerminalFilter, one_line, pipe, usage_error_result,
};
use crate::cli::run::{self, ExitCheck, ProcessContext, SharedOutput};
use crate::cli::signals::SignalState;
use crate::cli::stdin::StdinReader;
use crate::cli::usage::{UsageError, UsageErrorKind};
use crate::host::{
    FrameWriter, HostFrame, HostInput, PendingRequests, SessionState, StateReporter, SystemWriter,
    UserPrompt, control_error, exit_code_of_result_for_hosts, parse, read_lines,
};
use crate::journal::JournalMirror;
use crate::json::STACK_BYTES;
use crate::messages::{HostMessage, MessageBody, ResultObject, RunMessage, SystemMessage};
use crate::process::spawn_detached;
use crate::recovery::Interrupt;
use crate::tools::LivePermissions;
use crate::types::Callback;

use super::input_summary::InputSummary;
use super::prompt_ids::PromptIds;
use super::run_args::TurnArgs;
use super::shared_id::SharedId;

/// Time limit of the wait for the host's `initialize` when the start has failed: the SDKs send it
/// at once.
const INITIALIZE_LIMIT: Duration = Duration::from_secs(5);

/// Time limit for the host to read the last messages.
const LAST_READ: Duration = Duration::from_secs(5);

/// Time limit for the MCP servers to end.
const SERVERS_END: Duration = Duration::from_secs(1);

/// Time for which a session whose last call was deferred waits for a prompt before it continues
/// without a prompt.
pub(super) const DEFERRED_LIMIT: Duration = Duration::from_millis(500);

/// Maximum number of messages of the host that wait to be handled.
const INPUT_BACKLOG: usize = 64;

/// The variable with which a host requests reports of the session's state.
const READS_STATE: &str = "CLAUDE_CODE_SDK_READS_SESSION_STATE";

/// The variable with which a host requests that files are kept, so that it can restore them.
const KEEPS_FILES: &str = "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING";

/// Serves a host until it has closed standard input and all its prompts are answered. Returns the
/// exit code of the last turn.
///
/// # Errors
/// The process cannot serve a host.
pub(in crate::cli) async fn drive(
    args: &RunArgs,
    mut context: ProcessContext,
    check: ExitCheck<'_>,
) -> Result<u8, UsageError> {
    run::prepare_process(&context.variables);
    use_folder_of_hosts(args, &mut context.variables, &context.cwd);
    let (shared, stderr_drain) = SharedOutput::open(&context)?;
    let closes = context.signals.stdout_closes();
    let redactor = Arc::clone(&shared.redactor);
    let (out, out_drain) = pipe(TerminalFilter::new(io::stdout()), redactor, closes)
        .map_err(|error| UsageError::no_thread(&error))?;
    let mut session = HostSession::new(args, context, shared, out);
    let input = session.start_reading().map_err(|error| UsageError::no_thread(&error))?;
    let mut code = Box::pin(session.serve(input)).await;
    let faults = check(code, "");
    if !faults.is_empty() {
        let error = UsageError::of(UsageErrorKind::RehearsalFailed, faults.join("; "));
        session.report(&error);
        code = error.verdict().exit_code();
    }
    session.stop_commands().await;
    session.end_hooks("other").await;
    session.requests.close();
    if let Some(servers) = session.resources.servers.take() {
        servers.close(SERVERS_END).await;
    }
    let _ = out_drain.finish(LAST_READ).await;
    // Standard error may not be read; the exit code is enough.
    let _ = stderr_drain.finish(SharedOutput::STDERR_LIMIT).await;
    Ok(code)
}

/// The state of a host's session.
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(super) struct HostSession {
    pub(super) args: TurnArgs,
    pub(super) context: ProcessContext,
    pub(super) shared: SharedOutput,
    pub(super) out: PipeSender,
    pub(super) requests: PendingRequests,
    pub(super) session_id: SharedId,
    /// True if the resumed session has a deferred call for which no turn was run.
    pub(super) has_deferred: bool,
    /// The last line, if the input ended within it. The prompts before it are answered first.
    cut_off_line: Option<u64>,
    /// The kinds of the lines so far.
    summary: InputSummary,
    /// Deadline of the wait for a prompt before the session continues with the deferred call.
    pub(super) deferred_until: Option<Instant>,
    /// Prompts that wait for their turn.
    pub(super) queue: VecDeque<UserPrompt>,
    /// Messages without a question, which are added to the next prompt.
    pub(super) context_prompts: Vec<UserPrompt>,
    pub(super) prompt_ids: PromptIds,
    pub(super) resources: SessionResources,
    /// Number of background tasks that had ended when the last turn about them began.
    seen_ends: usize,
    pub(super) last_turn_ended: Instant,
    /// True if files are kept for each prompt.
    pub(super) keeps_files: bool,
    /// The sessions before each `/clear`, in order.
    pub(super) cleared_sessions: Vec<String>,
    pub(super) reports_state: StateReporter,
    /// True after an error result at the end of the input: for the SDKs, any later message means a
    /// crash.
    pub(super) is_silent: bool,
    /// True if the host has requested reports of the session's state.
    reads_state: bool,
    pub(super) replays_prompts: bool,
    /// Temporary folder of a session that is not kept. Deleted at the end.
    pub(super) private: Option<TempDir>,
}

/// Outcome of the handling of one input message.
pub(super) enum InputStep {
    GoesOn,
    /// The host has closed the input.
    Ended,
    /// The session ends with this exit code.
    Fatal(u8),
}

impl HostSession {
    fn new(args: &RunArgs, context: ProcessContext, shared: SharedOutput, out: PipeSender) -> Self {
        let mut args = TurnArgs::new(args);
        let private = args.use_private_sessions();
        let session = &mut args.run.session;
        if session.begins_session() {
            session.session_id.get_or_insert_with(|| Uuid::now_v7().to_string());
        }
        let session_id = SharedId::default();
        let reads_state = context.variables.get(OsStr::new(READS_STATE));
        let reads_state = reads_state.is_some_and(|value| value == "1");
        let keeps_files = context.variables.get(OsStr::new(KEEPS_FILES));
        let is_on = |value: &OsString| value == "true" || value == "1";
        let keeps_files = keeps_files.is_some_and(is_on);
        let (messages, id) = (out.clone(), session_id.clone());
        let send = move |message| messages.send_message(system_message(message, &id.get()), None);
        let (states, frames) = (send.clone(), out.clone());
        let reports_state: StateReporter = Callback(Arc::new(move |state| {
            if reads_state {
                let (state, sdk_host_only) = (state.into_str(), true);
                states(SystemMessage::SessionStateChanged { state, sdk_host_only });
            }
        }));
        let write: FrameWriter = Callback(Arc::new(move |message| frames.send_unmasked(message)));
        let announce: SystemWriter = Callback(Arc::new(send.clone()));
        let requests = PendingRequests::new(write, announce, reports_state.clone());
        let replays_prompts = args.run.compatibility.replay_user_messages;
        let live = LivePermissions::new(args.may_bypass).announced_by(move |mode| {
            send(SystemMessage::Status { status: None, permission_mode: mode.name() });
        });
        let resources = SessionResources::new(live);
        Self {
            args,
            context,
            shared,
            out,
            requests,
            session_id,
            has_deferred: false,
            cut_off_line: None,
            summary: InputSummary::default(),
            deferred_until: None,
            queue: VecDeque::new(),
            context_prompts: Vec::new(),
            prompt_ids: PromptIds::default(),
            resources,
            seen_ends: 0,
            last_turn_ended: Instant::now(),
            keeps_files,
            cleared_sessions: Vec::new(),
            reports_state,
            is_silent: false,
            reads_state,
            replays_prompts,
            private,
        }
    }

    /// Serves the host, and returns the exit code.
    async fn serve(&mut self, mut input: mpsc::Receiver<HostInput>) -> u8 {
        self.context.exit_watchdog.begin_turn(Box::new(|_| {}));
        if let Err(error) = self.start().await {
            return self.fail_start(&error, &mut input).await;
        }
        let (mut code, mut is_open) = (0, true);
        loop {
            if let Some(prompt) = self.queue.pop_front() {
                match self.run_prompt(prompt, &mut input, &mut is_open).await {
                    Ok(ended) => code = ended.unwrap_or(code),
                    Err(fatal) => return fatal,
                }
                continue;
            }
            if !is_open && self.has_deferred {
                self.queue.push_back(UserPrompt::default());
                continue;
            }
            if !is_open {
                if code != 0 {
                    self.end_messages();
                }
                let ended = self.await_last_commands().await;
                let unused = self.report_unused_input();
                code = if code == 0 { unused.unwrap_or(code) } else { code };
                return ended.map_or_else(Interrupt::exit_code, |()| code);
            }
            match self.next_step(&mut input).await {
                InputStep::GoesOn => {}
                InputStep::Ended => is_open = false,
                InputStep::Fatal(fatal) => return fatal,
            }
        }
    }

    /// Waits for the next event between turns, and handles it.
    async fn next_step(&mut self, input: &mut mpsc::Receiver<HostInput>) -> InputStep {
        let (waits, until) = (self.has_deferred, self.deferred_until);
        let end = self.resources.commands.wait_for_unreported_end(self.seen_ends);
        tokio::select! {
            biased;
            interrupt = self.context.signals.first() => InputStep::Fatal(interrupt.exit_code()),
            line = input.recv() => self.handle(line, None).await,
            () = sleep_until(until.unwrap_or_else(Instant::now)), if waits && until.is_some() => {
                self.queue.push_back(UserPrompt::default());
                InputStep::GoesOn
            }
            ends = end, if self.reads_state => {
                // A turn that fails before it reports them to the model is not tried again.
                self.seen_ends = ends;
                self.begin_turn_about_commands();
                InputStep::GoesOn
            }
        }
    }

    /// Handles one prompt, and returns the new exit code of the session. `None`: it stays as it is.
    ///
    /// # Errors
    /// The session ends, with this exit code.
    async fn run_prompt(
        &mut self,
        mut prompt: UserPrompt,
        input: &mut mpsc::Receiver<HostInput>,
        is_open: &mut bool,
    ) -> Result<Option<u8>, u8> {
        if prompt.is_context {
            self.announce(&mut prompt);
            self.context_prompts.push(prompt);
            return Ok(None);
        }
        if prompt.is_empty() {
            return self.answer_empty_prompt(input, is_open).await.map(Some);
        }
        self.has_deferred = false;
        if prompt.clears() {
            self.end_hooks("clear").await;
            self.announce(&mut prompt);
            self.clear(prompt.uuid).await;
            // Its result, now the last one, is a success.
            return Ok(Some(0));
        }
        // A recorded prompt is continued unchanged, and the context is kept for the next prompt.
        if prompt.is_of_host() && !prompt.is_recorded {
            self.context_prompts.drain(..).rev().for_each(|context| prompt.follow(context));
        }
        Box::pin(self.turn(prompt, input, is_open)).await.map(Some)
    }

    /// Runs one prompt, and serves the host meanwhile. Returns the turn's exit code.
    ///
    /// # Errors
    /// The session ends, with this exit code.
    async fn turn(
        &mut self,
        mut prompt: UserPrompt,
        input: &mut mpsc::Receiver<HostInput>,
        is_open: &mut bool,
    ) -> Result<u8, u8> {
        // An abandoned step of the turn before may have opened the session since.
        self.resume_if_opened();
        self.adopt_mode();
        // If they cannot be started, the turn fails for the same reason and reports it.
        let _ = self.shared_servers().await;
        (self.reports_state)(SessionState::Running);
        self.announce(&mut prompt);
        let (signals, interrupter) = self.context.signals.for_turn();
        if prompt.is_interrupted {
            agent::interrupt(&interrupter, Interrupt::HostRequest);
        }
        let context = self.turn_context(prompt, signals);
        let (args, shared) = (self.args.run.clone(), self.shared.clone());
        let (out, id) = (self.out.clone(), self.session_id.clone());
        let running = run_turn(args, context, shared, out, id);
        tokio::pin!(running);
        let (mut fatal, mut ended) = (None, None);
        let code = loop {
            if let Some(code) = ended {
                break code;
            }
            tokio::select! {
                biased;
                code = &mut running => break code,
                line = input.recv(), if *is_open => {
                    // The turn continues while the message is handled.
                    let handled = {
                        let mut handling = pin!(self.handle(line, Some(&interrupter)));
                        tokio::select! {
                            biased;
                            step = &mut handling => step,
                            code = &mut running => {
                                ended = Some(code);
                                handling.await
                            }
                        }
                    };
                    match handled {
                        InputStep::GoesOn => {}
                        InputStep::Ended => {
                            *is_open = false;
                            // No later turn can report the end of commands to the model.
                            self.resources.commands.end_with_run();
                        }
                        InputStep::Fatal(code) => {
                            (fatal, *is_open) = (Some(code), false);
                            agent::interrupt(&interrupter, Interrupt::HostRequest);
                        }
                    }
                }
            }
        };
        self.resume_if_opened();
        self.adopt_mode();
        self.context.exit_watchdog.begin_turn(Box::new(|_| {}));
        self.report_commands().await;
        if self.queue.is_empty() {
            (self.reports_state)(SessionState::Idle);
        }
        match (fatal, self.context.signals.interrupt()) {
            (Some(fatal), _) => Err(fatal),
            // A signal after the result ends the session, not the turn.
            (None, Some(interrupt)) if code == 0 => Err(interrupt.exit_code()),
            (None, Some(_)) => Err(code),
            (None, None) => Ok(code),
        }
    }

    fn turn_context(&self, prompt: UserPrompt, signals: SignalState) -> ProcessContext {
        ProcessContext {
            began: Instant::now(),
            variables: self.context.variables.clone(),
            cwd: self.context.cwd.clone(),
            signals,
            exit_watchdog: self.context.exit_watchdog.clone(),
            is_result_alone: self.context.is_result_alone,
            host: Some(HostTurn {
                prompt,
                channel: Arc::new(self.requests.clone()),
                resources: self.resources.clone(),
                keeps_files: self.keeps_files,
                reads_state: self.reads_state,
                out: self.out.clone(),
                is_kept: self.private.is_none(),
                mirror: self.mirror(),
            }),
        }
    }

    /// Gives a prompt an id if it needs one, and echoes the prompt if the host requested that.
    fn announce(&mut self, prompt: &mut UserPrompt) {
        let is_replayed = self.replays_prompts && prompt.is_of_host();
        if is_replayed || self.keeps_files {
            prompt.uuid.get_or_insert_with(|| Uuid::new_v4().to_string());
        }
        if is_replayed {
            let replay = prompt.replay(&self.session_id.get());
            self.out.send_message(replay, Some(StreamJson::LONGEST));
        }
    }

    /// Returns the copies of the session's journals, if the host requested them.
    fn mirror(&self) -> Option<JournalMirror> {
        if !self.args.run.compatibility.session_mirror {
            return None;
        }
        let out = self.out.clone();
        Some(JournalMirror::new(move |path, entry| {
            let (file_path, entries) = (path.display().to_string(), vec![entry]);
            let message = HostMessage::TranscriptMirror { file_path, entries };
            out.send_message(message, Some(StreamJson::LONGEST));
        }))
    }

    /// Handles one message of the host. `turn` interrupts the running turn, if there is one.
    pub(super) async fn handle(
        &mut self,
        line: Option<HostInput>,
        turn: Option<&InterruptSender>,
    ) -> InputStep {
        let (number, why) = match line {
            None | Some(HostInput::End) => return InputStep::Ended,
            Some(HostInput::CutOff { number }) => {
                self.cut_off_line = Some(number);
                return InputStep::Ended;
            }
            Some(HostInput::Unreadable { number, why }) => (number, why),
            Some(HostInput::Line { number, text }) => match parse(&text) {
                Ok(frame) => return self.handle_frame(frame, turn).await,
                Err(error) => (number, error.to_string()),
            },
        };
        InputStep::Fatal(self.report_line(number, &why))
    }

    /// Reports input that had no effect, at its end. Returns the exit code if that is an error.
    fn report_unused_input(&self) -> Option<u8> {
        if !self.context_prompts.is_empty() {
            let warning = "the last messages with \"shouldQuery\": false have no effect: no prompt \
                           follows them";
            if !self.is_silent {
                self.warn(warning);
            }
            self.shared.warn(warning);
        }
        if let Some(number) = self.cut_off_line {
            return Some(self.report_line(number, "the input ends within it"));
        }
        let error = self.summary.lost_task()?;
        self.report(&error);
        Some(error.verdict().exit_code())
    }

    /// Reports a line that is not a message, and returns the exit code.
    fn report_line(&self, number: u64, why: &str) -> u8 {
        let error = UsageError::new(format!(
            "line {number} of standard input is not a message of a host: {why}; with --input-format \
             stream-json each line is one JSON object"
        ));
        self.report(&error);
        error.verdict().exit_code()
    }

    async fn handle_frame(
        &mut self,
        frame: HostFrame,
        turn: Option<&InterruptSender>,
    ) -> InputStep {
        self.summary.record(&frame);
        match frame {
            HostFrame::User(prompt) => {
                self.queue.extend(self.prompt_ids.admit(*prompt));
            }
            HostFrame::Control { id, request } => return self.answer(&id, request, turn).await,
            // The reading thread delivers replies to their requests.
            HostFrame::Reply { .. } | HostFrame::Ignored(_) => {}
        }
        InputStep::GoesOn
    }

    /// Answers the host's `initialize` with the error, and reports it. Returns the exit code. A
    /// missing session is only reported: the SDKs then read the result, and raise an error of a
    /// special type.
    async fn fail_start(
        &mut self,
        error: &UsageError,
        input: &mut mpsc::Receiver<HostInput>,
    ) -> u8 {
        let first = tokio::time::timeout(INITIALIZE_LIMIT, input.recv()).await;
        if error.cause != UsageErrorKind::NotResumable
            && let Ok(Some(HostInput::Line { text, .. })) = first
            && let Ok(HostFrame::Control { id, .. }) = parse(&text)
        {
            self.out.send_unmasked(control_error(&id, &error.to_string(), None));
        }
        self.report(error);
        error.verdict().exit_code()
    }

    /// Reports an error outside of turns, by a line on standard error, and by a result unless an
    /// error result was the last message.
    pub(super) fn report(&self, error: &UsageError) {
        if !self.is_silent {
            self.out.send_message(error_result(error, &self.session_id), None);
        }
        self.shared.stderr.send(&format!("outlast: {}", one_line(&error.to_string())));
    }

    /// Starts the thread that reads standard input. The thread delivers replies to their requests,
    /// even while the session is busy.
    fn start_reading(&self) -> io::Result<mpsc::Receiver<HostInput>> {
        let (sender, input) = mpsc::channel(INPUT_BACKLOG);
        let requests = self.requests.clone();
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        spawn_detached(thread, move || {
            let take = |line: HostInput| match &line {
                HostInput::Line { text, .. } => match parse(text) {
                    Ok(HostFrame::Reply { id, reply }) => {
                        requests.resolve(&id, reply);
                        true
                    }
                    Ok(_) | Err(_) => sender.blocking_send(line).is_ok(),
                },
                HostInput::End | HostInput::CutOff { .. } | HostInput::Unreadable { .. } => {
                    requests.close();
                    sender.blocking_send(line).is_ok()
                }
            };
            match StdinReader::open() {
                Ok(stdin) => read_lines(BufReader::new(stdin), take),
                // A closed input is like an empty one.
                Err(_closed) => read_lines(io::empty(), take),
            }
        })?;
        Ok(input)
    }
}

/// Runs one turn. It always ends with a result. Returns the exit code.
async fn run_turn(
    args: RunArgs,
    context: ProcessContext,
    shared: SharedOutput,
    out: PipeSender,
    session_id: SharedId,
) -> u8 {
    let watchdog = context.exit_watchdog.clone();
    let (last, id) = (out.clone(), session_id.clone());
    watchdog.begin_turn(Box::new(move |why| {
        let error = run::not_started_error(why);
        last.send_message(error_result(&error, &id), None);
    }));
    let begun = Box::pin(run::prepare_and_begin(&args, context, shared, &|_, _| Vec::new())).await;
    let error = match begun {
        Ok(exit_code) => return exit_code,
        Err(error) => error,
    };
    let exit_code = error.verdict().exit_code();
    if !watchdog.claim(exit_code) {
        // The exit watchdog has written the result, and the process is about to end.
        std::future::pending::<()>().await;
    }
    out.send_message(error_result(&error, &session_id), None);
    watchdog.mark_delivered(exit_code);
    exit_code
}

/// Returns the result of a turn that could not begin.
fn error_result(error: &UsageError, session_id: &SharedId) -> ResultObject {
    let uuid = Uuid::new_v4().to_string();
    exit_code_of_result_for_hosts(usage_error_result(error, &session_id.get(), &uuid))
}

/// Returns a message of the session, outside of a turn.
pub(super) fn system_message(message: SystemMessage, session_id: &str) -> RunMessage {
    RunMessage::new(MessageBody::System(message), session_id, Uuid::new_v4())
}
