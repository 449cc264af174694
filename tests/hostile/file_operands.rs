//! Files that a command reaches through folders and links: a folder stands for what is in it.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use outlast::process::LandlockSupport;
use outlast::tools::{PermissionMode, ToolSettings};
use serde_json::json;

use crate::tools::bench::{Bench, call, text};

/// A checkout with links to what is protected, denied and outside.
fn bench(arrange: impl FnOnce(&mut ToolSettings)) -> Bench {
    let bench = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::AcceptEdits;
        let denied = ["Edit(./keep.cfg)", "Edit(./made/k)", "Read(**/.env)"];
        settings.permissions.deny = denied.map(str::to_owned).to_vec();
        arrange(settings);
    });
    bench.file(".git/config", "kept\n");
    bench.file("keep.cfg", "kept\n");
    bench.file(".env", "hidden-value\n");
    bench.file("with/.env", "hidden-value\n");
    fs::write(bench.outside().join("file"), "kept\n").expect("a file");
    for name in ["config", "k", "b", "e"] {
        bench.file(&format!("conf/{name}"), "EVIL\n");
    }
    fs::create_dir(bench.cwd.join("d")).expect("a folder");
    for (name, to) in
        [("config", "../.git/config"), ("k", "../keep.cfg"), ("b", "../../file"), ("e", "../.env")]
    {
        symlink(to, bench.cwd.join("d").join(name)).expect("a link");
    }
    symlink("d", bench.cwd.join("l")).expect("a link");
    bench
}

#[tokio::test]
async fn links_in_a_folder_lead_no_command_to_what_is_protected_denied_or_outside() {
    for command in [
        "cp conf/config d",
        "cp conf/k d",
        "cp conf/b d",
        "cp conf/e d/",
        "cp conf/config conf/k d",
        "cp conf/config l",
        "cp -p conf/config ./d/.",
        "cp -r conf/. d",
        "cp -r conf/config conf/k d",
        "cp -a conf/* d",
        "mv conf/k d",
        "mv conf/config conf/b d",
        "cd conf && cp config ../d",
        "cd conf; cp k ../l",
        "mkdir x && cp conf/k x && cp conf/k d",
        "mkdir made && cp conf/k made",
        "mkdir -p made; mv conf/k made/",
        "touch x; cp conf/config d",
        "sed -i s/kept/EVIL/ d/k",
        "echo EVIL > d/k",
        "echo EVIL >> l/config",
        "touch d/b",
        "mv d/k k2 && echo EVIL > k2",
        "mv conf c2; cp c2/k d",
        "cp -r d q; cat q/e",
        "cp d/e q; cat q",
        "cp -r with q; cat q/.env",
        "mv with q; cat q/.env",
        "rm -r with",
        "rm keep.cfg",
    ] {
        let bench = bench(|_| {});
        let outcome = bench.bash(command).await;
        let later = bench.bash("cat q q/e q/.env").await;
        for shown in [text(&outcome), text(&later)] {
            assert!(!shown.contains("hidden-value"), "{command}: {shown}");
        }
        for name in [".git/config", "keep.cfg", "../file"] {
            assert_eq!(bench.content(name), "kept\n", "{command}: {name}");
        }
        assert_eq!(bench.content("with/.env"), "hidden-value\n", "{command}");
        assert!(!bench.cwd.join("made/k").exists(), "{command}");
    }
}

#[tokio::test]
async fn files_are_copied_moved_and_removed_where_nothing_is_in_the_way() {
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    for (command, made) in [
        ("cp conf/k n", "n"),
        ("mkdir -p new/deep && cp conf/k new/deep", "new/deep/k"),
        ("cp conf/k conf/b new2", ""),
        ("mkdir m; mv conf/k m/", "m/k"),
        ("mv conf/k conf/z", "conf/z"),
        ("cd conf && cp k z", "conf/z"),
        ("touch x && rm -r conf && ls", "x"),
        ("echo EVIL > conf/z", "conf/z"),
        ("sed -i s/EVIL/GOOD/ conf/k && rm conf/b", "conf/k"),
    ] {
        let bench = bench(|settings| settings.permissions.deny.clear());
        let outcome = bench.bash(command).await;
        let has_worked = !outcome.is_error && bench.cwd.join(made).is_file();
        assert!(has_worked || made.is_empty(), "{command}: {outcome:?}");
    }
}

