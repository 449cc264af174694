//! Recognises programs that execute an argument, a variable or their input.
//!
//! The list cannot be complete, nor can a command that a program assembles at run time be found.
//! Commands that appear literally are found; the sandbox contains the rest.

use super::sed;
use super::splitter::{ShellWord, base_name};
use super::wrapper;

/// Programs whose arguments are, or contain, a command or a script.
#[rustfmt::skip]
const EXEC_PROGRAMS: &[&str] = &[
    "alias", "ash", "at", "awk", "batch", "bind", "bunx", "bwrap", "caffeinate", "capsh", "cgexec",
    "chpst",
    "chrt", "compgen", "complete", "cpulimit", "csh", "daemonize", "dbus-run-session", "direnv",
    "enable", "entr", "expect", "fakeroot", "fc", "firejail", "fish", "gawk", "gdb", "gosu",
    "hash", "hyperfine", "ld.so", "linux32", "linux64", "ltrace", "mapfile", "mawk", "mksh",
    "nawk", "newgrp", "nix-shell", "npx", "nsenter", "numactl", "perf", "pkexec", "prlimit",
    "proot", "readarray", "runuser", "screen", "script", "setarch", "setpriv", "sg", "socat",
    "ssh", "start-stop-daemon", "su", "su-exec", "systemd-run", "taskset", "tcsh", "tmux",
    "unbuffer", "uvx", "valgrind", "watchexec", "winpty", "wsl", "xvfb-run",
];

/// Programs that take a command in a word that begins like one of these.
#[rustfmt::skip]
const EXEC_FLAGS: &[(&[&str], &[&str])] = &[
    (&["bsdtar", "gtar", "tar"], &[
        "--to-c", "--checkpoint-a", "--use-c", "-I", "-F", "--info-s", "--new-v", "--rsh", "--rmt",
    ]),
    (&["env"], &["-S", "--split"]),
    (&["ex", "gvim", "nvim", "vi", "view", "vim", "vimdiff"], &["+", "-c", "--cmd", "-S", "-s"]),
    (&["emacs"], &["-eval", "--eval", "-f", "--fun", "-l", "--load"]),
    (&["fd", "fdfind"], &["-x", "-X", "--exec"]),
    (&["less", "more", "most"], &["+"]),
    (&["make", "gmake"], &["--eval", "-E", "SHELL=", "SHELL:", "SHELL?", "SHELL+", "MAKE="]),
    (&["man"], &["-P", "--pager", "-H", "--html"]),
    (&["nc", "ncat", "netcat"], &["-e", "-c", "--exec", "--sh-exec", "--lua-exec"]),
    (&["rg"], &["--pre", "--hostname-bin"]),
    (&["rsync"], &["-e", "--rsh", "--rsync-path"]),
    (&["scp", "sftp"], &["-S", "-o", "-D"]),
    (&["sort"], &["--com"]),
    (&["split"], &["--fi"]),
    (&["zip"], &["-TT", "--unzip"]),
];

/// One-letter flags of these programs that take a command, at any position in a bundle of flags.
const BUNDLED: &[(&str, char)] = &[("env", 'S'), ("rsync", 'e'), ("tar", 'I'), ("tar", 'F')];

/// Interpreters that take a program as an argument.
const LANGUAGES: &[&str] = &[
    "bun",
    "deno",
    "groovy",
    "lua",
    "node",
    "nodejs",
    "osascript",
    "perl",
    "php",
    "python",
    "ruby",
    "Rscript",
    "tclsh",
];

/// Programs that run another program named after one of these words; before it, the same words mean
/// something else.
const EXEC_KEYWORDS: &[(&[&str], &[&str])] = &[
    (&["docker", "podman", "nerdctl"], &["run", "exec"]),
    (&["kubectl", "oc"], &["run", "exec", "debug"]),
    (&["npm", "pnpm", "yarn"], &["exec", "dlx", "--"]),
    (&["bundle", "nix", "flatpak", "toolbox", "distrobox"], &["exec", "run", "enter", "shell"]),
    (&["pipenv", "pipx", "poetry", "uv"], &["run"]),
];

/// Settings of git that run nothing.
const GIT_HARMLESS: &[&str] = &[
    "advice.",
    "author.",
    "color.",
    "committer.",
    "commit.gpgsign",
    "core.autocrlf",
    "core.longpaths",
    "core.quotepath",
    "fetch.",
    "gc.",
    "init.",
    "log.",
    "protocol.version",
    "pull.",
    "push.",
    "safe.",
    "tag.gpgsign",
    "user.",
];

