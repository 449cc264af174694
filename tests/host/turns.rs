//! Turns: prompts in order, what the host changes between and during them, and how they end.

use std::fs;
use std::time::Duration;

use outlast::host::{FrameError, HostFrame};
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::driver::wait_for_requests;
use super::driver::{HostDriver, conversation};
use crate::support::scratch::write_file;
use crate::support::{RunBuilder, serve, with_time_limit};

/// Longer than any test: only an interrupt ends it.
const HOUR: Duration = Duration::from_hours(1);

fn results(frames: &[Value]) -> Vec<&Value> {
    frames.iter().filter(|frame| frame["type"] == "result").collect()
}

#[tokio::test]
async fn turns_share_one_session_and_each_has_init_and_result() {
    let server = serve(Scenario::new().reply("First.").reply("Second."));
    let mut host = HostDriver::start(&server, &[]);
    let reply = host.ask(&json!({ "subtype": "initialize", "hooks": null })).await;
    assert_eq!(reply["subtype"], "success", "{reply}");
    assert_eq!(reply["response"]["hook_on_failure_supported"], true);
    assert_eq!(host.frames.len(), 1, "no init before a prompt: {:?}", host.frames);

    host.prompt("remember the word cormorant").await;
    let first = host.result().await;
    host.prompt("which word?").await;
    let second = host.result().await;
    assert_eq!((&first["result"], &second["result"]), (&json!("First."), &json!("Second.")));
    assert_eq!(first["session_id"], second["session_id"]);
    assert_eq!((&first["num_turns"], &second["num_turns"]), (&json!(1), &json!(1)));
    let cost = |result: &Value| result["total_cost_usd"].as_f64().expect("a cost");
    assert!(cost(&second) > cost(&first), "the cost is cumulative");
    let body = &server.requests()[1].body;
    assert!(conversation(body).contains("cormorant"), "the second turn knows the first: {body}");

    let (ended, frames) = host.end().await;
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.stderr, "");
    assert_eq!(results(&frames).len(), 2);
    let inits = frames.iter().filter(|frame| frame["subtype"] == "init").count();
    assert_eq!(inits, 2, "{frames:#?}");
}

#[tokio::test]
async fn prompts_that_come_early_wait_for_their_turn_even_after_the_end_of_input() {
    let server = serve(Scenario::new().reply("1").reply("2").reply("3"));
    let mut host = HostDriver::start(&server, &[]);
    for prompt in ["a", "b", "c"] {
        host.prompt(prompt).await;
    }
    let (ended, frames) = host.end().await;
    let texts: Vec<&Value> = results(&frames).iter().map(|result| &result["result"]).collect();
    assert_eq!(texts, ["1", "2", "3"]);
    assert_eq!(ended.code, Some(0));
}

#[tokio::test]
async fn content_blocks_reach_the_model_in_their_order() {
    let server = serve(Scenario::new().reply("Seen.").reply("Again."));
    let mut host = HostDriver::start(&server, &[]);
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let image = json!({ "type": "image",
        "source": { "type": "base64", "media_type": "image/png", "data": pixel } });
    host.send(&json!({ "type": "user", "shouldQuery": false,
        "message": { "role": "user", "content": [image, "Image 0 is above."] } }))
        .await;
    host.send(&json!({ "type": "user", "uuid": "p-1", "origin": { "kind": "human" },
        "message": { "role": "user", "content": [
            { "type": "text", "text": "Image 1:" }, image, { "type": "text", "text": " " },
            { "type": "text", "text": "Image 2:" }, image, { "type": "text", "text": "Which?" }, image,
        ] } }))
        .await;
    let result = host.result().await;
    assert_eq!(result["user_message_uuid"], "p-1");
    assert_eq!(result["origin"], json!({ "kind": "human" }));
    let body = &server.requests()[0].body;
    let shown = |message: &Value| -> Vec<String> {
        let blocks = message["content"].as_array().expect("blocks").iter();
        let words =
            |block: &Value| block["text"].as_str().map_or("image".to_owned(), str::to_owned);
        blocks.map(words).collect()
    };
    let order =
        ["image", "Image 0 is above.", "Image 1:", "image", "Image 2:", "image", "Which?", "image"];
    assert_eq!(shown(&body["messages"][0]), order);
    // An image alone is a prompt, too.
    host.send(&json!({ "type": "user", "message": { "role": "user", "content": [image] } })).await;
    assert_eq!(host.result().await["result"], "Again.");
    assert_eq!(shown(&server.requests()[1].body["messages"][2]), ["image"]);
    host.end().await;
}

