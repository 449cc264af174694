//! Checks the process, the kernel, and the CI system.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use super::super::facts::machine::{MachineFacts, ResourceLimits, TempFolderProblem};
use super::super::finding::{Finding, format_bytes};
use crate::config::format_duration;

/// A CI system.
struct CiSystem {
    name: &'static str,
    /// The variable that identifies it.
    variable: &'static str,
    /// Maximum time without output that it accepts. `None`: no limit.
    silence: Option<Duration>,
    /// Its limits on the time without output and on the job's time, in words.
    policy: &'static str,
}

const fn system(
    name: &'static str,
    variable: &'static str,
    silence: Option<u64>,
    custom: &'static str,
) -> CiSystem {
    let silence = match silence {
        Some(minutes) => Some(Duration::from_mins(minutes)),
        None => None,
    };
    CiSystem { name, variable, silence, policy: custom }
}

const SYSTEMS: [CiSystem; 12] = [
    system(
        "GitHub Actions",
        "GITHUB_ACTIONS",
        None,
        "it sets no limit on silence; a job may take 6 hours",
    ),
    system(
        "GitLab CI",
        "GITLAB_CI",
        None,
        "it sets no limit on silence; a job may take 1 hour unless set otherwise",
    ),
    system("CircleCI", "CIRCLECI", Some(10), "it ends a job after 10 minutes without output"),
    system(
        "Jenkins",
        "JENKINS_URL",
        Some(5),
        "it ends a step whose log stands still for 5 minutes",
    ),
    system("Buildkite", "BUILDKITE", None, "it sets no limit on silence"),
    system(
        "Azure Pipelines",
        "TF_BUILD",
        None,
        "it sets no limit on silence; a job may take 1 hour",
    ),
    system("Travis CI", "TRAVIS", Some(10), "it ends a job after 10 minutes without output"),
    system(
        "Bitbucket Pipelines",
        "BITBUCKET_BUILD_NUMBER",
        None,
        "it sets no limit on silence; a step may take 2 hours",
    ),
    system("TeamCity", "TEAMCITY_VERSION", None, "it may call a silent build hung"),
    system("AppVeyor", "APPVEYOR", None, "it sets no limit on silence; a job may take 1 hour"),
    system("Drone", "DRONE", None, "it sets no limit on silence; a build may take 1 hour"),
    system(
        "AWS CodeBuild",
        "CODEBUILD_BUILD_ID",
        None,
        "it sets no limit on silence; a build may take 1 hour",
    ),
];

/// Minimum limit of open files: fewer are not enough for a few servers and commands.
const OPEN_FILES_MIN: u64 = 256;

/// Minimum limit of the file size, in bytes: a lower one would truncate journals and logs.
const FILE_SIZE_MIN: u64 = 100 << 20;

/// Minimum limit of the address space, in bytes: a lower one is not enough for the threads and
/// their buffers.
const ADDRESSES_MIN: u64 = 1 << 30;

/// Minimum limit of processes: fewer are not enough for a build or a test.
const PROCESSES_MIN: u64 = 64;

/// Reports the sandbox, process limits, terminals and folders.
pub fn check_machine(machine: &MachineFacts) -> Vec<Finding> {
    let mut findings = vec![check_sandbox(machine)];
    findings.extend(check_limits(machine.limits));
    let kinds = ["standard input", "standard output", "standard error"];
    let terminals: Vec<&str> = kinds
        .into_iter()
        .zip(machine.terminals)
        .filter(|(_, is)| *is)
        .map(|(kind, _)| kind)
        .collect();
    let terminals = if terminals.is_empty() { "none".to_owned() } else { terminals.join(", ") };
    findings.push(Finding::ok("terminals", terminals));
    findings.extend(check_folders(machine));
    if machine.is_first {
        findings.push(Finding::warning(
            "container",
            "outlast is process 1 of its container",
            "orphaned processes are not reaped, and some signals do not reach it",
            "start the container with an init (docker run --init), or outlast from a shell in it",
        ));
    }
    findings
}

fn check_folders(machine: &MachineFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let at = machine.temporary.path.display();
    let elsewhere = "name another folder in TMPDIR";
    findings.extend(machine.temporary.trouble.map(|trouble| match trouble {
        TempFolderProblem::Missing => Finding::problem(
            "temporary",
            format!("the folder for temporary files, {at}, is not there"),
            "commands that need one fail",
            format!("make it, or {elsewhere}"),
        ),
        TempFolderProblem::Unwritable => Finding::problem(
            "temporary",
            format!("the folder for temporary files, {at}, cannot be written to by this user"),
            "commands that need one fail",
            format!("give this user the right to, or {elsewhere}"),
        ),
        TempFolderProblem::NoExec => Finding::warning(
            "temporary",
            format!("nothing in the folder for temporary files, {at}, may be run (noexec)"),
            "commands that build a program there and run it fail: tests, installers",
            format!("mount it without noexec, or {elsewhere}"),
        ),
    }));
    findings.extend(machine.missing_home.as_ref().map(|home| {
        Finding::warning(
            "environment",
            format!("the home folder, {}, is not there", home.display()),
            "commands and other tools do not find their settings, and may fail to keep any",
            "make it, or set HOME to one that is there",
        )
    }));
    findings.extend(machine.unknown_zone.as_ref().map(|zone| {
        Finding::warning(
            "environment",
            format!("this machine does not know the time zone in TZ, {zone:?}"),
            "times are shown in UTC",
            "install the time zones (package tzdata), or correct TZ",
        )
    }));
    findings
}

