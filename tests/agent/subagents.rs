//! Effects of a definition on its sub-agent: its prompt, tools, model, turns and permissions.

use outlast::agent::Delegation;
use outlast::recovery::StopReason;
use outlast::rehearsal::{ReceivedRequest, Scenario, StepCondition};
use outlast::tools::{AgentDefinition, PermissionMode};
use serde_json::{Value, json};

use super::run_fixture::RunFixture;

fn reviewer() -> AgentDefinition {
    AgentDefinition {
        name: "reviewer".to_owned(),
        description: "reads and judges".to_owned(),
        prompt: "You review what others wrote.".to_owned(),
        ..AgentDefinition::default()
    }
}

fn of_agent() -> StepCondition {
    StepCondition { source: Some("agent:reviewer".to_owned()), ..StepCondition::default() }
}

/// A call of the reviewer, and what it does then.
fn scenario(call: Value) -> Scenario {
    let mut input =
        json!({ "description": "look", "prompt": "Look.", "subagent_type": "reviewer" });
    if let (Some(input), Value::Object(more)) = (input.as_object_mut(), call) {
        input.extend(more);
    }
    Scenario::new().tool("Agent", input)
}

fn play(definition: AgentDefinition, scenario: Scenario) -> RunFixture {
    let mut play = RunFixture::of(scenario);
    play.setup.agents = vec![definition];
    play.setup.delegation =
        Delegation { facts: "Facts of this run".to_owned(), ..Delegation::default() };
    play
}

fn names(request: &ReceivedRequest) -> Vec<String> {
    let tools = request.body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect()
}

fn asked_by_agent(requests: &[ReceivedRequest]) -> &ReceivedRequest {
    let by_agent =
        |one: &&ReceivedRequest| one.header("x-outlast-source") == Some("agent:reviewer");
    requests.iter().find(by_agent).expect("the agent asked")
}

/// Other models may be permitted.
#[tokio::test]
async fn a_forbidden_model_of_an_agent_is_no_rejected_credential() {
    for (status, class, advice) in [
        (403, "permission_error", "name another model, or none."),
        (404, "not_found_error", "name another model, or none."),
        (401, "authentication_error", "cannot be fixed from within the run."),
    ] {
        let definition = AgentDefinition { model: Some("haiku".to_owned()), ..reviewer() };
        let script = scenario(json!({})).status(status).error(class, "no access", None);
        let played = play(definition, script.when(of_agent()).times(9).reply("Done.")).run().await;
        let (is_error, text) = played.results().remove(0);
        assert!(is_error && text.contains(advice), "{status}: {text}");
    }
}

#[tokio::test]
async fn an_agent_definition_sets_prompt_tools_model_and_turns() {
    let definition = AgentDefinition {
        tools: Some(vec!["Read".to_owned(), "Glob".to_owned(), "Grep".to_owned()]),
        disallowed_tools: vec!["Grep".to_owned()],
        model: Some("haiku".to_owned()),
        max_turns: Some(1),
        ..reviewer()
    };
    let script = scenario(json!({}))
        .tool("Glob", json!({ "pattern": "*.rs" }))
        .when(of_agent())
        .reply("It ran out.");
    let played = play(definition, script).run().await;
    played.assert_no_warnings_or_repairs();
    assert_eq!(played.ending.reason, StopReason::Completed);
    let requests = played.server.requests();
    let request = asked_by_agent(&requests);
    let system = request.body["system"][0]["text"].as_str().expect("a text");
    assert_eq!(system, "You review what others wrote.\n\nFacts of this run");
    assert_eq!(names(request), ["Read", "Glob"]);
    assert_eq!(request.model(), "claude-haiku-5-5");
    let (is_error, text) = played.results().remove(0);
    assert!(is_error && text.contains("Stop reason: max_turns."), "{text}");
    assert_eq!(played.ending.agents[0].usage.turns, 1);
    assert!(names(&requests[0]).contains(&"Agent".to_owned()));
}

#[tokio::test]
async fn a_subagent_turn_limit_never_exceeds_its_parents_limit() {
    for (own, of_run, turns) in
        [(Some(9), Some(2), 2), (Some(2), Some(9), 2), (None, Some(2), 2), (Some(2), None, 2)]
    {
        let definition = AgentDefinition { max_turns: own, ..reviewer() };
        let script = scenario(json!({}))
            .tool("Glob", json!({ "pattern": "*.rs" }))
            .when(of_agent())
            .times(4)
            .reply("It ran out.");
        let mut play = play(definition, script);
        play.setup.limits.budgets.turns = of_run;
        let played = play.run().await;
        assert_eq!(played.ending.agents[0].usage.turns, turns, "{own:?} under {of_run:?}");
    }
}

#[tokio::test]
async fn subagent_model_precedence_is_environment_then_call_then_definition() {
    let definition = || AgentDefinition { model: Some("haiku".to_owned()), ..reviewer() };
    let script =
        || scenario(json!({ "model": "opus" })).reply("Done.").when(of_agent()).reply("Done.");
    let played = play(definition(), script()).run().await;
    assert_eq!(asked_by_agent(&played.server.requests()).model(), "claude-opus-5-5");
    let mut forced = play(definition(), script());
    forced.setup.delegation.model = Some("claude-fable-5-1".to_owned());
    let played = forced.run().await;
    assert_eq!(asked_by_agent(&played.server.requests()).model(), "claude-fable-5-1");
}

#[tokio::test]
async fn an_agent_definition_can_narrow_permissions_but_never_widen_them() {
    let plans = AgentDefinition { permission_mode: Some(PermissionMode::Plan), ..reviewer() };
    let writes = json!({ "file_path": "new.txt", "content": "x" });
    let script = scenario(json!({}))
        .tool("Write", writes.clone())
        .when(of_agent())
        .reply("Done.")
        .when(of_agent())
        .reply("Done.");
    let played = play(plans, script).run().await;
    assert!(!played.folder.path().join("new.txt").exists(), "it only plans");
    assert_eq!(played.ending.stats.denials.len(), 1, "and the run says what was denied");
}

#[tokio::test]
async fn an_agent_has_exactly_the_tools_that_it_lists() {
    for tools in [&["Bash"][..], &["Bash", "BashOutput"], &["Read", "KillShell"], &["Grep"]] {
        let listed = tools.iter().map(|name| (*name).to_owned()).collect();
        let definition = AgentDefinition { tools: Some(listed), ..reviewer() };
        let script = scenario(json!({})).reply("Seen.").when(of_agent()).reply("Done.");
        let played = play(definition, script).run().await;
        let requests = played.server.requests();
        let mut offered = names(asked_by_agent(&requests));
        offered.sort_unstable();
        let mut wanted = tools.to_vec();
        wanted.sort_unstable();
        assert_eq!(offered, wanted);
    }
}

#[tokio::test]
async fn an_agent_with_unknown_tools_is_not_started() {
    let definition = AgentDefinition { tools: Some(vec!["Telepathy".to_owned()]), ..reviewer() };
    let played = play(definition, scenario(json!({})).reply("I see.")).run().await;
    played.assert_no_warnings_or_repairs();
    let (is_error, text) = played.results().remove(0);
    assert!(is_error && text.contains("Telepathy"), "{text}");
    assert_eq!(played.ending.agents, []);
}
