//! MCP servers: whether each can be had.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::super::facts::servers::{PATIENCE, Tried};
use super::super::finding::{Finding, counted};
use super::super::{How, Known, Scene, Server};
use super::settings::unread;
use crate::mcp::Status;
use crate::process::find_program;

const LACK: &str = "the tools of this server are not there in any run";

/// Judges each server by its start, or by its looks where nothing was started.
pub fn judge(known: &Known, scene: &Scene, tried: &[Tried]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = known
        .bad_servers
        .iter()
        .map(|bad| Finding::problem("mcp", bad, LACK, "correct the entry, or take it away"))
        .collect();
    if known.unprepared {
        let what = format!("not checked: no run can be put together{}", unread(known));
        findings.push(Finding::ok("mcp", what));
        return findings;
    }
    if known.servers.is_empty() && findings.is_empty() {
        return vec![Finding::ok("mcp", "no MCP servers are configured")];
    }
    let path = known.variables.get(OsStr::new("PATH")).map(OsString::as_os_str);
    findings.extend(known.servers.iter().map(|server| {
        let tried = tried.iter().find(|tried| tried.standing.name == server.name);
        let there = is_there(&server.how, path.unwrap_or_default(), &scene.cwd);
        judge_one(server, tried, there)
    }));
    findings
}

fn judge_one(server: &Server, tried: Option<&Tried>, there: bool) -> Finding {
    let Server { name, source, how, disabled } = server;
    let about = |what: &str| format!("{name} ({source}): {what}");
    if *disabled {
        return Finding::ok("mcp", about("disabled"));
    }
    let missing = match how {
        How::Program(program) if !there => Some(program),
        How::Program(_) | How::Address(_) => None,
    };
    if let Some(program) = missing {
        return Finding::problem(
            "mcp",
            about(&format!("its program {program} is not there")),
            LACK,
            format!("install {program}, correct \"command\" in {source}, or take {name} out of it"),
        );
    }
    let Some(Tried { standing, tools }) = tried else {
        return Finding::ok(
            "mcp",
            about(&match how {
                How::Address(at) => format!("at {at}, not tried"),
                How::Program(program) => format!("runs {program}, not tried"),
            }),
        );
    };
    let silent = format!("it does not answer within {} s", PATIENCE.as_secs());
    let why = standing.why.as_deref().unwrap_or(&silent);
    match standing.status {
        Status::Connected => {
            Finding::ok("mcp", about(&format!("connected, {}", counted(*tools, "tool"))))
        }
        Status::Disabled => Finding::warning(
            "mcp",
            about("it is disabled: the names of its tools would be another server's"),
            LACK,
            format!("rename it in {source}"),
        ),
        Status::NeedsAuth => Finding::problem(
            "mcp",
            about(&format!("it wants a login (needs auth): {why}")),
            LACK,
            format!(
                "nobody is there to log in: put a token into the \"headers\" of {name} in {source}, \
                 for example \"Authorization\": \"Bearer ${{TOKEN}}\""
            ),
        ),
        Status::Failed | Status::Pending => {
            Finding::problem("mcp", about(why), LACK, remedy(server))
        }
    }
}

fn remedy(server: &Server) -> String {
    let Server { name, source, how, .. } = server;
    match how {
        How::Program(program) => format!(
            "start {program} by hand with the arguments and variables of {source} and mend what it \
             says, or take {name} out of {source}; see MCP_TIMEOUT if it is only slow"
        ),
        How::Address(at) => format!(
            "see whether the server at {at} runs and \"url\" and \"headers\" in {source} are right, \
             or take {name} out of it"
        ),
    }
}

fn is_there(how: &How, path: &OsStr, cwd: &Path) -> bool {
    match how {
        How::Address(_) => true,
        How::Program(program) if program.contains('/') => cwd.join(program).is_file(),
        How::Program(program) => find_program(&[program], path, cwd).is_some(),
    }
}
