//! Control requests about what runs, what the conversation holds, and the MCP servers.

use std::time::Duration;

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use super::driver::HostDriver;
use crate::support::{FifoSignal, is_alive, serve};

/// Longer than any test.
const HOUR: Duration = Duration::from_hours(1);

/// Starts a process outside of the command's group, tells its id, and never ends.
const ENDLESS: &str = "setsid sh -c 'echo $$ > bell; exec sleep 3600'";

fn task_id(started: &Value) -> String {
    started["task_id"].as_str().expect("an id").to_owned()
}

async fn wait_for_subtype(host: &mut HostDriver, subtype: &str) -> Value {
    host.wait_for(subtype, |frame| frame["subtype"] == subtype).await
}

/// Reads the messages about the end of a task that was stopped.
async fn is_stopped(host: &mut HostDriver, id: &str) {
    let updated = wait_for_subtype(host, "task_updated").await;
    assert_eq!(updated["task_id"], id);
    assert_eq!(updated["patch"]["status"], "killed");
    let notification = wait_for_subtype(host, "task_notification").await;
    assert_eq!(
        (&notification["task_id"], &notification["status"]),
        (&json!(id), &json!("stopped"))
    );
}

#[tokio::test]
async fn a_background_command_is_stopped_with_all_its_processes() {
    let call = json!({ "command": ENDLESS, "run_in_background": true });
    let server = serve(Scenario::new().tool("Bash", call).reply("late").delay(HOUR));
    let mut host = HostDriver::start(&server, &[]);
    let mut bell = FifoSignal::at(&host.process.work().join("bell"));
    host.prompt("go").await;
    let id = task_id(&wait_for_subtype(&mut host, "task_started").await);
    let pid = bell.wait_for_line().await.trim().parse().expect("a process id");
    let stop = json!({ "subtype": "stop_task", "task_id": id });
    assert_eq!(host.ask(&stop).await["response"], json!({}));
    is_stopped(&mut host, &id).await;
    assert!(!is_alive(pid), "a process of the command is left");
    let reply = host.ask(&stop).await;
    assert_eq!(reply["subtype"], "error", "it is not running any more: {reply}");
    host.ask(&json!({ "subtype": "interrupt" })).await;
    host.result().await;
    host.end().await;
}

#[tokio::test]
async fn a_sub_agent_is_stopped_and_its_parent_goes_on() {
    for is_background in [true, false] {
        let call = json!({ "description": "look", "prompt": "look", "subagent_type": "general-purpose",
            "run_in_background": is_background });
        let script = Scenario::new().tool("Agent", call).reply("late").delay(HOUR);
        let script =
            if is_background { script.reply("late").delay(HOUR) } else { script.reply("Done.") };
        let server = serve(script);
        let mut host = HostDriver::start(&server, &[]);
        host.prompt("go").await;
        let id = task_id(&wait_for_subtype(&mut host, "task_started").await);
        super::driver::wait_for_requests(&server, 2).await;
        host.ask(&json!({ "subtype": "stop_task", "task_id": id })).await;
        is_stopped(&mut host, &id).await;
        if is_background {
            host.ask(&json!({ "subtype": "interrupt" })).await;
        }
        let result = host.result().await;
        assert_eq!(result["is_error"] == false, !is_background, "{result}");
        host.end().await;
    }
}

#[tokio::test]
async fn the_context_is_reported_before_the_first_turn_and_after_it() {
    let script = Scenario::new().reply(&"word ".repeat(500)).usage(5_000, 600);
    let server = serve(script);
    let mut host = HostDriver::start(&server, &[]);
    let ask = json!({ "subtype": "get_context_usage" });
    let before = host.ask(&ask).await["response"].clone();
    host.prompt("go").await;
    host.result().await;
    let after = host.ask(&ask).await["response"].clone();
    let messages = |usage: &Value| {
        let parts = usage["categories"].as_array().expect("a list").iter();
        let found = parts.clone().find(|part| part["name"] == "Messages").expect("messages");
        found["tokens"].as_u64().expect("a number")
    };
    assert_eq!(messages(&before), 0);
    assert!(messages(&after) > 0, "{after}");
    assert_eq!(
        (&before["apiUsage"], &after["apiUsage"]["output_tokens"]),
        (&Value::Null, &json!(600))
    );
    assert!(after["totalTokens"].as_u64() > before["totalTokens"].as_u64());
    assert_eq!(after["maxTokens"], after["autoCompactThreshold"]);
    host.end().await;
}

#[tokio::test]
async fn the_budget_for_thinking_changes_for_the_turns_to_come() {
    let server = serve(Scenario::new().reply("1").reply("2").reply("3"));
    let mut host = HostDriver::start(&server, &["--max-thinking-tokens", "2000"]);
    for tokens in [json!(5_000), json!(0), Value::Null] {
        let request =
            json!({ "subtype": "set_max_thinking_tokens", "max_thinking_tokens": tokens });
        assert_eq!(host.ask(&request).await["subtype"], "success");
        host.prompt("think").await;
        host.result().await;
    }
    let bodies = server.requests();
    let budget = |at: usize| bodies[at].body["thinking"]["budget_tokens"].clone();
    assert_eq!((budget(0), budget(1), budget(2)), (json!(5_000), Value::Null, json!(2_000)));
    host.end().await;
}
