//! Cases of permissions that do not fit the table of `permission_table`.

use std::fs;
use std::os::unix::fs::symlink;

use outlast::tools::{AgentDefinition, PermissionMode, ToolRefusal, Toolbox};
use serde_json::{Value, json};

use super::bench::{Bench, call};

use PermissionMode::{AcceptEdits, BypassPermissions, Default, Plan};

/// The permission rules of a case, by their list.
#[derive(Clone, Copy)]
enum Rules {
    None,
    Allow(&'static [&'static str]),
    Deny(&'static [&'static str]),
    Ask(&'static [&'static str]),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Yes,
    No,
}

use Answer::{No, Yes};
use Rules::{Allow, Ask, Deny};

fn owned(rules: &[&str]) -> Vec<String> {
    rules.iter().map(ToString::to_string).collect()
}

fn bench(mode: PermissionMode, rules: Rules) -> Bench {
    let bench = Bench::with(|settings| {
        settings.permissions.mode = mode;
        match rules {
            Rules::None => {}
            Allow(allow) => settings.permissions.allow = owned(allow),
            Deny(deny) => settings.permissions.deny = owned(deny),
            Ask(ask) => settings.permissions.ask = owned(ask),
        }
    });
    bench.file("src/a.rs", "x\n");
    bench.file(".env", "SECRET\n");
    fs::create_dir(bench.outside().join("home")).expect("a new folder");
    bench
}

fn answer(bench: &Bench, name: &str, input: Value) -> Result<Answer, String> {
    match bench.toolbox.admit(&call(name, input)) {
        Ok(_) => Ok(Yes),
        Err(ToolRefusal::Denied { outcome, reason }) => {
            assert!(outcome.is_error);
            assert!(!reason.is_empty());
            Ok(No)
        }
        Err(ToolRefusal::Invalid(outcome)) => Err(format!("{outcome:?}")),
    }
}

/// Ways to write one path, where `@` is the working folder without its first slash.
const SLASHES: [&str; 11] = [
    "//@/src/**",
    "///@/src/**",
    "////@//src//**",
    "//@/./src/.//**",
    "//@/src//",
    "//@//src/.",
    ".//src/**",
    "././src/**",
    "/src//**",
    "/./src/**",
    "src/.//a.rs",
];

#[test]
fn a_path_rule_holds_however_many_slashes_it_has() {
    for form in SLASHES {
        for (list, expected) in [("deny", No), ("ask", No), ("allow", Yes)] {
            let bench = Bench::with(|settings| {
                let cwd = settings.cwd.display().to_string();
                let rule = format!("Edit({})", form.replace('@', cwd.trim_start_matches('/')));
                let permissions = &mut settings.permissions;
                permissions.mode = if list == "allow" { Default } else { AcceptEdits };
                match list {
                    "deny" => permissions.deny.push(rule),
                    "ask" => permissions.ask.push(rule),
                    _ => permissions.allow.push(rule),
                }
            });
            let input = json!({ "file_path": "src/a.rs", "old_string": "x", "new_string": "y" });
            assert_eq!(answer(&bench, "Edit", input), Ok(expected), "{list} {form}");
        }
    }
}

#[test]
fn a_deny_rule_for_a_folder_of_a_project_does_not_deny_the_project() {
    for (has_folder, expected) in [(true, Yes), (false, No)] {
        let bench = Bench::with(|settings| {
            let top = settings.cwd.components().nth(1).expect("it is no root").as_os_str();
            settings.permissions.deny = vec![format!("Read(/{}/**)", top.display())];
            if has_folder {
                fs::create_dir_all(settings.cwd.join(top)).expect("a new folder");
            }
        });
        bench.file("a", "x\n");
        assert_eq!(answer(&bench, "Read", json!({ "file_path": "a" })), Ok(expected));
    }
}

