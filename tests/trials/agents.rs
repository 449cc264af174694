//! Trials of sub-agents: what comes back from them, what they may cost, and how many there may be.

use std::time::Duration;

use outlast::rehearsal::{
    AfterLast, FaultPosition, ReceivedRequest, RehearsalServer, Scenario, ScriptedFaultKind,
    StepCondition,
};
use serde_json::{Value, json};

use super::outcomes::agrees;
use super::requirements::{asked, fails_as};
use super::timeouts::{messages, with};
use crate::support::requests::blocks;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// For requests of sub-agents whose task contains a text.
pub(super) fn of_agent(task: &str) -> StepCondition {
    StepCondition {
        source: Some("agent:*".to_owned()),
        prompt: Some(task.to_owned()),
        ..StepCondition::default()
    }
}

/// For requests of the run itself.
pub(super) fn of_root() -> StepCondition {
    StepCondition { source: Some("main".to_owned()), ..StepCondition::default() }
}

/// The input of a call.
pub(super) fn task(prompt: &str) -> Value {
    json!({ "description": "a part", "prompt": prompt, "subagent_type": "general-purpose" })
}

/// The input of a call in the background.
pub(super) fn in_background(prompt: &str) -> Value {
    let mut input = task(prompt);
    input["run_in_background"] = json!(true);
    input
}

/// The input of a command.
pub(super) fn bash(command: &str) -> Value {
    json!({ "command": command })
}

/// The results that a request holds, with whether each is an error.
pub(super) fn results(request: &ReceivedRequest) -> Vec<(String, bool)> {
    let word = |block: &Value| -> String {
        let texts = block["content"].as_array().into_iter().flatten();
        let whole = block["content"].as_str();
        texts.filter_map(|one| one["text"].as_str()).chain(whole).collect()
    };
    let is_error = |block: &Value| block["is_error"].as_bool().unwrap_or_default();
    blocks(request, "tool_result").iter().map(|block| (word(block), is_error(block))).collect()
}

/// The requests of the run itself, or of its sub-agents.
pub(super) fn requests(server: &RehearsalServer, source: &str) -> Vec<ReceivedRequest> {
    let mut requests = server.requests();
    requests.retain(|one| one.header("x-outlast-source").is_some_and(|it| it.starts_with(source)));
    requests
}

fn agents(result: &Value) -> Vec<Value> {
    result["agents"].as_array().cloned().unwrap_or_default()
}

pub(super) fn go(server: &RehearsalServer) -> RunBuilder {
    RunBuilder::against(server).args(["--output-format", "stream-json", "Go."])
}

#[tokio::test]
async fn two_agents_of_a_reply_run_concurrently_and_return_their_final_text() {
    let slow = Duration::from_millis(700);
    let scenario = Scenario::new()
        .tool("Agent", task("part one"))
        .and_tool("Task", task("part two"))
        .when(of_root())
        .tool("Bash", json!({ "command": "echo first" }))
        .when(of_agent("part one"))
        .delay(slow)
        .reply("One is done.")
        .when(of_agent("part one"))
        .reply("Two is done.")
        .when(of_agent("part two"))
        .delay(slow)
        .reply("Both are done.")
        .when(of_root());
    let server = serve(scenario);
    let ended = go(&server).run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Both are done.")), "{ended:?}");
    asked(&server, 5);
    let last = requests(&server, "main").pop().expect("it asked");
    let told = [("One is done.".to_owned(), false), ("Two is done.".to_owned(), false)];
    assert_eq!(results(&last), told);
    let agents = agents(&result);
    assert_eq!(agents.len(), 2);
    assert!(agents.iter().all(|agent| agent["status"] == "completed"), "{result}");
    assert_eq!(agents[0]["num_turns"], 2);
    let sum = result["modelUsage"].as_object().and_then(|all| all.values().next().cloned());
    let main = result["usage"]["output_tokens"].as_u64();
    let all = sum.as_ref().and_then(|sum| sum["outputTokens"].as_u64());
    assert!(all > main, "what agents used is in the sums: {result}");
    frames_tell_of_two(&ended);
}

fn frames_tell_of_two(ended: &FinishedProcess) {
    let frames = ended.frames();
    let init = &frames[0];
    assert!(init["tools"].as_array().is_some_and(|all| all.contains(&json!("Task"))), "{init}");
    assert_eq!(init["agents"], json!(["general-purpose"]));
    let started = messages(ended, "task_started");
    assert_eq!(started.len(), 2);
    assert_eq!(started[0]["task_type"], "local_agent");
    assert_eq!(messages(ended, "task_notification").len(), 2);
    let place = |subtype: &str| frames.iter().position(|frame| frame["subtype"] == subtype);
    let last_start = frames.iter().rposition(|frame| frame["subtype"] == "task_started");
    assert!(last_start < place("task_notification"), "one after the other: {frames:?}");
    let inner: Vec<&Value> =
        frames.iter().filter(|frame| frame["parent_tool_use_id"].is_string()).collect();
    assert_eq!(inner.len(), 2, "a call and its result: {inner:?}");
    assert_eq!(inner[0]["parent_tool_use_id"], started[0]["tool_use_id"]);
    assert_eq!(inner[1]["message"]["content"][0]["type"], "tool_result");
}

