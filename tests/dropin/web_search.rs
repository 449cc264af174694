//! The tool `WebSearch`: a request with the search tool of the service.

use outlast::rehearsal::{AfterLast, ReceivedRequest, Scenario};
use serde_json::{Value, json};

use super::Caller;

const PAGE: &str = "https://blog.rust-lang.org/1.95";

/// A reply of the service after one search.
fn found(results: &Value) -> String {
    json!({
        "id": "msg_search", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5",
        "content": [
            { "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
              "input": { "query": "rust 1.95" } },
            { "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": results },
            { "type": "text", "text": "Rust 1.95 is out." },
        ],
        "stop_reason": "end_turn",
        "usage": { "input_tokens": 9000, "output_tokens": 40,
                   "server_tool_use": { "web_search_requests": 1 } },
    })
    .to_string()
}

fn pages() -> Value {
    json!([{ "type": "web_search_result", "url": PAGE, "title": "Announcing Rust 1.95",
             "encrypted_content": "EqgfCioIARgBIiQ3", "page_age": "April 16, 2026" }])
}

fn searching() -> Scenario {
    let domains = ["https://blog.rust-lang.org/", "doc.rust-lang.org"];
    Scenario::new().tool("WebSearch", json!({ "query": "rust 1.95", "allowed_domains": domains }))
}

fn answers(scenario: Scenario, body: &str) -> Scenario {
    scenario.status(200).body("application/json", body)
}

/// The last result of a tool, and whether it is an error.
fn result_of(request: &ReceivedRequest) -> (String, bool) {
    let messages = request.body["messages"].as_array().expect("messages");
    let block = &messages.last().expect("one")["content"][0];
    assert_eq!(block["type"], "tool_result", "{block}");
    (block["content"].to_string(), block["is_error"] == true)
}

#[test]
fn a_search_is_a_request_with_the_tool_of_the_service() {
    let caller = Caller::with(answers(searching(), &found(&pages())).reply("Done."));
    let line = "claude -p hi --allowedTools WebSearch --output-format json";
    let (code, stdout, stderr) = caller.shell(line);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let requests = caller.server().requests();
    assert_eq!(requests.len(), 3);
    let offered = requests[0].body["tools"].as_array().expect("tools").iter();
    assert_eq!(offered.filter(|tool| tool["name"] == "WebSearch").count(), 1);
    let search = &requests[1];
    assert_eq!(search.header("x-outlast-source"), Some("web_search"));
    let mut tools = search.body["tools"].clone();
    tools[0].as_object_mut().expect("a tool").remove("cache_control");
    let tool = json!({
        "type": "web_search_20260318", "name": "web_search", "max_uses": 1,
        "allowed_callers": ["direct"],
        "allowed_domains": ["blog.rust-lang.org", "doc.rust-lang.org"],
    });
    assert_eq!(tools, json!([tool]));
    assert_eq!(search.body["thinking"]["type"], "disabled");
    assert!(search.body["messages"].to_string().contains("rust 1.95"));
    let (text, is_error) = result_of(&requests[2]);
    assert!(!is_error, "{text}");
    for part in ["Rust 1.95 is out.", PAGE, "Announcing Rust 1.95", "April 16, 2026"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("EqgfCioIARgBIiQ3"), "what only the service reads stays out");
    let result: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(result["usage"]["server_tool_use"]["web_search_requests"], 1);
    let model = &result["modelUsage"]["claude-sonnet-5-5"];
    assert_eq!(model["webSearchRequests"], 1, "{model}");
    let cost = result["total_cost_usd"].as_f64().expect("a cost");
    let tokens = |field: &str| model[field].as_f64().expect("a count");
    let of_tokens = tokens("inputTokens") * 2e-6
        + tokens("outputTokens") * 1e-5
        + tokens("cacheReadInputTokens") * 1e-7
        + tokens("cacheCreationInputTokens") * 2.5e-6;
    assert!((cost - of_tokens - 0.01).abs() < 1e-9, "{cost} {of_tokens}: a search is one cent");
}

