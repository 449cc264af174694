//! Converts the events of a run into spans and metrics.

use std::collections::HashMap;
use std::mem;
use std::time::SystemTime;

use crate::agent::{AgentIdentity, AgentStatus, Clock, EndedCall, Observer, RunEvent, RunOutcome};
use crate::recovery::{Money, Pause, RecoveryRecord, StopReason, Transition};
use crate::transcript::Usage;

use super::metrics::{RunMetrics, chat_attributes};
use super::span::{Attribute, AttributeValue, Span, SpanEvent, SpanId, SpanKind, number, text};
use super::span_sender::SpanSender;

/// The agent name of the run itself.
const AGENT: &str = "outlast";

/// The end of a run: stop reason, exit code, cost and usage.
#[derive(Clone, Copy, Debug)]
pub struct RunEnd {
    /// The name of its stop reason.
    pub reason: &'static str,
    pub exit_code: u8,
    /// In US dollars. `None`: the price of a model is unknown.
    pub cost: Option<f64>,
    pub turns: u32,
    pub usage: Usage,
}

impl RunEnd {
    /// Returns the end of a run, given the exit code, which is known later than the outcome.
    pub fn of(outcome: &RunOutcome) -> impl FnOnce(u8) -> Self + use<> {
        let reason = outcome.reason.name();
        let cost = outcome.cost().map(Money::as_dollars);
        let (turns, usage) = (outcome.stats.turns, outcome.stats.usage);
        move |exit_code| Self { reason, exit_code, cost, turns, usage }
    }
}

/// The open spans of a run, or of one of its sub-agents.
struct AgentSpans {
    span: Span,
    wait: Option<Span>,
}

impl AgentSpans {
    fn begin(name: &str, parent: Option<SpanId>, start: SystemTime) -> Self {
        let attributes = vec![
            text("gen_ai.operation.name", "invoke_agent"),
            text("gen_ai.provider.name", "anthropic"),
            text("gen_ai.agent.name", name),
        ];
        let title = format!("invoke_agent {name}");
        Self { span: Span::begin(title, SpanKind::Internal, parent, start, attributes), wait: None }
    }
}

/// Records the spans of a run while the run is in progress. The requests, tool calls and recoveries
/// of sub-agents have no spans, as their events are not forwarded to it.
pub struct SpanRecorder {
    run: AgentSpans,
    model: String,
    /// The request of the run in progress.
    request: Option<Span>,
    agents: HashMap<String, AgentSpans>,
    metrics: RunMetrics,
    clock: Clock,
    sender: SpanSender,
}

impl SpanRecorder {
    pub(super) fn new(sender: SpanSender, parent: Option<SpanId>, clock: Clock) -> Self {
        let run = AgentSpans::begin(AGENT, parent, clock.date());
        let (agents, metrics) = (HashMap::new(), RunMetrics::default());
        Self { run, model: String::new(), request: None, agents, metrics, clock, sender }
    }

    /// Ends all spans. Returns the metrics, and the start of their time range.
    pub(super) fn finish(mut self, end: RunEnd) -> (RunMetrics, SystemTime) {
        let now = self.clock.date();
        for (_, agent) in mem::take(&mut self.agents) {
            self.close(agent, now, Some("run_ended"));
        }
        if let Some(request) = self.request.take() {
            self.send(request, now, Some("aborted"));
        }
        let begun = self.run.span.start;
        let mut run = mem::replace(&mut self.run, AgentSpans::begin(AGENT, None, now));
        run.span.attributes.extend([
            text("outlast.stop_reason", end.reason),
            number("outlast.exit_code", end.exit_code.into()),
            number("outlast.turns", end.turns.into()),
            text("gen_ai.request.model", mem::take(&mut self.model)),
        ]);
        run.span.attributes.extend(usage_attributes(end.usage));
        let cost = end.cost.map(|cost| ("outlast.cost_usd", AttributeValue::Decimal(cost)));
        run.span.attributes.extend(cost);
        self.close(run, now, (end.exit_code != 0).then_some(end.reason));
        if let Some(cost) = end.cost {
            self.metrics.add("outlast.cost", "{USD}", Vec::new(), cost);
        }
        let reason = vec![text("outlast.stop_reason", end.reason)];
        self.metrics.add("outlast.runs", "{run}", reason, 1.0);
        (self.metrics, begun)
    }

    fn close(&self, mut agent: AgentSpans, now: SystemTime, error: Option<&str>) {
        if let Some(wait) = agent.wait.take() {
            self.send(wait, now, Some("aborted"));
        }
        self.send(agent.span, now, error);
    }

