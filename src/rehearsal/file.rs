//! Scenario files: TOML, read strictly. Whatever is wrong is named with file, line and column.
//!
//! ```toml
//! name = "mine"
//! summary = "An overload, a torn stream, and a tool call"
//! prompt = "What the agent is asked to do."
//! args = ["--max-turns", "5"]
//! time_scale = 20                      # 20 s of the script pass in one second
//! after = "fail"                       # or "repeat last", or "loop"
//!
//! [files]
//! "run.sh" = { content = "exit 0\n", mode = 0o755 }
//!
//! [[step]]                             # each step answers one request, or `repeat` of them
//! status = 529
//! headers = { retry-after = "12" }
//!
//! [[step]]                             # kinds: reset close end stall pings error insert
//! fault = { kind = "reset", after = { events = 3 } }
//!
//! [[step]]
//! text = "I run it."
//! [[step.tool]]
//! name = "Bash"
//! input = { command = "sh ${cwd}/run.sh" }
//!
//! [[step]]
//! text = "Done."
//!
//! [expect]
//! exit = 0
//! requests = 4
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::render;
use super::scenario::{
    After, Answer, ApiError, Expect, Fault, Form, Harm, Http, Pace, Place, Reply, Rules, Scenario,
    ScratchFile, Step, Tool, Usage, When,
};

/// Why a scenario file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("cannot read scenario {file}: {source}")]
    Unreadable { file: String, source: std::io::Error },
    #[error("{file}:{line}:{column}: {message}")]
    Wrong { file: String, line: usize, column: usize, message: String },
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// The file cannot be read, or says something that a scenario cannot say.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let file = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &file),
            Err(source) => Err(ScenarioError::Unreadable { file, source }),
        }
    }

    /// Reads a scenario. `file` is what errors call it.
    ///
    /// # Errors
    /// The text says something that a scenario cannot say.
    pub fn parse(text: &str, file: &str) -> Result<Self, ScenarioError> {
        let wrong = |offset: usize, message: String| {
            let before = text.get(..offset).unwrap_or(text);
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            ScenarioError::Wrong {
                file: file.to_owned(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message,
            }
        };
        let sheet: Sheet = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            wrong(offset, error.message().replace('\n', " ").trim().to_owned())
        })?;
        sheet.into_scenario().map_err(|(offset, message)| wrong(offset, message))
    }
}

/// A complaint and where in the text it belongs.
type Complaint = (usize, String);

/// A scenario as a file words it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sheet {
    name: String,
    summary: String,
    #[serde(default)]
    prompt: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    time_scale: Option<Spanned<f64>>,
    #[serde(default)]
    files: BTreeMap<Spanned<String>, ScratchFile>,
    #[serde(default)]
    rules: Rules,
    #[serde(default)]
    step: Vec<Spanned<StepSheet>>,
    #[serde(default)]
    after: After,
    #[serde(default)]
    expect: Expect,
}

impl Sheet {
    fn into_scenario(self) -> Result<Scenario, Complaint> {
        let time_scale = match self.time_scale {
            None => 1.0,
            Some(scale) if scale.get_ref().is_finite() && *scale.get_ref() > 0.0 => {
                scale.into_inner()
            }
            Some(scale) => {
                return Err((scale.span().start, "`time_scale` must be above zero".to_owned()));
            }
        };
        let mut files = BTreeMap::new();
        for (path, file) in self.files {
            if !stays_inside(path.get_ref()) {
                let message = format!("`{}` does not lie below the scratch folder", path.get_ref());
                return Err((path.span().start, message));
            }
            files.insert(path.into_inner(), file);
        }
        let mut steps = Vec::new();
        for step in self.step {
            let offset = step.span().start;
            steps.push(step.into_inner().into_step().map_err(|message| (offset, message))?);
        }
        if steps.is_empty() && self.rules.require_key.is_none() {
            return Err((0, "a scenario needs at least one `[[step]]`".to_owned()));
        }
        Ok(Scenario {
            name: self.name,
            summary: self.summary,
            prompt: self.prompt,
            args: self.args,
            env: self.env,
            time_scale,
            files,
            rules: self.rules,
            steps,
            after: self.after,
            expect: self.expect,
        })
    }
}

/// Whether a path stays below the folder it is joined to.
fn stays_inside(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// A step as a file words it: every key of every kind of answer.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StepSheet {
    when: When,
    repeat: Option<u32>,
    delay: Span,
    // A reply.
    text: Option<String>,
    thinking: Option<String>,
    tool: Vec<Tool>,
    empty: bool,
    stop_reason: Option<String>,
    usage: Option<Usage>,
    form: Option<Form>,
    // Anything else over HTTP.
    status: Option<u16>,
    error: Option<ApiError>,
    body: Option<String>,
    content_type: Option<String>,
    content_length: Option<usize>,
    // Not even HTTP.
    raw: Option<String>,

    headers: BTreeMap<String, String>,
    chunk: Option<usize>,
    pause: Span,
    fault: Option<FaultSheet>,
    hangs_up: bool,
}

impl StepSheet {
    fn into_step(mut self) -> Result<Step, String> {
        let repeat = self.repeat.unwrap_or(1);
        if repeat == 0 {
            return Err("`repeat` must be at least 1".to_owned());
        }
        if self.chunk == Some(0) {
            return Err("`chunk` must be at least 1".to_owned());
        }
        let answer = self.take_answer()?;
        let fault = self.fault.map(FaultSheet::into_fault).transpose()?;
        Ok(Step {
            when: self.when,
            repeat,
            delay: self.delay.0,
            answer,
            headers: self.headers.into_iter().collect(),
            pace: Pace { chunk: self.chunk, pause: self.pause.0 },
            fault,
            hangs_up: self.hangs_up,
        })
    }

