//! The tools `BashOutput` and `KillShell`.

use std::time::Duration;

use grep_regex::RegexMatcher;
use grep_searcher::Searcher;
use grep_searcher::sinks::Lossy;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::super::grep::compile_for_lines;
use super::super::input::{BashOutputInput, KillShellInput};
use super::super::outcome::{ToolError, ToolOutcome};
use super::descriptions::status_phrase;
use super::tasks::BackgroundTasks;

/// The maximum wait for a stopped command: its grace period, and the time to kill it.
const STOPPING: Duration = Duration::from_secs(4);

/// Compiles the regular expression of the filter, if there is one.
pub(in super::super) fn compile_filter(
    input: &BashOutputInput,
) -> Result<Option<RegexMatcher>, ToolError> {
    let pattern = input.filter.as_deref().filter(|pattern| !pattern.is_empty());
    let matcher = pattern.map(compile_for_lines).transpose();
    matcher.map_err(|error| format!("filter is wrong: {error}").into())
}

/// Returns the output of a command since the last `BashOutput` call, after an optional wait for its
/// end.
pub(in super::super) async fn read_output(
    tasks: &BackgroundTasks,
    input: &BashOutputInput,
    cancel: &CancellationToken,
) -> Result<ToolOutcome, ToolError> {
    if let Some(limit) = input.timeout.map(Duration::from_millis) {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(ToolError::interrupted()),
            ended = tasks.ended(&input.bash_id) => ended?,
            () = tokio::time::sleep(limit) => {}
        }
    }
    let filter = compile_filter(input)?;
    let (task, output) = tasks.read_output(&input.bash_id)?;
    let shown = filter.map_or_else(|| output.clone(), |filter| matching_lines(&filter, &output));
    let shown = match shown.trim_end_matches('\n') {
        "" if output.is_empty() => "(no new output)",
        "" => "(nothing new matches the filter)",
        shown => shown,
    };
    let text = format!("{} {}.\n{shown}", task.id, status_phrase(&task));
    let detail = json!({
        "shellId": task.id,
        "command": task.command,
        "status": task.status(),
        "exitCode": task.exit_code,
        "stdout": shown,
        "output_file": task.output_file,
    });
    Ok(ToolOutcome::text(text, detail))
}

/// Returns the lines of `output` that match the filter.
fn matching_lines(filter: &RegexMatcher, output: &str) -> String {
    let mut lines = String::new();
    let sink = Lossy(|_, line| {
        lines.push_str(line);
        Ok(true)
    });
    // Only the sink could fail, and it does not.
    let _ = Searcher::new().search_slice(filter, output.as_bytes(), sink);
    lines
}

/// Stops a command.
pub(in super::super) async fn kill(
    tasks: &BackgroundTasks,
    input: &KillShellInput,
) -> Result<ToolOutcome, ToolError> {
    let id = &input.shell_id;
    let was_running = tasks.stop(id)?;
    // The id was valid a moment ago, and entries are never removed.
    let _ = tokio::time::timeout(STOPPING, tasks.ended(id)).await;
    let task = tasks.status(id)?;
    let how = status_phrase(&task);
    let detail = json!({ "shell_id": id, "command": task.command, "status": task.status() });
    let text = match (was_running, task.end) {
        (true, None) => return Err(format!("{id} could not be stopped: it {how}").into()),
        (true, Some(_)) => format!("{id} {how}."),
        (false, _) => format!("{id} was not running any more: it {how}."),
    };
    Ok(ToolOutcome::text(text, detail))
}
