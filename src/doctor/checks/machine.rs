//! The process, the kernel, and whoever waits for us.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::super::Scene;
use super::super::facts::machine::Machine;
use super::super::finding::Finding;

/// CI systems: name, the variable that gives them away, and what they do about silence.
const SYSTEMS: [(&str, &str, &str); 7] = [
    ("GitHub Actions", "GITHUB_ACTIONS", "it sets no limit on silence; a job may take 6 hours"),
    (
        "GitLab CI",
        "GITLAB_CI",
        "it sets no limit on silence; a job may take 1 hour unless set \
        otherwise",
    ),
    ("CircleCI", "CIRCLECI", "it ends a job after 10 minutes without output"),
    ("Jenkins", "JENKINS_URL", "it ends a step whose log stands still for 5 minutes"),
    ("Buildkite", "BUILDKITE", "it sets no limit on silence"),
    ("Azure Pipelines", "TF_BUILD", "it sets no limit on silence; a job may take 1 hour"),
    ("Travis CI", "TRAVIS", "it ends a job after 10 minutes without output"),
];

/// Fewer open files are not enough for a server or two and a few commands.
const OPEN_FILES_MIN: u64 = 256;

/// Files that may not grow beyond this cut journals and logs off, in bytes.
const FILE_SIZE_MIN: u64 = 100 << 20;

/// Less address space does not hold the threads and what they read, in bytes.
const ADDRESSES_MIN: u64 = 1 << 30;

/// Sandbox, limits, terminals, CI.
pub fn judge(machine: &Machine, scene: &Scene) -> Vec<Finding> {
    let mut findings = vec![sandbox(machine)];
    findings.extend(limits(machine));
    let kinds = ["standard input", "standard output", "standard error"];
    let terminals: Vec<&str> = kinds
        .into_iter()
        .zip(machine.terminals)
        .filter(|(_, is)| *is)
        .map(|(kind, _)| kind)
        .collect();
    let terminals = if terminals.is_empty() { "none".to_owned() } else { terminals.join(", ") };
    findings.push(Finding::ok("terminals", terminals));
    findings.push(ci(&scene.variables));
    findings
}

/// Which CI system this is.
pub fn ci(variables: &BTreeMap<OsString, OsString>) -> Finding {
    let says_yes = |name: &str| {
        let value = variables.get(OsStr::new(name)).map(|value| value.to_ascii_lowercase());
        value.is_some_and(|value| {
            !["", "0", "false", "no", "off"].map(OsStr::new).contains(&&*value)
        })
    };
    let beats = "outlast says something at least every 30 s while it waits";
    match SYSTEMS.iter().find(|(_, variable, _)| says_yes(variable)) {
        Some((name, variable, silence)) => {
            Finding::ok("ci", format!("{name} ({variable} is set): {silence}; {beats}"))
        }
        None if says_yes("CI") => {
            Finding::ok("ci", format!("an unknown CI system (CI is set); {beats}"))
        }
        None => Finding::ok("ci", "none detected"),
    }
}

fn sandbox(machine: &Machine) -> Finding {
    let abi = machine.landlock;
    if abi == 0 {
        return Finding::warning(
            "sandbox",
            "no sandbox: this kernel has no Landlock that works",
            "commands may write wherever this user may, and read credentials",
            "use Linux 5.13 or later with Landlock turned on and not forbidden by the container, or \
             run in a container or a virtual machine of its own",
        );
    }
    let tcp = if machine.holds_tcp { "files and TCP" } else { "files" };
    if machine.holds_files {
        return Finding::ok("sandbox", format!("Landlock, version {abi}, holds {tcp}"));
    }
    Finding::warning(
        "sandbox",
        format!("Landlock is only of version {abi}"),
        "commands can empty files that they may not write to",
        "use Linux 6.2 or later",
    )
}

fn limits(machine: &Machine) -> Vec<Finding> {
    let low = |name: &str, value: Option<u64>, least: u64, why: &str| {
        let value = value.filter(|value| *value < least)?;
        Some(Finding::warning(
            "ulimit",
            format!("{name} is only {value}"),
            why,
            format!("raise it to {least} or more before outlast is started"),
        ))
    };
    let mut findings: Vec<Finding> = [
        low(
            "ulimit -n (open files)",
            machine.open_files,
            OPEN_FILES_MIN,
            "connections, files and commands fail when there are several at a time",
        ),
        low(
            "ulimit -f (size of files, in bytes)",
            machine.file_size,
            FILE_SIZE_MIN,
            "journals and what commands write are cut off there",
        ),
        low(
            "ulimit -v (address space, in bytes)",
            machine.address_space,
            ADDRESSES_MIN,
            "outlast and its commands may run out of memory",
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    if let Some(limit) = machine.processor {
        findings.push(Finding::warning(
            "ulimit",
            format!("ulimit -t (processor time) is {} s", limit.as_secs()),
            "the system ends the run once it has used so much",
            "use --max-duration for a limit on time, and lift this one",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("ulimit", "no limit of the process is unusually low"));
    }
    findings
}

/// Whether commands can be started and looked after.
pub fn keeper(failed: Option<&str>) -> Vec<Finding> {
    vec![match failed {
        None => Finding::ok("commands", "commands can be started, and are looked after"),
        Some(why) => Finding::problem(
            "commands",
            format!("no command can be started: {why}"),
            "every tool that runs a command fails",
            "see whether /bin/sh is there, /proc is mounted, and the limit on processes (ulimit -u) \
             is not used up",
        ),
    }]
}
