//! A batch in folders of its own, against a scripted server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use outlast::rehearsal::{RehearsalServer, Scenario, StepCondition};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::support::python::search_path;
use crate::support::scratch::scratch_folder;
use crate::support::signals::hear_signals;
use crate::support::{serve, with_time_limit};

/// Flags of the runs: what a command does is what is tested, not whether it may.
pub(super) const FREE: [&str; 5] =
    ["--", "--permission-mode", "bypassPermissions", "--sandbox", "off"];

/// Has one effect. A task whose folder has a pipe `bell` says so there, and then never ends.
const EFFECT: &str = "echo x >> effects; if [ -p bell ]; then echo in > bell; sleep 600; fi";

/// The command of a careful model if the effect may be missing: its outcome is unknown, or the run
/// was cut off before it began.
const CHECK: &str = "[ -s effects ] || echo x >> effects; printf 'checked-%s' x";

/// The output and exit code of a process.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ended {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Folders of a batch: `work` with a folder for each task, and a home.
pub(super) struct BatchFixture {
    folder: TempDir,
    pub(super) server: RehearsalServer,
}

fn contains(text: &str) -> StepCondition {
    StepCondition { contains: Some(text.to_owned()), ..StepCondition::default() }
}

/// The condition of requests of the task `number`.
pub(super) fn of_task(number: usize) -> StepCondition {
    StepCondition { prompt: Some(format!("number {number}.")), ..StepCondition::default() }
}

/// Adds the replies after the faults of `scenario`: each task has one effect and then is done. They
/// depend on the conversation only, so a task can be resumed anywhere.
pub(super) fn with_effects(scenario: Scenario) -> Scenario {
    const ALWAYS: u32 = 1_000_000;
    scenario
        .reply("Done.")
        .when(contains("checked-x"))
        .times(ALWAYS)
        .tool("Bash", json!({ "command": CHECK }))
        .when(contains("\"is_error\":true"))
        .times(ALWAYS)
        .reply("Done.")
        .when(contains("\"type\":\"tool_result\""))
        .times(ALWAYS)
        .tool("Bash", json!({ "command": EFFECT }))
        .usage(1000, 100)
        .times(ALWAYS)
}

impl BatchFixture {
    pub(super) fn new(scenario: Scenario) -> Self {
        hear_signals();
        let folder = scratch_folder();
        for name in ["work", "home"] {
            fs::create_dir(folder.path().join(name)).expect("a new folder");
        }
        Self { folder, server: serve(scenario) }
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The working folder of a task.
    pub(super) fn task(&self, number: usize) -> PathBuf {
        self.folder.path().join("work").join(number.to_string())
    }

    /// The folder of the batch, with `--dir batch`.
    pub(super) fn batch(&self) -> PathBuf {
        self.folder.path().join("batch")
    }

    /// Writes TASKS: so many tasks, each with its own folder and what `more` adds.
    pub(super) fn tasks(self, count: usize, more: impl Fn(usize) -> Value) -> Self {
        let mut text = String::new();
        for number in 0..count {
            let folder = self.task(number);
            fs::create_dir_all(&folder).expect("a new folder");
            let mut task = json!({ "prompt": format!("Do number {number}."), "cwd": folder });
            if let Value::Object(more) = more(number) {
                task.as_object_mut().expect("an object").extend(more);
            }
            text += &task.to_string();
            text.push('\n');
        }
        fs::write(self.path().join("tasks.jsonl"), text).expect("a new file");
        self
    }

    /// The number of times that a task had its effect.
    pub(super) fn effects(&self, number: usize) -> usize {
        let text = fs::read_to_string(self.task(number).join("effects")).unwrap_or_default();
        text.lines().count()
    }

    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path())
            .env_clear()
            .env("PATH", search_path())
            .env("HOME", self.path().join("home"))
            .env("TZ", "UTC")
            .env("XDG_RUNTIME_DIR", self.path())
            .env("ANTHROPIC_BASE_URL", self.server.base_url())
            .env("ANTHROPIC_API_KEY", "test-key-0123456789")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub(super) fn outlast(&self, args: &[&str]) -> Command {
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_outlast")));
        command.args(args);
        command
    }

    /// Starts the batch in the folder `batch`.
    pub(super) fn start(&self, args: &[&str]) -> Child {
        let begin = ["batch", "tasks.jsonl", "--dir", "batch", "--retry-after", "1ms"];
        let words = [&begin[..], args, &FREE].concat();
        self.outlast(&words).spawn().expect("the binary was built for this test")
    }

    pub(super) async fn run(&self, args: &[&str]) -> Ended {
        end(self.start(args)).await
    }

    /// Runs another command to its end.
    pub(super) async fn call(&self, args: &[&str]) -> Ended {
        end(self.outlast(args).spawn().expect("the binary was built for this test")).await
    }

    /// The result of a task.
    pub(super) fn result(&self, number: usize) -> Value {
        let path = self.batch().join(format!("tasks/{number}/result.json"));
        let text = fs::read_to_string(path).expect("it has a result");
        serde_json::from_str(&text).expect("it is JSON")
    }
}

pub(super) async fn end(child: Child) -> Ended {
    let output = with_time_limit("the end of the batch", child.wait_with_output()).await;
    let output = output.expect("it can be waited for");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}
