//! `outlast report`: reports in every format, and the summary of a step in CI.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use html5gum::{DefaultEmitter, Token, Tokenizer};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::binary_fixture::ProcessResult;
use super::golden;
use crate::support::signals::hear_signals;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// The session of `tests/data/report`: overloads, resets, a stall, sub-agents.
const RECORDED: &str = "01a20e18-6b69-7560-8d3b-ec0bb4115a82";
/// The key of the runs.
const KEY: &str = "test-key-0123456789";
const ONE: &str = "5e551011-0000-4000-8000-000000000011";
/// Text that a model, a user or a program may write.
const HOSTILE: &str =
    "<script>alert(1)</script> | `rm` <b>&amp;\"' %0A::error::x \u{1} ]]> \u{202e} ${{ x }}";

fn command(config: &Path, work: &Path, args: &[&str]) -> Command {
    hear_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
    command.arg("report").args(args).current_dir(work).env_clear();
    command.env("OUTLAST_CONFIG_DIR", config).env("HOME", "/srv").env("TZ", "UTC");
    command.stdin(Stdio::null());
    command
}

fn report_in(config: &Path, work: &Path, args: &[&str]) -> ProcessResult {
    ProcessResult::of(&command(config, work, args).output().expect("outlast starts"))
}

/// Reports in the folders of a run, which has to succeed.
#[track_caller]
fn shown(of: &FinishedProcess, args: &[&str]) -> String {
    let ended = report_in(&of.config(), &of.work(), args);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{args:?}: {ended:?}");
    ended.stdout
}

#[track_caller]
fn object(of: &FinishedProcess, args: &[&str]) -> Value {
    serde_json::from_str(&shown(of, &[args, &["--format", "json"]].concat())).expect("JSON")
}

/// A copy of the recorded session, whose journal may be changed, and a folder to work in.
fn recorded(change: impl FnOnce(&str) -> String) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/report/projects/-srv-app");
    let to = folder.path().join("projects/-srv-app");
    let agents = format!("{RECORDED}/subagents");
    fs::create_dir_all(to.join(&agents)).expect("a new folder");
    for entry in fs::read_dir(from.join(&agents)).expect("it is there") {
        let name = entry.expect("an entry").file_name();
        let beside = Path::new(&agents).join(&name);
        fs::copy(from.join(&beside), to.join(&beside)).expect("it can be copied");
    }
    let journal = format!("{RECORDED}.jsonl");
    let text = fs::read_to_string(from.join(&journal)).expect("it is there");
    fs::write(to.join(&journal), change(&text)).expect("the folder is ours");
    let config = folder.path().to_owned();
    (folder, config)
}

#[track_caller]
fn of_recorded(args: &[&str]) -> String {
    let (folder, config) = recorded(str::to_owned);
    let ended = report_in(&config, folder.path(), args);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{args:?}: {ended:?}");
    ended.stdout
}

#[test]
fn a_recorded_session_is_reported_in_every_format() {
    for (format, ending) in
        [("table", "txt"), ("markdown", "md"), ("json", "json"), ("junit", "xml"), ("html", "html")]
    {
        let text = of_recorded(&[&RECORDED[..8], "--format", format]);
        golden::compare(&format!("tests/cli/golden/report/session.{ending}"), &text);
        if format == "junit" {
            check_xml(&text);
        }
    }
    for (format, ending) in [("TABLE", "txt"), ("Markdown", "md"), ("JSON", "json")] {
        let text = of_recorded(&["--all-projects", "--format", format]);
        golden::compare(&format!("tests/cli/golden/report/sessions.{ending}"), &text);
    }
}

/// Checks that XML is well-formed: elements are nested, and text has no markup or control
/// characters.
#[track_caller]
fn check_xml(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    let body = text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").expect("a head");
    for part in body.split('<').skip(1) {
        let (tag, between) = part.split_once('>').expect("a tag has an end");
        for references in [tag, between].iter().flat_map(|text| text.split('&').skip(1)) {
            let name = references.split(';').next().expect("a reference has an end");
            let is_known = ["amp", "lt", "gt", "quot", "#39", "#10", "#9"].contains(&name);
            assert!(is_known, "&{name} in {part}");
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{part}");
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().expect("a name"));
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        }
    }
    assert_eq!(open, [""; 0]);
    assert!(!text.chars().any(|one| one.is_control() && one != '\n'), "{text}");
}

