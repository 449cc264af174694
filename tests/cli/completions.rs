//! Completions in the shells themselves: bash, zsh on a pseudo-terminal, and fish. `.ci/run` installs
//! those that are missing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use outlast::journal::SessionFolder;

use super::binary_fixture::BinaryFixture;
use crate::support::programs::installed;
use crate::support::scratch::write_file;

const SESSION: &str = "01a214ae-dbea-706f-bb7f-c6703d2dbb22";

/// Settings with one server.
const SERVERS: &str = r#"{"mcpServers": {"tracker": {"command": "true"}}}"#;

/// A line typed before the tab, and the last word that completes it.
const LINES: [(&str, &str); 27] = [
    ("outlast doct", "doctor"),
    ("outlast sess", "sessions"),
    ("outlast sessions exp", "export"),
    ("outlast sessions show 01a2", SESSION),
    ("outlast completions fi", "fish"),
    ("outlast mcp logi", "login"),
    ("outlast mcp login track", "tracker"),
    ("outlast mcp login tracker --dev", "--device"),
    ("outlast mcp logout track", "tracker"),
    ("outlast report --format jun", "junit"),
    ("outlast batch --engine slu", "slurm"),
    ("outlast config get maxTur", "maxTurns"),
    ("outlast help exit", "exit-codes"),
    ("outlast rehearse hopel", "hopeless"),
    ("outlast --permission-mode acce", "acceptEdits"),
    ("outlast --model son", "sonnet"),
    ("outlast --resume 01a2", SESSION),
    ("outlast --settings my-sett", "my-settings.json"),
    ("outlast --mcp-config my-sett", "my-settings.json"),
    ("outlast --json-schema my-sett", "my-settings.json"),
    ("outlast run --add-dir my-fold", "my-folder/"),
    ("outlast rehearse my-sett", "my-settings.json"),
    ("outlast sessions export -o my-sett", "my-settings.json"),
    ("outlast batch tasks.jsonl -- --permission-mo", "--permission-mode"),
    ("outlast batch tasks.jsonl --jobs 2 -- --permission-mode acce", "acceptEdits"),
    ("outlast doctor -- --max-tur", "--max-turns"),
    ("outlast -C my-folder config get maxTurns -- --output-forma", "--output-format"),
];

/// A user with a session, and outlast on PATH.
struct User {
    fixture: BinaryFixture,
    path: String,
}

impl User {
    fn new() -> Self {
        let fixture = BinaryFixture::new()
            .file("work/my-settings.json", "{}")
            .file("home/.outlast/settings.json", SERVERS)
            .file("work/my-folder/inner", "");
        let place = SessionFolder::new(&fixture.home().join(".outlast"), &fixture.work());
        fs::create_dir_all(place.folder()).expect("a new folder");
        fs::write(place.folder().join(format!("{SESSION}.jsonl")), "").expect("a new file");
        let programs = fixture.home().join("bin");
        fs::create_dir(&programs).expect("a new folder");
        symlink(env!("CARGO_BIN_EXE_outlast"), programs.join("outlast")).expect("a new link");
        let path = format!("{}:/usr/bin:/bin", programs.display());
        Self { fixture, path }
    }

    /// Writes the script of a shell to a file.
    fn script(&self, shell: &str, file: &str) -> PathBuf {
        let ended = self.fixture.run(&["completions", shell]);
        assert_eq!(ended.code, 0, "{ended:?}");
        let path = self.fixture.home().join(file);
        write_file(&path, ended.stdout);
        path
    }

    fn has(&self, shell: &str) -> bool {
        let mut command = Command::new(installed("sh"));
        command.args(["-c", "command -v \"$1\"", "sh", shell]).env("PATH", &self.path);
        command.output().expect("sh starts").status.success()
    }

    /// Output of a shell that executes this program. `None` if the shell is not installed.
    fn run(&self, shell: &str, args: &[&str]) -> Option<String> {
        if !self.has(shell) {
            return None;
        }
        let mut command = Command::new(installed("timeout"));
        command.arg("300").arg(shell).args(args).current_dir(self.fixture.work()).env_clear();
        command.env("HOME", self.fixture.home()).env("PATH", &self.path).env("TERM", "xterm");
        let ended = command.stdin(Stdio::null()).output().expect("timeout starts");
        assert!(ended.status.success(), "{shell}: {ended:?}");
        Some(String::from_utf8(ended.stdout).expect("UTF-8"))
    }
}

