//! The real binary against a real server: what every trial begins with.

pub(crate) mod golden;
pub(crate) mod host;
pub(crate) mod programs;
pub(crate) mod proxy;
pub(crate) mod python;
pub(crate) mod requests;
pub(crate) mod responder;
pub(crate) mod rotation;
pub(crate) mod schema;
pub(crate) mod scratch;
pub(crate) mod seeds;
pub(crate) mod signals;
pub(crate) mod stopwatch;
pub(crate) mod terminal;
pub(crate) mod tokens;
pub(crate) mod wire;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use outlast::process::Supervisor;
use outlast::rehearsal::{RehearsalServer, Scenario, ServerOptions};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

/// No trial may take longer: a hang is a failure, not a wait. Whatever is shorter fails on machines
/// that are merely slow.
const BOUND: Duration = Duration::from_mins(4);

/// Starts the rehearsal server for a scenario that was built in a test. Time is not scaled.
pub(crate) fn serve(scenario: Scenario) -> RehearsalServer {
    RehearsalServer::start(scenario, ServerOptions::default()).expect("loopback has a free port")
}

/// The supervisor of tests in which the library runs in the test's own process.
pub(crate) fn supervisor() -> Supervisor {
    signals::hear_signals();
    Supervisor::with_binary(Path::new(env!("CARGO_BIN_EXE_outlast")))
}

/// A run of the binary that is being put together.
pub(crate) struct RunBuilder {
    command: Command,
    folder: TempDir,
}

impl RunBuilder {
    /// A run against `server` in a folder of its own, with nothing of the outer environment but
    /// PATH.
    pub(crate) fn against(server: &RehearsalServer) -> Self {
        Self::at(&server.base_url())
    }

    pub(crate) fn at(base_url: &str) -> Self {
        Self::bare(base_url).args(["--permission-mode", "bypassPermissions", "--sandbox", "off"])
    }

    /// With no flags of its own, for other commands than `run`.
    pub(crate) fn bare(base_url: &str) -> Self {
        signals::hear_signals();
        let folder = scratch::scratch_folder();
        let work = folder.path().join("work");
        std::fs::create_dir(&work).expect("a folder can be made");
        let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
        command
            .current_dir(&work)
            .env_clear()
            .env("PATH", python::search_path())
            .env("HOME", folder.path())
            .env("TZ", "UTC")
            .env("OUTLAST_CONFIG_DIR", folder.path().join("config"))
            .env("XDG_RUNTIME_DIR", folder.path())
            .env("ANTHROPIC_BASE_URL", base_url)
            .env("ANTHROPIC_API_KEY", "test-key-0123456789")
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

    /// Sets the configuration folder, whose name may be anything.
    pub(crate) fn config_folder(mut self, folder: &Path) -> Self {
        self.command.env("OUTLAST_CONFIG_DIR", folder);
        self
    }

    pub(crate) fn stdin(mut self, stdin: Stdio) -> Self {
        self.command.stdin(stdin);
        self
    }

    pub(crate) fn stdout(mut self, stdout: Stdio) -> Self {
        self.command.stdout(stdout);
        self
    }

    pub(crate) fn stderr(mut self, stderr: Stdio) -> Self {
        self.command.stderr(stderr);
        self
    }

    /// Another run in the same folders, which are this one's and go with it.
    pub(crate) fn in_same_folders(&self, server: &RehearsalServer) -> Self {
        let other = Self::against(server);
        let config = self.folder.path().join("config").display().to_string();
        let mut other = other.env("OUTLAST_CONFIG_DIR", &config);
        other.command.current_dir(self.work());
        other
    }

    /// Tells other runs about rate limits in `folder`.
    pub(crate) fn sharing(self, folder: &Path) -> Self {
        self.env("XDG_RUNTIME_DIR", &folder.display().to_string())
    }

    /// Without a variable of its environment.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// The folder that its state is in.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// Puts a shell in between, which runs `script`. There, "$@" is the command line.
    pub(crate) fn in_shell(mut self, script: &str) -> Self {
        let inner = self.command.as_std();
        let mut command = Command::new(programs::installed("sh"));
        command.args(["-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
        command.env_clear().current_dir(self.folder.path().join("work"));
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        self.command = command;
        self
    }

    /// The folder that the run works in.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn start(mut self) -> RunningProcess {
        let child = self.command.spawn().expect("the binary was built for this test");
        RunningProcess { child, folder: self.folder, heard: String::new() }
    }

    /// Runs to the end.
    pub(crate) async fn run(self) -> FinishedProcess {
        self.start().end().await
    }
}

/// A run under way.
pub(crate) struct RunningProcess {
    pub(crate) child: Child,
    folder: TempDir,
    /// The part of standard error that was read so far, and not forgotten.
    pub(crate) heard: String,
}

impl RunningProcess {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().and_then(|id| i32::try_from(id).ok()).expect("it was not waited for yet")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("it was not waited for yet");
    }

    /// Reads standard error until it holds `text`.
    pub(crate) async fn wait_for_stderr(&mut self, text: &str) {
        let stderr = self.child.stderr.as_mut().expect("standard error is a pipe");
        let mut chunk = [0; 4096];
        while !self.heard.contains(text) {
            let read = with_time_limit("a line on standard error", stderr.read(&mut chunk)).await;
            let count = read.expect("a pipe can be read");
            assert!(count > 0, "standard error ended without {text:?}: {}", self.heard);
            self.heard.push_str(&String::from_utf8_lossy(&chunk[..count]));
        }
    }

    /// Waits for the end.
    pub(crate) async fn end(self) -> FinishedProcess {
        let Self { child, folder, heard } = self;
        let output = tokio::time::timeout(BOUND, child.wait_with_output())
            .await
            .expect("the run must end within its bound")
            .expect("the run can be waited for");
        FinishedProcess {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
            stderr: heard + &String::from_utf8(output.stderr).expect("standard error is UTF-8"),
            folder,
        }
    }
}

/// A run that ended.
#[derive(Debug)]
pub(crate) struct FinishedProcess {
    /// `None`: killed by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    folder: TempDir,
}

impl FinishedProcess {
    /// Every line of standard output, which must all be JSON objects.
    pub(crate) fn frames(&self) -> Vec<Value> {
        let parse = |line: &str| {
            let value: Value = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("not JSON ({error}): {line}"));
            assert!(value.is_object(), "not an object: {line}");
            schema::check_message(&value);
            value
        };
        self.stdout.lines().map(parse).collect()
    }

