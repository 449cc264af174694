//! Answers a prompt without content. A host that resumes a session only to restore files sends such
//! a prompt, and its request after it has received the `init` message.

use tokio::sync::mpsc;
use tokio::time::timeout;
use uuid::Uuid;

use crate::agent::{Clock, Init, Observer, RunEvent};
use crate::cli::assemble::{RequestHead, request_head};
use crate::cli::output::{StreamJson, StreamOptions, empty_result};
use crate::cli::run::capabilities;
use crate::cli::settings::Settings;
use crate::cli::timestamps::WallTime;
use crate::cli::usage::UsageError;
use crate::host::{ControlRequest, HostFrame, HostInput, parse};
use crate::journal::RecordedPrompt;
use crate::mcp::Servers;
use crate::recovery::Money;

use super::session::{DEFERRED_LIMIT, HostSession, InputStep};

impl HostSession {
    /// Reports that the prompt is empty, unless the host only restores files. Returns the exit
    /// code.
    ///
    /// # Errors
    /// The session ends, with this exit code.
    pub(super) async fn answer_empty_prompt(
        &mut self,
        input: &mut mpsc::Receiver<HostInput>,
        is_open: &mut bool,
    ) -> Result<u8, u8> {
        let may_restore = self.keeps_files && self.args.run.session.resume.is_some();
        if may_restore && *is_open && self.send_init().await.is_ok() {
            let line = timeout(DEFERRED_LIMIT, input.recv()).await;
            let prompt = line.as_ref().ok().and_then(Option::as_ref).and_then(restored_prompt);
            let can_restore = match prompt {
                Some(prompt) => self.restore_files(prompt, true).await.is_ok(),
                None => false,
            };
            let step = match line {
                Ok(line) => self.handle(line, None).await,
                Err(_) => InputStep::GoesOn,
            };
            match step {
                InputStep::GoesOn => {}
                InputStep::Ended => *is_open = false,
                InputStep::Fatal(code) => return Err(code),
            }
            if can_restore {
                let uuid = Uuid::new_v4().to_string();
                self.out.send_message(empty_result(&self.session_id.get(), &uuid), None);
                return Ok(0);
            }
        }
        let why = "the prompt is empty; give it text, or a block such as an image";
        let error = UsageError::new(why);
        self.report(&error);
        Ok(error.verdict().exit_code())
    }

    /// Sends the message that begins a turn.
    async fn send_init(&mut self) -> Result<(), UsageError> {
        let servers = self.shared_servers().await?;
        let settings = self.settings().await?;
        let (secrets, id) = (self.shared.secrets.clone(), self.session_id.get());
        let (options, out) = (options(&settings), self.out.clone());
        let init = self
            .step("preparing the session", move |_| {
                let now = WallTime::from_clock(&Clock::start(1.0));
                let head = request_head(&settings, &servers, &secrets, &now)?;
                Ok(init(&settings, &servers, head, id))
            })
            .await?;
        let id = init.session_id.clone();
        StreamJson::new(out, &id, options).observe(&RunEvent::Init(Box::new(init)));
        Ok(())
    }
}

/// Returns the prompt of a line that requests to restore files.
fn restored_prompt(line: &HostInput) -> Option<String> {
    let HostInput::Line { text, .. } = line else { return None };
    let Ok(HostFrame::Control { request, .. }) = parse(text) else { return None };
    let ControlRequest::RewindFiles { prompt, .. } = request else { return None };
    Some(prompt)
}

fn options(settings: &Settings) -> StreamOptions {
    StreamOptions {
        ignored: settings.ignored.clone(),
        offers: capabilities(settings),
        ..StreamOptions::default()
    }
}

fn init(settings: &Settings, servers: &Servers, head: RequestHead, session_id: String) -> Init {
    let files = head.memory.files.iter();
    Init {
        session_id,
        cwd: settings.cwd.display().to_string(),
        model: head.model,
        tools: head.tools.into_iter().map(|tool| tool.name).collect(),
        servers: servers.reports(),
        server_prompts: Vec::new(),
        permission_mode: settings.config.permissions.mode.name().to_owned(),
        api_key_source: settings.endpoint.credential.source().to_owned(),
        sandbox: head.sandbox,
        dropped_variables: head.dropped_variables,
        memory_files: files.map(|file| file.path.display().to_string()).collect(),
        agents: head.agents.into_iter().map(|agent| agent.name).collect(),
        cost_before: Money::ZERO,
        recorded: RecordedPrompt::default(),
    }
}
