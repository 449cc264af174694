//! `outlast rehearse --from`: a recorded session is reproduced.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use outlast::rehearsal::{
    RehearsalServer, Scenario, ScriptedToolCall, ServerOptions, StepAnswer, StepCondition,
};
use serde_json::{Value, json};

use crate::support::scratch::write_file;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// Scenarios whose recording ends otherwise, and why.
pub(crate) const EXCEPTIONS: [(&str, &str); 17] = [
    ("auto-compact", SIZES),
    ("compaction-fails", SIZES),
    ("compaction-overflow", SIZES),
    ("overflow", SIZES),
    ("thrash", SIZES),
    ("gateway-llamacpp", SIZES),
    ("image-too-large", "the image that the model reads is not in the scratch folder"),
    ("pdf-too-large", "the PDF that the model reads is not in the scratch folder"),
    ("background-build", "its build fails at once without its file, before or after the reply"),
    ("background-server", "the program that it starts is not in the scratch folder"),
    ("cloud-outage", CLOUDS),
    ("cloud-throttle", CLOUDS),
    ("cloud-token", CLOUDS),
    ("foreign-thinking", "which block was refused is not recorded"),
    ("unreadable-block", "which block was refused is not recorded"),
    ("agents-endless", "how far parallel sub-agents get differs from run to run"),
    ("long-outage", "the number of its probes depends on the speed of the machine"),
];

const SIZES: &str = "how full the conversation gets depends on files that are not there";

const CLOUDS: &str = "a recording is rehearsed at servers of the Messages API only";

/// The fields of a result that a rehearsal of a recording must have in common with the recorded
/// run.
pub(crate) fn outline(result: &Value) -> Value {
    json!({
        "exit_code": result["exit_code"],
        "terminal_reason": result["terminal_reason"],
        "requests": result["recovery"]["requests"],
        "retries": result["recovery"]["retries"],
    })
}

/// Runs a scenario with a journal, in a folder of its own. The server that it ran against.
pub(crate) async fn record(
    scenario: &Scenario,
    flags: &[&str],
) -> (FinishedProcess, RehearsalServer) {
    // The address is not known before the folder is.
    let trial = RunBuilder::bare("http://127.0.0.1:9");
    let options = ServerOptions { cwd: Some(trial.work()), ..ServerOptions::default() };
    let server = RehearsalServer::start(scenario.clone(), options).expect("loopback has a port");
    for (path, file) in &scenario.files {
        let path = trial.work().join(path);
        write_file(&path, server.fill_in_urls(&file.content));
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode)).expect("ours");
    }
    let mut trial = trial.env("ANTHROPIC_BASE_URL", &server.base_url());
    for (name, value) in &scenario.env {
        trial = trial.env(name, &server.fill_in(value));
    }
    let scale = format!("--time-scale={}", scenario.time_scale);
    let args: Vec<String> = scenario.args.iter().map(|arg| server.fill_in(arg)).collect();
    let has = |flag: &str| args.iter().any(|arg| arg.starts_with(flag));
    let mut trial = trial.args([&scale, "--setting-sources=", "--no-shared-limits"]);
    if !has("--fallback-model") {
        trial = trial.args(["--no-fallback"]);
    }
    (trial.args(&args).args(flags).args([&scenario.prompt]).run().await, server)
}

/// Rehearses the session that a run recorded.
pub(crate) async fn rehearse(ended: FinishedProcess, args: &[&str]) -> FinishedProcess {
    // Some scenarios have settings, and thus sessions, in a folder of their own.
    let own = ended.work().join("config");
    let mut trial = ended.again_bare("http://127.0.0.1:9");
    if own.join("projects").is_dir() {
        trial = trial.env("OUTLAST_CONFIG_DIR", &own.display().to_string());
    }
    trial.args(["rehearse", "--from", "latest"]).args(args).run().await
}

