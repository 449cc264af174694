//! Deeply nested input: each is refused with words, and none ends the process by a signal.

use std::fs;
use std::path::Path;

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use crate::support::requests::blocks;
use crate::support::scratch::write_file;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// Deeper than any stack.
const DEPTH: usize = 20_000;

/// More than one that only panics.
const SHALLOW: usize = 260;

fn nested(open: &str, close: &str, depth: usize) -> String {
    open.repeat(depth) + &close.repeat(depth)
}

#[tokio::test]
async fn nested_tool_input_is_a_tool_error_and_the_run_goes_on() {
    let glob = |pattern: String| ("Glob", json!({ "pattern": pattern }));
    let grep = |input: Value| ("Grep", input);
    let refused = [
        glob(nested("{", "}", DEPTH)),
        glob(nested("{a,", "}", SHALLOW)),
        glob("{".repeat(DEPTH)),
        glob(nested("{[}]", "}", 100)),
        glob(nested("{\\},", "}", 100)),
        glob(format!("/tmp/{}", nested("{", "}", DEPTH))),
        glob("?".repeat(100_000)),
        grep(json!({ "pattern": "x", "glob": nested("{", "}", DEPTH) })),
        grep(json!({ "pattern": "x", "glob": nested("{a,", "}", SHALLOW) })),
        grep(json!({ "pattern": "x", "glob": format!("!{}", "{".repeat(DEPTH)) })),
        grep(json!({ "pattern": nested("(?:", ")*", SHALLOW), "multiline": true })),
        grep(json!({ "pattern": format!("a{}", "{1000}".repeat(6)) })),
        ("BashOutput", json!({ "bash_id": "x", "filter": nested("(", ")", DEPTH) })),
    ];
    // Read as they stand: whether they are refused or not, the run survives them.
    let survived = [
        // Searched for as plain text.
        grep(json!({ "pattern": nested("(", ")", DEPTH) })),
        grep(json!({ "pattern": nested("[", "]", DEPTH) })),
        ("Bash", json!({ "command": nested("$(", ")", DEPTH / 10) })),
        ("Bash", json!({ "command": nested("{ ", "; }", DEPTH / 10) })),
        ("Bash", json!({ "command": nested("\"${a:-", "}\"", DEPTH / 10) })),
        ("Read", json!({ "file_path": "nested.ipynb" })),
        ("Read", json!({ "file_path": format!("{}x", "a/".repeat(DEPTH)) })),
    ];
    for calls in refused.chunks(8) {
        for (answer, (tool, input)) in answers(calls).await.iter().zip(calls) {
            let (text, input) = (answer["content"].to_string(), input.to_string());
            assert_eq!(answer["is_error"], true, "{tool} {input:.80}: {text:.200}");
            assert!(!text.contains("defect"), "{tool} {input:.80}: {text:.200}");
            let says =
                ["braces", "longer than", "nest", "size limit", "too big", "unclosed", "exceed"];
            assert!(says.iter().any(|it| text.contains(it)), "{tool} {input:.80}: {text:.300}");
        }
    }
    answers(&survived).await;
}

/// Lets the model make these calls, each in a turn of its own, and returns the answers to them.
async fn answers(calls: &[(&str, Value)]) -> Vec<Value> {
    let each =
        calls.iter().fold(Scenario::new(), |all, (tool, input)| all.tool(tool, input.clone()));
    let server = serve(each.reply("Done."));
    let run = RunBuilder::bare(&server.base_url()).args(["-p", "go", "--output-format", "json"]);
    fs::write(run.work().join("nested.ipynb"), "[".repeat(DEPTH)).expect("a file");
    let ended = run.run().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.result()["result"], "Done.");
    let told = blocks(server.requests().last().expect("requests"), "tool_result");
    assert_eq!(told.len(), calls.len());
    told
}

