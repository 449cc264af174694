//! Shell text that is misread: no construct of bash runs without a rule, and what runs without a
//! rule can do no harm.

use std::fs;
use std::os::unix::fs::symlink;

use outlast::process::LandlockSupport;
use outlast::tools::{PermissionMode, ToolSettings};

use crate::support::programs::write_program;
use crate::tools::bench::{Bench, search_first, text};
use crate::tools::sandbox::SandboxFixture;

/// At least one text for every production of bash's grammar, and for every expansion. `RUN` stands
/// for a program that leaves a mark.
const CONSTRUCTS: &[&str] = &[
    // Simple commands: words, assignments, redirections.
    "RUN",
    "X=1 RUN",
    "X=1; RUN",
    "X=$(RUN)",
    "X=(a $(RUN))",
    "X[$(RUN)]=1",
    "X+=$(RUN) ls",
    "ls > ran",
    "ls >> ran",
    "ls >| ran",
    "ls 2> ran",
    "ls &> ran",
    "ls &>> ran",
    "ls >& ran",
    ">&-RUN ls",
    "2>&-RUN ls",
    "ls >&-; RUN",
    "ls >&'$HOME/ran'",
    "ls >&$\\HOME/ran",
    "ls 1<> ran",
    "{fd}>ran ls",
    "ls {fd}> ran",
    "> ran",
    "cat < /dev/tcp/127.0.0.1/9",
    "ls > $(echo ran)",
    "cat < <(RUN)",
    "cat <<< $(RUN)",
    "cat <<E\n$(RUN)\nE",
    "cat <<-E\n\t`RUN`\n\tE",
    "cat <<'E'\nx\nE\nRUN",
    "cat <<\"E\" && RUN\nx\nE",
    "cat <<E <<F\nE\n$(RUN)\nF",
    "cat <<'E' <<F\nE\n$(RUN)\nF",
    "cat <<'E' | RUN\nx\nE",
    "cat <<'E'\nE) \nRUN\nE",
    "cat <<'E'\nx\n E\nE\nRUN",
    "cat <<'E' \"\nE\n\"\nx\nE\nRUN\nE",
    "RUN <<'E'\nx\nE",
    "echo \"$(cat <<'E'; RUN\nx\nE\n)\"",
    "echo \"$(cat <<'E'\nE) ; RUN\nE\n)\"",
    "echo \"$(cat <<'E'\nx\nE\nRUN)\"",
    "CI[a='x[$(RUN)]' ]=1 ls",
    "echo $? $(RUN)",
    "echo ${PIPESTATUS[$(RUN)]}",
    "cat *; RUN",
    "timeout 5 RUN",
    "command -v ls; RUN",
    // Lists and pipelines.
    "ls; RUN",
    "ls & RUN",
    "ls && RUN",
    "ls || RUN",
    "ls | RUN",
    "ls |& RUN",
    "! RUN",
    "time RUN",
    "time -p RUN",
    "ls\nRUN",
    "ls # x\nRUN",
    "l\\\ns; RUN",
    "ls |\\\n| RUN",
    "ls # \\\nRUN",
    "echo \"$\\\n(RUN)\"",
    "echo $\\\n(RUN)",
    "echo \"$\\\n\\\n{X:-$(RUN)}\"",
    // Compound commands.
    "(RUN)",
    "{ RUN; }",
    "if RUN; then ls; fi",
    "if ls; then RUN; elif ls; then ls; else ls; fi",
    "while RUN; do break; done",
    "until ls; do RUN; done",
    "for i in 1; do RUN; done",
    "for i; do ls; done; RUN",
    "for ((i = 0; i < 1; i++)); do RUN; done",
    "for ((i = $(RUN); 0; )) { ls; }",
    "select i in a; do RUN; done <<< 1",
    "case x in x) RUN ;; esac",
    "case $(RUN) in *) ls ;& y) ls ;;& z) ls ;; esac",
    "case x in $(RUN)) ls ;; esac",
    "(( x[$(RUN)] ))",
    "[[ -n $(RUN) ]]",
    "[[ x -eq y[$(RUN)] ]]",
    "[[ -v x[$(RUN)] ]]",
    "f() { RUN; }; f",
    "function f { RUN; }; f",
    "f() ( RUN ); f",
    "ls() { RUN; }; ls",
    "coproc RUN",
    "coproc C { RUN; }",
    // Expansions.
    "ls $(RUN)",
    "ls \"$(RUN)\"",
    "ls `RUN`",
    "ls \"`RUN`\"",
    "ls ${X:-$(RUN)}",
    "ls ${X-`RUN`}",
    "ls ${X:=$(RUN)}",
    "ls ${X:?$(RUN)}",
    "ls ${X:+$(RUN)}",
    "ls ${PWD/$(RUN)/}",
    "ls ${PWD:$(RUN)}",
    "ls ${PWD##$(RUN)}",
    "ls ${PWD^$(RUN)}",
    "ls ${PWD@P}",
    "ls ${!X}",
    "ls ${X[$(RUN)]}",
    "ls ${#X[$(RUN)]}",
    "ls ${ RUN; }",
    "ls ${| RUN; }",
    "ls $((1 + $(RUN)))",
    "ls $[1 + $(RUN)]",
    "ls $[1<<EOF ]\nRUN",
    "cat ${x:-<<EOF}\nRUN\nEOF",
    "cat \"${x:-<<EOF}\"\n$(RUN)\nEOF",
    "ls <(RUN)",
    "ls > >(RUN)",
    "ls $'x' $(RUN)",
    "ls $\"$(RUN)\"",
    "ls {a,$(RUN)}",
    "ls *$(RUN)",
    "ls ~$(RUN)",
    "ls @($(RUN))",
    "echo \"$(echo \"`RUN`\")\"",
    "echo '$(RUN)' \"$(RUN)\"",
    // Builtins that run or define something.
    "eval 'RUN'",
    "eval ls; RUN",
    "trap 'RUN' EXIT",
    "trap 'RUN' DEBUG; ls",
    "alias ls='RUN'; ls",
    "source <(echo 'RUN')",
    ". /dev/stdin <<< 'RUN'",
    "exec RUN",
    "command RUN",
    "builtin eval 'RUN'",
    "enable -f x y; RUN",
    "set -- x; RUN",
    "shopt -s extglob; RUN",
    "export PATH=.; RUN",
    "declare x[$(RUN)]=1",
    "local x=$(RUN)",
    "read x <<< $(RUN)",
    "mapfile -C 'RUN' -c 1 x < a",
    "test -v 'x[$(RUN)]'",
    "[ -v 'x[$(RUN)]' ]",
    "printf -v 'x[$(RUN)]' y",
    "printf \"$_\" -va[$(RUN)]",
    "printf %n PATH; RUN",
    "printf '%.0s%5n' x PATH; ls",
    "wait -p 'x[$(RUN)]'",
    "unset 'x[$(RUN)]'",
    "hash -p ./mark ls; ls",
    "bash -c 'RUN'",
    "sh -c 'RUN'",
    "env RUN",
    "xargs -a a RUN",
    "find . -exec RUN \\;",
    "find . -fprint ran",
    "sed -n '1e RUN' a",
    "sed -n 'w ran' a",
    "sed 1wran a",
    "sort -o ran a",
    "sort --compress-program=./mark a",
    "uniq a ran",
    "tee ran",
    "date 01010101",
    "awk 'BEGIN { system(\"RUN\") }'",
    "cd . ; RUN",
    "cd \"$(RUN)\"",
    "./mark",
    "\x07RUN",
    "l\x7fs; RUN",
];