/// Reports the CI system, and whether it accepts a time of `heartbeat` without output.
pub fn check_ci(variables: &BTreeMap<OsString, OsString>, heartbeat: Duration) -> Finding {
    let says_yes = |name: &str| {
        let value = variables.get(OsStr::new(name)).map(|value| value.to_ascii_lowercase());
        value.is_some_and(|value| {
            !["", "0", "false", "no", "off"].map(OsStr::new).contains(&&*value)
        })
    };
    let heartbeat_shown = format_duration(heartbeat);
    let beats = format!("outlast prints a line at least every {heartbeat_shown} while it waits");
    let Some(system) = SYSTEMS.iter().find(|system| says_yes(system.variable)) else {
        let what = if says_yes("CI") {
            format!("an unknown CI system (CI is set); {beats}")
        } else {
            "none detected".to_owned()
        };
        return Finding::ok("ci", what);
    };
    let CiSystem { name, variable, silence, policy: custom } = system;
    let what = format!("{name} ({variable} is set): {custom}; {beats}");
    if silence.is_some_and(|silence| heartbeat >= silence) {
        return Finding::problem(
            "ci",
            what,
            "the job is killed while outlast waits, without a reason in its log",
            "shorten the setting heartbeatInterval to 30 s or so",
        );
    }
    Finding::ok("ci", what)
}

fn check_sandbox(machine: &MachineFacts) -> Finding {
    let abi = machine.landlock;
    if abi == 0 {
        return Finding::warning(
            "sandbox",
            "no sandbox: this kernel has no working Landlock",
            "no command runs without a permission rule; those with one may write wherever this user \
             may, and read credentials",
            "use Linux 5.13 or later with Landlock turned on and not forbidden by the container, or \
             run in a container or a virtual machine of its own",
        );
    }
    if !machine.holds_files {
        return Finding::warning(
            "sandbox",
            format!("Landlock has only version {abi}"),
            "no command runs without a permission rule; those with one can empty files that they may \
             not write to",
            "use Linux 6.2 or later",
        );
    }
    if !machine.filters_calls {
        return Finding::warning(
            "sandbox",
            format!("Landlock, version {abi}, restricts files; system calls cannot be filtered"),
            "commands can use the network though it is off, and limit other processes",
            "use a kernel with seccomp, and do not forbid it in the container",
        );
    }
    let what = "restricts files and devices; seccomp restricts the network, other processes and, in \
                read-only, shared memory; arguments of other processes stay readable";
    let lists = match &machine.no_egress {
        None => "commands can be held to a list of hosts".to_owned(),
        Some(missing) => format!("commands cannot be held to a list of hosts: {missing}"),
    };
    Finding::ok("sandbox", format!("Landlock, version {abi}, {what}; {lists}"))
}

fn check_limits(limits: ResourceLimits) -> Vec<Finding> {
    let low = |name: &str, value: Option<u64>, least: u64, show: fn(u64) -> String, why: &str| {
        let value = value.filter(|value| *value < least)?;
        Some(Finding::warning(
            "ulimit",
            format!("{name} is only {}", show(value)),
            why,
            format!("raise it to {} or more before outlast is started", show(least)),
        ))
    };
    let number: fn(u64) -> String = |number| number.to_string();
    let mut findings: Vec<Finding> = [
        low(
            "ulimit -n (open files)",
            limits.open_files,
            OPEN_FILES_MIN,
            number,
            "connections, files and commands fail when there are several at a time",
        ),
        low(
            "ulimit -u (processes)",
            limits.processes,
            PROCESSES_MIN,
            number,
            "commands that start others fail",
        ),
        low(
            "ulimit -f (size of files)",
            limits.file_size,
            FILE_SIZE_MIN,
            format_bytes,
            "journals and what commands write are cut off there",
        ),
        low(
            "ulimit -v (address space)",
            limits.address_space,
            ADDRESSES_MIN,
            format_bytes,
            "outlast and its commands may run out of memory",
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    if let Some(limit) = limits.processor {
        findings.push(Finding::warning(
            "ulimit",
            format!("ulimit -t (processor time) is {}", format_duration(limit)),
            "the system ends the run once it has used that much",
            "use --max-duration for a limit on time, and remove this one",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("ulimit", "no limit of the process is unusually low"));
    }
    findings
}

/// Reports a shell that is not bash.
pub fn check_command_shell(warning: Option<String>) -> Vec<Finding> {
    let report = |what| {
        Finding::warning(
            "commands",
            what,
            "commands with arrays, {1..3}, [[ ]] or <(...) fail",
            "install bash, for example with apk add bash",
        )
    };
    warning.into_iter().map(report).collect()
}

/// Reports whether commands can be started and supervised.
pub fn check_supervisor(failed: Option<&str>) -> Vec<Finding> {
    vec![match failed {
        None => Finding::ok("commands", "commands can be started and supervised"),
        Some(why) => Finding::problem(
            "commands",
            format!("no command can be started: {why}"),
            "every tool that runs a command fails",
            "see whether /bin/sh is there, /proc is mounted, and the limit on processes (ulimit -u) \
             is not used up",
        ),
    }]
}