#[tokio::test]
async fn an_interrupt_right_behind_the_first_prompt_is_recorded_with_it() {
    let server = serve(Scenario::new().reply("One of them is late.").delay(HOUR).times(9));
    let mut host = HostDriver::start(&server, &[]);
    host.prompt("remember the heron").await;
    host.ask(&json!({ "subtype": "interrupt" })).await;
    let result = with_time_limit("the result", host.result()).await;
    assert_eq!(result["terminal_reason"], "aborted_streaming");
    host.prompt("say it").await;
    let wanted = ["heron", "[Request interrupted by user]", "say it"];
    let is_sent = |body: &Value| conversation(body).contains("say it");
    let sent = with_time_limit("the request", async {
        loop {
            let requests = server.requests();
            if let Some(last) = requests.iter().find(|request| is_sent(&request.body)) {
                return conversation(&last.body);
            }
            wait_for_requests(&server, requests.len() + 1).await;
        }
    })
    .await;
    let places = wanted.map(|text| sent.find(text));
    assert!(places.is_sorted() && places[0].is_some(), "{sent}");
    host.request(&json!({ "subtype": "interrupt" })).await;
    host.result().await;
    host.end().await;
}

#[tokio::test]
async fn an_interrupt_behind_the_next_prompt_ends_that_one_while_the_turn_before_is_finishing() {
    let server = serve(Scenario::new().reply("1").reply("Late.").delay(HOUR));
    let collector = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let url = format!("http://{}", collector.local_addr().expect("it is bound"));
    let run = RunBuilder::against(&server)
        .env("OTEL_TRACES_EXPORTER", "otlp")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
    let mut host = HostDriver::with(run, &[]);
    host.prompt("one").await;
    host.result().await;
    // The export keeps the turn from ending.
    let export = with_time_limit("the export", collector.accept()).await.expect("a connection");
    for (id, text) in [("p-2", "remember the heron"), ("p-3", "not this")] {
        let message = json!({ "role": "user", "content": text });
        host.send(&json!({ "type": "user", "uuid": id, "message": message })).await;
    }
    let reply = host.ask(&json!({ "subtype": "interrupt", "cancel_queued": true })).await;
    assert_eq!(reply["response"], json!({ "still_queued": [], "cancelled": ["p-3"] }));
    drop((export, collector));
    let result = with_time_limit("the result", host.result()).await;
    assert_eq!(result["user_message_uuid"], "p-2");
    assert_eq!(result["terminal_reason"], "aborted_streaming");
    host.end().await;
}

#[tokio::test]
async fn hooks_of_the_start_and_the_end_of_a_session_run_once_for_all_its_prompts() {
    let show = || json!({ "command": "echo $KEPT" });
    let script = Scenario::new().reply("1").tool("Bash", show()).reply("2").reply("3");
    let server = serve(script);
    let hook = |command: &str| json!([{ "hooks": [{ "type": "command", "command": command }] }]);
    let hooks = json!({ "hooks": {
        "SessionStart": hook("cat >> log; echo >> log; echo 'export KEPT=egret' >> $CLAUDE_ENV_FILE"),
        "SessionEnd": hook("cat >> log; echo >> log") } });
    let flags = ["--settings", &hooks.to_string(), "--allowedTools", "Bash"];
    let mut host = HostDriver::start(&server, &flags);
    for prompt in ["one", "two", "/clear", "three"] {
        host.prompt(prompt).await;
        host.result().await;
    }
    let log = host.process.work().join("log");
    assert!(conversation(&server.requests()[2].body).contains("egret"), "exports are kept");
    let (_ended, _) = host.end().await;
    let log = fs::read_to_string(log).expect("a log");
    let events: Vec<String> = log
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let input: Value = serde_json::from_str(line).expect("JSON");
            let why = input["source"].as_str().or(input["reason"].as_str()).expect("one of them");
            format!("{} {why}", input["hook_event_name"].as_str().expect("a name"))
        })
        .collect();
    let wanted =
        ["SessionStart startup", "SessionEnd clear", "SessionStart clear", "SessionEnd other"];
    assert_eq!(events, wanted);
}

