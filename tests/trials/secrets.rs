//! Secrets: whatever is printed by a command, said by the model or quoted by the server, none of
//! it is in what outlast prints and stores; and commands see no key of ours or of the job.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use outlast::rehearsal::{ReceivedRequest, RehearsalServer, Scenario};
use outlast::secrets::REDACTED;
use serde_json::{Value, json};

use crate::secrets::examples::examples;
use crate::support::scratch::files;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// The key that every trial runs with.
const OURS: &str = "test-key-0123456789";

/// The job's own, under a name that gives it away.
const JOBS: &str = "the-token-of-the-job-42";

/// A key of each kind, a line each, and the values in use.
fn everything() -> String {
    let keys: Vec<String> = examples().into_iter().map(|example| example.text).collect();
    format!("{}\n{OURS}\n{JOBS}\n", keys.join("\n"))
}

/// Texts that must not be in any output.
fn forbidden() -> Vec<String> {
    let line = |secret: &str| secret.lines().next().unwrap_or_default().to_owned();
    let keys = examples().into_iter().map(|example| line(&example.secret));
    keys.chain([OURS.to_owned(), JOBS.to_owned()]).collect()
}

#[track_caller]
fn assert_clean(what: &str, text: &str) {
    for secret in forbidden() {
        let at = text.find(&secret);
        let near = at.map(|at| &text[text.floor_char_boundary(at.saturating_sub(80))..at]);
        assert!(at.is_none(), "{what} has {secret} after {near:?}");
    }
}

/// Searches everything that a run has left behind.
#[track_caller]
fn assert_nothing_leaked(ended: &FinishedProcess) {
    assert_clean("standard output", &ended.stdout);
    assert_clean("standard error", &ended.stderr);
    let own = ["result.json", "alive", "trace"].map(|name| ended.work().join(name));
    let stored = files(&ended.config());
    assert!(stored.iter().any(|path| path.extension().is_some_and(|kind| kind == "jsonl")));
    assert!(stored.iter().any(|path| path.to_string_lossy().contains("tool-results")));
    for path in own.iter().chain(&stored) {
        let bytes = fs::read(path).expect("it can be read");
        assert_clean(&path.display().to_string(), &String::from_utf8_lossy(&bytes));
    }
}

fn chatty() -> RehearsalServer {
    let all = everything();
    serve(
        Scenario::new()
            .status(529)
            .error("overloaded_error", &all, None)
            .header("retry-after", "0")
            .tool("Bash", json!({ "command": "cat leak; cat leak >&2; env; exit 3" }))
            .and_thinking(&all)
            .tool("Bash", json!({ "command": "for i in $(seq 40); do cat leak; done" }))
            .tool("Read", json!({ "file_path": "leak" }))
            .tool("Write", json!({ "file_path": "copy", "content": all }))
            .reply(&all),
    )
}

fn trial(server: &RehearsalServer, format: &str) -> RunBuilder {
    let files = ["--result-file", "result.json", "--heartbeat-file", "alive"];
    let flags = ["Do it.", "--output-format", format, "--log-detail"];
    let debug = ["--debug=hyper_util=trace,reqwest=trace,rustls=trace", "--debug-file", "trace"];
    let trial = RunBuilder::against(server).args(flags).args(debug);
    fs::write(trial.work().join("leak"), everything()).expect("a file");
    trial.args(files).env("CI_TOKEN", JOBS)
}

#[tokio::test]
async fn no_key_of_any_kind_is_printed_or_stored() {
    for format in ["text", "json", "stream-json"] {
        let server = chatty();
        let ended = trial(&server, format).run().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_nothing_leaked(&ended);
        assert!(ended.stdout.contains(REDACTED));
        assert_eq!(fs::read_to_string(ended.work().join("copy")).expect("a copy"), everything());
    }
}

#[tokio::test]
async fn redaction_continues_after_a_resume() {
    let server = chatty();
    let ended = trial(&server, "json").run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let server = serve(Scenario::new().reply(&everything()));
    let again = ended.again(&server.base_url());
    let again = again
        .env("CI_TOKEN", JOBS)
        .args(["And now?", "--continue", "--result-file", "result.json"])
        .run()
        .await;
    assert_eq!(again.result()["subtype"], "success", "{again:?}");
    assert_eq!(server.violations(), [""; 0]);
    let asked = server.requests()[0].body.to_string();
    assert!(asked.contains(REDACTED) && asked.contains("And now?"), "{asked}");
    assert_nothing_leaked(&again);
}

#[tokio::test]
async fn streamed_chunks_redact_a_secret_split_between_them() {
    let all = everything();
    let server = serve(
        Scenario::new()
            .tool("Write", json!({ "file_path": "copy", "content": all }))
            .and_thinking(&all)
            .reply(&format!("{all}that is all")),
    );
    let flags = ["Do it.", "--output-format", "stream-json", "--include-partial-messages"];
    let ended = RunBuilder::against(&server).args(flags).env("CI_TOKEN", JOBS).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let frames = ended.frames();
    let deltas = frames.iter().map(|frame| &frame["event"]["delta"]);
    let joined = |member: &str| -> String {
        deltas.clone().filter_map(|delta| delta[member].as_str()).collect()
    };
    for member in ["text", "thinking", "partial_json"] {
        let text = joined(member);
        assert!(text.contains(REDACTED), "{member}: {text}");
        assert_clean(member, &text);
    }
    assert!(joined("text").ends_with("that is all"), "nothing is held back for good");
    assert!(serde_json::from_str::<Value>(&joined("partial_json")).is_ok(), "JSON stays JSON");
    let signature = |frame: &&Value| frame["message"]["content"][0]["signature"].is_string();
    let thought = frames.iter().find(signature).expect("thinking is shown");
    assert_eq!(thought["message"]["content"][0]["signature"], joined("signature").as_str());
}

