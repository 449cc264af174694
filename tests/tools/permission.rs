//! Permission rules: tables of calls, then cases that do not fit a table.

use std::fs;
use std::os::unix::fs::symlink;

use outlast::tools::{AgentDefinition, PermissionMode, ToolRefusal, Toolbox};
use serde_json::{Value, json};

use super::bench::{Bench, call};

use PermissionMode::{AcceptEdits, BypassPermissions, Default, DontAsk, Plan};

/// The permission rules of a case, by their list.
#[derive(Clone, Copy, PartialEq)]
enum Rules {
    None,
    Allow(&'static [&'static str]),
    Deny(&'static [&'static str]),
    Ask(&'static [&'static str]),
    AllowDeny(&'static [&'static str], &'static [&'static str]),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Yes,
    No,
}

use Answer::{No, Yes};
use Rules::{Allow, AllowDeny, Ask, Deny};

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
            AllowDeny(allow, deny) => {
                settings.permissions.allow = owned(allow);
                settings.permissions.deny = owned(deny);
            }
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

const COMMANDS: &[(PermissionMode, Rules, &str, Answer)] = &[
    // Harmless commands need no rule.
    (Default, Rules::None, "ls -la src", Yes),
    (Default, Rules::None, "cat src/a.rs | grep -n x | head -5", Yes),
    (Default, Rules::None, "pwd && echo \"a && b; $(x\" 'c | d'", No),
    (Default, Rules::None, "pwd && echo 'a && b; c | d > e'", Yes),
    (Default, Rules::None, "grep -rn 'foo|bar' src; wc -l src/a.rs", Yes),
    (Default, Rules::None, "cd src && ls", Yes),
    (Default, Rules::None, "cd src && cat ../x | head", Yes),
    (Default, Rules::None, "cd src &&\n cat ../x", Yes),
    (Default, Rules::None, "cd src; cat ../x", No),
    (Default, Rules::None, "cd src && ls || cat ../x", No),
    // Wherever it runs, the kernel lets it read no more than Read.
    (Default, Rules::None, "cd src; cat x", Yes),
    (Default, Rules::None, "cd src; cat < ../x", No),
    (AcceptEdits, Rules::None, "cd src; touch x", No),
    (AcceptEdits, Rules::None, "cd src && ls || touch x", No),
    (AcceptEdits, Rules::None, "cd src | touch x", No),
    (AcceptEdits, Rules::None, "cd src & touch x", No),
    (AcceptEdits, Rules::None, "ls && cd src && touch x", No),
    (AcceptEdits, Rules::None, "cd src && ls && touch x", Yes),
    (Default, Rules::None, "ls | cd src && cat ../x", No),
    (Default, Rules::None, "cd src && cat ../../x", No),
    (Default, Rules::None, "git branch --show-current", Yes),
    (Default, Rules::None, "git rev-parse HEAD", Yes),
    (Default, Rules::None, "echo $HOME 2>&1 >/dev/null", No),
    (Default, Rules::None, "echo HOME 2>&1 >/dev/null", Yes),
    (Default, Rules::None, "find . -name '*.rs'", Yes),
    (Default, Rules::None, "# a comment\nls", Yes),
    (DontAsk, Rules::None, "ls", Yes),
    (Plan, Rules::None, "ls && git remote -v", Yes),
    // What only looks harmless.
    (Default, Rules::None, "ls > listing", No),
    (Default, Rules::None, "cat /etc/passwd", No),
    (Default, Rules::None, "cat ../../x", No),
    (Default, Rules::None, "cd / && cat etc/passwd", No),
    (Default, Rules::None, "cat ~/notes", No),
    (Default, Rules::None, "cat a=~/notes", No),
    (Default, Rules::None, "cat a=x:~/notes", No),
    (Default, Rules::None, "cat $FILE", No),
    (Default, Rules::None, "find . -delete", No),
    (Default, Rules::None, "find . -exec rm {} +", No),
    (Default, Rules::None, "sort -o src/a.rs src/a.rs", No),
    (Default, Rules::None, "sort -uo src/a.rs src/a.rs", No),
    (Default, Rules::None, "uniq src/a.rs src/b.rs", No),
    (Default, Rules::None, "git push", No),
    (Default, Rules::None, "git -c core.pager=evil log", No),
    (Default, Rules::None, "git -C src status", Yes),
    (Default, Rules::None, "git -C src push", No),
    (Default, Rules::None, "git -C / status", No),
    (Default, Rules::None, "git -C .. status", No),
    (Default, Rules::None, "git -C src -C ../.. status", No),
    (Default, Rules::None, "git -C src log HEAD ../../x", No),
    (Default, Rules::None, "git -C $X status", No),
    (Default, Rules::None, "git -C none status", No),
    (Default, Rules::None, "git --version; git tag -l 'v*' --contains HEAD", Yes),
    (Default, Rules::None, "git stash list --oneline && git worktree list --porcelain", Yes),
    (Default, Rules::None, "git check-ignore -v src/a.rs || true", Yes),
    (Default, Rules::None, "git tag v1", No),
    (Default, Rules::None, "git tag -d v1 -l", No),
    (Default, Rules::None, "git tag -l -d v1", No),
    (Default, Rules::None, "git stash", No),
    (Default, Rules::None, "git stash --all list", No),
    (Default, Rules::None, "git stash list -p", No),
    (Default, Rules::None, "git worktree add list", No),
    (Default, Rules::None, "git --version --exec-path=x", No),
    (Default, Rules::None, "command -v git cargo; command -V ls", Yes),
    (Default, Rules::None, "command -p cargo", No),
    (Default, Rules::None, "command -v $X", No),
    (Default, Rules::None, "timeout 5 ls; time cat src/a.rs; nice -n 5 git status", Yes),
    (Default, Rules::None, "timeout -k 1 5 nice time -p grep -r x .", Yes),
    (Default, Rules::None, "timeout 5 make", No),
    (Default, Rules::None, "timeout $X ls", No),
    (Default, Rules::None, "nohup ls", No),
    (AcceptEdits, Rules::None, "timeout 5 rm src/a.rs", No),
    (AcceptEdits, Rules::None, "time mkdir x", No),
    (Default, Rules::None, "ls; echo $? ${PIPESTATUS[0]}", Yes),
    // Patterns of file names, for programs without flags that write.
    (Default, Rules::None, "ls *.md; cat src/*.rs; wc -l src/[ab]?.rs", Yes),
    (Default, Rules::None, "grep -rn x --include=*.rs . && head -n 5 -- *", Yes),
    (Default, Rules::None, "du -sh src/* | cat", Yes),
    (Default, Rules::None, "ls -*", No),
    (Default, Rules::None, "ls --*=x", No),
    (Default, Rules::None, "cat ../*", No),
    (Default, Rules::None, "cat src/*/../../../x", No),
    (Default, Rules::None, "cat /etc/*.conf", No),
    (Default, Rules::None, "cat ~/*", No),
    (Default, Rules::None, "cat {src,*}/a.rs", No),
    (Default, Rules::None, "cat $X*", No),
    (Default, Rules::None, "cat *$?", No),
    (Default, Rules::None, "grep s* src/a.rs", No),
    (Default, Rules::None, "jq * src/a.rs", No),
    (Default, Rules::None, "cd s*", No),
    (Default, Rules::None, "ls *.md > out", No),
    (Default, Rules::None, "cat < src/*", No),
    (AcceptEdits, Rules::None, "rm *.md", No),
    (AcceptEdits, Rules::None, "sed -i s/a/b/ src/*", No),
    (Default, Rules::None, "git log -- *.rs", No),
    (Default, Rules::None, "diff src/* src/a.rs; true", No),
    (Default, Rules::None, "grep -f/etc/passwd x src", No),
    (Default, Rules::None, "grep -Rn x .", No),
    (Default, Rules::None, "grep --dereference-recursive x .", No),
    (Default, Rules::None, "diff -ur src src", No),
    (Default, Rules::None, "diff -u src/a.rs src/a.rs", Yes),
    (Default, Rules::None, "jq -nf /etc/passwd", No),
    (Default, Rules::None, "jq '.name' src/a.rs", Yes),
    (Default, Rules::None, "echo /etc/passwd | xargs cat", No),
    (Default, Rules::None, "ls `touch x`", No),
    (Default, Rules::None, "ls $(touch x)", No),
    (Default, Rules::None, "echo \"$(touch x)\"", No),
    (Default, Rules::None, "echo \"`touch x`\"", No),
    (Default, Rules::None, "echo $['$(touch x)']", No),
    (Default, Rules::None, "echo \"$[a[\\$(touch x)]]\"", No),
    (Default, Rules::None, "test -v 'a[$(touch x)]'", No),
    (Default, Rules::None, "[ -v 'a[$(touch x)]' ]", No),
    (Default, Rules::None, "printf -v 'a[$(touch x)]' y", No),
    (Default, Rules::None, "find * -name x", No),
    (Default, Rules::None, "sort *", No),
    (Default, Rules::None, "test *", No),
    (Default, Rules::None, "[ -f src/a.rs ] && printf '%s\\n' yes", Yes),
    (Default, Rules::None, "sort src/a.rs; cat src/a.rs", Yes),
    (Default, Rules::None, "sort src/*.rs; cat *", No),
    (Default, Rules::None, "ls & touch x", No),
    (Default, Rules::None, "ls\ntouch x", No),
    (Default, Rules::None, "cat <(touch x)", No),
    (Default, Rules::None, "PATH=. ls", No),
    (Default, Rules::None, "ls 'unclosed", No),
    // Allow rules.
    (Default, Allow(&["Bash"]), "anything $(at all) > x", Yes),
    (Default, Allow(&["Bash(*)"]), "make", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo test --all", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo test", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo  test   x", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo tests", No),
    (Default, Allow(&["Bash(cargo test:*)"]), "cargo test --all", Yes),
    (Default, Allow(&["Bash(cargo test:*)"]), "cargo testify", No),
    (Default, Allow(&["Bash(npm run test*)"]), "npm run test-all", Yes),
    (Default, Allow(&["Bash(make)"]), "make", Yes),
    (Default, Allow(&["Bash(make)"]), "make install", No),
    (Default, Allow(&["Bash(git * main)"]), "git push origin main", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo test && rm -r src", No),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo test; rm -r src", No),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo test | tee log", No),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo test 2>&1 | tail -5", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo test 2>&1 | tail -5 src/log", No),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo test > src/log", No),
    (Default, Allow(&["Bash(cargo test *)", "Edit(src/**)"]), "cargo test > src/log", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo test $(rm x)", No),
    (Default, Allow(&["Bash(cargo test *)"]), "timeout 60 cargo test x", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "timeout -k 5 -s KILL 60 cargo test x", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "timeout --signal=INT -v -k5 60 cargo test x", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "timeout --preserve-status 60 cargo test x", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "time -p cargo test x", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "nice -5 cargo test x", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "nice --adjustment=5 cargo test x", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "nohup -- cargo test x", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "command -p cargo test x", No),
    (Default, Allow(&["Bash(cargo test *)"]), "timeout --unknown 60 cargo test x", No),
    (Default, Allow(&["Bash(cargo test *)"]), "timeout -s $_ 60 cargo test x", No),
    (Default, Allow(&["Bash(cargo test *)"]), "time -o cargo test x", No),
    (Default, Allow(&["Bash(cargo test *)"]), "timeout {5,sh,-c,x} cargo test x", No),
    (Default, Allow(&["Bash(cargo test *)"]), "nice -n $_ cargo test x", No),
    (Default, Allow(&["Bash(cargo test *)"]), "stdbuf -o$_ cargo test x", No),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo test \"$\\\n(rm x)\"", No),
    (Default, Allow(&["Bash(cargo test *)"]), "cargo test \\\n  --all", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "RUST_BACKTRACE=1 cargo test", Yes),
    (Default, Allow(&["Bash(cargo test *)"]), "LD_PRELOAD=x cargo test", No),
    (Default, Allow(&["Bash(cargo test *)", "Bash(make *)"]), "cargo test && make all", Yes),
    (Default, Allow(&["Bash(echo $(date))"]), "echo $(date)", Yes),
    (Plan, Allow(&["Bash"]), "cargo test", No),
    (DontAsk, Allow(&["Bash(make)"]), "make", Yes),
    (DontAsk, Rules::None, "make", No),
    // Deny and ask rules.
    (BypassPermissions, Deny(&["Bash(rm *)"]), "rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "ls && rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "/bin/rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "'rm' -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "X=1 nohup rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "echo $(rm -r src)", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "echo \"rm is a word\"", Yes),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "make", Yes),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "sudo rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "bash -ec 'ls; rm -r src'", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "eval rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "\\rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "if true; then rm -r src; fi", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "! rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "time -p rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "time { rm -r src; }", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "env -i rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "timeout -k 1 5 rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "ionice -c 3 rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "flock /tmp/l rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "taskset 1 strace -f rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "ls | xargs -n 1 rm -r", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "find src -exec rm {} +", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "trap 'rm -r src' EXIT", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "echo $(r\\m -r src)", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "echo $(r''m -r src)", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "echo $(r\\\nm -r src)", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "( ls # \\\nrm -r src )", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "( ls # \\\nr''m -r src )", No),
    // A deny rule sees what a command says openly.
    (BypassPermissions, Deny(&["Bash(rm *)"]), "{rm,-r,src}", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "coproc rm -r src", No),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "X=rm; $X -r src", No),
    (BypassPermissions, Deny(&["Read(.env)"]), "\"$X\" -r src", Yes),
    // And these run nothing that is denied.
    (BypassPermissions, Deny(&["Bash(rm *)"]), "for f in *.rs; do wc -l \"$f\"; done", Yes),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "timeout 60 cargo test $FLAGS", Yes),
    (BypassPermissions, Deny(&["Bash(rm *)"]), "[ -f x ] && echo \"$(date) $X\"", Yes),
    (BypassPermissions, Ask(&["Bash(git push *)"]), "git push", No),
    (BypassPermissions, Deny(&["Read(.env)"]), "cat .env", No),
    (BypassPermissions, Deny(&["Read(.env)"]), "sort < .env", No),
    (BypassPermissions, Deny(&["Edit(/src/**)"]), "echo x > src/a.rs", No),
    (Default, AllowDeny(&["Bash"], &["Bash(curl *)"]), "curl x.invalid", No),
    (Default, AllowDeny(&["Bash"], &["Bash(curl *)"]), "make", Yes),
    (Default, Deny(&["Bash"]), "ls", No),
    (BypassPermissions, Rules::None, "anything; at all", Yes),
    // What no rule allows.
    (BypassPermissions, Rules::None, "rm -rf /", No),
    (BypassPermissions, Rules::None, "rm -rf /usr", No),
    (BypassPermissions, Rules::None, "sudo rm -rf /*", No),
    (BypassPermissions, Rules::None, "rm -rf ~", No),
    (BypassPermissions, Rules::None, "rm -rf \"$X\"/*", No),
    (BypassPermissions, Rules::None, "rm -rf .", No),
    (BypassPermissions, Rules::None, "cd src && rm -rf ../..", No),
    (BypassPermissions, Rules::None, "sh -c 'rm -rf /'", No),
    (BypassPermissions, Rules::None, "if true; then rm -rf /; fi", No),
    (BypassPermissions, Rules::None, "time { rm -rf /; }", No),
    (BypassPermissions, Rules::None, "find . -maxdepth 0 -exec rm -rf / +", No),
    (BypassPermissions, Rules::None, "git commit -m 'rm -rf / is bad'", Yes),
    (Default, Allow(&["Bash"]), "echo $(rm -rf ..)", No),
    (BypassPermissions, Rules::None, "rm -rf src /tmp/x/y", Yes),
    // acceptEdits tidies inside the working directories.
    (AcceptEdits, Rules::None, "mkdir -p out && touch out/x && cp src/a.rs out/", Yes),
    (AcceptEdits, Rules::None, "rm src/a.rs", Yes),
    (AcceptEdits, Rules::None, "echo x > src/b.rs", Yes),
    (AcceptEdits, Rules::None, "sed -i s/x/y/ src/a.rs", Yes),
    (AcceptEdits, Rules::None, "sed -n -i s/x/y/ src/a.rs", Yes),
    // With another suffix, sed writes a second file.
    (AcceptEdits, Rules::None, "sed -i=.bak s/x/y/ src/a.rs", No),
    (AcceptEdits, Rules::None, "sed -i.bak s/x/y/ src/a.rs", No),
    (Default, Rules::None, "sed -i=.bak s/x/y/ src/a.rs", No),
    // Behind a command that may change the folder, a relative name has no known folder.
    (AcceptEdits, Allow(&["Bash(make *)"]), "make x > out", Yes),
    (AcceptEdits, Allow(&["Bash(make *)", "Bash(pushd *)"]), "pushd src; make x", Yes),
    (AcceptEdits, Allow(&["Bash(make *)", "Bash(pushd *)"]), "pushd src; make x > out", No),
    (AcceptEdits, Allow(&["Bash(make *)", "Bash(popd)"]), "popd && make x > out", No),
    (AcceptEdits, Allow(&["Bash(make *)", "Bash(eval *)"]), "eval 'cd src'; make x > out", No),
    (AcceptEdits, Allow(&["Bash(make *)", "Bash(. *)"]), ". ./env; make x > out", No),
    (AcceptEdits, Allow(&["Bash(make *)", "Bash(cd *)"]), "cd $X; make x > out", No),
    (AcceptEdits, Rules::None, "touch ../x", No),
    (AcceptEdits, Rules::None, "cp src/a.rs .git/hooks/pre-commit", No),
    (AcceptEdits, Rules::None, "cp -t/etc src/a.rs", No),
    (AcceptEdits, Rules::None, "echo x > ~/.bashrc", No),
    (AcceptEdits, Rules::None, "cargo test", No),
    (Default, Rules::None, "touch x", No),
];

