//! Command lines in the shapes of public scripts and workflows, with outlast as `claude` on the path.
//! The program that reads the output judges: the shell, grep, jq, Python or Node.

mod environment;
mod reasoning;
mod setup;
mod tool_search;
mod web_search;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::support::programs::installed;
use crate::support::python::search_path;
use crate::support::rotation::rotating_part;
use crate::support::scratch::{scratch_folder, write_file};
use crate::support::serve;
use crate::support::signals::hear_signals;

/// The answer to every prompt.
pub(crate) const ANSWER: &str = "feat: add parser";

/// A home, a working folder, and a path on which `claude` is outlast.
pub(crate) struct Caller {
    folder: TempDir,
    server: RehearsalServer,
    /// Runs the server.
    _runtime: Runtime,
    variables: Vec<(String, String)>,
}

impl Caller {
    pub(crate) fn new() -> Self {
        Self::with(Scenario::new().reply(ANSWER).after(AfterLast::RepeatLast))
    }

    pub(crate) fn with(scenario: Scenario) -> Self {
        let folder = scratch_folder();
        for name in ["home", "work", "bin"] {
            fs::create_dir(folder.path().join(name)).expect("a new folder");
        }
        symlink(env!("CARGO_BIN_EXE_outlast"), folder.path().join("bin/claude")).expect("a link");
        fs::write(folder.path().join("work/README.md"), "a readme\n").expect("a file");
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let server = {
            let _context = runtime.enter();
            serve(scenario)
        };
        Self { folder, server, _runtime: runtime, variables: Vec::new() }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, relative to the folder that holds `home` and `work`.
    pub(crate) fn file(&self, name: &str, content: &str) {
        write_file(&self.path(name), content);
    }

    pub(crate) fn server(&self) -> &RehearsalServer {
        &self.server
    }

    /// Runs a script, and returns its exit code, standard output and standard error.
    pub(crate) fn shell(&self, script: &str) -> (i32, String, String) {
        hear_signals();
        let path = search_path().display();
        let output = Command::new(installed("bash"))
            .args(["-c", script])
            .current_dir(self.path("work"))
            .env_clear()
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("HOME", self.path("home"))
            .env("TZ", "UTC")
            .env("XDG_RUNTIME_DIR", self.path("home"))
            .env("ANTHROPIC_BASE_URL", self.server.base_url())
            .env("ANTHROPIC_API_KEY", "test-key-0123456789")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .output()
            .expect("bash is there");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// The programs of scripts that are not on this machine.
static MISSING: LazyLock<Vec<&str>> = LazyLock::new(|| {
    ["jq", "node", "python3"].into_iter().filter(|program| !is_there(program)).collect()
});

/// Runs each script; its standard output, without the newline at its end, must be as expected.
#[expect(clippy::print_stdout, reason = "a script that is left out must not pass in silence")]
fn judge(caller: &Caller, table: &[(&str, &str)]) {
    for (script, expected) in table {
        let missing = MISSING.iter().find(|program| script.contains(&format!("{program} ")));
        if let Some(program) = missing {
            println!("NOTE: no {program}: not judged: {script}");
            continue;
        }
        let (_, stdout, stderr) = caller.shell(script);
        assert_eq!(stdout.trim_end_matches('\n'), *expected, "{script}\n{stderr}");
    }
}

#[test]
fn the_shell_captures_the_answer_alone() {
    judge(
        &Caller::new(),
        &[
            (r#"out=$(claude -p "write a message"); echo "[$out]""#, "[feat: add parser]"),
            (r#"out=$(claude --print "write a message"); echo "[$out]""#, "[feat: add parser]"),
            (r#"out=$(claude "write a message" -p); echo "[$out]""#, "[feat: add parser]"),
            (r#"out=`claude -p "write a message" 2>&1`; echo "[$out]""#, "[feat: add parser]"),
            (r#"out=$(CI=true claude -p "write" 2>&1); echo "[$out]""#, "[feat: add parser]"),
            (r#"claude -p "write" > msg.txt && cat msg.txt"#, "feat: add parser"),
            (r#"claude -p "write" --output-format text | tee t | wc -l | tr -d ' '"#, "1"),
            (r#"git diff --no-index /dev/null README.md | claude -p "review""#, "feat: add parser"),
            (r#"cat README.md | claude -p "review" | head -n 1"#, "feat: add parser"),
            (r#"echo "write a message" | claude -p"#, "feat: add parser"),
            ("claude -p < README.md", "feat: add parser"),
            (r#"claude -p "$(cat README.md)""#, "feat: add parser"),
            (r#"claude -p "write" --model sonnet"#, "feat: add parser"),
            (r#"claude -p "write" --model claude-sonnet-4-5 --max-turns 3"#, "feat: add parser"),
            (r#"claude -p "write" </dev/null 2>/dev/null"#, "feat: add parser"),
            (r#"if claude -p "is it fine?" | grep -q "feat"; then echo yes; fi"#, "yes"),
            (r#"claude -p "write" && echo done"#, "feat: add parser\ndone"),
            (r#"printf '%s' "$(claude -p 'write')" | wc -c | tr -d ' '"#, "16"),
            (r#"claude -p "write" --verbose 2>/dev/null"#, "feat: add parser"),
            (r#"xargs -I{} claude -p "write {}" <<< "one""#, "feat: add parser"),
        ],
    );
}

#[test]
fn programs_read_fields_of_the_json_result() {
    judge(
        &Caller::new(),
        &[
            (r#"claude -p "w" --output-format json | jq -r .result"#, ANSWER),
            (r#"claude -p "w" --output-format json | jq -r .is_error"#, "false"),
            (r#"claude -p "w" --output-format json | jq -r .subtype"#, "success"),
            (r#"claude -p "w" --output-format json --tools Read,Foo 2>&1 | jq -r .result"#, ANSWER),
            (r#"CI=1 claude -p "w" --output-format json 2>&1 | jq -r .result"#, ANSWER),
            (r#"claude -p "w" --output-format json | jq -r '.session_id | length'"#, "36"),
            (r#"claude -p "w" --output-format json | jq '.total_cost_usd > 0'"#, "true"),
            (r#"claude -p "w" --output-format json --verbose | jq -r '.[-1].result'"#, ANSWER),
            (r#"claude -p "w" --output-format json --verbose | jq -r '.[0].subtype'"#, "init"),
            (
                r#"claude -p "w" --output-format json | python3 -c 'import json,sys; print(json.load(sys.stdin)["result"])'"#,
                ANSWER,
            ),
            (
                r#"claude -p "w" --output-format json > r; node -e 'console.log(JSON.parse(require("fs").readFileSync("r")).result)'"#,
                ANSWER,
            ),
            (
                r#"id=$(claude -p "w" --output-format json | jq -r .session_id); claude -p "more" --resume "$id""#,
                ANSWER,
            ),
            (r#"claude -p "w" > /dev/null; claude -p --continue "more""#, ANSWER),
            (r#"claude -p "w" > /dev/null; claude -c -p "more""#, ANSWER),
            (
                r#"claude -p "w" --output-format stream-json --verbose | grep -c '"type":"result"'"#,
                "1",
            ),
            (
                r#"claude -p "w" --output-format stream-json --verbose | jq -r 'select(.type=="result").result'"#,
                ANSWER,
            ),
            (
                r#"claude -p "w" --output-format stream-json --verbose | head -1 | jq -r .type"#,
                "system",
            ),
            (
                r#"claude -p "w" --output-format stream-json --verbose | jq -r 'select(.type=="assistant").message.content[0].text'"#,
                ANSWER,
            ),
            (
                r#"claude -p "w" --output-format stream-json --include-partial-messages --verbose | grep -c text_delta | awk '{print ($1 > 0)}'"#,
                "1",
            ),
        ],
    );
}

#[test]
fn flags_of_the_reference_do_not_keep_a_run_from_its_answer() {
    let caller = Caller::new();
    let lists = [
        "--allowedTools Read Edit",
        "--allowedTools 'Read,Edit,Bash(git *)'",
        "--allowedTools Read ReportFindings KillBash",
        "--allowed-tools 'Bash(git log:*) Read'",
        "--disallowedTools Skill ReportFindings Write",
        "--disallowedTools WebSearch,WebFetch",
        "--tools 'Read,Grep,Glob,Bash(npm:*)'",
        "--tools Read,Skill",
        "--tools WebSearch",
        "--tools ''",
        "--tools default",
        "--permission-mode auto",
        "--permission-mode acceptEdits",
        "--permission-mode manual",
        "--dangerously-skip-permissions",
        "--add-dir . --model opus",
        "--append-system-prompt 'be brief'",
        "--no-chrome",
        "--ide",
        "--brief",
        "--bare",
        "--safe-mode",
        "--restricted",
        "-n nightly",
        "--name nightly",
        "-d",
        "--debug api,hooks",
        "--debug='!hooks'",
        "--exclude-dynamic-system-prompt-sections",
        "--autocompact 200k",
        "--advisor opus --teammate-mode in-process",
        "--channels plugin:a@b server:c",
        "--dangerously-load-development-channels server:c --enable-auto-mode",
        "--remote x --rc --mcp-debug",
        "--effort ultracode",
        "--prompt-suggestions",
        "--prompt-suggestions false",
        "--system-prompt-snapshot off",
        "--ax-screen-reader",
        "--permission-prompts none",
        "--betas context-1m-2025-08-07",
        "--setting-sources user",
        "--setting-sources ''",
        "--strict-mcp-config",
        "--fallback-model haiku",
        "--no-session-persistence",
        "--max-budget-usd 5",
        "--disable-slash-commands",
        "--remote-control-session-name-prefix x",
        "--verbose",
    ];
    for (number, flags) in rotating_part(lists.into_iter().enumerate(), 2) {
        let line = if number / 2 % 2 == 0 {
            format!("claude -p 'hi' {flags}")
        } else {
            format!("claude {flags} -p 'say hi'")
        };
        let (code, stdout, stderr) = caller.shell(&line);
        assert_eq!((code, stdout.as_str()), (0, "feat: add parser\n"), "{line}: {stderr}");
    }
}

#[test]
fn a_clean_run_says_nothing_on_standard_error() {
    let caller = Caller::new();
    for line in [
        "claude -p hello --dangerously-skip-permissions",
        "claude -p hello --permission-mode bypassPermissions --output-format json",
        "claude -p hello --permission-mode auto",
        "claude -p hello --allowedTools Read --max-turns 2",
        "claude -p hello --no-chrome --ide",
        "claude -p hello --output-format stream-json --verbose",
    ] {
        let (code, _, stderr) = caller.shell(line);
        assert_eq!((code, stderr.as_str()), (0, ""), "{line}");
    }
}

#[test]
fn failures_are_told_by_exit_code_and_field() {
    let refused = || Scenario::new().status(400).after(AfterLast::RepeatLast);
    judge(
        &Caller::with(refused()),
        &[
            (r#"claude -p "w" >/dev/null 2>&1 || echo failed"#, "failed"),
            (r#"out=$(claude -p "w" 2>/dev/null) || echo "failed [$out]""#, "failed []"),
            (r#"claude -p "w" --output-format json 2>&1 | jq -r .is_error"#, "true"),
            (r#"claude -p "w" --output-format json --no-such-flag 2>&1 | jq -r .is_error"#, "true"),
            (r#"set -o pipefail; claude -p "w" 2>/dev/null | cat || echo failed"#, "failed"),
            ("claude -p 2>/dev/null </dev/null; echo $?", "2"),
            (r#"claude -p "w" --no-such-flag 2>/dev/null; echo $?"#, "2"),
        ],
    );
}

#[test]
fn wrappers_find_the_version_and_the_flags() {
    judge(
        &Caller::new(),
        &[
            (r"claude --version | grep -oE '^[0-9]+\.[0-9]+\.[0-9]+'", "2.1.332"),
            ("claude -v | cut -d' ' -f1", "2.1.332"),
            ("command -v claude >/dev/null && echo found", "found"),
            ("claude --help | grep -q -- --effort && echo there", "there"),
            ("claude --help | grep -q -- --bare && echo there", "there"),
            ("claude --help | grep -q -- --include-partial-messages && echo there", "there"),
            ("claude --help | grep -q -- --plugin-dir && echo there", "there"),
        ],
    );
}
