//! Hooks: what is configured, what cannot run, and what failed before.

use super::super::facts::hooks::Missing;
use super::super::facts::store::HookLog;
use super::super::finding::Finding;
use super::super::{HookLine, Known};

/// The hooks that are configured, and which of them will not run.
pub fn judge(known: &Known, missing: &[Missing]) -> Vec<Finding> {
    let shown = |(event, count): &(String, usize)| format!("{event} {count}");
    let all: Vec<String> = known.hooks.iter().map(shown).collect();
    let all = match (all.is_empty(), known.hooks_off) {
        (true, _) => "none is configured".to_owned(),
        (false, true) => format!("switched off (disableAllHooks): {}", all.join(", ")),
        (false, false) => all.join(", "),
    };
    let line = |hook: &HookLine| {
        let HookLine { event, timeout, source, .. } = hook;
        format!("{event}: at most {} s ({source})", timeout.as_secs_f32())
    };
    let mut findings = vec![Finding::ok("hooks", all).with(known.hook_commands.iter().map(line))];
    findings.extend(known.bad_hooks.iter().map(|bad| {
        Finding::warning("hooks", bad, "this hook does not run", "correct it, or take it away")
    }));
    findings.extend(missing.iter().map(|missing| {
        let Missing { event, program, source } = missing;
        Finding::warning(
            "hooks",
            format!("the {event} hook of {source} runs {program}, which is not there to be run"),
            "a hook that fails counts as one that is not there, unless it is a guard (failClosed), \
             which then forbids everything",
            format!("install {program}, make it executable, or correct the hook in {source}"),
        )
    }));
    findings
}

/// The hooks that failed in runs before.
pub fn log(log: &HookLog) -> Vec<Finding> {
    if log.failures == 0 {
        return vec![Finding::ok("hook log", "no failures of hooks on record")];
    }
    let (count, path) = (log.failures, log.path.display());
    let many = if count == 1 { "failure" } else { "failures" };
    let finding = Finding::warning(
        "hook log",
        format!("{count} {many} of hooks on record, the newest last"),
        "a hook that fails counts as one that is not there",
        format!("read {path}, mend the hooks, and delete it"),
    );
    vec![finding.with(log.last.iter().cloned())]
}
