//! The results of a session: answer, changed files, refused calls and failed command.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::history::{
    FailedCheck, HistoryEvent, HistoryItem, MessageAuthor, SessionHistory, ToolRun, ToolRunState,
};
use crate::journal::ToolDetail;
use crate::text::{last_lines, words_joined};
use crate::tools::{DiffHunk, diff_lines, parse_patch, refusal_reason};
use crate::transcript::summarize_call;

/// Maximum number of diff lines in a report, for each file.
const DIFF_LINES_MAX: usize = 400;

/// Maximum number of refused calls in a report.
const REFUSED_MAX: usize = 50;

/// Maximum lengths of the reason of a refused call, and of the output of a failed command.
const REASON_CHARS: usize = 300;
const OUTPUT_LINES: usize = 20;
const OUTPUT_CHARS: usize = 4000;

/// The results of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkDone {
    pub answer: Option<Answer>,
    /// Files that the file tools changed, sub-agents included, in the order of their first change.
    pub files: Vec<ChangedFile>,
    /// Number of commands that ran and may have changed files, sub-agents included. Their changes
    /// are not in `files`.
    pub writing_commands: usize,
    /// Calls that were denied, invalid or cancelled.
    pub refused: Vec<RefusedCall>,
    pub failed: Option<FailedCommand>,
}

/// The last message of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Markdown, as models write it.
    Text(String),
    /// JSON that matches the requested schema.
    Structured(String),
}

impl Answer {
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Structured(text) => text,
        }
    }
}

/// A file that was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangedFile {
    /// Relative to the working directory if it is below that.
    pub path: String,
    pub is_new: bool,
    #[serde(rename = "lines_added")]
    pub added: usize,
    #[serde(rename = "lines_removed")]
    pub removed: usize,
    /// The recorded changes, in chronological order.
    #[serde(skip)]
    pub hunks: Vec<DiffHunk>,
    /// True if `hunks` was cut off at the maximum length.
    #[serde(skip)]
    pub is_cut: bool,
}

/// A call that was not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedCall {
    pub call: String,
    pub reason: String,
}

/// A command that failed, with the end of its output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedCommand {
    pub command: String,
    /// The end of the command as a predicate, such as "ended with exit code 2".
    pub end: String,
    pub output: String,
    /// True if it is the command of `--require`.
    pub is_requirement: bool,
}

impl WorkDone {
    /// Collects the results of a session. `is_failure`: the session ended without success.
    pub(super) fn of(history: &SessionHistory, is_failure: bool) -> Self {
        let agents = history.agents.iter().map(|agent| &agent.history);
        let tools = [history].into_iter().chain(agents).flat_map(SessionHistory::tools);
        let mut files: Vec<ChangedFile> = Vec::new();
        let mut writing_commands = 0;
        for tool in tools {
            if tool.state == ToolRunState::Succeeded {
                add_change(&mut files, history, tool);
            }
            writing_commands += usize::from(is_writing_command(tool));
        }
        let not_run = history.tools().filter(|tool| tool.state == ToolRunState::NotRun);
        Self {
            answer: answer(history),
            files,
            writing_commands,
            refused: not_run.take(REFUSED_MAX).map(refused).collect(),
            failed: failed(history, is_failure),
        }
    }
}

/// Returns the answer to the last prompt as the result of the run has it. If none is recorded, as
/// in a session of another program or after a kill, returns the last text of the model.
fn answer(history: &SessionHistory) -> Option<Answer> {
    if let Some((output, _)) = history.recorded.structured() {
        return Some(Answer::Structured(serde_json::to_string_pretty(output).unwrap_or_default()));
    }
    let recorded = history.recorded.answer();
    let text = if recorded.trim().is_empty() { last_text(history)? } else { recorded };
    Some(Answer::Text(text.trim().to_owned()))
}

/// Returns the last text of the model since the last prompt.
fn last_text(history: &SessionHistory) -> Option<String> {
    let is_prompt = |item: &HistoryItem| {
        let HistoryEvent::Message(message) = &item.event else { return false };
        message.author == MessageAuthor::User
    };
    let since = history.items.iter().rposition(is_prompt);
    let turns = history.items.iter().skip(since.unwrap_or(0)).filter_map(HistoryItem::turn);
    let mut texts = turns.map(|turn| turn.texts().collect::<Vec<_>>().join("\n\n"));
    texts.rfind(|text| !text.trim().is_empty())
}