#[tokio::test]
async fn an_agent_that_fails_returns_its_finished_work() {
    let failures = [
        (Scenario::new().status(401), "invalid_api_key", "401"),
        (Scenario::new().status(529).times(3), "repeated_529", "529"),
        (
            Scenario::new()
                .reply("torn")
                .fault(ScriptedFaultKind::Reset, FaultPosition::Events(3))
                .times(3),
            "connection_error",
            "",
        ),
    ];
    for (failure, class, status) in failures {
        let steps = Scenario::new()
            .tool("Agent", task("the part"))
            .when(of_root())
            .tool("Bash", json!({ "command": "echo finished > finished" }))
            .and_text("I begin.")
            .when(of_agent("the part"));
        let mut scenario = steps;
        for step in failure.main.steps {
            scenario = scenario.step(step).when(of_agent("the part"));
        }
        let server =
            serve(scenario.reply("It failed.").when(of_root()).after(AfterLast::RepeatLast));
        let args = ["--max-retries", "2"];
        let trial = with(go(&server).args(args), &json!({ "retryFirstDelay": "1ms" }));
        let ended = trial.run().await;
        let result = agrees(&ended);
        assert_eq!(ended.code, Some(0), "{class}: {ended:?}");
        let last = requests(&server, "main").pop().expect("it asked");
        let [(text, is_error)] = &results(&last)[..] else { panic!("{class}: one result") };
        assert!(*is_error, "{text}");
        for part in [class, status, "model_error", "subagents/agent-a1", "Cost: $", "I begin."] {
            assert!(text.contains(part), "{class}: no {part:?} in {text}");
        }
        assert!(text.contains("Bash: echo finished"), "{text}");
        let agents = agents(&result);
        assert_eq!(agents[0]["status"], "failed", "{result}");
        assert_eq!(agents[0]["reason"], "model_error");
        assert_eq!(agents[0]["error_class"], class);
        assert_eq!(result["tools"]["failed"], 1);
    }
}

#[tokio::test]
async fn a_denial_in_an_agent_ends_the_run_when_configured() {
    for (choice, code) in [("fail", 9), ("continue", 0)] {
        let scenario = Scenario::new()
            .tool("Agent", task("the part"))
            .when(of_root())
            .tool("Bash", json!({ "command": "rm kept" }))
            .when(of_agent("the part"))
            .reply("I could not.")
            .when(of_agent("the part"))
            .reply("Done.")
            .when(of_root());
        let server = serve(scenario);
        let flags = ["--disallowed-tools", "Bash(rm *)", "--on-denied", choice];
        let ended = go(&server).args(flags).run().await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let result = agrees(&ended);
        assert_eq!(result["permission_denials"][0]["tool_name"], "Bash", "{result}");
        let reason = if code == 0 { "completed" } else { "denied" };
        assert_eq!(result["terminal_reason"], reason, "{result}");
    }
}

#[tokio::test]
async fn an_unknown_agent_type_is_refused_with_the_known_ones() {
    let mut input = task("x");
    input["subagent_type"] = json!("wizard");
    let scenario = Scenario::new().tool("Agent", input).reply("I see.");
    let server = serve(scenario);
    let ended = go(&server).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let last = requests(&server, "main").pop().expect("it asked");
    let (text, is_error) = results(&last).remove(0);
    assert!(is_error && text.contains("\"wizard\"") && text.contains("general-purpose"), "{text}");
}

#[tokio::test]
async fn recursive_agents_are_stopped_by_their_caps() {
    let spawn = || task("start three agents");
    let scenario = Scenario::new()
        .tool("Agent", spawn())
        .and_tool("Agent", spawn())
        .and_tool("Agent", spawn())
        .after(AfterLast::RepeatLast);
    let server = serve(scenario);
    let settings = json!({ "maxAgentDepth": 2, "maxAgents": 9, "loopNoteAt": 2, "loopStopAt": 3 });
    let ended = with(go(&server), &settings).run().await;
    let result = fails_as(&ended, 8, "stalled");
    let agents = agents(&result);
    assert_eq!(agents.len(), 9, "{result}");
    assert!(agents.iter().all(|agent| agent["depth"].as_u64() <= Some(2)), "{result}");
    let told: Vec<String> =
        server.requests().iter().flat_map(results).map(|(text, _)| text).collect();
    assert!(told.iter().any(|text| text.contains("nested 2 deep")), "the depth is said");
    assert!(told.iter().any(|text| text.contains("may start 9 agents")), "the number is said");
}

