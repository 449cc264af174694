//! The first and the last line of a run on standard error.

use std::time::Duration;

use crate::agent::{Init, RunOutcome};
use crate::cli::exit::exit_status;
use crate::cli::version::VERSION;
use crate::config::{format_duration, format_took};
use crate::recovery::Money;

use super::style::Tone;

/// The limits of a run, for its first line.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunLimits {
    pub budget: Option<Money>,
    /// Time limit of the run.
    pub time: Option<Duration>,
}

const SEPARATOR: &str = " · ";

/// Returns the first line: the version, the model, the session and the limits of the run.
pub(super) fn first_line(init: &Init, limits: RunLimits) -> String {
    let mut parts = vec![format!("version {VERSION}"), init.model.clone()];
    parts.push(format!("session {}", init.session_id));
    parts.extend(limits.budget.map(|budget| format!("at most {budget}")));
    parts.extend(limits.time.map(|time| format!("at most {}", format_duration(time))));
    parts.join(SEPARATOR)
}

/// Returns the last line: the outcome and the cost of the run.
pub fn last_line(outcome: &RunOutcome) -> (Tone, String) {
    let verdict = exit_status(outcome.reason);
    let totals = outcome.stats.recovery.totals();
    let retries = totals.retries_by_class.sum();
    let (tone, how, survived) = if verdict.is_error() {
        let how = format!("{} (exit {})", outcome.reason.name(), verdict.exit_code());
        (Tone::Failure, how, "")
    } else {
        (Tone::Success, "done".to_owned(), " survived")
    };
    let spent = match outcome.cost() {
        Some(cost) => cost.to_string(),
        None => outcome.costs.spent.to_string(),
    };
    let mut parts = vec![
        how,
        counted(u64::from(outcome.stats.turns), "turn", "turns"),
        format_took(outcome.stats.duration),
        spent,
    ];
    if retries > 0 {
        parts.push(format!("{}{survived}", counted(u64::from(retries), "retry", "retries")));
    }
    (tone, parts.join(SEPARATOR))
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