    /// The blocks of tool results on standard output, in the order of their calls.
    pub(crate) fn tool_results(&self) -> Vec<Value> {
        let frames = self.frames();
        let contents = frames.iter().filter_map(|frame| frame["message"]["content"].as_array());
        contents.flatten().filter(|block| block["type"] == "tool_result").cloned().collect()
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

    /// The words of the command that the result prints to go on, as a shell reads them, without the
    /// program's name.
    #[track_caller]
    pub(crate) fn resume_words(&self) -> Vec<String> {
        let result = self.result();
        let command = result["resume"]["command"].as_str().expect("a command");
        let mut words = shlex::split(command).expect("what a shell can read");
        assert_eq!(words.remove(0), "outlast", "{command}");
        words
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// Another run in the same folders.
    pub(crate) fn again(self, base_url: &str) -> RunBuilder {
        let args = ["--permission-mode", "bypassPermissions", "--sandbox", "off"];
        self.again_bare(base_url).args(args)
    }

    /// The same with no flags of its own, for other commands than `run`.
    pub(crate) fn again_bare(self, base_url: &str) -> RunBuilder {
        let trial = RunBuilder::bare(base_url);
        let mut command = trial.command;
        command
            .current_dir(self.work())
            .env("HOME", self.folder.path())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("OUTLAST_CONFIG_DIR", self.config());
        RunBuilder { command, folder: self.folder }
    }
}

/// Waits for something that must come.
pub(crate) async fn with_time_limit<F: Future>(what: &str, future: F) -> F::Output {
    let end = tokio::time::timeout(BOUND, future).await;
    end.unwrap_or_else(|_| panic!("{what} must come within {BOUND:?}"))
}

/// Something that a command of the model's rings: it writes a line there, and the test hears it.
pub(crate) struct FifoSignal {
    lines: Lines<BufReader<pipe::Receiver>>,
}

impl FifoSignal {
    pub(crate) fn at(path: &Path) -> Self {
        mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe can be made");
        // Open for writing as well, so that it does not end with its first writer.
        let receiver = pipe::OpenOptions::new().read_write(true).open_receiver(path);
        Self { lines: BufReader::new(receiver.expect("the pipe was just made")).lines() }
    }

    /// Waits until it rings.
    pub(crate) async fn wait_for_line(&mut self) -> String {
        let line = with_time_limit("the bell", self.lines.next_line()).await;
        line.expect("a pipe can be read").expect("the test holds it open")
    }
}

/// Whether a process is alive (and not just waiting to be reaped).
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

/// A folder of the test's own that is no temporary one: there, the sandbox lets commands do all.
pub(crate) fn non_temporary_folder() -> TempDir {
    let temporary = ["/tmp", "/var/tmp", "/dev/shm"];
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).to_path_buf();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let is_lasting = |path: &PathBuf| !temporary.iter().any(|there| path.starts_with(there));
    let mut places = [target, home].into_iter().filter(is_lasting);
    // The folder of the build may be that of another user.
    let make = |place| tempfile::Builder::new().prefix(".outlast-test-").tempdir_in(place).ok();
    places.find_map(make).expect("a place that lasts")
}
