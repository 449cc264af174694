//! Trials of what definitions of sub-agents say beside prompt and tools: skills, servers, hooks.

use std::fs;
use std::time::Duration;

use outlast::rehearsal::{ReceivedRequest, RehearsalServer, Scenario, StepCondition};
use serde_json::{Value, json};

use super::agents::{of_root, requests, results};
use super::outcomes::agrees;
use super::timeouts::{messages, with};
use crate::mcp::script;
use crate::support::python::python;
use crate::support::scratch::write_file;
use crate::support::{RunBuilder, serve};

fn of_kind(kind: &str) -> StepCondition {
    StepCondition { source: Some(format!("agent:{kind}")), ..StepCondition::default() }
}

fn task(kind: &str) -> Value {
    json!({ "description": "look", "prompt": "Look.", "subagent_type": kind })
}

fn go(server: &RehearsalServer, agents: &Value) -> RunBuilder {
    let agents = agents.to_string();
    RunBuilder::against(server).args(["--output-format", "stream-json", "--agents", &agents, "Go."])
}

fn warnings(ended: &crate::support::FinishedProcess) -> String {
    let frames = messages(ended, "informational");
    let texts = frames.iter().filter_map(|frame| frame["content"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

fn tools(request: &ReceivedRequest, prefix: &str) -> Vec<String> {
    let tools = request.body["tools"].as_array().cloned().unwrap_or_default();
    let names = tools.iter().filter_map(|tool| tool["name"].as_str());
    names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect()
}

#[tokio::test]
async fn skills_of_an_agent_type_are_in_its_prompt_and_unknown_ones_are_named() {
    let agents = json!({ "writer": {
        "description": "writes", "prompt": "You write.", "skills": ["style", "nonesuch"],
    } });
    let scenario = Scenario::new()
        .tool("Agent", task("writer"))
        .when(of_root())
        .reply("Written.")
        .when(of_kind("writer"))
        .reply("Done.")
        .when(of_root());
    let server = serve(scenario);
    let trial = go(&server, &agents);
    let skill = "---\ndescription: how to write\n---\nNo adverbs. See ${CLAUDE_SKILL_DIR}/list.";
    write_file(&trial.config().join("skills/style/SKILL.md"), skill);
    let ended = trial.run().await;
    agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let request = requests(&server, "agent:").remove(0);
    let system = request.body["system"][0]["text"].as_str().expect("a text");
    assert!(system.starts_with("You write.\n\nThe skill style, whose files are in "), "{system}");
    assert!(system.contains("No adverbs. See /"), "{system}");
    let warnings = warnings(&ended);
    assert!(warnings.contains("the skill \"nonesuch\" is left out"), "{warnings}");
}

#[tokio::test]
async fn hooks_of_an_agent_type_run_only_for_that_type() {
    let hook = json!({ "type": "command", "command": "echo not by you >&2; exit 2" });
    let stop = json!({ "type": "command", "command": "echo stopped >> stops" });
    let agents = json!({
        "careful": {
            "description": "asks", "prompt": "You ask.",
            "hooks": {
                "PreToolUse": [{ "matcher": "Bash", "hooks": [hook] }],
                "Stop": [{ "hooks": [stop] }],
            },
        },
        "free": { "description": "does", "prompt": "You do." },
    });
    let bash = |file: &str| json!({ "command": format!("touch {file}") });
    let scenario = Scenario::new()
        .tool("Bash", bash("by-root"))
        .when(of_root())
        .tool("Agent", task("careful"))
        .when(of_root())
        .tool("Bash", bash("by-careful"))
        .when(of_kind("careful"))
        .reply("I may not.")
        .when(of_kind("careful"))
        .tool("Agent", task("free"))
        .when(of_root())
        .tool("Bash", bash("by-free"))
        .when(of_kind("free"))
        .reply("I did.")
        .when(of_kind("free"))
        .reply("Done.")
        .when(of_root());
    let server = serve(scenario);
    let ended = go(&server, &agents).run().await;
    agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let made = |file: &str| ended.work().join(file).exists();
    assert_eq!((made("by-root"), made("by-careful"), made("by-free")), (true, false, true));
    let refused = requests(&server, "agent:careful").pop().expect("it asked twice");
    assert!(results(&refused)[0].0.contains("not by you"), "{:?}", results(&refused));
    let stops = fs::read_to_string(ended.work().join("stops")).expect("it was heard of its end");
    assert_eq!(stops, "stopped\n", "once, for the one agent");
}

#[tokio::test]
async fn an_agent_type_and_its_sub_agents_have_the_servers_that_it_names() {
    let server_of = |name: &str| {
        (
            name.to_owned(),
            json!({
                "command": python(), "args": ["-S", script(), "well"],
            }),
        )
    };
    let servers: serde_json::Map<String, Value> =
        ["one", "two"].map(server_of).into_iter().collect();
    let config = json!({ "mcpServers": servers }).to_string();
    let agents = json!({
        "narrow": { "description": "one", "prompt": "One.", "mcpServers": ["one"] },
        "wide": { "description": "two", "prompt": "Two.", "tools": ["Read", "mcp__two"] },
        "inline": { "description": "x", "prompt": "X.", "mcpServers": [{ "x": { "url": "y" } }] },
    });
    let scenario = Scenario::new()
        .tool("Agent", task("narrow"))
        .when(of_root())
        .tool("Agent", task("wide"))
        .when(of_kind("narrow"))
        .reply("Nothing.")
        .when(of_kind("wide"))
        .reply("Nothing.")
        .when(of_kind("narrow"))
        .reply("Done.")
        .when(of_root());
    let server = serve(scenario);
    let ended = go(&server, &agents).args(["--mcp-config", &config]).run().await;
    agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let narrow = requests(&server, "agent:narrow").remove(0);
    assert!(!tools(&narrow, "mcp__one__").is_empty(), "it has what it names");
    assert_eq!(tools(&narrow, "mcp__two__"), [""; 0], "and nothing else of servers");
    assert!(!tools(&narrow, "Bash").is_empty(), "what is built in is another matter");
    let wide = requests(&server, "agent:wide").remove(0);
    assert_eq!(tools(&wide, "mcp__"), [""; 0], "an agent cannot pass on a server that it lacks");
    let warnings = warnings(&ended);
    assert!(warnings.contains("\"inline\": mcpServers: only names"), "{warnings}");
}

#[tokio::test]
async fn ineffective_fields_of_an_agent_definition_are_named_once() {
    let agents = json!({ "old": {
        "description": "x", "prompt": "X.", "color": "red", "memory": "user", "effort": "high",
        "isolation": "worktree", "initialPrompt": "Begin.",
    } });
    let server = serve(Scenario::new().reply("Done."));
    let ended = go(&server, &agents).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let warnings = warnings(&ended);
    let line = "\"old\": memory, isolation, initialPrompt: not supported for agents";
    assert_eq!(warnings.matches(line).count(), 1, "{warnings}");
    assert!(!warnings.contains("color"), "it changes nothing of note: {warnings}");
    let wrong = json!({ "bad": { "description": "x", "prompt": "X.", "hooks": { "Stop": 7 } } });
    let ended = go(&server, &wrong).run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("\"bad\": hooks.Stop: must be a list"), "{}", ended.stderr);
    let one = "\"one\": {\"description\": \"x\", \"prompt\": \"X.\"}";
    let flags = ["--agents", &format!("{{{one}, {one}}}"), "Go."];
    let ended = RunBuilder::against(&server).args(flags).run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("\"one\" is defined twice"), "{}", ended.stderr);
}

#[tokio::test]
async fn the_sub_agent_prompt_suffix_applies_to_sub_agents_only() {
    let scenario = Scenario::new()
        .tool("Agent", task("general-purpose"))
        .when(of_root())
        .reply("I see.")
        .when(of_kind("general-purpose"))
        .reply("Done.")
        .when(of_root());
    let server = serve(scenario);
    let words = "Answer in Latin.";
    let flags = ["--append-subagent-system-prompt", words];
    let ended = go(&server, &json!({})).args(flags).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let system = |request: &ReceivedRequest| request.body["system"].to_string();
    assert!(system(&requests(&server, "agent:")[0]).contains(words));
    assert!(!system(&requests(&server, "main")[0]).contains(words));
}

/// With one permit for three agents, the one that releases it has to wait for the other two.
#[tokio::test]
async fn a_background_agent_type_does_not_take_the_permit_of_its_parent() {
    let agents = json!({ "helper": {
        "description": "helps", "prompt": "You help.", "background": true,
    } });
    let outer = |name: &str| {
        let mut input = task("general-purpose");
        input["prompt"] = json!(format!("Be {name}."));
        input
    };
    let of_outer =
        |name: &str| StepCondition { prompt: Some(name.to_owned()), ..of_kind("general-purpose") };
    let mut scenario = Scenario::new()
        .tool("Agent", outer("one"))
        .and_tool("Agent", outer("two"))
        .when(of_root())
        .reply("Helped.")
        .when(of_kind("helper"))
        .times(2)
        .reply("All done.")
        .when(of_root());
    for name in ["one", "two"] {
        scenario = scenario
            .tool("Agent", task("helper"))
            .when(of_outer(name))
            // Time for the other one to stand in line.
            .delay(Duration::from_millis(400))
            .reply("Done.")
            .when(of_outer(name))
            .times(3);
    }
    let server = serve(scenario);
    let trial = with(go(&server, &agents), &json!({ "maxLiveAgents": 1 }));
    let ended = trial.run().await;
    agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let asked = requests(&server, "agent:");
    let who = |request: &ReceivedRequest| request.body["messages"][0]["content"].to_string();
    assert_eq!(who(&asked[0]), who(&asked[1]), "it goes on at once");
}
