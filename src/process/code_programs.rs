//! The programs that run files which they are given, or find.

/// Shells: the argument after their `-c` (or `-ec`) is a line of commands.
pub(super) const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];

/// Programs that run the first file they are given, without versions (`python3.13`). With another
/// first argument, or none, they may take code from the working folder.
pub const INTERPRETERS: [&str; 20] = [
    "source", "eval", "sh", "bash", "dash", "ash", "ksh", "zsh", "fish", "python", "pypy", "node",
    "nodejs", "ruby", "perl", "php", "lua", "java", "pwsh", "tsx",
];

/// Programs that run code from the working folder or a cache: packages, build files, hooks of git.
pub(super) const RUNNERS: [&str; 64] = [
    "npx",
    "npm",
    "pnpm",
    "pnpx",
    "yarn",
    "corepack",
    "bun",
    "bunx",
    "deno",
    "uv",
    "uvx",
    "pipx",
    "pip",
    "poetry",
    "pdm",
    "hatch",
    "rye",
    "tox",
    "nox",
    "pytest",
    "cargo",
    "go",
    "make",
    "cmake",
    "ninja",
    "just",
    "task",
    "rake",
    "bundle",
    "gem",
    "mvn",
    "gradle",
    "dotnet",
    "composer",
    "eslint",
    "prettier",
    "mise",
    "pre-commit",
    "lefthook",
    "git",
    "hg",
    "husky",
    "lint-staged",
    "commitlint",
    "gitleaks",
    "jest",
    "vitest",
    "mocha",
    "stylelint",
    "ts-node",
    "nx",
    "turbo",
    "mypy",
    "pylint",
    "flake8",
    "invoke",
    "scons",
    "rubocop",
    "rspec",
    "phpunit",
    "phpstan",
    "mix",
    "sbt",
    "Rscript",
];

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
