//! The session and the settings of a host's next turn.

use uuid::Uuid;

use crate::cli::args::RunArgs;
use crate::cli::chosen_session::SessionChoice;
use crate::cli::host_turn::FILE_HISTORY;
use crate::cli::output::empty_result;
use crate::cli::run;
use crate::cli::settings::{self, Settings};
use crate::cli::startup::StartupSteps;
use crate::cli::usage::UsageError;
use crate::host::SessionState;
use crate::journal::Terms;
use crate::messages::{MessageBody, RunMessage};
use crate::tools::FileHistory;

use super::session::HostSession;

impl HostSession {
    /// Removes the result of an earlier run, checks that turns can begin, whatever agents and
    /// servers the host defines later, and reads their session: its id, whether a hook has deferred
    /// its last call, and the ids of its prompts.
    pub(super) async fn start(&mut self) -> Result<(), UsageError> {
        // The wait for the first prompt has no limit.
        let older = self.args.run.output.clone();
        let limit = self.args.run.time_limit();
        StartupSteps::new(&self.context.signals, &self.shared.stderr, limit)
            .uninterrupted_step("removing the older result", move || {
                run::remove_older_results(&older)
            })
            .await?;
        let session = self.step("reading the session", SessionChoice::read).await?;
        let mut args = self.args.run.clone();
        args.prompts.more_follows = true;
        self.resolve(args, session.terms()).await?;
        self.session_id.set(session.id.to_string());
        self.has_deferred = session.has_deferred_call();
        self.prompt_ids = session.user_message_ids().into();
        Ok(())
    }

    /// Resolves the settings of the next turn.
    pub(super) async fn settings(&self) -> Result<Settings, UsageError> {
        let terms = self.step("reading the session", |session| Ok(session.terms())).await?;
        self.resolve(self.args.run.clone(), terms).await
    }

    async fn resolve(&self, args: RunArgs, terms: Terms) -> Result<Settings, UsageError> {
        let (variables, cwd) = (self.context.variables.clone(), self.context.cwd.clone());
        let resolve = move || settings::resolve(&args, variables, cwd, &terms);
        self.steps().step("reading the settings", resolve).await
    }

    /// Makes the next turn resume the session if a turn has opened it, even if that turn failed.
    pub(super) fn resume_if_opened(&mut self) {
        let id = self.session_id.get();
        if self.resources.opened.is(&id) {
            self.args.resume(&id);
        }
    }

    /// Applies the mode that the host has set to the following turns.
    pub(super) fn adopt_mode(&mut self) {
        if let Some(mode) = self.resources.live.mode() {
            self.args.set_mode(mode);
        }
    }

    /// Begins a new conversation in a new session, whose first turn is the next one. `prompt` is
    /// the id of the prompt that requested this: files can be restored to their state at it.
    pub(super) async fn clear(&mut self, prompt: Option<String>) {
        let (old, new) = (self.session_id.get(), Uuid::now_v7().to_string());
        self.args.begin_session(&new);
        if let Some(prompt) = prompt.filter(|_| self.keeps_files) {
            self.begin_file_history(prompt).await;
        }
        self.context_prompts.clear();
        self.resources.begin_conversation();
        self.cleared_sessions.push(old.clone());
        self.session_id.set(new.clone());
        let reset = MessageBody::ConversationReset { new_conversation_id: new.clone() };
        self.out.send_message(RunMessage::new(reset, &old, Uuid::new_v4()), None);
        self.out.send_message(empty_result(&new, &Uuid::new_v4().to_string()), None);
        if self.queue.is_empty() {
            (self.reports_state)(SessionState::Idle);
        }
    }

    /// Records a prompt that runs no turn in the history of the files of the next turn's session.
    async fn begin_file_history(&self, prompt: String) {
        let begin = move |session: SessionChoice| {
            let history = FileHistory::new(session.folder().join(FILE_HISTORY), prompt);
            // A folder that cannot be written is reported when a file is copied to it.
            let _ = history.begin(&[]);
            Ok(())
        };
        // A session that cannot be chosen is reported by its first turn.
        let _ = self.step("keeping files", begin).await;
    }

    /// Runs a step on the session of the next turn.
    pub(super) async fn step<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce(SessionChoice) -> Result<T, UsageError> + Send + 'static,
    ) -> Result<T, UsageError> {
        let (args, context) = (self.args.run.clone(), &self.context);
        let (variables, cwd) = (context.variables.clone(), context.cwd.clone());
        let work = move || work(SessionChoice::of(&args, &variables, &cwd)?);
        self.steps().step(name, work).await
    }

    pub(super) fn steps(&self) -> StartupSteps<'_> {
        StartupSteps::new(&self.context.signals, &self.shared.stderr, None)
    }
}
