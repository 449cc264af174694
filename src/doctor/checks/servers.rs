//! Checks whether each MCP server can be connected.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use super::super::facts::servers::{START_MAX, TriedServer};
use super::super::finding::{Finding, FindingCause};
use super::super::{ConfiguredServer, DoctorContext, ResolvedConfig, ServerTransport};
use super::service::is_on_this_machine;
use super::settings::unread_note;
use crate::config::format_duration;
use crate::mcp::ServerStatus;
use crate::process::find_user_program;
use crate::text::counted;

const TOOLS_MISSING: &str = "the tools of this server are missing in every run";

/// Reports each server by its test start, or by its configuration if it was not started. `network`
/// is the cause for which the model services are unreachable. Other servers may be unreachable for
/// the same reason.
pub fn check_servers(
    config: &ResolvedConfig,
    context: &DoctorContext,
    tried: &[TriedServer],
    network: Option<FindingCause>,
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = config
        .bad_servers
        .iter()
        .map(|bad| Finding::problem("mcp", bad, TOOLS_MISSING, "correct or remove the entry"))
        .collect();
    if config.run_unavailable {
        let what = format!("not checked: no run can be set up{}", unread_note(config));
        findings.push(Finding::ok("mcp", what));
        return findings;
    }
    if config.servers.is_empty() && findings.is_empty() {
        return vec![Finding::ok("mcp", "no MCP servers are configured")];
    }
    let variable = |name: &str| config.variables.get(OsStr::new(name)).map(OsString::as_os_str);
    let (path, home) = (variable("PATH").unwrap_or_default(), variable("HOME"));
    findings.extend(config.servers.iter().map(|server| {
        let tried = tried.iter().find(|tried| tried.report.name == server.name);
        let is_missing = is_missing(&server.how, path, &context.cwd, home);
        let finding = check_server(server, tried, is_missing, config.mcp_wait);
        finding.caused_by(network.filter(|_| is_unreached(server, tried)))
    }));
    findings
}

/// True if a server on another machine was tried and not reached.
fn is_unreached(server: &ConfiguredServer, tried: Option<&TriedServer>) -> bool {
    let is_elsewhere = match &server.how {
        ServerTransport::Address(at) => !is_on_this_machine(at),
        ServerTransport::Program(_) | ServerTransport::Host => false,
    };
    let is_down = |tried: &TriedServer| {
        matches!(tried.report.status, ServerStatus::Failed | ServerStatus::Pending)
    };
    is_elsewhere && tried.is_some_and(is_down)
}

fn check_server(
    server: &ConfiguredServer,
    tried: Option<&TriedServer>,
    is_missing: bool,
    run_wait: Duration,
) -> Finding {
    let ConfiguredServer { name, source, how, disabled, login_advice } = server;
    let about = |what: &str| format!("{name} ({source}): {what}");
    if *disabled {
        return Finding::ok("mcp", about("disabled"));
    }
    if let ServerTransport::Program(program) = how
        && is_missing
    {
        return Finding::problem(
            "mcp",
            about(&format!("its program {program} is not there")),
            TOOLS_MISSING,
            format!("install {program}, correct \"command\" in {source}, or take {name} out of it"),
        );
    }
    let Some(TriedServer { report, tools }) = tried else {
        return Finding::ok(
            "mcp",
            about(&match how {
                ServerTransport::Address(at) => format!("at {at}, not tried"),
                ServerTransport::Program(program) => format!("runs {program}, not tried"),
                ServerTransport::Host => "runs in an SDK host, not tried".to_owned(),
            }),
        );
    };
    let silent = format!("it does not answer within {} s", run_wait.min(START_MAX).as_secs_f32());
    let why = report.why.as_deref().unwrap_or(&silent);
    match report.status {
        ServerStatus::Connected => {
            Finding::ok("mcp", about(&format!("connected, {}", counted(*tools, "tool"))))
        }
        ServerStatus::Disabled => Finding::warning(
            "mcp",
            about("it is disabled: another server has the same tool name prefix"),
            TOOLS_MISSING,
            format!("rename it in {source}"),
        ),
        ServerStatus::NeedsAuth => Finding::problem(
            "mcp",
            about(&format!("it requires a login (needs auth): {why}")),
            TOOLS_MISSING,
            format!("a run cannot log in: {login_advice}; it is in {source}"),
        ),
        ServerStatus::Pending if run_wait > START_MAX && report.why.is_none() => Finding::warning(
            "mcp",
            about(&format!(
                "{why}; a run begins without it, and waits {} for it only if it is required \
                 (MCP_TIMEOUT)",
                format_duration(run_wait)
            )),
            "until it answers, its tools are missing in a run",
            remedy(server),
        ),
        ServerStatus::Failed | ServerStatus::Pending => {
            Finding::problem("mcp", about(why), TOOLS_MISSING, remedy(server))
        }
    }
}

fn remedy(server: &ConfiguredServer) -> String {
    let ConfiguredServer { name, source, how, .. } = server;
    match how {
        ServerTransport::Program(program) => format!(
            "start {program} by hand with the arguments and variables of {source} and fix what it \
             reports, or take {name} out of {source}; see MCP_TIMEOUT if it is only slow"
        ),
        ServerTransport::Address(at) => format!(
            "see whether the server at {at} runs and \"url\" and \"headers\" in {source} are right, \
             or take {name} out of it"
        ),
        ServerTransport::Host => {
            format!("start outlast from that host, or take {name} out of {source}")
        }
    }
}

/// Returns true if the program of a server does not exist.
fn is_missing(how: &ServerTransport, path: &OsStr, cwd: &Path, home: Option<&OsStr>) -> bool {
    match how {
        ServerTransport::Address(_) | ServerTransport::Host => false,
        ServerTransport::Program(program) if program.contains('/') => !cwd.join(program).is_file(),
        ServerTransport::Program(program) => find_user_program(program, path, cwd, home).is_none(),
    }
}