    fn send(&self, mut span: Span, end: SystemTime, error: Option<&str>) {
        span.end = end.max(span.start);
        span.attributes.extend(error.map(|error| text("error.type", error)));
        span.error = error.map(ToOwned::to_owned);
        self.sender.send(span);
    }

    fn agent(&mut self, identity: Option<&AgentIdentity>) -> &mut AgentSpans {
        let Some(identity) = identity else { return &mut self.run };
        let (parent, now) = (self.run.span.id, self.clock.date());
        self.agents.entry(identity.id.clone()).or_insert_with(|| {
            let mut spans = AgentSpans::begin(&identity.kind, Some(parent), now);
            spans.span.attributes.push(text("gen_ai.agent.id", identity.id.clone()));
            spans
        })
    }

    fn request_begins(&mut self) {
        let (title, parent) = (format!("chat {}", self.model), Some(self.run.span.id));
        let (now, attributes) = (self.clock.date(), chat_attributes(&self.model));
        self.request = Some(Span::begin(title, SpanKind::Client, parent, now, attributes));
    }

    /// Ends the span of the request in progress.
    fn step(&mut self, transition: &Transition) {
        let Some(request) = self.request.take() else { return };
        let now = self.clock.date();
        let error = transition.event.failure().map(|failure| failure.class.name());
        let took = now.duration_since(request.start).unwrap_or_default();
        self.metrics.request(&self.model, took, error);
        self.send(request, now, error);
    }

    fn reply(
        &mut self,
        identity: Option<&AgentIdentity>,
        id: &str,
        model: &str,
        stop_reason: Option<&str>,
        usage: Usage,
    ) {
        self.set_model(identity, model);
        if let Some(request) = self.request.as_mut().filter(|_| identity.is_none()) {
            request.attributes.extend(usage_attributes(usage));
            request.attributes.push(text("gen_ai.response.model", model));
            request.attributes.push(text("gen_ai.response.id", id));
            let finish = stop_reason.map(|reason| {
                let reasons = AttributeValue::List(vec![reason.to_owned()]);
                ("gen_ai.response.finish_reasons", reasons)
            });
            request.attributes.extend(finish);
        }
        self.metrics.tokens(model, "input", input_tokens(usage));
        self.metrics.tokens(model, "output", usage.output_tokens);
    }

    /// Begins the span of a sub-agent with its first event, or sets the model of the run.
    fn set_model(&mut self, identity: Option<&AgentIdentity>, model: &str) {
        self.agent(identity);
        if identity.is_none() {
            model.clone_into(&mut self.model);
        }
    }

    fn wait_begins(&mut self, identity: Option<&AgentIdentity>, pause: Pause) {
        let now = self.clock.date();
        let agent = self.agent(identity);
        let attributes = vec![
            text("outlast.error_class", pause.class.name()),
            number("outlast.attempt", pause.retry.into()),
        ];
        let (title, parent) = (format!("wait {}", pause.class.name()), Some(agent.span.id));
        agent.wait = Some(Span::begin(title, SpanKind::Internal, parent, now, attributes));
    }

    fn wait_ends(&mut self, identity: Option<&AgentIdentity>) {
        let now = self.clock.date();
        if let Some(wait) = self.agent(identity).wait.take() {
            self.send(wait, now, None);
        }
    }

    fn tool(&self, call: &EndedCall) {
        let EndedCall { name, id, is_error, .. } = call;
        let now = self.clock.date();
        let start = now.checked_sub(call.took).unwrap_or(now);
        let attributes = vec![
            text("gen_ai.operation.name", "execute_tool"),
            text("gen_ai.tool.name", name),
            text("gen_ai.tool.call.id", id),
            text("gen_ai.tool.type", "function"),
        ];
        let (title, parent) = (format!("execute_tool {name}"), Some(self.run.span.id));
        let span = Span::begin(title, SpanKind::Internal, parent, start, attributes);
        self.send(span, now, is_error.then_some("tool_error"));
    }

    fn recovery(&mut self, record: &RecoveryRecord) {
        let at = self.clock.date();
        let attributes: Vec<Attribute> = vec![
            text("outlast.error_class", record.class.clone()),
            text("outlast.strategy", record.strategy.clone()),
            ("outlast.saved", AttributeValue::Flag(record.saved)),
        ];
        self.metrics.add("outlast.recoveries", "{recovery}", attributes.clone(), 1.0);
        let mut event = SpanEvent { name: "outlast.recovery", at, attributes };
        event.attributes.push(number("outlast.attempts", record.attempts.into()));
        let waited = AttributeValue::Decimal(record.waited.as_secs_f64());
        event.attributes.push(("outlast.waited_s", waited));
        let cost = record.spending().total();
        let cost = cost.map(|cost| AttributeValue::Decimal(cost.as_dollars()));
        event.attributes.extend(cost.map(|cost| ("outlast.cost_usd", cost)));
        self.run.span.events.push(event);
    }