#[tokio::test]
async fn a_key_that_an_earlier_prompt_proved_is_tried_once_more() {
    let script =
        Scenario::new().reply("1").status(401).error("authentication_error", "no", None).reply("2");
    let server = serve(script);
    let mut host = HostDriver::start(&server, &[]);
    for (prompt, answer) in [("one", "1"), ("two", "2")] {
        host.prompt(prompt).await;
        assert_eq!(host.result().await["result"], answer);
    }
    host.end().await;
}

/// An SDK cannot withdraw an option of an earlier query.
#[tokio::test]
async fn limits_demands_and_bypassed_permissions_end_with_the_process_of_a_host() {
    let write = json!({ "file_path": "made.txt", "content": "x" });
    let script = Scenario::new()
        .tool("StructuredOutput", json!({ "n": 1 }))
        .tool("Write", write)
        .reply("plain");
    let server = serve(script);
    let first = crate::support::RunBuilder::bare(&server.base_url());
    fs::create_dir_all(first.config()).expect("a folder");
    let settings = json!({ "sandbox": { "mode": "off" } });
    fs::write(first.config().join("settings.json"), settings.to_string()).expect("a file");
    let second = crate::support::RunBuilder::bare(&server.base_url())
        .env("OUTLAST_CONFIG_DIR", &first.config().display().to_string());
    let work = first.work().display().to_string();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let options = ["--json-schema", &schema.to_string(), "--max-turns", "1"];
    let more = ["--permission-mode", "bypassPermissions", "--disallowedTools", "Read"];
    let sandbox = ["--sandbox", "workspace"];
    let mut host = HostDriver::with(first, &[&options[..], &more, &sandbox].concat());
    host.prompt("one").await;
    let session = host.result().await["session_id"].as_str().expect("an id").to_owned();
    let (_first, _) = host.end().await;
    let mut host = HostDriver::with(second, &["-C", &work, "--resume", &session]);
    host.prompt("two").await;
    let result = host.result().await;
    assert_eq!((&result["subtype"], &result["result"]), (&json!("success"), &json!("plain")));
    assert_eq!(result["permission_denials"][0]["tool_name"], "Write", "{result}");
    let init = host.frames.iter().find(|frame| frame["subtype"] == "init").expect("one");
    let tools = init["tools"].as_array().expect("tools");
    assert!(!tools.contains(&json!("Read")), "prohibitions stay: {init}");
    assert_eq!(init["sandbox"]["mode"], "workspace", "limits of access stay: {init}");
    host.end().await;
}

/// Hosts keep sessions in another folder than other runs, whose own settings are not left out.
#[tokio::test]
async fn the_resume_command_of_a_hosts_session_finds_it() {
    for has_own_settings in [false, true] {
        let scenario = Scenario::new().status(429).header("retry-after", "5000").reply("Done.");
        let server = serve(scenario);
        let first = RunBuilder::against(&server).env("OUTLAST_CONFIG_DIR", "");
        let home = first.work().parent().expect("the folder of the run").to_owned();
        if has_own_settings {
            fs::create_dir(home.join(".outlast")).expect("a folder");
            fs::write(home.join(".outlast/settings.json"), "{}").expect("a file");
        }
        let second = crate::support::RunBuilder::bare(&server.base_url())
            .env("HOME", &home.display().to_string());
        let mut host = HostDriver::with(first, &[]);
        host.prompt("one").await;
        let result = host.result().await;
        let (_first, _) = host.end().await;
        let command = result["resume"]["command"].as_str().expect("a command");
        let mut words = command.split(' ').peekable();
        let folder = words.next_if_eq(&"env").and_then(|_| words.next()).unwrap_or_default();
        assert_eq!(!folder.is_empty(), has_own_settings, "{command}");
        let folder = folder.strip_prefix("OUTLAST_CONFIG_DIR=").unwrap_or_default();
        let second = second.env("OUTLAST_CONFIG_DIR", folder);
        let ended = second.args(words.skip(1)).run().await;
        assert_eq!(ended.code, Some(0), "{command}: {ended:?}");
        assert_eq!(ended.result()["result"], "Done.");
    }
}