    fn take_answer(&mut self) -> Result<Answer, String> {
        let has_content = self.text.is_some() || self.thinking.is_some() || !self.tool.is_empty();
        let describes_reply =
            self.stop_reason.is_some() || self.usage.is_some() || self.form.is_some();
        let replies = has_content || self.empty || describes_reply;
        let refuses = self.status.is_some()
            || self.error.is_some()
            || self.body.is_some()
            || self.content_type.is_some()
            || self.content_length.is_some();
        match (replies, refuses, self.raw.take()) {
            (true, false, None) if self.empty && has_content => {
                Err("`empty = true` leaves no room for content".to_owned())
            }
            (true, false, None) if !self.empty && !has_content => {
                Err("a reply needs `text`, `thinking` or `tool`, or `empty = true`".to_owned())
            }
            (true, false, None) => Ok(Answer::Reply(Reply {
                thinking: self.thinking.take(),
                text: self.text.take(),
                tools: std::mem::take(&mut self.tool),
                stop_reason: self.stop_reason.take(),
                usage: self.usage.unwrap_or_default(),
                form: self.form.unwrap_or_default(),
            })),
            (false, true, None) => self.take_http().map(Answer::Http),
            (false, false, Some(_)) if self.fault.is_some() || !self.headers.is_empty() => {
                Err("`raw` is all that is sent: it has no `fault` and no `headers`".to_owned())
            }
            (false, false, Some(raw)) => Ok(Answer::Raw(raw.into_bytes())),
            (false, false, None) if self.fault.is_some() => Ok(Answer::Reply(Reply::doomed())),
            (false, false, None) => Err("a step needs an answer: `text`, `thinking`, `tool`, \
                 `empty = true`, `status`, `body`, `raw` or `fault`"
                .to_owned()),
            (_, _, _) => Err("a step is one answer: a reply (`text`, `thinking`, `tool`, \
                 `stop_reason`, `usage`, `form`), or `status` and what belongs to it, or `raw`"
                .to_owned()),
        }
    }

    fn take_http(&mut self) -> Result<Http, String> {
        let status = self.status.unwrap_or(200);
        if !(200..600).contains(&status) {
            return Err(format!("{status} is not the status of an answer"));
        }
        if self.error.is_some() && self.body.is_some() {
            return Err("`error` and `body` are two ways to say one thing".to_owned());
        }
        let mut http = render::refusal(status, self.error.as_ref());
        if let Some(body) = self.body.take() {
            http.body = body;
        }
        if let Some(content_type) = self.content_type.take() {
            http.content_type = content_type;
        }
        http.content_length = self.content_length;
        Ok(http)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultSheet {
    kind: Kind,
    after: Place,
    hold: Option<Span>,
    every: Option<Span>,
    error: Option<ApiError>,
    bytes: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Reset,
    Close,
    End,
    Stall,
    Pings,
    Error,
    Insert,
}

impl FaultSheet {
    fn into_fault(self) -> Result<Fault, String> {
        let belongs = |given: bool, key: &str, kinds: &[Kind], names: &str| {
            let fits = !given || kinds.contains(&self.kind);
            if fits { Ok(()) } else { Err(format!("`{key}` belongs to a fault of kind {names}")) }
        };
        let holding = &[Kind::Stall, Kind::Pings];
        belongs(self.hold.is_some(), "hold", holding, "`stall` or `pings`")?;
        belongs(self.every.is_some(), "every", &[Kind::Pings], "`pings`")?;
        belongs(self.error.is_some(), "error", &[Kind::Error], "`error`")?;
        belongs(self.bytes.is_some(), "bytes", &[Kind::Insert], "`insert`")?;
        let (begun, speaks) = match self.after {
            Place::Accept | Place::Request => (false, self.after == Place::Request),
            Place::HalfHead => (false, false),
            Place::Headers | Place::Events(_) | Place::Bytes(_) | Place::Delta => (true, true),
        };
        let harm = match self.kind {
            Kind::Reset => Harm::Reset,
            Kind::Close => Harm::Close,
            Kind::Stall => Harm::Stall,
            Kind::End | Kind::Pings | Kind::Error if !begun => {
                return Err("this fault can only come after `headers`, or later".to_owned());
            }
            Kind::Insert if !speaks => {
                return Err(
                    "this fault can only come after `request`, `headers` or later".to_owned()
                );
            }
            Kind::End => Harm::End,
            Kind::Pings => {
                Harm::Pings { every: self.every.unwrap_or(Span(Duration::from_secs(15))).0 }
            }
            Kind::Error => Harm::Error(self.error.unwrap_or_else(render::overloaded)),
            Kind::Insert => Harm::Insert(
                self.bytes.ok_or("a fault of kind `insert` needs `bytes`")?.into_bytes(),
            ),
        };
        Ok(Fault { harm, after: self.after, hold: self.hold.map_or(Fault::HOLD, |hold| hold.0) })
    }
}

/// A time span in a file: `"1m 30s"`.
#[derive(Clone, Copy, Default)]
struct Span(Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        humantime::parse_duration(&text)
            .map(Self)
            .map_err(|error| D::Error::custom(format!("`{text}` is no time span: {error}")))
    }
}