/// A checkout with an ignore file, in a folder and at its root, and what a search of it finds.
#[tokio::test]
async fn a_nested_ignore_file_is_not_parsed_and_the_model_is_told() {
    let bombs = [
        (".gitignore", nested("{", "}", DEPTH)),
        (".ignore", format!("target\n!{}\n", "{".repeat(DEPTH))),
        (".gitignore", nested("{a,", "}", SHALLOW)),
        (".ignore", format!("{}/{}", "a".repeat(5000), "{b}")),
    ];
    let mut scenario = Scenario::new();
    for place in ["open", "."].iter().chain(&["sub0", "sub1", "sub2", "sub3", "sub0/below"]) {
        scenario = scenario.tool("Grep", json!({ "pattern": "needle", "path": place }));
    }
    let server = serve(scenario.reply("Done."));
    let run = RunBuilder::bare(&server.base_url()).args(["-p", "go", "--output-format", "json"]);
    let plant = |name: &str, content: &str| {
        write_file(&run.work().join(name), content);
    };
    for (at, (name, content)) in bombs.iter().enumerate() {
        plant(&format!("sub{at}/{name}"), content);
        plant(&format!("sub{at}/below/hay"), "needle");
    }
    plant("open/.gitignore", &format!("{}\nhidden\n", nested("{a,", "b}", 20)));
    plant("open/hidden", "needle");
    plant("open/shown", "needle");
    let ended = run.run().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let requests = server.requests();
    let told = blocks(requests.last().expect("requests"), "tool_result");
    let text = |at: usize| told[at]["content"].to_string();
    assert!(text(0).contains("open/shown") && !text(0).contains("hidden"), "{}", text(0));
    let whole = text(1);
    assert!(whole.contains("open/shown") && !whole.contains("below"), "{whole}");
    assert!(whole.contains("not a regular file: 4;"), "{whole}");
    assert!(!whole.contains("were searched too"), "{whole}");
    for at in 2..7 {
        assert!(text(at).contains("were searched too"), "{}", text(at));
        assert!(text(at).contains("below/hay"), "a folder that is named is searched: {}", text(at));
    }
}

/// Settings files that no command may die of.
fn broken_settings() -> Vec<(&'static str, Value)> {
    let hook = |matcher: &str, more: Value| {
        let mut handler = json!({ "type": "command", "command": "true" });
        handler
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().cloned().unwrap_or_default());
        json!({ "hooks": { "PreToolUse": [{ "matcher": matcher, "hooks": [handler] }] } })
    };
    let braces = nested("{", "}", DEPTH);
    let rules = |list: &str, rule: String| json!({ "permissions": { list: [rule] } });
    vec![
        ("permissions.deny", rules("deny", format!("Read({braces})"))),
        ("permissions.deny", rules("deny", format!("Edit(//{})", nested("{a,", "}", SHALLOW)))),
        ("permissions.ask", rules("ask", format!("Write(~/{braces})"))),
        ("trustedProjects", json!({ "trustedProjects": [format!("/tmp/{braces}")] })),
        (
            "trustedProjects",
            json!({ "trustedProjects": [{ "path": format!("~/{}", "{".repeat(99)) }] }),
        ),
        ("PreToolUse", hook(&nested("(", ")", DEPTH), json!({}))),
        ("PreToolUse", hook(&nested("(?:", ")?", DEPTH), json!({}))),
        ("PreToolUse", hook("*", json!({ "if": format!("Read({braces})") }))),
    ]
}

fn assert_refused(ended: &FinishedProcess, code: i32, place: &str, what: &str) {
    assert_eq!(ended.code, Some(code), "{what}: {:.300} {:.300}", ended.stdout, ended.stderr);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains(place), "{what} names {place}: {said:.500}");
    let longest = said.lines().map(str::len).max().unwrap_or_default();
    assert!(longest < 4_000, "{what}: a line of {longest} bytes");
}

