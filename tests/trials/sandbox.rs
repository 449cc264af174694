//! Trials of the sandbox: the real binary says what is in force, and what is in force holds.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use outlast::process::{LandlockSupport, filters_system_calls};
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::outcomes::agrees;
use crate::support::{FinishedProcess, RunBuilder, non_temporary_folder, serve};
use crate::tools::sandbox::singled_out;

/// Runs one command, then says that it is done.
fn commands(command: &str) -> Scenario {
    Scenario::new().tool("Bash", json!({ "command": command })).reply("Done.")
}

/// A home that is no temporary place, with a key in it.
fn home() -> TempDir {
    let home = non_temporary_folder();
    fs::create_dir(home.path().join(".ssh")).expect("a folder");
    fs::write(home.path().join(".ssh/id_x"), "the-secret\n").expect("a file");
    home
}

fn trial(server: &RehearsalServer, home: &Path) -> RunBuilder {
    let config = home.join("config").display().to_string();
    let trial = RunBuilder::bare(&server.base_url()).env("HOME", &home.display().to_string());
    trial.env("OUTLAST_CONFIG_DIR", &config).args(["Do it.", "--allowedTools", "Bash"])
}

/// The result of the command.
fn told(ended: &FinishedProcess) -> String {
    ended.tool_results()[0].to_string()
}

fn init(ended: &FinishedProcess) -> Value {
    ended.frames().into_iter().find(|frame| frame["subtype"] == "init").expect("an init message")
}

/// Sockets of the services that the machine of the test happens to have.
fn sockets_among(exposed: &Value) -> Vec<&str> {
    let is_socket =
        |path: &&str| fs::metadata(path).is_ok_and(|facts| facts.file_type().is_socket());
    exposed.as_array().into_iter().flatten().filter_map(Value::as_str).filter(is_socket).collect()
}