/// The names of all elements of a page, and the text of it. Its elements have to be closed.
fn elements(page: &str) -> (Vec<String>, String) {
    const WITHOUT_END: [&str; 4] = ["br", "hr", "link", "meta"];
    let name = |name: &[u8]| String::from_utf8(name.to_vec()).expect("UTF-8");
    let (mut names, mut text, mut open) = (Vec::new(), String::new(), Vec::new());
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    for token in Tokenizer::new_with_emitter(page, emitter) {
        match token.expect("a text can be read") {
            Token::StartTag(tag) => {
                names.push(name(&tag.name));
                if !tag.self_closing && !WITHOUT_END.contains(&&*name(&tag.name)) {
                    open.push(name(&tag.name));
                }
            }
            Token::EndTag(tag) => assert_eq!(open.pop(), Some(name(&tag.name))),
            Token::String(piece) => text.push_str(&name(&piece)),
            Token::Comment(_) | Token::Doctype(_) => {}
            Token::Error(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(open, [""; 0]);
    (names, text)
}

#[tokio::test]
async fn a_report_agrees_with_the_result_of_its_run() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "exit 4" }))
        .tool("Read", json!({ "file_path": "/etc/passwd" }))
        .status(529)
        .times(2)
        .reply("Done.");
    let server = serve(scenario);
    let ended = RunBuilder::against(&server).args(["--session-id", ONE, "Do it."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (result, report) = (ended.result(), object(&ended, &[]));
    let session = &report["sessions"][0];
    for (of_report, of_result) in [
        (&session["session_id"], &result["session_id"]),
        (&session["outcome"], &result["terminal_reason"]),
        (&session["exit_code"], &result["exit_code"]),
        (&session["num_turns"], &result["num_turns"]),
        (&session["total_cost_usd"], &result["total_cost_usd"]),
        (&session["tools"]["calls"], &result["tools"]["calls"]),
        (&session["tools"]["failed"], &result["tools"]["failed"]),
        (&session["waited_ms"]["total"], &result["recovery"]["waited_ms"]),
    ] {
        assert_eq!(of_report, of_result, "{report:#}\n{result:#}");
    }
    let recovery = &session["recoveries"][0];
    assert_eq!(
        (&recovery["class"], &recovery["saved"], &recovery["attempts"]),
        (&json!("server_overload"), &json!(1), &json!(3))
    );
    assert_eq!(recovery["waited_ms"], result["recovery"]["records"][0]["waited_ms"]);
    let overview = &report["overview"];
    assert_eq!((&overview["saved_by_recovery"], &overview["sessions"]), (&json!(1), &json!(1)));
    assert_eq!(overview["recoveries"][0]["saved_sessions"], 1);

    // Two sessions, one of which fails, with a message that the record cuts within a key.
    let message = format!("The frobnicator is off. {} {KEY}", "x".repeat(455));
    let refusing = Scenario::new().status(400).error("invalid_request_error", &message, None);
    let server = serve(refusing.after(AfterLast::RepeatLast));
    let ended = ended.again(&server.base_url()).args(["Again."]).run().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let overview = &object(&ended, &["--all"])["overview"];
    assert_eq!(
        (&overview["sessions"], &overview["succeeded"], &overview["failed"]),
        (&json!(2), &json!(1), &json!(1)),
        "{overview:#}"
    );
    assert_eq!(object(&ended, &["--since", "1h"])["overview"], *overview);
    assert_eq!(object(&ended, &["latest", ONE, ONE])["sessions"].as_array().map(Vec::len), Some(2));
    let xml = shown(&ended, &["--all", "--format", "junit"]);
    check_xml(&xml);
    assert!(xml.contains("tests=\"2\" failures=\"1\" errors=\"0\""), "{xml}");
    assert!(
        xml.contains("<failure message=\"model_error (invalid_request), exit code 1\""),
        "{xml}"
    );
    let error = "HTTP 400: The frobnicator is off. xx";
    let recorded = object(&ended, &["latest"])["sessions"][0]["error"].clone();
    let recorded = recorded.as_str().expect("the message of the service");
    assert!(recorded.starts_with(error) && recorded.len() < 520, "{recorded}");
    assert!(!recorded.contains(&KEY[..8]), "{recorded}");
    for format in ["table", "markdown", "junit", "html"] {
        assert!(shown(&ended, &["--format", format]).contains(error), "{format}");
    }
    assert!(xml.contains(error), "{xml}");
    let (names, text) = elements(&shown(&ended, &["--all", "--format", "html"]));
    assert!(text.contains("2 sessions") && text.contains("server overload"), "{text}");
    assert!(text.contains("\nthe service calls the request wrong"), "the cause in words: {text}");
    assert!(!names.iter().any(|name| name == "script"), "{names:?}");
}

#[tokio::test]
async fn hostile_texts_stay_texts_in_every_format() {
    let task =
        json!({ "description": HOSTILE, "prompt": HOSTILE, "subagent_type": "general-purpose" });
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": format!("echo '{}'", HOSTILE.replace('\'', "")) }))
        .and_text(HOSTILE)
        .tool("Agent", task)
        .reply(HOSTILE)
        .after(AfterLast::RepeatLast);
    let server = serve(scenario);
    let prompt = HOSTILE.replace('\u{1}', "\u{7f}");
    let ended = RunBuilder::against(&server).args([prompt.as_str()]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for page in
        [shown(&ended, &["--format", "html"]), shown(&ended, &["--all", "--format", "html"])]
    {
        let (names, text) = elements(&page);
        assert!(!names.iter().any(|name| name == "script" || name == "b" && !page.contains("<b>")));
        assert!(
            text.contains("<script>alert(1)</script> | `rm` <b>&amp;\"' %0A::error::x"),
            "{text}"
        );
        assert!(
            !page.contains(['\u{1}', '\u{7f}', '\u{202e}']) && !page.contains("<script"),
            "{page}"
        );
        assert!(!page.contains("http://") && !page.contains("https://"), "no network");
    }
    let xml = shown(&ended, &["--format", "junit"]);
    check_xml(&xml);
    assert!(xml.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{xml}");
    let markdown = shown(&ended, &["--all", "--format", "markdown"]);
    assert!(!markdown.contains("<script") && !markdown.contains("| `rm`"), "{markdown}");
    assert!(markdown.contains("&lt;script&gt;alert(1)&lt;/script&gt; \\| \\`rm\\`"), "{markdown}");
    let table = shown(&ended, &[]);
    assert!(!table.contains(['\u{7f}', '\u{202e}']) && table.contains("<script>"), "{table}");
}

#[test]
fn killed_and_damaged_sessions_are_reported_as_what_they_are() {
    let cut = |text: &str| {
        let last = text.rfind("\"kind\":\"transition\"").expect("it has steps");
        text[..last].to_owned()
    };
    let (folder, config) = recorded(cut);
    let args = |format| [RECORDED, "--format", format];
    let report = |format| report_in(&config, folder.path(), &args(format)).stdout;
    let session: Value = serde_json::from_str(&report("json")).expect("JSON");
    let session = &session["sessions"][0];
    assert_eq!(
        (&session["outcome"], &session["exit_code"], &session["is_torn"]),
        (&json!("unfinished"), &Value::Null, &json!(true)),
    );
    assert_eq!((&session["is_error"], &session["unreadable_lines"]), (&json!(true), &json!(0)));
    let xml = report("junit");
    check_xml(&xml);
    assert!(xml.contains("errors=\"1\"") && xml.contains("type=\"unfinished\""), "{xml}");
    assert!(report("table").contains("cut off, as by a kill"));

    let (folder, config) =
        recorded(|text| text.replacen("\"kind\":\"spend\"", "\"kind\":\"SPEND\"", 1));
    let damaged = report_in(&config, folder.path(), &[RECORDED]).stdout;
    assert!(damaged.contains("of the journal cannot be read; outlast sessions show"), "{damaged}");
}

#[test]
fn a_file_is_written_in_the_format_of_its_name_and_mistakes_are_one_line() {
    let (folder, config) = recorded(str::to_owned);
    let file = folder.path().join("report.html");
    let path = file.to_str().expect("UTF-8");
    let ended = report_in(&config, folder.path(), &[RECORDED, "--output", path]);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, "", ""));
    let page = fs::read_to_string(&file).expect("it was written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    let mode = fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A file beside it takes its place: a folder for temporary files may be on another disk.
    let mut elsewhere = command(&config, folder.path(), &[RECORDED, "--output", path]);
    let status = elsewhere.env("TMPDIR", "/nowhere").status().expect("outlast starts");
    assert_eq!(status.code(), Some(0));
    let none = folder.path().join("none/report.html");
    mkfifo(&folder.path().join("pipe"), Mode::S_IRWXU).expect("a pipe");
    let printed = report_in(&config, folder.path(), &[RECORDED, "--output", "-"]);
    assert_eq!(printed.stdout, of_recorded(&[RECORDED]));
    assert!(!folder.path().join("-").exists(), "it is no file");
    for (args, expected) in [
        (&["nothing"][..], "there is no session nothing"),
        (&["latest"], "no session was recorded"),
        (&[RECORDED, "--output", none.to_str().expect("UTF-8")], "the folder does not exist"),
        (&[RECORDED, "--output", "pipe"], "--output pipe: is a device or a pipe"),
        (&[RECORDED, "--all"], "cannot be used together"),
        (&["--since", "soon"], "is not an age"),
        (&["--format", "pdf"], "markdown"),
    ] {
        let ended = report_in(&config, folder.path(), args);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{args:?}: {ended:?}");
        assert!(ended.line().contains(expected), "{args:?}: {ended:?}");
    }
    let empty = report_in(&config, folder.path(), &["--all", "--format", "junit"]);
    check_xml(&empty.stdout);
    assert!(empty.stdout.contains("tests=\"0\""), "{empty:?}");
}

/// A run in a step of GitHub Actions, with its summary.
async fn step(
    scenario: Scenario,
    args: &[&str],
    variables: &[(&str, &str)],
) -> (FinishedProcess, String) {
    let server = serve(scenario);
    let mut run = RunBuilder::against(&server).args(args.iter().copied());
    let summary = run.work().join("summary.md");
    fs::write(&summary, "Before.\n").expect("the folder is ours");
    run = run.env("GITHUB_ACTIONS", "true").env("CI", "true");
    run = run.env("GITHUB_STEP_SUMMARY", summary.to_str().expect("UTF-8"));
    for (name, value) in variables {
        run = run.env(name, value);
    }
    let ended = run.run().await;
    let text = fs::read_to_string(&summary).expect("it is there");
    (ended, text)
}

fn annotations(of: &FinishedProcess) -> Vec<&str> {
    of.stderr.lines().filter(|line| line.starts_with("::")).collect()
}

#[tokio::test]
async fn a_step_of_ci_gets_a_summary_and_an_annotation_of_the_failure() {
    let works = || Scenario::new().status(529).reply("Done.");
    let (ended, summary) = step(works(), &["Do | it."], &[]).await;
    assert_eq!((ended.code, annotations(&ended)), (Some(0), Vec::new()), "{ended:?}");
    assert!(
        summary.starts_with("Before.\n\n### outlast: ✅ completed, exit code 0\n"),
        "{summary}"
    );
    assert!(
        summary.contains("\n> Do \\| it.\n") && summary.contains("| server overload | 1 | 1 |")
    );

    let (ended, bare) = step(works(), &["--no-session-persistence", "Do it."], &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        bare.contains("✅ completed") && bare.contains("| server overload | 1 | 1 |"),
        "{bare}"
    );

    let loops = Scenario::new().tool("Bash", json!({ "command": "true" }));
    let (ended, summary) = step(loops, &["--max-turns", "1", "Do it."], &[]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let [line] = annotations(&ended)[..] else { panic!("one annotation: {ended:?}") };
    let begin = "::error title=outlast%3A max_turns::the turn limit was reached after 1 reply.";
    assert!(line.starts_with(begin), "{line}");
    assert!(summary.contains("❌ max\\_turns, exit code 3"), "{summary}");
    assert!(summary.contains(" --resume "), "{summary}");

    let (ended, summary) = step(works(), &["--bogus", "Do it."], &[]).await;
    assert_eq!((ended.code, summary.as_str()), (Some(2), "Before.\n"), "{ended:?}");
    let not_started =
        "::error title=outlast%3A not started::unknown flag --bogus; see outlast --help";
    assert_eq!(annotations(&ended), [not_started], "{ended:?}");
}

#[tokio::test]
async fn a_step_summary_can_be_switched_off_and_never_changes_the_exit_code() {
    let fails = || Scenario::new().status(400).after(AfterLast::RepeatLast);
    let off = [("OUTLAST_NO_STEP_SUMMARY", "1")];
    let (ended, summary) = step(fails(), &["Do it."], &off).await;
    assert_eq!((ended.code, summary.as_str()), (Some(1), "Before.\n"), "{ended:?}");
    assert_eq!(annotations(&ended), [""; 0], "{ended:?}");
    let (ended, _) = step(fails(), &["--bogus", "Do it."], &off).await;
    assert_eq!((ended.code, annotations(&ended)), (Some(2), Vec::new()), "{ended:?}");
    let settings = ["--settings", "{\"stepSummary\":false}", "Do it."];
    let (ended, summary) = step(fails(), &settings, &[]).await;
    assert_eq!((ended.code, summary.as_str()), (Some(1), "Before.\n"), "{ended:?}");
    for elsewhere in [("GITHUB_ACTIONS", "false"), ("GITHUB_STEP_SUMMARY", "")] {
        let (ended, summary) = step(fails(), &["Do it."], &[elsewhere]).await;
        assert_eq!((ended.code, summary.as_str()), (Some(1), "Before.\n"), "{ended:?}");
        assert_eq!(annotations(&ended), [""; 0], "{ended:?}");
    }
    // A folder cannot be appended to.
    let (ended, _) = step(fails(), &["Do it."], &[("GITHUB_STEP_SUMMARY", "/")]).await;
    assert_eq!((ended.code, annotations(&ended).len()), (Some(1), 1), "{ended:?}");
    assert!(
        ended.stderr.contains("warning: GITHUB_STEP_SUMMARY could not be written"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_failed_requirement_and_a_denied_call_are_in_the_report() {
    let server = serve(
        Scenario::new()
            .tool("Bash", json!({ "command": "touch x" }))
            .reply("It is done.")
            .after(AfterLast::RepeatLast),
    );
    let ended = RunBuilder::bare(&server.base_url())
        .args(["Do it.", "--require", "echo not yet; false", "--name", "nightly"])
        .run()
        .await;
    assert_eq!(ended.code, Some(9), "{ended:?}");
    let report = object(&ended, &[]);
    let session = &report["sessions"][0];
    assert_eq!(session["failed_command"]["output"], "not yet", "{session}");
    assert_eq!(session["failed_command"]["is_requirement"], true, "{session}");
    assert_eq!(session["not_run"][0]["call"], "Bash: touch x", "{session}");
    let reason = session["not_run"][0]["reason"].as_str().expect("a reason");
    assert!(!reason.is_empty() && !reason.contains("tool_use_error"), "{reason}");
    assert_eq!((&session["name"], &session["answer"]), (&json!("nightly"), &json!("It is done.")));
    let cases = shown(&ended, &["--format", "junit"]);
    check_xml(&cases);
    assert!(cases.contains("<testcase name=\"nightly\""), "{cases}");
    assert!(cases.contains("not yet") && cases.contains("not run: Bash: touch x"), "{cases}");
    assert!(shown(&ended, &["--format", "markdown"]).contains("```\nnot yet\n```"));
    let page = shown(&ended, &["--all", "--format", "html"]);
    let id = session["session_id"].as_str().expect("an id");
    // The prompt leads to the session, too, and stands before what a narrow screen hides.
    let links = [format!("<td class=\"text\"><a href=\"#session-{id}\">"), format!("{id}</a>")];
    let places = links.map(|link| page.find(&link).expect("a link"));
    assert!(places[0] < places[1], "{page}");
    assert!(page.contains(&format!("id=\"session-{id}\"")), "{page}");
    elements(&page);
}

#[tokio::test]
async fn changes_and_a_failed_command_are_reported_as_their_tools_recorded_them() {
    let scenario = Scenario::new()
        .tool("Write", json!({ "file_path": "new", "content": "a\na\n" }))
        .tool("Read", json!({ "file_path": "edited" }))
        .tool("Read", json!({ "file_path": "replaced" }))
        .tool(
            "Edit",
            json!({ "file_path": "edited", "old_string": "a", "new_string": "c", "replace_all": true }),
        )
        .tool("Write", json!({ "file_path": "replaced", "content": "a\nb\n" }))
        .tool("Bash", json!({ "command": "exec sleep 600", "timeout": 1_000 }))
        .status(400)
        .after(AfterLast::RepeatLast);
    let server = serve(scenario);
    let trial = RunBuilder::against(&server).args(["Do it."]);
    for name in ["edited", "replaced"] {
        std::fs::write(trial.work().join(name), "a\na\n").expect("ours");
    }
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let report = object(&ended, &[]);
    let session = &report["sessions"][0];
    let changed = |path: &str, is_new: bool, (added, removed): (u32, u32)| json!({ "path": path, "is_new": is_new, "lines_added": added, "lines_removed": removed });
    let wanted = [
        changed("new", true, (2, 0)),
        changed("edited", false, (2, 2)),
        changed("replaced", false, (1, 1)),
    ];
    assert_eq!(session["changed_files"], json!(wanted), "{session}");
    assert_eq!(session["failed_command"]["end"], "did not end in time", "{session}");
}
