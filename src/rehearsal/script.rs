//! Selects the step that answers a request, and records all requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::connection::RecordedRequest;
use super::repeat_check::{LastRefusal, ServerStatus};
use super::request_validator::{LastWord, count, strings};
use super::scenario::{
    AfterLast, FaultPosition, ScriptStep, ScriptedFault, ServerPart, StepAnswer, StepCondition,
};
use super::sse::Tokens;
use super::token_grants::TokenGrants;

/// A request for a model reply, as received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Real time since the server's start.
    pub at: Duration,
    /// Includes the query.
    pub path: String,
    /// Names in lower case, in the order of the request.
    pub headers: Vec<(String, String)>,
    /// `null` if the body is not JSON, or is not kept.
    pub body: Value,
    /// The body, byte for byte; empty if it is not kept.
    pub raw: Arc<[u8]>,
    /// Counted from 1. Requests with the same id came over the same connection.
    pub connection_id: usize,
    /// The script that answers the request.
    pub line: ScriptLine,
    /// The step that answered, counted from 0. `None` if a rule did.
    pub step: Option<usize>,
    /// True if the client disconnected before the answer was complete.
    pub aborted_by_client: bool,
}

/// The part that a server keeps of the requests that it has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestRetention {
    /// The whole requests.
    #[default]
    Whole,
    /// All but the bodies: each contains the whole conversation, so the memory for all would grow
    /// with the square of its length.
    Heads,
}

impl ReceivedRequest {
    /// The value of the first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// The requested model, or an empty string.
    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }
}

/// The state of a server's script.
#[derive(Debug, Default)]
pub(super) struct ScriptState {
    steps: ScriptPosition,
    compactions: ScriptPosition,
    pub(super) recorded: Vec<ReceivedRequest>,
    pub(super) violations: Vec<String>,
    pub(super) accepted: usize,
    pub(super) status: ServerStatus,
    /// The number of capacity probes, which are not part of the script.
    pub(super) probes: usize,
    pub(super) grants: TokenGrants,
    /// The cached prompt prefix of each model.
    cached: BTreeMap<String, Vec<u8>>,
}

/// The scripts of a server: for steps or for compactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptLine {
    /// The script for steps.
    Main,
    /// The script for compactions.
    Compaction,
}

impl ScriptLine {
    pub(super) fn of(part: &ServerPart, request: &RecordedRequest) -> Self {
        let compacts = request.header(SOURCE) == Some("compact");
        if compacts && !part.compactions.is_empty() { Self::Compaction } else { Self::Main }
    }

    pub(super) fn steps(self, part: &ServerPart) -> &[ScriptStep] {
        match self {
            Self::Main => &part.steps,
            Self::Compaction => &part.compactions,
        }
    }
}

/// The header that names the purpose of a request.
const SOURCE: &str = "x-outlast-source";

/// The progress of one script.
#[derive(Debug, Default)]
pub(super) struct ScriptPosition {
    /// The number of times that each step remains to be played.
    left: Vec<u32>,
    /// The number of times that each step was played.
    played: Vec<u32>,
    pub(super) last_word: LastWord,
    pub(super) refusal: LastRefusal,
}

impl ScriptPosition {
    fn new(steps: &[ScriptStep]) -> Self {
        let left: Vec<_> = steps.iter().map(|step| step.repeat).collect();
        Self { played: vec![0; left.len()], left, ..Self::default() }
    }

    fn mark_played(&mut self, at: usize) {
        self.left[at] = self.left[at].saturating_sub(1);
        self.played[at] += 1;
    }

    /// Takes the step that answers a request.
    fn next(
        &mut self,
        steps: &[ScriptStep],
        after: AfterLast,
        request: &RequestTraits<'_>,
    ) -> Option<usize> {
        let fits = |step: &ScriptStep| at_accept(step).is_none() && request.fits(&step.when);
        let find = |left: &[u32]| (0..steps.len()).find(|at| left[*at] > 0 && fits(&steps[*at]));
        let next = match (find(&self.left), after) {
            (Some(next), _) => next,
            (None, AfterLast::Fail) => return None,
            (None, AfterLast::RepeatLast) => steps.iter().rposition(fits)?,
            (None, AfterLast::Loop) => {
                self.left = steps.iter().map(|step| step.repeat).collect();
                find(&self.left)?
            }
        };
        self.mark_played(next);
        Some(next)
    }