fn add_change(files: &mut Vec<ChangedFile>, history: &SessionHistory, tool: &ToolRun) {
    let Some((path, is_new, hunks)) = change(tool) else { return };
    let base = history.project.as_deref();
    let below = base.and_then(|base| Path::new(&path).strip_prefix(base).ok());
    let path = below.map_or_else(|| path.clone(), |below| below.display().to_string());
    let index = files.iter().position(|file| file.path == path).unwrap_or_else(|| {
        files.push(ChangedFile { path, is_new, ..ChangedFile::default() });
        files.len() - 1
    });
    let file = &mut files[index];
    for hunk in hunks {
        let (added, removed) = hunk.counts();
        (file.added, file.removed) = (file.added + added, file.removed + removed);
        let lines: usize = file.hunks.iter().map(|hunk| hunk.lines.len()).sum();
        let left = DIFF_LINES_MAX.saturating_sub(lines);
        file.is_cut |= hunk.lines.len() > left;
        if left > 0 {
            let lines = hunk.lines.into_iter().take(left).collect();
            file.hunks.push(DiffHunk { lines, ..hunk });
        }
    }
}

/// Returns the path of the file that a call changed, true if the file was new, and the changes.
fn change(tool: &ToolRun) -> Option<(String, bool, Vec<DiffHunk>)> {
    let unknown = ToolDetail::default();
    let detail = tool.detail.as_ref().unwrap_or(&unknown);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let input = &tool.input;
    let path = detail.file_path.as_str().map(str::to_owned);
    let path = path.unwrap_or_else(|| text(&input["file_path"]));
    match tool.name.as_str() {
        "Write" => {
            let is_new = detail.kind != "update";
            let mut hunks = parse_patch(&detail.structured_patch);
            if hunks.is_empty() && is_new {
                hunks = diff_lines("", &text(&input["content"]));
            }
            Some((path, is_new, hunks))
        }
        "Edit" => {
            let (old, new) = (text(&input["old_string"]), text(&input["new_string"]));
            let mut hunks = parse_patch(&detail.structured_patch);
            if hunks.is_empty() {
                let times = detail.replacements.as_u64().unwrap_or(1).min(1000);
                let times = usize::try_from(times).unwrap_or(1);
                hunks = std::iter::repeat_n(diff_lines(&old, &new), times).flatten().collect();
            }
            Some((path, old.is_empty(), hunks))
        }
        "NotebookEdit" => {
            let path = text(&input["notebook_path"]);
            Some((path, false, diff_lines("", &text(&input["new_source"]))))
        }
        _ => None,
    }
}

/// True if a call is a command that ran. A call without a recorded start is not counted.
fn is_writing_command(tool: &ToolRun) -> bool {
    let ran = match tool.state {
        ToolRunState::Succeeded
        | ToolRunState::Failed
        | ToolRunState::Running
        | ToolRunState::Unknown => true,
        ToolRunState::NotRun | ToolRunState::Pending => false,
    };
    tool.name == "Bash" && ran && tool.started.is_some()
}

fn refused(tool: &ToolRun) -> RefusedCall {
    let output = tool.output_text();
    let reason = words_joined(refusal_reason(&output));
    RefusedCall {
        call: summarize_call(&tool.name, &tool.input),
        reason: reason.chars().take(REASON_CHARS).collect(),
    }
}

