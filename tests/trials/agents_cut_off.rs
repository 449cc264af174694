//! Sub-agents that are cut off: known work is reported, unknown outcomes are named, and their cost
//! is counted.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use super::agents::{bash, go, in_background, of_agent, of_root, requests, results, task};
use super::outcomes::agrees;
use super::requirements::{fails_as, told};
use super::timeouts::{messages, with};
use crate::support::{FifoSignal, RunBuilder, serve};

/// Meets [`MEETS`], and never ends.
const STUCK: &str = "echo on > meeting; exec sleep 1000";

/// Waits until [`STUCK`] runs.
const MEETS: &str = "read word < meeting";

/// Rings, and never ends.
const RINGS: &str = "echo on > bell; exec sleep 1000";

fn meeting(work: &Path) {
    mkfifo(&work.join("meeting"), Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe can be made");
}

#[tokio::test]
async fn a_command_cut_off_with_its_agent_is_reported_as_outcome_unknown() {
    let mut cancels = task("this one fails");
    cancels["on_failure"] = json!("cancel_siblings");
    let scenario = Scenario::new()
        .tool("Agent", cancels)
        .and_tool("Agent", task("this one is stuck"))
        .when(of_root())
        .tool("Bash", bash("echo first"))
        .and_text("I begin.")
        .when(of_agent("is stuck"))
        .tool("Bash", bash(STUCK))
        .when(of_agent("is stuck"))
        .tool("Bash", bash(MEETS))
        .when(of_agent("one fails"))
        .status(529)
        .when(of_agent("one fails"))
        .reply("I see.")
        .when(of_root());
    let server = serve(scenario);
    let trial = go(&server).args(["--max-retries", "0"]);
    meeting(&trial.work());
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let last = requests(&server, "main").pop().expect("it asked");
    let (text, is_error) = results(&last).remove(1);
    assert!(is_error, "{text}");
    let unknown = format!("Bash `{STUCK}` was running when it ended: outcome unknown");
    for part in [unknown.as_str(), "- Bash: echo first", "I begin.", "was stopped from outside"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains(&format!("Bash: {STUCK}")), "it did not finish: {text}");
    let (text, _) = results(&last).remove(0);
    assert!(!text.contains("outcome unknown"), "what came to its end is not unknown: {text}");
}

#[tokio::test]
async fn a_denial_in_a_background_agent_ends_the_run_at_once() {
    let begin = || {
        Scenario::new()
            .tool("Agent", in_background("the part"))
            .and_tool("Bash", bash(STUCK))
            .when(of_root())
            .tool("Bash", bash(MEETS))
            .when(of_agent("the part"))
            .tool("Bash", bash("rm kept"))
            .when(of_agent("the part"))
    };
    let asks = Scenario::new()
        .tool("Agent", in_background("the part"))
        .when(of_root())
        .reply("Too late.")
        .when(of_root())
        .delay(Duration::from_mins(5))
        .tool("Bash", bash("rm kept"))
        .when(of_agent("the part"));
    for (busy_with, scenario) in [("a command", begin()), ("the model", asks)] {
        let server = serve(scenario);
        let trial = go(&server).args(["--disallowed-tools", "Bash(rm *)", "--on-denied", "fail"]);
        meeting(&trial.work());
        let ended = trial.run().await;
        let result = fails_as(&ended, 9, "denied");
        let took = result["duration_ms"].as_u64().expect("a number");
        assert!(took < 20_000, "{busy_with}: {took} ms");
        let denial = &result["permission_denials"][0];
        assert_eq!(denial["tool_input"]["command"], "rm kept", "{busy_with}: {result}");
        let why = denial["reason"].as_str().expect("a reason");
        assert!(why.contains("Bash(rm *)"), "{busy_with}: {why}");
        let agent = &result["agents"][0];
        assert_eq!((&agent["status"], &agent["reason"]), (&json!("failed"), &json!("denied")));
    }
}

#[tokio::test]
async fn the_cost_of_a_cut_off_agent_is_listed_and_included_in_the_total() {
    let scenario = Scenario::new()
        .tool("Agent", in_background("never"))
        .usage(1_000, 100)
        .when(of_root())
        .reply("It works.")
        .usage(1_000, 100)
        .when(of_root())
        .times(2)
        .tool("Bash", bash("true"))
        .usage(2_000, 200)
        .when(of_agent("never"))
        .reply("Never.")
        .when(of_agent("never"))
        .delay(Duration::from_mins(5));
    let server = serve(scenario);
    let trial = with(go(&server), &json!({ "backgroundWait": "1s" }));
    let ended = trial.args(["--max-budget-usd", "5"]).run().await;
    let result = fails_as(&ended, 9, "background_pending");
    let money = |value: &Value| value.as_f64().expect("money");
    let (agent, budget) = (&result["agents"][0], &result["budget"]);
    assert!(money(&agent["cost_usd"]) > 0.0, "its first call is settled: {agent}");
    assert_eq!(agent["unsettled_usd"], 0.0, "its second was not answered: {agent}");
    let total = money(&result["total_cost_usd"]);
    assert_eq!(result["total_cost_usd"], budget["spent_usd"], "{result}");
    assert!(money(&agent["cost_usd"]) < total, "the run itself cost something: {result}");
    assert_eq!(agent["num_turns"], 1, "{agent}");
}

#[tokio::test]
async fn agents_killed_with_their_run_are_reported_as_lost() {
    let mut scenario = Scenario::new()
        .tool("Agent", task("part 0"))
        .and_tool("Agent", task("part 1"))
        .and_tool("Agent", task("part 2"))
        .usage(1_000, 100)
        .when(of_root());
    for part in 0..3 {
        let task = format!("part {part}");
        scenario = scenario
            .tool("Bash", bash(&format!("echo finished {part}")))
            .usage(1_000, 1_000)
            .when(of_agent(&task))
            .tool("Bash", bash(RINGS))
            .usage(1_000, 1_000)
            .when(of_agent(&task));
    }
    let server = serve(scenario);
    let trial = RunBuilder::against(&server).args(["--max-budget-usd", "5", "Go."]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    for _ in 0..3 {
        bell.wait_for_line().await;
    }
    running.signal(Signal::SIGKILL);
    let ended = running.end().await;
    let next = serve(Scenario::new().reply("I see.").usage(1_000, 100));
    let again = ended.again(&next.base_url());
    let flags = ["--output-format", "stream-json", "--max-budget-usd", "5", "--continue"];
    let ended = again.args(flags).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let last = requests(&next, "main").pop().expect("it asked");
    let told = results(&last);
    assert_eq!(told.len(), 3, "{told:?}");
    let unknown = format!("Bash `{RINGS}` was running when it ended: outcome unknown");
    for (text, is_error) in &told {
        assert!(*is_error && text.contains(&unknown), "{text}");
        assert!(text.contains("- Bash: echo finished"), "{text}");
    }
    let agents = result["agents"].as_array().expect("agents");
    assert_eq!(agents.len(), 3, "{result}");
    assert!(agents.iter().all(|agent| agent["status"] == "lost"), "{result}");
    assert!(agents.iter().all(|agent| agent["num_turns"] == 2), "{result}");
    assert!(agents.iter().all(|agent| agent["model"].is_string()), "{result}");
    let of_agents: f64 = agents.iter().filter_map(|agent| agent["cost_usd"].as_f64()).sum();
    let total = result["total_cost_usd"].as_f64().expect("money");
    assert!(of_agents > 0.0 && of_agents < total, "{of_agents} of {total}");
    assert_eq!(messages(&ended, "task_notification").len(), 3);
}

#[tokio::test]
async fn a_killed_background_agent_reports_its_finished_work() {
    let scenario = Scenario::new()
        .tool("Agent", in_background("the part"))
        .when(of_root())
        .tool("Bash", bash("echo first"))
        .and_text("Half of it is done.")
        .when(of_agent("the part"))
        .tool("Bash", bash(RINGS))
        .when(of_agent("the part"))
        .reply("It works.")
        .when(of_root())
        .delay(Duration::from_millis(10))
        .times(2);
    let server = serve(scenario);
    let trial = RunBuilder::against(&server).args(["Go."]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    bell.wait_for_line().await;
    running.signal(Signal::SIGKILL);
    let ended = running.end().await;
    let next = serve(Scenario::new().reply("I see."));
    let ended = ended.again(&next.base_url()).args(["--continue"]).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let words = told(&next, 1);
    let unknown = format!("Bash `{RINGS}` was running when it ended: outcome unknown");
    for part in ["- a1 (`agent: a part`)", "Bash: echo first", &unknown, "Half of it is done."] {
        assert!(words.contains(part), "no {part:?} in {words}");
    }
    let agent = &result["agents"][0];
    assert_eq!((&agent["status"], &agent["background"]), (&json!("lost"), &json!(true)));
}
