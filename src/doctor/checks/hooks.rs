//! Checks hooks: the configured ones, those that cannot run, and earlier failures.

use std::collections::BTreeMap;

use super::super::facts::hooks::{BrokenHook, HookObstacle};
use super::super::facts::store::HookLog;
use super::super::finding::Finding;
use super::super::{ConfiguredHook, ResolvedConfig};
use super::settings::unread_note;
use crate::config::format_duration;
use crate::hooks::HookHandler;
use crate::text::counted;

/// Reports the configured hooks, and those that cannot run.
pub fn check_hooks(config: &ResolvedConfig, broken: &[BrokenHook]) -> Vec<Finding> {
    let mut counts = BTreeMap::new();
    for hook in &config.hooks {
        *counts.entry(hook.handler.event.name()).or_insert(0_usize) += 1;
    }
    let all: Vec<String> = counts.iter().map(|(event, count)| format!("{event} {count}")).collect();
    let all = match (all.is_empty(), config.hooks_off) {
        (true, _) => "none is configured".to_owned(),
        (false, true) => format!("switched off (disableAllHooks): {}", all.join(", ")),
        (false, false) => all.join(", "),
    };
    let line = |hook: &ConfiguredHook| {
        let HookHandler { event, timeout, source, .. } = &hook.handler;
        format!("{}: at most {} ({source})", event.name(), format_duration(*timeout))
    };
    let all = all + &unread_note(config);
    let mut findings = vec![Finding::ok("hooks", all).with(config.hooks.iter().map(line))];
    findings.extend(config.bad_hooks.iter().map(|bad| {
        Finding::warning("hooks", bad, "this hook does not run", "correct or remove it")
    }));
    findings.extend(broken.iter().map(broken_hook_finding));
    findings
}

fn broken_hook_finding(broken: &BrokenHook) -> Finding {
    let BrokenHook { event, program, obstacle, source, guard } = broken;
    let about = |what: &str| format!("the {event} hook of {source} runs {program}, {what}");
    let (what, fix) = match obstacle {
        HookObstacle::Missing => (
            about("which is not there"),
            format!("install {program}, or correct the hook in {source}"),
        ),
        HookObstacle::NotExecutable => (
            about("which may not be run: it is not executable"),
            format!("chmod +x {program}, or correct the hook in {source}"),
        ),
        HookObstacle::NoInterpreter(interpreter) => (
            about(&format!("whose first line wants {interpreter}, which is not there")),
            format!("install {interpreter}, or correct the first line of {program}"),
        ),
        HookObstacle::CarriageReturn => (
            about("whose lines end as on Windows (CR LF), so that it cannot be run"),
            format!("convert it, for example with sed -i 's/\\r$//' {program}"),
        ),
    };
    let why = if *guard {
        "it is a guard (failClosed, onFailure): as it fails, everything that it guards is denied"
    } else {
        "a failed hook is ignored: whatever it would have denied is allowed"
    };
    Finding::problem("hooks", what, why, fix)
}

/// Reports the hooks that failed in earlier runs.
pub fn check_hook_log(log: &HookLog) -> Vec<Finding> {
    let path = log.path.display();
    let mut findings = Vec::new();
    if log.failures > 0 {
        let at_least = if log.partial { "at least " } else { "" };
        let finding = Finding::warning(
            "hook log",
            format!(
                "{at_least}{} of hooks on record, the newest last",
                counted(log.failures, "failure")
            ),
            "a failed hook is ignored",
            format!("read {path}, fix the hooks, and delete it"),
        );
        findings.push(finding.with(log.last.iter().cloned()));
    }
    if let Some(why) = &log.unreadable {
        findings.push(Finding::warning(
            "hook log",
            format!("{path} cannot be read: {why}"),
            "failed hooks go unnoticed",
            format!("see what {path} is, and remove it if it is not your file"),
        ));
    }
    if log.unreadable_lines > 0 {
        findings.push(Finding::warning(
            "hook log",
            format!("{} of {path} cannot be parsed", counted(log.unreadable_lines, "line")),
            "another program writes there, or a write was interrupted",
            format!("see what is in {path}, and delete it"),
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("hook log", "no failures of hooks on record"));
    }
    findings
}
