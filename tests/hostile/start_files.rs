//! Files that other programs read and obey without being asked: `acceptEdits` does not change them.

use std::fs;
use std::os::unix::fs::symlink;

use outlast::tools::PermissionMode;
use serde_json::json;

use crate::tools::bench::{Bench, call};

#[rustfmt::skip]
const START_FILES: &[&str] = &[
    // Version control.
    ".git/hooks/pre-commit", ".git/config", ".git", "sub/.git/config", ".GIT/config", ".gitconfig",
    ".gitmodules", ".config/git/config", ".husky/pre-commit", ".githooks/pre-push",
    ".pre-commit-config.yaml", "lefthook.yml", "lefthook-local.toml", ".lintstagedrc.json",
    ".hg/hgrc", ".hgrc",
    // Shells.
    ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".zlogin", ".zsh/x.zsh", ".inputrc",
    ".config/fish/config.fish", ".envrc", "sub/.envrc", "mise.toml", ".mise.toml", ".tool-versions",
    ".tmux.conf", ".ssh/config", ".xprofile", ".config/autostart/x.desktop",
    ".config/systemd/user/x.service", ".local/bin/ls",
    // Editors, debuggers and agents.
    ".vscode/tasks.json", "x.code-workspace", ".idea/workspace.xml", ".vimrc", ".exrc", ".nvim.lua",
    ".dir-locals.el", ".emacs", ".gdbinit", ".lldbinit", ".helix/languages.toml",
    ".devcontainer/devcontainer.json", ".devcontainer.json", ".gitpod.yml", ".pythonrc.py",
    ".Rprofile", ".irbrc", ".claude/settings.json", ".outlast/settings.json", ".mcp.json",
    ".cursor/mcp.json",
    // Continuous integration.
    ".github/workflows/ci.yml", ".github/actions/x/action.yml", ".gitlab-ci.yml",
    ".circleci/config.yml", ".travis.yml", "azure-pipelines.yml", "bitbucket-pipelines.yml",
    "Jenkinsfile", ".drone.yml", ".woodpecker.yml", ".cirrus.yml", ".buildkite/pipeline.yml",
    "appveyor.yml", "cloudbuild.yaml", ".builds/x.yml",
    // Build tools.
    ".npmrc", ".yarnrc.yml", ".yarn/releases/yarn.cjs", ".pnpmfile.cjs", "bunfig.toml",
    ".cargo/config.toml", "rust-toolchain.toml", ".mvn/jvm.config", ".gradle/init.gradle",
    "gradle/wrapper/gradle-wrapper.properties", ".bazelrc", ".bundle/config", ".gemrc", "pip.conf",
    "venv/lib/python3/site-packages/x.pth", "sitecustomize.py", ".terraformrc",
];

#[rustfmt::skip]
const ORDINARY: &[&str] = &[
    "Makefile", "build.rs", "package.json", "src/main.rs", ".gitignore", ".gitattributes",
    ".editorconfig", ".env.example", ".github/ISSUE_TEMPLATE.md", ".github/CODEOWNERS", "head/x.tsx",
    "src/Head.tsx", "HEADER.md", "docs/profile.md", "config/git.md", "Dockerfile", "CLAUDE.md",
    "tests/github/workflows/x", "gradle/libs.versions.toml", ".rustfmt.toml", "misery.txt",
];

fn bench(rules: &[&str]) -> Bench {
    let bench = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::AcceptEdits;
        settings.permissions.allow = rules.iter().map(ToString::to_string).collect();
    });
    bench.file("a", "x\n");
    bench
}

/// Which of the ways to write a file are allowed.
fn ways(bench: &Bench, path: &str) -> Vec<&'static str> {
    let bash = |command: String| ("Bash", json!({ "command": command }));
    let ways = [
        ("Write", ("Write", json!({ "file_path": path, "content": "x" }))),
        ("Edit", ("Edit", json!({ "file_path": path, "old_string": "a", "new_string": "b" }))),
        ("NotebookEdit", ("NotebookEdit", json!({ "notebook_path": path, "new_source": "x" }))),
        ("cp", bash(format!("cp a {path}"))),
        ("mv", bash(format!("mv a {path}"))),
        ("redirection", bash(format!("echo x > {path}"))),
        ("sed", bash(format!("sed -i s/a/b/ {path}"))),
        ("touch", bash(format!("touch {path}"))),
    ];
    let is_allowed = |input: &(&str, serde_json::Value)| {
        bench.toolbox.admit(&call(input.0, input.1.clone())).is_ok()
    };
    ways.into_iter().filter(|(_, input)| is_allowed(input)).map(|(name, _)| name).collect()
}