#[tokio::test]
async fn a_host_resumes_the_session_of_a_plain_run() {
    let server = serve(Scenario::new().reply("One.").reply("Two."));
    let plain = RunBuilder::against(&server).env("OUTLAST_CONFIG_DIR", "").args(["one"]);
    let ended = plain.run().await;
    let session = ended.result()["session_id"].as_str().expect("an id").to_owned();
    let host = ended.again(&server.base_url()).env("OUTLAST_CONFIG_DIR", "");
    let mut host = HostDriver::with(host, &["--resume", &session]);
    host.prompt("two").await;
    let result = host.result().await;
    assert_eq!((&result["result"], &result["session_id"]), (&json!("Two."), &json!(session)));
    host.end().await;
}

#[tokio::test]
async fn a_prompt_that_does_not_fit_the_window_is_shortened_before_the_next_one() {
    let server = serve(Scenario::new().reply("First.").reply("Here."));
    let mut host = HostDriver::start(&server, &["--context-window", "50000"]);
    host.prompt("one").await;
    host.result().await;
    host.prompt(&"long words ".repeat(50_000)).await;
    assert_eq!(host.result().await["terminal_reason"], "prompt_too_long");
    host.prompt("two").await;
    assert_eq!(host.result().await["result"], "Here.");
    let sent = conversation(&server.requests()[1].body);
    assert!(sent.contains("left out: it did not fit") && sent.contains("two"), "{sent}");
    host.end().await;
}

#[tokio::test]
async fn images_of_a_prompt_are_sent_as_what_their_bytes_are() {
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let in_lines = format!("{}\n{}\r\n", &pixel[..60], &pixel[60..]);
    let sources = [
        json!({ "type": "base64", "media_type": "image/jpg", "data": pixel }),
        json!({ "type": "base64", "data": pixel.trim_end_matches('=') }),
        json!({ "type": "base64", "media_type": "image/png", "data": in_lines }),
        json!({ "type": "base64", "media_type": "image/png",
            "data": format!("data:image/png;base64,{pixel}") }),
    ];
    let images = sources.map(|source| json!({ "type": "image", "source": source }));
    let by_url = json!({ "type": "image", "source": { "type": "url", "url": "https://h/i.png" } });
    let content = [&[json!({ "type": "text", "text": "see" })][..], &images, &[by_url]].concat();
    let server = serve(Scenario::new().reply("Seen."));
    let mut host = HostDriver::start(&server, &[]);
    host.send(&json!({ "type": "user", "message": { "role": "user", "content": content } })).await;
    assert_eq!(host.result().await["result"], "Seen.");
    let body = &server.requests()[0].body;
    let sent = body["messages"][0]["content"].as_array().expect("blocks");
    let sent: Vec<&Value> = sent
        .iter()
        .filter(|block| block["type"] == "image")
        .map(|block| &block["source"])
        .collect();
    let right = json!({ "type": "base64", "media_type": "image/png", "data": pixel });
    assert_eq!(sent[..4], [&right; 4], "{body}");
    assert_eq!(sent[4]["url"], "https://h/i.png", "{body}");
    host.end().await;
}