#[tokio::test]
async fn nested_settings_are_refused_by_every_command_with_place_and_reason() {
    let server = serve(Scenario::new());
    let put = |run: &RunBuilder, text: &str| {
        fs::create_dir_all(run.config()).expect("a folder can be made");
        fs::write(run.config().join("settings.json"), text).expect("a file can be written");
    };
    let mut broken: Vec<(&str, String)> =
        broken_settings().into_iter().map(|(place, json)| (place, json.to_string())).collect();
    broken.push(("settings.json:1:128", "[".repeat(50_000)));
    broken.push(("settings.json:1:", "{\"a\":".repeat(50_000)));
    for (at, (place, text)) in broken.iter().enumerate() {
        // Each by one command, and each command several times: all read settings the same way.
        let (args, code): (&[&str], i32) = match at % 3 {
            0 => (&["config"], 2),
            1 => (&["doctor"], 1),
            _ => (&["-p", "go"], 2),
        };
        let run = RunBuilder::bare(&server.base_url()).args(args);
        put(&run, text);
        let ended = run.run().await;
        assert_refused(&ended, code, place, &format!("{args:?} with {text:.60}"));
    }
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn doctor_reads_nested_hook_commands() {
    let server = serve(Scenario::new());
    let scripts = [
        format!("{}true", "a && ".repeat(3_000)),
        nested("$(", ")", 5_000),
        nested("( ", " )", 4_000),
        nested("\"${a:-", "}\"", 1_900),
        nested("{ ", "; }", 3_000),
        nested("if a; then ", "; fi", 900),
        format!("cat {}", "<<E ".repeat(3_000)),
    ];
    let hook = |script: &String| json!({ "hooks": [{ "type": "command", "command": script }] });
    let hooks: Vec<Value> = scripts.iter().map(hook).collect();
    let run = RunBuilder::bare(&server.base_url()).args(["doctor"]);
    fs::create_dir_all(run.config()).expect("a folder can be made");
    let settings = json!({ "hooks": { "PreToolUse": hooks } }).to_string();
    fs::write(run.config().join("settings.json"), settings).expect("a file can be written");
    let ended = run.run().await;
    assert!(matches!(ended.code, Some(0 | 1)), "{:?} {:.500}", ended.code, ended.stderr);
}

fn plant(work: &Path, name: &str, content: &str) {
    write_file(&work.join(name), content);
}

/// All that a checkout brings and a run reads unasked.
#[tokio::test]
async fn a_checkout_full_of_nested_files_does_not_end_the_run() {
    let deny = json!({ "permissions": { "deny": [format!("Read({})", nested("{", "}", DEPTH))] } });
    let markdown = format!("{}\n{}", "> ".repeat(5_000), nested("[", "](a)", DEPTH));
    let yaml = |front: String| format!("---\nname: a\ndescription: b\n{front}\n---\nbody");
    let server = serve(Scenario::new().reply("Done."));
    let run = RunBuilder::bare(&server.base_url()).args(["-p", "go", "--output-format", "json"]);
    let work = run.work();
    plant(&work, ".claude/settings.json", &deny.to_string());
    plant(&work, ".claude/settings.local.json", &"[".repeat(DEPTH));
    plant(&work, ".mcp.json", &"{\"mcpServers\":".repeat(DEPTH));
    plant(&work, "CLAUDE.md", &format!("{markdown}\n{}\n", "- ".repeat(5_000)));
    plant(&work, ".claude/rules/a.md", &yaml(format!("paths: {}", nested("{", "}", DEPTH))));
    plant(&work, ".claude/agents/a.md", &yaml(format!("tools: {}", nested("[", "]", DEPTH))));
    plant(&work, ".claude/commands/a.md", &yaml(format!("x: {}", nested("{a: ", "}", DEPTH))));
    plant(&work, ".claude/skills/a/SKILL.md", &yaml(format!("x: {}", "- ".repeat(DEPTH))));
    plant(&work, ".gitignore", &nested("{", "}", DEPTH));
    let ended = run.run().await;
    assert_eq!(ended.code, Some(0), "{:.500}", ended.stderr);
    let result = ended.result();
    assert_eq!(result["result"], "Done.");
    let ignored = result["ignored_settings"].to_string();
    for file in ["settings.json", "settings.local.json", ".mcp.json"] {
        assert!(ignored.contains(file), "{file} is told as ignored: {ignored:.600}");
    }
}

#[tokio::test]
async fn nested_answers_of_programs_and_servers_do_not_end_the_run() {
    let deep = "[".repeat(50_000);
    let hook = |event: &str, file: &str| {
        let handler = json!({ "type": "command", "command": format!("cat {file}") });
        (event.to_owned(), json!([{ "hooks": [handler] }]))
    };
    let hooks: serde_json::Map<String, Value> =
        [hook("PreToolUse", "deep.json"), hook("UserPromptSubmit", "deep_object.json")]
            .into_iter()
            .collect();
    // A server that begins with a deep line, and one that offers a tool with a deep schema.
    let answers = "read -r line; cat \"$0\"; while read -r line; do cat tools.json; done";
    let servers = json!({ "mcpServers": {
        "deep": { "command": "sh", "args": ["-c", answers, "deep.json"] },
        "tools": { "command": "sh", "args": ["-c", answers, "hello.json"] },
    } });
    let server = serve(
        Scenario::new()
            .tool("Read", json!({ "file_path": "deep.json" }))
            .tool("Read", json!({ "file_path": "deep.pdf" }))
            .reply("Done."),
    );
    let run = RunBuilder::against(&server)
        .env("MCP_TIMEOUT", "1500")
        .args(["-p", "go", "--output-format", "json", "--mcp-config", &servers.to_string()])
        .args(["--settings", &json!({ "hooks": hooks }).to_string()]);
    let work = run.work();
    plant(&work, "deep.json", &format!("{deep}\n"));
    plant(&work, "deep_object.json", &format!("{}\n", "{\"a\":".repeat(50_000)));
    plant(
        &work,
        "deep.pdf",
        &format!("%PDF-1.4\n1 0 obj\n{deep}\nendobj\ntrailer << /Root 1 0 R >>\n%%EOF"),
    );
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "result": { "protocolVersion": "2025-06-18",
        "capabilities": { "tools": {} }, "serverInfo": { "name": "x", "version": "1" } } });
    plant(&work, "hello.json", &format!("{hello}\n"));
    let schema = (0..100).fold(json!({}), |inner, _| json!({ "items": inner }));
    let tool =
        json!({ "name": "t", "inputSchema": { "type": "object", "properties": { "a": schema } } });
    let tools = json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [tool] } });
    plant(&work, "tools.json", &format!("{tools}\n"));
    let ended = run.run().await;
    assert_eq!(ended.code, Some(0), "{:.900}", ended.stderr);
    assert_eq!(ended.result()["result"], "Done.");
}

