//! Programs that only read the files they are given, so that these files may change during a run.
//!
//! The lists are of commands that certainly run none of their operands. All others may run them.

use super::code_programs::{DATA_PROGRAMS, SHELLS, is_interpreter, program_name, system_name};

/// Keywords and commands of shells without operands that are files.
const SHELL_WORDS: [&str; 9] =
    ["fi", "done", "exit", "return", "true", "false", ":", "read", "shift"];

/// Programs that read files, besides [`DATA_PROGRAMS`].
#[rustfmt::skip]
const READERS: &[&str] = &[
    "cat", "cksum", "cmp", "comm", "cp", "diff", "du", "file", "head", "ls", "md5sum", "nl", "od",
    "rg", "sha1sum", "sha256sum", "sha512sum", "shellcheck", "sort", "tail", "xxd",
];

/// Options with which one of them runs a program.
const RUNNING_OPTIONS: [&str; 4] = ["--compress-prog", "--pre", "--hostname-bin", "--search-zip"];

/// Programs that check, format or test the files they are given. Their options may name code.
#[rustfmt::skip]
const CHECKERS: &[&str] = &[
    "black", "eslint", "flake8", "isort", "jest", "mocha", "mypy", "phpstan", "phpunit", "prettier",
    "pylint", "pytest", "rspec", "rubocop", "ruff", "shfmt", "stylelint", "vitest",
];

/// Options of checkers without a value.
#[rustfmt::skip]
const CHECKER_FLAGS: &[&str] = &[
    "-q", "-qq", "-v", "-vv", "-x", "-s", "-w", "-l", "--check", "--diff", "--fix", "--list-different",
    "--no-cache", "--quiet", "--strict", "--verbose", "--write",
];

/// Commands of git that only read files.
const READING_GIT: [&str; 10] = [
    "blame",
    "cat-file",
    "check-ignore",
    "diff",
    "grep",
    "log",
    "ls-files",
    "rev-parse",
    "show",
    "status",
];

/// Options with which one of them runs a program.
const RUNNING_GIT_OPTIONS: [&str; 4] = ["-O", "--open-files", "--ext-diff", "--textconv"];

/// Modules of Python that check or test the files they are given.
const CHECKING_MODULES: [&str; 4] = ["compileall", "json.tool", "py_compile", "unittest"];

/// Options with which an interpreter only checks the syntax of files.
const SYNTAX_CHECKS: [(&[&str], &[&str]); 4] = [
    (&SHELLS, &["-n"]),
    (&["node", "nodejs"], &["-c", "--check"]),
    (&["ruby"], &["-c"]),
    (&["php"], &["-l", "--syntax-check"]),
];

/// Programs that run another one, and the word before its name.
const RUNNERS: [(&str, Option<&str>); 11] = [
    ("npx", None),
    ("pnpx", None),
    ("bunx", None),
    ("uvx", None),
    ("pnpm", Some("exec")),
    ("yarn", Some("run")),
    ("uv", Some("run")),
    ("poetry", Some("run")),
    ("pdm", Some("run")),
    ("hatch", Some("run")),
    ("bundle", Some("exec")),
];

/// Options of runners before the name that do not change what is run.
const RUNNER_FLAGS: [&str; 6] = ["-q", "-s", "-y", "--no-install", "--silent", "--yes"];

/// The indices of the operands of a command that may be executed. `None`: its program may execute
/// anything.
pub(super) fn executed_operands(program: &str, operands: &[&str]) -> Option<Vec<usize>> {
    let name = system_name(program)?;
    let has_option = |options: &[&str]| {
        operands.iter().any(|it| options.iter().any(|option| it.starts_with(option)))
    };
    let is_reader = match name {
        "set" => operands.iter().all(|it| it.starts_with(['-', '+'])),
        // Its commands `e`, `r` and `w` run, read and write other files.
        "sed" => {
            operands.iter().take(2).all(|it| !it.contains(['e', 'r', 'R', 'w', 'W', 'f', '\n']))
        }
        "awk" | "gawk" | "mawk" => {
            let runs = |it: &&str| it.contains(['|', '@']) || it.contains("system");
            !operands.iter().any(runs) && !has_option(&["-"])
        }
        "git" => {
            operands.first().is_some_and(|command| READING_GIT.contains(command))
                && !has_option(&RUNNING_GIT_OPTIONS)
        }
        _ if READERS.contains(&name) => !has_option(&RUNNING_OPTIONS),
        _ => SHELL_WORDS.contains(&name) || DATA_PROGRAMS.contains(&name),
    };
    if is_reader {
        return Some(Vec::new());
    }
    if CHECKERS.contains(&name) {
        return Some(values_of_options(operands));
    }
    if is_interpreter(&program_name(name)) {
        return executed_by_interpreter(&program_name(name), operands);
    }
    let (_, word) = RUNNERS.iter().find(|(runner, _)| *runner == name)?;
    let before = usize::from(word.is_some());
    if operands.first().copied().filter(|_| word.is_some()) != *word {
        return None;
    }
    let flags = operands[before..].iter().take_while(|it| RUNNER_FLAGS.contains(it)).count();
    let (program, rest) = operands[before + flags..].split_first()?;
    let executed = executed_operands(program, rest)?;
    Some(executed.into_iter().map(|index| index + before + flags + 1).collect())
}

fn executed_by_interpreter(name: &str, operands: &[&str]) -> Option<Vec<usize>> {
    let (first, rest) = operands.split_first()?;
    if SYNTAX_CHECKS.iter().any(|(names, flags)| names.contains(&name) && flags.contains(first)) {
        return Some(Vec::new());
    }
    let (module, rest) = rest.split_first()?;
    let is_python = ["python", "pypy"].contains(&name) && *first == "-m";
    let checks = CHECKING_MODULES.contains(module) || CHECKERS.contains(module);
    let values = (is_python && checks).then(|| values_of_options(rest))?;
    Some(values.into_iter().map(|index| index + 2).collect())
}

/// The indices of all options that may have a value, and of the operands that may be their values.
fn values_of_options(operands: &[&str]) -> Vec<usize> {
    let end = operands.iter().position(|it| *it == "--").unwrap_or(operands.len());
    let is_option = |index: usize| {
        let word = operands[index];
        index < end && word.starts_with('-') && !CHECKER_FLAGS.contains(&word)
    };
    let is_value =
        |index: usize| index > 0 && is_option(index - 1) && !operands[index - 1].contains('=');
    (0..operands.len()).filter(|index| is_option(*index) || is_value(*index)).collect()
}
