//! Waits for MCP servers before the first request of a run: for the required ones, and for the
//! server prompt that the run was called with.

use std::time::Duration;

use tokio::time::{Instant, interval_at};
use tokio_util::sync::CancellationToken;

use crate::agent::Setup;
use crate::process::timeout_while_running;
use crate::recovery::Interrupt;
use crate::transcript::Block;

use super::output::one_line;
use super::prompts::ServerPromptCall;
use super::run::RunJob;
use super::timestamps::{format_duration, format_elapsed};
use super::usage::{UsageError, UsageErrorKind};

/// Time after which a wait for MCP servers is reported.
const QUIET_SERVER_WAIT: Duration = Duration::from_secs(2);

impl RunJob {
    /// Starts the MCP servers, and waits for the required ones.
    pub(super) async fn require_servers(&self, setup: &Setup) -> Result<(), UsageError> {
        setup.servers.start();
        let Some(names) = setup.servers.required() else { return Ok(()) };
        let found = async {
            setup.servers.wait_until_connected(names).await.map_err(|why| {
                let what = format!("{why}; fix it, or say --mcp-required none");
                UsageError::of(UsageErrorKind::McpUnavailable, what)
            })
        };
        // A run that the host has interrupted does not need the servers.
        self.wait_for_servers(setup, (names, "required MCP servers"), found).await.map(drop)
    }

    /// Replaces the call of a server's prompt by the text of the prompt. A session that already has
    /// its prompt contains no call, and a run that the host has interrupted keeps the call.
    pub(super) async fn fill_server_prompt(
        &self,
        setup: &mut Setup,
        call: &ServerPromptCall,
    ) -> Result<(), UsageError> {
        let is_call = |block: &Block| block.as_text() == Some(&call.text);
        let Some(index) = setup.prompt.content.iter().rposition(is_call) else { return Ok(()) };
        let failed = |why: String| {
            let what = format!("{}: {why}", call.command);
            UsageError::of(UsageErrorKind::McpUnavailable, what)
        };
        let names = [call.server.clone()];
        let cancel = CancellationToken::new();
        let (servers, limit) = (&setup.servers, self.settings.mcp.timers.wait);
        let fetched = async {
            let connected = servers.wait_until_connected(&names).await;
            connected.map_err(|why| failed(why.to_string()))?;
            let prompt = servers.prompt(&call.command, &call.words, &cancel);
            match timeout_while_running(limit, prompt).await {
                Some(prompt) => prompt.map_err(|why| failed(why.to_string())),
                None => Err(failed(format!(
                    "the server did not answer within {}",
                    format_duration(limit)
                ))),
            }
        };
        let waiting = (&names[..], "the prompt of MCP servers");
        let fetched = self.wait_for_servers(setup, waiting, fetched).await?;
        let Some(prompt) = fetched else { return Ok(()) };
        let gap = if call.rest.is_empty() { "" } else { "\n\n" };
        setup.prompt.content[index] = Block::text(format!("{prompt}{gap}{}", call.rest));
        Ok(())
    }

    /// Waits for servers, with heartbeats that name them, until the run is interrupted or its time
    /// is up. `None`: the host has interrupted the run, which begins nevertheless, so that the
    /// session records the prompt and the interruption.
    async fn wait_for_servers<T>(
        &self,
        setup: &Setup,
        (names, what): (&[String], &str),
        found: impl Future<Output = Result<T, UsageError>>,
    ) -> Result<Option<T>, UsageError> {
        let (began, limit) = (Instant::now(), self.settings.mcp.timers.wait);
        let missing = || {
            let missing = setup.servers.missing(names);
            // The wait may be for the prompt of a connected server.
            if missing.is_empty() { names.join(", ") } else { missing.join(", ") }
        };
        let heartbeat = self.settings.config.limits.heartbeat.max(Duration::from_millis(1));
        // A longer wait is reported with names and times, and again at each heartbeat.
        let mut beats = interval_at(began + heartbeat.min(QUIET_SERVER_WAIT), heartbeat);
        let late = self.wait_until_time_limit();
        tokio::pin!(found, late);
        loop {
            tokio::select! {
                biased;
                interrupt = self.signals.first() => {
                    let is_of_host = interrupt == Interrupt::HostRequest;
                    let error = || UsageError::interrupted(interrupt);
                    return if is_of_host { Ok(None) } else { Err(error()) };
                }
                () = &mut late => {
                    let what = format!(
                        "time ran out while {what} were waited for ({}); fix them, or raise \
                         --max-duration",
                        missing()
                    );
                    return Err(UsageError::of(UsageErrorKind::Late, what));
                }
                found = &mut found => return found.map(Some),
                _ = beats.tick() => {
                    let line = format!(
                        "waiting for {what} ({}), {} so far, {} left",
                        missing(),
                        format_elapsed(began.elapsed()),
                        format_duration(limit.saturating_sub(began.elapsed()))
                    );
                    self.shared.stderr.offer(&format!("outlast: {}", one_line(&line)));
                }
            }
        }
    }
}