#[test]
fn command_permissions_match_this_table() {
    assert!(COMMANDS.len() >= 60);
    // Rows with one mode and the same rules share a bench: what is only judged changes nothing.
    let (mut benches, mut wrong) = (Vec::<(&PermissionMode, &Rules, Bench)>::new(), Vec::new());
    for (row, (mode, rules, command, expected)) in COMMANDS.iter().enumerate() {
        let known = benches.iter().position(|(of, with, _)| (*of, *with) == (mode, rules));
        let at = known.unwrap_or(benches.len());
        if known.is_none() {
            benches.push((mode, rules, bench(*mode, *rules)));
        }
        let answer = answer(&benches[at].2, "Bash", json!({ "command": command }));
        if answer != Ok(*expected) {
            wrong.push(format!("row {row}, {mode:?}: `{command}` gives {answer:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

const FILES: &[(PermissionMode, Rules, &str, &str, Answer)] = &[
    (Default, Rules::None, "Read", "src/a.rs", Yes),
    (Default, Rules::None, "Read", "/etc/passwd", No),
    (Default, Rules::None, "Read", "../x", No),
    (Default, Rules::None, "Read", "src/../../x", No),
    (Default, Rules::None, "Read", "~/x", No),
    (Default, Rules::None, "Glob", "src", Yes),
    (Default, Rules::None, "Grep", "/etc", No),
    (Default, Allow(&["Read(//etc/**)"]), "Read", "/etc/passwd", Yes),
    (Default, Allow(&["Read(//etc/**)"]), "Grep", "/etc/apt", Yes),
    (Default, Allow(&["Read(~/notes/**)"]), "Read", "~/notes/a", Yes),
    // A folder is listed if a rule opens all that is in it.
    (Default, Allow(&["Read(//etc/**)"]), "Grep", "/etc", Yes),
    (Default, Allow(&["Grep(//etc/**)"]), "Grep", "/etc", Yes),
    (Default, Allow(&["Grep(//etc/**)"]), "Glob", "/etc", No),
    (Default, Allow(&["Read(//etc/apt/**)"]), "Grep", "/etc", No),
    (Default, Allow(&["Read(//etc/**/x)"]), "Grep", "/etc", No),
    (Default, Allow(&["Read(//etc/*.conf)"]), "Grep", "/etc", No),
    (Default, Allow(&["Edit(//etc/**)"]), "Grep", "/etc", No),
    (Default, AllowDeny(&["Read(//etc/**)"], &["Read(//etc)"]), "Grep", "/etc", No),
    (Default, Allow(&["Read"]), "Read", "/etc/passwd", Yes),
    (Default, Deny(&["Read(.env)"]), "Read", ".env", No),
    (Default, Deny(&["Read(.env)"]), "Read", "src/deep/.env", No),
    (Default, Deny(&["Read(./.env)"]), "Read", "src/.env", Yes),
    (Default, Deny(&["Read(src/**)"]), "Read", "src/a.rs", No),
    (Default, Deny(&["Read(src/**)"]), "Read", "lib/src/a.rs", No),
    (Default, Deny(&["Read(/src/**)"]), "Read", "lib/src/a.rs", Yes),
    // A path from the root may be meant by either.
    (BypassPermissions, Deny(&["Read(/etc/**)"]), "Read", "/etc/passwd", No),
    (BypassPermissions, Deny(&["Read(/etc/**)"]), "Read", "etc/passwd", No),
    (BypassPermissions, Deny(&["Read( /etc )"]), "Grep", "/etc", No),
    (BypassPermissions, Deny(&["Read(/*.key)"]), "Read", "/x.key", Yes),
    (BypassPermissions, Ask(&["Edit(/elsewhere/x)"]), "Write", "/elsewhere/x", No),
    (BypassPermissions, Deny(&["Edit(/elsewhere/x)"]), "Write", "/elsewhere/y", Yes),
    (Default, Allow(&["Read(/etc/**)"]), "Read", "/etc/passwd", No),
    (BypassPermissions, Deny(&["Read(.env)"]), "Write", ".env", No),
    (BypassPermissions, Deny(&["Read(.env)"]), "Edit", ".env", No),
    (BypassPermissions, Ask(&["Edit(*.lock)"]), "Write", "Cargo.lock", No),
    (BypassPermissions, Rules::None, "Read", "/etc/passwd", Yes),
    (BypassPermissions, Rules::None, "Write", "/elsewhere/x", Yes),
    (BypassPermissions, Rules::None, "Write", ".git/config", Yes),
    (Default, Rules::None, "Write", "src/b.rs", No),
    (DontAsk, Rules::None, "Edit", "src/a.rs", No),
    (AcceptEdits, Rules::None, "Write", "src/b.rs", Yes),
    (AcceptEdits, Rules::None, "Edit", "src/a.rs", Yes),
    (AcceptEdits, Rules::None, "Write", "new/deep/b.rs", Yes),
    (AcceptEdits, Rules::None, "Write", "../b.rs", No),
    (AcceptEdits, Rules::None, "Write", ".git/hooks/pre-commit", No),
    (AcceptEdits, Rules::None, "Write", ".GIT/config", No),
    (AcceptEdits, Rules::None, "Write", ".claude/settings.json", No),
    (AcceptEdits, Rules::None, "Write", "sub/.npmrc", No),
    (AcceptEdits, Deny(&["Edit(src/**)"]), "Write", "src/b.rs", No),
    (AcceptEdits, Deny(&["Edit"]), "Edit", "src/a.rs", No),
    (Plan, Allow(&["Edit"]), "Write", "src/b.rs", No),
    (Plan, Rules::None, "Read", "src/a.rs", Yes),
    (Default, Allow(&["Edit(src/**)"]), "Edit", "src/a.rs", Yes),
    (Default, Allow(&["Edit(src/**)"]), "Write", "src/b.rs", Yes),
    (Default, Allow(&["Edit(src/**)"]), "Write", "lib/src/b.rs", No),
    (Default, Allow(&["Edit(./src/*.rs)"]), "Write", "src/deep/b.rs", No),
    (Default, Allow(&["Edit"]), "Write", "src/b.rs", Yes),
    (Default, Allow(&["Edit"]), "Write", ".git/config", No),
    (Default, Allow(&["Write"]), "Edit", "src/a.rs", No),
    (Default, AllowDeny(&["Edit"], &["Edit(src/a.rs)"]), "Edit", "src/a.rs", No),
    // Brackets and braces are also letters of names.
    (Default, Deny(&["Read({{slug}}/**)"]), "Read", "{{slug}}/sub/f.py", No),
    (Default, Deny(&["Read({{slug}}/**)"]), "Read", "slug/f.py", No),
    (Default, Deny(&["Read(./{id}/x.py)"]), "Read", "{id}/x.py", No),
    (Default, Deny(&["Read({a,b}.ts)"]), "Read", "src/{a,b}.ts", No),
    (Default, Deny(&["Read({a,b}.ts)"]), "Read", "b.ts", No),
    (Default, Deny(&["Read([id]/{x,y}/**)"]), "Read", "[id]/{x,y}/f", No),
    (Default, Deny(&["Read([id]/{x,y}/**)"]), "Read", "[id]/y/f", No),
    (Default, Deny(&["Read([id]/{x,y}/**)"]), "Read", "d/{x,y}/f", No),
    (Default, Deny(&["Read(\\{id\\}/**)"]), "Read", "{id}/f", No),
    (Default, Deny(&["Read({id}/**)"]), "Read", "id2/f", Yes),
    (Default, Allow(&["Edit({{slug}}/**)"]), "Write", "{{slug}}/sub/b.rs", Yes),
    (Default, Allow(&["Edit({{slug}}/**)"]), "Write", "other/b.rs", No),
];

#[test]
fn file_permissions_match_this_table() {
    let mut wrong = Vec::new();
    for (row, (mode, rules, name, path, expected)) in FILES.iter().enumerate() {
        let input = match *name {
            "Read" => json!({ "file_path": path }),
            "Write" => json!({ "file_path": path, "content": "x" }),
            "Edit" => json!({ "file_path": path, "old_string": "x", "new_string": "y" }),
            _ => json!({ "pattern": "x", "path": path }),
        };
        let answer = answer(&bench(*mode, *rules), name, input);
        if answer != Ok(*expected) {
            wrong.push(format!("row {row}, {mode:?}: {name} {path} gives {answer:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
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
