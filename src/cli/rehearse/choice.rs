//! Chooses the scenario of a rehearsal: a built-in one, a file, or a recorded session.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use anyhow::Context;
use strsim::osa_distance;

use super::super::args::RehearseArgs;
use super::super::output::print_message;
use super::super::run::ProcessContext;
use super::super::sessions::{SessionsContext, unreadable, until_signal};
use super::super::usage::{UsageError, UsageErrorKind};
use super::recorded::RecordedScenario;
use crate::history::{HistoryContents, read_history};
use crate::rehearsal::{Scenario, builtin_text, list};

/// The scenario if none is named.
const DEFAULT: &str = "fix-a-bug";

/// The scenario of a rehearsal.
pub(super) struct ChosenScenario {
    pub(super) scenario: Scenario,
    /// The text of its file.
    pub(super) text: Cow<'static, str>,
    /// The parts of a recorded session that the scenario does not reproduce.
    skipped: Vec<String>,
}

/// Finds and reads the scenario.
///
/// # Errors
/// There is no such scenario, it is invalid, or the session cannot be read.
pub(super) async fn choose(
    args: &RehearseArgs,
    context: &ProcessContext,
) -> Result<ChosenScenario, UsageError> {
    let Some(session) = args.from.clone() else {
        return named(args.scenario.as_deref().unwrap_or(DEFAULT));
    };
    let (variables, cwd) = (context.variables.clone(), context.cwd.clone());
    let read = move || recorded(&session, &SessionsContext::new(&variables, &cwd));
    until_signal(&context.signals, read).await
}

impl ChosenScenario {
    fn parse(text: Cow<'static, str>, file: &str) -> Result<Self, UsageError> {
        let scenario = Scenario::parse(&text, file);
        let scenario = scenario.map_err(|error| UsageError::new(error.to_string()))?;
        Ok(Self { scenario, text, skipped: Vec::new() })
    }

    /// Reports on standard error the parts that are not reproduced.
    pub(super) fn report_omissions(&self) {
        for skipped in &self.skipped {
            print_message(&format!("not reproduced: {skipped}"));
        }
    }
}

/// Reads a built-in scenario by its name, or one in a file.
fn named(name: &str) -> Result<ChosenScenario, UsageError> {
    if let Some(text) = builtin_text(name) {
        return ChosenScenario::parse(text.into(), &format!("{name}.toml"));
    }
    let path = Path::new(name);
    if !path.is_file() {
        let near = nearest(name).map_or(String::new(), |near| format!("; did you mean {near}?"));
        return Err(UsageError::new(format!(
            "there is no scenario {name:?}, and no file of that name{near}; see outlast rehearse \
             --list"
        )));
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read scenario {name}"))?;
    ChosenScenario::parse(text.into(), name)
}

fn nearest(name: &str) -> Option<String> {
    let names = list().into_iter().map(|listing| listing.name);
    let (distance, nearest) = names.map(|known| (osa_distance(name, &known), known)).min()?;
    // A third of the letters may be wrong, but no more than three.
    (distance <= (name.len() / 3).clamp(1, 3)).then_some(nearest)
}

/// Makes the scenario that reproduces a session.
fn recorded(session: &str, sessions: &SessionsContext) -> Result<ChosenScenario, UsageError> {
    let file = sessions.find(session)?;
    let history = read_history(&file, HistoryContents::All)
        .map_err(|error| unreadable(&file.path, &error))?;
    let recorded = RecordedScenario::of(&history).map_err(|error| {
        UsageError::new(format!("session {} cannot be rehearsed: {error}", file.id))
    })?;
    let name = format!("the scenario of session {}", file.id);
    let chosen = ChosenScenario::parse(recorded.text.into(), &name).map_err(|error| {
        let what = format!("outlast has a defect: {error}");
        UsageError::of(UsageErrorKind::Internal, what)
    })?;
    Ok(ChosenScenario { skipped: recorded.skipped, ..chosen })
}
