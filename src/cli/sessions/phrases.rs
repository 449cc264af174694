//! Formats numbers and events in reports on sessions.

use std::time::Duration;

use crate::history::WaitCause;
use crate::recovery::{ErrorClass, Nudge, StopReason};

use super::super::timestamps::format_elapsed;

/// Formats a size in the largest unit that fits, rounded: `712 B`, `28 KB`, `1.3 GB`.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let (mut unit, mut whole) = (0, 1_u64);
    // A size that rounds to 1024 of a unit is 1 of the next unit.
    while unit + 1 < UNITS.len() && bytes.saturating_add(whole / 2) / whole >= 1024 {
        (unit, whole) = (unit + 1, whole * 1024);
    }
    let tenths = rounded(bytes.saturating_mul(10), whole);
    if unit > 0 && tenths < 100 {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    } else {
        format!("{} {}", rounded(bytes, whole), UNITS[unit])
    }
}

fn rounded(number: u64, of: u64) -> u64 {
    number.saturating_add(of / 2) / of
}

/// Formats a duration, with tenths of a second below ten seconds.
pub(super) fn took(duration: Duration) -> String {
    if duration < Duration::from_secs(10) {
        return format!("{:.1}s", duration.as_secs_f64());
    }
    format_elapsed(duration)
}

/// Formats a stop reason with its exit code.
pub(in crate::cli) fn stop_reason(reason: StopReason) -> String {
    let info = reason.info();
    let why = if info.cause.is_empty() { "" } else { &format!(" ({})", info.cause) };
    format!("{}{why}, exit code {}", info.name, info.exit_code)
}

/// Describes a failure: the meaning of an error class with its name, or the name of another kind.
pub(in crate::cli) fn failure(class: &str) -> String {
    let known = ErrorClass::ALL.into_iter().find(|one| one.name() == class);
    known.map_or_else(
        || class.replace('_', " "),
        |known| format!("{} ({class})", known.info().meaning),
    )
}

/// Describes the cause of a wait.
pub(in crate::cli) fn wait(cause: WaitCause) -> String {
    match cause {
        WaitCause::Retry { class, retry, of } => {
            let of = of.map_or_else(String::new, |of| format!(" of {of}"));
            format!("before retry {retry}{of} ({})", class.name())
        }
        WaitCause::SharedLimit => "for a rate limit that was known on this host".to_owned(),
        WaitCause::BackgroundWork => "for background work".to_owned(),
    }
}

/// Describes the subject of a notice from outlast to the model.
pub(super) fn notice(nudge: Option<Nudge>) -> &'static str {
    let Some(nudge) = nudge else { return "note to the model" };
    match nudge {
        Nudge::Continue(_) | Nudge::ContinueLast => "the model is asked to go on",
        Nudge::Complete(_) => "the model is asked to complete its reply",
        Nudge::EmptyReply => "the model is informed that its reply was empty",
        Nudge::MoreEffort => "the model is asked for more work",
        Nudge::LeftOpen => "the model is reminded of what is open",
        Nudge::WrapUp => "the model is asked to come to an end",
        Nudge::LastTurn => "the model is informed that this is its last turn",
        Nudge::StepBack => "the model is informed that it repeats itself",
        Nudge::UseStructuredOutput => "the model is asked for structured output",
        Nudge::Unmet | Nudge::UnmetAgain | Nudge::UnmetLast => {
            "the model is informed that the required command failed"
        }
        Nudge::StopHookObjection => "the model is informed of the objection of a Stop hook",
        Nudge::WorkEnded => "the model is informed that background work ended",
        Nudge::StillRunning => "the model is informed that background work is running",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KB"),
            (1996, "1.9 KB"),
            (2000, "2.0 KB"),
            (21_080, "21 KB"),
            ((1 << 20) - 1, "1.0 MB"),
            (20 << 10, "20 KB"),
            (1 << 40, "1.0 TB"),
        ];
        for (bytes, text) in table {
            assert_eq!(size(bytes), text);
        }
    }
}
