//! No check takes for ever: what takes too long is said by name.

use std::time::Duration;

use tokio::time::timeout;

use super::finding::Finding;
use crate::process::reading;

/// The longest that one check may take. Two of them come after each other, and no more.
pub const CHECK_MAX: Duration = Duration::from_millis(9_500);

/// The longest that all of them may take together; what is asked last gets what is left.
pub(super) const TOTAL_MAX: Duration = Duration::from_secs(19);

/// Waits for facts.
///
/// # Errors
/// That they took too long.
pub(super) async fn within_limit<T>(name: &str, facts: impl Future<Output = T>) -> Result<T, Finding> {
    timeout(CHECK_MAX, facts).await.map_err(|_| late_finding(name))
}

/// The same for facts that block a thread, which is left behind.
///
/// # Errors
/// That they took too long.
pub(super) async fn blocking_within_limit<T: Send + 'static>(
    name: &str,
    facts: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Finding> {
    let working = tokio::task::spawn_blocking(facts);
    match timeout(CHECK_MAX, working).await {
        Ok(Ok(facts)) => Ok(facts),
        Ok(Err(_)) => Err(Finding::problem(
            name,
            "this check broke",
            "what it would have looked at is not known",
            "please report this",
        )),
        Err(_) => Err(stuck_finding(name)),
    }
}

/// The same as [`late`], with the file that is being read.
fn stuck_finding(name: &str) -> Finding {
    let finding = late_finding(name);
    let Some(path) = reading::oldest_pending_read() else { return finding };
    let path = path.display();
    Finding {
        what: format!("{}: it waits for {path}", finding.what),
        fix: format!(
            "see what {path} is: if it is a pipe, take it away; if its disk hangs, mend that first"
        ),
        ..finding
    }
}

/// What is said of a check that took too long.
pub(super) fn late_finding(name: &str) -> Finding {
    Finding::problem(
        name,
        format!("this check did not end within {} s", CHECK_MAX.as_secs_f32()),
        "a run that needs the same would wait as well",
        "see whether a file it reads is a pipe or on a disk that hangs, or a server does not answer",
    )
}