    /// The step that would answer a request now.
    fn peek(
        &self,
        steps: &[ScriptStep],
        after: AfterLast,
        request: &RequestTraits<'_>,
    ) -> Option<usize> {
        let fits = |at: &usize| request.fits_model(&steps[*at].when);
        let next = (0..steps.len()).filter(fits).find(|at| self.left[*at] > 0);
        next.or_else(|| match after {
            AfterLast::Fail => None,
            AfterLast::RepeatLast => (0..steps.len()).rfind(fits),
            AfterLast::Loop => (0..steps.len()).find(fits),
        })
    }

    fn unrequested_answers(&self, steps: &[ScriptStep]) -> usize {
        let missing = |(step, played): (&ScriptStep, &u32)| step.repeat.saturating_sub(*played);
        steps.iter().zip(&self.played).map(missing).map(|count| count as usize).sum()
    }
}

impl ScriptState {
    pub(super) fn new(part: &ServerPart) -> Self {
        Self {
            steps: ScriptPosition::new(&part.steps),
            compactions: ScriptPosition::new(&part.compactions),
            ..Self::default()
        }
    }

    pub(super) fn track(&mut self, line: ScriptLine) -> &mut ScriptPosition {
        match line {
            ScriptLine::Main => &mut self.steps,
            ScriptLine::Compaction => &mut self.compactions,
        }
    }

    /// The fault for the next connection, if the next step is one.
    pub(super) fn fault_at_accept(&mut self, part: &ServerPart) -> Option<ScriptedFault> {
        let next = match (self.steps.left.iter().position(|left| *left > 0), part.after) {
            (Some(next), _) => next,
            (None, AfterLast::RepeatLast) => part.steps.len().checked_sub(1)?,
            (None, AfterLast::Loop) => 0,
            (None, AfterLast::Fail) => return None,
        };
        let fault = at_accept(part.steps.get(next)?)?.clone();
        self.steps.mark_played(next);
        Some(fault)
    }

    /// Takes the step that answers a request.
    pub(super) fn next(
        &mut self,
        part: &ServerPart,
        line: ScriptLine,
        request: &RequestTraits<'_>,
    ) -> Option<usize> {
        let after = match line {
            ScriptLine::Compaction if part.compactions_vary => AfterLast::RepeatLast,
            ScriptLine::Main | ScriptLine::Compaction => part.after,
        };
        self.track(line).next(line.steps(part), after, request)
    }

    /// The refusal that answers a capacity probe: that of the next request, if any.
    pub(super) fn probe_refusal(
        &mut self,
        part: &ServerPart,
        request: &RequestTraits<'_>,
    ) -> Option<ScriptStep> {
        self.probes += 1;
        let step = &part.steps[self.steps.peek(&part.steps, part.after, request)?];
        match &step.answer {
            StepAnswer::Http(http) if http.status >= 400 => Some(step.clone()),
            StepAnswer::Http(_) | StepAnswer::Reply(_) | StepAnswer::Raw(_) => None,
        }
    }

    /// The number of scripted answers that were not requested.
    pub(super) fn unrequested_answers(&self, part: &ServerPart) -> usize {
        let compactions = self.compactions.unrequested_answers(&part.compactions);
        let compactions = if part.compactions_vary { 0 } else { compactions };
        self.steps.unrequested_answers(&part.steps) + compactions
    }

    /// Counts a request's tokens, split as by the prompt cache. The output is the output cap.
    pub(super) fn count(&mut self, part: &ServerPart, body: &Value, raw: &[u8]) -> Tokens {
        let all = match part.rules.token_limit {
            Some(_) => count(body),
            None => tokens(raw.len()),
        };
        let output = body["max_tokens"].as_u64().unwrap_or(u64::MAX);
        let model = body["model"].as_str().unwrap_or_default();
        let mut prefix = Vec::new();
        let mut breakpoints = 0;
        for field in ["tools", "system", "messages"] {
            breakpoints += write_prefix(&body[field], &mut prefix);
        }
        if breakpoints == 0 {
            return Tokens { input: all, output, ..Tokens::default() };
        }
        let before = self.cached.insert(model.to_owned(), prefix.clone()).unwrap_or_default();
        let shared = before.iter().zip(&prefix).take_while(|(old, new)| old == new).count();
        // With a token limit, the count is split in proportion.
        let (read, cacheable) = match part.rules.token_limit {
            Some(_) => (all * shared as u64 / prefix.len().max(1) as u64, all.saturating_sub(1)),
            None => (tokens(shared), tokens(prefix.len())),
        };
        let cache_read = if read < CACHE_MIN { 0 } else { read.min(cacheable) };
        let cache_creation = if cacheable < CACHE_MIN { 0 } else { cacheable - cache_read };
        Tokens {
            input: all.saturating_sub(cache_read + cache_creation).max(1),
            output,
            cache_creation,
            cache_read,
        }
    }
}