fn modes() -> [PermissionMode; 4] {
    use PermissionMode::{AcceptEdits, Default, DontAsk, Plan};
    [Default, AcceptEdits, Plan, DontAsk]
}

fn bench(mode: PermissionMode) -> Bench {
    let bench = Bench::with(|settings| settings.permissions.mode = mode);
    bench.file("a", "x\n");
    write_program(&bench.cwd.join("mark"), "#!/bin/sh\necho > ran\n");
    fs::create_dir(bench.outside().join("home")).expect("a new folder");
    bench
}

#[tokio::test]
async fn no_construct_of_the_shell_runs_without_a_rule() {
    for mode in modes() {
        let bench = bench(mode);
        for construct in CONSTRUCTS {
            let command = construct.replace("RUN", "./mark");
            // A redirection to a file is an edit of that file.
            let is_edit = mode == PermissionMode::AcceptEdits && bench_allows_edit(construct);
            assert_eq!(bench.admits(&command), is_edit, "{mode:?}: {command:?}");
        }
    }
}

/// Redirections of a plain command to a file that is named.
fn bench_allows_edit(construct: &str) -> bool {
    let plain = ["ls > ran", "ls >> ran", "ls >| ran", "ls 2> ran", "ls &> ran", "ls &>> ran"];
    plain.contains(&construct) || construct == "> ran"
}