#[tokio::test]
async fn an_error_that_quotes_keys_is_redacted() {
    let server =
        serve(Scenario::new().status(400).error("invalid_request_error", &everything(), None));
    let flags = ["Do it.", "--result-file", "result.json"];
    let ended = RunBuilder::against(&server).args(flags).env("CI_TOKEN", JOBS).run().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_clean("standard output", &ended.stdout);
    assert_clean("standard error", &ended.stderr);
    assert!(ended.result()["errors"][0].as_str().is_some_and(|text| text.contains(REDACTED)));
}

#[tokio::test]
async fn a_key_given_as_an_unknown_flag_is_not_printed() {
    let key = ["sk-", "ant-", "api03-0123456789"].concat();
    let server = serve(Scenario::new());
    for value in [key.as_str(), OURS] {
        let ended = RunBuilder::against(&server).args(["Do it.", "--max-turns", value]).run().await;
        assert_eq!(ended.code, Some(2));
        assert!(!format!("{ended:?}").contains(value), "{ended:?}");
    }
}

/// The messages of a request, which hold the results of the calls.
fn told(request: &ReceivedRequest) -> String {
    request.body["messages"].to_string()
}

#[tokio::test]
async fn commands_hide_the_runs_key_and_the_jobs_token_from_the_model() {
    let checkout = "git init -q . && git config --local http.https://github.com/.extraheader \
                    \"AUTHORIZATION: basic $(printf x-access-token:%s \"$(cat token)\" | base64)\"";
    let look = "env; printenv; tr '\\0' '\\n' < /proc/self/environ; git config -l; \
                tr '\\0' '\\n' < /proc/$PPID/environ";
    let server = serve(
        Scenario::new()
            .tool("Bash", json!({ "command": checkout }))
            .tool("Bash", json!({ "command": look }))
            .tool("Read", json!({ "file_path": ".git/config" }))
            .tool("Grep", json!({ "pattern": "extraheader", "output_mode": "content" }))
            .tool("Bash", json!({ "command": "cat token; base64 token; cat .env" }))
            .reply("Done."),
    );
    let flags = ["Do it.", "--output-format", "stream-json", "--child-env", "scrub"];
    let names = ["GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "CI_JOB_TOKEN", "CI_JOB_JWT"];
    let mut trial = RunBuilder::against(&server).args(flags);
    for (index, name) in names.iter().enumerate() {
        trial = trial.env(name, &format!("{JOBS}-{index}"));
    }
    trial = trial.env("CI_REPOSITORY_URL", &format!("https://u:{JOBS}-2@git.invalid/x"));
    fs::write(trial.work().join("token"), format!("{JOBS}-0")).expect("a file");
    let fixture = "GH=".to_owned() + &["gh", "p_", &"a1".repeat(18)].concat();
    fs::write(trial.work().join(".env"), &fixture).expect("a file");
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = told(server.requests().last().expect("a request"));
    assert!(told.contains("extraheader=AUTHORIZATION: basic [redacted]"), "{told}");
    assert!(told.contains("extraheader = AUTHORIZATION: basic [redacted]"), "{told}");
    assert!(told.contains(&fixture), "a key of no service here is the model's to fix");
    assert!(!told.contains("dGhlLXRva2VuLW9mLXRoZS1qb2I"), "nor in base64: {told}");
    for secret in [OURS, JOBS] {
        assert!(!told.contains(secret), "{secret}: {told}");
    }
    let dropped = ended.frames()[0]["dropped_env"].clone();
    let dropped: Vec<&str> =
        dropped.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for name in names.iter().chain(&["ANTHROPIC_API_KEY", "CI_REPOSITORY_URL"]) {
        assert!(dropped.contains(name), "{name}: {dropped:?}");
    }
}

/// Root may look anywhere, so the run is another user's where we are root.
const UNPRIVILEGED: &str = "drop='setpriv --reuid 65534 --regid 65534 --clear-groups'
    if [ \"$(id -u)\" = 0 ] && $drop test -x \"$1\" && chown -R 65534:65534 \"$HOME\"; then
        exec $drop \"$@\"
    fi
    exec \"$@\"";

#[tokio::test]
async fn other_processes_of_the_user_cannot_read_outlasts_memory() {
    let server = serve(Scenario::new().tool("Bash", json!({ "command": "sleep 60" })));
    let trial =
        RunBuilder::against(&server).args(["Do it.", "--log-detail"]).in_shell(UNPRIVILEGED);
    let mut running = trial.start();
    running.wait_for_stderr("turn 1").await;
    let place = PathBuf::from(format!("/proc/{}/environ", running.pid()));
    assert_eq!(fs::metadata(place).expect("it runs").uid(), 0, "only root may look");
    running.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(running.end().await.code, Some(143), "and it works all the same");
}
