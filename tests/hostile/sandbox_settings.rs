//! Settings that sound like a protection: they are enforced, or the run does not begin.

use outlast::process::filters_system_calls;
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::json;

use crate::support::{FinishedProcess, RunBuilder, serve};
use crate::tools::sandbox::SandboxFixture;

/// Runs with these settings of the sandbox. The command tells whether it gets a socket.
async fn run_with(sandbox: &str, flags: &[&str]) -> FinishedProcess {
    let opens = "python3 -I -S -c 'import socket; socket.socket(); print(\"soc\" + \"ket\")'";
    run_command(opens, sandbox, flags).await.0
}

async fn run_command(
    command: &str,
    sandbox: &str,
    flags: &[&str],
) -> (FinishedProcess, RehearsalServer) {
    let scenario = Scenario::new().tool("Bash", json!({ "command": command })).reply("Done.");
    let server = serve(scenario);
    let settings = format!(r#"{{"sandbox": {sandbox}}}"#);
    let trial = RunBuilder::bare(&server.base_url());
    std::fs::write(trial.work().join("settings.json"), settings).expect("a file");
    let args = ["Do it.", "--allowedTools", "Bash", "--settings", "settings.json"];
    let trial = trial.args(args).args(["--output-format", "stream-json", "--verbose"]);
    let ended = trial.args(flags).run().await;
    if ended.code == Some(2) {
        assert_eq!(server.requests().len(), 0, "it ends before the first request: {ended:?}");
    }
    (ended, server)
}

#[tokio::test]
async fn what_cannot_be_enforced_ends_the_run_and_names_the_place() {
    for (network, key) in [
        (r#"{"allowLocalBinding": false}"#, "allowLocalBinding"),
        (r#"{"allowLocalBinding": false, "enabled": true}"#, "allowLocalBinding"),
        (r#"{"allowAllUnixSockets": false}"#, "allowAllUnixSockets"),
        (r#"{"allowManagedDomainsOnly": true}"#, "allowManagedDomainsOnly"),
        (r#"{"httpProxyPort": 8080}"#, "httpProxyPort"),
        (r#"{"socksProxyPort": 1080}"#, "socksProxyPort"),
    ] {
        let ended = run_with(&format!(r#"{{"network": {network}}}"#), &[]).await;
        assert_eq!(ended.code, Some(2), "{network}: {ended:?}");
        let line = format!("settings.json:1: \"sandbox.network.{key}\" cannot be enforced");
        assert!(ended.stderr.contains(&line), "{network}: {}", ended.stderr);
        assert!(ended.stderr.contains("sandbox.network.enabled"), "the remedy: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    }
    // Lists that could not be meant so.
    for (network, key) in [
        (r#"{"allowedDomains": ["*"]}"#, "allowedDomains"),
        (r#"{"allowedDomains": ["https://a.example/"]}"#, "allowedDomains"),
        (r#"{"allowedDomains": ["localhost"]}"#, "allowedDomains"),
        (r#"{"deniedDomains": ["a.example:0"]}"#, "deniedDomains"),
        (r#"{"allowedDomains": ["a.example"], "httpProxyPort": 8080}"#, "httpProxyPort"),
    ] {
        let ended = run_with(&format!(r#"{{"network": {network}}}"#), &[]).await;
        assert_eq!(ended.code, Some(2), "{network}: {ended:?}");
        let line = format!("settings.json:1: \"sandbox.network.{key}\"");
        assert!(ended.stderr.contains(&line), "{network}: {}", ended.stderr);
    }
    // A list without a sandbox would only suggest a protection.
    for (sandbox, flags) in [
        (
            r#"{"network": {"allowedDomains": ["a.example"]}}"#,
            &["--permission-mode", "bypassPermissions"][..],
        ),
        (r#"{"mode": "off", "network": {"deniedDomains": ["a.example"]}}"#, &[]),
    ] {
        let ended = run_with(sandbox, flags).await;
        assert_eq!(ended.code, Some(2), "{sandbox}: {ended:?}");
        assert!(ended.stderr.contains("needs the sandbox"), "{sandbox}: {}", ended.stderr);
    }
    // A mistake in a name that protects is no setting that is left out.
    for wrong in [r#"{"allowedDomain": []}"#, r#"{"deniedDomain": ["x"]}"#] {
        let ended = run_with(&format!(r#"{{"network": {wrong}}}"#), &[]).await;
        assert_eq!(ended.code, Some(2), "{wrong}: {ended:?}");
    }
}

#[tokio::test]
async fn what_can_be_enforced_is_enforced_and_reported() {
    // Whether commands have a network.
    for (sandbox, flags, has_network) in [
        (r#"{"network": {"allowedDomains": []}}"#, &[][..], false),
        (r#"{"network": {"allowedDomains": [], "allowLocalBinding": false}}"#, &[], false),
        (r#"{"network": {"allowedDomains": [], "deniedDomains": ["x.org"]}}"#, &[], false),
        (r#"{"network": {"enabled": false, "allowedDomains": ["x.org"]}}"#, &[], false),
        (r#"{"network": {"enabled": false, "allowAllUnixSockets": false}}"#, &[], false),
        (r#"{"network": {"httpProxyPort": 80}}"#, &["--sandbox-network", "off"], false),
        (r#"{"network": {"allowedDomains": []}}"#, &["--sandbox-network", "on"], false),
        (r#"{"enabled": true, "network": {"deniedDomains": []}}"#, &[], true),
        (r#"{"network": {"allowLocalBinding": true}}"#, &[], true),
        (
            r#"{"network": {"allowAllUnixSockets": true}, "allowUnsandboxedCommands": false}"#,
            &[],
            true,
        ),
    ] {
        let ended = run_with(sandbox, flags).await;
        assert_eq!(ended.code, Some(0), "{sandbox}: {ended:?}");
        if !filters_system_calls() {
            assert_ne!(ended.result()["sandbox"]["network"], "off", "{sandbox}");
            continue;
        }
        let network = if has_network { "open" } else { "off" };
        assert_eq!(ended.result()["sandbox"]["network"], network, "{sandbox}");
        assert_eq!(ended.stdout.contains("socket\\n"), has_network, "{sandbox}: {}", ended.stdout);
    }
}

/// The list is in force, and its refusals are told to the model, in the init message and in the
/// result; only the user's own flag opens the network.
#[tokio::test]
async fn a_list_of_domains_is_enforced_and_reported() {
    let command =
        "python3 -I -S -c 'import socket; socket.create_connection((\"b.example\", 443))'";
    for (flags, network) in [(&[][..], "allowlist"), (&["--sandbox", "off"], "open")] {
        let sandbox = r#"{"network": {"allowedDomains": ["a.example"]}}"#;
        let (ended, server) = run_command(command, sandbox, flags).await;
        if !filters_system_calls() {
            assert_eq!(ended.code, Some(if network == "open" { 0 } else { 2 }), "{ended:?}");
            continue;
        }
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let result = ended.result();
        assert_eq!(result["sandbox"]["network"], network, "{ended:?}");
        if network == "open" {
            assert!(ended.stderr.contains("the network of commands is open"), "{}", ended.stderr);
            continue;
        }
        assert_eq!(result["sandbox"]["allowed_domains"], json!(["a.example"]));
        let refused = &result["network_refused"][0];
        assert_eq!(refused["host"], "b.example", "{result}");
        assert_eq!(refused["reason"], "not_listed", "{result}");
        let sent = server.requests()[1].body.to_string();
        assert!(sent.contains("b.example (not in sandbox.network.allowedDomains)"), "{sent}");
    }
}

/// The folders of the sandbox are those that were meant, whatever a command puts in their way.
#[tokio::test]
async fn a_link_in_the_way_to_a_granted_folder_grants_nothing() {
    let fixture = SandboxFixture::with(|settings, root| {
        for folder in ["work/sub/deep", "outside/deep"] {
            std::fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        settings.sandbox.allow_write = vec!["sub/deep".to_owned()];
    });
    if !fixture.holds() {
        return;
    }
    let swapped = fixture.bash("mv sub old && ln -s ../outside sub && ls sub").await;
    assert!(!swapped.is_error, "{swapped:?}");
    let outcome = fixture.bash("echo gone > ../outside/deep/file").await;
    assert!(outcome.is_error, "{outcome:?}");
    assert!(!fixture.root.join("outside/deep/file").exists());
}