#[test]
fn a_failed_search_is_tried_again_like_every_request_and_then_said() {
    let line = "claude -p hi --allowedTools WebSearch";
    let busy = searching()
        .status(529)
        .error("overloaded_error", "Overloaded", None)
        .header("retry-after-ms", "1");
    let caller = Caller::with(answers(busy, &found(&pages())).reply("Done."));
    let (code, stdout, _) = caller.shell(line);
    assert_eq!((code, stdout.as_str()), (0, "Done.\n"));
    assert!(result_of(&caller.server().requests()[3]).0.contains(PAGE));

    let refusal = "tools.0: web search is not enabled for this organization";
    // It is asked once more, as by an endpoint that has answered.
    let refused = searching().status(400).error("invalid_request_error", refusal, None);
    let refused = refused.status(400).error("invalid_request_error", refusal, None);
    let caller = Caller::with(refused.reply("Done."));
    let (code, stdout, _) = caller.shell(line);
    assert_eq!((code, stdout.as_str()), (0, "Done.\n"), "the run goes on");
    let (text, is_error) = result_of(&caller.server().requests()[3]);
    assert!(is_error && text.contains("not enabled"), "{text}");

    let none = json!({ "type": "web_search_tool_result_error", "error_code": "unavailable" });
    let caller = Caller::with(answers(searching(), &found(&none)).reply("Done."));
    assert_eq!(caller.shell(line).0, 0);
    let (text, is_error) = result_of(&caller.server().requests()[2]);
    assert!(is_error && text.contains("unavailable"), "{text}");
}

#[test]
fn a_search_needs_a_rule_room_in_the_budget_and_one_list_of_domains() {
    let caller = Caller::with(searching().reply("Done."));
    assert_eq!(caller.shell("claude -p hi").0, 0);
    let requests = caller.server().requests();
    assert_eq!(requests.len(), 2, "nothing was searched");
    assert!(result_of(&requests[1]).0.contains("--allowedTools 'WebSearch'"));

    let caller = Caller::with(searching().reply("Done."));
    let line = "claude -p hi --allowedTools WebSearch --max-budget-usd 0.12";
    let (code, _, stderr) = caller.shell(line);
    assert_eq!(code, 0, "{stderr}");
    let requests = caller.server().requests();
    assert_eq!(requests.len(), 2, "results of a search may cost more than is left");
    assert!(result_of(&requests[1]).0.contains("max_budget_usd"));

    let both = json!({ "query": "x", "allowed_domains": ["a.com"], "blocked_domains": ["b.com"] });
    let caller = Caller::with(Scenario::new().tool("WebSearch", both).reply("Done."));
    assert_eq!(caller.shell("claude -p hi --allowedTools WebSearch").0, 0);
    assert!(result_of(&caller.server().requests()[1]).0.contains("not both"));
}

#[test]
fn where_the_service_has_no_search_it_is_not_offered() {
    let caller = Caller::with(Scenario::new().reply("Done.").after(AfterLast::RepeatLast));
    for (flags, named) in [
        ("--allowedTools WebSearch", Some("--allowedTools: WebSearch is not offered")),
        ("--tools Read,WebSearch", Some("--tools: WebSearch is not offered")),
        ("--disallowedTools WebSearch", None),
    ] {
        let (code, _, stderr) = caller.shell(&format!("claude -p hi --model qwen3 {flags}"));
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(named.is_some_and(|named| stderr.contains(named)), named.is_some(), "{stderr}");
        assert_eq!(stderr.contains("WebSearch"), named.is_some(), "{stderr}");
        let last = caller.server().requests().pop().expect("a request");
        assert!(!last.body["tools"].to_string().contains("\"WebSearch\""), "{flags}");
    }
}
