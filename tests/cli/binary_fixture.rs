//! Starts the real binary in an empty world of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::scratch::{scratch_folder, write_file};
use crate::support::signals::hear_signals;

/// A private home and working folder, and an environment with a key in it.
pub(super) struct BinaryFixture {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

#[derive(Debug)]
pub(super) struct ProcessResult {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("outlast prints UTF-8")
}

impl ProcessResult {
    pub(super) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().expect("outlast ends by itself, not by a signal"),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// The one result that standard output holds.
    pub(super) fn result(&self) -> Value {
        let mut lines = self.stdout.lines();
        let last = lines.next_back().unwrap_or_else(|| panic!("nothing on stdout: {self:?}"));
        assert!(self.stdout.ends_with('\n'), "the last line has an end");
        let results = self.stdout.matches("\"type\":\"result\"").count();
        assert_eq!(results, 1, "exactly one result: {}", self.stdout);
        serde_json::from_str(last).expect("the result is JSON")
    }

    /// The one line that standard error holds.
    pub(super) fn line(&self) -> &str {
        let mut lines = self.stderr.lines();
        let line = lines.next().unwrap_or_else(|| panic!("nothing on stderr: {self:?}"));
        assert_eq!(lines.next(), None, "one line on stderr: {}", self.stderr);
        line
    }
}

impl BinaryFixture {
    pub(super) fn new() -> Self {
        let folder = scratch_folder();
        fs::create_dir(folder.path().join("home")).expect("a new folder");
        fs::create_dir(folder.path().join("work")).expect("a new folder");
        let variables = [
            ("ANTHROPIC_API_KEY", "sk-ant-a-key-for-tests"),
            // No server listens there.
            ("ANTHROPIC_BASE_URL", "http://127.0.0.1:9"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Self { folder, variables }
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(there, _)| there != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.variables.retain(|(there, _)| there != name);
        self
    }

    pub(super) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(super) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Writes a file, relative to the folder that holds `home` and `work`.
    pub(super) fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        write_file(&self.folder.path().join(path), content);
        self
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        hear_signals();
        let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
        command
            .args(args)
            .current_dir(self.work())
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", "/usr/bin:/bin")
            .env("TZ", "UTC")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs to the end with nothing on standard input.
    pub(super) fn run(&self, args: &[&str]) -> ProcessResult {
        ProcessResult::of(&self.command(args).output().expect("outlast starts"))
    }

    /// Runs to the end with this on standard input.
    pub(super) fn run_with_input(&self, args: &[&str], input: &[u8]) -> ProcessResult {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().expect("outlast starts");
        let mut stdin = child.stdin.take().expect("a pipe was asked for");
        let input = input.to_vec();
        // It may well end without having read everything.
        let writer = thread::spawn(move || drop(stdin.write_all(&input)));
        let ended = ProcessResult::of(&child.wait_with_output().expect("outlast ends"));
        writer.join().expect("writing does not panic");
        ended
    }

    /// Every file and folder there is.
    pub(super) fn inventory(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a readable folder") {
                let path = entry.expect("a readable folder").path();
                if path.is_dir() {
                    folders.push(path.clone());
                }
                found.push(path);
            }
        }
        found.sort();
        found
    }
}

/// Asks a run to end, once it has begun: then its heartbeat file is there.
pub(super) fn terminate_after_start(child: &Child, heartbeat_file: &Path) {
    let begun = (0..24_000).any(|_| {
        thread::sleep(std::time::Duration::from_millis(10));
        heartbeat_file.exists()
    });
    assert!(begun, "the run has begun within four minutes");
    terminate(child);
}

pub(super) fn terminate(child: &Child) {
    let id = child.id().try_into().expect("process ids are small");
    kill(Pid::from_raw(id), Signal::SIGTERM).expect("the child is there");
}