#[tokio::test]
async fn nested_and_circular_answer_schemas_end_no_run() {
    let list = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({ "items": inner }));
    let chain: serde_json::Map<String, Value> = (0..3_500)
        .map(|at| (format!("d{at}"), json!({ "$ref": format!("#/$defs/d{}", at + 1) })))
        .chain([("d3500".to_owned(), json!({}))])
        .collect();
    let of_x = |x: Value| json!({ "type": "object", "properties": { "x": x } });
    let with = |defs: Value| {
        let mut schema = of_x(json!({ "$ref": "#/$defs/a" }));
        schema["$defs"] = defs;
        schema.to_string()
    };
    let refused = [
        "[".repeat(50_000),
        "{\"not\":".repeat(50_000),
        json!({ "$ref": "#" }).to_string(),
        with(json!({ "a": { "$ref": "#/$defs/a" } })),
        of_x(json!({ "type": "string", "pattern": nested("(", ")", DEPTH) })).to_string(),
        list(128).to_string(),
    ];
    let survived = [
        with(json!({ "a": { "allOf": [{ "$ref": "#/$defs/b" }] }, "b": { "not": { "$ref": "#/$defs/a" } } })),
        with(json!({ "a": { "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] } })),
        with(json!({ "a": { "$anchor": "b", "$ref": "#b" } })),
        with(json!({ "a": { "not": { "not": { "$ref": "#/$defs/a" } } } })),
        with(json!({ "a": { "if": { "$ref": "#/$defs/a" }, "then": {} } })),
        with(json!({ "a": { "allOf": [{ "$ref": "#/$defs/a" }], "unevaluatedItems": false } })),
        json!({ "type": "object", "oneOf": [{ "$ref": "#" }, { "$ref": "#" }] }).to_string(),
        of_x(json!({ "$dynamicAnchor": "m", "allOf": [{ "$dynamicRef": "#m" }] })).to_string(),
        json!({ "$defs": chain, "type": "object", "properties": { "x": { "$ref": "#/$defs/d0" } } })
            .to_string(),
        of_x(list(55)).to_string(),
    ];
    for (schema, is_refused) in
        refused.iter().map(|it| (it, true)).chain(survived.iter().map(|it| (it, false)))
    {
        let answer = json!({ "x": nested_list(50) });
        let server = serve(Scenario::new().tool("StructuredOutput", answer).reply("Done."));
        let run = RunBuilder::bare(&server.base_url());
        let path = run.work().join("schema.json");
        fs::write(&path, schema).expect("a file can be written");
        let run = run.args(["-p", "go", "--output-format", "json", "--max-retries", "0"]);
        let ended = run.args(["--json-schema", &path.display().to_string()]).run().await;
        if is_refused {
            assert_eq!(ended.code, Some(2), "{schema:.80}: {:.300}", ended.stderr);
            assert_eq!(server.requests().len(), 0);
        } else {
            let reason = ended.result()["terminal_reason"].to_string();
            assert!(!reason.contains("internal"), "{schema:.80}: {reason}");
            assert!(!server.requests().is_empty(), "{schema:.80}: {:.300}", ended.stderr);
        }
    }
}

fn nested_list(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}
