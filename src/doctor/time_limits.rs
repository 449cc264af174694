//! Time limits for checks: a check that takes too long is reported by name.

use std::time::Duration;

use tokio::time::timeout;

use super::finding::Finding;
use crate::process::file_reads;

/// The time limit of one check. At most two of them run in sequence.
pub const CHECK_MAX: Duration = Duration::from_millis(9_500);

/// The time limit of all checks together. The last requests get the remaining time.
pub(super) const TOTAL_MAX: Duration = Duration::from_secs(19);

/// Waits for facts, up to [`CHECK_MAX`].
///
/// # Errors
/// The finding that they took too long.
pub(super) async fn within_limit<T>(
    name: &str,
    facts: impl Future<Output = T>,
) -> Result<T, Finding> {
    timeout(CHECK_MAX, facts).await.map_err(|_| late_finding(name))
}

/// Waits for facts that block a thread, up to [`CHECK_MAX`]. On a timeout the thread is abandoned.
///
/// # Errors
/// The finding that they took too long, or that the check panicked.
pub(super) async fn blocking_within_limit<T: Send + 'static>(
    name: &str,
    facts: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Finding> {
    let working = tokio::task::spawn_blocking(facts);
    match timeout(CHECK_MAX, working).await {
        Ok(Ok(facts)) => Ok(facts),
        Ok(Err(_)) => {
            let why = "its results are missing";
            Err(Finding::problem(name, "this check crashed", why, "please report this"))
        }
        Err(_) => Err(stuck_finding(name)),
    }
}

/// Returns [`late_finding`] with the name of the file that is being read, if one is.
fn stuck_finding(name: &str) -> Finding {
    let finding = late_finding(name);
    let Some(path) = file_reads::oldest_pending_read() else { return finding };
    let path = path.display();
    Finding {
        what: format!("{}: it waits for {path}", finding.what),
        fix: format!(
            "see what {path} is: if it is a pipe, remove it; if its disk hangs, repair that first"
        ),
        ..finding
    }
}

/// Returns the finding for a check that took too long.
pub(super) fn late_finding(name: &str) -> Finding {
    Finding::problem(
        name,
        format!("this check did not end within {} s", CHECK_MAX.as_secs_f32()),
        "a run that needs the same would wait as well",
        "see whether a file it reads is a pipe or on a disk that hangs, or a server does not answer",
    )
}
