//! Trials of `doctor` and runs on one machine: they agree on what the sandbox holds.

use std::fs;
use std::path::Path;

use outlast::process::{LandlockSupport, filters_system_calls};
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::doctor::report;
use crate::support::{FinishedProcess, RunBuilder, non_temporary_folder, serve};

const LIMITS: [&str; 4] = ["--max-budget-usd", "1", "--max-duration", "5m"];

/// Working directory of a program, and its home folder, which is empty.
struct Place<'a> {
    cwd: &'a Path,
    home: &'a Path,
}

impl Place<'_> {
    async fn start(&self, server: &RehearsalServer, words: &[&str]) -> FinishedProcess {
        let enter = format!("cd '{}' && exec \"$@\"", self.cwd.display());
        let home = self.home.display().to_string();
        let config = self.home.join("config").display().to_string();
        let program = RunBuilder::bare(&server.base_url()).env("HOME", &home);
        program.env("OUTLAST_CONFIG_DIR", &config).args(words).in_shell(&enter).run().await
    }

    async fn doctor(&self, server: &RehearsalServer, flags: &[&str]) -> Value {
        let words = [&["doctor", "--json", "--offline", "--"], flags].concat();
        report(&self.start(server, &words).await)
    }

    async fn run(&self, server: &RehearsalServer, flags: &[&str]) -> FinishedProcess {
        self.start(server, &[&["Review it.", "--output-format", "json"], flags].concat()).await
    }
}

/// The only finding of a check with one of these levels.
fn finding<'a>(report: &'a Value, check: &str, levels: &[&str]) -> Option<&'a Value> {
    let findings = report["findings"].as_array().expect("a list");
    let is_level = |one: &Value| levels.iter().any(|level| one["status"] == *level);
    let mut of_check = findings.iter().filter(|one| one["check"] == check && is_level(one));
    let found = of_check.next();
    assert!(of_check.next().is_none(), "{check}: {report:#}");
    found
}

/// The promises of the profile that hold, as the doctor says it.
fn held(report: &Value) -> Vec<String> {
    let profile = finding(report, "profile", &["ok", "warning"]).expect("a finding");
    let lines = profile["details"].as_array().expect("a list").iter();
    let lines = lines.map(|line| line.as_str().expect("text").split_once(": ").expect("a name"));
    let held = lines.filter(|(_, how)| how.starts_with("holds: "));
    held.map(|(name, _)| name.to_owned()).collect()
}

fn has_kernel() -> bool {
    LandlockSupport::probe().restricts_files() && filters_system_calls()
}

#[tokio::test]
async fn doctor_warns_of_a_key_helper_that_commands_could_write() {
    let (home, cwd) = (non_temporary_folder(), non_temporary_folder());
    let place = Place { cwd: cwd.path(), home: home.path() };
    let server = serve(Scenario::new().reply("Done."));
    for (helper, more, is_confined) in [
        ("./key.sh", &[][..], true),
        ("/bin/echo key-of-the-helper", &[], false),
        ("./key.sh", &["--sandbox", "off"], false),
    ] {
        let told = place.doctor(&server, &[&["--api-key-helper", helper], more].concat()).await;
        let warning = finding(&told, "credentials", &["warning"]);
        assert_eq!(warning.is_some(), is_confined, "{helper} {more:?}: {told:#}");
    }
}

#[tokio::test]
async fn doctor_and_runs_agree_on_a_home_that_commands_can_write_to() {
    let (home, cwd) = (tempfile::tempdir().expect("a temporary folder"), non_temporary_folder());
    let place = Place { cwd: cwd.path(), home: home.path() };
    let server = serve(Scenario::new().reply("Done."));
    let told = place.doctor(&server, &[]).await;
    // The folder of settings is made by the run only.
    assert!(fs::read_dir(home.path()).expect("it is there").next().is_none(), "something is left");
    let partial = finding(&told, "sandbox", &["warning"]).expect("a warning");
    if has_kernel() {
        assert_eq!(held(&told), ["network", "checkout", "limits"], "{told:#}");
        let config = home.path().canonicalize().expect("it is there").join("config");
        assert!(partial["what"].to_string().contains(&config.display().to_string()), "{partial:#}");
    }
    for flags in [&["--profile", "untrusted"][..], &["--sandbox", "required"]] {
        let ended = place.run(&server, &[&LIMITS[..], flags].concat()).await;
        assert_eq!(ended.code, Some(2), "{flags:?}: {ended:?}");
    }
    assert_eq!(server.requests().len(), 0);
    let ended = place.run(&server, &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let wanted = if LandlockSupport::probe().abi > 0 { "partial" } else { "none" };
    assert_eq!(ended.result()["sandbox"]["enforced"], wanted, "{ended:?}");
}

#[tokio::test]
async fn doctor_and_runs_agree_on_a_home_that_lasts() {
    let (home, cwd) = (non_temporary_folder(), tempfile::tempdir().expect("a temporary folder"));
    let place = Place { cwd: cwd.path(), home: home.path() };
    let server = serve(Scenario::new().reply("Done.").reply("Done."));
    let list = r#"{"sandbox": {"network": {"allowedDomains": ["docs.example"]}}}"#;
    for (flags, network) in [(&[][..], "off"), (&["--settings", list], "allowlist")] {
        let told = place.doctor(&server, flags).await;
        let flags = [&LIMITS[..], &["--profile", "untrusted"], flags].concat();
        let ended = place.run(&server, &flags).await;
        let held = held(&told);
        let all_hold = ["sandbox", "network", "checkout", "limits"].iter().eq(&held);
        let code = if all_hold { 0 } else { 2 };
        assert_eq!(ended.code, Some(code), "{flags:?}: {ended:?}, {told:#}");
        assert_eq!(all_hold, finding(&told, "profile", &["ok"]).is_some(), "{told:#}");
        assert_eq!(
            all_hold,
            has_kernel() && (network == "off" || held.contains(&"network".into()))
        );
        if all_hold {
            let sandbox = &ended.result()["sandbox"];
            let state = (&sandbox["enforced"], &sandbox["network"]);
            assert_eq!(state, (&json!("full"), &json!(network)));
        }
    }
}

#[tokio::test]
async fn doctor_tells_what_a_run_with_the_profile_asks_for() {
    let home = non_temporary_folder();
    let place = Place { cwd: home.path(), home: home.path() };
    let server = serve(Scenario::new());
    let told = place.doctor(&server, &["--model", "no-such-model", "--max-duration", "1h"]).await;
    let profile = finding(&told, "profile", &["ok", "warning"]).expect("a finding");
    let limits = profile["details"][3].as_str().expect("text");
    let parts = ["holds: a run does not begin: without --max-budget-usd", "no price is known"];
    assert!(parts.iter().all(|part| limits.contains(part)), "{limits}");
    assert!(!limits.contains("max-duration"), "{limits}");
    // What ends every run is told once.
    let told = place.doctor(&server, &["--allowedTools", "Bash(a"]).await;
    assert!(finding(&told, "profile", &["ok", "warning"]).is_none(), "{told:#}");
}