/// Variables that name a program which another program runs.
const VARIABLES: &[&str] = &[
    "BASH_ENV",
    "BROWSER",
    "CC",
    "CXX",
    "EDITOR",
    "ENV",
    "IFS",
    "LD_AUDIT",
    "LD_PRELOAD",
    "LESSCLOSE",
    "LESSOPEN",
    "MAKEFLAGS",
    "NODE_OPTIONS",
    "PAGER",
    "PERL5OPT",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "PYTHONSTARTUP",
    "SHELL",
    "TAR_OPTIONS",
    "VISUAL",
];

const VARIABLE_ENDS: &[&str] =
    &["_ASKPASS", "_COMMAND", "_EDITOR", "_LINKER", "_PAGER", "_RSH", "_RUNNER", "_WRAPPER"];

/// Whether the program that these words run may execute one of them, so that a command may begin
/// anywhere in any of them.
pub(super) fn may_execute_argument(words: &[ShellWord]) -> bool {
    if words.iter().filter_map(ShellWord::assigns).any(names_a_program) {
        return true;
    }
    let suspects = wrapper::candidate_offsets(words);
    if suspects.len() > 1 {
        // With many candidates, telling the flags of each apart would take too long.
        return words[suspects].iter().any(|word| {
            let is_bundle = word.plain.starts_with('-') && !word.plain.starts_with("--");
            let splits = is_bundle && word.plain.contains('S') || word.plain.starts_with("--split");
            splits || is_exec_program(base_name(&word.plain))
        });
    }
    let words = &words[suspects.start..];
    let Some((first, rest)) = words.split_first() else { return false };
    let name = base_name(&first.plain);
    EXEC_PROGRAMS.contains(&name)
        || name.starts_with("ld-linux")
        || is_language(name) && rest.iter().any(|word| is_program_flag(&word.plain))
        || matches!(name, "npm" | "pnpm") && rest.first().is_some_and(|word| word.plain == "x")
        || exec_keywords(name)
            .is_some_and(|after| rest.iter().any(|word| after.contains(&word.as_ref())))
        || !exec_args(words).is_empty()
        || name == "git" && rest.iter().any(|word| word.plain == "config")
}

/// Whether these words execute their input: a script, or arguments, that another part of the
/// command may write.
pub(super) fn may_read_a_script(words: &[ShellWord]) -> bool {
    let words = wrapper::inner_command(words, wrapper::IgnorableAssignments::All);
    let Some((first, rest)) = words.split_first() else { return false };
    let name = base_name(&first.plain);
    let is_substitution =
        |word: &ShellWord| word.raw.starts_with("<(") || word.plain == "/dev/stdin";
    match name {
        "." | "source" => rest.iter().any(is_substitution),
        "at" | "batch" | "crontab" | "parallel" => true,
        _ if wrapper::is_shell(name) || is_language(name) => {
            let mut given = rest.iter().filter(|word| !word.plain.starts_with('-'));
            given.clone().next().is_none()
                || given.any(is_substitution)
                || rest.iter().any(|word| matches!(word.plain.as_str(), "-s" | "-"))
        }
        _ => false,
    }
}

/// The arguments through which a program executes another one. A rule that allows the program does
/// not cover that.
pub(super) fn exec_args(words: &[ShellWord]) -> Vec<&ShellWord> {
    let Some((first, rest)) = words.split_first() else { return Vec::new() };
    let name = base_name(&first.plain);
    match name {
        "git" => return git_exec_args(rest),
        "sed" => {
            let is_odd = sed::sed_files(rest).is_none();
            return rest
                .iter()
                .filter(|word| is_odd && sed::may_run_command(&word.plain))
                .collect();
        }
        "awk" | "gawk" | "mawk" | "nawk" => {
            let signs = ["system", "getline", "| \"", "|\"", "|&"];
            let runs = |word: &&ShellWord| signs.iter().any(|sign| word.plain.contains(sign));
            return rest.iter().filter(runs).collect();
        }
        _ => {}
    }
    let named = EXEC_FLAGS.iter().find(|(names, _)| names.contains(&name));
    let flags = named.map_or(&[][..], |(_, flags)| flags);
    let bundled = |text: &str| {
        let is_bundle = text.starts_with('-') && !text.starts_with("--");
        BUNDLED.iter().any(|(of, flag)| *of == name && is_bundle && text.contains(*flag))
    };
    let opens = |word: &&ShellWord| {
        flags.iter().any(|flag| word.plain.starts_with(flag)) || bundled(&word.plain)
    };
    rest.iter().filter(opens).collect()
}

