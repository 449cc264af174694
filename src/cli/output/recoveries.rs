//! Recoveries in plain words, for verbose output.

use crate::config::format_elapsed;
use crate::recovery::{RecoveryCounts, RecoveryPlan, RecoveryRecord};

/// Describes the action of a plan. `None` if another line reports it: a wait, a switch of model, a
/// check, an end.
pub(super) fn action(plan: RecoveryPlan) -> Option<&'static str> {
    Some(match plan {
        RecoveryPlan::RetryAtOnce { .. } => "asking again at once: an idle connection had closed",
        RecoveryPlan::Refresh => "fetching a fresh credential, then asking again",
        RecoveryPlan::Escalate => {
            "the reply was cut at its length limit: asking again with a larger limit"
        }
        RecoveryPlan::Continue => {
            "the reply was cut at its length limit: asking the model to go on from there"
        }
        RecoveryPlan::AskAgain => "the reply was empty: asking again",
        RecoveryPlan::RetryIncomplete => "the reply was incomplete: asking again",
        RecoveryPlan::RequestCompletion => {
            "the reply was incomplete: telling the model what is missing"
        }
        RecoveryPlan::Resume => "the service paused the reply: asking for the rest",
        RecoveryPlan::Nudge => "asking the model to put more effort in",
        RecoveryPlan::Compact => "the context window is almost full: summarising older messages",
        RecoveryPlan::SkipCompaction => "the summary did not come: going on without it",
        RecoveryPlan::CommitFolds => {
            "the conversation did not fit: asking again with older tool results folded"
        }
        RecoveryPlan::CompactReactively => {
            "the conversation did not fit: summarising older messages"
        }
        RecoveryPlan::Trim => {
            "the request for a summary did not fit: asking again without the oldest messages"
        }
        RecoveryPlan::LowerCap => {
            "the length limit for the reply was refused: asking again with a smaller one"
        }
        RecoveryPlan::Strip => "images were too large: asking again without them",
        RecoveryPlan::RepairBlock => "a block was refused: asking again with it repaired",
        RecoveryPlan::DropThinking => "thinking was refused: asking again without it",
        RecoveryPlan::DropCacheMarks => {
            "marks for the prompt cache were refused: asking again without them"
        }
        RecoveryPlan::Remind => "something was left open: reminding the model of it",
        RecoveryPlan::RetryOverflow => {
            "a small request was refused as too large: sending it once more"
        }
        RecoveryPlan::ReturnToPreferredModel => "asking the preferred model again",
        RecoveryPlan::RetryPreferredModel => {
            "no model is left: asking the preferred model once more"
        }
        RecoveryPlan::Restructure => {
            "the answer does not fit its schema: telling the model what is wrong"
        }
        RecoveryPlan::RetryStopHook => "a Stop hook objects: telling the model why",
        RecoveryPlan::Report => "telling the model how its background work stands",
        RecoveryPlan::ReturnEarly => "the service has capacity again: ending the wait early",
        RecoveryPlan::Retry { .. }
        | RecoveryPlan::RetryOddRefusal
        | RecoveryPlan::WaitForCapacity
        | RecoveryPlan::SwitchModel
        | RecoveryPlan::CoolDown
        | RecoveryPlan::DisableFastMode
        | RecoveryPlan::RetryRequirement
        | RecoveryPlan::Probe
        | RecoveryPlan::Stop(_) => return None,
    })
}

/// The outcome of a recovery.
pub(super) fn outcome(record: &RecoveryRecord) -> String {
    let RecoveryRecord { class, attempts, waited, .. } = record;
    let cost = record.spending().as_cost();
    let outcome = match &record.lost_to {
        None => format!("recovered from {class}"),
        Some(reason) => format!("did not recover from {class} before the end ({reason})"),
    };
    let tried = named(&record.strategies);
    let waited = format_elapsed(*waited);
    format!("{outcome}: {tried}; attempts {attempts}, waited {waited}, cost {cost}")
}

fn named(counts: &RecoveryCounts) -> String {
    let names = counts.iter().map(|(name, times)| format!("{name} x{times}"));
    names.collect::<Vec<_>>().join(", ")
}
