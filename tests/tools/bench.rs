//! A folder with tools in it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast::tools::{PermissionMode, ToolOutcome, ToolSettings, Toolbox};
use outlast::transcript::{Block, ToolCall};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::python::search_path;
use crate::support::scratch::{scratch_folder, write_file};
use crate::support::supervisor;

/// Time limit of every wait on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

pub(crate) struct Bench {
    pub(crate) toolbox: Toolbox,
    /// Real, without symbolic links.
    pub(crate) cwd: PathBuf,
    folder: TempDir,
}

impl Bench {
    /// Everything is allowed.
    pub(crate) fn open() -> Self {
        Self::with(|settings| settings.permissions.mode = PermissionMode::BypassPermissions)
    }

    /// Nothing is allowed but what `arrange` allows.
    pub(crate) fn with(arrange: impl FnOnce(&mut ToolSettings)) -> Self {
        let folder = scratch_folder();
        let root = folder.path().canonicalize().expect("it exists");
        let (cwd, scratch) = (root.join("work"), root.join("scratch"));
        fs::create_dir(&cwd).expect("a new folder");
        let mut settings = ToolSettings::new(&cwd, &scratch, "a-session");
        settings.environment = vec![
            (OsString::from("PATH"), search_path().into()),
            (OsString::from("HOME"), root.join("home").into()),
        ];
        settings.home = Some(root.join("home"));
        settings.supervisor = supervisor();
        arrange(&mut settings);
        let toolbox = Toolbox::new(&settings).expect("good settings");
        Self { toolbox, cwd, folder }
    }

    /// The folder around the working directory.
    pub(crate) fn outside(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("it exists")
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.cwd.join(name);
        write_file(&path, content);
        path
    }

    pub(crate) fn content(&self, name: &str) -> String {
        fs::read_to_string(self.cwd.join(name)).expect("a text file")
    }

    pub(crate) async fn run(&self, name: &str, input: Value) -> ToolOutcome {
        self.run_until(name, input, CancellationToken::new()).await
    }

    pub(crate) async fn run_until(
        &self,
        name: &str,
        input: Value,
        cancel: CancellationToken,
    ) -> ToolOutcome {
        let call = call(name, input);
        let running = run_call(&self.toolbox, &call, cancel);
        tokio::time::timeout(PATIENCE, running).await.expect("every call comes back")
    }

    /// True if the rules allow a command.
    pub(crate) fn admits(&self, command: &str) -> bool {
        self.toolbox.admit(&call("Bash", json!({ "command": command }))).is_ok()
    }

    pub(crate) async fn bash(&self, command: &str) -> ToolOutcome {
        self.run("Bash", json!({ "command": command })).await
    }

    pub(crate) async fn read(&self, path: &str) -> ToolOutcome {
        self.run("Read", json!({ "file_path": path })).await
    }
}

/// Runs a call if the rules allow it.
pub(crate) async fn run_call(
    toolbox: &Toolbox,
    call: &ToolCall,
    cancel: CancellationToken,
) -> ToolOutcome {
    match toolbox.admit(call) {
        Ok(permit) => toolbox.run(permit, cancel).await,
        Err(refusal) => refusal.into_outcome(),
    }
}

/// Puts a folder before the others in which commands are looked up.
pub(crate) fn search_first(settings: &mut ToolSettings, folder: &Path) {
    let others = std::env::var("PATH").expect("there is one");
    let path = format!("{}:{others}", folder.display());
    settings.environment.retain(|(name, _)| name != "PATH");
    settings.environment.push(("PATH".into(), path.into()));
}

pub(crate) fn call(name: &str, input: Value) -> ToolCall {
    ToolCall { id: "toolu_1".to_string(), name: name.to_string(), input }
}

/// The text of a result, as the model reads it.
pub(crate) fn text(outcome: &ToolOutcome) -> String {
    let texts = outcome.content.iter().map(|block| {
        let Block::Text { text } = block else { panic!("no text: {block:?}") };
        text.as_str()
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[track_caller]
pub(crate) fn assert_fails_with(outcome: &ToolOutcome, part: &str) {
    assert!(outcome.is_error, "{outcome:?}");
    assert!(text(outcome).contains(part), "no `{part}` in:\n{}", text(outcome));
}

/// Looks for a process until it is gone.
pub(crate) async fn assert_gone(pid: &str) {
    let end = Instant::now() + PATIENCE;
    while is_alive(pid) {
        assert!(Instant::now() < end, "process {pid} lives on");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Whether a process runs. A zombie does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Waits until a file is there, and reads it.
pub(crate) async fn appears(path: &Path) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        match fs::read_to_string(path) {
            Ok(content) if content.ends_with('\n') => return content,
            Ok(_) | Err(_) => assert!(Instant::now() < end, "{} never came", path.display()),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