#[test]
fn a_folder_with_a_protected_file_or_a_repository_is_not_removed_without_a_rule() {
    let bench = bench(AcceptEdits, Rules::None);
    for file in [
        ".github/workflows/ci.yml",
        "sub/.git/HEAD",
        "services/a/.git/HEAD",
        "pkg/.husky/pre-commit",
        "pkg/.github/dependabot.yml",
        "mono/.github/actions/a.yml",
        "build/_deps/test-src/.git/HEAD",
        "node_modules/x/.vscode/settings.json",
        "empty/a",
    ] {
        bench.file(file, "x\n");
    }
    for (folder, expected) in [
        (".github", No),
        ("sub", No),
        ("services", No),
        ("services/a", No),
        ("pkg", No),
        ("mono", No),
        // Clones that a build makes, and settings of the authors of packages.
        ("build", Yes),
        ("node_modules", Yes),
        ("empty src", Yes),
    ] {
        let answer = answer(&bench, "Bash", json!({ "command": format!("rm -rf {folder}") }));
        assert_eq!(answer, Ok(expected), "{folder}");
    }
    fs::remove_dir_all(bench.cwd.join("pkg/.husky")).expect("it is ours");
    assert_eq!(answer(&bench, "Bash", json!({ "command": "rm -rf pkg" })), Ok(Yes));
}

#[test]
fn rules_judge_a_command_in_the_folder_that_its_call_names() {
    let bench = bench(AcceptEdits, Deny(&["Edit(src/**)", "Read(hidden/**)"]));
    for name in ["build/a", "hidden/x", "it's/a"] {
        bench.file(name, "x\n");
    }
    for (folder, command, expected) in [
        ("build", "rm a", Yes),
        ("it's", "rm a", Yes),
        ("src", "rm a.rs", No),
        ("build", "cat a", Yes),
        ("hidden", "cat x", No),
        ("build/../hidden", "cat x", No),
        ("..", "rm a", No),
        ("/etc", "cat passwd", No),
        ("build", "true; rm a", No),
    ] {
        for name in ["workdir", "cwd"] {
            let answer = answer(&bench, "Bash", json!({ "command": command, name: folder }));
            assert_eq!(answer, Ok(expected), "{folder}: {command}");
        }
    }
}

#[test]
fn a_symbolic_link_out_of_the_work_tree_counts_as_outside() {
    for mode in [Default, AcceptEdits] {
        let bench = bench(mode, Rules::None);
        let secret = bench.outside().join("secret");
        fs::write(&secret, "x").unwrap();
        symlink(&secret, bench.cwd.join("link")).unwrap();
        symlink(bench.outside(), bench.cwd.join("folder")).unwrap();
        symlink(bench.outside().join("not-yet"), bench.cwd.join("dangling")).unwrap();
        symlink("loop", bench.cwd.join("loop")).unwrap();
        symlink("src/a.rs", bench.cwd.join("inner")).unwrap();
        for path in ["link", "folder/secret", "dangling", "folder/new/deep"] {
            let read = answer(&bench, "Read", json!({ "file_path": path }));
            let write = answer(&bench, "Write", json!({ "file_path": path, "content": "x" }));
            let cat = answer(&bench, "Bash", json!({ "command": format!("cat {path}") }));
            let redirect = answer(&bench, "Bash", json!({ "command": format!("echo > {path}") }));
            for answer in [read, write, cat, redirect] {
                assert_eq!(answer, Ok(No), "{mode:?} {path}");
            }
        }
        assert_eq!(answer(&bench, "Read", json!({ "file_path": "inner" })), Ok(Yes));
        assert_eq!(answer(&bench, "Read", json!({ "file_path": "loop" })), Ok(Yes));
    }
}

