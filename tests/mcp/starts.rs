//! Starts and ends, and every way in which they go wrong.

use std::time::Duration;

use outlast::mcp::{McpTimers, ServerAddress, ServerStatus, Servers};

use super::{McpFixture, long_timers, program, server_environment, unavailable_reason, words};
use crate::support::stopwatch::Stopwatch;
use crate::support::{is_alive, with_time_limit};

#[tokio::test]
async fn a_slow_mcp_server_does_not_delay_the_run_and_joins_later() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let gate = folder.path().join("gate");
    let bench = McpFixture::of(&["late", &gate.display().to_string()]);
    bench.servers.wait_for_starts(Duration::from_millis(200)).await;
    assert_eq!(bench.servers.reports()[0].status, ServerStatus::Pending);
    assert!(bench.servers.tool_definitions().is_empty());
    std::fs::write(&gate, "").expect("a file can be written");
    let bench = bench.ready().await;
    assert!(!bench.servers.tool_definitions().is_empty());
}

#[tokio::test]
async fn a_server_that_crashes_says_why_and_is_tried_again() {
    let bench = McpFixture::of(&["crash"]);
    with_time_limit("the first attempt", bench.servers.wait_for_starts(Duration::from_mins(4)))
        .await;
    let standing = &bench.servers.reports()[0];
    assert_eq!(standing.status, ServerStatus::Pending);
    assert!(
        unavailable_reason(&bench).contains("cannot find my config"),
        "{}",
        unavailable_reason(&bench)
    );
    with_time_limit("the second attempt", async {
        while bench.log().matches("start ").count() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_program_starts_in_the_folder_of_its_entry() {
    let start_in = |name: &'static str| {
        McpFixture::with(&["well"], long_timers(), move |config, folder| {
            std::fs::create_dir(folder.join("tools")).expect("a folder can be made");
            if let ServerAddress::Program { cwd, .. } = &mut config.place {
                *cwd = Some(name.to_owned());
            }
        })
    };
    let bench = start_in("tools").ready().await;
    let folder = words(&bench.call("env", "cwd").await);
    assert!(folder.ends_with("/tools"), "{folder}");
    let bench = start_in("nowhere");
    bench.wait_for_status(ServerStatus::Failed).await;
    let why = unavailable_reason(&bench);
    assert!(why.contains("its \"cwd\"") && why.ends_with("/nowhere is not a folder"), "{why}");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_given_up_at_once() {
    let bench = McpFixture::with(&[], long_timers(), |config, _| {
        let variables = std::collections::BTreeMap::default();
        let (command, arguments) = ("no-such-server".to_owned(), Vec::new());
        config.place = ServerAddress::Program { command, arguments, variables, cwd: None };
    });
    let missing = with_time_limit("the verdict", bench.servers.wait_until_connected(&[]))
        .await
        .expect_err("not there")
        .to_string();
    assert!(missing.contains("no-such-server") && missing.contains("PATH"), "{missing}");
    assert_eq!(bench.servers.reports()[0].status, ServerStatus::Failed);
    let reply = bench.call("echo", "").await;
    assert!(reply.is_error, "{reply:?}");
    let unknown =
        bench.servers.wait_until_connected(&["other".to_owned()]).await.expect_err("unknown");
    let unknown = unknown.to_string();
    assert!(unknown.contains("not configured"), "{unknown}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_waited_for_no_longer_than_its_start_may_take() {
    let short = Duration::from_millis(300);
    let timers = McpTimers { wait: short, start: short, ..McpTimers::default() };
    let bench = McpFixture::with(&["never"], timers, |_, _| {});
    let late = with_time_limit("the verdict", bench.servers.wait_until_connected(&[]))
        .await
        .expect_err("it is late")
        .to_string();
    assert!(late.contains("did not connect in time"), "{late}");
    with_time_limit("the first attempt", bench.servers.wait_for_starts(Duration::from_mins(4)))
        .await;
    assert!(
        unavailable_reason(&bench).contains("did not answer within 0.3 s"),
        "{}",
        unavailable_reason(&bench)
    );
}

/// The whole machine may have been suspended, and the server with it.
#[tokio::test]
async fn time_in_which_the_process_was_stopped_does_not_count_for_the_start_of_a_server() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let gate = folder.path().join("gate");
    let limit = Duration::from_mins(4);
    let timers = McpTimers { wait: limit, start: limit, ..McpTimers::default() };
    let bench = McpFixture::with(&["late", &gate.display().to_string()], timers, |_, _| {});
    let connected = bench.servers.wait_until_connected(&[]);
    tokio::pin!(connected);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut connected).await;
    assert!(early.is_err(), "it waits for the gate");
    tokio::time::pause();
    tokio::time::advance(limit * 2).await;
    tokio::time::resume();
    std::fs::write(&gate, "").expect("a file can be written");
    connected.await.expect("it is connected");
}

#[tokio::test]
async fn garbage_on_an_mcp_connection_is_skipped_up_to_a_limit() {
    let bench = McpFixture::of(&["garbage"]).ready().await;
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    let endless = McpFixture::of(&["yes"]);
    with_time_limit("the first attempt", endless.servers.wait_for_starts(Duration::from_mins(4)))
        .await;
    assert!(
        unavailable_reason(&endless).contains("prints lines that are not messages"),
        "{}",
        unavailable_reason(&endless)
    );
}

#[tokio::test]
async fn one_bad_tool_does_not_take_the_others_with_it() {
    let bench = McpFixture::of(&["badtool"]).ready().await;
    assert!(bench.servers.has_tool("mcp__test__echo"));
    assert!(
        !bench.servers.has_tool("mcp__test__bad") && !bench.servers.has_tool("mcp__test__worse")
    );
    let news = bench.servers.take_warnings().join("\n");
    assert!(news.contains("\"bad\" is left out") && news.contains("\"worse\""), "{news}");
}

#[tokio::test]
async fn servers_start_side_by_side_and_of_two_alike_the_first_counts() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let log = folder.path().join("log");
    let names = ["a.b", "a b", "a_b", "c"];
    let mut configs: Vec<_> = names.map(|name| program(name, &["well"], &log)).into();
    // A disabled server takes no name from another one.
    (configs[0].disabled, configs[3].disabled) = (true, true);
    let servers = Servers::new(configs, server_environment(folder.path()), long_timers());
    servers.start();
    with_time_limit("the servers", servers.wait_until_connected(&["a b".to_owned()]))
        .await
        .expect("it starts");
    let standings: Vec<ServerStatus> = servers.reports().iter().map(|one| one.status).collect();
    assert_eq!(
        standings,
        [
            ServerStatus::Disabled,
            ServerStatus::Connected,
            ServerStatus::Disabled,
            ServerStatus::Disabled
        ]
    );
    // Enabled later, it would.
    assert!(servers.set_enabled("a.b", true).is_err());
    assert!(servers.explain_missing_tool("mcp__a_b__none").is_some_and(|it| it.contains("echo")));
    assert!(servers.has_tool("mcp__a_b__echo"));
    assert!(servers.take_warnings()[0].contains("\"a_b\""));
}

#[tokio::test]
async fn a_server_sees_what_it_is_given_and_where_the_project_is() {
    let bench = McpFixture::of(&["well"]).ready().await;
    let folder = bench.folder.path().display().to_string();
    assert_eq!(words(&bench.call("env", "CLAUDE_PROJECT_DIR").await), folder);
    assert_eq!(words(&bench.call("env", "HOME").await), "None");
}

#[tokio::test]
async fn a_good_server_ends_when_its_input_does() {
    let bench = McpFixture::of(&["well"]).ready().await;
    let began = Stopwatch::start();
    bench.servers.close(Duration::from_secs(20)).await;
    assert!(bench.log().contains("input closed"), "{}", bench.log());
    began.assert_within(Duration::from_secs(10), "its end");
}

#[tokio::test]
async fn an_unresponsive_mcp_server_is_killed_with_its_child_processes() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let pids = folder.path().join("pids");
    let bench = McpFixture::of(&["stubborn", &pids.display().to_string()]).ready().await;
    let listed = with_time_limit("both of them", async {
        loop {
            let text = std::fs::read_to_string(&pids).unwrap_or_default();
            let listed: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
            if listed.len() == 2 {
                break listed;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    bench.servers.close(Duration::from_secs(20)).await;
    with_time_limit("their end", async {
        while listed.iter().any(|pid| is_alive(*pid)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
