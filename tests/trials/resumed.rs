//! Trials of sessions that are resumed: under the contract that they were started with, with the
//! prompt that they were started with, and in spite of damage.

use std::fs;

use outlast::rehearsal::{AfterLast, FaultPosition, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};

use super::outcomes::agrees;
use super::requirements::{asked, fails_as};
use super::resume_after_kill::journal;
use crate::support::{FinishedProcess, RunBuilder, serve};

const SESSION: &str = "5e551011-0000-4000-8000-00000000000a";

fn set_settings(ended: &FinishedProcess, settings: &Value) {
    fs::write(ended.config().join("settings.json"), settings.to_string()).expect("written");
}

/// However it is resumed, a requirement that never passed is no success.
#[tokio::test]
async fn the_printed_resume_command_keeps_a_failed_requirement() {
    let server = serve(Scenario::new().reply("Done.").times(4));
    let requirement = ["--require", "test -e fixed", "--session-id", SESSION, "Do it."];
    let ended = RunBuilder::against(&server).args(requirement).run().await;
    fails_as(&ended, 9, "requirement_failed");
    asked(&server, 4);
    let (again, none) = (ended.resume_words(), serve(Scenario::new()));
    set_settings(&ended, &json!({ "require": "true", "requireRetries": 9 }));
    let ended = ended.again(&none.base_url()).args(&again).run().await;
    let result = fails_as(&ended, 9, "requirement_failed");
    assert_eq!(result["requirement"]["command"], "test -e fixed");
    assert_eq!(result["contract_changes"], Value::Null);
    assert_eq!(ended.resume_words(), again);
    fs::write(ended.work().join("fixed"), "").expect("written");
    let ended = ended.again(&none.base_url()).args(&again).run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    let requirement = &result["requirement"];
    assert_eq!((&requirement["passed"], &requirement["attempts"]), (&json!(true), &json!(6)));
    let printed = ended.again(&none.base_url()).args(&again).run().await;
    assert_eq!(&printed.result()["requirement"], requirement);
    asked(&none, 0);
}

