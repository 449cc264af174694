//! Answers the control requests of a host.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use tokio::time::Instant;

use crate::agent::{self, InterruptSender};
use crate::cli::assemble::start_shared_servers;
use crate::cli::output::StreamJson;
use crate::cli::settings::Settings;
use crate::cli::usage::UsageError;
use crate::hooks::callbacks;
use crate::host::{ControlRequest, Initialize, control_error, control_success};
use crate::mcp::{ServerAddress, Servers};
use crate::messages::{
    AppliedParts, ControlResult, InformationalMessage, RequestId, SystemMessage,
};
use crate::recovery::Interrupt;
use crate::types::HostChannel;

use super::context_usage;
use super::replies;
use super::run_args::TurnArgs;
use super::session::{DEFERRED_LIMIT, HostSession, InputStep, system_message};

/// Time limit of the wait at the start for servers that run in the host.
const HOST_SERVERS_WAIT: Duration = Duration::from_secs(2);

/// The error code of a control request that is not supported.
const UNSUPPORTED: &str = "unsupported_request";

/// A control request of a subtype that is not supported.
#[derive(Debug, thiserror::Error)]
#[error("outlast does not support the control request {0:?}")]
struct UnsupportedRequest(String);

impl HostSession {
    /// Answers a request. `turn` interrupts the running turn, if there is one.
    pub(super) async fn answer(
        &mut self,
        id: &RequestId,
        request: ControlRequest,
        turn: Option<&InterruptSender>,
    ) -> InputStep {
        let reply: anyhow::Result<ControlResult> = match request {
            ControlRequest::Initialize(request) => return self.initialize(id, *request).await,
            ControlRequest::Interrupt { cancels_queued } => {
                Ok(self.interrupt(turn, cancels_queued))
            }
            ControlRequest::SetModel(model) => self.set_model(model).await.map_err(Into::into),
            ControlRequest::SetPermissionMode(mode) => self.set_mode(&mode),
            ControlRequest::StopTask(task) => {
                let stopped = self.resources.stops.stop(&task);
                stopped.map(|()| ControlResult::Done {}).map_err(Into::into)
            }
            ControlRequest::GetContextUsage => self.context_usage().await.map_err(Into::into),
            ControlRequest::SetMaxThinkingTokens(tokens) => {
                let set = self.args.set_thinking(tokens).map(|()| ControlResult::Done {});
                set.map_err(|why| anyhow!("max_thinking_tokens {why}"))
            }
            ControlRequest::RewindFiles { prompt, is_dry_run } => {
                Ok(self.rewind(prompt, is_dry_run).await)
            }
            ControlRequest::McpSetServers(servers) => {
                self.set_servers(servers).await.map_err(Into::into)
            }
            ControlRequest::McpToggle { server, is_enabled } => {
                self.toggle_server(&server, is_enabled).await
            }
            ControlRequest::McpReconnect(server) => {
                match self.reconnect_server(id, &server).await {
                    Ok(()) => return InputStep::GoesOn,
                    Err(error) => Err(error),
                }
            }
            ControlRequest::McpStatus => self
                .shared_servers()
                .await
                .map(|servers| replies::mcp_status(&servers))
                .map_err(Into::into),
            ControlRequest::McpMessage { server, message } => {
                let servers = self.resources.servers.as_ref();
                if servers.is_some_and(|servers| servers.deliver(&server, message)) {
                    Ok(ControlResult::Done {})
                } else {
                    Err(anyhow!("there is no connected server {server:?} of the host"))
                }
            }
            ControlRequest::Unsupported(subtype) => Err(UnsupportedRequest(subtype).into()),
            ControlRequest::Unreadable(why) => Err(anyhow::Error::msg(why)),
        };
        let reply = match reply {
            Ok(value) => control_success(id, value),
            Err(error) => {
                let code = error.is::<UnsupportedRequest>().then_some(UNSUPPORTED);
                control_error(id, &error.to_string(), code)
            }
        };
        self.out.send_reply(reply, StreamJson::LONGEST);
        InputStep::GoesOn
    }

    /// Sets the permission mode, also of the running turn.
    fn set_mode(&mut self, mode: &str) -> anyhow::Result<ControlResult> {
        let mode = TurnArgs::mode(mode)?;
        self.resources.live.set_mode(mode)?;
        self.adopt_mode();
        Ok(ControlResult::PermissionMode { mode: mode.name() })
    }

    /// Measures the parts of the next request.
    async fn context_usage(&mut self) -> Result<ControlResult, UsageError> {
        let servers = self.shared_servers().await?;
        let settings = self.settings().await?;
        let (secrets, size) = (self.shared.secrets.clone(), self.resources.gauge.read());
        self.step("measuring the context", move |session| {
            let recorded = || session.read().map_or(0, |session| session.message_tokens());
            let messages = size.as_ref().map_or_else(recorded, |size| size.messages);
            context_usage::measure(&settings, &servers, &secrets, size, messages)
        })
        .await
    }

