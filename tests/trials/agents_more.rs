//! Trials of sub-agents in odd company: what is not there, too much of it, or all at once.

use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::agents::{bash, go, in_background, of_agent, of_root, requests, results, task};
use super::outcomes::agrees;
use super::requirements::fails_as;
use super::timeouts::{messages, with};
use crate::support::{FinishedProcess, RunBuilder, serve};

/// The results of the run itself, as the last request of it has them.
fn told(server: &RehearsalServer) -> Vec<(String, bool)> {
    let last = requests(server, "main").pop().expect("it asked");
    results(&last)
}

fn words_within(ended: &FinishedProcess) -> Vec<String> {
    let frames = ended.frames();
    let within = frames.iter().filter(|frame| frame["parent_tool_use_id"].is_string());
    let blocks = within.filter(|frame| frame["type"] == "assistant");
    let kind = |frame: &Value| frame["message"]["content"][0]["type"].as_str().map(str::to_owned);
    blocks.filter_map(kind).collect()
}

#[tokio::test]
async fn sub_agent_messages_are_forwarded_only_when_requested() {
    let scenario = || {
        Scenario::new()
            .tool("Agent", task("the part"))
            .when(of_root())
            .tool("Bash", bash("true"))
            .and_thinking("Let me see.")
            .when(of_agent("the part"))
            .reply("It is so.")
            .when(of_agent("the part"))
            .reply("Done.")
            .when(of_root())
    };
    let server = serve(scenario());
    let quiet = go(&server).run().await;
    agrees(&quiet);
    assert_eq!(words_within(&quiet), ["tool_use"]);
    let server = serve(scenario());
    let ended = go(&server).args(["--forward-subagent-text"]).run().await;
    agrees(&ended);
    let mut words = words_within(&ended);
    words.sort();
    assert_eq!(words, ["text", "thinking", "tool_use"]);
    let frames = ended.frames();
    let call = messages(&ended, "task_started").remove(0)["tool_use_id"].clone();
    let text = frames.iter().find(|frame| frame["message"]["content"][0]["text"] == "It is so.");
    assert_eq!(text.map(|frame| &frame["parent_tool_use_id"]), Some(&call), "{frames:?}");
    let wrong = RunBuilder::against(&server).args(["--forward-subagent-text", "Go."]).run().await;
    assert_eq!(wrong.code, Some(2), "without frames there is nothing to forward to");
}

#[tokio::test]
async fn rate_limits_reduce_the_number_of_concurrent_agents() {
    let mut scenario = Scenario::new().tool("Agent", task("part 0")).when(of_root());
    for part in 1..4 {
        scenario = scenario.and_tool("Agent", task(&format!("part {part}")));
    }
    let scenario = scenario
        .status(529)
        .when(of_agent("part"))
        .reply("Done.")
        .when(of_agent("part"))
        .times(4)
        .reply("All done.")
        .when(of_root());
    let server = serve(scenario);
    let settings = json!({ "maxLiveAgents": 4, "retryFirstDelay": "1ms" });
    let ended = with(go(&server), &settings).run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("All done.")), "{ended:?}");
    let remarks: Vec<String> = messages(&ended, "informational")
        .iter()
        .filter_map(|frame| frame["content"].as_str().map(str::to_owned))
        .filter(|text| text.starts_with("agents at work at a time"))
        .collect();
    assert_eq!(remarks[0], "agents at work at a time: 2 instead of 4 (server_overload)");
    assert_eq!(remarks.get(1).map(String::as_str), Some("agents at work at a time: 3 again"));
}

#[tokio::test]
async fn long_sub_agent_reports_are_truncated_and_kept_in_files() {
    let mut scenario = Scenario::new()
        .tool("Agent", task("part 0"))
        .and_tool("Agent", task("part 1"))
        .and_tool("Agent", task("part 2"))
        .when(of_root());
    for part in 0..3 {
        let long = format!("{part} is long. {}", "word ".repeat(40_000));
        scenario = scenario.reply(&long).when(of_agent(&format!("part {part}")));
    }
    let server = serve(scenario.reply("I see.").when(of_root()));
    let ended = go(&server).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = told(&server);
    assert_eq!(told.len(), 3);
    for (part, (text, is_error)) in told.iter().enumerate() {
        assert!(!is_error && text.starts_with(&format!("{part} is long.")), "{part}");
        assert!(text.len() < 32_000, "{part}: {} bytes", text.len());
        let path = text.split_whitespace().find(|word| word.starts_with('/'));
        let path = path.map(|path| path.trim_end_matches([']', '.', ',', ';'])).expect("a path");
        let whole = std::fs::read_to_string(path).expect("it is kept whole");
        assert!(whole.len() >= 200_000, "{part}: {} bytes in {path}", whole.len());
    }
}

