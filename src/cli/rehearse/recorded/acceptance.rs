//! Makes programs that accept or reject an answer as the recorded checks did.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::history::{HistoryEvent, MessageAuthor, SessionHistory};
use crate::recovery::StopHookDecision;
use crate::rehearsal::ScratchFile;

/// The command that replaces the one of `--require`.
pub(super) const REQUIREMENT: &str = "sh ./.rehearsal/requirement.sh";

/// The command that replaces the Stop hooks.
const STOP_HOOK: &str = "sh ./.rehearsal/stop-hook.sh";

/// The checks of the answers to the last prompt.
#[derive(Debug, Default)]
pub(super) struct RecordedChecks {
    /// The results of the command of `--require`: true for each time that it passed.
    requirement: Vec<bool>,
    stop_hooks: Vec<StopHookDecision>,
    /// The hook settings, if hooks are needed.
    pub(super) hooks: Option<Value>,
}

/// Collects the checks of a session.
pub(super) fn checks(history: &SessionHistory) -> RecordedChecks {
    let mut requirement = Vec::new();
    for item in &history.items {
        if let HistoryEvent::Requirement { passed, .. } = item.event {
            requirement.push(passed);
        } else if let HistoryEvent::Message(message) = &item.event
            && message.author == MessageAuthor::User
        {
            requirement.clear();
        }
    }
    let stop_hooks = history.stop_hooks.clone();
    let is_needed = stop_hooks.iter().any(|decision| *decision != StopHookDecision::Pass);
    let hooks = is_needed
        .then(|| json!({ "Stop": [{ "hooks": [{ "type": "command", "command": STOP_HOOK }] }] }));
    RecordedChecks { requirement, stop_hooks, hooks }
}

impl RecordedChecks {
    /// Returns the programs, by path in the scratch folder.
    pub(super) fn files(&self, has_requirement: bool) -> BTreeMap<String, ScratchFile> {
        let mut files = BTreeMap::new();
        let mut add = |name: &str, content: String| {
            files.insert(format!(".rehearsal/{name}"), ScratchFile { content, mode: 0o755 });
        };
        if has_requirement {
            let answers = self.requirement.iter().map(|passed| {
                if *passed { "exit 0" } else { "echo 'The output is not recorded.'; exit 1" }
                    .to_owned()
            });
            add("requirement.sh", program("the command of --require", answers));
        }
        if self.hooks.is_some() {
            let mut objections = 0;
            let answers = self.stop_hooks.iter().map(|decision| match decision {
                StopHookDecision::Pass => "exit 0".to_owned(),
                StopHookDecision::Block | StopHookDecision::BlockAgain => {
                    objections += u32::from(*decision == StopHookDecision::Block);
                    format!("echo 'Objection {objections} (not recorded).' >&2; exit 2")
                }
                StopHookDecision::Halt => {
                    r#"echo '{"continue": false, "stopReason": "not recorded"}'; exit 0"#.to_owned()
                }
            });
            add("stop-hook.sh", program("the Stop hooks", answers));
        }
        files
    }
}

/// Makes a shell program that does the next of `answers` each time, and accepts after the last one.
fn program(what: &str, answers: impl Iterator<Item = String>) -> String {
    let mut text = format!(
        "#!/bin/sh\n# Answers as {what} did in the recorded session.\n\
         n=$(($(cat \"$0.count\" 2>/dev/null || echo 0) + 1))\necho \"$n\" > \"$0.count\"\n\
         case $n in\n"
    );
    for (index, answer) in answers.enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}) {answer} ;;", index + 1);
    }
    text + "*) exit 0 ;;\nesac\n"
}