/// Minimum size of a cached prompt, in tokens.
const CACHE_MIN: u64 = 1_024;

fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

/// Writes a value without its cache breakpoints, and returns their number.
fn write_prefix(value: &Value, out: &mut Vec<u8>) -> usize {
    match value {
        Value::Object(fields) => {
            let mut breakpoints = 0;
            for (key, field) in fields {
                if key == "cache_control" {
                    breakpoints += 1;
                } else {
                    out.extend_from_slice(key.as_bytes());
                    breakpoints += write_prefix(field, out);
                }
            }
            breakpoints
        }
        Value::Array(items) => items.iter().map(|item| write_prefix(item, out)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.extend_from_slice(value.to_string().as_bytes());
            0
        }
    }
}

fn at_accept(step: &ScriptStep) -> Option<&ScriptedFault> {
    step.fault.as_ref().filter(|fault| fault.after == FaultPosition::Accept)
}

/// The parts of a request that steps can select by.
pub(super) struct RequestTraits<'a> {
    pub(super) request: &'a RecordedRequest,
    pub(super) body: &'a Value,
}

impl RequestTraits<'_> {
    fn fits_model(&self, when: &StepCondition) -> bool {
        let model = self.body["model"].as_str().unwrap_or_default();
        when.model.as_deref().is_none_or(|wanted| matches_pattern(wanted, model))
    }

    /// True if a request is a capacity probe.
    pub(super) fn is_probe(request: &RecordedRequest) -> bool {
        request.header(SOURCE) == Some("probe")
    }

    fn fits(&self, when: &StepCondition) -> bool {
        let source = self.request.header(SOURCE).unwrap_or_default();
        let within = |wanted: &str, value: &Value| strings(value).any(|text| text.contains(wanted));
        let streams = self.body["stream"].as_bool().unwrap_or(false);
        let fast = self.body["speed"] == "fast";
        let text = || String::from_utf8_lossy(&self.request.body);
        self.fits_model(when)
            && when.stream.is_none_or(|wanted| wanted == streams)
            && when.fast.is_none_or(|wanted| wanted == fast)
            && when.source.as_deref().is_none_or(|wanted| matches_pattern(wanted, source))
            && when.system.as_deref().is_none_or(|wanted| within(wanted, &self.body["system"]))
            && when.prompt.as_deref().is_none_or(|wanted| within(wanted, &self.body["messages"][0]))
            && when.contains.as_deref().is_none_or(|wanted| text().contains(wanted))
    }
}

fn matches_pattern(wanted: &str, found: &str) -> bool {
    wanted.strip_suffix('*').map_or(found == wanted, |start| found.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::ScriptedReply;

    /// Summaries are requested less often than in the script, or more often.
    #[test]
    fn compactions_that_vary_may_be_left_over_and_are_repeated() {
        let step = || ScriptStep::new(StepAnswer::Reply(ScriptedReply::default()));
        let request = RecordedRequest {
            method: "POST".to_owned(),
            path: "/v1/messages".to_owned(),
            headers: vec![(SOURCE.to_owned(), "compact".to_owned())],
            body: Vec::new(),
            keep_alive: true,
        };
        let traits = RequestTraits { request: &request, body: &Value::Null };
        for (compactions_vary, left_over, third) in [(true, 0, Some(1)), (false, 2, None)] {
            let compactions = vec![step(), step()];
            let part = ServerPart { compactions, compactions_vary, ..ServerPart::default() };
            let mut script = ScriptState::new(&part);
            assert_eq!(script.unrequested_answers(&part), left_over);
            let line = ScriptLine::of(&part, &request);
            let played = [0; 3].map(|_| script.next(&part, line, &traits));
            assert_eq!(played, [Some(0), Some(1), third]);
        }
    }
}
