//! Paths that decide what other programs run: files that take effect automatically, when a shell or
//! an editor starts, a folder is entered, a commit is made or a push is built.

use std::fs;
use std::path::{Path, PathBuf};

/// The most entries of one folder that are looked at below a folder to be removed.
const ENTRIES_MAX: usize = 1_000;

/// Folders of version control. One of these holds the history of the folder around it.
const REPOSITORIES: [&str; 4] = [".git", ".hg", ".jj", ".svn"];

/// Folders whose contents decide what other programs run.
#[rustfmt::skip]
const PROTECTED_FOLDERS: &[&str] = &[
    // Version control, and its hooks.
    ".git", ".githooks", ".git-hooks", ".husky", ".hg", ".jj", ".svn",
    // Editors and environments of development.
    ".vscode", ".vscode-server", ".idea", ".vs", ".fleet", ".zed", ".helix", ".vim", ".nvim",
    ".emacs.d", ".doom.d", ".devcontainer", ".codesandbox", ".idx", ".theia",
    // Agents.
    ".claude", ".outlast", ".codex", ".cursor", ".gemini", ".windsurf", ".continue", ".kiro",
    ".opencode", ".roo", ".qwen", ".amazonq", ".augment", ".junie", ".crush", ".kilocode",
    ".clinerules", ".factory", ".trae",
    // Continuous integration.
    ".circleci", ".buildkite", ".woodpecker", ".semaphore", ".teamcity", ".tekton", ".harness",
    ".builds", ".azure-pipelines", ".azuredevops", ".gitlab", ".gitea", ".forgejo", ".cirrus",
    ".zuul.d", "bamboo-specs",
    // Build tools and package managers.
    ".cargo", ".yarn", ".mvn", ".m2", ".gradle", ".bundle", ".swiftpm", ".pip", ".terraform",
    ".terraform.d", "site-packages", "dist-packages", ".direnv", ".mise", ".devenv", ".ipython", ".jupyter",
    // The home folder.
    ".ssh", ".gnupg", ".aws", ".kube", ".oh-my-zsh", ".zsh", ".zfunc", ".bashrc.d", ".profile.d",
];

/// Folders that are protected only in one parent folder: pairs of parent and folder.
#[rustfmt::skip]
const PROTECTED_PAIRS: &[(&str, &str)] = &[
    (".github", "workflows"), (".github", "actions"), ("gradle", "wrapper"), (".local", "bin"),
    (".config", "git"), (".config", "fish"), (".config", "nvim"), (".config", "systemd"),
    (".config", "autostart"), (".config", "environment.d"), (".config", "mise"),
    (".config", "direnv"), (".config", "tmux"), (".config", "zsh"), (".config", "nushell"),
    (".config", "powershell"), (".config", "helix"), (".config", "emacs"), (".config", "pip"),
    (".config", "code"), (".config", "i3"), (".config", "sway"), (".config", "hypr"),
    (".config", "kitty"), (".julia", "config"), (".docker", "cli-plugins"),
];