#[tokio::test]
async fn concurrent_agents_are_capped_and_the_others_queue() {
    let mut scenario = Scenario::new().tool("Agent", task("part 0")).when(of_root());
    for part in 1..4 {
        scenario = scenario.and_tool("Agent", task(&format!("part {part}")));
    }
    let scenario = scenario
        .reply("Done.")
        .when(of_agent("part"))
        .delay(Duration::from_millis(400))
        .times(4)
        .reply("All done.")
        .when(of_root());
    let server = serve(scenario);
    let settings = json!({ "maxLiveAgents": 1, "heartbeatInterval": "0.05s" });
    let ended = with(go(&server), &settings).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let starts: Vec<Duration> = requests(&server, "agent:").iter().map(|one| one.at).collect();
    let gaps = starts.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    assert!(gaps.clone().all(|gap| gap >= Duration::from_millis(400)), "{starts:?}");
    assert!(ended.stderr.contains("waiting for one of 1 slots"), "{}", ended.stderr);
    let beats = messages(&ended, "heartbeat");
    assert!(beats.iter().any(|beat| beat["waiting_for"]["kind"] == "agents"));
}

/// With one place in all, an agent that waits for its own agent leaves it the place.
#[tokio::test]
async fn a_nested_agent_runs_with_a_single_concurrency_permit() {
    let scenario = Scenario::new()
        .tool("Agent", task("outer"))
        .when(of_root())
        .tool("Agent", task("inner"))
        .when(of_agent("outer"))
        .reply("Innermost.")
        .when(of_agent("inner"))
        .reply("Outer.")
        .when(of_agent("outer"))
        .reply("Done.")
        .when(of_root());
    let server = serve(scenario);
    let ended = with(go(&server), &json!({ "maxLiveAgents": 1 })).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    asked(&server, 5);
    let agents = agents(&result);
    assert_eq!((&agents[1]["parent"], &agents[1]["depth"]), (&json!("a1"), &json!(2)));
}

#[tokio::test]
async fn the_budget_is_shared_by_all_agents() {
    let mut scenario = Scenario::new().tool("Agent", task("part 0")).when(of_root());
    for part in 1..6 {
        scenario = scenario.and_tool("Agent", task(&format!("part {part}")));
    }
    let scenario = scenario
        .usage(2_000, 500)
        .tool("Bash", json!({ "command": "echo on" }))
        .usage(2_000, 1_500)
        .when(of_agent("part"))
        .delay(Duration::from_millis(30))
        .times(1_000)
        .tool("Bash", json!({ "command": "echo on" }))
        .when(of_root())
        .after(AfterLast::RepeatLast);
    let server = serve(scenario);
    let ended = go(&server).args(["--max-budget-usd", "0.9"]).run().await;
    let result = fails_as(&ended, 4, "max_budget_usd");
    let spent = result["budget"]["spent_usd"].as_f64().expect("money");
    assert!(spent <= 0.9, "{spent}");
    let of_agents: f64 =
        agents(&result).iter().filter_map(|agent| agent["cost_usd"].as_f64()).sum();
    assert!(of_agents > 0.2 && of_agents <= spent, "{of_agents} of {spent}");
    let usage = result["modelUsage"].as_object().expect("models");
    let by_model: f64 = usage.values().filter_map(|line| line["costUSD"].as_f64()).sum();
    let total = result["total_cost_usd"].as_f64().expect("money");
    assert!((by_model - total).abs() < 1e-9, "{by_model} and {total}");
}

#[tokio::test]
async fn the_call_decides_if_a_failed_agent_stops_siblings_or_is_retried() {
    let mut cancels = task("this one fails");
    cancels["on_failure"] = json!("cancel_siblings");
    let scenario = Scenario::new()
        .tool("Agent", cancels)
        .and_tool("Agent", task("this one is slow"))
        .when(of_root())
        .reply("Too late.")
        .when(of_agent("is slow"))
        .delay(Duration::from_mins(5))
        .status(529)
        .when(of_agent("one fails"))
        .reply("Stopped.")
        .when(of_root());
    let server = serve(scenario);
    let ended = go(&server).args(["--max-retries", "0"]).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let agents_of_first = agents(&result);
    assert_eq!(agents_of_first[0]["status"], "failed");
    assert_eq!(agents_of_first[1]["status"], "stopped");

    let mut again = task("the part");
    again["on_failure"] = json!("retry_once");
    let scenario = Scenario::new()
        .tool("Agent", again)
        .when(of_root())
        .status(529)
        .when(of_agent("the part"))
        .reply("Now it went well.")
        .when(of_agent("the part"))
        .reply("Done.")
        .when(of_root());
    let server = serve(scenario);
    let ended = go(&server).args(["--max-retries", "0"]).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let last = requests(&server, "main").pop().expect("it asked");
    assert_eq!(results(&last), [("Now it went well.".to_owned(), false)]);
    assert_eq!(agents(&result)[1]["retries"], "a1");
}