fn git_exec_args(rest: &[ShellWord]) -> Vec<&ShellWord> {
    let is_harmless = |word: &ShellWord| {
        let key = word.plain.to_ascii_lowercase();
        GIT_HARMLESS.iter().any(|harmless| key.starts_with(harmless))
    };
    let begins = [
        "--config-env",
        "--exec",
        "--extcmd",
        "--open-files",
        "--receive-pack",
        "--upload-pack",
        "-O",
        "ext::",
    ];
    let verb = rest.iter().position(|word| !word.plain.starts_with('-')).unwrap_or(rest.len());
    let mut doors = Vec::new();
    for (at, word) in rest.iter().enumerate() {
        let next = rest.get(at + 1);
        let opens = match word.plain.as_str() {
            "-c" => next.is_none_or(|setting| !is_harmless(setting)),
            "-x" => rest.iter().any(|word| matches!(word.plain.as_str(), "rebase" | "difftool")),
            "config" => {
                let said = rest[at + 1..].iter().filter(|word| !word.plain.starts_with('-'));
                let key = said.clone().find(|word| word.plain.contains('.'));
                key.is_some_and(|key| !is_harmless(key)) || rest.iter().any(|word| word.expands)
            }
            "filter-branch" => true,
            "run" => rest.iter().any(|word| word.plain == "bisect"),
            "foreach" => rest.iter().any(|word| word.plain == "submodule"),
            text => begins.iter().any(|begin| text.starts_with(begin)),
        };
        // A commit message or a file name executes nothing.
        let is_value = at > verb
            && word.plain.contains(char::is_whitespace)
            && !word.plain.starts_with(['-', 'e']);
        if opens && !is_value {
            doors.push(word);
        }
    }
    doors
}

fn is_exec_program(name: &str) -> bool {
    EXEC_PROGRAMS.contains(&name)
        || is_language(name)
        || exec_keywords(name).is_some()
        || matches!(name, "git" | "sed")
        || EXEC_FLAGS.iter().any(|(names, _)| names.contains(&name) && name != "env")
}

fn is_language(name: &str) -> bool {
    let bare = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    LANGUAGES.contains(&bare)
}

/// `-c`, `-e`, `-ne`, `--eval`: the program text follows, or is part of the flag.
fn is_program_flag(flag: &str) -> bool {
    let long = ["--eval", "--print", "--command", "--execute", "--run"];
    match flag.strip_prefix('-') {
        Some(letters) if !letters.starts_with('-') => letters.contains(['c', 'e', 'E', 'r', 'p']),
        Some(_) => long.iter().any(|long| flag.starts_with(long)),
        None => flag == "eval",
    }
}

fn exec_keywords(name: &str) -> Option<&'static [&'static str]> {
    EXEC_KEYWORDS.iter().find(|(names, _)| names.contains(&name)).map(|(_, words)| *words)
}

fn names_a_program(variable: &str) -> bool {
    VARIABLES.contains(&variable)
        || variable.starts_with("GIT_")
        || VARIABLE_ENDS.iter().any(|end| variable.ends_with(end))
}

/// Longer bundles of one-letter flags are not recognised.
const BUNDLE_MAX: usize = 4;

/// Offsets at which a command could begin in a text of any language: each word, and the text after
/// each punctuation mark. Each command extends to the end.
pub(super) fn command_offsets(text: &str) -> Vec<usize> {
    let mut found = vec![0];
    let signs = |letter: char| letter.is_whitespace() || "'\"`()[]{}<>;|&!=,:@+/$".contains(letter);
    found.extend(text.match_indices(signs).map(|(at, sign)| at + sign.len()));
    // The text right after one-letter flags is the value of the last one.
    let bytes = text.as_bytes();
    let is_flag = |at: &&usize| bytes.get(**at) == Some(&b'-');
    let values = |dash: &usize| {
        let flags = dash + 1..dash + 1 + BUNDLE_MAX;
        let letters = flags.take_while(|at| bytes.get(*at).is_some_and(u8::is_ascii_alphabetic));
        letters.map(|at| at + 1).collect::<Vec<_>>()
    };
    let values: Vec<usize> = found.iter().filter(is_flag).flat_map(values).collect();
    found.extend(values);
    found.sort_unstable();
    found
}

/// The texts between punctuation marks.
pub(super) fn snippets(text: &str) -> impl Iterator<Item = &str> {
    let signs = |letter: char| "'\"`()[]{}<>;|&!=,\n".contains(letter);
    text.split(signs).map(str::trim).filter(|snippet| !snippet.is_empty())
}