/// Prefixes of protected file names. Any ending may follow: `.lintstagedrc.json`.
#[rustfmt::skip]
const PROTECTED_FILES: &[&str] = &[
    // Shells and programs that run in them.
    ".bash", ".zsh", ".zlog", ".zprofile", ".profile", ".kshrc", ".mkshrc", ".shrc", ".cshrc",
    ".tcshrc", ".login", ".logout", ".inputrc", ".xprofile", ".xinitrc", ".xsession", ".xserverrc",
    ".pam_environment", ".forward", ".envrc", ".autoenv", ".tmux", ".screenrc",
    ".tool-versions", "mise.", ".mise", ".rtx.", "devenv.",
    // Editors, debuggers and interpreters.
    ".vimrc", ".gvimrc", ".nvimrc", ".nvim.lua", ".exrc", ".lvimrc", ".emacs", ".dir-locals",
    ".spacemacs", ".kakrc", ".gdbinit", ".lldbinit", ".pdbrc", ".pythonrc", ".rprofile", ".irbrc",
    ".pryrc", ".iex.exs", ".ghci", ".sqliterc", ".psqlrc", "sitecustomize.py", "usercustomize.py",
    ".gitpod", ".replit", ".devcontainer.json", ".stackblitzrc",
    // Version control, and its hooks.
    ".gitconfig", ".gitmodules", ".hgrc", ".pre-commit-", "lefthook", ".lefthook", ".huskyrc",
    ".overcommit", ".simple-git-hooks", "simple-git-hooks", ".lintstagedrc", "lint-staged.config",
    // Agents.
    ".mcp.json", "opencode.json", "crush.json", ".crush.json",
    // Continuous integration.
    ".gitlab-ci", ".travis.", "appveyor.", ".appveyor.", "azure-pipelines", "bitbucket-pipelines",
    "jenkinsfile", ".drone.", ".woodpecker.", ".cirrus.", ".build.yml", ".zuul.", "cloudbuild.",
    "buildspec.", "codemagic.", "wercker.", ".semaphore", "netlify.toml",
    // Build tools and package managers.
    ".npmrc", ".yarnrc", ".pnpmfile", "pnpmfile.", ".bunfig.", "bunfig.", ".bazelrc", ".buckconfig",
    ".gemrc", ".condarc", ".pypirc", "pip.conf", ".netrc", ".curlrc", ".wgetrc", ".terraformrc",
    ".sbtopts", ".jvmopts", "rust-toolchain", "ansible.cfg", ".ansible.cfg", ".rspec",
];

/// True if a change to this path could make another program run code. Only the part of a path below
/// `cwd` counts, if it is there.
pub(super) fn is_protected(path: &Path, cwd: &Path) -> bool {
    let below = path.strip_prefix(cwd).unwrap_or(path);
    let names: Vec<String> =
        below.iter().map(|part| part.to_string_lossy().to_ascii_lowercase()).collect();
    let mut pairs = names.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str()));
    let is_file = |name: &String| {
        name.ends_with(".code-workspace") || PROTECTED_FILES.iter().any(|it| name.starts_with(it))
    };
    names.iter().any(|name| PROTECTED_FOLDERS.contains(&name.as_str()))
        || pairs.any(|pair| PROTECTED_PAIRS.contains(&pair))
        || names.last().is_some_and(is_file)
        || is_in_git_folder(path, cwd)
}

/// Finds what must not be removed with a folder: a protected path in it, and a repository or a
/// protected pair one folder deeper. Not deeper, where builds keep clones of their own. Installed
/// packages have settings of their authors, which take no effect.
pub(super) fn protected_below(folder: &Path, cwd: &Path) -> Option<PathBuf> {
    if folder.file_name().is_some_and(|name| name == "node_modules") {
        return None;
    }
    let found = |path: &PathBuf| is_protected(path, cwd);
    let inner = |path: PathBuf| {
        let is_kept = |below: &PathBuf| {
            let name = below.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
            REPOSITORIES.contains(&name.as_str()) || is_pair(&path, &name)
        };
        entries(&path).find(is_kept)
    };
    entries(folder).find(found).or_else(|| entries(folder).find_map(inner))
}

/// True if a folder and a name in it are a protected pair.
fn is_pair(folder: &Path, name: &str) -> bool {
    let above = folder.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    PROTECTED_PAIRS.contains(&(above.as_str(), name))
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    // A link is removed, and not what is behind it.
    let listed = (!folder.is_symlink()).then(|| fs::read_dir(folder).ok()).flatten();
    listed.into_iter().flatten().flatten().map(|entry| entry.path()).take(ENTRIES_MAX)
}

/// True if a path is in a folder that git treats as a repository: in `.git`, or in another folder
/// below `cwd` with a file `HEAD`, whatever its name.
fn is_in_git_folder(path: &Path, cwd: &Path) -> bool {
    let mut within = path.ancestors().take_while(|folder| !cwd.starts_with(folder));
    path.iter().any(|part| part == ".git")
        || path.file_name().is_some_and(|name| name == "HEAD")
        || within.any(|folder| folder.join("HEAD").is_file())
}