#[tokio::test]
async fn a_sub_agent_model_without_a_price_is_refused_only_under_a_budget() {
    let mut input = task("the part");
    input["model"] = json!("nonesuch-1");
    let begin = || Scenario::new().tool("Agent", input.clone()).when(of_root());
    let server = serve(begin().reply("I see.").when(of_root()));
    let ended = go(&server).args(["--max-budget-usd", "5"]).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (text, is_error) = told(&server).remove(0);
    assert!(
        is_error && text.contains("no price is known") && text.contains("nonesuch-1"),
        "{text}"
    );
    assert_eq!(result["agents"], Value::Null, "none was started");
    let server = serve(begin().reply("Fine.").when_model("nonesuch-1").reply("I see."));
    let ended = go(&server).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(told(&server), [("Fine.".to_owned(), false)]);
}

#[tokio::test]
async fn default_price_and_window_apply_to_sub_agent_models() {
    let mut input = task("the part");
    input["model"] = json!("nonesuch-1");
    let scenario = Scenario::new()
        .tool("Agent", input)
        .when(of_root())
        .reply("Fine.")
        .usage(10_000, 1_000)
        .when_model("nonesuch-1")
        .reply("I see.")
        .when(of_root());
    let server = serve(scenario);
    let flags = ["--max-budget-usd", "5", "--price", "100/1000", "--context-window", "64k"];
    let ended = go(&server).args(flags).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(told(&server), [("Fine.".to_owned(), false)]);
    assert_eq!(result["agents"][0]["cost_usd"], 2.0, "{result}");
    assert_eq!(result["modelUsage"]["nonesuch-1"]["contextWindow"], 64_000, "{result}");
}

#[tokio::test]
async fn an_unaffordable_sub_agent_retry_is_reported_and_final() {
    let mut again = task("the part");
    again["on_failure"] = json!("retry_once");
    let scenario = Scenario::new()
        .tool("Agent", again)
        .usage(1_000, 100)
        .when(of_root())
        .tool("Bash", bash("true"))
        .usage(60_000, 6_000)
        .when(of_agent("the part"))
        .status(500)
        .when(of_agent("the part"))
        .tool("Bash", bash("true"))
        .usage(60_000, 6_000)
        .when(of_agent("the part"))
        .times(50)
        .reply("I see.")
        .when(of_root());
    let server = serve(scenario);
    let flags = ["--max-retries", "0", "--max-budget-usd", "1.5"];
    let ended = go(&server).args(flags).run().await;
    let result = ended.result();
    let agents = result["agents"].as_array().expect("agents");
    assert_eq!(agents.len(), 2, "{result}");
    assert_eq!((&agents[1]["retries"], &agents[1]["status"]), (&json!("a1"), &json!("failed")));
    assert_eq!(agents[1]["reason"], "max_budget_usd", "{result}");
    assert!(result["budget"]["spent_usd"].as_f64().is_some_and(|spent| spent <= 1.5), "{result}");
}

#[tokio::test]
async fn a_permanent_sub_agent_failure_is_not_retried() {
    let mut again = task("the part");
    again["on_failure"] = json!("retry_once");
    let scenario = Scenario::new()
        .tool("Agent", again)
        .when(of_root())
        .status(401)
        .when(of_agent("the part"))
        .times(2)
        .reply("I see.")
        .when(of_root());
    let server = serve(scenario);
    let ended = go(&server).run().await;
    let result = agrees(&ended);
    assert_eq!(result["agents"].as_array().map(Vec::len), Some(1), "{result}");
    let (text, _) = told(&server).remove(0);
    assert!(text.contains("cannot be fixed from within the run"), "{text}");
}

