//! The public agent SDKs, unmodified, drive the binary: `run.py` and `run.mjs` run the scenarios.
//! `clouds.py` compares requests with those of the cloud clients of the public model SDK. `ci/sdk`
//! installs the packages and runs these tests; `cargo test` leaves them out.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

/// An installation that `ci/sdk` has not made before downloads and builds packages.
const INSTALLATION_MAX: Duration = Duration::from_mins(10);
/// All scenarios of one SDK. Each has a limit of its own; this one ends a runner that hangs.
const SCENARIOS_MAX: Duration = Duration::from_mins(5);

async fn finish(mut command: Command, limit: Duration, what: &str) -> Output {
    let child = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let ended = tokio::time::timeout(limit, child).await;
    ended
        .unwrap_or_else(|_| panic!("{what} must end within {limit:?}"))
        .unwrap_or_else(|error| panic!("{what} must start: {error}"))
}

fn in_repository(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// The folder with the packages of one SDK. Without them the test fails: a silent skip would look
/// like a success.
async fn prepared(kind: &str) -> PathBuf {
    let mut command = in_repository(Path::new("ci/sdk"));
    command.arg(kind);
    let output = finish(command, INSTALLATION_MAX, "ci/sdk").await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the SDK could not be installed:\n{errors}");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end())
}

async fn play(mut runner: Command) {
    runner.env("OUTLAST", env!("CARGO_BIN_EXE_outlast"));
    let output = finish(runner, SCENARIOS_MAX, "the runner of the scenarios").await;
    let shown = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<&str> = shown.lines().filter(|line| !line.starts_with("ok ")).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "\n{}\n{errors}", failed.join("\n"));
    assert!(shown.contains("ok "), "no scenario ran:\n{shown}{errors}");
}

#[tokio::test]
#[ignore = "installs packages from the network: ci/sdk runs it"]
async fn python() {
    let mut runner = in_repository(&prepared("python").await.join("bin/python"));
    runner.arg("-B").arg("tests/sdk/run.py");
    play(runner).await;
}

#[tokio::test]
#[ignore = "installs packages from the network: ci/sdk runs it"]
async fn typescript() {
    let mut runner = in_repository(Path::new("node"));
    let packages = prepared("typescript").await.join("node_modules");
    runner.arg("tests/sdk/run.mjs").env("SDK_PACKAGES", packages);
    play(runner).await;
}

#[tokio::test]
#[ignore = "installs packages from the network: ci/sdk runs it"]
async fn clouds() {
    let mut runner = in_repository(&prepared("clouds").await.join("bin/python"));
    runner.arg("-B").arg("tests/sdk/clouds.py");
    play(runner).await;
}
