//! MCP servers that several runs of one process share.

use std::sync::Arc;

use outlast::agent::{self, Observer, RunEvent, Setup};
use outlast::mcp::{ServerStatus, Servers};
use outlast::recovery::StopReason;
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::run_fixture::RunFixture;
use crate::mcp::host::{HostServer, host_servers};
use crate::mcp::{long_timers, program_servers};
use crate::support::with_time_limit;

/// Records the status of the servers at the beginning of a run.
#[derive(Default)]
struct InitRecord(Vec<ServerStatus>);

impl Observer for InitRecord {
    fn observe(&mut self, event: &RunEvent) {
        if let RunEvent::Init(init) = event {
            self.0.extend(init.servers.iter().map(|server| server.status));
        }
    }
}

/// Does three runs, of which the last one closes the servers.
async fn run_three_times(servers: &Arc<Servers>, check: impl Fn(bool)) {
    for (number, keep_servers) in [(1, true), (2, true), (3, false)] {
        let call = Scenario::new().tool("mcp__test__echo", json!({ "text": "hi" })).reply("Done.");
        let fixture = RunFixture::of(call);
        let setup = Setup { servers: Arc::clone(servers), keep_servers, ..fixture.setup };
        let (mut record, (_interrupter, interrupts)) =
            (InitRecord::default(), watch::channel(None));
        let run = Box::pin(agent::run(setup, &mut record, interrupts));
        let outcome = with_time_limit("the run", run).await;
        assert_eq!(outcome.reason, StopReason::Completed);
        assert_eq!(record.0, [ServerStatus::Connected], "run {number}");
        let stats = servers.stats();
        assert_eq!((stats.calls, stats.failed, stats.reconnects), (number, 0, 0));
        check(keep_servers);
    }
}

#[tokio::test]
async fn servers_of_a_host_that_are_kept_serve_the_next_run() {
    let host = HostServer::new().host();
    let (servers, _folder) = host_servers(Arc::clone(&host), long_timers());
    let servers = Arc::new(servers);
    let notice = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    let is_open = |kept| assert_eq!(servers.deliver("test", notice.clone()), kept);
    run_three_times(&servers, is_open).await;
    let is_first = |request: &&Value| request["message"]["method"] == "initialize";
    assert_eq!(host.requests().iter().filter(is_first).count(), 1);
}

#[tokio::test]
async fn programs_that_are_kept_serve_the_next_run() {
    let (servers, folder) = program_servers();
    let log = folder.path().join("log");
    let is_open = |kept| {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        assert_eq!((log.matches("start ").count(), !log.contains("input closed")), (1, kept));
    };
    run_three_times(&Arc::new(servers), is_open).await;
}
