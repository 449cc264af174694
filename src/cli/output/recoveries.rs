//! Recoveries in plain words, for verbose output.

use crate::config::format_elapsed;
use crate::recovery::RecoveryRecord;

/// Formats the outcome of a recovery.
pub(super) fn outcome(record: &RecoveryRecord) -> String {
    let RecoveryRecord { class, attempts, waited, .. } = record;
    let cost = record.spending().as_cost();
    let outcome = match &record.lost_to {
        None => format!("recovered from {class}"),
        Some(reason) => format!("did not recover from {class} before the end ({reason})"),
    };
    let strategies = record.strategies.iter().map(|(name, times)| format!("{name} x{times}"));
    let tried = strategies.collect::<Vec<_>>().join(", ");
    let waited = format_elapsed(*waited);
    format!("{outcome}: {tried}; attempts {attempts}, waited {waited}, cost {cost}")
}