#[test]
fn bash_completes_commands_options_and_values() {
    let user = User::new();
    let script = user.script("bash", "outlast.bash");
    let complete = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (last, count) = (words[words.len() - 1], words.len() - 1);
        let words = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let program = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={count}; COMP_TYPE=9
             _clap_complete_outlast outlast '{last}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        user.run("bash", &["--norc", "-c", &program]).expect("bash is there")
    };
    for (line, wanted) in LINES {
        assert_eq!(complete(line), format!("{wanted}\n"), "{line}");
    }
    let commands = complete("outlast ");
    assert!(commands.starts_with("run\nrehearse\ndoctor\n"), "{commands}");
    assert!(!commands.contains("--"), "options are offered once a dash is typed: {commands}");
    assert_eq!(complete("outlast d"), "doctor\n");
    assert_eq!(complete("outlast --output-fo"), "--output-format\n");
    assert_eq!(complete("outlast --resume-"), "--resume-or-start\n", "hidden options stay hidden");
}

/// `compopt` works in a real completion only, so that another command stands for it.
#[test]
fn bash_is_told_which_words_are_paths_so_that_it_quotes_them() {
    let user = User::new();
    fs::write(user.fixture.work().join("a file.json"), "{}").expect("a new file");
    fs::create_dir(user.fixture.work().join("a dir")).expect("a new folder");
    let script = user.script("bash", "outlast.bash").display().to_string();
    let complete = |words: &str, last: &str| {
        let program = format!(
            "source {script}; compopt() {{ case $* in *filenames*) printf 'paths: ';; esac; }}
             COMP_WORDS=(outlast {words} '{last}'); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
             COMP_TYPE=9; complete -p outlast | grep -q -- '-F _outlast_complete' || exit 1
             _outlast_complete outlast '{last}' x; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        user.run("bash", &["--norc", "-c", &program]).expect("bash is there")
    };
    assert_eq!(complete("--json-schema", "a f"), "paths: a file.json\n");
    assert_eq!(complete("--json-schema", "a\\ f"), "paths: a file.json\n");
    assert_eq!(complete("--add-dir", "a d"), "paths: a dir\n");
    assert_eq!(complete("--permission-mode", "acce"), "acceptEdits\n");
    fs::write(user.fixture.work().join("a dir.txt"), "").expect("a new file");
    assert_eq!(complete("--add-dir", "a d"), "paths: a dir\n");
    // Bash makes three words of `--flag=value`.
    assert_eq!(complete("--permission-mode '='", "acce"), "acceptEdits\n");
    assert_eq!(complete("--settings '='", "a f"), "paths: a file.json\n");
}

/// A real zsh on a pseudo-terminal: the keys are typed ahead, and read in their order.
#[test]
fn zsh_completes_commands_and_values() {
    let user = User::new();
    let folder = user.script("zsh", "functions/_outlast");
    let folder = folder.parent().expect("a folder").display().to_string();
    let mut driver = format!(
        "zmodload zsh/zpty
         zpty shell zsh -f -i
         zpty -w shell 'fpath=({folder} $fpath); autoload -U compinit; compinit -u -D'
         zpty -w shell 'show() {{ print -r -- \"<$BUFFER>\"; BUFFER=; }}; zle -N show'
         zpty -w shell 'bindkey \"^X\" show'\n"
    );
    for (line, _) in LINES {
        driver += &["zpty -w -n shell '", line, "'$'\\t'$'\\x18'\n"].concat();
        driver += "zpty -r shell shown '*<outlast*>*'; print -r -- \"${${shown##*<}%%>*}\"\n";
    }
    driver += "zpty -d shell\n";
    let Some(shown) = user.run("zsh", &["-f", "-c", &driver]) else { return };
    let shown: Vec<&str> = shown.lines().map(str::trim_end).collect();
    let wanted = LINES.map(|(line, wanted)| {
        let before = line.rsplit_once(' ').expect("two words").0;
        format!("{before} {wanted}")
    });
    assert_eq!(shown, wanted);
}

#[test]
fn fish_completes_commands_options_and_values() {
    let user = User::new();
    let script = user.script("fish", "outlast.fish").display().to_string();
    let complete = |line: &str| {
        let program = format!("source {script}; complete -C '{line}'");
        user.run("fish", &["--no-config", "-c", &program])
    };
    for (line, wanted) in LINES {
        let Some(found) = complete(line) else { return };
        let values: Vec<&str> =
            found.lines().map(|line| line.split('\t').next().unwrap_or(line)).collect();
        assert_eq!(values, [wanted], "{line}");
    }
    let options = complete("outlast --output-f").expect("fish is there");
    assert!(options.starts_with("--output-format"), "flags of a run need no word: {options}");
}

#[test]
fn other_shells_are_refused() {
    let ended = BinaryFixture::new().run(&["completions", "tcsh"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("none of bash, zsh, fish"), "{}", ended.stderr);
}
