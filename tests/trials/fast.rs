//! Fast mode: its requests, its cost, and its fallback to normal speed.

use std::time::Duration;

use outlast::rehearsal::{ReceivedRequest, RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::chain::{QUICKLY, TIMELESS};
use super::timeouts::{announcements, messages};
use crate::agent::model_chains::SECOND;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// A model that has fast mode, at twice the price: 8 dollars in and 40 out.
const MODEL: &str = SECOND;
const BETA: &str = "fast-mode-";
const DENIED: &str = "anthropic-ratelimit-unified-overage-disabled-reason";

fn trial(server: &RehearsalServer) -> RunBuilder {
    let flags = ["--output-format=stream-json", "--fast", QUICKLY];
    RunBuilder::against(server).args(flags).args(TIMELESS)
}

fn fast(server: &RehearsalServer) -> RunBuilder {
    trial(server).args(["--model", MODEL])
}

/// At which speed each request was asked for. Both signs of it must agree.
fn speeds(server: &RehearsalServer) -> Vec<bool> {
    let speed = |request: &ReceivedRequest| {
        let asked = request.body["speed"] == "fast";
        let beta = request.header("anthropic-beta").is_some_and(|betas| betas.contains(BETA));
        assert_eq!(asked, beta, "{:?}", request.headers);
        asked
    };
    server.requests().iter().map(speed).collect()
}

fn strategies(ended: &FinishedProcess) -> Value {
    ended.result()["recovery"]["strategies"].clone()
}

fn a_turn(scenario: Scenario, command: &Value) -> Scenario {
    scenario.tool("Bash", command.clone()).usage(1000, 100)
}

/// Something that takes half an hour and more of a run whose time passes quickly.
fn half_an_hour() -> Value {
    json!({ "command": "sleep 1.9" })
}

#[tokio::test]
async fn a_short_rate_limit_is_waited_out_in_fast_mode() {
    for (status, wish) in [(429, "19"), (529, "5")] {
        let server = serve(
            Scenario::new()
                .status(status)
                .header("retry-after", wish)
                .reply("Done.")
                .usage(1000, 100),
        );
        let ended = fast(&server).args(["Do it."]).run().await;
        let result = ended.result();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(speeds(&server), [true, true]);
        assert_eq!(announcements(&ended).len(), 1, "{ended:?}");
        let wait: u64 = wish.parse().expect("a number");
        assert!(result["recovery"]["waited_ms"].as_u64() >= Some(wait * 1_000), "{result}");
        assert_eq!(result["total_cost_usd"], 0.012, "twice the price");
    }
}

#[tokio::test]
async fn a_longer_limit_disables_fast_mode_for_ten_minutes_without_waiting() {
    let scenario = Scenario::new().status(429).header("retry-after", "20");
    let scenario = a_turn(scenario, &half_an_hour());
    let server = serve(scenario.reply("Done.").usage(1000, 100));
    let ended = fast(&server).args(["Do it."]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(speeds(&server), [true, false, true]);
    assert_eq!(announcements(&ended), [] as [&str; 0], "nothing is waited for");
    assert_eq!(result["recovery"]["waited_ms"], 0);
    // A turn at the price, and one at twice the price.
    assert_eq!(result["total_cost_usd"], 0.018);
    assert_eq!(strategies(&ended)["fast_mode_cool_down"], 1);
    let told: Vec<&str> =
        ended.stderr.lines().filter(|line| line.contains("normal speed")).collect();
    assert_eq!(told.len(), 1, "{ended:?}");
    assert!(told[0].contains("normal speed (rate_limit), fast again after "), "{told:?}");
    let frames = messages(&ended, "recovery");
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert_eq!(frames[0]["strategy"], "fast_mode_cool_down");
    assert_eq!(frames[0]["error_class"], "rate_limit");
}

/// For the whole session, however short the wait would be, and in the next process too.
#[tokio::test]
async fn fast_mode_is_not_requested_again_after_the_account_lacks_it() {
    let turn = |scenario: Scenario| a_turn(scenario, &half_an_hour());
    let denied = Scenario::new().status(429).header("retry-after", "2");
    let denied = turn(denied.header(DENIED, "out_of_credits"));
    let late = denied.reply("Too late.").delay(Duration::from_hours(1)).reply("Done.");
    let server = serve(late);
    let run = fast(&server).args(["Do it."]).start();
    server.wait_for_request(3).await;
    run.signal(nix::sys::signal::Signal::SIGKILL);
    let ended = run.end().await;
    assert!(ended.stderr.contains("off for the rest of the session: out_of_credits"), "{ended:?}");
    let off = ended.frames().into_iter().find(|frame| frame["subtype"] == "recovery");
    let off = off.expect("programs are told as well");
    assert_eq!(
        (&off["strategy"], &off["reason"]),
        (&json!("fast_mode_off"), &json!("out_of_credits"))
    );
    let flags = ["--output-format=stream-json", "--fast", "--model", MODEL, "--continue"];
    let ended = ended.again(&server.base_url()).args(flags).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(speeds(&server), [true, false, false, false]);
}

/// A flag without effect must cost nothing and must be reported.
#[tokio::test]
async fn a_model_without_fast_mode_runs_at_normal_speed_with_a_warning() {
    let server = serve(Scenario::new().status(429).reply("Done.").usage(1000, 100));
    let ended = trial(&server).args(["--model", "sonnet", "Do it."]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(speeds(&server), [false, false]);
    assert_eq!(result["total_cost_usd"], 0.003);
    assert_eq!(strategies(&ended), json!({ "retry": 1 }), "it is no matter of speed");
    let warning = "fast mode has no effect: none is known of claude-sonnet-5-5";
    let warnings: Vec<&str> =
        ended.stderr.lines().filter(|line| line.contains("warning: fast mode")).collect();
    assert_eq!(warnings.len(), 1, "{ended:?}");
    assert!(warnings[0].contains(warning), "{warnings:?}");
    assert!(result["warnings"][0].as_str().is_some_and(|it| it.contains(warning)), "{result}");
}

/// Each model of a chain at the speed that it has, and at its price.
#[tokio::test]
async fn the_next_model_uses_fast_mode_if_available() {
    for (chain, expected, cost) in
        [(["opus", "sonnet"], [true, false], 0.015), (["sonnet", "opus"], [false, true], 0.015)]
    {
        let server = serve(
            a_turn(Scenario::new(), &json!({ "command": "true" }))
                // A model that has answered is asked once more.
                .status(404)
                .times(2)
                .reply("Done.")
                .usage(1000, 100),
        );
        let flags = ["--model", chain[0], "--fallback-model", chain[1], "Do it."];
        let ended = trial(&server).args(flags).run().await;
        let result = ended.result();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(speeds(&server), [expected[0], expected[0], expected[0], expected[1]]);
        assert_eq!(result["total_cost_usd"], cost);
        assert_eq!(result["warnings"].as_array().map(Vec::len), Some(1), "{result}");
        assert!(
            result["warnings"][0].as_str().is_some_and(
                |it| it.contains("a part of the chain: none is known of claude-sonnet-5-5,")
            ),
            "{result}"
        );
    }
}

/// The budget reserves the highest cost of a request at its speed.
#[tokio::test]
async fn a_budget_counts_the_price_of_fast_mode() {
    // Of these two, one charges twice as much for speed and one six times.
    for (model, times) in [("claude-opus-4-8", 2_u64), ("claude-opus-4-6", 6)] {
        let mut caps = Vec::new();
        for speed in [&["--fast"][..], &[]] {
            let server = serve(Scenario::new().reply("Done.").usage(1000, 100));
            let flags = ["--output-format=json", "--model", model, "--max-budget-usd", "2"];
            let ended =
                RunBuilder::against(&server).args(flags).args(speed).args(["Do it."]).run().await;
            let result = ended.result();
            assert_eq!(ended.code, Some(0), "{ended:?}");
            let paid = if speed.is_empty() { 1 } else { times };
            let dollars =
                Value::from(f64::from(u32::try_from(paid).expect("small")) * 75.0 / 10_000.0);
            assert_eq!(result["total_cost_usd"], dollars, "{model}");
            let cap = server.requests()[0].body["max_tokens"].as_u64();
            caps.push(cap.expect("every request has one"));
        }
        assert_eq!(caps[1], 8_192, "{model}");
    }
    // So little that speed leaves no room for a whole reply, and then for none at all.
    for (ceiling, code) in [("1.3", 0), ("0.2", 4)] {
        let server = serve(Scenario::new().reply("Done.").usage(1000, 100));
        let flags = ["--output-format=json", "--model=claude-opus-4-6", "--fast"];
        let trial = RunBuilder::against(&server).args(flags).args(["--max-budget-usd", ceiling]);
        let ended = trial.args(["Do it."]).run().await;
        assert_eq!(ended.code, Some(code), "{ceiling}: {ended:?}");
        let cap = server.requests().first().and_then(|request| request.body["max_tokens"].as_u64());
        assert!(cap.is_none_or(|cap| (1_024..8_192).contains(&cap)), "{ceiling}: {cap:?}");
        assert_eq!(cap.is_some(), code == 0, "{ceiling}");
    }
}