    fn observe_within(&mut self, identity: Option<&AgentIdentity>, event: &RunEvent) {
        if let RunEvent::Init(init) = event {
            self.model.clone_from(&init.model);
            self.run.span.attributes.push(text("gen_ai.conversation.id", init.session_id.clone()));
        } else if let RunEvent::Step { transition, .. } = event {
            self.step(transition);
        } else if matches!(event, RunEvent::RequestSent) && identity.is_none() {
            self.request_begins();
        } else if let RunEvent::WaitBegins { pause, .. } = event {
            self.wait_begins(identity, *pause);
        } else if matches!(event, RunEvent::WaitEnds { .. }) {
            self.wait_ends(identity);
        } else if let RunEvent::Assistant { id, model, stop_reason, usage, .. } = event {
            self.reply(identity, id, model, stop_reason.as_deref(), *usage);
        } else if let RunEvent::ModelSwitched { to, .. } = event {
            self.set_model(identity, to);
        } else if let RunEvent::RecoveryEnds(record) = event {
            self.recovery(record);
        } else if let RunEvent::ToolEnds(call) = event {
            self.tool(call);
        } else if let RunEvent::Agent(task) = event {
            if task.status != AgentStatus::Running
                && let Some(agent) = self.agents.remove(&task.identity.id)
            {
                let error = task.reason.filter(|reason| *reason != StopReason::Completed);
                let now = self.clock.date();
                self.close(agent, now, error.map(StopReason::name));
            }
        } else if let RunEvent::OfAgent { agent, event } = event {
            self.observe_within(Some(agent), event);
        }
    }
}

impl Observer for SpanRecorder {
    fn observe(&mut self, event: &RunEvent) {
        self.observe_within(None, event);
    }
}

/// Returns the number of input tokens, cached ones included, as the semantic conventions define it.
fn input_tokens(usage: Usage) -> u64 {
    usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
}

fn usage_attributes(usage: Usage) -> [Attribute; 4] {
    [
        number("gen_ai.usage.input_tokens", input_tokens(usage)),
        number("gen_ai.usage.output_tokens", usage.output_tokens),
        number("gen_ai.usage.cache_read.input_tokens", usage.cache_read_input_tokens),
        number("gen_ai.usage.cache_creation.input_tokens", usage.cache_creation_input_tokens),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::mpsc;

    use super::*;
    use crate::recovery::{Event, Interrupt, Limits, Moment, ReplyKind, Run, TokenEstimate};

    #[test]
    fn a_request_has_one_span_once_it_is_sent() {
        let limits = Limits::default();
        let (begin, end) = (Moment::default(), Moment::default().after(Duration::from_secs(40)));
        let waited = [
            (begin, Event::Begin),
            (begin, Event::Estimated(TokenEstimate::FREE)),
            (begin, Event::SharedLimitMet { until: end }),
            (end, Event::WaitEnded),
            (end, Event::Estimated(TokenEstimate::FREE)),
        ];
        let answer = Event::Replied(ReplyKind::Answer { tokens: 1 });
        let cut = Event::Interrupted(Interrupt::Sigterm);
        for (is_sent, last, count) in [(true, answer, 1), (true, cut, 1), (false, cut, 0)] {
            let (queue, mut spans) = mpsc::channel(16);
            let sender = SpanSender { queue, dropped: Arc::default() };
            let mut recorder = SpanRecorder::new(sender, None, Clock::start(1.0));
            let mut run = Run::new(7, &limits);
            let mut step = |recorder: &mut SpanRecorder, at, event| {
                let transition = run.step(at, event, &limits).expect("the run awaits it");
                run = transition.next;
                recorder.observe(&RunEvent::Step { transition: Box::new(transition), fault: None });
            };
            for (at, event) in waited {
                step(&mut recorder, at, event);
            }
            if is_sent {
                recorder.observe(&RunEvent::RequestSent);
            }
            step(&mut recorder, end, last);
            let sent = std::iter::from_fn(|| spans.try_recv().ok());
            assert_eq!(
                sent.filter(|span| span.name.starts_with("chat")).count(),
                count,
                "{last:?}"
            );
            let requests = recorder.metrics.distributions.iter();
            assert_eq!(requests.map(|requests| requests.count).sum::<u64>(), count as u64);
        }
    }
}
