//! Settings files, limits, hooks and servers.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::super::facts::store::HookLog;
use super::super::finding::Finding;
use super::super::{How, Known, Scene, Server};
use crate::process::find_program;

/// Files, mistakes, what has no effect, and what is in force.
pub fn judge(known: &Known) -> Vec<Finding> {
    let seen = |(path, state): &(String, &str)| format!("{path} ({state})");
    let files: Vec<String> = known.files.iter().map(seen).collect();
    let files = if files.is_empty() { "none is read".to_owned() } else { files.join(", ") };
    let mut findings = vec![Finding::ok("settings", files)];
    findings.extend(known.mistakes.iter().map(|mistake| {
        Finding::problem(
            "settings",
            mistake,
            "every run ends with exit code 2 before anything is sent",
            "correct it there; outlast(1) lists every setting and variable",
        )
    }));
    findings.extend(known.warnings.iter().map(|warning| {
        Finding::warning(
            "settings",
            warning,
            "what somebody counts on does not happen",
            "take it away, or see SETTINGS and TRUST in outlast(1)",
        )
    }));
    if !known.ignored.is_empty() {
        findings.push(Finding::warning(
            "trust",
            format!("ignored settings of the repository: {}", known.ignored.join(", ")),
            "the repository is not trusted, so that its settings can only forbid",
            "if you trust it, run with --trust-project, or name it in trustedProjects of your own \
             settings",
        ));
    }
    if !known.limits.is_empty() {
        let shown = |(name, value, origin): &(String, String, String)| match origin.as_str() {
            "default" => format!("{name} {value}"),
            _ => format!("{name} {value} ({origin})"),
        };
        let all: Vec<String> = known.limits.iter().map(shown).collect();
        findings.push(Finding::ok("limits", all.join(", ")));
    }
    findings
}

/// Hooks, and those that failed.
pub fn hooks(known: &Known, log: &HookLog) -> Vec<Finding> {
    let shown = |(event, count): &(String, usize)| format!("{event} {count}");
    let all: Vec<String> = known.hooks.iter().map(shown).collect();
    let all = if all.is_empty() { "none is configured".to_owned() } else { all.join(", ") };
    let mut findings = vec![Finding::ok("hooks", all)];
    findings.extend(known.bad_hooks.iter().map(|bad| {
        Finding::warning("hooks", bad, "this hook does not run", "correct it, or take it away")
    }));
    if log.failures > 0 {
        let (count, path) = (log.failures, log.path.display());
        findings.push(Finding::warning(
            "hook log",
            format!("{count} failures of hooks are told in {path}"),
            "a hook that fails counts as one that is not there",
            format!("read {path}, mend the hooks, and delete it"),
        ));
    } else {
        findings.push(Finding::ok("hook log", "no failures of hooks on record"));
    }
    findings
}

/// The servers that are configured, and whether their programs are there.
pub fn servers(known: &Known, scene: &Scene) -> Vec<Finding> {
    if known.servers.is_empty() {
        return vec![Finding::ok("mcp", "no MCP servers are configured")];
    }
    let path = scene.variables.get(OsStr::new("PATH")).map(OsString::as_os_str);
    known
        .servers
        .iter()
        .map(|server| judge_server(server, path.unwrap_or_default(), scene))
        .collect()
}

fn judge_server(server: &Server, path: &OsStr, scene: &Scene) -> Finding {
    let Server { name, source, how } = server;
    let wrong = |what: String, fix: String| {
        let why = "the tools of this server are not there in any run";
        Finding::warning("mcp", format!("{name} ({source}): {what}"), why, fix)
    };
    match how {
        How::Address(at) => Finding::ok("mcp", format!("{name} ({source}): at {at}, not tried")),
        How::Program(program) if is_there(program, path, &scene.cwd) => {
            Finding::ok("mcp", format!("{name} ({source}): runs {program}, not tried"))
        }
        How::Program(program) => wrong(
            format!("its program {program} is not there"),
            format!("install {program}, correct \"command\" in {source}, or take {name} out of it"),
        ),
        How::Wrong(why) => wrong(why.clone(), format!("correct {source}")),
    }
}

fn is_there(program: &str, path: &OsStr, cwd: &Path) -> bool {
    if program.contains('/') {
        cwd.join(program).is_file()
    } else {
        find_program(&[program], path, Path::new("/nonexistent")).is_some()
    }
}