/// A file that a rule hides is hidden in the history of the repository, too.
#[tokio::test]
async fn versions_that_git_keeps_are_hidden_like_the_file() {
    let ways: [fn(&mut ToolSettings); 3] = [
        |settings| settings.permissions.deny = vec!["Read(**/.env)".to_owned()],
        |settings| settings.permissions.ask = vec!["Read(./.env)".to_owned()],
        |settings| settings.sandbox.deny_read = vec![".env".to_owned()],
    ];
    for hide in ways {
        let bench = Bench::with(hide);
        let git = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).current_dir(&bench.cwd).env("HOME", bench.outside());
            for (name, value) in [("NAME", "A"), ("EMAIL", "a@example.org")] {
                shell.env(format!("GIT_AUTHOR_{name}"), value);
                shell.env(format!("GIT_COMMITTER_{name}"), value);
            }
            assert!(shell.status().expect("a shell").success());
        };
        git(
            "mkdir sub; git init -q && echo hidden-value > .env && echo x > sub/a && git add . && \
             git commit -qm one && echo y > .env && git commit -qam two && \
             echo hidden-value > .env && git add .env",
        );
        for command in [
            "git show HEAD~1:.env",
            "git show HEAD",
            "git show :.env",
            "git log -p",
            "git log --patch --all",
            "git log -u -1",
            "git log -L1,1:.env",
            "git reflog -p",
            "git cat-file -p HEAD~1:.env",
            "git cat-file blob :.env",
            "git grep value HEAD~1",
            "git grep --cached value",
            "git diff HEAD~1 HEAD",
            "git diff --cached",
            "git blame HEAD~1 -- .env",
            "git status -v",
            "git status --verbose",
            "git --no-pager show HEAD~1:.env",
            "cd sub && git show HEAD~1:.env",
            "git -C sub show HEAD~1:.env",
            "timeout 5 git -C . --no-pager show HEAD~1:.env",
            "git stash list -p",
        ] {
            let shown = text(&bench.bash(command).await);
            assert!(!shown.contains("hidden-value"), "{command}: {shown}");
        }
        for command in
            ["git status --short", "git log --oneline -5 --stat", "git ls-files", "git branch"]
        {
            let admitted = bench.toolbox.admit(&call("Bash", json!({ "command": command })));
            let is_held = LandlockSupport::probe().restricts_files();
            assert_eq!(admitted.is_ok(), is_held, "{command}: {admitted:?}");
        }
    }
}

/// A command swaps a link in while files are written.
#[tokio::test]
async fn a_link_that_is_swapped_in_takes_no_file_outside() {
    let bench = Bench::with(|settings| settings.permissions.mode = PermissionMode::AcceptEdits);
    let (there, other) = (bench.cwd.join("d"), bench.cwd.join("other"));
    let outside = bench.outside().join("notes");
    for folder in [&there, &outside] {
        fs::create_dir(folder).expect("a folder");
    }
    symlink(&outside, &other).expect("a link");
    let is_over = Arc::new(AtomicBool::new(false));
    let swap = {
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::Relaxed) {
                let exchange = RenameFlags::RENAME_EXCHANGE;
                renameat2(AT_FDCWD, &there, AT_FDCWD, &other, exchange).expect("both are there");
            }
        }
    };
    let swapper = std::thread::spawn(swap);
    for round in 0..200 {
        let path = bench.cwd.join(format!("d/sub{round}/deep/w"));
        bench.run("Write", json!({ "file_path": path, "content": "x" })).await;
    }
    is_over.store(true, Ordering::Relaxed);
    swapper.join().expect("it ends");
    assert_eq!(fs::read_dir(&outside).expect("a folder").count(), 0);
}
