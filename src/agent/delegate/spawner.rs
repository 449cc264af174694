//! Starts sub-agents: from a tool call to its result.

use std::iter;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::recovery::{Interrupt, StopReason};
use crate::secrets::Redactor;
use crate::tools::{
    AgentCall, AgentDefinition, AgentEnded, BackgroundAgent, OnFailure, ToolOutcome,
};
use crate::transcript::{Block, with_error_tags, without_error_tags};

use super::super::run_event::RunEvent;
use super::super::setup::ModelEndpoint;
use super::super::signals::interrupt;
use super::report::{self, SubagentReport, failed_outcome};
use super::spawn_error::SpawnError;
use super::subagent_run::{ParentRun, SubagentRun, run_boxed};
use super::task::{AgentIdentity, AgentStatus, AgentTask, SubagentUsage, shown_error};

/// The pending outcome of a sub-agent call.
pub(in super::super) type PendingSubagent = Pin<Box<dyn Future<Output = ToolOutcome> + Send>>;

/// The specification of a sub-agent, used for each attempt.
struct SubagentPlan {
    call: AgentCall,
    definition: AgentDefinition,
    endpoints: Vec<ModelEndpoint>,
    /// The id of the tool call.
    id: String,
    background: bool,
}

/// The task record of an ended sub-agent, and the report on it.
struct SubagentOutcome {
    task: AgentTask,
    report: SubagentReport,
}

impl ParentRun {
    /// Performs the call with this id. Never fails: an error is an outcome, too. The sub-agent has
    /// its id when this returns, so that ids follow the order of the calls.
    pub(in super::super) fn perform(
        self,
        id: &str,
        call: &AgentCall,
        cancel: &CancellationToken,
    ) -> PendingSubagent {
        let begun = self.plan(id, call).and_then(|plan| {
            // The host can stop this sub-agent alone.
            let stop =
                if plan.background { CancellationToken::new() } else { cancel.child_token() };
            let child = self.child(&plan, None, &stop)?;
            Ok((plan, child, stop))
        });
        let note = call.note();
        Box::pin(async move {
            let mut outcome = match begun {
                Ok((plan, child, stop)) if plan.background => self.begin(plan, child, stop).await,
                Ok((plan, child, stop)) => {
                    let ended = self.wait_for_end(&plan, child, stop).await;
                    self.outcome(&ended).await
                }
                Err(why) => failed_outcome(&self.toolbox, &why.to_string()).await,
            };
            outcome.content.extend(note.map(Block::text));
            outcome
        })
    }

    /// Resolves a call into the specification of a sub-agent.
    fn plan(&self, id: &str, call: &AgentCall) -> Result<SubagentPlan, SpawnError> {
        let definition = self.deps.registry.kind(&call.subagent_type)?.clone();
        self.deps.registry.admit(self.depth)?;
        let endpoints = self.select_endpoints(call, &definition)?;
        let background = !self.deps.registry.waits_for(call);
        if background && call.on_failure == OnFailure::CancelSiblings {
            return Err(SpawnError::CancelsFromBackground);
        }
        let (id, call) = (id.to_owned(), call.clone());
        Ok(SubagentPlan { call, definition, endpoints, id, background })
    }

    /// Returns the model chain: the requested model first, then the fallbacks of the run.
    fn select_endpoints(
        &self,
        call: &AgentCall,
        kind: &AgentDefinition,
    ) -> Result<Vec<ModelEndpoint>, SpawnError> {
        let delegation = &self.deps.registry.delegation;
        let names = [delegation.model.as_ref(), call.model.as_ref(), kind.model.as_ref()];
        let name = names.into_iter().flatten().find(|name| !name.trim().is_empty());
        let Some(name) = name.filter(|name| *name != "inherit") else {
            return Ok(self.endpoints.clone());
        };
        let facts = (delegation.models)(name)?;
        if let Some(known) =
            self.endpoints.iter().position(|endpoint| endpoint.facts.name == facts.name)
        {
            return Ok(self.endpoints[known..].to_vec());
        }
        let bounded =
            self.deps.stop_after.is_some() || self.deps.ledger.ledger().ceiling().is_some();
        if bounded && facts.prices.is_none() {
            return Err(SpawnError::NoPrice { model: name.clone() });
        }
        let client = Arc::clone(&self.endpoints[0].client);
        let endpoint = ModelEndpoint { label: facts.name.clone(), facts, client };
        Ok(iter::once(endpoint).chain(self.endpoints.iter().skip(1).cloned()).collect())
    }

    /// Starts a sub-agent in the background.
    async fn begin(
        self,
        plan: SubagentPlan,
        child: SubagentRun,
        stop: CancellationToken,
    ) -> ToolOutcome {
        let task = child.task.clone();
        let AgentIdentity { id, call, kind, description } = task.identity.clone();
        let (parent, token) = (self.clone(), stop.clone());
        let work = Box::pin(async move {
            let ended = parent.wait_for_end(&plan, child, token).await;
            let completed = ended.task.status == AgentStatus::Completed;
            let text = parent.outcome(&ended).await.visible_text();
            AgentEnded { completed, final_text: without_error_tags(&text).to_owned() }
        });
        let agent = BackgroundAgent { id: id.clone(), call, kind, description, work, stop };
        if let Err(why) = self.toolbox.start_background_agent(agent) {
            return failed_outcome(&self.toolbox, &why.to_string()).await;
        }
        let text = format!(
            "{}{id}. You are notified when it ends. BashOutput shows how it stands, and KillShell \
             stops it.",
            crate::tools::STARTED_IN_BACKGROUND
        );
        let detail = json!({ "status": "async_launched", "agentId": id });
        self.toolbox.agent_outcome(text, false, detail).await
    }

