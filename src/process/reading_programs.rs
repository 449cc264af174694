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
    "sha1sum", "sha256sum", "sha512sum", "shellcheck", "tail", "xxd",
];

/// Options with which one of them runs a program.
const RUNNING_OPTIONS: [&str; 4] =
    ["--compress-program", "--pre", "--hostname-bin", "--search-zip"];

/// Programs that check, format or test the files they are given. Their options may name code.
#[rustfmt::skip]
const CHECKERS: &[&str] = &[
    "black", "eslint", "flake8", "isort", "jest", "mocha", "mypy", "phpstan", "phpunit", "prettier",
    "pylint", "pytest", "rspec", "rubocop", "ruff", "shfmt", "stylelint", "vitest",
];

/// Options of checkers without a value.
#[rustfmt::skip]
const CHECKER_FLAGS: &[&str] = &[
    "-q", "-qq", "-v", "-vv", "-x", "-s", "-w", "-l", "--check", "--fix", "--list-different",
    "--no-cache", "--quiet", "--strict", "--verbose", "--write",
];

/// Checkers with options of which one takes any number of values.
const WITH_LISTS: [&str; 3] = ["jest", "mocha", "vitest"];

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
const RUNNING_GIT_OPTIONS: [&str; 3] = ["--open-files-in-pager", "--ext-diff", "--textconv"];

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

/// The use that a listed command makes of the files it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// It reads its operands, whatever they are.
    Any,
    /// It reads its operands, as they stand on the line.
    AsWritten,
    /// It loads code: from these operands, and from files that it finds.
    LoadsCode { executed: Vec<usize> },
}

impl Reading {
    /// Recognizes a command that executes none of its operands but these. `None`: it may execute
    /// any of them.
    pub(super) fn of(program: &str, operands: &[&str]) -> Option<Self> {
        let name = system_name(program)?;
        let words = || operands.iter().filter(|it| it.starts_with('-'));
        let runs =
            |options: &[&str]| words().any(|it| options.iter().any(|one| is_short_for(it, one)));
        match name {
            "set" => {
                operands.iter().all(|it| it.starts_with(['-', '+'])).then_some(Self::AsWritten)
            }
            "sed" => {
                let is_known = words().all(|it| ["-n", "-E", "-r"].contains(it));
                let mut others = operands.iter().filter(|it| !it.starts_with('-'));
                // The commands `e`, `r` and `w` run, read and write other files.
                let script = others.next()?;
                let only_prints = !script.contains(['e', 'r', 'R', 'w', 'W', '\n']);
                (is_known && only_prints).then_some(Self::AsWritten)
            }
            "awk" | "gawk" | "mawk" => {
                let may_run = |it: &&str| it.contains(['|', '@']) || it.contains("system");
                let only_reads = !operands.iter().any(may_run) && words().next().is_none();
                only_reads.then_some(Self::AsWritten)
            }
            "git" => {
                let is_reading = READING_GIT.contains(operands.first()?);
                let opens = |it: &&str| !it.starts_with("--") && it.contains('O');
                let only_reads = is_reading && !runs(&RUNNING_GIT_OPTIONS) && !words().any(opens);
                only_reads.then_some(Self::AsWritten)
            }
            "rg" | "sort" => (!runs(&RUNNING_OPTIONS)).then_some(Self::AsWritten),
            _ if READERS.contains(&name) => Some(Self::Any),
            _ if SHELL_WORDS.contains(&name) || DATA_PROGRAMS.contains(&name) => Some(Self::Any),
            _ => Self::of_checker(&program_name(name), operands)
                .or_else(|| Self::of_runner(name, operands)),
        }
    }

    fn of_checker(name: &str, operands: &[&str]) -> Option<Self> {
        if is_interpreter(name) {
            return Self::of_interpreter(name, operands);
        }
        let executed = CHECKERS.contains(&name).then(|| values_of_options(operands))?;
        let is_certain = executed.is_empty() || !WITH_LISTS.contains(&name);
        is_certain.then_some(Self::LoadsCode { executed })
    }

    fn of_interpreter(name: &str, operands: &[&str]) -> Option<Self> {
        let (first, rest) = operands.split_first()?;
        let is_option = |it: &&str| it.starts_with(['-', '+']);
        let checks =
            |(names, flags): &(&[&str], &[&str])| names.contains(&name) && flags.contains(first);
        if SYNTAX_CHECKS.iter().any(checks) {
            let executed = Vec::new();
            return (!rest.iter().any(is_option)).then_some(Self::LoadsCode { executed });
        }
        let (module, rest) = rest.split_first()?;
        let is_python = ["python", "pypy"].contains(&name) && *first == "-m";
        let is_checking = CHECKING_MODULES.contains(module) || CHECKERS.contains(module);
        let values = (is_python && is_checking).then(|| values_of_options(rest))?;
        Some(Self::LoadsCode { executed: values.into_iter().map(|index| index + 2).collect() })
    }

    fn of_runner(name: &str, operands: &[&str]) -> Option<Self> {
        let (_, word) = RUNNERS.iter().find(|(runner, _)| *runner == name)?;
        let before = usize::from(word.is_some());
        if operands.first().copied().filter(|_| word.is_some()) != *word {
            return None;
        }
        let flags = operands[before..].iter().take_while(|it| RUNNER_FLAGS.contains(it)).count();
        let (program, rest) = operands[before + flags..].split_first()?;
        // Some runners remove it, and a script of the project may have any other name.
        if rest.contains(&"--") || program.contains('/') {
            return None;
        }
        let Self::LoadsCode { executed } = Self::of_checker(&program_name(program), rest)? else {
            return None;
        };
        let executed = executed.into_iter().map(|index| index + before + flags + 1).collect();
        Some(Self::LoadsCode { executed })
    }
}

/// Returns true if a word may stand for a long option, which may be abbreviated.
fn is_short_for(word: &str, option: &str) -> bool {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    name.starts_with(option) || name.len() > "--".len() && option.starts_with(name)
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
