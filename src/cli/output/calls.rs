//! Lines about tool calls and acceptance checks.

use serde_json::Value;

use crate::agent::EndedCall;
use crate::config::format_took;
use crate::tools::RequirementCheck;
use crate::transcript::{Block, Message, summarize_call, without_error_tags};

use super::PipeSender;

/// Number of lines at the end of a call's output that verbose output shows.
const TAIL_LINES: usize = 5;

/// A tool call, and its name in lines.
#[derive(Clone, Debug)]
pub(super) struct NamedCall {
    pub(super) id: String,
    pub(super) tool: String,
    /// The tool and its subject, shortened.
    pub(super) short: String,
}

/// The calls of the latest reply, so that lines can name the running calls.
#[derive(Clone, Debug, Default)]
pub(super) struct CallNames {
    calls: Vec<NamedCall>,
    /// The working folder, to which shown paths are relative.
    folder: String,
}

impl CallNames {
    /// Replaces the calls by those of a new reply.
    pub(super) fn replace(&mut self, message: &Message, out: &PipeSender) {
        self.calls = self.named(message, out).collect();
    }

    pub(super) fn set_folder(&mut self, folder: &str) {
        folder.clone_into(&mut self.folder);
    }

    /// Returns the tool calls of a reply.
    pub(super) fn named(
        &self,
        message: &Message,
        out: &PipeSender,
    ) -> impl Iterator<Item = NamedCall> {
        message.content.iter().filter_map(Block::as_call).map(|(id, name, input)| {
            let input = self.relative(out.redact_input(input));
            let short = summarize_call(name, &input);
            NamedCall { id: id.to_owned(), tool: name.to_owned(), short }
        })
    }

    /// Returns an input with its path relative to the working folder.
    fn relative(&self, mut input: Value) -> Value {
        let path = input["file_path"].as_str().and_then(|path| path.strip_prefix(&self.folder));
        let inside = path.and_then(|path| path.strip_prefix('/')).map(str::to_owned);
        if let Some(inside) = inside.filter(|_| !self.folder.is_empty()) {
            input["file_path"] = inside.into();
        }
        input
    }

    /// Returns the short name of a call, or else the name of the tool: a tool that decides on the
    /// permission of a call runs under the id of that call.
    pub(super) fn of<'a>(&'a self, id: &str, tool: &'a str) -> &'a str {
        let call = self.calls.iter().find(|call| call.id == id && call.tool == tool);
        call.map_or(tool, |call| &call.short)
    }
}

/// Formats the line for a call that has ended.
pub(super) fn ended(names: &CallNames, call: &EndedCall) -> String {
    let name = names.of(&call.id, &call.name);
    let took = format_took(call.took);
    let how = match (call.is_error, call.exit_code) {
        (_, Some(code @ 1..)) => format!("exit {code}"),
        (false, _) => "ok".to_owned(),
        (true, _) => format!("failed: {}", first_line(&call.tail)),
    };
    format!("{name} → {how}, {took}")
}

/// Returns the last lines of a call's output.
pub(super) fn tail(text: &str) -> impl Iterator<Item = &str> {
    let text = without_error_tags(text.trim()).trim();
    let lines = text.lines().count();
    text.lines().skip(lines.saturating_sub(TAIL_LINES))
}

fn first_line(text: &str) -> &str {
    without_error_tags(text.trim()).trim().lines().next().unwrap_or("no output")
}

/// Formats the line for a check of the command of `--require`.
pub(super) fn check(check: &RequirementCheck, (attempt, of): (u32, u32)) -> String {
    let command = &check.command;
    let how = match check.exit_code() {
        Some(0) => return format!("`{command}` passed, try {attempt} of {of}"),
        Some(code) => format!("failed (exit {code})"),
        None => check.end_phrase(),
    };
    let next = if attempt < of { "sent back to the model" } else { "no try is left" };
    format!("`{command}` {how}, {next}, try {attempt} of {of}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_below_the_working_folder_are_shown_relative_to_it() {
        let mut names = CallNames::default();
        names.set_folder("/work");
        for (path, shown) in [
            ("/work/src/a.rs", "src/a.rs"),
            ("/work", "/work"),
            ("/workshop/a.rs", "/workshop/a.rs"),
            ("a.rs", "a.rs"),
        ] {
            assert_eq!(names.relative(json!({ "file_path": path }))["file_path"], shown);
        }
        assert_eq!(names.relative(json!("text")), json!("text"));
    }
}
