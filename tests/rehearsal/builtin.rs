//! The scenarios that come with the program.

use std::fs;
use std::path::Path;
use std::process::Command;

use outlast_rehearsal::{Scenario, ScratchFolder, ScriptedToolCall, StepAnswer, builtin, list};

const NAMES: &[&str] = &[
    "hello",
    "fix-a-bug",
    "outage",
    "rate-limit",
    "long-outage",
    "hopeless",
    "quota",
    "gateway-overload",
    "gateway-throttle",
    "overload-fallback",
    "provider-outage",
    "fallback-quota",
    "fallback-missing",
    "fallback-return",
    "fallback-return-fails",
    "fast-wait",
    "fast-cool-down",
    "fast-denied",
    "login-renewal",
    "key-rotation",
    "bad-key",
    "cloud-outage",
    "cloud-throttle",
    "cloud-token",
    "interrupted-streams",
    "truncation",
    "bad-arguments",
    "empty",
    "unfinished",
    "refusal",
    "wrong-rejections",
    "auto-compact",
    "compaction-fails",
    "overflow",
    "reactive-compact",
    "compaction-overflow",
    "thrash",
    "blocking-limit",
    "image-too-large",
    "pdf-too-large",
    "unreadable-block",
    "foreign-thinking",
    "gateway-llamacpp",
    "gateway-vllm",
    "endless",
    "budget",
    "deadline",
    "loop",
    "polling",
    "requirement",
    "requirement-failed",
    "structured-output",
    "structured-exhausted",
    "hook-crashes",
    "hook-hangs",
    "stop-hook-blocks",
    "mcp-dies",
    "mcp-hangs",
    "web-private",
    "background-build",
    "background-server",
    "agent-fails",
    "agent-denied",
    "agents-overload",
    "agents-endless",
];

fn named(name: &str) -> Scenario {
    builtin(name).expect("it is built in").expect("it can be read")
}

#[test]
fn every_builtin_scenario_is_listed_with_its_expected_end() {
    let listed: Vec<_> = list().into_iter().map(|listing| listing.name).collect();
    assert_eq!(listed, NAMES);
    for &name in NAMES {
        let scenario = named(name);
        assert_eq!(scenario.name, name);
        assert!((20..100).contains(&scenario.summary.len()), "{name}: {}", scenario.summary);
        assert!(!scenario.prompt.is_empty(), "{name}");
        assert!(scenario.expect.exit.is_some(), "{name}");
        assert!(scenario.expect.terminal_reason.is_some(), "{name}");
    }
    assert!(builtin("none").is_none());
}

#[test]
fn a_finite_script_has_an_answer_for_each_expected_request() {
    for &name in NAMES {
        let scenario = named(name);
        if scenario.main.after != outlast_rehearsal::AfterLast::Fail {
            continue;
        }
        let part = &scenario.main;
        if part.rules.require_key.is_some() || part.rules.tokens.is_some() {
            continue;
        }
        let all = part.steps.iter().chain(&part.compactions);
        let answers: usize = all.map(|step| step.repeat as usize).sum();
        let Some(requests) = scenario.expect.requests else { continue };
        // What a rule refuses uses no answer up.
        let refuses = part.rules != outlast_rehearsal::ServerRules::default();
        assert!(requests == answers || (refuses && requests > answers), "{name}: {requests}");
    }
}

fn tools(scenario: &Scenario) -> Vec<ScriptedToolCall> {
    let mut tools = Vec::new();
    for step in scenario.main.steps.iter().filter(|step| step.fault.is_none()) {
        if let StepAnswer::Reply(reply) = &step.answer {
            tools.extend(reply.tools.iter().filter(|tool| tool.cut.is_none()).cloned());
        }
    }
    tools
}

fn sh(folder: &Path, command: &str) -> bool {
    let mut shell = Command::new("sh");
    let output = shell.arg("-c").arg(command).current_dir(folder).output();
    output.expect("sh can be started").status.success()
}

/// Does by hand what the tools would do, and says which commands succeeded.
fn act(scenario: &Scenario, folder: &Path) -> Vec<bool> {
    let mut succeeded = Vec::new();
    for tool in tools(scenario) {
        let input = |key: &str| tool.input[key].as_str().expect("a string").to_owned();
        match tool.name.as_str() {
            "Bash" => succeeded.push(sh(folder, &input("command"))),
            "Edit" => {
                let path = input("file_path").replace("${cwd}", folder.to_str().expect("UTF-8"));
                let text = fs::read_to_string(&path).expect("the file is there");
                assert_eq!(text.matches(&input("old_string")).count(), 1);
                let text = text.replace(&input("old_string"), &input("new_string"));
                fs::write(path, text).expect("the file can be written");
            }
            _ => {}
        }
    }
    succeeded
}

#[test]
fn the_scripted_bug_fails_its_test_and_the_scripted_fix_passes_it() {
    for name in ["fix-a-bug", "outage"] {
        let scenario = named(name);
        let scratch = ScratchFolder::create(&scenario).unwrap();
        assert_eq!(act(&scenario, scratch.path()), [false, true], "{name}");
        check_files(&scenario, scratch.path());
    }
}

#[test]
fn the_tool_calls_of_other_scripts_produce_the_expected_files() {
    for (name, rounds) in [("truncation", 1), ("endless", 3), ("budget", 1), ("deadline", 1)] {
        let scenario = named(name);
        let scratch = ScratchFolder::create(&scenario).unwrap();
        for _ in 0..rounds {
            assert!(act(&scenario, scratch.path()).iter().all(|succeeded| *succeeded), "{name}");
        }
        check_files(&scenario, scratch.path());
    }
}

fn check_files(scenario: &Scenario, folder: &Path) {
    for (path, wanted) in &scenario.expect.files {
        let text = fs::read_to_string(folder.join(path)).expect("the file is there");
        assert!(text.contains(wanted), "{}: {path}: {text}", scenario.name);
    }
    for path in &scenario.expect.absent {
        assert!(!folder.join(path).exists(), "{}: {path}", scenario.name);
    }
}
