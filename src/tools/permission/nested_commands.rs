//! Programs that run another program, which a deny rule may name.

use std::collections::BTreeSet;

use super::super::shell_lexer::{ShellWord, base_name};
use crate::process::{SHELLS, WRAPPERS};

/// Programs whose arguments contain a command, besides [`WRAPPERS`] and [`SHELLS`].
#[rustfmt::skip]
const CONTAINERS: [&str; 20] = [
    "capsh", "concurrently", "entr", "find", "fish", "flock", "gdb", "hyperfine", "nix-shell",
    "nodemon", "parallel", "perf", "screen", "script", "sg", "ssh", "su", "tmux", "trap", "watch",
];

/// Programs that run a command of a project, in a container or with secrets; the verbs behind which
/// they do, if they have any; and the number of operands before the command.
type Runner = (&'static [&'static str], &'static [&'static str], usize);

#[rustfmt::skip]
const RUNNERS: &[Runner] = &[
    (&["bunx", "cross-env", "npx", "pnpx", "uvx"], &[], 0),
    (&["dotenv"], &[], 1),
    (&["conda", "doppler", "dotenvx", "hatch", "infisical", "mamba", "micromamba", "op", "pdm",
        "pipenv", "pipx", "pixi", "poetry", "rye", "uv"], &["run"], 0),
    (&["asdf", "bundle", "mise", "npm", "pnpm", "pyenv", "rbenv", "yarn"], &["dlx", "exec", "x"], 0),
    (&["aws-vault", "chamber", "direnv"], &["exec"], 1),
    (&["docker", "docker-compose", "kubectl", "nerdctl", "oc", "podman"], &["exec", "run"], 1),
];

/// The maximum number of words of a runner in which its verb and its command are looked for.
const WORDS_MAX: usize = 128;

/// True for a shell that runs the commands of its input.
pub(super) fn runs_input(words: &[ShellWord]) -> bool {
    let Some((shell, flags)) = words.split_first() else { return false };
    let is_flag = |word: &ShellWord| word.plain.starts_with('-') && !word.plain.ends_with('c');
    SHELLS.contains(&base_name(&shell.plain)) && flags.iter().all(is_flag)
}

/// True if the arguments of a program are, or contain, a command.
pub(super) fn is_wrapper(program: &str) -> bool {
    let name = &base_name(program);
    CONTAINERS.contains(name) || WRAPPERS.contains(name) || SHELLS.contains(name)
}

/// The positions of the words at which a command may begin that a runner runs. Unknown flags may
/// take a value, so that there are several.
pub(super) fn nested_starts(words: &[ShellWord]) -> BTreeSet<usize> {
    let (mut starts, mut open) = (BTreeSet::new(), vec![0]);
    while let Some(at) = open.pop() {
        let found = starts_in_runner(&words[at..]).into_iter().map(|start| at + start);
        for start in found.filter(|start| *start < words.len()) {
            if starts.len() < WORDS_MAX && starts.insert(start) {
                open.push(start);
            }
        }
    }
    starts
}

fn starts_in_runner(words: &[ShellWord]) -> Vec<usize> {
    let texts: Vec<&str> = words.iter().map(|word| word.plain.as_str()).collect();
    let name = texts.first().map_or("", |first| base_name(first));
    let runner = RUNNERS.iter().find(|(names, ..)| names.contains(&name));
    let Some((_, verbs, operands)) = runner else { return Vec::new() };
    let verb = texts.iter().take(WORDS_MAX).position(|word| verbs.contains(word));
    let Some(begin) = verb.or(verbs.is_empty().then_some(0)).map(|at| at + 1) else {
        return Vec::new();
    };
    let end = texts.iter().skip(begin).position(|word| *word == "--").map(|at| begin + at);
    let mut starts: Vec<usize> = end.map(|end| end + 1).into_iter().collect();
    let (mut operands, mut may_be_value) = (*operands, false);
    for at in (begin..end.unwrap_or(texts.len())).take(WORDS_MAX) {
        starts.push(at);
        let is_flag = texts[at].starts_with('-');
        if !is_flag && !may_be_value && words[at].assigns().is_none() {
            if operands == 0 {
                break;
            }
            operands -= 1;
        }
        may_be_value = is_flag && !texts[at].contains('=');
    }
    starts
}
