//! Whose turn it is, and what has been asked so far.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::referee::LastWord;
use super::scenario::{After, Fault, Place, Scenario, Step, When};
use super::sse::Tokens;

/// A request for a model's reply, as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Since the server's start, in the world's time.
    pub at: Duration,
    /// With the query.
    pub path: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// `null` when the body is not JSON.
    pub body: Value,
    /// The body, byte for byte.
    pub raw: Arc<[u8]>,
    /// Counted from 1. Requests with the same id came over the same connection.
    pub connection_id: usize,
    /// The step that answered it, counted from 0. `None` when a rule did.
    pub step: Option<usize>,
    /// Whether the client left before the answer was whole.
    pub aborted_by_client: bool,
}

impl Recorded {
    /// The value of the first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The model asked for, or nothing.
    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }
}

/// What has happened on the stage.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// How often each step is still to be played.
    left: Vec<u32>,
    /// How often each step was played.
    played: Vec<u32>,
    pub(super) recorded: Vec<Recorded>,
    pub(super) violations: Vec<String>,
    pub(super) accepted: usize,
    pub(super) last_word: LastWord,
    /// The body that was answered with a 400 just before.
    refused: Option<Value>,
    /// What each model was last asked, as far as it is cached.
    cached: BTreeMap<String, Vec<u8>>,
}

impl Script {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let left: Vec<_> = scenario.steps.iter().map(|step| step.repeat).collect();
        Self { played: vec![0; left.len()], left, ..Self::default() }
    }

    /// The fault that awaits the next connection, if the next step is one.
    pub(super) fn fault_at_accept(&mut self, scenario: &Scenario) -> Option<Fault> {
        let next = match (self.left.iter().position(|left| *left > 0), scenario.after) {
            (Some(next), _) => next,
            (None, After::RepeatLast) => scenario.steps.len().checked_sub(1)?,
            (None, After::Loop) => 0,
            (None, After::Fail) => return None,
        };
        let fault = at_accept(scenario.steps.get(next)?)?.clone();
        self.played[next] += 1;
        self.left[next] = self.left[next].saturating_sub(1);
        Some(fault)
    }

    /// Takes the step that answers a request.
    pub(super) fn next(&mut self, scenario: &Scenario, body: &Value, raw: &[u8]) -> Option<usize> {
        let fits = |step: &Step| at_accept(step).is_none() && matches(&step.when, body, raw);
        let steps = &scenario.steps;
        let find = |left: &[u32]| (0..steps.len()).find(|at| left[*at] > 0 && fits(&steps[*at]));
        let next = match (find(&self.left), scenario.after) {
            (Some(next), _) => next,
            (None, After::Fail) => return None,
            (None, After::RepeatLast) => steps.iter().rposition(fits)?,
            (None, After::Loop) => {
                self.left = steps.iter().map(|step| step.repeat).collect();
                find(&self.left)?
            }
        };
        self.left[next] = self.left[next].saturating_sub(1);
        self.played[next] += 1;
        Some(next)
    }

    /// How many answers were never asked for.
    pub(super) fn unplayed(&self, scenario: &Scenario) -> usize {
        let missing = |(step, played): (&Step, &u32)| step.repeat.saturating_sub(*played);
        scenario.steps.iter().zip(&self.played).map(missing).map(|count| count as usize).sum()
    }

    /// Notes that `body` was answered with a 400 that no header invites to repeat.
    pub(super) fn note_refusal(&mut self, body: &Value) {
        self.refused = Some(body.clone());
    }

    /// Notes that a request was not answered with a 400.
    pub(super) fn forget_refusal(&mut self) {
        self.refused = None;
    }

    /// Whether the same body was refused just before.
    pub(super) fn was_refused(&self, body: &Value) -> bool {
        self.refused.as_ref() == Some(body)
    }

    /// What a request counts for: its tokens, split as the prompt cache would split them. The
    /// output is the cap.
    pub(super) fn count(&mut self, body: &Value, raw: &[u8]) -> Tokens {
        let all = tokens(raw.len());
        let output = body["max_tokens"].as_u64().unwrap_or(u64::MAX);
        let model = body["model"].as_str().unwrap_or_default();
        let mut prefix = Vec::new();
        let mut breakpoints = 0;
        for part in ["tools", "system", "messages"] {
            breakpoints += write_prefix(&body[part], &mut prefix);
        }
        if breakpoints == 0 {
            return Tokens { input: all, output, ..Tokens::default() };
        }
        let before = self.cached.insert(model.to_owned(), prefix.clone()).unwrap_or_default();
        let shared = before.iter().zip(&prefix).take_while(|(old, new)| old == new).count();
        let (read, cacheable) = (tokens(shared), tokens(prefix.len()));
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

/// Prompts shorter than this are not cached, in tokens.
const CACHE_MIN: u64 = 1_024;

fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

/// Writes a value without its cache breakpoints, and counts them.
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

fn at_accept(step: &Step) -> Option<&Fault> {
    step.fault.as_ref().filter(|fault| fault.after == Place::Accept)
}

fn matches(when: &When, body: &Value, raw: &[u8]) -> bool {
    let model = body["model"].as_str().unwrap_or_default();
    let fits_model = when.model.as_deref().is_none_or(|wanted| match wanted.strip_suffix('*') {
        Some(start) => model.starts_with(start),
        None => model == wanted,
    });
    let streams = body["stream"].as_bool().unwrap_or(false);
    let contains = |text: &String| String::from_utf8_lossy(raw).contains(text.as_str());
    fits_model
        && when.stream.is_none_or(|wanted| wanted == streams)
        && when.contains.as_ref().is_none_or(contains)
}
