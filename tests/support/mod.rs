//! The real binary against a real server: what every trial begins with.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use outlast::rehearsal::{Options, Scenario, Server};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// No trial may take longer: a hang is a failure, not a wait.
const BOUND: Duration = Duration::from_secs(60);

/// Starts the rehearsal server for a scenario that was built in a test. Time is not scaled.
pub(crate) fn serve(scenario: Scenario) -> Server {
    Server::start(scenario, Options::default()).expect("loopback has a free port")
}

/// A run of the binary that is being put together.
pub(crate) struct Trial {
    command: Command,
    folder: TempDir,
}

impl Trial {
    /// A run against `server` in a folder of its own, with nothing of the outer environment but
    /// PATH.
    pub(crate) fn against(server: &Server) -> Self {
        Self::at(&server.base_url())
    }

    pub(crate) fn at(base_url: &str) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let work = folder.path().join("work");
        std::fs::create_dir(&work).expect("a folder can be made");
        let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
        command
            .current_dir(&work)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.path())
            .env("TZ", "UTC")
            .env("OUTLAST_CONFIG_DIR", folder.path().join("config"))
            .env("ANTHROPIC_BASE_URL", base_url)
            .env("ANTHROPIC_API_KEY", "test-key-0123456789")
            .args(["--permission-mode", "bypassPermissions"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Self { command, folder }
    }

    pub(crate) fn args<I: IntoIterator<Item = S>, S: AsRef<std::ffi::OsStr>>(
        mut self,
        args: I,
    ) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn stdin(mut self, stdin: Stdio) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// The folder that the run works in.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn start(mut self) -> Running {
        let child = self.command.spawn().expect("the binary was built for this test");
        Running { child, folder: self.folder }
    }

    /// Runs to the end.
    pub(crate) async fn run(self) -> Ended {
        self.start().end().await
    }
}

/// A run under way.
pub(crate) struct Running {
    pub(crate) child: Child,
    folder: TempDir,
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().and_then(|id| i32::try_from(id).ok()).expect("it was not waited for yet")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Waits for the end.
    pub(crate) async fn end(self) -> Ended {
        let Self { child, folder } = self;
        let output = tokio::time::timeout(BOUND, child.wait_with_output())
            .await
            .expect("the run must end within its bound")
            .expect("the run can be waited for");
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
            folder,
        }
    }
}

/// A run that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None`: killed by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    folder: TempDir,
}

impl Ended {
    /// Every line of standard output, which must all be JSON objects.
    pub(crate) fn frames(&self) -> Vec<Value> {
        let parse = |line: &str| {
            let value: Value = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("not JSON ({error}): {line}"));
            assert!(value.is_object(), "not an object: {line}");
            value
        };
        self.stdout.lines().map(parse).collect()
    }

    /// The one result: the last line, with no other before it.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        let frames = self.frames();
        let results = frames.iter().filter(|frame| frame["type"] == "result").count();
        assert_eq!(results, 1, "exactly one result: {self:?}");
        let last = frames.last().cloned().unwrap_or_default();
        assert_eq!(last["type"], "result", "the result comes last: {self:?}");
        assert!(self.stdout.ends_with('\n'), "the last line is whole: {self:?}");
        assert_eq!(last["exit_code"].as_i64(), self.code.map(i64::from), "{self:?}");
        last
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// Another run in the same folders.
    pub(crate) fn again(self, base_url: &str) -> Trial {
        let trial = Trial::at(base_url);
        let mut command = trial.command;
        command
            .current_dir(self.work())
            .env("HOME", self.folder.path())
            .env("OUTLAST_CONFIG_DIR", self.config());
        Trial { command, folder: self.folder }
    }
}

/// Whether a process is alive (and not just waiting to be reaped).
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}