/// Returns the last check of `--require` if it failed, and otherwise, if the session failed, its
/// last failed command.
fn failed(history: &SessionHistory, is_failure: bool) -> Option<FailedCommand> {
    let check = history.items.iter().rev().find_map(|item| {
        if let HistoryEvent::Requirement { failure, .. } = &item.event {
            Some(failure.as_deref())
        } else {
            None
        }
    });
    if let Some(FailedCheck { command, end, output }) = check.flatten().cloned() {
        return Some(FailedCommand { command, end, output, is_requirement: true });
    }
    let is_failed = |tool: &&ToolRun| tool.name == "Bash" && tool.state == ToolRunState::Failed;
    let last = history.tools().filter(is_failed).last().filter(|_| is_failure)?;
    let end = match (last.is_timed_out(), last.exit_code()) {
        (true, _) => "did not end in time".to_owned(),
        (false, Some(code)) => format!("ended with exit code {code}"),
        (false, None) => "failed".to_owned(),
    };
    Some(FailedCommand {
        command: last.input["command"].as_str().unwrap_or_default().to_owned(),
        end,
        output: last_lines(&last.output_text(), OUTPUT_LINES, OUTPUT_CHARS),
        is_requirement: false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::history::{RecordedMessage, TurnRecord};
    use crate::transcript::Block;

    fn tool(name: &str, input: Value, state: ToolRunState, detail: Value, output: &str) -> ToolRun {
        ToolRun {
            id: "t".to_owned(),
            name: name.to_owned(),
            input,
            is_changed: false,
            started: None,
            ended: None,
            state,
            output: vec![Block::text(output)],
            detail: serde_json::from_value(detail).ok(),
        }
    }

    fn history(texts: &[&str], tools: Vec<ToolRun>) -> SessionHistory {
        let content = texts.iter().map(|text| Block::text(*text)).collect();
        let turn = TurnRecord { number: 1, content, tools, ..TurnRecord::default() };
        let prompt = RecordedMessage { author: MessageAuthor::User, text: "Go.".into(), media: 0 };
        let items = [HistoryEvent::Message(prompt), HistoryEvent::Turn(Box::new(turn))];
        SessionHistory {
            project: Some("/work".into()),
            items: items.map(|event| HistoryItem { at: None, event }).into(),
            ..SessionHistory::default()
        }
    }

    #[test]
    fn changed_files_are_counted_by_path_with_their_lines() {
        let done = ToolRunState::Succeeded;
        let tools = vec![
            tool(
                "Write",
                json!({ "file_path": "/work/new.txt", "content": "a\nb\n" }),
                done,
                json!({ "type": "create", "filePath": "/work/new.txt" }),
                "",
            ),
            tool(
                "Edit",
                json!({ "file_path": "/work/new.txt", "old_string": "a", "new_string": "A" }),
                done,
                json!({ "filePath": "/work/new.txt", "replacements": 1 }),
                "",
            ),
            tool(
                "Edit",
                json!({ "file_path": "/etc/x", "old_string": "a", "new_string": "" }),
                ToolRunState::Failed,
                Value::Null,
                "",
            ),
        ];
        let work = WorkDone::of(&history(&["Done."], tools), false);
        let counts: Vec<_> = work
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.is_new, file.added, file.removed))
            .collect();
        assert_eq!(counts, [("new.txt", true, 3, 1)]);
        assert_eq!(work.answer, Some(Answer::Text("Done.".to_owned())));
        assert_eq!(work.failed, None);
    }

    #[test]
    fn commands_that_may_have_written_are_counted() {
        let command = |state, started| ToolRun {
            started,
            ..tool("Bash", json!({ "command": "make" }), state, Value::Null, "")
        };
        let now = Some(jiff::Timestamp::UNIX_EPOCH);
        let tools = vec![
            command(ToolRunState::Succeeded, now),
            command(ToolRunState::Failed, now),
            command(ToolRunState::Unknown, now),
            command(ToolRunState::NotRun, now),
            command(ToolRunState::Succeeded, None),
        ];
        let work = WorkDone::of(&history(&[], tools), false);
        assert_eq!((work.writing_commands, work.files.len()), (3, 0));
    }

    #[test]
    fn the_reason_of_a_refusal_is_that_for_users() {
        let received = "<tool_use_error>Bash needs permission\nThis run cannot ask for permission. \
                        Do not work around this: go on with what is allowed, and say at the end \
                        what was not done.</tool_use_error>";
        let denied = tool("Bash", json!({}), ToolRunState::NotRun, Value::Null, received);
        let work = WorkDone::of(&history(&[], vec![denied]), false);
        assert_eq!(work.refused[0].reason, "Bash needs permission");
    }

    #[test]
    fn a_failed_session_names_its_last_failed_command_and_what_was_denied() {
        let tools = vec![
            tool(
                "Bash",
                json!({ "command": "make" }),
                ToolRunState::Failed,
                json!({ "exit_code": 2 }),
                "no rule",
            ),
            tool("Bash", json!({ "command": "rm x" }), ToolRunState::NotRun, Value::Null, "denied"),
        ];
        let history = history(&[], tools);
        let work = WorkDone::of(&history, true);
        let failed = work.failed.expect("a failed command");
        assert_eq!((failed.command.as_str(), failed.output.as_str()), ("make", "no rule"));
        assert_eq!(failed.end, "ended with exit code 2");
        assert_eq!(work.refused.len(), 1);
        assert_eq!(work.refused[0].reason, "denied");
        assert_eq!(WorkDone::of(&history, false).failed, None, "a success has none");
        assert_eq!(work.answer, None);
    }
}
