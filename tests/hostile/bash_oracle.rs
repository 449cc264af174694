//! A bash process in which every program is a stub: it tells which commands a line runs, with the
//! words that each of them gets, and does nothing else.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::support::programs::write_program;

/// Functions in place of builtins that are harmless. Others, such as `eval`, do what they do, and
/// what they run is told. A program that is no file ends in `command_not_found_handle`.
const BUILTINS: &str = "echo printf cd pwd true false : test [ type";

/// The program of the process: it reads lines, each with a NUL at its end, and answers with the
/// commands that each line ran: the number of words, the words, and at the end 0, each with a NUL
/// at its end. A stub succeeds if the number of its words is odd, so that both sides of `||` and
/// `&&` run at times.
const DRIVER: &str = r#"
exec 201<&0 200>&1 </dev/null >/dev/null 2>&1
__run() { builtin printf '%s\0' "$#" "$@" >&200; builtin echo x; (($# % 2)); }
command_not_found_handle() { __run "$@"; }
for name in BUILTINS; do
  builtin eval "function $name { __run '$name' \"\$@\"; }"
done
X='a b; gamma' Y=secret E=
while IFS= builtin read -r -d '' -u 201 line; do
  ( builtin eval "$line"; builtin wait )
  builtin printf '0\0' >&200
done
"#;

/// A program that tells its words, for what bash does not start by itself.
const STUB: &str = r#"#!/bin/bash
name=$0
[[ $name == "$STUBS"/* ]] && name=${name##*/}
builtin printf '%s\0' "$(($# + 1))" "$name" "$@" >&200
builtin echo x
((($# + 1) % 2))
"#;

/// Programs that run others, which are not stubs.
const WRAPPERS: [&str; 6] = ["env", "nice", "nohup", "stdbuf", "timeout", "xargs"];

/// The content of each file in the folder. A stub writes another.
const CONTENT: &str = "-\n";

/// The commands that a line ran, and the files that it wrote to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(crate) commands: Vec<Vec<String>>,
    pub(crate) written: Vec<String>,
}

pub(crate) struct BashOracle {
    /// The working directory of the lines.
    cwd: PathBuf,
    files: Vec<String>,
    bash: Child,
    lines: ChildStdin,
    answers: BufReader<ChildStdout>,
    _folder: TempDir,
}

impl BashOracle {
    /// A process in a folder with these files, and stubs for these programs in `bin`.
    pub(crate) fn start(files: &[&str], programs: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().canonicalize().expect("it exists");
        let (cwd, stubs) = (root.join("work"), root.join("stubs"));
        for folder in [&cwd, &stubs, &cwd.join("bin"), &cwd.join("sub")] {
            fs::create_dir(folder).expect("a new folder");
        }
        for place in [&stubs, &cwd.join("bin")] {
            for program in programs {
                write_program(&place.join(program), STUB);
            }
        }
        for wrapper in WRAPPERS {
            let program = which::which(wrapper).expect("coreutils");
            std::os::unix::fs::symlink(program, stubs.join(wrapper)).expect("a new link");
        }
        for file in files {
            fs::write(cwd.join(file), CONTENT).expect("a new file");
        }
        let mut bash = Command::new(which::which("bash").expect("there is bash"))
            .args(["--norc", "-c", &DRIVER.replace("BUILTINS", BUILTINS)])
            .current_dir(&cwd)
            .env_clear()
            .env("PATH", &stubs)
            .env("STUBS", &stubs)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is bash");
        let lines = bash.stdin.take().expect("a pipe");
        let answers = BufReader::new(bash.stdout.take().expect("a pipe"));
        let files = files.iter().map(ToString::to_string).collect();
        Self { cwd, files, bash, lines, answers, _folder: folder }
    }

    /// Runs a line.
    pub(crate) fn run(&mut self, line: &str) -> Effects {
        self.lines.write_all(&[line.as_bytes(), b"\0"].concat()).expect("bash reads");
        let mut effects = Effects::default();
        loop {
            let count = self.word().parse().expect("a number of words");
            if count == 0 {
                break;
            }
            effects.commands.push((0..count).map(|_| self.word()).collect());
        }
        effects.written = self.written();
        effects
    }

    fn word(&mut self) -> String {
        let mut word = Vec::new();
        self.answers.read_until(0, &mut word).expect("bash answers");
        assert_eq!(word.pop(), Some(0), "bash has ended");
        String::from_utf8_lossy(&word).into_owned()
    }

    /// The files that were written to since they were last asked for.
    fn written(&self) -> Vec<String> {
        let mut written = Vec::new();
        let entries =
            fs::read_dir(&self.cwd).expect("a folder").map(|entry| entry.expect("a file"));
        let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        for file in files {
            let name = file.file_name().to_string_lossy().into_owned();
            if !self.files.contains(&name) {
                fs::remove_file(file.path()).expect("it is there");
            } else if is_unchanged(&file.path()) {
                continue;
            } else {
                fs::write(file.path(), CONTENT).expect("it is ours");
            }
            written.push(name);
        }
        written
    }
}

fn is_unchanged(path: &Path) -> bool {
    fs::read(path).is_ok_and(|content| content == CONTENT.as_bytes())
}

impl Drop for BashOracle {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.bash.kill();
        let _ = self.bash.wait();
    }
}