#[test]
fn a_path_is_judged_by_where_it_really_leads() {
    let bench = bench(PermissionMode::AcceptEdits);
    fs::create_dir(bench.outside().join("there")).expect("a new folder");
    fs::write(bench.outside().join("there/secret"), "x").expect("a new file");
    fs::create_dir_all(bench.cwd.join("deep/in")).expect("new folders");
    symlink(bench.outside().join("there"), bench.cwd.join("link")).expect("a new link");
    symlink("deep/in", bench.cwd.join("inner")).expect("a new link");
    for command in [
        "cat link/secret",
        "cat ./link/../there/secret",
        "cd link && cat secret",
        "cd link && ls",
        // The shell's idea of `..` and the kernel's differ behind a link.
        "cd inner && cat ../x",
        "cd inner && cd .. && cat a",
        "cd deep; cd ../.. && cat there/secret",
        "cd deep && cd .. && cd .. && ls",
        "ls; cd .. | cat ../there/secret",
        "cp -r link copy",
        "mv link moved && cat moved/secret",
        "mv deep d && cp a d/in/b",
        "cp -r deep link2 && echo x > link2/b",
        "mv link l && echo x > l/secret",
        "cp a link/b",
        "echo x > link/b",
        "rm link/secret",
        "touch inner/../../../x",
        "mkdir link/x",
        "cat /proc/self/root/etc/hostname",
        "cat /dev/fd/../../etc/hostname",
    ] {
        assert!(!bench.admits(command), "{command}");
    }
}

/// Rules for paths hold where no rule for commands does, whatever names the file.
#[tokio::test]
async fn a_hidden_file_is_read_by_no_command_without_a_rule() {
    let bench =
        Bench::with(|settings| settings.permissions.deny = vec!["Read(**/.env)".to_owned()]);
    bench.file("a", "free\n");
    bench.file(".env", "hidden-value\n");
    bench.file("sub/.env", "hidden-value\n");
    bench.file("sub/b", "free\n");
    symlink(".env", bench.cwd.join("alias")).expect("a new link");
    if LandlockSupport::probe().restricts_files() {
        let found = bench.bash("grep -rh free . 2>/dev/null").await;
        assert_eq!(found.detail["stdout"], "free\nfree\n", "{found:?}");
    }
    for command in [
        "cat .env",
        "cat ./sub/../.env",
        "cat alias",
        "cat a sub/.env",
        "grep -r value .",
        "grep -rh value sub",
        "grep -c value -r",
        "diff a alias",
        "diff sub .",
        "sort < .env",
        "head -n 3 .env a",
        "sed -n p sub/.env",
        "wc -c .env",
        "cat .e* sub/.e*",
        "cat [.]env al*",
        "head -n 3 s*/.env",
        "grep -h value .[e]nv s*/.???",
        "timeout 5 cat .env",
        // The folder of later commands, too.
        "cd sub && grep -r value .",
    ] {
        let outcome = bench.bash(command).await;
        assert!(!text(&outcome).contains("hidden-value"), "{command}: {outcome:?}");
        let counted = command.starts_with("wc") && text(&outcome).contains("13 ");
        assert!(!counted, "{command}: {outcome:?}");
    }
}

/// Attempts of a program that git runs because a checkout says so. Each line prints `FAILED` if the
/// attempt was stopped.
const ATTEMPTS: &str = r#"#!/usr/bin/python3
import ctypes, os, resource, socket, sys
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
def attempt(name, act):
    try:
        act()
        print("DONE " + name, file=sys.stderr)
    except OSError:
        print("FAILED " + name, file=sys.stderr)
def set_file_attributes():
    # file_setattr, in Linux 6.17 and later, on all architectures.
    libc = ctypes.CDLL(None, use_errno=True)
    flags = ctypes.create_string_buffer(24)
    if libc.syscall(469, -100, (root + "/outside/file").encode(), flags, 24, 0) != 0:
        raise OSError(ctypes.get_errno(), "file_setattr")
def connect(family, kind, protocol, address):
    socket.socket(family, kind, protocol).connect(address)
