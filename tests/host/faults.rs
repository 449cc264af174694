//! Faults between a host and outlast: it dies, is silent, writes rubbish, reads slowly.

use std::io::{BufReader, Read, repeat};
use std::time::Duration;

use nix::sys::signal::Signal;
use outlast::host::{HostFrame, HostInput, LINE_BYTES_MAX, read_lines};
use outlast::rehearsal::Scenario;
use serde_json::json;

use super::driver::{FLAGS, HostDriver, conversation, wait_for_requests};
use crate::support::{RunBuilder, is_alive, serve, with_time_limit};

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_line_that_is_no_message_ends_the_session_and_is_named() {
    for line in ["hello", "{\"type\":", "[1]", "{\"a\": 1}", "{\"type\":\"control_request\"}"] {
        let server = serve(Scenario::new().reply("Done."));
        let mut host = HostDriver::start(&server, &[]);
        host.prompt("go").await;
        host.result().await;
        host.send_line(line).await;
        let result = host.result().await;
        assert_eq!((&result["is_error"], &result["exit_code"]), (&json!(true), &json!(1)));
        assert!(
            result["errors"][0].as_str().is_some_and(|it| it.contains("line 2 of")),
            "{result}"
        );
        let (ended, _) = host.end().await;
        assert_eq!(ended.code, Some(1), "{line}");
        assert!(ended.stderr.contains("line 2 of standard input"), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn an_unreadable_line_ends_the_request_that_it_names_and_not_the_session() {
    let server = serve(Scenario::new().reply("Done."));
    let mut host = HostDriver::start(&server, &[]);
    let line = r#"{"type":"control_request","request_id":"odd","request":{"subtype":\x}}"#;
    host.send_line(line).await;
    let reply = host.wait_for_type("control_response").await;
    assert_eq!(reply["response"]["request_id"], "odd");
    let why = reply["response"]["error"].as_str().expect("a reason");
    assert!(why.contains("cannot be read"), "{why}");
    host.send_line(r#"{"type":"user","message":{"role":"user","content":"half \ud83d"}}"#).await;
    assert_eq!(host.result().await["result"], "Done.");
    let sent = conversation(&server.requests()[0].body);
    assert!(sent.contains("half \u{fffd}"), "{sent}");
    assert_eq!(host.end().await.0.code, Some(0));
}

#[test]
fn an_unreadable_reply_of_a_host_is_an_error_of_its_request() {
    let line = r#"{"type":"control_response","response":{"request_id":"r","response":{"a":NaNN}}}"#;
    match outlast::host::parse(line) {
        Ok(HostFrame::Reply { id, reply: Err(why) }) => {
            assert!(id == "r" && why.contains("cannot be read"), "{id}: {why}");
        }
        other => panic!("{other:?}"),
    }
    let deep = format!(r#"{{"type":"keep_alive","a":{}{}}}"#, "[".repeat(900), "]".repeat(900));
    assert_eq!(outlast::host::parse(&deep), Ok(HostFrame::Ignored("keep_alive".to_owned())));
}

#[tokio::test]
async fn a_last_line_without_a_line_feed_counts_if_it_is_complete() {
    let prompt = r#"{"type":"user","message":{"role":"user","content":"go"}}"#;
    let answered = || Scenario::new().reply("Done.").reply("Done.");
    let refused = || Scenario::new().status(403);
    let cut = &prompt[..20];
    // The last line, the number of results, that of answers, and the exit code.
    for (scenario, last, results, answers, code) in [
        (answered(), prompt, 2, 2, 0),
        (answered(), " ", 1, 1, 0),
        (answered(), cut, 2, 1, 1),
        // No result follows that of the error, which the SDKs take for the last message.
        (refused(), cut, 1, 0, 1),
    ] {
        let server = serve(scenario);
        let run = RunBuilder::against(&server);
        let input = format!("printf '%s\\n%s' '{prompt}' '{last}' | \"$@\"");
        let ended = run.args(FLAGS).in_shell(&input).run().await;
        assert_eq!(ended.code, Some(code), "{last:?}: {}", ended.stderr);
        let count = |text: &str| ended.stdout.matches(text).count();
        assert_eq!(count(r#""type":"result""#), results, "{last:?}: {}", ended.stdout);
        assert_eq!(count(r#""result":"Done.""#), answers, "{last:?}");
        let is_named = ended.stderr.contains("line 2 of standard input");
        assert_eq!(is_named, code == 1, "{last:?}: {}", ended.stderr);
    }
}

#[tokio::test]
async fn input_that_asks_for_nothing_is_reported() {
    let misspelt = r#"{"type":"User","message":{"role":"user","content":"go"}}"#;
    let fact = r#"{"type":"user","shouldQuery":false,"message":{"role":"user","content":"go"}}"#;
    let request =
        r#"{"type":"control_request","request_id":"1","request":{"subtype":"interrupt"}}"#;
    for (lines, code, why) in [
        (&[misspelt, misspelt][..], 1, "had no prompt: 2 lines of the types User were ignored"),
        (
            &[r#"{"type":"assistant"}"#, r#"{"type":"keep_alive"}"#],
            1,
            "1 line of the types assistant",
        ),
        (&[fact], 0, "have no effect: no prompt follows them"),
        (&[r#"{"type":"keep_alive"}"#], 0, ""),
        (&[misspelt, request], 0, ""),
        (&[], 0, ""),
    ] {
        let server = serve(Scenario::new());
        let mut host = HostDriver::start(&server, &[]);
        for line in lines {
            host.send_line(line).await;
        }
        let (ended, frames) = host.end().await;
        assert_eq!(ended.code, Some(code), "{lines:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{lines:?}: {}", ended.stderr);
        assert_eq!(ended.stderr.is_empty(), why.is_empty(), "{lines:?}: {}", ended.stderr);
        let told = frames.iter().any(|frame| !why.is_empty() && frame.to_string().contains(why));
        assert_eq!(told, !why.is_empty(), "{lines:?}: {frames:?}");
    }
}

#[tokio::test]
async fn input_that_ends_in_mid_turn_does_not_end_the_turn() {
    let server =
        serve(Scenario::new().tool("Bash", json!({ "command": "echo ok" })).reply("Done."));
    let mut host = HostDriver::start(&server, &[]);
    host.prompt("go").await;
    host.wait_for("init", |frame| frame["subtype"] == "init").await;
    let (ended, frames) = host.end().await;
    assert_eq!(frames.last().expect("a result")["result"], "Done.");
    assert_eq!(ended.code, Some(0));
}

#[tokio::test]
async fn a_host_that_dies_in_mid_turn_ends_the_run_and_its_commands() {
    let command = "echo $$ > pid; exec sleep 3600";
    let server = serve(Scenario::new().tool("Bash", json!({ "command": command })));
    let mut host = HostDriver::start(&server, &[]);
    host.prompt("go").await;
    host.wait_for_type("assistant").await;
    let file = host.process.work().join("pid");
    let pid = with_time_limit("the command's process id", async {
        loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if let Ok(pid) = text.trim().parse() {
                return pid;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let process = host.vanish();
    // The disconnecting SDKs do the same after a while.
    process.signal(Signal::SIGTERM);
    let ended = process.end().await;
    assert_eq!(ended.code, Some(143), "{}", ended.stderr);
    assert!(!is_alive(pid), "the command was left");
}

#[tokio::test]
async fn a_signal_between_turns_ends_the_session_with_its_code() {
    let server = serve(Scenario::new().reply("Done."));
    let mut host = HostDriver::start(&server, &[]);
    host.prompt("go").await;
    host.result().await;
    // Its reply shows that the turn is over.
    host.ask(&json!({ "subtype": "interrupt" })).await;
    host.process.signal(Signal::SIGTERM);
    let ended = host.process.end().await;
    assert_eq!(ended.code, Some(143), "{}", ended.stderr);
}

#[tokio::test]
async fn a_signal_in_a_turn_ends_it_with_a_result() {
    let server = serve(Scenario::new().reply("late").delay(HOUR));
    let mut host = HostDriver::start(&server, &[]);
    host.prompt("go").await;
    host.prompt("and then").await;
    wait_for_requests(&server, 1).await;
    host.process.signal(Signal::SIGTERM);
    let result = host.result().await;
    assert_eq!(result["exit_code"], 143, "{result}");
    assert_eq!(host.next().await, None, "the waiting prompt does not begin");
    assert_eq!(host.process.end().await.code, Some(143));
}

#[tokio::test]
async fn what_prevents_the_start_answers_initialize_and_is_the_result() {
    let server = serve(Scenario::new());
    for flags in [
        &["--continue"][..],
        &["--json-schema", "{\"type\": 5}"],
        &["--mcp-config", "{\"mcpServers\": 3}"],
        &["--result-file", "gone/result.json"],
        &["--last-message-file", "."],
    ] {
        let mut host = HostDriver::start(&server, flags);
        host.request(&json!({ "subtype": "initialize" })).await;
        let reply = host.wait_for_type("control_response").await;
        assert_eq!(reply["response"]["subtype"], "error", "{flags:?}: {reply}");
        let result = host.result().await;
        assert_eq!(result["subtype"], "error_during_execution", "{flags:?}");
        assert_eq!(result["errors"][0], reply["response"]["error"], "{flags:?}");
        let (ended, _) = host.end().await;
        assert_eq!(ended.code, Some(1), "{flags:?}");
    }
}

#[tokio::test]
async fn a_session_that_does_not_exist_is_the_result_instead_of_the_reply() {
    let unknown = "00000000-0000-4000-8000-000000000000";
    let server = serve(Scenario::new());
    let mut host = HostDriver::start(&server, &["--resume", unknown]);
    host.request(&json!({ "subtype": "initialize" })).await;
    let result = host.result().await;
    assert!(result["errors"][0].as_str().expect("a text").contains("was not found"), "{result}");
    let (ended, frames) = host.end().await;
    assert_eq!(ended.code, Some(1));
    assert!(frames.iter().all(|frame| frame["type"] != "control_response"), "{frames:?}");
}

#[tokio::test]
async fn the_second_of_two_hosts_on_one_session_is_told_that_it_is_busy() {
    let server = serve(Scenario::new().reply("1").reply("late").delay(HOUR));
    let id = "6f0a2f52-6f3c-4a8e-9f4e-0f6f5d1c2b3a";
    let first = RunBuilder::against(&server);
    let second = first.in_same_folders(&server);
    let mut first = HostDriver::with(first, &["--session-id", id]);
    first.prompt("one").await;
    first.result().await;
    first.prompt("two").await;
    wait_for_requests(&server, 2).await;
    let mut second = HostDriver::with(second, &["--resume", id]);
    second.prompt("mine").await;
    let result = second.result().await;
    assert_eq!((&result["exit_code"], &result["retryable"]), (&json!(1), &json!(true)), "{result}");
    second.end().await;
    first.request(&json!({ "subtype": "interrupt" })).await;
    assert_eq!(first.result().await["is_error"], true);
    first.end().await;
}

#[tokio::test]
async fn a_prompt_of_ten_megabytes_arrives_whole() {
    let server = serve(Scenario::new().reply("Read."));
    let mut host = HostDriver::start(&server, &["--no-auto-compact"]);
    let long = "0123456789abcdef".repeat(10 << 16);
    host.prompt(&long).await;
    let result = host.result().await;
    assert!(result["is_error"].is_boolean(), "one result, whatever the service says of its size");
    let (ended, frames) = host.end().await;
    assert!(ended.code.is_some());
    assert_eq!(frames.iter().filter(|frame| frame["type"] == "result").count(), 1);
}

#[tokio::test]
async fn a_slow_reader_gets_every_frame_below_one_megabyte() {
    let print = json!({ "command": "head -c 3000000 /dev/zero | tr '\\0' x" });
    let server = serve(Scenario::new().tool("Bash", print).reply("Done."));
    let mut host = HostDriver::start(&server, &["--settings", "{\"maxToolResultChars\": 5000000}"]);
    host.prompt("go").await;
    let (ended, frames) = host.end().await;
    assert_eq!(ended.code, Some(0));
    let longest = frames.iter().map(|frame| frame.to_string().len()).max();
    assert!(longest < Some(1_048_576), "{longest:?}");
}

#[tokio::test]
async fn host_mode_needs_its_output_format_and_no_prompt_on_the_command_line() {
    let server = serve(Scenario::new());
    for (flags, code, remedy) in [
        (&["--input-format", "stream-json"][..], 1, "--output-format stream-json"),
        (
            &["--input-format", "stream-json", "--output-format", "stream-json", "-p", "do it"],
            1,
            "leave out the one on the command line",
        ),
    ] {
        let ended = RunBuilder::against(&server).args(flags).run().await;
        assert_eq!(ended.code, Some(code), "{flags:?}");
        assert!(ended.stderr.contains(remedy), "{}", ended.stderr);
    }
}

/// A line that is cut off by the end of the input is not reported as too long.
#[test]
fn a_line_of_the_maximum_length_without_an_end_is_reported() {
    let read = |bytes: usize| {
        let mut all = Vec::new();
        let input = BufReader::new(repeat(b'x').take(bytes as u64));
        read_lines(input, |line| {
            all.push(line);
            true
        });
        all
    };
    assert!(matches!(read(LINE_BYTES_MAX - 1)[..], [HostInput::CutOff { number: 1 }]));
    assert!(matches!(&read(LINE_BYTES_MAX)[..], [HostInput::Unreadable { number: 1, .. }]));
}