#[test]
fn contents_of_a_prompt_are_texts_and_blocks_with_content() {
    let parse = |content: Value| {
        let frame = json!({ "type": "user", "message": { "role": "user", "content": content } });
        outlast::host::parse(&frame.to_string())
    };
    for content in [
        json!(5),
        json!(null),
        json!([5]),
        json!([null]),
        json!([{}]),
        json!([{ "type": "text" }]),
        json!([{ "type": "text", "text": null }]),
        json!(["hi", { "type": "image" }]),
    ] {
        assert_eq!(parse(content.clone()), Err(FrameError::BadContent), "{content}");
    }
    match parse(json!(["hi", { "type": "later_kind", "a": 1 }, "there"])) {
        Ok(HostFrame::User(prompt)) => {
            assert_eq!((prompt.earlier_texts().as_str(), prompt.text.as_str()), ("hi\n", "there"));
            assert_eq!((prompt.before.len(), prompt.after.len()), (2, 0));
        }
        other => panic!("{other:?}"),
    }
    // The fields of documents that the Messages API has; breakpoints are outlast's own.
    let source = json!({ "type": "text", "media_type": "text/plain", "data": "x" });
    let mut document = json!({ "type": "document", "source": source, "title": "T", "context": "C",
        "citations": { "enabled": true }, "cache_control": { "type": "ephemeral" }, "other": 1 });
    match parse(json!([document.clone()])) {
        Ok(HostFrame::User(prompt)) => {
            let fields = document.as_object_mut().expect("an object");
            fields.retain(|name, _| name != "cache_control" && name != "other");
            assert_eq!(serde_json::to_value(&prompt.before[0]).expect("JSON"), document);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_and_the_next_one_goes_on() {
    let server = serve(Scenario::new().reply("late").delay(HOUR).reply("Here."));
    let mut host = HostDriver::start(&server, &[]);
    host.prompt("wait").await;
    wait_for_requests(&server, 1).await;
    let reply = host.ask(&json!({ "subtype": "interrupt" })).await;
    assert_eq!(reply["subtype"], "success");
    let result = host.result().await;
    assert_eq!(result["subtype"], "error_during_execution");
    assert_eq!(result["is_error"], true);
    assert_eq!(result["terminal_reason"], "aborted_streaming");
    host.prompt("go on").await;
    assert_eq!(host.result().await["result"], "Here.");
    let notice = "[Request interrupted by user]";
    let sent = conversation(&server.requests()[1].body);
    let places = ["wait", notice, "go on"].map(|text| sent.find(text));
    assert!(places.is_sorted() && places[0].is_some(), "{sent}");
    let (ended, frames) = host.end().await;
    assert_eq!(ended.code, Some(0), "the last turn succeeded");
    let told = |frame: &&Value| frame["type"] == "user" && frame.to_string().contains(notice);
    assert_eq!(frames.iter().filter(told).count(), 1, "{frames:#?}");
}

#[tokio::test]
async fn an_interrupt_ends_a_running_command() {
    let server = serve(Scenario::new().tool("Bash", json!({ "command": "sleep 3600" })));
    let mut host = HostDriver::start(&server, &[]);
    host.prompt("sleep").await;
    host.wait_for_type("assistant").await;
    host.request(&json!({ "subtype": "interrupt" })).await;
    let result = host.result().await;
    assert_eq!(result["is_error"], true);
    let (ended, _) = host.end().await;
    assert_eq!(ended.code, Some(1));
}

#[tokio::test]
async fn model_and_permission_mode_change_between_turns() {
    let write = json!({ "file_path": "made.txt", "content": "x" });
    let script = Scenario::new()
        .reply("1")
        .reply("2")
        .tool("Write", write.clone())
        .reply("denied")
        .tool("Write", write)
        .reply("written");
    let server = serve(script);
    let run = crate::support::RunBuilder::bare(&server.base_url());
    // The model to go back to is the default.
    let mut host = HostDriver::with(run, &[]);
    host.prompt("one").await;
    host.result().await;
    let reply = host.ask(&json!({ "subtype": "set_model", "model": "claude-opus-5" })).await;
    assert_eq!(reply["response"]["model"], "claude-opus-5");
    host.prompt("two").await;
    host.result().await;
    host.ask(&json!({ "subtype": "set_model", "model": null })).await;
    host.prompt("write").await;
    assert_eq!(host.result().await["permission_denials"][0]["tool_name"], "Write");
    let reply = host.ask(&json!({ "subtype": "set_permission_mode", "mode": "acceptEdits" })).await;
    assert_eq!(reply["response"], json!({ "mode": "acceptEdits" }));
    host.prompt("write again").await;
    assert_eq!(host.result().await["permission_denials"], json!([]));
    assert!(host.process.work().join("made.txt").is_file());
    let models: Vec<Value> =
        server.requests().iter().map(|request| request.body["model"].clone()).collect();
    assert_eq!(models[..3], ["claude-sonnet-5-5", "claude-opus-5", "claude-sonnet-5-5"]);
    host.end().await;
}

#[tokio::test]
async fn a_host_chooses_bypass_only_if_the_command_line_allows_it() {
    let server = serve(Scenario::new());
    for (flags, is_allowed) in [
        (&[][..], false),
        (&["--allow-dangerously-skip-permissions"], true),
        (&["--permission-mode", "bypassPermissions"], true),
    ] {
        let run = crate::support::RunBuilder::bare(&server.base_url());
        let mut host = HostDriver::with(run, flags);
        let request = json!({ "subtype": "set_permission_mode", "mode": "bypassPermissions" });
        let reply = host.ask(&request).await;
        assert_eq!(reply["subtype"] == "success", is_allowed, "{flags:?}: {reply}");
        let reply = host.ask(&json!({ "subtype": "set_permission_mode", "mode": "yolo" })).await;
        assert_eq!(reply["subtype"], "error", "{reply}");
        host.end().await;
    }
}

#[tokio::test]
async fn a_request_of_an_unknown_kind_is_answered_with_an_error() {
    let server = serve(Scenario::new());
    let mut host = HostDriver::start(&server, &[]);
    let reply = host.ask(&json!({ "subtype": "set_color", "color": "red" })).await;
    assert_eq!(reply["subtype"], "error");
    assert_eq!(reply["error_code"], "unsupported_request");
    host.send(&json!({ "type": "keep_alive" })).await;
    let (ended, frames) = host.end().await;
    assert_eq!((ended.code, frames.len()), (Some(0), 1), "{frames:?}");
}

#[tokio::test]
async fn initialize_sets_prompts_agents_and_the_schema() {
    let server = serve(Scenario::new().tool("StructuredOutput", json!({ "n": 4 })));
    let mut host = HostDriver::start(&server, &[]);
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let reply = host
        .ask(&json!({ "subtype": "initialize", "appendSystemPrompt": "Stand still.",
            "systemPrompt": ["You are", "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__", "a heron."],
            "jsonSchema": schema, "planModeInstructions": "Wade.", "promptSuggestions": false,
            "agents": { "fisher": { "description": "Catches fish", "prompt": "Fish." } } }))
        .await;
    let agents = reply["response"]["agents"].as_array().expect("a list").iter();
    let names: Vec<&Value> = agents.map(|agent| &agent["name"]).collect();
    assert_eq!(names, ["general-purpose", "fisher"]);
    let warnings: Vec<&Value> =
        host.frames.iter().filter_map(|frame| frame.get("content")).collect();
    assert_eq!(warnings, ["planModeInstructions has no effect in outlast"]);
    host.prompt("how many?").await;
    assert_eq!(host.result().await["structured_output"], json!({ "n": 4 }));
    let system = server.requests()[0].body["system"].to_string();
    let wanted = [r"You are\n\na heron.", "Stand still."];
    assert!(wanted.iter().all(|text| system.contains(text)), "{system}");
    host.end().await;
}

#[tokio::test]
async fn initialize_defines_the_agent_of_the_run_its_skills_and_plugins() {
    let server = serve(Scenario::new().tool("Bash", json!({ "command": "true" })).reply("Done."));
    let run = crate::support::RunBuilder::against(&server);
    let plugin = run.work().join("kits/hello");
    let skills = run.work().join(".claude/skills");
    let hook = json!({ "type": "command", "command": "echo GUARDED >&2; exit 2" });
    let hooks = json!({ "hooks": { "PreToolUse": [{ "hooks": [hook] }] } });
    for (file, text) in [
        (plugin.join("commands/greet.md"), "Greet $ARGUMENTS now".to_owned()),
        (run.work().join("kits/a/commands/x.md"), "Do x".to_owned()),
        (plugin.join("hooks/hooks.json"), hooks.to_string()),
        (plugin.join(".mcp.json"), r#"{"mcpServers": {"a": {"command": "false"}}}"#.to_owned()),
        (skills.join("pdf/SKILL.md"), "---\ndescription: d\n---\nDo".to_owned()),
        (skills.join("art/SKILL.md"), "---\ndescription: d\n---\nDo".to_owned()),
    ] {
        write_file(&file, text);
    }
    let mut host = HostDriver::with(run, &["--agent=lead", "--allowedTools", "Bash"]);
    let lead = json!({ "description": "Leads", "prompt": "You lead.", "tools": ["Bash"] });
    let initialize = json!({ "subtype": "initialize", "systemPrompt": [""],
        "agents": { "lead": lead }, "skills": ["pdf"],
        "plugins": [{ "type": "local", "path": plugin, "skipMcpDiscovery": true },
            { "type": "local", "path": "kits/a" }] });
    let reply = host.ask(&initialize).await;
    assert_eq!(reply["response"]["plugins_applied"], true, "{reply}");
    host.prompt("/hello:greet Bob").await;
    let init = host.wait_for("init", |frame| frame["subtype"] == "init").await;
    assert_eq!(init["skills"], json!(["pdf"]));
    let plugins = [&init["plugins"][0]["name"], &init["plugins"][1]["name"]];
    assert_eq!(plugins, ["hello", "a"], "in the order of the host");
    assert_eq!(init["mcp_servers"], json!([]), "the host connects to them");
    host.result().await;
    let bodies = server.requests();
    assert!(bodies[0].body["system"].to_string().contains("You lead."), "{}", bodies[0].body);
    assert!(conversation(&bodies[0].body).contains("Greet Bob now"));
    assert!(conversation(&bodies[1].body).contains("GUARDED"), "the plugin's hook runs");
    host.end().await;

    for (initialize, why) in [
        (json!({ "subtype": "initialize" }), "there is no agent \"lead\""),
        (json!({ "subtype": "initialize", "plugins": [{}] }), "names no folder"),
        (
            json!({ "subtype": "initialize", "agents": { "lead": lead },
                "plugins": [{ "path": "gone", "skipMcpDiscovery": true }] }),
            "initialize: plugins: gone: is not a folder",
        ),
    ] {
        let mut host = HostDriver::start(&server, &["--agent=lead"]);
        let reply = host.ask(&initialize).await;
        assert!(reply["error"].as_str().is_some_and(|it| it.contains(why)), "{reply}");
        assert_eq!(host.end().await.0.code, Some(1), "{why}");
    }
}

#[tokio::test]
async fn prompts_that_wait_are_dropped_if_an_interrupt_asks_for_it() {
    let server = serve(Scenario::new().reply("late").delay(HOUR).reply("Here."));
    let mut host = HostDriver::start(&server, &[]);
    let prompt = |id: &str| json!({ "type": "user", "uuid": id, "message": { "role": "user", "content": id } });
    for id in ["p-1", "p-2"] {
        host.send(&prompt(id)).await;
    }
    wait_for_requests(&server, 1).await;
    let reply = host.ask(&json!({ "subtype": "interrupt", "cancel_queued": true })).await;
    let wanted = json!({ "still_queued": [], "cancelled": ["p-2"] });
    assert_eq!(reply["response"], wanted);
    host.result().await;
    host.send(&prompt("p-2")).await;
    assert_eq!(host.result().await["result"], "Here.");
    assert_eq!(server.requests().len(), 2);
    host.end().await;
}

#[tokio::test]
async fn the_states_of_the_session_are_reported_when_the_host_asks_for_them() {
    let server = serve(Scenario::new().reply("Done."));
    let run = crate::support::RunBuilder::against(&server)
        .env("CLAUDE_CODE_SDK_READS_SESSION_STATE", "1");
    let mut host = HostDriver::with(run, &[]);
    host.prompt("go").await;
    let (_, frames) = host.end().await;
    let kinds: Vec<String> = frames
        .iter()
        .map(|frame| {
            let state = frame["state"].as_str().unwrap_or_default();
            let kind = frame["subtype"].as_str().unwrap_or_default();
            format!("{kind}{state}")
        })
        .collect();
    assert_eq!(kinds.first().map(String::as_str), Some("session_state_changedrunning"));
    assert_eq!(kinds.last().map(String::as_str), Some("session_state_changedidle"), "{kinds:?}");
}

#[tokio::test]
async fn prompts_are_replayed_when_asked_for() {
    let server = serve(Scenario::new().reply("Done."));
    let mut host = HostDriver::start(&server, &["--replay-user-messages"]);
    host.send(&json!({ "type": "user", "uuid": "p-7",
        "message": { "role": "user", "content": "hello" } }))
        .await;
    let echo = host.wait_for_type("user").await;
    assert_eq!((&echo["isReplay"], &echo["uuid"]), (&json!(true), &json!("p-7")));
    assert_eq!(echo["message"]["content"], "hello");
    host.end().await;
}

#[tokio::test]
async fn an_api_failure_and_a_spent_budget_are_told_in_the_host_s_terms() {
    let server = serve(Scenario::new().status(400).error("invalid_request_error", "no", None));
    let mut host = HostDriver::start(&server, &[]);
    host.prompt("go").await;
    let result = host.result().await;
    assert_eq!((&result["subtype"], &result["is_error"]), (&json!("success"), &json!(true)));
    assert_eq!(result["terminal_reason"], "api_error");
    assert_eq!(result["api_error_status"], 400);
    assert!(result["result"].as_str().is_some_and(|text| text.starts_with("API Error: ")));
    let (ended, _) = host.end().await;
    assert_eq!(ended.code, Some(1));

    let command = json!({ "command": "true" });
    let server = serve(Scenario::new().tool("Bash", command).usage(500_000, 10).reply("no"));
    let mut host = HostDriver::start(&server, &["--max-budget-usd", "0.5"]);
    host.prompt("go").await;
    let result = host.result().await;
    assert_eq!(result["subtype"], "error_max_budget_usd");
    assert_eq!(result["terminal_reason"], "budget_exhausted");
    host.end().await;
}

#[tokio::test]
async fn a_session_that_is_not_kept_lasts_as_long_as_its_host() {
    let server = serve(Scenario::new().reply("1").reply("2"));
    let mut host = HostDriver::start(&server, &["--no-session-persistence"]);
    host.prompt("the word is grebe").await;
    let first = host.result().await;
    assert_eq!((&first["durable"], &first["resume"]), (&json!(false), &Value::Null));
    host.prompt("which?").await;
    host.result().await;
    assert!(conversation(&server.requests()[1].body).contains("grebe"));
    let (ended, _) = host.end().await;
    assert!(!ended.config().join("projects").exists(), "nothing is kept");
}

#[tokio::test]
async fn the_mode_auto_of_a_host_is_that_of_the_flag() {
    let write = || json!({ "file_path": "a.txt", "content": "x" });
    for mode in ["auto", "manual"] {
        let server = serve(Scenario::new().tool("Write", write()).reply("Done."));
        let mut host = HostDriver::start(&server, &[]);
        let reply = host.ask(&json!({ "subtype": "set_permission_mode", "mode": mode })).await;
        assert_eq!(reply["subtype"], "success", "{reply}");
        host.prompt("write it").await;
        assert_eq!(host.result().await["result"], "Done.");
        let is_written = host.process.work().join("a.txt").exists();
        assert_eq!(is_written, mode == "auto", "{mode}");
        assert_eq!(host.end().await.0.code, Some(0));
    }
}

#[tokio::test]
async fn prompts_that_are_empty_repeated_or_ask_nothing_make_no_request() {
    let server = serve(Scenario::new().reply("First.").reply("Second."));
    let mut host = HostDriver::start(&server, &[]);
    host.prompt("").await;
    let empty = host.result().await;
    assert_eq!((&empty["is_error"], &empty["num_turns"]), (&json!(true), &json!(0)), "{empty}");
    let user = |content: &str, more: Value| {
        let mut frame =
            json!({ "type": "user", "message": { "role": "user", "content": content } });
        let fields = frame.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        frame.to_string()
    };
    host.send_line(&user("the word is cormorant", json!({ "shouldQuery": false }))).await;
    let id = "11111111-1111-4111-8111-111111111111";
    for _ in 0..2 {
        host.send_line(&user("which word?", json!({ "uuid": id }))).await;
    }
    assert_eq!(host.result().await["result"], "First.");
    host.send_line(
        r#"{"type":"control_request","request_id":7,"request":{"subtype":"interrupt"}}"#,
    )
    .await;
    let reply = host.wait_for_type("control_response").await;
    assert_eq!(reply["response"]["request_id"], 7, "{reply}");
    host.prompt("again").await;
    assert_eq!(host.result().await["result"], "Second.");
    let requests = server.requests();
    assert_eq!(requests.len(), 2, "one for each prompt");
    let sent = conversation(&requests[0].body);
    assert!(sent.contains("cormorant") && sent.contains("which word?"), "{sent}");
    assert_eq!(host.end().await.0.code, Some(0));
}
