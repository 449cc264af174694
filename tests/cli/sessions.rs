//! `outlast sessions`: what runs recorded is listed, shown, exported and deleted.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlast::rehearsal::{AfterLast, FaultPosition, Scenario, ScriptedFaultKind, StepCondition};
use serde_json::{Value, json};

use super::binary_fixture::ProcessResult;
use crate::support::signals::hear_signals;
use crate::support::terminal::open_terminal;
use crate::support::{FifoSignal, FinishedProcess, RunBuilder, serve, with_time_limit};

const ONE: &str = "5e551011-0000-4000-8000-000000000011";
const TWO: &str = "5e551011-0000-4000-8000-000000000022";
const THREE: &str = "7e551011-0000-4000-8000-000000000033";

fn command(config: &Path, work: &Path, args: &[&str]) -> Command {
    hear_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
    command.arg("sessions").args(args).current_dir(work).env_clear();
    command.env("OUTLAST_CONFIG_DIR", config).env("HOME", work).env("TZ", "UTC");
    command.stdin(Stdio::null());
    command
}

/// Runs `outlast sessions` in the folders of a run.
fn sessions(of: &FinishedProcess, args: &[&str]) -> ProcessResult {
    let output = command(&of.config(), &of.work(), args).output().expect("outlast starts");
    ProcessResult::of(&output)
}

/// The same, when it has to succeed.
#[track_caller]
fn shown(of: &FinishedProcess, args: &[&str]) -> String {
    let ended = sessions(of, args);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{args:?}: {ended:?}");
    ended.stdout
}

/// The same, when it has to be refused in one line.
#[track_caller]
fn refused(of: &FinishedProcess, args: &[&str]) -> String {
    let ended = sessions(of, args);
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{args:?}: {ended:?}");
    ended.line().to_owned()
}