    /// Waits for the end of a sub-agent and, if it is tried again, of the second attempt.
    async fn wait_for_end(
        &self,
        plan: &SubagentPlan,
        child: SubagentRun,
        stop: CancellationToken,
    ) -> SubagentOutcome {
        let ended = self.follow(child, stop.clone()).await;
        match self.again(plan, &ended, &stop) {
            Some(again) => self.follow(again, stop).await,
            None => ended,
        }
    }

    /// Returns the sub-agent for a second attempt, if a retry is requested and may help.
    fn again(
        &self,
        plan: &SubagentPlan,
        ended: &SubagentOutcome,
        stop: &CancellationToken,
    ) -> Option<SubagentRun> {
        let failed = ended.task.status == AgentStatus::Failed && !stop.is_cancelled();
        let may_help = ended.report.reason.info().subagent_may_retry;
        if plan.call.on_failure != OnFailure::RetryOnce || !failed || !may_help {
            return None;
        }
        self.child(plan, Some(ended.task.identity.id.clone()), stop).ok()
    }

    /// Creates, registers and announces a sub-agent that ends soon after `stop` is cancelled.
    fn child(
        &self,
        plan: &SubagentPlan,
        retries: Option<String>,
        stop: &CancellationToken,
    ) -> Result<SubagentRun, SpawnError> {
        let kind = &plan.definition;
        let toolbox = self.toolbox.derive_subagent_toolbox(kind)?;
        let toolbox = if self.depth < self.deps.registry.delegation.limits.depth {
            toolbox.with_agents(&self.deps.registry.definitions)
        } else {
            toolbox
        };
        let task = AgentTask {
            identity: AgentIdentity {
                id: String::new(),
                call: plan.id.clone(),
                kind: kind.name.clone(),
                description: plan.call.description.clone(),
            },
            parent: self.identity.as_ref().map(|identity| identity.id.clone()),
            depth: self.depth,
            retries,
            background: plan.background,
            prompt: plan.call.prompt.clone(),
            model: plan.endpoints[0].label.clone(),
            session: String::new(),
            status: AgentStatus::Running,
            reason: None,
            error: None,
            usage: SubagentUsage::default(),
        };
        let task = self.deps.registry.register(task, self.deps.clock.now())?;
        // Before the start is announced: the host may stop a task as soon as it knows the id.
        let stoppable = self.deps.registry.stops.add(&task.identity.id, stop);
        self.emit_task(&task);
        let (interrupter, interrupts) = watch::channel(None);
        let parent = Self { endpoints: plan.endpoints.clone(), ..self.clone() };
        let definition = kind.clone();
        Ok(SubagentRun { parent, task, definition, toolbox, interrupter, interrupts, stoppable })
    }

    fn emit_task(&self, task: &AgentTask) {
        // The receiver is gone once the run is over.
        let _ = self.post.send(RunEvent::Agent(Box::new(task.clone())));
    }

    /// Runs a sub-agent until it ends by itself or is stopped.
    async fn follow(&self, child: SubagentRun, stop: CancellationToken) -> SubagentOutcome {
        let (mut task, interrupter) = (child.task.clone(), child.interrupter.clone());
        let mut work = run_boxed(child);
        let mut report = tokio::select! {
            biased;
            report = &mut work => report,
            () = stop.cancelled() => {
                interrupt(&interrupter, Interrupt::Sigterm);
                work.await
            }
        };
        let stopped = report.reason.interrupt().is_some();
        if stopped && self.deps.registry.is_alarmed() && !report.stats.denials.is_empty() {
            // The sub-agent was stopped because its own call was denied.
            report.reason = StopReason::Denied;
        }
        task.status = AgentStatus::of(report.reason);
        task.reason = Some(report.reason);
        if task.status != AgentStatus::Completed {
            report.hide_secrets(&Redactor::new(self.deps.secrets.clone()));
        }
        task.error = report.error.as_deref().map(shown_error);
        let (cost, unsettled) = self.deps.ledger.account(&task.identity.id).unwrap_or_default();
        task.usage = SubagentUsage {
            cost,
            unsettled,
            turns: report.stats.turns,
            tokens: report.stats.usage.input() + report.stats.usage.output_tokens,
            tool_calls: report.stats.tools.calls,
            requests: report.stats.recovery.totals().requests,
            took: report.stats.recovery.worked(),
        };
        self.deps.registry.record_end(&task, report.stats.denials.clone());
        self.emit_task(&task);
        SubagentOutcome { task, report }
    }

    async fn outcome(&self, ended: &SubagentOutcome) -> ToolOutcome {
        let SubagentOutcome { task, report } = ended;
        let completed = task.status == AgentStatus::Completed;
        let text = if completed { report::answer(report) } else { report::failure(task, report) };
        let detail = report::detail(task, report, &text);
        let text = if completed { text } else { with_error_tags(&text) };
        self.toolbox.agent_outcome(text, !completed, detail).await
    }
}