#[test]
fn a_deny_rule_applies_to_a_link_and_to_its_target() {
    let bench = bench(BypassPermissions, Deny(&["Read(.env)", "Read(alias)"]));
    symlink(".env", bench.cwd.join("harmless")).unwrap();
    symlink("src/a.rs", bench.cwd.join("alias")).unwrap();
    assert_eq!(answer(&bench, "Read", json!({ "file_path": "harmless" })), Ok(No));
    assert_eq!(answer(&bench, "Read", json!({ "file_path": "alias" })), Ok(No));
}

#[test]
fn a_denial_names_the_flag_that_would_allow_the_call() {
    let reason = |mode, rules, name, input| {
        let bench = bench(mode, rules);
        match bench.toolbox.admit(&call(name, input)) {
            Err(ToolRefusal::Denied { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let bash = |command: &str| json!({ "command": command });
    let table = [
        (
            Default,
            Rules::None,
            "Bash",
            bash("cargo test --all"),
            "--allowedTools 'Bash(cargo test *)'",
        ),
        (
            Default,
            Rules::None,
            "Bash",
            bash("ls && ./run.sh a"),
            "--allowedTools 'Bash(./run.sh *)'",
        ),
        (Default, Rules::None, "Bash", bash("a $(b"), "--allowedTools Bash"),
        (Default, Rules::None, "Bash", bash("git push"), "--allowedTools 'Bash(git push *)'"),
        (Default, Allow(&["Bash(rm *)"]), "Bash", bash("ls; rm -f q"), "'Bash(ls *)'"),
        (Default, Allow(&["Bash(mkdir *)"]), "Bash", bash("mkdir d && ls"), "'Bash(ls *)'"),
        (Default, Allow(&["Bash(touch *)"]), "Bash", bash("touch z | tail ./q"), "'Bash(tail *)'"),
        (AcceptEdits, Allow(&["Bash(git *)"]), "Bash", bash("mkdir d && git status"), "by itself"),
        (
            Default,
            Allow(&["Bash(git *)"]),
            "Bash",
            bash("touch n && git status"),
            "Bash needs permission for `touch n`: ",
        ),
        (Default, Rules::None, "Bash", bash("PORT=1 make test"), "'Bash(PORT=1 make test *)'"),
        (
            Default,
            Rules::None,
            "Bash",
            bash("A=1 B=\"x y\" timeout 5 make"),
            "'Bash(A=1 B=\"x y\" timeout 5 make *)'",
        ),
        (Default, Rules::None, "Bash", bash("A=1"), "'Bash(A=1)'"),
        (Default, Rules::None, "Bash", bash("A=$B make"), "--allowedTools 'Bash'"),
        (Default, Rules::None, "Bash", bash("A='b c' make"), "--allowedTools 'Bash'"),
        (Default, Rules::None, "Bash", bash("env -u X make"), "'Bash(env -u X make)'"),
        (Default, Rules::None, "Bash", bash("A=1 bash x.sh"), "'Bash(A=1 bash x.sh)'"),
        (Default, Rules::None, "Bash", bash("~/bin/x a"), "'Bash(~/bin/x *)'"),
        (Default, Rules::None, "Bash", bash("'./x.sh' a"), "'Bash(./x.sh *)'"),
        (Default, Rules::None, "Bash", bash("\"./my x\" a"), "'Bash(\"./my x\" *)'"),
        (Default, Rules::None, "Bash", bash("cat <<E\n$X\nE"), "quote its delimiter"),
        (Default, Rules::None, "Bash", bash("ls /"), "/ is outside the working directories"),
        (Default, Rules::None, "Bash", bash("cd .."), "is outside the working directories"),
        (Default, Rules::None, "Read", json!({ "file_path": "~/x" }), "x is outside the working"),
        (Plan, Rules::None, "Bash", bash("make"), "--permission-mode plan"),
        (
            Default,
            Rules::None,
            "Write",
            json!({ "file_path": "x", "content": "" }),
            "--permission-mode acceptEdits",
        ),
        (Default, Rules::None, "Read", json!({ "file_path": "/etc/passwd" }), "--add-dir '/etc'"),
        (Default, Rules::None, "Bash", bash("cd /etc && ls"), "--add-dir '/etc'"),
        (
            Default,
            Rules::None,
            "Glob",
            json!({ "pattern": "x", "path": "/usr/share" }),
            "--add-dir '/usr/share'",
        ),
        (Default, Deny(&["Bash(make *)"]), "Bash", bash("make x"), "the rule `Bash(make *)`"),
        (Default, Deny(&["Bash(make *)"]), "Bash", bash("make x\ny"), "`make x y` is denied"),
        (Default, Ask(&["Bash"]), "Bash", bash("ls"), "the rule `Bash`"),
        (Default, Ask(&["Bash(ls *)"]), "Bash", bash("ls"), "--permission-prompt-tool"),
    ];
    for (mode, rules, name, input, part) in table {
        let reason = reason(mode, rules, name, input.clone());
        assert!(reason.contains(part), "{name} {input}: {reason}");
        // Nothing opens all folders, or all of the user's.
        let is_narrow = !reason.contains("--add-dir '/'") && !reason.contains("/home'");
        assert!(is_narrow, "{name} {input}: {reason}");
        // Of one line, and without what the model is told beside it.
        let is_plain = !reason.contains('\n') && !reason.to_lowercase().contains("cannot ask");
        assert!(is_plain, "{name} {input}: {reason}");
    }
}

#[test]
fn the_patterns_of_an_agents_tools_limit_it_in_every_mode() {
    let bench = bench(BypassPermissions, Rules::None);
    symlink("../.env", bench.cwd.join("src/link")).expect("a link");
    let limited = |rules: &[&str], toolbox: &Toolbox| {
        let only = rules.iter().map(|rule| rule.split('(').next().unwrap_or_default().to_owned());
        let tools = AgentDefinition {
            tools: Some(only.collect()),
            tool_rules: owned(rules),
            ..AgentDefinition::default()
        };
        toolbox.derive_subagent_toolbox(&tools).expect("there are some")
    };
    let outer =
        limited(&["Bash(git *)", "Read(./src/**)", "Write(src/**)", "Grep"], &bench.toolbox);
    let inner = limited(&["Bash", "Read(./src/a.rs)", "Write"], &outer);
    let bash = |command: &str| ("Bash", json!({ "command": command }));
    let read = |path: &str| ("Read", json!({ "file_path": path }));
    let write = |path: &str| ("Write", json!({ "file_path": path, "content": "x" }));
    for ((name, input), of_outer, of_inner) in [
        (bash("git status"), true, true),
        (bash("cd src && git status"), true, true),
        (bash("git log > src/log"), true, true),
        (bash("git log > log"), false, false),
        (bash("touch made"), false, false),
        (bash("cat .env"), false, false),
        (bash("git status; touch made"), false, false),
        (read("src/a.rs"), true, true),
        (read("src/b.rs"), true, false),
        (read(".env"), false, false),
        (read("src/link"), false, false),
        (write("src/b.rs"), true, true),
        (write("b.rs"), false, false),
        (("Grep", json!({ "pattern": "x" })), true, false),
    ] {
        for (toolbox, wanted) in [(&outer, of_outer), (&inner, of_inner)] {
            let answer = toolbox.admit(&call(name, input.clone()));
            assert_eq!(answer.is_ok(), wanted, "{name} {input}: {answer:?}");
        }
    }
    let Err(ToolRefusal::Denied { reason, .. }) = outer.admit(&call("Bash", bash("make").1)) else {
        panic!("it is denied");
    };
    let wanted = "this agent may use Bash only as its definition says: Bash(git *)";
    assert!(reason.contains(wanted), "{reason}");
}

#[test]
fn a_denied_tool_is_not_offered_to_the_model() {
    let bench = bench(Default, Deny(&["Bash", "Glo*", "Read(.env)"]));
    let names: Vec<&str> =
        bench.toolbox.definitions().iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["Read", "Write", "Edit", "NotebookEdit", "Grep", "TodoWrite"]);
}

#[tokio::test]
async fn command_paths_follow_the_shells_working_directory() {
    let bench = bench(Default, Rules::None);
    assert!(!bench.bash("cd src").await.is_error);
    let judge = |command: &str| answer(&bench, "Bash", json!({ "command": command }));
    assert_eq!(judge("cat ../.env"), Ok(Yes));
    assert_eq!(judge("cat ../../x"), Ok(No));
    assert_eq!(judge("cd .. && cat ../x"), Ok(No));
    assert_eq!(judge("cd ..; cat ../x"), Ok(No));
    assert_eq!(answer(&bench, "Read", json!({ "file_path": "../.env" })), Ok(Yes));
    assert_eq!(answer(&bench, "Read", json!({ "file_path": "../../x" })), Ok(No));
}

#[tokio::test]
async fn permissions_are_checked_again_when_an_admitted_call_runs() {
    let bench = bench(AcceptEdits, Rules::None);
    let input = json!({ "file_path": "later/x", "content": "x" });
    assert_eq!(answer(&bench, "Write", input.clone()), Ok(Yes));
    symlink(bench.outside(), bench.cwd.join("later")).unwrap();
    assert!(bench.run("Write", input).await.is_error);
    assert!(!bench.outside().join("x").exists());
}

#[tokio::test]
async fn search_results_omit_files_denied_for_reading() {
    let bench = bench(Default, Deny(&["Read(.env)"]));
    let found = bench.run("Grep", json!({ "pattern": "SECRET|x" })).await;
    assert_eq!(super::bench::text(&found), "src/a.rs");
    let found = bench.run("Glob", json!({ "pattern": "**/*" })).await;
    assert_eq!(super::bench::text(&found), "src/a.rs");
}

/// Everything that git can be told to run, told to make a mark.
const HOSTILE: &str = "[core]\n fsmonitor = touch ran\n sshCommand = touch ran\n pager = touch ran\n \
    editor = touch ran\n hooksPath = hooks\n[diff]\n external = touch ran\n[diff \"x\"]\n \
    textconv = touch ran\n command = touch ran\n[filter \"x\"]\n clean = touch ran\n smudge = \
    touch ran\n[gpg]\n program = touch ran\n[log]\n showSignature = true\n[alias]\n remote = \
    !touch ran\n[extensions]\n partialClone = away\n[remote \"away\"]\n promisor = true\n url = \
    ssh://guest@127.0.0.1/x\n[credential]\n helper = !touch ran\n";

#[tokio::test]
async fn programs_configured_by_a_checkout_for_git_change_nothing_without_a_rule() {
    let bench = bench(Default, Rules::None);
    let git = |command: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", command]).current_dir(&bench.cwd).env_clear();
        shell.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        shell.env("HOME", bench.outside()).output().expect("sh is installed")
    };
    let begun = git("git init -q . && echo one > a && git add a && \
                     git -c user.name=a -c user.email=a@b commit -qm one && echo two > a");
    assert!(begun.status.success(), "{begun:?}");
    let clean = bench.bash("git status --short && git diff --stat && git log --oneline").await;
    assert!(!clean.is_error, "{clean:?}");
    bench.file(".gitattributes", "* filter=x diff=x\n");
    let path = bench.cwd.join(".git/config");
    let config = fs::read_to_string(&path).expect("git made it");
    fs::write(&path, config + HOSTILE).expect("a file");
    let mark = bench.cwd.join("ran");
    for command in ["git status", "git diff", "git log -p", "git show", "git blame a"] {
        let outcome = bench.bash(command).await;
        assert!(outcome.denied.is_none(), "{outcome:?}");
        assert!(!mark.exists(), "{command} runs what the checkout says");
    }
    git("git status");
    assert!(mark.exists(), "the checkout is hostile");
}
