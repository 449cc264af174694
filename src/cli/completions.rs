//! `outlast completions`: scripts with which a shell requests completions from outlast, and the
//! answers to these requests.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Arg, Command, ValueEnum, ValueHint};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::config::{environment, registry};
use crate::journal::{ListScope, SessionFolder, list_sessions};
use crate::messages::result_fields;
use crate::model;
use crate::process::spawn_detached;
use crate::rehearsal;

use super::args::{self, CompletionShell};
use super::manual;
use super::settings;

/// The variable that names the shell that requests completions. The scripts set it, not the user.
const SHELL_VARIABLE: &str = "OUTLAST_COMPLETE";
/// The program, as users call it.
const PROGRAM: &str = "outlast";
/// The time limit of reading the settings for the names of servers.
const SURVEY_MAX: Duration = Duration::from_secs(2);
/// The maximum number of sessions that are offered, the last used first.
const SESSIONS_MAX: usize = 50;

/// The variable in which bash and zsh give the position of the word that is completed.
const INDEX_VARIABLE: &str = "_CLAP_COMPLETE_INDEX";

/// Lets bash quote completions if all of them are paths: otherwise bash would insert blanks
/// unquoted. Removes the backslashes that bash has added to the word. Since bash completes only the
/// text after the `=` of `--flag=value`, the value is completed as that of `--flag value`.
const BASH_PATHS: &str = r#"
_outlast_complete() {
    local word="${2//\\/}" at=$COMP_CWORD candidate
    [[ ${COMP_WORDS[at]} == = ]] || at=$((at - 1))
    if [[ $at -ge 2 && ${COMP_WORDS[at]} == = && ${COMP_WORDS[at - 1]} == --* ]]; then
        COMP_WORDS=("${COMP_WORDS[@]:0:at}" "$word")
        COMP_CWORD=$at
    fi
    _clap_complete_outlast "$1" "$word" "$3"
    [[ ${#COMPREPLY[@]} -gt 0 ]] || return 0
    for candidate in "${COMPREPLY[@]}"; do
        [[ -e ${candidate/#\~\//$HOME/} ]] || return 0
    done
    COMPREPLY=("${COMPREPLY[@]%/}")
    compopt -o filenames +o nospace 2> /dev/null
}
if [[ ${BASH_VERSINFO[0]} -eq 4 && ${BASH_VERSINFO[1]} -ge 4 || ${BASH_VERSINFO[0]} -gt 4 ]]; then
    complete -o nospace -o bashdefault -o nosort -F _outlast_complete outlast
else
    complete -o nospace -o bashdefault -F _outlast_complete outlast
fi
"#;

/// Returns the script for a shell.
pub(super) fn script(shell: CompletionShell) -> String {
    let mut bytes = Vec::new();
    let written =
        completer(shell).write_registration(SHELL_VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut bytes);
    written.expect("a vector takes all that is written to it");
    let script = String::from_utf8_lossy(&bytes).into_owned();
    match shell {
        CompletionShell::Bash => script + BASH_PATHS,
        CompletionShell::Fish => script,
        // In a file of $fpath, the script is executed by the first completion, which needs its
        // answer.
        CompletionShell::Zsh => {
            script + "[[ $funcstack[1] = _outlast ]] && _clap_dynamic_completer_outlast \"$@\"\n"
        }
    }
}

/// Answers the script of a shell. `None`: the process was not started by such a script.
pub(super) fn answer() -> Option<io::Result<()>> {
    let name = env::var_os(SHELL_VARIABLE)?;
    let shell =
        CompletionShell::value_variants().iter().find(|shell| completer(**shell).name() == name)?;
    let mut words = env::args_os().skip(1);
    if words.next()? != "--" {
        return None;
    }
    Some(write_answer(*shell, words.collect()))
}

fn write_answer(shell: CompletionShell, words: Vec<OsString>) -> io::Result<()> {
    let words = as_words_of_run(words);
    let is_new = words.last().is_none_or(|word| word.is_empty());
    let mut cli = with_values(args::command());
    if is_new {
        cli = without_options_beside_commands(cli);
    }
    let (mut answer, cwd) = (Vec::new(), env::current_dir().ok());
    // The completion engine returns an error if nothing fits.
    if completer(shell).write_complete(&mut cli, words, cwd.as_deref(), &mut answer).is_ok() {
        io::stdout().write_all(&answer)?;
    }
    Ok(())
}

/// Rewrites the words to those of `outlast run` if the completed word follows the `--` of a command
/// that takes flags of a run there. The number of words stays the same, because the shell gives the
/// position of the completed word.
fn as_words_of_run(mut words: Vec<OsString>) -> Vec<OsString> {
    let index = env::var(INDEX_VARIABLE).ok().and_then(|text| text.parse().ok());
    let index = index.unwrap_or(words.len().saturating_sub(1));
    let before = words.get(1..index).unwrap_or_default();
    let Some(end) = before.iter().position(|word| word == "--") else { return words };
    let before: Vec<String> =
        before[..end].iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if !args::takes_run_flags(&before) {
        return words;
    }
    words[1] = "run".into();
    for word in &mut words[2..=end + 1] {
        // A switch that has no effect on the completions.
        *word = "--verbose".into();
    }
    words
}

fn completer(shell: CompletionShell) -> &'static dyn EnvCompleter {
    match shell {
        CompletionShell::Bash => &Bash,
        CompletionShell::Zsh => &Zsh,
        CompletionShell::Fish => &Fish,
    }
}

/// Hides options where a command may follow. They are offered once a dash is typed.
fn without_options_beside_commands(command: Command) -> Command {
    let has_commands = command.get_subcommands().any(|inner| !inner.is_hide_set());
    let command = if has_commands {
        command.mut_args(|arg| if arg.is_positional() { arg } else { arg.hide(true) })
    } else {
        command
    };
    command.mut_subcommands(without_options_beside_commands)
}

/// Adds the values that are suggested for an argument. Other values are allowed too.
fn with_values(command: Command) -> Command {
    command
        .mut_args(|arg| match arg.get_id().as_str() {
            "resume" | "from" | "sessions" => arg.add(ArgValueCandidates::new(sessions)),
            "id" if arg.is_positional() => arg.add(ArgValueCandidates::new(sessions)),
            "model" | "fallback-model" => {
                arg.add(ArgValueCandidates::new(|| candidates(model::known_names())))
            }
            "server" if arg.is_positional() => arg.add(ArgValueCandidates::new(servers)),
            "key" => arg.add(ArgValueCandidates::new(|| candidates(registry::names()))),
            "scenario" => arg.add(ArgValueCompleter::new(scenarios)),
            "topic" => arg.add(ArgValueCandidates::new(help_topics)),
            "output_fields" => arg.add(ArgValueCandidates::new(|| candidates(result_fields()))),
            _other if placeholders(&arg).eq(["DIR"]) => arg.value_hint(ValueHint::DirPath),
            _other if takes_path(&arg) => arg.value_hint(ValueHint::AnyPath),
            _other => arg,
        })
        .mut_subcommands(with_values)
}

/// Returns true if an argument may be a path, by the placeholders in its help. Its type does not
/// show it, as many such arguments accept other texts too.
fn takes_path(arg: &Arg) -> bool {
    placeholders(arg).any(|form| ["PATH", "FILE", "DIR"].contains(&form))
}

fn placeholders(arg: &Arg) -> impl Iterator<Item = &str> {
    let names = arg.get_value_names().into_iter().flatten();
    names.flat_map(|name| name.split('|'))
}

fn candidates(names: impl IntoIterator<Item = impl Into<OsString>>) -> Vec<CompletionCandidate> {
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn help_topics() -> Vec<CompletionCandidate> {
    let commands = ["config", "doctor", "run"];
    candidates(manual::topic_names().into_iter().chain(commands))
}

fn scenarios(beginning: &OsStr) -> Vec<CompletionCandidate> {
    let text = beginning.to_string_lossy();
    let built_in = rehearsal::names().filter(|name| name.starts_with(&*text));
    let files = PathCompleter::file().complete(beginning);
    built_in.map(CompletionCandidate::new).chain(files).collect()
}

/// Returns the sessions of the working folder.
fn sessions() -> Vec<CompletionCandidate> {
    let Ok(cwd) = env::current_dir() else { return Vec::new() };
    let place = SessionFolder::new(&environment::config_dir(&env::vars_os().collect()), &cwd);
    let ids = list_sessions(&place, ListScope::Project).into_iter().take(SESSIONS_MAX);
    ids.enumerate()
        .map(|(order, file)| CompletionCandidate::new(file.id.as_str()).display_order(Some(order)))
        .collect()
}

/// Returns the MCP servers that a run would have.
fn servers() -> Vec<CompletionCandidate> {
    let (send, surveyed) = mpsc::channel();
    // The shell must not wait for a file that never ends, such as a pipe.
    let _ = spawn_detached(thread::Builder::new(), move || {
        let (Ok(args), Ok(cwd)) = (args::run_flags(&[]), env::current_dir()) else { return };
        let survey = settings::survey(&args, &env::vars_os().collect(), &cwd);
        let names = survey.servers.into_iter().map(|server| server.name);
        // The shell may not wait any more.
        let _ = send.send(names.collect::<Vec<_>>());
    });
    candidates(surveyed.recv_timeout(SURVEY_MAX).unwrap_or_default())
}
