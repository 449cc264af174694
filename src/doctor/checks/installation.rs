//! Checks the installation: version, path, kind, and shell aliases that shadow the name.

use super::super::DoctorContext;
use super::super::facts::install::{InstallKind, Installation};
use super::super::facts::shell::ShadowingAlias;
use super::super::finding::Finding;
use crate::text::listed;

/// Maximum number of installations that one finding lists.
const NAMED_MAX: usize = 8;

/// Reports the version, path and kind of the installation, and other copies on PATH.
pub fn check_installation(context: &DoctorContext, facts: &Installation) -> Vec<Finding> {
    let mut findings = vec![Finding::ok(
        "version",
        format!(
            "outlast {}, commit {}, called as {:?}",
            context.version, context.commit, context.program_name
        ),
    )];
    if facts.binary.as_os_str().is_empty() {
        findings.push(Finding::warning(
            "installation",
            "the path of this program is unknown",
            "other copies on PATH and updates are not checked",
            "make /proc available",
        ));
        return findings;
    }
    let installed = format!("{} ({})", facts.binary.display(), facts.kind.into_str());
    findings.push(Finding::ok("installation", installed));
    findings.push(check_path(facts));
    findings.push(check_updates(facts));
    findings
}

fn check_path(facts: &Installation) -> Finding {
    let at: Vec<String> = facts.on_path.iter().map(|it| it.path.display().to_string()).collect();
    let this = facts.binary.display();
    let Some(first) = facts.on_path.first() else {
        return Finding::warning(
            "path",
            format!("no outlast is on PATH; this one is {this}"),
            "scripts that call outlast by its name do not find it",
            format!("add its folder to PATH, or call it as {this}"),
        );
    };
    let wins = first.path.display();
    let is_this = first.target == facts.binary;
    if !is_this && !first.is_equal {
        return Finding::problem(
            "path",
            format!("PATH leads to another outlast, {wins}, and not to this one, {this}"),
            "scripts run that one, which is not the same as this one",
            format!("remove {}, or put the folder of {this} first on PATH", listed(&at, NAMED_MAX)),
        )
        .with(links(facts));
    }
    if !is_this {
        return Finding::warning(
            "path",
            format!("PATH leads to an equal outlast, {wins}, and not to this one, {this}"),
            "an update of one of them does not change the other",
            format!("keep one: remove {this} or {wins}"),
        )
        .with(links(facts));
    }
    if at.len() == 1 {
        return Finding::ok("path", format!("PATH leads to this one, by {wins}"));
    }
    let equal = if facts.on_path.iter().all(|it| it.is_equal) { "equal " } else { "" };
    let (count, paths) = (at.len(), listed(&at, NAMED_MAX));
    Finding::warning(
        "path",
        format!("{count} {equal}installations on PATH: {paths}; {wins} wins"),
        "an update of one of them does not change the others",
        format!("keep one, and remove {}", listed(&at[1..], NAMED_MAX)),
    )
    .with(links(facts))
}

/// Returns a line for each copy on PATH that is a link, with its target.
fn links(facts: &Installation) -> impl Iterator<Item = String> {
    let links = facts.on_path.iter().take(NAMED_MAX).filter(|it| it.path != it.target);
    links.map(|it| format!("{} leads to {}", it.path.display(), it.target.display()))
}

/// Reports how to update outlast, which does not update itself.
fn check_updates(facts: &Installation) -> Finding {
    let folder = facts.binary.parent().unwrap_or(&facts.binary).display();
    let how = match facts.kind {
        InstallKind::Development => "rebuild it",
        InstallKind::Cargo => "reinstall it with cargo",
        InstallKind::NpmLocal | InstallKind::NpmGlobal => "update it with npm",
        InstallKind::Native => "put the new binary in its place",
        InstallKind::Deb => "update it with its package manager",
    };
    if facts.writable || facts.kind == InstallKind::Deb {
        return Finding::ok("updates", format!("outlast never updates itself; to update, {how}"));
    }
    Finding::warning(
        "updates",
        format!("{folder} cannot be written to by this user"),
        "an update needs another user's rights",
        format!("as a user who may write there, {how}"),
    )
}

/// Reports aliases and functions that shadow the program `outlast`.
pub fn check_shell(shadows: &[ShadowingAlias]) -> Vec<Finding> {
    let describe = |shadow: &ShadowingAlias| {
        let (file, line) = (shadow.file.display(), shadow.line);
        Finding::warning(
            "shell",
            format!("{file}:{line}: the {} outlast shadows the program", shadow.what),
            "typed in a shell, the name means something else than in a script",
            format!("remove line {line} of {file}, or call the program by its path"),
        )
    };
    if shadows.is_empty() {
        return vec![Finding::ok("shell", "no alias or function shadows outlast")];
    }
    shadows.iter().map(describe).collect()
}