#[tokio::test]
async fn a_sibling_that_finished_before_the_failure_keeps_its_result() {
    let mut cancels = task("this one fails");
    cancels["on_failure"] = json!("cancel_siblings");
    let scenario = Scenario::new()
        .tool("Agent", cancels)
        .and_tool("Agent", task("this one is done"))
        .and_tool("Agent", task("this one is slow"))
        .when(of_root())
        .tool("Bash", bash("echo on > meeting"))
        .when(of_agent("one is done"))
        .reply("All of it is done.")
        .when(of_agent("one is done"))
        .tool("Bash", bash("read word < meeting"))
        .when(of_agent("one fails"))
        .status(529)
        .delay(Duration::from_secs(3))
        .when(of_agent("one fails"))
        .reply("Too late.")
        .delay(Duration::from_mins(5))
        .when(of_agent("is slow"))
        .reply("I see.")
        .when(of_root());
    let server = serve(scenario);
    let trial = go(&server).args(["--max-retries", "0"]);
    let pipe = trial.work().join("meeting");
    mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe can be made");
    let ended = trial.run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = told(&server);
    assert_eq!(told[1], ("All of it is done.".to_owned(), false));
    assert!(told[0].1 && told[2].1, "{told:?}");
    let agents = result["agents"].as_array().expect("agents");
    let stands: Vec<&str> = agents.iter().filter_map(|agent| agent["status"].as_str()).collect();
    assert_eq!(stands, ["failed", "completed", "stopped"]);
}

#[tokio::test]
async fn a_background_agent_cannot_cancel_its_siblings() {
    let mut input = in_background("the part");
    input["on_failure"] = json!("cancel_siblings");
    let scenario = Scenario::new().tool("Agent", input).reply("I see.");
    let server = serve(scenario);
    let ended = go(&server).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (text, is_error) = told(&server).remove(0);
    assert!(is_error && text.contains("cancel_siblings"), "{text}");
}

#[tokio::test]
async fn an_unknown_agent_id_is_answered_with_the_known_ones() {
    let scenario = Scenario::new()
        .tool("Agent", in_background("the part"))
        .when(of_root())
        .tool("BashOutput", json!({ "bash_id": "a9" }))
        .and_tool("KillShell", json!({ "shell_id": "a7" }))
        .when(of_root())
        .reply("Done.")
        .when(of_agent("the part"))
        .reply("I see.")
        .when(of_root())
        .times(3);
    let server = serve(scenario);
    let ended = go(&server).run().await;
    agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let all: Vec<(String, bool)> = requests(&server, "main").iter().flat_map(results).collect();
    for id in ["a9", "a7"] {
        let found = all.iter().any(|(text, is_error)| {
            *is_error && text.contains(&format!("{id:?}")) && text.contains("- a1 (agent")
        });
        assert!(found, "{id}: {all:?}");
    }
}

/// Whichever ends first, the run waits for the other and reports nothing twice.
#[tokio::test]
async fn a_background_agent_that_ends_with_the_run_is_reported_or_waited_for() {
    for _ in 0..4 {
        let scenario = Scenario::new()
            .tool("Agent", in_background("the part"))
            .when(of_root())
            .reply("Done.")
            .when(of_root())
            .times(3)
            .reply("The answer is 42.")
            .when(of_agent("the part"));
        let server = serve(scenario);
        let ended = go(&server).run().await;
        let result = agrees(&ended);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(result["agents"][0]["status"], "completed", "{result}");
        let last = requests(&server, "main").pop().expect("it asked");
        let body = last.body["messages"].to_string();
        assert_eq!(body.matches("The answer is 42.").count(), 1, "{body}");
    }
}

#[tokio::test]
async fn an_agent_blocked_by_a_stop_hook_reports_the_objection() {
    let scenario = Scenario::new()
        .tool("Agent", task("the part"))
        .when(of_root())
        .reply("I am done.")
        .when(of_agent("the part"))
        .times(3)
        .reply("I see.")
        .when(of_root());
    let server = serve(scenario);
    let hook = json!({ "type": "command", "command": "echo the changelog is missing >&2; exit 2" });
    let settings = json!({ "hooks": { "SubagentStop": [{ "hooks": [hook] }] } });
    let ended = with(go(&server), &settings).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(result["agents"][0]["reason"], "stop_hook_blocked", "{result}");
    let (text, is_error) = told(&server).remove(0);
    assert!(is_error && text.contains("The hook said: the changelog is missing"), "{text}");
}

#[tokio::test]
async fn a_denied_agent_call_beside_another_ends_the_run_before_either_begins() {
    let mut denied = task("the denied one");
    denied["subagent_type"] = json!("general-purpose");
    let scenario = Scenario::new()
        .tool("Agent", task("the other one"))
        .and_tool("Agent", denied)
        .when(of_root());
    let server = serve(scenario);
    let flags = ["--disallowed-tools", "Agent(general-purpose)", "--on-denied", "fail"];
    let ended = go(&server).args(flags).run().await;
    fails_as(&ended, 9, "denied");
    assert_eq!(requests(&server, "agent:").len(), 0);
}
