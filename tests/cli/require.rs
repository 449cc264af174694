//! `--require`, from the flag to the first request, and from the check to the result.

use std::time::Duration;

use outlast::agent::RunOutcome;
use outlast::cli::acceptance::requirement_failed;
use outlast::cli::system::add_acceptance_checks;
use outlast::recovery::StopReason;
use outlast::rehearsal::Scenario;
use outlast::tools::{Acceptance, Requirement, RequirementReport};

use super::binary_fixture::BinaryFixture;
use super::results::{object, outcome};
use super::settings::resolve;
use crate::support::{RunBuilder, serve};

#[test]
fn flags_outrank_files_and_ten_minutes_are_the_default() {
    let file = r#"{"require": "make check", "requireTimeout": "90s", "requireRetries": 1}"#;
    // flags, settings file, command, seconds, retries
    let table: [(&[&str], &str, &str, u64, u8); 5] = [
        (&["--require", "cargo test", "hi"], "{}", "cargo test", 600, 3),
        (&["--require=cargo test -- -q", "hi"], file, "cargo test -- -q", 90, 1),
        (&["hi"], file, "make check", 90, 1),
        (&["--require-timeout", "2m", "hi"], file, "make check", 120, 1),
        (&["--require", "a", "--require", "b", "hi"], file, "( a\n) && ( b\n)", 90, 1),
    ];
    for (flags, file, command, seconds, retries) in table {
        let settings = resolve(flags, &[], file).expect("good settings");
        let timeout = Duration::from_secs(seconds);
        let wanted = Requirement { command: command.to_owned(), timeout };
        assert_eq!(settings.demands.requirement, Some(wanted), "{flags:?}");
        let given = settings.config.limits.budgets.requirement_tries;
        assert_eq!(given, retries, "{flags:?}");
    }
    assert_eq!(resolve(&["hi"], &[], "{}").expect("good settings").demands.requirement, None);
}

#[test]
fn mistakes_are_one_line() {
    let long = "x".repeat(125_000);
    let cases: &[(&[&str], &[&str])] = &[
        (&["--require", " ", "hi"], &["--require", "empty", "leave it out"]),
        (&["--require-timeout", "5m", "hi"], &["--require-timeout needs --require"]),
        (&["--require", "x", "--require-timeout", "0", "hi"], &["--require-timeout", "\"0\""]),
        (&["--require", "x", "--require-timeout", "soon", "hi"], &["\"soon\"", "45m"]),
        (&["--require", &long, "hi"], &["125000 bytes", "correct --require"]),
        (
            &["--settings", r#"{"require": "a\u0000b"}"#, "hi"],
            &["NUL character", "correct --require"],
        ),
        (&["--settings", r#"{"require": ["a"]}"#, "hi"], &["\"require\" takes a text"]),
    ];
    for (args, parts) in cases {
        let world = BinaryFixture::new();
        let before = world.inventory();
        let ended = world.run(args);
        let line = ended.line();
        for part in *parts {
            assert!(line.contains(part), "{part:?} in {line:?}");
        }
        assert_eq!(ended.code, 2, "{ended:?}");
        assert_eq!(ended.result()["exit_code"], 2);
        assert_eq!(world.inventory(), before);
    }
}

#[tokio::test]
async fn the_model_knows_the_command_from_the_first_request_on() {
    let server = serve(Scenario::new().reply("Done."));
    let args = ["--require", "true # 'it'", "--system-prompt", "", "--max-turns", "1", "Do it."];
    let ended = RunBuilder::against(&server).args(args).run().await;
    let requests = server.requests();
    assert!(!requests.is_empty(), "{ended:?}");
    let system = requests[0].body["system"].to_string();
    assert!(system.contains("only if it passes:\\ntrue # 'it'"), "{system}");
}

#[test]
fn required_command_and_schema_instructions_follow_the_prompt_separately() {
    let flags = ["--require", "true", "--json-schema", "{}", "hi"];
    let demands = resolve(&flags, &[], "{}").expect("good settings").demands;
    let text = add_acceptance_checks("Mine.".to_owned(), &demands);
    let parts: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(parts.len(), 3, "{text}");
    assert_eq!(parts[0], "Mine.");
    assert!(parts[1].ends_with(":\ntrue") && parts[2].contains("StructuredOutput"), "{text}");
    let none = resolve(&["hi"], &[], "{}").expect("good settings").demands;
    let dropped = ["hi", "--require", "none", "--json-schema", "none"];
    let dropped = resolve(&dropped, &[], r#"{"require": "make"}"#).expect("good settings").demands;
    assert!(dropped.requirement.is_none() && dropped.schema.is_none());
    assert_eq!(add_acceptance_checks("Mine.".to_owned(), &none), "Mine.");
}

fn verified(attempts: u32, passed: bool, exit_code: Option<i32>, how: Option<&str>) -> RunOutcome {
    let requirement = RequirementReport {
        command: "cargo test".to_owned(),
        attempts,
        passed,
        exit_code,
        how: how.map(ToOwned::to_owned),
        timed_out: how.is_some_and(|how| how.starts_with("did not end")),
        output: if passed { String::new() } else { "one\ntwo".to_owned() },
    };
    let acceptance = Acceptance { requirement: Some(requirement), ..Acceptance::default() };
    let reason = if passed { StopReason::Completed } else { StopReason::MaxTurns };
    RunOutcome { acceptance, ..outcome(reason) }
}

#[test]
fn the_result_reports_the_required_command_and_its_outcome() {
    let result = object(&verified(2, true, Some(0), Some("passed")));
    let wanted = serde_json::json!({
        "command": "cargo test", "passed": true, "attempts": 2, "exit_code": 0 });
    assert_eq!(result["requirement"], wanted);
    let result = object(&verified(0, false, None, None));
    assert_eq!(result["requirement"]["passed"], false);
    assert_eq!(result["requirement"]["exit_code"], serde_json::Value::Null);
    assert_eq!(result["requirement"]["output"], "one\ntwo");
}

#[test]
fn a_failed_requirement_names_the_command_and_its_last_exit() {
    let how = "ended with exit code 101";
    let (what, advice) = requirement_failed(&verified(4, false, Some(101), Some(how)));
    for part in ["\"cargo test\"", "4 times", how] {
        assert!(what.contains(part), "{part} in {what}");
    }
    assert!(advice.contains("requirement.output") && !advice.contains("time"), "{advice}");
    let cut = "did not end within 5s, and was cut off";
    let (_, advice) = requirement_failed(&verified(1, false, None, Some(cut)));
    assert!(advice.contains("--require-timeout"), "{advice}");
    for (code, wanted) in [(127, "not found"), (126, "not executable")] {
        let (what, advice) = requirement_failed(&verified(1, false, Some(code), Some(how)));
        assert!(advice.contains(wanted) && !what.contains(wanted), "{code}: {advice}");
    }
    let (once, _) = requirement_failed(&verified(1, false, None, Some("was killed by SIGKILL")));
    assert!(once.contains("run once") && once.ends_with("SIGKILL"), "{once}");
}