#[tokio::test]
async fn a_saved_recording_has_prompt_replies_and_what_is_missing() {
    let scenario = Scenario::new()
        .tool(
            "Bash",
            json!({ "command": "echo a > ${cwd}/a; : test-key-0123456789", "description": null }),
        )
        .status(529)
        .header("retry-after", "3")
        .reply("It is in ${cwd}/a, and \"quoted\".");
    let trial = RunBuilder::bare("http://127.0.0.1:9");
    let options = ServerOptions { cwd: Some(trial.work()), ..ServerOptions::default() };
    let server = RehearsalServer::start(scenario, options).expect("loopback has a port");
    let prompt = format!("Look at {}/a.", trial.work().display());
    let args = ["--permission-mode", "bypassPermissions", "--sandbox", "off", "--time-scale=50"];
    let trial = trial.env("ANTHROPIC_BASE_URL", &server.base_url()).args(args);
    let ended = trial.args(["--max-turns", "7", &prompt]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = rehearse(ended, &["--save", "own.toml"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    let path = ended.work().join("own.toml");
    let text = fs::read_to_string(&path).expect("a file");
    assert!(!text.contains(&ended.work().display().to_string()), "{text}");
    let saved = Scenario::load(&path).expect("it is valid");
    assert_eq!(saved.prompt, "Look at ${cwd}/a.");
    assert!(saved.args.iter().any(|arg| arg.contains("\"maxTurns\": 7")), "{:?}", saved.args);
    for flags in [["--sandbox", "required"], ["--sandbox-network", "off"]] {
        assert!(saved.args.windows(2).any(|pair| pair == flags), "{:?}", saved.args);
    }
    let [first, second, third] = &saved.main.steps[..] else { panic!("{text}") };
    let StepAnswer::Reply(reply) = &first.answer else { panic!("{text}") };
    // The key of the run was masked when it was recorded.
    let input = json!({ "command": "echo a > ${cwd}/a; : [redacted]", "description": null });
    let call = ScriptedToolCall { name: "Bash".to_owned(), input, id: None, cut: None };
    assert_eq!(reply.tools, [call]);
    let StepAnswer::Http(http) = &second.answer else { panic!("{text}") };
    assert_eq!(http.status, 529);
    assert_eq!(second.headers, [("retry-after".to_owned(), "3".to_owned())]);
    let StepAnswer::Reply(reply) = &third.answer else { panic!("{text}") };
    assert_eq!(reply.text.as_deref(), Some("It is in ${cwd}/a, and \"quoted\"."));
    assert_eq!((saved.expect.exit, saved.expect.requests), (Some(0), Some(3)));
    let run = ended.again_bare("http://127.0.0.1:9").args(["rehearse", "own.toml"]).run().await;
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.ends_with(": exit 0, as expected\n"), "{run:?}");
}

#[tokio::test]
async fn a_killed_session_is_rehearsed_up_to_its_end_without_expecting_one() {
    let scenario = Scenario::new().tool("Bash", json!({ "command": "kill -9 $PPID" }));
    let server = serve(scenario.tool("Bash", json!({ "command": "true" })).reply("Done."));
    let ended = RunBuilder::against(&server).args(["Do it."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let journal = only_journal(&ended.config());
    let text = fs::read_to_string(&journal).expect("a file");
    // As a kill leaves it: the end and the last reply are not there.
    let cut = text.rfind("\"type\":\"assistant\"").expect("a reply");
    let cut = text[..cut].rfind('\n').expect("a line") + 1;
    fs::write(&journal, &text[..cut]).expect("ours");
    let ended = rehearse(ended, &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let omission = "outlast: not reproduced: the end, which is not recorded\n";
    assert!(ended.stderr.contains(omission), "{ended:?}");
    assert!(ended.stderr.ends_with("; the scenario expects no particular end\n"), "{ended:?}");
    assert_eq!(ended.result()["result"], "(The recorded session ends here.)");
}

fn only_journal(config: &Path) -> std::path::PathBuf {
    let projects = fs::read_dir(config.join("projects")).expect("a folder").flatten();
    let files = projects.flat_map(|project| fs::read_dir(project.path()).into_iter().flatten());
    let mut paths = files.flatten().map(|file| file.path());
    paths.find(|path| path.extension().is_some_and(|end| end == "jsonl")).expect("a journal")
}

/// The recorded calls name a file of the user's, and are made again.
#[tokio::test]
async fn a_rehearsal_leaves_files_outside_of_its_folder_as_they_are() {
    let home = tempfile::TempDir::new().expect("a folder");
    let (plan, new) = (home.path().join("plan.md"), home.path().join("new.md"));
    for flags in [&["--dangerously-skip-permissions"][..], &["--allowedTools", "Read,Write"]] {
        fs::write(&plan, "v1").expect("ours");
        let scenario = Scenario::new()
            .prompt("Change the plan.")
            .tool("Read", json!({ "file_path": plan }))
            .tool("Write", json!({ "file_path": plan, "content": "v2" }))
            .tool("Write", json!({ "file_path": new, "content": "new" }))
            .reply("Done.")
            .args(flags);
        let (recorded, _server) = record(&scenario, &[]).await;
        assert_eq!(fs::read_to_string(&plan).expect("there"), "v2", "the session wrote it");
        fs::write(&plan, "v3").expect("ours");
        fs::remove_file(&new).expect("the session made it");
        let ended = rehearse(recorded, &[]).await;
        assert!(ended.stderr.ends_with(", as expected\n"), "{flags:?}: {ended:?}");
        assert_eq!(fs::read_to_string(&plan).expect("there"), "v3", "{flags:?}");
        assert!(!new.exists(), "{flags:?}");
    }
}

#[tokio::test]
async fn agents_of_a_rehearsal_have_the_turns_of_their_definitions() {
    for kind in ["reviewer", "general-purpose"] {
        let of_agent =
            StepCondition { source: Some(format!("agent:{kind}")), ..StepCondition::default() };
        let call = json!({ "description": "d", "prompt": "p", "subagent_type": kind });
        let definition = json!({ kind: { "description": "d", "prompt": "p", "maxTurns": 1 } });
        let scenario = Scenario::new()
            .prompt("Ask an agent.")
            .tool("Agent", call)
            .tool("Bash", json!({ "command": "echo 1" }))
            .when(of_agent)
            .reply("Done.")
            .args(&["--agents", &definition.to_string()]);
        let (recorded, _server) = record(&scenario, &[]).await;
        assert_eq!(recorded.code, Some(0), "{recorded:?}");
        let ended = rehearse(recorded, &[]).await;
        assert!(ended.stderr.ends_with(", as expected\n"), "{kind}: {ended:?}");
    }
}

/// The service of the rehearsal continues a paused reply only after it was sent back, and does not
/// refuse images, because the rehearsal has none.
#[tokio::test]
async fn paused_replies_and_refused_images_are_rehearsed() {
    let paused = || Scenario::new().reply("So far.").stop_reason("pause_turn");
    let read = json!({ "file_path": "a.png" });
    let refusal = "too many images and documents: 1 + 0 > 0";
    let refused = Scenario::new().tool("Read", read).status(400);
    let refused = refused.error("invalid_request_error", refusal, None);
    for (name, scenario) in [
        ("empty", paused().empty().reply("Done.")),
        ("overloaded", paused().status(529).reply("Done.")),
        ("images", refused.reply("Done.")),
    ] {
        let server = serve(scenario);
        let run = RunBuilder::against(&server);
        image::RgbImage::new(2, 2).save(run.work().join("a.png")).expect("the folder is ours");
        let ended = run.args(["Do it."]).run().await;
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
        let ended = rehearse(ended, &[]).await;
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
    }
}

/// A process that resumes a session has full budgets, which one run does not have.
#[tokio::test]
async fn a_session_that_an_outage_ended_and_that_was_resumed_is_rehearsed() {
    let call = || json!({ "command": "true" });
    let scenario = Scenario::new()
        .tool("Bash", call())
        .status(529)
        .times(3)
        .tool("Bash", call())
        .status(529)
        .reply("Done.");
    let server = serve(scenario);
    let first = RunBuilder::against(&server).args(["--max-retries", "1", "Do it."]).run().await;
    assert_eq!(first.code, Some(75), "{first:?}");
    let words = first.resume_words();
    let second = first.again(&server.base_url()).args(&words).run().await;
    assert_eq!(second.code, Some(0), "{second:?}");
    let ended = rehearse(second, &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("not reproduced: failures that ended a process"), "{ended:?}");
    assert!(ended.stderr.ends_with(", as expected\n"), "{ended:?}");
}
