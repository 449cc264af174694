//! Checks the process, the kernel, and the CI system.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use super::super::facts::machine::{MachineFacts, ResourceLimits, TempFolderProblem};
use super::super::finding::{Finding, format_bytes};
use crate::config::format_duration;

/// A CI system.
#[derive(Clone, Copy)]
struct CiSystem {
    name: &'static str,
    /// The variable that identifies the system.
    variable: &'static str,
    /// Maximum time without output that it accepts.
    silence_max: Option<Duration>,
    /// Its policy on time without output and on the time of a job, after "it".
    policy: &'static str,
}

impl CiSystem {
    const fn new(name: &'static str, variable: &'static str, policy: &'static str) -> Self {
        Self { name, variable, silence_max: None, policy }
    }

    const fn ends_after(self, silence_max: Duration) -> Self {
        Self { silence_max: Some(silence_max), ..self }
    }
}

const CI_SYSTEMS: [CiSystem; 12] = [
    CiSystem::new(
        "GitHub Actions",
        "GITHUB_ACTIONS",
        "sets no limit on silence; a job may take 6 hours",
    ),
    CiSystem::new(
        "GitLab CI",
        "GITLAB_CI",
        "sets no limit on silence; a job may take 1 hour unless set otherwise",
    ),
    CiSystem::new("CircleCI", "CIRCLECI", "ends a job after 10 minutes without output")
        .ends_after(Duration::from_mins(10)),
    CiSystem::new("Jenkins", "JENKINS_URL", "ends a step whose log stands still for 5 minutes")
        .ends_after(Duration::from_mins(5)),
    CiSystem::new("Buildkite", "BUILDKITE", "sets no limit on silence"),
    CiSystem::new("Azure Pipelines", "TF_BUILD", "sets no limit on silence; a job may take 1 hour"),
    CiSystem::new("Travis CI", "TRAVIS", "ends a job after 10 minutes without output")
        .ends_after(Duration::from_mins(10)),
    CiSystem::new(
        "Bitbucket Pipelines",
        "BITBUCKET_BUILD_NUMBER",
        "sets no limit on silence; a step may take 2 hours",
    ),
    CiSystem::new("TeamCity", "TEAMCITY_VERSION", "may call a silent build hung"),
    CiSystem::new("AppVeyor", "APPVEYOR", "sets no limit on silence; a job may take 1 hour"),
    CiSystem::new("Drone", "DRONE", "sets no limit on silence; a build may take 1 hour"),
    CiSystem::new(
        "AWS CodeBuild",
        "CODEBUILD_BUILD_ID",
        "sets no limit on silence; a build may take 1 hour",
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
    let streams = ["standard input", "standard output", "standard error"];
    let terminals = streams.into_iter().zip(machine.terminals);
    let terminals: Vec<&str> =
        terminals.filter_map(|(stream, is_terminal)| is_terminal.then_some(stream)).collect();
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
    findings.extend(machine.temporary.problem.map(|problem| match problem {
        TempFolderProblem::Missing => Finding::problem(
            "temporary",
            format!("the folder for temporary files, {at}, is not there"),
            "commands that need temporary files fail",
            format!("make it, or {elsewhere}"),
        ),
        TempFolderProblem::Unwritable => Finding::problem(
            "temporary",
            format!("the folder for temporary files, {at}, cannot be written to by this user"),
            "commands that need temporary files fail",
            format!("give this user the right to write there, or {elsewhere}"),
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
    let is_on = |name: &str| {
        let value = variables.get(OsStr::new(name)).map(|value| value.to_ascii_lowercase());
        value.is_some_and(|value| {
            !["", "0", "false", "no", "off"].map(OsStr::new).contains(&&*value)
        })
    };
    let interval = format_duration(heartbeat);
    let heartbeats = format!("outlast prints a line at least every {interval} while it waits");
    let system = CI_SYSTEMS.into_iter().find(|system| is_on(system.variable));
    let Some(CiSystem { name, variable, silence_max, policy }) = system else {
        let what = if is_on("CI") {
            format!("an unknown CI system (CI is set); {heartbeats}")
        } else {
            "none detected".to_owned()
        };
        return Finding::ok("ci", what);
    };
    let what = format!("{name} ({variable} is set): it {policy}; {heartbeats}");
    if silence_max.is_some_and(|silence_max| heartbeat >= silence_max) {
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
    if !machine.restricts_files {
        return Finding::warning(
            "sandbox",
            format!("Landlock has only version {abi}"),
            "no command runs without a permission rule; those with one can empty files that they may \
             not write to",
            "use Linux 6.2 or later",
        );
    }
    if !machine.filters_system_calls {
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
    let mut findings = Vec::new();
    let mut check =
        |name: &str, value: Option<u64>, minimum, show: fn(u64) -> String, why: &str| {
            findings.extend(value.filter(|value| *value < minimum).map(|value| {
                let what = format!("{name} is only {}", show(value));
                let fix =
                    format!("raise it to {} or more before outlast is started", show(minimum));
                Finding::warning("ulimit", what, why, fix)
            }));
        };
    let number: fn(u64) -> String = |number| number.to_string();
    let ResourceLimits { open_files, processes, file_size, address_space, processor } = limits;
    let why = "connections, files and commands fail when there are several at a time";
    check("ulimit -n (open files)", open_files, OPEN_FILES_MIN, number, why);
    let why = "commands that start others fail";
    check("ulimit -u (processes)", processes, PROCESSES_MIN, number, why);
    let why = "journals and files that commands write are cut off there";
    check("ulimit -f (size of files)", file_size, FILE_SIZE_MIN, format_bytes, why);
    let why = "outlast and its commands may run out of memory";
    check("ulimit -v (address space)", address_space, ADDRESSES_MIN, format_bytes, why);
    if let Some(limit) = processor {
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
    let why = "commands with arrays, {1..3}, [[ ]] or <(...) fail";
    let fix = "install bash, for example with apk add bash";
    warning.into_iter().map(|what| Finding::warning("commands", what, why, fix)).collect()
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
