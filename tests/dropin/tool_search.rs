//! Definitions of MCP tools are left out of requests until the model searches for them.

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use super::Caller;

/// A server with so many tools as its first argument says, each with a long description.
const SERVER: &str = r#"
import json, sys
count = int(sys.argv[1])
schema = {"type": "object", "properties": {"id": {"type": "string", "description": "d" * 800}}}
tools = [{"name": f"tool_{at}", "description": f"Handles matter {at}", "inputSchema": schema}
         for at in range(count)]
for line in sys.stdin:
    request = json.loads(line)
    method, result = request.get("method"), {}
    if method == "initialize":
        result = {"protocolVersion": request["params"]["protocolVersion"],
                  "capabilities": {"tools": {}}, "serverInfo": {"name": "many", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": tools}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "done " + request["params"]["name"]}]}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

fn caller(scenario: Scenario, count: usize) -> Caller {
    let caller = Caller::with(scenario);
    caller.file("server.py", SERVER);
    let server = json!({
        "command": "python3",
        "args": ["-S", caller.path("server.py"), count.to_string()],
    });
    caller.file("mcp.json", &json!({ "mcpServers": { "many": server } }).to_string());
    caller
}

/// Runs one prompt with the server and returns the tools of each request.
fn run(caller: &Caller, variable: &str, flags: &str) -> Vec<Vec<Value>> {
    let config = caller.path("mcp.json");
    let line = format!(
        "MCP_TIMEOUT=200000 {variable} claude -p hi --mcp-config {} --mcp-required many \
         --allowedTools mcp__many {flags}",
        config.display()
    );
    let before = caller.server().requests().len();
    let (code, _, stderr) = caller.shell(&line);
    // A slow machine takes its time to start the server.
    let remark = stderr.lines().find(|line| !line.starts_with("outlast: waiting for MCP servers"));
    assert_eq!((code, remark), (0, None), "{line}");
    let requests = caller.server().requests();
    let tools = |body: &Value| body["tools"].as_array().cloned().unwrap_or_default();
    requests[before..].iter().map(|request| tools(&request.body)).collect()
}

/// The names of the tools that come last, from the search on.
fn deferred(tools: &[Value]) -> Vec<String> {
    let names: Vec<String> =
        tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect();
    let search = names.iter().position(|name| name == "ToolSearch");
    search.map_or_else(Vec::new, |at| names[at..].to_vec())
}

fn without_marks(tools: &[Value]) -> Vec<Value> {
    let mut tools = tools.to_vec();
    for tool in &mut tools {
        tool.as_object_mut().expect("a tool").remove("cache_control");
    }
    tools
}

#[test]
fn found_tools_join_at_the_end_and_stay_in_a_resumed_session() {
    let scenario = Scenario::new()
        .tool("ToolSearch", json!({ "query": "select:mcp__many__tool_7" }))
        .tool("mcp__many__tool_7", json!({ "id": "x" }))
        .tool("mcp__many__tool_9", json!({ "id": "x" }))
        .reply("Done.")
        .reply("Again.");
    let caller = caller(scenario, 150);
    let requests = run(&caller, "", "--context-window 200000");
    assert_eq!(requests.len(), 4);
    assert_eq!(deferred(&requests[0]), ["ToolSearch"], "150 kB are more than a tenth");
    assert_eq!(deferred(&requests[1]), ["ToolSearch", "mcp__many__tool_7"]);
    let all = ["ToolSearch", "mcp__many__tool_7", "mcp__many__tool_9"];
    assert_eq!(deferred(&requests[3]), all, "what was called without a search is known, too");
    for pair in requests.windows(2) {
        let (before, after) = (without_marks(&pair[0]), without_marks(&pair[1]));
        assert_eq!(after[..before.len()], before[..], "the prefix is the same");
    }
    let last = caller.server().requests()[3].body["messages"].to_string();
    assert!(last.contains("done tool_7") && last.contains("done tool_9"), "{last:.300}");
    let resumed = run(&caller, "", "--context-window 200000 --continue");
    assert_eq!(deferred(&resumed[0]), all);
}

#[test]
fn the_setting_says_when_definitions_are_deferred() {
    let cases = [
        ("", "", 20, false),
        ("ENABLE_TOOL_SEARCH=true", "", 20, true),
        ("ENABLE_TOOL_SEARCH=auto:0", "", 20, true),
        ("ENABLE_TOOL_SEARCH=auto", "--context-window 30000", 20, true),
        ("ENABLE_TOOL_SEARCH=auto:50", "--context-window 30000", 20, false),
        ("ENABLE_TOOL_SEARCH=false", "--context-window 200000", 150, false),
        ("", "--context-window 200000", 150, true),
        ("", "--settings '{\"toolSearch\": true}'", 20, true),
        ("ENABLE_TOOL_SEARCH=true", "--disallowedTools ToolSearch", 20, false),
        ("ENABLE_TOOL_SEARCH=true", "--tools Read", 20, true),
    ];
    for (variable, flags, count, defers) in cases {
        let caller = caller(Scenario::new().reply("Done."), count);
        let tools = run(&caller, variable, flags).remove(0);
        let case = format!("{variable} {flags}");
        assert_eq!(!deferred(&tools).is_empty(), defers, "{case}");
        let of_server = tools.iter().filter(|tool| {
            tool["name"].as_str().is_some_and(|name| name.starts_with("mcp__many__"))
        });
        assert_eq!(of_server.count(), if defers { 0 } else { count }, "{case}");
    }
    let caller = Caller::new();
    let (code, _, stderr) = caller.shell("ENABLE_TOOL_SEARCH=much claude -p hi");
    assert_eq!(code, 2);
    assert!(stderr.contains("ENABLE_TOOL_SEARCH") && stderr.contains("auto:N"), "{stderr}");
}

#[test]
fn programs_see_all_tools_of_servers() {
    let caller = caller(Scenario::new().reply("Done."), 20);
    let config = caller.path("mcp.json");
    let line = format!(
        "ENABLE_TOOL_SEARCH=true claude -p hi --mcp-config {} --output-format stream-json --verbose",
        config.display()
    );
    let (code, stdout, stderr) = caller.shell(&line);
    assert_eq!(code, 0, "{stderr}");
    let init: Value = serde_json::from_str(stdout.lines().next().expect("a line")).expect("JSON");
    let tools = init["tools"].as_array().expect("tools").iter();
    assert_eq!(tools.filter(|tool| tool.to_string().contains("mcp__many__")).count(), 20);
}