    /// Interrupts the turn that is the current one for the host: the running turn, or, if its
    /// result was sent, that of the next prompt.
    fn interrupt(&mut self, turn: Option<&InterruptSender>, cancels_queued: bool) -> ControlResult {
        let running = turn.filter(|_| !self.context.exit_watchdog.is_claimed());
        if let Some(turn) = running {
            agent::interrupt(turn, Interrupt::HostRequest);
        }
        let mut prompts = self.queue.iter_mut().enumerate();
        let next = prompts.find(|(_, prompt)| running.is_none() && !prompt.is_context);
        let first_queued = next.map_or(0, |(at, prompt)| {
            prompt.is_interrupted = true;
            at + 1
        });
        let queued =
            self.queue.range(first_queued..).filter_map(|prompt| prompt.uuid.clone()).collect();
        if !cancels_queued {
            return ControlResult::Interrupted { still_queued: queued, cancelled: None };
        }
        self.queue.truncate(first_queued);
        // The host may send them again.
        self.prompt_ids.forget(&queued);
        ControlResult::Interrupted { still_queued: Vec::new(), cancelled: Some(queued) }
    }

    /// Sets the model of the following turns; `None`: the model before the host's first change.
    async fn set_model(&mut self, model: Option<String>) -> Result<ControlResult, UsageError> {
        if model.is_some() && self.args.lacks_first_model() {
            let settings = self.settings().await?;
            self.args.set_first_model(&settings.chain.links[0].model);
        }
        self.args.set_model(model.clone());
        Ok(ControlResult::Model { model })
    }

    async fn initialize(&mut self, id: &RequestId, request: Initialize) -> InputStep {
        match self.apply(request).await {
            Ok(reply) => {
                self.out.send_reply(control_success(id, reply), StreamJson::LONGEST);
                self.deferred_until = Some(Instant::now() + DEFERRED_LIMIT);
                InputStep::GoesOn
            }
            Err(error) => {
                self.out.send_unmasked(control_error(id, &error.to_string(), None));
                self.report(&error);
                InputStep::Fatal(error.verdict().exit_code())
            }
        }
    }

    /// Applies the options that the host sends before its first prompt, and returns the reply.
    async fn apply(&mut self, request: Initialize) -> Result<ControlResult, UsageError> {
        let hooks = request.hooks.clone();
        let applied = AppliedParts {
            hooks: hooks.is_some(),
            servers: request.servers.is_some(),
            plugins: request.plugins.is_some(),
        };
        let without_effect = request.without_effect.clone();
        self.args.initialize(request)?;
        let settings = self.settings().await?;
        let reply = replies::initialized(&settings, applied);
        let (handlers, warnings) = callbacks(&hooks.unwrap_or_default())
            .map_err(|error| UsageError::new(format!("initialize: {error}; correct it")))?;
        self.resources.hooks = handlers;
        let without_effect = without_effect.iter();
        let without_effect = without_effect.map(|it| format!("{it} has no effect in outlast"));
        for warning in without_effect.chain(warnings) {
            self.warn(&warning);
        }
        self.resources.servers = None;
        self.shared_servers().await?;
        Ok(reply)
    }

    /// Sends a warning to the host, or to standard error once the host gets no more messages.
    pub(super) fn warn(&self, text: &str) {
        if self.is_silent {
            self.shared.warn(text);
            return;
        }
        let content = text.to_owned();
        let warning = InformationalMessage { content, level: "warning", hook_event: None };
        let message = SystemMessage::Informational(warning);
        self.out.send_message(system_message(message, &self.session_id.get()), None);
    }

    /// Returns the MCP servers that all turns share. Starts them the first time.
    pub(super) async fn shared_servers(&mut self) -> Result<Arc<Servers>, UsageError> {
        if let Some(servers) = &self.resources.servers {
            return Ok(Arc::clone(servers));
        }
        let settings = self.settings().await?;
        let secrets = self.shared.secrets.clone();
        settings.add_secrets(&secrets);
        let (own, session_id) = (host_servers(&settings), self.session_id.get());
        let host: Arc<dyn HostChannel> = Arc::new(self.requests.clone());
        let start = move || start_shared_servers(&settings, session_id, &secrets, host);
        let servers = self.steps().step("starting the MCP servers", start).await?;
        servers.start();
        self.resources.servers = Some(Arc::clone(&servers));
        if !own.is_empty() {
            // The first status contains their tools. A server that takes longer is added later.
            let connected = servers.wait_until_connected(&own);
            let _ = tokio::time::timeout(HOST_SERVERS_WAIT, connected).await;
        }
        Ok(servers)
    }
}

/// Returns the names of the servers that run in the host.
fn host_servers(settings: &Settings) -> Vec<String> {
    let servers = settings.mcp.servers.iter().filter(|server| server.place == ServerAddress::Host);
    servers.map(|server| server.name.clone()).collect()
}