/// Unless it has changed since.
#[tokio::test]
async fn a_file_that_was_read_before_a_resume_is_not_read_again() {
    let (read, write) = (
        |path: &str| json!({ "file_path": path }),
        |path: &str| json!({ "file_path": path, "content": "new" }),
    );
    let script = Scenario::new().tool("Read", read("same")).tool("Read", read("changed"));
    let script = script.reply("Read.").tool("Write", write("same"));
    let server = serve(script.tool("Write", write("changed")).reply("Written."));
    let run = RunBuilder::against(&server);
    for name in ["same", "changed"] {
        fs::write(run.work().join(name), "old").expect("a file");
    }
    let ended = run.args(["Read."]).run().await;
    let id = ended.result()["session_id"].as_str().expect("an id").to_owned();
    let files = ["same", "changed"].map(|name| ended.work().join(name));
    fs::write(&files[1], "other").expect("a file");
    let ended = ended.again(&server.base_url()).args(["--resume", &id, "Write."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let contents = files.map(|file| fs::read_to_string(file).expect("it is there"));
    assert_eq!(contents, ["new", "other"]);
    let told = server.requests()[5].body.to_string();
    assert!(told.contains("has changed since it was read"), "{told}");
}

/// A guard of `--settings` guards the resumed session, too.
#[tokio::test]
async fn the_printed_resume_command_repeats_what_a_session_does_not_keep() {
    let touch = json!({ "command": "touch forbidden" });
    let server = serve(Scenario::new().tool("Bash", touch.clone()).times(2).reply("Done."));
    let run = RunBuilder::against(&server);
    let deny = json!({ "type": "command", "command": "echo no >&2; exit 2" });
    let hooks = json!({ "PreToolUse": [{ "matcher": "Bash", "hooks": [deny] }] });
    let guard = run.work().join("guard.json");
    fs::write(guard, json!({ "hooks": hooks }).to_string()).expect("written");
    let flags = ["--settings", "guard.json", "--append-system-prompt", "hazelnut"];
    let ended = run.args(flags).args(["--max-turns", "1", "Do it."]).run().await;
    fails_as(&ended, 3, "max_turns");
    let again = ended.resume_words();
    assert!(again.ends_with(&[
        "--settings=guard.json".to_owned(),
        "--append-system-prompt=hazelnut".to_owned()
    ]));
    // A copy is resumed without them, but without the guard only if that is meant.
    let bare = [&again[..again.len() - 2], &["--fork-session".to_owned()]].concat();
    let refused = ended.again(&serve(Scenario::new()).base_url()).args(&bare).run().await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("repeat --settings"), "{refused:?}");
    let bare = [&bare[..], &["--settings={}".to_owned()]].concat();
    let fork = refused.again(&serve(Scenario::new()).base_url()).args(&bare).run().await;
    let warnings = fork.result()["warnings"].to_string();
    assert!(warnings.contains("was given --append-system-prompt"), "{fork:?}");
    let ended = fork.again(&server.base_url()).args(&again).args(["--max-turns", "3"]);
    let ended = ended.run().await;
    let changed = json!(["the contract of the session changes: maxTurns was 1, is 3"]);
    assert_eq!((ended.code, &ended.result()["warnings"]), (Some(0), &changed), "{ended:?}");
    assert!(!ended.work().join("forbidden").exists(), "{ended:?}");
    assert!(server.requests()[2].body["system"].to_string().contains("hazelnut"));
}

/// A new prompt gives the model new tries, under the same requirement.
#[tokio::test]
async fn a_new_prompt_keeps_the_requirement_of_the_session() {
    let server = serve(Scenario::new().reply("Done.").times(8));
    let requirement = ["--require", "exit 7", "--session-id", SESSION, "Do it."];
    let ended = RunBuilder::against(&server).args(requirement).run().await;
    fails_as(&ended, 9, "requirement_failed");
    let next = ended.again(&server.base_url()).args(["--resume", SESSION, "And now?"]);
    let result = fails_as(&next.run().await, 9, "requirement_failed");
    assert_eq!(result["requirement"]["exit_code"], 7);
    asked(&server, 8);
}

/// A model that calls a tool in each turn, for 0.013 dollars.
fn steady() -> Scenario {
    let call = json!({ "command": "true" });
    Scenario::new().tool("Bash", call).usage(4_000, 500).after(AfterLast::RepeatLast)
}

/// Turns and money count over all processes of a prompt; only a flag raises them.
#[tokio::test]
async fn reached_limits_stay_reached_on_resume_until_a_flag_raises_them() {
    for (limit, value, raised, code, name) in [
        ("--max-budget-usd", "0.055", "0.085", 4, "maxBudgetUsd"),
        ("--max-turns", "2", "3", 3, "maxTurns"),
    ] {
        let server = serve(steady());
        let args = [limit, value, "--session-id", SESSION, "Do it."];
        let ended = RunBuilder::against(&server).args(args).run().await;
        let first = agrees(&ended);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let before = server.requests().len();
        let again = ended.resume_words();
        set_settings(&ended, &json!({ "maxBudgetUsd": 50, "maxTurns": 50 }));
        let ended = ended.again(&server.base_url()).args(&again).run().await;
        let result = agrees(&ended);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(server.requests().len(), before, "nothing is left to spend");
        assert_eq!(result["num_turns"], first["num_turns"]);
        assert_eq!(result["budget"], first["budget"]);
        let trial = ended.again(&server.base_url()).args(&again).args([limit, raised]);
        let ended = trial.run().await;
        let result = agrees(&ended);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(server.requests().len() > before, "there was something left again");
        assert_eq!(result["contract_changes"][0]["name"], name, "{result}");
        let spent = result["budget"]["spent_usd"].as_f64().expect("a number");
        assert!(name == "maxTurns" || spent <= 0.085, "over all of it: {spent}");
        assert!(ended.stderr.contains(&format!("{name} was {value}")), "{ended:?}");
    }
}

#[tokio::test]
async fn a_session_without_recorded_limits_is_resumed_with_a_warning() {
    let server = serve(Scenario::new().reply("Yes.").after(AfterLast::RepeatLast));
    let ended = RunBuilder::against(&server).args(["--session-id", SESSION, "One?"]).run().await;
    let path = journal(&ended.config());
    let text = fs::read_to_string(&path).expect("text");
    // As another program of the family would have left it.
    let bare = |line: &str| {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        let members = line.as_object_mut().expect("an object");
        members.remove("seq");
        members.remove("crc");
        format!("{line}\n")
    };
    let messages = text.lines().filter(|line| !line.contains(r#""type":"outlast""#));
    fs::write(&path, messages.map(bare).collect::<String>()).expect("written");
    let ended = ended.again(&server.base_url()).args(["--resume", SESSION, "Two?"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let warnings = agrees(&ended)["warnings"].to_string();
    assert!(warnings.contains("does not say which limits"), "{warnings}");
}

#[tokio::test]
async fn a_session_id_accepts_only_its_own_prompt() {
    let scenario = Scenario::new()
        .reply("A is done.")
        .reply("Never.")
        .fault(ScriptedFaultKind::Stall, FaultPosition::Request);
    let server = serve(scenario.after(AfterLast::RepeatLast));
    // The journal does not have the token.
    let prompt = format!("task A\nwith ghp_{}", "a1B2".repeat(9));
    let args = |prompt: &str| ["--resume-or-start", SESSION, prompt].map(str::to_owned);
    let ended = RunBuilder::against(&server).args(args(&prompt)).run().await;
    assert_eq!((ended.code, &agrees(&ended)["result"]), (Some(0), &json!("A is done.")));
    let ended = ended.again(&server.base_url()).args(args("task B")).run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let line = ended.stderr.trim_end();
    assert_eq!(line.lines().count(), 1, "{line}");
    for part in ["\"task A with [redacted]\"", "\"task B\"", SESSION] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(agrees(&ended)["result"], Value::Null, "no answer of another task");
    let ended = ended.again(&server.base_url()).args(args(&format!("{prompt} "))).run().await;
    assert_eq!((ended.code, &agrees(&ended)["result"]), (Some(0), &json!("A is done.")));
    assert_eq!(server.requests().len(), 1);

    // While another process works on it, too: that it is busy would be the smaller truth.
    let config = ended.config();
    let running = ended.again(&server.base_url()).args(["--resume", SESSION, "More."]).start();
    server.wait_for_request(2).await;
    for (prompt, code) in [("task B", 2), (prompt.as_str(), 75)] {
        let second = RunBuilder::against(&server)
            .env("OUTLAST_CONFIG_DIR", &config.display().to_string())
            .args(args(prompt))
            .run()
            .await;
        assert_eq!(second.code, Some(code), "{second:?}");
    }
    drop(running);
}

/// Passwords for development are often the name of the application, and so is its folder.
#[tokio::test]
async fn a_session_is_found_although_its_folder_or_name_has_a_secret() {
    const BESIDE: &str = "mkdir -p ../billingapp && exec \"$@\"";
    let server = serve(Scenario::new().reply("Done."));
    let secrets = |run: RunBuilder| {
        run.env("DB_PASSWORD", "billingapp").env("DEPLOY_PASSWORD", "hunter2hunter2")
    };
    let begin = ["-C", "../billingapp", "--name", " of hunter2hunter2\n", "Do it."];
    let ended = secrets(RunBuilder::against(&server)).args(begin).in_shell(BESIDE).run().await;
    let mut ended = ended;
    for flag in ["--continue", "--resume=of hunter2hunter2"] {
        let run = secrets(ended.again(&server.base_url())).args(["-C", "../billingapp", flag]);
        ended = run.in_shell(BESIDE).run().await;
        assert_eq!((ended.code, &agrees(&ended)["result"]), (Some(0), &json!("Done.")), "{flag}");
    }
    asked(&server, 1);
}

#[tokio::test]
async fn a_session_without_any_record_begins_with_a_warning() {
    let server = serve(Scenario::new().reply("Yes.").after(AfterLast::RepeatLast));
    let ended = RunBuilder::against(&server).args(["--session-id", SESSION, "One?"]).run().await;
    fs::write(journal(&ended.config()), "").expect("written");
    let ended = ended.again(&server.base_url()).args(["--resume", SESSION, "Two?"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let warnings = agrees(&ended)["warnings"].to_string();
    assert!(warnings.contains("has no intact record"), "{warnings}");
}

#[tokio::test]
async fn a_damaged_session_resumes_from_its_last_intact_record_on_request() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo x >> log" }))
        .reply("Done.")
        .reply("I looked, and it is done.");
    let server = serve(scenario);
    let ended = RunBuilder::against(&server).args(["--session-id", SESSION, "Do it."]).run().await;
    let path = journal(&ended.config());
    let mut bytes = fs::read(&path).expect("readable");
    let outcome = bytes.windows(13).position(|window| window == br#""tool_result""#);
    bytes[outcome.expect("a result") + 3] ^= 1;
    fs::write(&path, &bytes).expect("written");
    let ended = ended.again(&server.base_url()).args(["--resume", SESSION]).run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let way_on = format!("--resume {SESSION} --to-last-intact");
    for part in [&way_on, &path.display().to_string(), "line "] {
        assert!(ended.stderr.contains(part), "{part} in {ended:?}");
    }
    let args = ["--resume", SESSION, "--to-last-intact"];
    let ended = ended.again(&server.base_url()).args(args).run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("I looked, and it is done.")));
    let told = server.requests().pop().expect("a request").body["messages"].to_string();
    for part in ["outcome unknown", "record of this session was damaged"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let damage = &result["journal"]["damage"];
    assert_eq!(damage["dropped_records"], result["journal"]["dropped_records"], "{result}");
    let kept = damage["kept_in"].as_str().expect("a file");
    let rest = fs::read(kept).expect("readable");
    assert!(bytes.ends_with(&rest) && !rest.is_empty(), "nothing is thrown away");
    asked(&server, 3);
}

/// The time that was used is kept beside the contract, not taken off its terms.
#[tokio::test]
async fn a_session_that_is_resumed_again_and_again_keeps_its_time_limit() {
    const NOWHERE: &str = "http://127.0.0.1:9";
    let args = ["--resume-or-start", "5e551016-0000-4000-8000-000000000001"];
    let limits = ["--max-duration", "50m", "--max-retries", "0", "Do it."];
    let mut ended = RunBuilder::at(NOWHERE).args(args).args(limits).run().await;
    for _ in 0..3 {
        assert_eq!(ended.code, Some(75), "{ended:?}");
        assert_eq!(ended.result()["contract_changes"], Value::Null, "{ended:?}");
        assert_eq!(ended.result()["warnings"], json!([]), "{ended:?}");
        ended = ended.again(NOWHERE).args(args).args(limits).run().await;
    }
}

/// Starts the run in the folder `elsewhere`, beside its own.
const ELSEWHERE: &str = "mkdir -p ../elsewhere && cd ../elsewhere && exec \"$@\"";
const MOVED: &str = "The working directory of this session is another one now.";

/// A session that ended at its turn limit, and what resumes it with more turns.
async fn cut_short() -> (FinishedProcess, Vec<String>) {
    let server = serve(steady());
    let begin = ["--session-id", SESSION, "--max-turns", "1", "Do it."];
    let ended = RunBuilder::against(&server).args(begin).run().await;
    fails_as(&ended, 3, "max_turns");
    let mut resume = ended.resume_words();
    resume.extend(["--max-turns", "3"].map(str::to_owned));
    (ended, resume)
}

/// The work of a session is in its folder, so a resume continues there, wherever its command is
/// given.
#[tokio::test]
async fn a_session_goes_on_in_its_own_folder() {
    let (ended, resume) = cut_short().await;
    assert!(ended.stderr.contains("to go on, with a higher --max-turns added: outlast -C /"));
    let none = serve(Scenario::new());
    let bare = ended.again(&none.base_url()).args(["--resume", SESSION, "Go on."]);
    let refused = bare.in_shell(ELSEWHERE).run().await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let named = format!("outlast {} {}", resume[0], resume[1]);
    assert!(refused.stderr.contains(&named) && refused.stderr.contains("-C ."), "{refused:?}");
    asked(&none, 0);
    let write = json!({ "file_path": "here.txt", "content": "x" });
    let server = serve(Scenario::new().tool("Write", write).reply("Done."));
    let mode = ["--permission-mode", "acceptEdits"];
    let ended = refused.again(&server.base_url()).args(&resume).args(mode);
    let ended = ended.in_shell(ELSEWHERE).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!result["warnings"].to_string().contains("goes on in"), "{ended:?}");
    assert!(ended.work().join("here.txt").exists());
    assert!(server.requests().iter().all(|asked| !asked.body.to_string().contains(MOVED)));
}

/// With `-C` the user says that it is to go on elsewhere; then the model is told, once.
#[tokio::test]
async fn a_session_that_is_moved_tells_the_model_once() {
    let (ended, _) = cut_short().await;
    let here = ["-C", ".", "--resume", SESSION, "--max-turns", "9"];
    let server = serve(Scenario::new().reply("Done."));
    let moved = ended.again(&server.base_url()).args(here).in_shell(ELSEWHERE).run().await;
    let result = agrees(&moved);
    assert_eq!((moved.code, &result["result"]), (Some(0), &json!("Done.")), "{moved:?}");
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("goes on in /") && warnings.contains("elsewhere"), "{warnings}");
    let told = |server: &outlast::rehearsal::RehearsalServer| {
        let requests = server.requests();
        let last = requests.last().expect("a request").body["messages"].to_string();
        (last.matches(MOVED).count(), last.contains("- now: /") && last.contains("elsewhere"))
    };
    assert_eq!(told(&server), (1, true));
    // It is the session's folder now.
    let server = serve(Scenario::new().reply("And more."));
    let again = moved.again(&server.base_url()).args(["--resume", SESSION, "More."]);
    let again = again.in_shell(ELSEWHERE).run().await;
    assert_eq!(agrees(&again)["result"], "And more.", "{again:?}");
    assert_eq!(told(&server).0, 1);
}

/// If its folder is gone, an unfinished session continues with a warning, and a finished one is not
/// a success: its work is not here.
#[tokio::test]
async fn a_session_whose_folder_is_gone_is_no_success_unless_there_is_work_left() {
    let gone = "mkdir -p ../elsewhere && mv ../work ../away && cd ../elsewhere && \"$@\"; code=$?; \
                mv ../away ../work; exit $code";
    let (ended, _) = cut_short().await;
    let server = serve(Scenario::new().reply("Done."));
    let resume = ["--resume-or-start", SESSION, "--max-turns", "9", "Do it."];
    let ended = ended.again(&server.base_url()).args(resume).in_shell(gone).run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    assert!(server.requests()[0].body["messages"].to_string().contains(MOVED));

    let server = serve(Scenario::new().reply("Done."));
    let first = ["--resume-or-start", "5e551011-0000-4000-8000-00000000000b", "Do it."];
    let ended = ended.again(&server.base_url()).args(first).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = ended.again(&server.base_url()).args(first).in_shell(gone).run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("which is not there any more"), "{ended:?}");
    asked(&server, 1);
}
