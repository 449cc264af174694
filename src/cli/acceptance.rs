//! Messages for runs that finished but whose result was not accepted.

use crate::agent::RunOutcome;
use crate::text::shortened;
use crate::tools::BackgroundEnd;

/// The maximum length of a quoted command, in characters.
const COMMAND_MAX: usize = 200;

/// Explains that the `--require` command failed.
pub fn requirement_failed(outcome: &RunOutcome) -> (String, &'static str) {
    const ADVICE: &str = "The end of its output is in requirement.output of the result.";
    const TIMED_OUT: &str = "The end of its output is in requirement.output of the result; \
                             --require-timeout gives it more time.";
    // Exit codes of the shell: a mistake in the command itself, which the model cannot correct.
    const NOT_FOUND: &str = "That exit code means that the command, or one in it, was not found: \
                             correct --require, or the PATH of this job.";
    const NOT_EXECUTABLE: &str = "That exit code means that the command, or one in it, was found \
                                  and is not executable: make it so, or name its interpreter.";
    let Some(verified) = &outcome.acceptance.requirement else {
        return ("the command that must pass did not".to_owned(), ADVICE);
    };
    let times = match verified.attempts {
        1 => "once".to_owned(),
        attempts => format!("{attempts} times"),
    };
    let how = verified.how.as_deref().unwrap_or("was never run");
    let what = format!(
        "the work was not accepted: the required command {:?} was run {times} and never passed; \
         the last time it {how}",
        shortened(&verified.command, COMMAND_MAX, "...")
    );
    let advice = match verified.exit_code {
        Some(127) => NOT_FOUND,
        Some(126) => NOT_EXECUTABLE,
        Some(_) | None if verified.timed_out => TIMED_OUT,
        Some(_) | None => ADVICE,
    };
    (what, advice)
}

/// Explains that background commands were still running when the model had finished.
pub fn background_pending(outcome: &RunOutcome) -> (String, &'static str) {
    const ADVICE: &str = "Raise the setting backgroundWait or --max-duration, or say in the prompt \
                          what is to be stopped before the end.";
    let cut = outcome.tasks.iter().filter(|task| task.end == Some(BackgroundEnd::RunEnded));
    let cut: Vec<String> = cut
        .map(|task| format!("{} ({:?})", task.id, shortened(&task.command, COMMAND_MAX, "...")))
        .collect();
    let what = if cut.is_empty() {
        "the model was done, and could not be notified any more how its background commands ended"
            .to_owned()
    } else {
        format!(
            "the model was done, and its background commands did not end in time; cut: {}",
            cut.join(", ")
        )
    };
    (what, ADVICE)
}

/// Explains that no structured output matched the schema.
pub fn schema_not_met(outcome: &RunOutcome) -> (String, &'static str) {
    let what = match outcome.acceptance.schema_attempts {
        Some(0) | None => {
            "no structured output came: the model never called the tool for it".to_owned()
        }
        Some(1) => "no structured output came: the one answer did not fit the schema".to_owned(),
        Some(attempts) => {
            format!("no structured output came: none of {attempts} answers was accepted")
        }
    };
    (
        what,
        "Make the schema of --json-schema simpler, or raise the setting schemaTries; for an answer \
         without a schema: --json-schema none.",
    )
}