attempt("write here", lambda: open("written", "w"))
attempt("change a mode", lambda: os.chmod("a", 0o777))
attempt("change a mode outside", lambda: os.chmod(root + "/outside/file", 0o777))
attempt("change an owner", lambda: os.chown("a", 12345, 12345))
attempt("change times", lambda: os.utime(root + "/outside/file", (0, 0)))
attempt("change an attribute", lambda: os.setxattr("a", "user.x", b"y"))
attempt("change flags outside", set_file_attributes)
attempt("limit the parent", lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0)))
attempt("make a socket", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
attempt("write above", lambda: open(root + "/outside/file", "w"))
attempt("write in /tmp", lambda: open("/tmp/outlast-hostile-mark", "w"))
attempt("write in /dev/shm", lambda: open("/dev/shm/outlast-hostile-mark", "w"))
attempt("write in home", lambda: open(root + "/home/.bashrc", "w"))
attempt("truncate", lambda: os.truncate("a", 0))
attempt("remove", lambda: os.remove("a"))
attempt("rename", lambda: os.rename("a", "b"))
attempt("link", lambda: os.link("a", "b"))
attempt("symlink", lambda: os.symlink("a", "b"))
attempt("mkdir", lambda: os.mkdir("folder"))
attempt("write to .git", lambda: open(".git/hooks/post-commit", "w"))
attempt("read home", lambda: open(root + "/home/notes").read())
attempt("read a key", lambda: open(root + "/home/.ssh/id_x").read())
attempt("read outside", lambda: open(root + "/outside/file").read())
attempt("list outside", lambda: os.listdir(root + "/outside"))
attempt("read the environment of the parent", lambda: open("/proc/%d/environ" % os.getppid()).read())
attempt("read outlast's memory", lambda: open("/proc/%s/mem" % sys.argv[0], "rb"))
attempt("write a setting of the kernel", lambda: open("/proc/sys/kernel/core_pattern", "w"))
attempt("connect over TCP", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, 0, ("127.0.0.1", PORT)))
"#;