#[tokio::test]
async fn the_sandbox_state_is_reported_at_start_and_end() {
    let bypass = ["--permission-mode", "bypassPermissions"];
    // flags, mode
    let table: [(&[&str], &str); 6] = [
        (&[], "workspace"),
        (&["--sandbox", "read-only"], "read-only"),
        (&["--sandbox", "off"], "off"),
        (&bypass, "off"),
        (&["--sandbox=workspace", "--dangerously-skip-permissions"], "workspace"),
        (&["--settings", r#"{"sandbox": {"enabled": false}}"#], "off"),
    ];
    let kernel = LandlockSupport::probe();
    for (flags, mode) in table {
        let (home, server) = (home(), serve(commands("echo x > ~/new; cat ~/.ss*/id_x")));
        let ended = trial(&server, home.path())
            .args(["--output-format", "stream-json"])
            .args(flags)
            .run()
            .await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let result = agrees(&ended);
        let fenced = mode != "off" && kernel.abi > 0;
        let sockets = sockets_among(&result["sandbox"]["exposed"]);
        let holds = kernel.restricts_files() && filters_system_calls() && sockets.is_empty();
        let state = json!({
            "mode": mode,
            "enforced": match (fenced, holds) {
                (false, _) => "none",
                (true, true) => "full",
                (true, false) => "partial",
            },
            "abi": kernel.abi,
            "network": "open",
            "signals": if fenced && kernel.restricts_signals() { "own_only" } else { "open" },
            "processes": if fenced && filters_system_calls() { "own_only" } else { "open" },
            "exposed": sockets,
        });
        for mut reported in [result["sandbox"].clone(), init(&ended)["sandbox"].clone()] {
            let exposed: Vec<String> =
                serde_json::from_value(reported["exposed"].take()).expect("texts");
            // Arguments of processes, and shared memory where files are written; without a sandbox
            // the logins of outlast.
            let config = home.path().join("config").display().to_string();
            assert_eq!(exposed.contains(&config), !fenced, "{flags:?}: {exposed:?}");
            let writes = fenced && mode != "read-only";
            // Without changes, a temporary folder that holds the working folder is closed.
            let has_shm = writes || fenced && !ended.work().starts_with("/dev/shm");
            let always = [fenced, has_shm, writes, !fenced];
            let always = always.into_iter().filter(|it| *it);
            assert_eq!(exposed.len() - sockets.len(), always.count(), "{flags:?}: {exposed:?}");
            let others = singled_out(&exposed).into_iter().filter(|it| *it != config);
            reported["exposed"] = json!(others.collect::<Vec<_>>());
            assert_eq!(reported, state, "{flags:?}");
        }
        let warned = ended.stderr.matches("the sandbox is not enforced").count();
        let wanted = usize::from(mode != "off" && !holds);
        assert_eq!(warned, wanted, "{flags:?}: {}", ended.stderr);
        let lifted = ended.stderr.matches("commands run without a sandbox").count();
        assert_eq!(lifted, 0, "a flag needs no warning: {}", ended.stderr);
        assert_eq!(told(&ended).contains("the-secret"), !fenced, "{flags:?}: {}", told(&ended));
        assert_eq!(home.path().join("new").exists(), !fenced, "{flags:?}");
        assert_eq!(told(&ended).contains("may be the sandbox"), fenced, "{}", told(&ended));
    }
}

#[tokio::test]
async fn required_sandbox_mode_starts_only_with_full_enforcement() {
    let (home, server) = (home(), serve(commands("cat ~/.ssh/id_x")));
    let ended = trial(&server, home.path())
        .args(["--sandbox", "required", "--sandbox-network", "off"])
        .run()
        .await;
    if LandlockSupport::probe().restricts_files() && filters_system_calls() {
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(agrees(&ended)["sandbox"]["mode"], "required");
        assert_eq!(agrees(&ended)["sandbox"]["enforced"], "full");
    } else {
        refused(&ended, &server, "Landlock");
    }
    // The key is in the tree that commands write to.
    let server = serve(commands("true"));
    let work = RunBuilder::bare(&server.base_url());
    let key = work.work().join(".ssh");
    fs::create_dir(&key).expect("a folder");
    let folder = work.work().display().to_string();
    let ended = work
        .env("HOME", &folder)
        .args(["Do it.", "--settings", r#"{"sandbox": {"failIfUnavailable": true}}"#])
        .run()
        .await;
    refused(&ended, &server, "the sandbox is required and is not enforced");
    refused(&ended, &server, if LandlockSupport::probe().abi > 0 { ".ssh" } else { "Landlock" });
}

#[tokio::test]
async fn sandbox_settings_errors_are_reported_before_any_request() {
    let table: [(&[&str], &str); 5] = [
        (&["--sandbox", "strong"], "read-only"),
        (&["--sandbox-network", "perhaps"], "--sandbox-network"),
        (&["--sandbox", "off", "--sandbox-network", "off"], "needs a sandbox"),
        (&["--settings", r#"{"sandbox": {"filesystem": {"denyRead": ["~/*.pem"]}}}"#], "pattern"),
        (&["--settings", r#"{"sandbox": {"filesystem": {"denyreed": []}}}"#], "denyreed"),
    ];
    for (flags, part) in table {
        let (home, server) = (home(), serve(commands("true")));
        let ended = trial(&server, home.path()).args(flags).run().await;
        refused(&ended, &server, part);
    }
}

#[tokio::test]
async fn ineffective_sandbox_settings_are_reported() {
    let (home, server) = (home(), serve(commands("true")));
    let settings = r#"{"sandbox": {"enabled": true, "excludedCommands": ["docker"],
        "allowUnsandboxedCommands": true, "network": {"allowMachLookup": ["x"]}}}"#;
    let ended = trial(&server, home.path()).args(["--settings", settings]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for key in ["sandbox.excludedCommands", "sandbox.network.allowMachLookup"] {
        let warned = ended.stderr.lines().filter(|line| line.contains(key)).count();
        assert_eq!(warned, 1, "{key}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("allowUnsandboxedCommands"), "{}", ended.stderr);
}

#[track_caller]
fn refused(ended: &FinishedProcess, server: &RehearsalServer, part: &str) {
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert_eq!(server.requests().len(), 0);
}
