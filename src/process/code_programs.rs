//! Lists of programs by the code that they run, for checks of commands by the names in them.

/// Shells: the argument after their `-c` (or `-ec`) is a line of commands.
pub const SHELLS: [&str; 7] = ["ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"];

/// Programs besides shells that run the first file they are given, without versions (`python3.13`).
/// With another first argument, or none, they may take code from the working folder.
const INTERPRETERS: [&str; 14] = [
    "source", "eval", "fish", "python", "pypy", "node", "nodejs", "ruby", "perl", "php", "lua",
    "java", "pwsh", "tsx",
];

/// Programs that run code from the working folder or a cache (packages, build files), or commands in
/// files and in their input. The first operand may be a script.
#[rustfmt::skip]
pub(super) const RUNNERS: &[&str] = &[
    "npx", "npm", "pnpm", "pnpx", "yarn", "corepack", "bun", "bunx", "deno", "uv", "uvx", "pipx",
    "pip", "poetry", "pdm", "hatch", "rye", "tox", "nox", "cargo", "go", "make", "cmake", "ninja",
    "just", "task", "rake", "bundle", "gem", "mvn", "gradle", "dotnet", "composer", "mise",
    "lefthook", "husky", "lint-staged", "ts-node", "nx", "turbo", "invoke", "scons", "mix", "sbt",
    "Rscript", "parallel", "run-parts", "vi", "vim", "nvim", "ex", "ed", "emacs", "expect", "tclsh",
    "gdb", "lldb",
];

/// Programs that run code of the working folder (plugins, configuration, hooks of git, tests), and
/// whose operands are the files that they check.
#[rustfmt::skip]
pub(super) const CHECKERS: &[&str] = &[
    "git", "hg", "pytest", "jest", "vitest", "mocha", "rspec", "phpunit", "eslint", "prettier",
    "stylelint", "pre-commit", "commitlint", "gitleaks", "mypy", "pylint", "flake8", "rubocop",
    "phpstan",
];

/// Programs that only read or format their operands, besides [`DATA_PROGRAMS`]. What they print may
/// be run by another program.
#[rustfmt::skip]
pub(super) const READERS: &[&str] = &[
    "bat", "black", "cat", "cksum", "cmp", "comm", "cp", "diff", "du", "false", "file", "head",
    "isort", "ls", "md5sum", "nl", "od", "rg", "ruff", "sed", "sha1sum", "sha256sum", "sha512sum",
    "shellcheck", "shfmt", "sort", "tail", "true", "xxd",
];

/// Words after which a runner expects a program or a script.
pub(super) const RUN_SUBCOMMANDS: [&str; 5] = ["run", "exec", "x", "dlx", "tool"];

/// Programs that run their operands as a command.
#[rustfmt::skip]
pub const WRAPPERS: &[&str] = &[
    "builtin", "busybox", "chroot", "chrt", "command", "doas", "env", "eval", "exec", "fakeroot",
    "ionice", "ltrace", "nice", "nohup", "nsenter", "pkexec", "prlimit", "runuser", "setarch",
    "setpriv", "setsid", "stdbuf", "strace", "sudo", "systemd-run", "taskset", "time", "timeout",
    "unshare", "xargs", "xvfb-run",
];

/// Words that pass words of an input to the command after them.
pub(super) const FEEDERS: [&str; 5] = ["xargs", "-exec", "-execdir", "-ok", "-okdir"];

/// Programs that do not run their operands.
#[rustfmt::skip]
pub(super) const DATA_PROGRAMS: &[&str] = &[
    "[", "[[", "basename", "cd", "curl", "cut", "date", "dirname", "echo", "egrep", "fgrep", "grep",
    "jq", "logger", "mkdir", "notify-send", "printf", "stat", "tee", "test", "touch", "tr", "uniq",
    "wc",
];

/// Returns true if a program of this name runs the first file that it is given.
pub fn is_interpreter(name: &str) -> bool {
    SHELLS.contains(&name) || INTERPRETERS.contains(&name)
}

/// Returns true if the argument after this one is a line of commands for a shell.
pub(super) fn is_command_flag(flag: &str) -> bool {
    flag.starts_with('-') && !flag.starts_with("--") && flag.ends_with('c')
}

/// The name of a program, without its folder and version.
pub fn program_name(text: &str) -> String {
    let name = text.rsplit('/').next().unwrap_or_default();
    let plain = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    if plain.is_empty() { name.to_owned() } else { plain.to_owned() }
}