fn objects(of: &FinishedProcess, args: &[&str]) -> Vec<Value> {
    let lines = shown(of, args);
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn file_of(config: &Path, id: &str) -> PathBuf {
    let projects = fs::read_dir(config.join("projects")).expect("there is a session");
    let files = projects.map(|folder| folder.expect("readable").path().join(format!("{id}.jsonl")));
    files.into_iter().find(|file| file.exists()).expect("there is such a session")
}

/// Three sessions: one completed, one at its turn limit, and one with a prompt of two lines.
async fn three_sessions() -> FinishedProcess {
    let scenario = Scenario::new()
        .reply("Yes.")
        .tool("Bash", json!({ "command": "true" }))
        .reply("Done.")
        .after(AfterLast::RepeatLast);
    let server = serve(scenario);
    let ended = RunBuilder::against(&server).args(["--session-id", ONE, "Is it?"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let limit = ["--session-id", TWO, "--max-turns", "1", "Do\nit."];
    let ended = ended.again(&server.base_url()).args(limit).run().await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let ended = ended.again(&server.base_url()).args(["--session-id", THREE, "Well?"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

#[tokio::test]
async fn pipes_and_devices_among_the_files_of_sessions_are_not_waited_for() {
    let ended = three_sessions().await;
    let journal = file_of(&ended.config(), ONE);
    let agents = journal.with_extension("").join("subagents");
    fs::create_dir_all(&agents).expect("created");
    let other = journal.with_file_name(format!("{}.jsonl", THREE.replace('7', "8")));
    for pipe in [&other, &agents.join("agent-2.meta.json"), &agents.join("agent-1.jsonl")] {
        mkfifo(pipe, Mode::S_IRWXU).expect("a pipe can be made");
    }
    let meta = json!({ "agentId": "1", "toolUseId": "t", "agentType": "a", "description": "d",
        "epoch": 1 });
    fs::write(agents.join("agent-1.meta.json"), meta.to_string()).expect("written");
    symlink("/dev/zero", agents.join("agent-3.meta.json")).expect("linked");
    symlink("/dev/zero", journal.with_file_name("8e551011-0000-4000-8000-000000000044.jsonl"))
        .expect("linked");
    let listed: Vec<Value> = objects(&ended, &["--json"]);
    let ids: Vec<&str> = listed.iter().filter_map(|one| one["session_id"].as_str()).collect();
    assert_eq!(ids, [THREE, TWO, ONE]);
    assert!(shown(&ended, &["show", ONE]).contains("Is it?"));
    assert!(shown(&ended, &["export", ONE, "--format", "jsonl"]).contains("Is it?"));
    let server = serve(Scenario::new().reply("Still here."));
    let ended = ended.again(&server.base_url()).args(["--resume", ONE, "Go on."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn sessions_are_listed_newest_first_with_how_they_ended() {
    let ended = three_sessions().await;
    let table = shown(&ended, &[]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("ID ") && lines[0].ends_with("PROMPT"), "{table}");
    let ends = [
        (THREE, "completed (0)", "Well?"),
        (TWO, "max_turns (3)", "Do it."),
        (ONE, "completed (0)", "Is it?"),
    ];
    assert_eq!(lines.len(), 1 + ends.len(), "{table}");
    for (line, (id, state, prompt)) in lines[1..].iter().zip(ends) {
        assert!(line.starts_with(id) && line.contains(state) && line.ends_with(prompt), "{table}");
    }
    let short = shown(&ended, &["list", "--limit", "1"]);
    assert!(short.contains(THREE) && !short.contains(ONE) && short.contains("2 more"), "{short}");

    let all = objects(&ended, &["--json"]);
    let ids: Vec<&str> = all.iter().filter_map(|one| one["session_id"].as_str()).collect();
    assert_eq!(ids, [THREE, TWO, ONE]);
    let two = &all[1];
    assert_eq!((&two["state"], &two["exit_code"]), (&json!("finished"), &json!(3)), "{two}");
    assert_eq!((&two["terminal_reason"], &two["num_turns"]), (&json!("max_turns"), &json!(1)));
    assert!(two["total_cost_usd"].as_f64() > Some(0.0) && two["damaged_lines"] == 0, "{two}");
    let work = fs::canonicalize(ended.work()).expect("it is there");
    assert_eq!(two["project"], json!(work));

    // From another folder they are found with --all-projects only.
    let elsewhere = ended.work().join("elsewhere");
    fs::create_dir(&elsewhere).expect("the folder is ours");
    for (args, found) in [(&["--json"][..], 0), (&["--json", "--all-projects"], 3)] {
        let output = command(&ended.config(), &elsewhere, args).output().expect("outlast starts");
        assert_eq!(ProcessResult::of(&output).stdout.lines().count(), found, "{args:?}");
    }
}

#[tokio::test]
async fn a_session_is_found_by_the_beginning_of_its_id() {
    let ended = three_sessions().await;
    for args in [&["show"][..], &["show", "latest"], &["show", "7e"], &["show", THREE]] {
        assert!(shown(&ended, args).starts_with(&format!("session {THREE} in ")), "{args:?}");
    }
    let several = refused(&ended, &["show", "5e55"]);
    assert!(several.contains(ONE) && several.contains("give more of the id"), "{several}");
    for id in ["6", "../x"] {
        let unknown = refused(&ended, &["show", id]);
        assert!(unknown.contains("outlast sessions --all-projects"), "{unknown}");
    }
}

/// A run with a command that fails, a refused request and a sub-agent.
async fn eventful() -> FinishedProcess {
    let of = |source: &str| StepCondition {
        source: Some(source.to_owned()),
        ..StepCondition::default()
    };
    let task = json!({ "description": "count the files", "prompt": "Count.", "subagent_type": "general-purpose" });
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "seq 1 9; exit 3" }))
        .and_text("I try it.")
        .when(of("main"))
        .status(529)
        .when(of("main"))
        .tool("Agent", task)
        .when(of("main"))
        .reply("There are 7.")
        .when(of("agent:*"))
        .reply("It is done.")
        .when(of("main"));
    let server = serve(scenario);
    let ended = RunBuilder::against(&server).args(["--session-id", ONE, "Count them."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

#[tokio::test]
async fn a_transcript_shows_failed_tools_waits_recoveries_and_sub_agents() {
    let ended = eventful().await;
    let text = shown(&ended, &["show"]);
    let parts = [
        "  prompt\n    Count them.\n",
        "  turn 1, claude-",
        "\n    I try it.\n    Bash: seq 1 9; exit 3 → failed, exit code 3, ",
        "\n        | (5 lines before; --full shows all)\n        | 5\n",
        "  failure: the service is overloaded (server_overload): retried after a pause\n",
        " before retry 1 of 10 (server_overload)\n",
        "\n    Agent: count the files → ok, ",
        "\n        sub-agent a1 (general-purpose): count the files; turns: 1, cost $",
        "\n                There are 7.\n",
        "  recovered from server overload: attempts 2, waited ",
        "\n    It is done.\n",
        "  end: completed, exit code 0\n\nThe session ended: completed, exit code 0.\n",
    ];
    let mut from = 0;
    for part in parts {
        let at = text[from..].find(part);
        from += at.unwrap_or_else(|| panic!("{part:?} is not next in {}", &text[from..]));
    }
    // A name of the tz database; where there is none, times are in UTC.
    if Path::new("/usr/share/zoneinfo/Asia/Kolkata").exists() {
        let mut command = command(&ended.config(), &ended.work(), &["show"]);
        let output = command.env("TZ", "Asia/Kolkata").output().expect("outlast starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.lines().nth(1).is_some_and(|line| line.contains(" +05:30,")), "{text}");
    }
    let full = shown(&ended, &["show", ONE, "--full"]);
    assert!(full.contains("| 1\n") && !full.contains("lines before"), "{full}");
    assert!(
        full.contains("input: ") && full.contains("\"command\": \"seq 1 9; exit 3\""),
        "{full}"
    );
    let last = shown(&ended, &["show", "--last", "1"]);
    assert!(last.contains("It is done.") && !last.contains("I try it."), "{last}");
    // The last events are the same as without --last, with the sub-agent in one of them.
    let last = shown(&ended, &["show", "--last", "2"]);
    let (_, end) = last.split_once("without --last all are shown)\n").expect("some are left out");
    assert!(end.contains("There are 7.") && text.ends_with(end), "{last}");
}

#[tokio::test]
async fn an_export_has_every_record_and_the_sub_agents() {
    let ended = eventful().await;
    let file = file_of(&ended.config(), ONE);
    let recorded = fs::read_to_string(&file).expect("it is there");
    assert_eq!(shown(&ended, &["export", ONE, "--format", "jsonl"]), recorded);
    let document: Value =
        serde_json::from_str(&shown(&ended, &["export", "latest"])).expect("JSON");
    let lines: Vec<Value> =
        recorded.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(document["records"], json!(lines));
    assert_eq!((&document["session_id"], &document["unreadable_lines"]), (&json!(ONE), &json!([])));
    let agent = &document["agents"][0];
    assert_eq!(agent["agent"]["agentId"], "a1");
    assert!(agent["records"].as_array().is_some_and(|records| records.len() > 3), "{agent}");

    let path = ended.work().join("out.json");
    let to = path.to_str().expect("UTF-8");
    assert_eq!(shown(&ended, &["export", ONE, "--output", to]), "");
    let written: Value = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
    assert_eq!(written, document);
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner may read it");
    let missing = refused(&ended, &["export", ONE, "--output", "/dev/null/x"]);
    assert!(missing.contains("--output /dev/null/x: the folder does not exist"), "{missing}");
    let link = ended.work().join("link");
    symlink("out.json", &link).expect("a link");
    let refusal = refused(&ended, &["export", ONE, "--output", "link"]);
    assert!(refusal.contains("--output link: is a symbolic link"), "{refusal}");
    let lines = ["export", ONE, "--format", "jsonl", "--output"];
    for stdout in ["-", "/proc/self/fd/1"] {
        assert_eq!(shown(&ended, &[&lines[..], &[stdout]].concat()), recorded);
    }
}

#[tokio::test]
async fn of_a_damaged_session_the_readable_part_is_shown_and_the_rest_named() {
    let ended = eventful().await;
    let file = file_of(&ended.config(), ONE);
    let recorded = fs::read_to_string(&file).expect("it is there");
    let mut lines: Vec<String> = recorded.lines().map(str::to_owned).collect();
    let turn = lines.iter().position(|line| line.contains("I try it.")).expect("a turn");
    lines[turn] = lines[turn].replace("I try it.", "I fake it.");
    let cut_off = r#"{"type":"outlast","v":1,"se"#;
    fs::write(&file, format!("{}\n{cut_off}", lines.join("\n"))).expect("the file is ours");
    let text = shown(&ended, &["show"]);
    assert!(text.contains("Count them.") && text.contains("It is done."), "{text}");
    assert!(!text.contains("I fake it."), "{text}");
    let named = format!("damaged: line {}: its checksum is wrong", turn + 1);
    assert!(text.contains(&named) && text.contains("The last line was cut off"), "{text}");
    let list = objects(&ended, &["--json"]);
    assert_eq!((&list[0]["damaged_lines"], &list[0]["state"]), (&json!(2), &json!("finished")));
    assert!(shown(&ended, &[]).contains("completed (0), damaged"));
    // What is no journal at all is no reason to give up either.
    fs::write(&file, [0xff, 0, b'\n', b'{', b'\n', b'[', b']']).expect("the file is ours");
    assert!(shown(&ended, &["show", ONE]).contains("damaged: line 1: not JSON"));
    assert_eq!(objects(&ended, &["--json"]).len(), 1);
    let document: Value = serde_json::from_str(&shown(&ended, &["export", ONE])).expect("JSON");
    assert_eq!(document["unreadable_lines"], json!([1, 2]), "{document}");
    assert!(shown(&ended, &["prune", "--keep", "0"]).starts_with("0 sessions deleted"));
}

#[tokio::test]
async fn prune_deletes_what_is_finished_and_says_what_it_freed() {
    let ended = three_sessions().await;
    let none = refused(&ended, &["prune"]);
    assert!(none.contains("--older-than, --keep and --max-size"), "{none}");
    assert!(refused(&ended, &["prune", "--older-than", "soon"]).contains("30d"));
    assert!(refused(&ended, &["prune", "--max-size", "much"]).contains("500M"));
    assert!(shown(&ended, &["prune", "--older-than", "1h"]).starts_with("0 sessions deleted"));
    let dry = shown(&ended, &["prune", "--keep", "1", "--dry-run"]);
    assert!(
        dry.contains(&format!("would delete {ONE}")) && dry.contains("2 sessions would"),
        "{dry}"
    );
    assert_eq!(objects(&ended, &["--json"]).len(), 3);
    let text = shown(&ended, &["prune", "--keep", "1"]);
    assert!(text.contains("2 sessions deleted, ") && text.ends_with(" freed\n"), "{text}");
    let left = objects(&ended, &["--json"]);
    assert_eq!((left.len(), &left[0]["session_id"]), (1, &json!(THREE)));
    let text = shown(&ended, &["prune", "--max-size", "0", "--all-projects"]);
    assert!(text.contains("1 session deleted"), "{text}");
    assert_eq!(shown(&ended, &["--json"]), "");
}

#[tokio::test]
async fn a_running_session_is_never_deleted_and_an_unfinished_one_only_by_age_or_size() {
    let scenario = Scenario::new().fault(ScriptedFaultKind::Stall, FaultPosition::Request);
    let server = serve(scenario.after(AfterLast::RepeatLast));
    let trial = RunBuilder::against(&server);
    let (config, work) = (trial.config(), trial.work());
    let mut running = trial.args(["--session-id", ONE, "Go."]).start();
    with_time_limit("a request", server.wait_for_request(1)).await;
    let run = |args: &[&str]| {
        let output = command(&config, &work, args).output().expect("outlast starts");
        ProcessResult::of(&output).stdout
    };
    assert!(run(&[]).contains(" running "), "{}", run(&[]));
    assert!(run(&["show"]).contains("A process works on the session right now."));
    for limit in [["--keep", "0"], ["--older-than", "0s"], ["--max-size", "0"]] {
        let text = run(&["prune", limit[0], limit[1]]);
        assert_eq!(text, "0 sessions deleted, 0 B freed; kept: 1 running session\n", "{limit:?}");
    }
    running.child.start_kill().expect("it can be killed");
    let ended = running.end().await;
    assert!(file_of(&config, ONE).exists());
    let list = objects(&ended, &["--json"]);
    assert_eq!(list[0]["state"], "unfinished", "{list:?}");
    let text = shown(&ended, &["show"]);
    assert!(text.contains("unfinished") && text.contains(&format!("--resume {ONE}")), "{text}");
    let text = shown(&ended, &["prune", "--keep", "0"]);
    assert_eq!(text, "0 sessions deleted, 0 B freed\n");
    let text = shown(&ended, &["prune", "--older-than", "0s"]);
    assert!(text.contains("1 session deleted, 1 of them unfinished, "), "{text}");
    assert_eq!(shown(&ended, &["--json"]), "");
}

#[test]
fn a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |args: &[&str]| {
        let output = command(folder.path(), folder.path(), args).output().expect("outlast starts");
        ProcessResult::of(&output)
    };
    let none = run(&[]);
    assert!(none.code == 0 && none.stdout.starts_with("no session was recorded"), "{none:?}");
    fs::write(folder.path().join("projects"), "").expect("it is ours");
    for args in [&[][..], &["--json"], &["show"], &["prune", "--keep", "0"]] {
        let ended = run(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{args:?}: {ended:?}");
        assert!(ended.line().contains("projects: Not a directory"), "{args:?}: {ended:?}");
    }
}

#[tokio::test]
async fn a_running_call_is_shown_as_running() {
    let server =
        serve(Scenario::new().tool("Bash", json!({ "command": "echo in > bell; sleep 60" })));
    let trial = RunBuilder::against(&server);
    let (config, work) = (trial.config(), trial.work());
    let mut bell = FifoSignal::at(&work.join("bell"));
    let mut running = trial.args(["--session-id", ONE, "Go."]).start();
    bell.wait_for_line().await;
    let shown = command(&config, &work, &["show"]).output().expect("outlast starts");
    let shown = ProcessResult::of(&shown).stdout;
    assert!(shown.contains("sleep 60 → running, ") && shown.contains(" so far\n"), "{shown}");
    assert!(shown.contains("A process works on the session right now."), "{shown}");
    running.child.start_kill().expect("it can be killed");
    let ended = running.end().await;
    let shown = self::shown(&ended, &["show"]);
    assert!(shown.contains("sleep 60 → outcome unknown, its process ended first"), "{shown}");
}

#[tokio::test]
async fn sessions_of_other_programs_and_empty_ones_are_told_apart() {
    let ended = three_sessions().await;
    let file = file_of(&ended.config(), ONE);
    // A file that an editor has given other line ends is still outlast's.
    let text = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, text.replace('\n', "\r\n")).expect("it is ours");
    fs::write(file_of(&ended.config(), TWO), "").expect("it is ours");
    let foreign = file_of(&ended.config(), THREE);
    let usage = json!({ "input_tokens": 5, "output_tokens": 7 });
    let message = |role: &str, text: &str, usage: &Value| {
        let content = json!([{ "type": "text", "text": text }]);
        json!({ "id": "m", "role": role, "model": "m", "content": content, "usage": usage })
    };
    let line = |kind: &str, text: &str, usage: &Value| {
        let message = message(kind, text, usage);
        json!({ "type": kind, "uuid": text, "cwd": ended.work(), "message": message }).to_string()
    };
    let lines = [line("user", "fix", &Value::Null), line("assistant", "Fixed.", &usage)];
    fs::write(&foreign, lines.join("\n") + "\n").expect("it is ours");
    let states = objects(&ended, &["--json"]);
    let state = |id: &str| {
        states.iter().find(|one| one["session_id"] == id).expect("it is listed")["state"].clone()
    };
    assert_eq!([state(ONE), state(TWO), state(THREE)], ["finished", "unfinished", "foreign"]);
    let shown_three = shown(&ended, &["show", THREE]);
    assert!(shown_three.contains("Another program recorded the session."), "{shown_three}");
    assert!(shown(&ended, &["show", TWO]).contains("The session is unfinished"));
    let mut report = Command::new(env!("CARGO_BIN_EXE_outlast"));
    report.args(["report", THREE, "--format", "json"]).current_dir(ended.work()).env_clear();
    report.env("OUTLAST_CONFIG_DIR", ended.config()).env("HOME", ended.work());
    let report: Value =
        serde_json::from_slice(&report.output().expect("outlast starts").stdout).expect("JSON");
    let usage = &report["sessions"][0]["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"]),
        (&json!(5), &json!(7)),
        "{report}"
    );
    // What --dry-run names is deleted, and nothing else.
    let dry = shown(&ended, &["prune", "--max-size", "0", "--dry-run"]);
    let real = shown(&ended, &["prune", "--max-size", "0"]);
    assert_eq!(dry.replace("would delete", "deleted").replace("would be ", ""), real);
    assert!(real.contains(ONE) && real.contains(TWO) && !real.contains(THREE), "{real}");
    assert!(foreign.exists());
}

#[tokio::test]
async fn a_session_without_a_prompt_is_shown_if_there_is_no_other() {
    let server = serve(Scenario::new().reply("Yes."));
    let ended = RunBuilder::against(&server).args(["--session-id", ONE, "Is it?"]).run().await;
    fs::write(file_of(&ended.config(), ONE), "").expect("it is ours");
    assert_eq!(objects(&ended, &["--json"])[0]["session_id"], ONE);
    assert!(shown(&ended, &["show"]).starts_with(&format!("session {ONE}\n")));
}

#[tokio::test]
async fn control_characters_of_a_session_reach_no_terminal() {
    let evil = "\u{1b}]0;owned\u{7}<title>\u{1b}[2J\u{9b}1m\u{202e}good\revil";
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "printf '\\033[31mred\\007'" }))
        .and_text(evil)
        .reply("Done.");
    let server = serve(scenario);
    let prompt = format!("Do it. {evil}");
    let ended = RunBuilder::against(&server).args(["--session-id", ONE, &prompt]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let harmful = |letter: &char| {
        (letter.is_control() && *letter != '\n') || matches!(letter, '\u{202a}'..='\u{202e}')
    };
    for args in [&["show", "--full"][..], &[]] {
        let text = shown(&ended, args);
        let found: Vec<char> = text.chars().filter(harmful).collect();
        assert!(found.is_empty() && text.contains("<title>"), "{args:?}: {found:?} in {text:?}");
    }
    // Even what is for programs is filtered there, and the table fits.
    let export = ["export", ONE, "--format", "jsonl"];
    for (args, word) in [(&export[..], "<title>"), (&["show"], "<title>"), (&[], "Do it.")] {
        let screen = on_terminal(&ended, args, 90);
        let found: Vec<char> = screen.chars().filter(harmful).collect();
        assert!(found.is_empty() && screen.contains(word), "{args:?}: {screen:?}");
    }
    for columns in [90, 80, 60] {
        let screen = on_terminal(&ended, &[], columns);
        assert!(screen.lines().all(|line| line.chars().count() <= columns.into()), "{screen}");
        assert!(screen.contains(&ONE[..8]) && !screen.contains(ONE), "{screen}");
        assert!(screen.contains("PROMPT") && screen.contains("completed (0)"), "{screen}");
    }
}

/// Output on a terminal of this width.
fn on_terminal(of: &FinishedProcess, args: &[&str], columns: u16) -> String {
    let (terminal, screen) = open_terminal(50, columns);
    let mut command = command(&of.config(), &of.work(), args);
    let status = command.env("TERM", "xterm").stdout(terminal).status();
    assert!(status.expect("outlast starts").success(), "{args:?}");
    // Its copy of the terminal must not keep the screen open.
    drop(command);
    // The terminal itself writes line ends as two characters.
    screen.join().expect("it ends").replace("\r\n", "\n")
}

#[tokio::test]
async fn the_error_of_a_stalled_run_names_the_command_that_shows_its_last_steps() {
    let same = json!({ "command": "echo the same; false" });
    let server = serve(Scenario::new().tool("Bash", same).after(AfterLast::RepeatLast));
    let ended = RunBuilder::against(&server).args(["--session-id", ONE, "Go."]).run().await;
    assert_eq!(ended.code, Some(8), "{ended:?}");
    let error = ended.result()["errors"][0].as_str().expect("text").to_owned();
    let command = format!("outlast sessions show {ONE} --last 10");
    assert!(error.ends_with(&command), "{error}");
    let text = shown(&ended, &["show", ONE, "--last", "10"]);
    assert!(text.contains("Bash: echo the same; false → failed, exit code 1"), "{text}");
    assert!(text.contains("the model is informed that it repeats itself"), "{text}");
}
