//! Lists of programs by the code that they run, for checks of commands by the names in them.

/// Shells: the argument after their `-c` (or `-ec`) is a line of commands.
pub const SHELLS: [&str; 7] = ["ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"];

/// Programs besides shells that run the first file they are given, without versions (`python3.13`).
/// With another first argument, or none, they may take code from the working folder.
const INTERPRETERS: [&str; 14] = [
    "source", "eval", "fish", "python", "pypy", "node", "nodejs", "ruby", "perl", "php", "lua",
    "java", "pwsh", "tsx",
];

/// Programs that run code from the working folder or a cache (packages, build files, hooks of git),
/// or commands in files and in their input.
#[rustfmt::skip]
pub(super) const RUNNERS: &[&str] = &[
    "npx", "npm", "pnpm", "pnpx", "yarn", "corepack", "bun", "bunx", "deno", "uv", "uvx", "pipx",
    "pip", "poetry", "pdm", "hatch", "rye", "tox", "nox", "pytest", "cargo", "go", "make", "cmake",
    "ninja", "just", "task", "rake", "bundle", "gem", "mvn", "gradle", "dotnet", "composer",
    "eslint", "prettier", "mise", "pre-commit", "lefthook", "git", "hg", "husky", "lint-staged",
    "commitlint", "gitleaks", "jest", "vitest", "mocha", "stylelint", "ts-node", "nx", "turbo",
    "mypy", "pylint", "flake8", "invoke", "scons", "rubocop", "rspec", "phpunit", "phpstan", "mix",
    "sbt", "Rscript", "parallel", "run-parts", "vi", "vim", "nvim", "ex", "ed", "emacs", "expect",
    "tclsh", "gdb", "lldb",
];

/// Programs that run their operands as a command.
#[rustfmt::skip]
pub const WRAPPERS: &[&str] = &[
    "builtin", "busybox", "catchsegv", "choom", "chpst", "chroot", "chrt", "command", "cpulimit",
    "dbus-run-session", "doas", "dumb-init", "env", "eval", "exec", "fakeroot", "faketime", "gosu",
    "ionice", "linux32", "linux64", "ltrace", "nice", "nohup", "nsenter", "numactl", "pkexec",
    "prlimit", "proxychains", "proxychains4", "rlwrap", "runuser", "s6-setuidgid", "setarch",
    "setpriv", "setsid", "stdbuf", "strace", "su-exec", "sudo", "systemd-run", "taskset", "time",
    "timeout", "tini", "torify", "torsocks", "unbuffer", "unshare", "valgrind", "with-contenv",
    "xargs", "xvfb-run",
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

/// The name of a program that is found on the `PATH` or in the folders of the system. `None` for one
/// in another folder, whose name says nothing about it.
pub(super) fn system_name(program: &str) -> Option<&str> {
    let folders = ["/usr/bin/", "/bin/"];
    let name = folders.iter().find_map(|folder| program.strip_prefix(folder)).unwrap_or(program);
    (!name.contains('/')).then_some(name)
}
