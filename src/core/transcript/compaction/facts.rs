//! Collects facts from the tool calls, without a model: to-dos, files, failures.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::Message;
use super::super::excerpt::{excerpt, excerpt_line};
use super::super::tool_exchanges::{ToolExchange, tool_exchanges};
use super::CutPoint;

/// Maximum number of files that are restored after a compaction. A model works with a few files at
/// a time; more would refill the window.
pub const RESTORED_FILES: usize = 5;

/// Limits of the facts, so that repeated compactions cannot grow them: files and failures by count,
/// texts in bytes. Longer paths are invalid on Linux.
const FILES_MAX: usize = 60;
const FAILURES_MAX: usize = 4;
const FAILURE_MAX: usize = 500;
const TODO_MAX: usize = 2_000;
const PATH_MAX: usize = 4_096;

/// Facts about the work so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct WorkFacts {
    /// Open to-dos in the model's order.
    pub(super) open_todos: Vec<TodoFact>,
    /// The most recently used file is last.
    pub(super) files: Vec<FileFact>,
    /// The latest failure is last.
    pub(super) last_failures: Vec<FailedCall>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TodoFact {
    content: String,
    status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileFact {
    path: String,
    state: FileState,
}

/// The use of a file. Reading a file does not reset an earlier change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileState {
    Read,
    Edited,
    Written,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FailedCall {
    call: String,
    error: String,
}

impl WorkFacts {
    pub(super) fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Returns the facts as JSON; `None` if there are none.
    pub(super) fn to_json(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        serde_json::to_string_pretty(self).ok()
    }

    /// Adds the facts of `older`. To-dos that are rewritten in `kept` are dropped.
    pub(super) fn with_facts_of(mut self, older: &[Message], kept: &[Message]) -> Self {
        for exchange in tool_exchanges(older) {
            if exchange.is_error {
                self.add_failure(&exchange);
            } else if let Some(todos) = todos(&exchange) {
                self.open_todos = todos;
            } else if let Some((path, state)) = file_of_call(&exchange) {
                self.add_file(path, state);
            }
        }
        if tool_exchanges(kept).any(|exchange| !exchange.is_error && todos(&exchange).is_some()) {
            self.open_todos.clear();
        }
        self
    }

    fn add_failure(&mut self, exchange: &ToolExchange<'_>) {
        let error = excerpt(exchange.text().trim(), FAILURE_MAX);
        self.last_failures.push(FailedCall { call: exchange.call_label(), error });
        let surplus = self.last_failures.len().saturating_sub(FAILURES_MAX);
        self.last_failures.drain(..surplus);
    }

    fn add_file(&mut self, path: &str, state: FileState) {
        let before = self.files.iter().position(|file| file.path == path);
        let before = before.map(|at| self.files.remove(at).state);
        let state = match before {
            Some(before) if state == FileState::Read => before,
            Some(_) | None => state,
        };
        self.files.push(FileFact { path: path.to_owned(), state });
        if self.files.len() > FILES_MAX {
            // Drop files that were only read before changed ones, which the model should know
            // about.
            let read = self.files.iter().position(|file| file.state == FileState::Read);
            self.files.remove(read.unwrap_or(0));
        }
    }

    /// Drops the least important facts until the rest takes at most `limit` bytes. Open to-dos
    /// stay.
    pub(super) fn shrink_to(mut self, limit: usize) -> Self {
        while self.to_json().is_some_and(|text| text.len() > limit) {
            let read = self.files.iter().position(|file| file.state == FileState::Read);
            if let Some(at) = read {
                self.files.remove(at);
            } else if !self.last_failures.is_empty() {
                self.last_failures.remove(0);
            } else if !self.files.is_empty() {
                self.files.remove(0);
            } else {
                break;
            }
        }
        self
    }
}

fn todos(exchange: &ToolExchange<'_>) -> Option<Vec<TodoFact>> {
    if exchange.name != "TodoWrite" {
        return None;
    }
    let items = exchange.input.get("todos")?.as_array()?;
    let field = |item: &Value, name| item.get(name).and_then(Value::as_str).map(str::to_owned);
    let todo = |item: &Value| {
        let content = excerpt(&field(item, "content")?, TODO_MAX);
        let status = field(item, "status").unwrap_or_else(|| "pending".to_owned());
        (status != "completed").then(|| TodoFact { content, status: excerpt_line(&status, 40) })
    };
    Some(items.iter().filter_map(todo).collect())
}

fn file_of_call<'a>(exchange: &ToolExchange<'a>) -> Option<(&'a str, FileState)> {
    let (argument, state) = match exchange.name {
        "Read" => ("file_path", FileState::Read),
        "Write" => ("file_path", FileState::Written),
        "Edit" | "MultiEdit" => ("file_path", FileState::Edited),
        "NotebookEdit" => ("notebook_path", FileState::Edited),
        _ => return None,
    };
    let path = exchange.input.get(argument)?.as_str()?;
    (1..=PATH_MAX).contains(&path.len()).then_some((path, state))
}

/// A file whose content a compaction removes, and the part of it that the model saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFile {
    /// The path as the model gave it.
    pub path: String,
    /// The first line, from the call. `None` for the beginning.
    pub offset: Option<u64>,
    /// The number of lines. `None` for the tool's default.
    pub limit: Option<u64>,
}

/// The files most recently read or changed before the cut that the kept part does not show, the
/// latest first: at most [`RESTORED_FILES`].
pub fn recently_read(messages: &[Message], cut: &CutPoint) -> Vec<ReadFile> {
    let succeeded = |exchange: &ToolExchange<'_>| !exchange.is_error;
    let kept = || tool_exchanges(cut.kept(messages)).filter(succeeded);
    // An edit shows only what it changed.
    let is_shown = |path: &str| {
        kept().filter_map(|exchange| file_of_call(&exchange)).any(|(shown, state)| {
            shown == path && matches!(state, FileState::Read | FileState::Written)
        })
    };
    let mut readings: Vec<ReadFile> = Vec::new();
    let older: Vec<ToolExchange<'_>> =
        tool_exchanges(cut.older(messages)).filter(succeeded).collect();
    for exchange in older.iter().rev() {
        let Some((path, state)) = file_of_call(exchange) else { continue };
        if readings.len() == RESTORED_FILES {
            break;
        }
        if readings.iter().any(|known| known.path == path) || is_shown(path) {
            continue;
        }
        let line = |name| match state {
            FileState::Read => exchange.input.get(name).and_then(Value::as_u64),
            FileState::Edited | FileState::Written => None,
        };
        let (offset, limit) = (line("offset"), line("limit"));
        readings.push(ReadFile { path: path.to_owned(), offset, limit });
    }
    readings
}