#[test]
fn files_that_run_later_are_changed_in_no_way_and_ordinary_files_in_each() {
    let bench = bench(&[]);
    for path in START_FILES {
        assert_eq!(ways(&bench, path), [""; 0], "{path}");
        let within = format!("{}/{path}", bench.cwd.display());
        assert_eq!(ways(&bench, &within), [""; 0], "{within}");
    }
    for path in ORDINARY {
        let found = ways(&bench, path);
        assert!(found.contains(&"Write") && found.contains(&"Edit"), "{path}: {found:?}");
    }
}

#[test]
fn a_rule_that_names_such_a_file_lifts_the_protection_and_a_wide_rule_does_not() {
    for (rule, path, is_allowed) in [
        ("Edit(.github/workflows/**)", ".github/workflows/ci.yml", true),
        ("Edit(.github/workflows/ci.yml)", ".github/workflows/ci.yml", true),
        ("Edit(.github/workflows/ci.yml)", ".github/workflows/other.yml", false),
        ("Edit(.npmrc)", ".npmrc", true),
        ("Edit(.npmrc)", "sub/.npmrc", true),
        ("Edit(./.npmrc)", "sub/.npmrc", false),
        ("Write(.envrc)", ".envrc", true),
        ("Edit(./.vscode/*.json)", ".vscode/tasks.json", true),
        ("Edit(./.vscode/*.json)", ".idea/x.json", false),
        ("Edit(**)", ".npmrc", false),
        ("Edit(./**)", ".github/workflows/ci.yml", false),
        ("Edit(.github/**)", ".github/workflows/ci.yml", false),
        ("Edit", ".git/config", false),
        ("Read(.npmrc)", ".npmrc", false),
    ] {
        let bench = bench(&[rule]);
        let found = ways(&bench, path);
        assert_eq!(found.contains(&"Write"), is_allowed, "{rule}: {path}: {found:?}");
        assert_eq!(found.contains(&"redirection"), is_allowed, "{rule}: {path}: {found:?}");
    }
}

/// git takes any folder with a file `HEAD` for a repository, and obeys its configuration.
#[test]
fn no_git_folder_is_made_or_changed_under_another_name() {
    let bench = bench(&[]);
    bench.file("bare/HEAD", "ref: refs/heads/main\n");
    bench.file("bare/config", "x\n");
    bench.file("bare/sub/x", "x\n");
    bench.file("other/head", "x\n");
    symlink("bare", bench.cwd.join("alias")).expect("a link");
    for path in [
        "HEAD",
        "new/HEAD",
        "other/HEAD",
        "bare/HEAD",
        "bare/config",
        "bare/hooks/pre-commit",
        "bare/sub/x",
        "bare/refs/heads/main",
        "alias/config",
        "alias/sub/new",
    ] {
        assert_eq!(ways(&bench, path), [""; 0], "{path}");
    }
    for command in [
        "mv other/head other/HEAD",
        "cp a new/HEAD",
        "mkdir HEAD",
        "mkdir -p bare/objects",
        "cp bare/HEAD other",
        "cp -r bare other",
        "mv bare other",
        "cd other && cp head HEAD",
        "cd bare && touch config.worktree",
        "cp -r .git copy",
        "mv .git copy",
        "touch new; cp bare/HEAD other/",
    ] {
        assert!(!bench.admits(command), "{command}");
    }
    // The working directory may be in such a folder.
    fs::write(bench.cwd.join("HEAD"), "ref: refs/heads/main\n").expect("a file");
    assert!(ways(&bench, "src/x").contains(&"Write"));
}