#[tokio::test]
async fn what_runs_without_a_rule_changes_nothing_and_reaches_nothing() {
    let fixture = SandboxFixture::with(|settings: &mut ToolSettings, _| {
        settings.permissions.mode = PermissionMode::Plan;
    });
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    let work = fixture.root.join("work");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let script = ATTEMPTS.replace("PORT", &port.to_string());
    write_program(&work.join("attempts"), script);
    fs::write(work.join("a"), "kept\n").expect("a file");
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        let ran = git.args(arguments).current_dir(&work).env("HOME", &work).output();
        assert!(ran.expect("git is installed").status.success(), "{arguments:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "a"]);
    git(&["config", "core.fsmonitor", "./attempts"]);
    let outcome = fixture.bash("git status").await;
    let shown = text(&outcome);
    let attempts = ATTEMPTS.lines().filter(|line| line.starts_with("attempt(")).count();
    assert_eq!(shown.matches("FAILED ").count() % attempts, 0, "{shown}");
    assert!(shown.contains("FAILED ") && !shown.contains("DONE "), "{shown}");
    assert_eq!(fs::read_to_string(work.join("a")).expect("it is there"), "kept\n");
    assert!(!work.join("written").exists());
}

/// Only the listed programs of a command line change files: nothing else in it can write to the
/// folders that are open to it.
#[test]
fn a_command_line_that_changes_files_does_nothing_else() {
    let bench = bench(PermissionMode::AcceptEdits);
    bench.file("sub/.git/hooks/x", "x");
    bench.file("README.md", "x");
    symlink("README.md", bench.cwd.join("link")).expect("a new link");
    for command in [
        "touch a; git status",
        "git status; touch a",
        "touch a && git grep --no-index -Obash WORD -- c.sh",
        "touch a && git log > b",
        "mv sub other",
        "cp -r sub other",
        "mv link m && echo x > m",
        "git diff --output=x > y",
    ] {
        assert!(!bench.admits(command), "{command}");
    }
    for command in
        ["mkdir -p x && ls x", "touch y && cat a", "mv a b && ls", "git log -1 --oneline"]
    {
        assert!(bench.admits(command), "{command}");
    }
}

/// With flags that make programs write, run others or read elsewhere.
#[tokio::test]
async fn flags_of_plain_commands_write_nothing_and_read_nothing_outside() {
    let fixture = SandboxFixture::with(|settings: &mut ToolSettings, _| {
        settings.permissions.mode = PermissionMode::DontAsk;
    });
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    let work = fixture.root.join("work");
    fs::write(fixture.root.join("outside/data.json"), "[\"kept\"]").expect("a file");
    write_program(&work.join("attack"), "#!/bin/sh\necho > ran\ncat ../outside/*\n");
    let script = "git init -q && echo WORD > a && git add a && git -c user.name=A -c \
                  user.email=a@b commit -qm 1 && echo more >> a && git config diff.external \
                  ./attack && git config diff.x.textconv ./attack && echo '* diff=x' > .gitattributes";
    let mut shell = std::process::Command::new("sh");
    assert!(shell.args(["-c", script]).current_dir(&work).status().expect("a shell").success());
    for command in [
        "git diff --output=ran",
        "git log -p --output=ran",
        "git diff --ext-diff",
        "git show --textconv",
        "git grep -O./attack WORD",
        "git grep --no-index -O./attack WORD -- a",
        "git grep --open-files-in-pager=./attack WORD",
        "git blame --contents=../outside/file a",
        "git diff --no-index a ../outside/file",
        "git branch ran",
        "git remote add ran x",
        "jq -n 'import \"data\" as $x {search: \"../outside\"}; $x'",
        "cd none; cat file ../outside/file",
        "cd .; cat ../outside/file",
        "cd ../outside; cat file",
    ] {
        let shown = text(&fixture.bash(command).await);
        assert!(!shown.contains("kept"), "{command}: {shown}");
        assert!(
            !work.join("ran").exists() && !work.join(".git/refs/heads/ran").exists(),
            "{command}"
        );
        let config = fs::read_to_string(work.join(".git/config")).expect("git made it");
        assert!(!config.contains("ran"), "{command}");
    }
}

#[tokio::test]
async fn what_is_hidden_stays_hidden_when_files_are_changed() {
    for command in [
        "touch a; grep -r value .",
        "grep -r value . > found; cat found",
        "mv p q; cat q/sec/k",
        "cp -r p q; cat q/sec/k",
        "cp p/sec/k q; cat q",
        "mkdir x; diff -r p x",
        "mv p/sec/k q",
    ] {
        let bench = Bench::with(|settings| {
            settings.permissions.mode = PermissionMode::AcceptEdits;
            settings.permissions.deny = vec!["Read(./p/sec/**)".to_owned()];
        });
        bench.file("p/sec/k", "hidden-value\n");
        bench.file("a", "x\n");
        let outcome = bench.bash(command).await;
        assert!(!text(&outcome).contains("hidden-value"), "{command}: {outcome:?}");
        let later = bench.bash("cat q q/sec/k found").await;
        assert!(!text(&later).contains("hidden-value"), "{command}, later: {later:?}");
    }
}

/// Programs of the list can read the files that their command names, whatever is denied.
#[tokio::test]
async fn files_that_a_command_names_are_read() {
    for deny in [vec![], vec!["Read(**/.env)".to_owned()]] {
        for mode in [PermissionMode::Default, PermissionMode::Plan, PermissionMode::AcceptEdits] {
            let bench = Bench::with(|settings| {
                settings.permissions.mode = mode;
                settings.permissions.deny.clone_from(&deny);
            });
            let file = bench.file("sub/a", "one\n");
            bench.file(".env", "hidden-value\n");
            let absolute = format!("cat {}", file.display());
            for command in ["cat sub/a", "sort < sub/a", &absolute, "cd sub && head -n 1 a"] {
                let outcome = bench.bash(command).await;
                assert_eq!(outcome.detail["stdout"], "one\n", "{mode:?} {command}: {outcome:?}");
            }
            let outcome = bench.bash("cd ..; grep -rl one sub; ls sub").await;
            assert_eq!(outcome.detail["stdout"], "sub/a\na\n", "{mode:?}: {outcome:?}");
        }
    }
}

/// A program of the working tree does not take the place of one of the list.
#[tokio::test]
async fn programs_of_the_tree_are_not_looked_up() {
    for mode in [PermissionMode::Plan, PermissionMode::AcceptEdits] {
        let bench = Bench::with(|settings| {
            settings.permissions.mode = mode;
            let bin = settings.cwd.join("bin");
            search_first(settings, &bin);
        });
        bench.file("a", "x\n");
        write_program(&bench.cwd.join("bin/tac"), "#!/bin/sh\necho theirs\n");
        let shown = text(&bench.bash("tac a").await);
        assert_eq!(shown.trim(), "x", "{mode:?}");
    }
}
