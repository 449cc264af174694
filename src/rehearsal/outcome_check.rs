//! Checks whether the run ended as the scenario expects.

use std::fs;
use std::path::Path;

use super::scenario::Expectation;
use super::script::ScriptLine;
use super::server::RehearsalServer;

/// The observed end of a run.
#[derive(Clone, Copy, Debug)]
pub struct ObservedOutcome<'a> {
    /// The exit code.
    pub exit: i32,
    /// The `terminal_reason` of the result, if there is one.
    pub terminal_reason: Option<&'a str>,
    /// The scratch folder, whose files are checked.
    pub folder: &'a Path,
    /// Standard error. Not checked if it was not captured.
    pub stderr: Option<&'a str>,
}

impl RehearsalServer {
    /// Returns all differences from the expectations of the scenario, one sentence each. Empty if
    /// the rehearsal passed.
    pub fn verify(&self, outcome: &ObservedOutcome<'_>) -> Vec<String> {
        let scenario = self.scenario();
        let expect = &scenario.expect;
        let mut faults = Vec::from_iter(unexpected_end(expect, outcome));
        for (path, wanted) in &expect.files {
            match fs::read_to_string(outcome.folder.join(path)) {
                Ok(text) if text.contains(wanted) => {}
                Ok(_) => faults.push(format!("{path} does not contain {wanted:?}")),
                Err(error) => faults.push(format!("{path} cannot be read: {error}")),
            }
        }
        for path in &expect.absent {
            if outcome.folder.join(path).exists() {
                faults.push(format!("{path} exists"));
            }
        }
        let requests = self.requests();
        let compactions =
            requests.iter().filter(|request| request.line == ScriptLine::Compaction).count();
        let refreshes = usize::try_from(self.grants().granted).unwrap_or(usize::MAX);
        let mut compare = |found: usize, wanted: Option<usize>, noun: &str| {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
                faults.push(format!("expected {wanted} {noun}, but there were {found}"));
            }
        };
        compare(requests.len(), expect.requests, "requests");
        compare(compactions, expect.compactions, "requests for compactions");
        compare(refreshes, expect.refreshes, "tokens granted");
        for (name, other) in self.others() {
            let wanted = scenario.servers.get(name).and_then(|part| part.requests);
            compare(other.requests().len(), wanted, &format!("requests to {name}"));
        }
        for wanted in &expect.stderr {
            if outcome.stderr.is_some_and(|stderr| !stderr.contains(wanted)) {
                faults.push(format!("standard error does not contain {wanted:?}"));
            }
        }
        faults.extend(self.violations().into_iter().map(|fault| format!("invalid {fault}")));
        match self.unrequested_answers() {
            0 => {}
            1 => faults.push("one answer of the script was never requested".to_owned()),
            many => faults.push(format!("{many} answers of the script were never requested")),
        }
        faults
    }
}

/// Describes the end of the run, if it is not the expected one.
fn unexpected_end(expect: &Expectation, outcome: &ObservedOutcome<'_>) -> Option<String> {
    let reason = expect.terminal_reason.as_deref();
    let is_expected = expect.exit.is_none_or(|exit| exit == outcome.exit)
        && (reason.is_none() || reason == outcome.terminal_reason);
    if is_expected {
        return None;
    }
    let wanted = match (expect.exit, reason) {
        (Some(exit), Some(reason)) => format!("exit {exit} ({reason})"),
        (Some(exit), None) => format!("exit {exit}"),
        (None, reason) => format!("the end {}", reason.unwrap_or("of any kind")),
    };
    let found = outcome.terminal_reason.map_or(String::new(), |reason| format!(" ({reason})"));
    Some(format!("expected {wanted}, but the run ended with exit {}{found}", outcome.exit))
}
