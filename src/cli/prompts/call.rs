//! Expands a prompt that begins with the name of a command.

use std::path::Path;

use super::commands::is_name;
use super::fill::{ExpansionTooLong, Placeholders, fill, holds_commands, words};
use super::library::{PromptCommand, PromptLibrary, RequestedSettings, names_skill};
use crate::cli::usage::UsageError;
use crate::config::repository::IgnoredSetting;
use crate::mcp::{ServerConfig, call_prefixes};
use crate::tools::{RuleList, check_rule};
use strsim::osa_distance;

/// Built-in commands of interactive tools, which have no meaning in an unattended run, each with
/// the replacement for it.
const INTERACTIVE_COMMANDS: [(&str, &str); 34] = [
    ("add-dir", "use --add-dir"),
    ("agents", "outlast agents lists them"),
    ("bug", "outlast doctor tells what is wrong here"),
    ("clear", "each run begins a new conversation unless --continue or --resume is given"),
    ("code-review", "ask for the review in words, such as: Review the changes of git diff main"),
    (
        "compact",
        "outlast summarises a conversation by itself when it gets long; see --no-auto-compact and \
         the setting compactAt",
    ),
    ("config", "use outlast config, and settings files"),
    ("context", "the result has the tokens of the run"),
    ("cost", "the result has total_cost_usd; outlast report sums sessions up"),
    ("doctor", "use outlast doctor"),
    ("effort", "use --effort"),
    ("exit", "a run ends by itself"),
    ("export", "use outlast sessions export"),
    ("help", "use outlast help"),
    ("hooks", "outlast config get hooks prints them; see outlast-hooks(7)"),
    ("init", "ask for it in words: Write a CLAUDE.md that describes this repository"),
    ("install-github-app", "see outlast-ci(7)"),
    ("login", "set ANTHROPIC_API_KEY, or ANTHROPIC_AUTH_TOKEN, or apiKeyHelper in the settings"),
    ("logout", "unset the variable of the credential; outlast auth status names it"),
    ("mcp", "outlast mcp list lists the servers; see outlast-mcp(7)"),
    ("memory", "edit CLAUDE.md; the init message names the files that were read"),
    ("model", "use --model"),
    ("permissions", "use --allowed-tools, --disallowed-tools and the settings"),
    ("plugin", "use --plugin-dir and the setting enabledPlugins; outlast plugin list lists them"),
    ("pr-comments", "ask for them in words, and allow Bash(gh *)"),
    ("release-notes", "see CHANGELOG.md of outlast"),
    ("rename", "use --name when a run is started or resumed"),
    ("resume", "use --resume; outlast sessions lists the sessions"),
    ("review", "ask for the review in words, such as: Review the changes of git diff main"),
    ("rewind", "use --resume with --resume-session-at, and git"),
    ("security-review", "ask for it in words, such as: Review git diff main for security"),
    ("status", "use outlast doctor"),
    ("terminal-setup", "outlast needs no terminal"),
    ("usage", "the result has the usage of the run; outlast report sums sessions up"),
];

/// Maximum number of names that an error lists.
const NAMES_MAX: usize = 5;

/// A prompt with its command expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct ExpandedCommand {
    /// The expanded prompt.
    pub(in crate::cli) prompt: String,
    pub(in crate::cli) requested: RequestedSettings,
    /// The file that defines the command, for messages.
    pub(in crate::cli) file: String,
    /// Warnings about parts without effect.
    pub(in crate::cli) warnings: Vec<String>,
}

impl ExpandedCommand {
    /// Expands a prompt that calls a command. `None`: it is an ordinary prompt.
    ///
    /// # Errors
    /// It looks like a call, and there is no such command.
    pub(in crate::cli) fn expand(
        prompt: &str,
        library: &PromptLibrary,
        placeholders: Placeholders<'_>,
    ) -> Result<Option<Self>, UsageError> {
        let call = name_of(prompt).filter(|_| library.accepts_calls);
        let Some((name, arguments)) = call else { return Ok(None) };
        match find(name, library) {
            Some(command) => expand_command(command, arguments, placeholders).map(Some),
            None if is_path_or_number(name) => Ok(None),
            None => Err(UsageError::new(unknown(name, library))),
        }
    }

    /// Removes invalid permission rules, with a warning each.
    pub(in crate::cli) fn with_valid_rules(mut self, cwd: &Path, home: Option<&Path>) -> Self {
        let RequestedSettings { grants, denials, .. } = &mut self.requested;
        for (field, rules) in [("allowed-tools", grants), ("disallowed-tools", denials)] {
            rules.retain(|rule| match check_rule(rule, RuleList::Deny, cwd, home) {
                Ok(()) => true,
                Err(why) => {
                    let file = &self.file;
                    let what = format!("{file}: {field}: {rule:.200?} has no effect: {why}");
                    self.warnings.push(what);
                    false
                }
            });
        }
        self
    }
}

/// A prompt that calls a prompt of an MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct ServerPromptCall {
    /// The call as the user wrote it.
    pub(in crate::cli) text: String,
    /// The name of the server.
    pub(in crate::cli) server: String,
    /// The name of the command.
    pub(in crate::cli) command: String,
    /// The arguments.
    pub(in crate::cli) words: Vec<String>,
    /// The lines after the call, such as standard input. They are added after the text of the
    /// prompt.
    pub(in crate::cli) rest: String,
}

impl ServerPromptCall {
    /// Parses a prompt that calls a prompt of one of these servers.
    pub(in crate::cli) fn parse(
        prompt: &str,
        library: &PromptLibrary,
        servers: &[ServerConfig],
    ) -> Option<Self> {
        let (command, arguments) = name_of(prompt).filter(|_| library.accepts_calls)?;
        let is_called = |server: &&ServerConfig| {
            call_prefixes(&server.name).iter().any(|prefix| command.starts_with(prefix))
        };
        let (arguments, rest) = match prompt.trim_start().split_once('\n') {
            Some((call, rest)) => {
                (call.split_once(char::is_whitespace).unwrap_or_default().1, rest)
            }
            None => (arguments, ""),
        };
        // The longest name wins, as with servers named `a` and `a__b`; among equals, an enabled
        // server.
        let rank = |server: &&ServerConfig| (server.name.len(), !server.disabled);
        let server = servers.iter().filter(is_called).max_by_key(rank)?;
        Some(Self {
            text: prompt.to_owned(),
            server: server.name.clone(),
            command: command.to_owned(),
            words: words(arguments),
            rest: rest.to_owned(),
        })
    }
}

/// Splits a prompt into the name after the leading slash and the arguments.
fn name_of(prompt: &str) -> Option<(&str, &str)> {
    let rest = prompt.trim_start().strip_prefix('/')?;
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (name, arguments) = rest.split_at(end);
    is_name(name).then(|| (name, arguments.trim()))
}

/// Returns true if a name is probably not a command, but a path (`/tmp is full`), a file name or a
/// number.
fn is_path_or_number(name: &str) -> bool {
    !name.starts_with(char::is_alphabetic)
        || name.contains('.')
        || Path::new("/").join(name).symlink_metadata().is_ok()
}

/// Finds the command with this name, or else the one whose name without its folders is this one.
fn find<'a>(name: &str, library: &'a PromptLibrary) -> Option<&'a PromptCommand> {
    let last = |command: &PromptCommand| command.name.rsplit(':').next() == Some(name);
    let best = |fits: &dyn Fn(&PromptCommand) -> bool| {
        let fitting = library.callable().filter(|command| fits(command));
        fitting.min_by_key(|command| (command.rank, command.kind))
    };
    best(&|command| command.name == name).or_else(|| best(&last))
}

fn expand_command(
    command: &PromptCommand,
    arguments: &str,
    placeholders: Placeholders<'_>,
) -> Result<ExpandedCommand, UsageError> {
    let folder = command.path.parent().unwrap_or(Path::new("/")).display().to_string();
    let names = &command.arguments;
    let placeholders = Placeholders { folder: &folder, names, ..placeholders };
    let mut prompt = fill(&command.body, arguments, placeholders).map_err(|ExpansionTooLong| {
        UsageError::new(format!(
            "/{}: its text becomes longer than 12 MB with these arguments; name a file in the \
             prompt instead",
            command.name
        ))
    })?;
    let mut warnings = Vec::new();
    if command.kind == super::CommandKind::Skill {
        prompt = format!("{prompt}\n\n(The files that go with these instructions: {folder})");
    }
    if holds_commands(&command.body) {
        warnings.push(format!(
            "{}: commands like !`this`, or in blocks that begin with ```!, are not run before the model \
             reads them; it may run them",
            command.file
        ));
        prompt += "\n\n(Where this text has !`a command`, or a block that begins with ```!, it has not \
                   been run. Run those whose output you need.)";
    }
    if !command.without_effect.is_empty() {
        warnings.push(format!(
            "{}: {}: not supported for {}s by this version of outlast, no effect",
            command.file,
            command.without_effect.join(", "),
            command.kind.into_str()
        ));
    }
    let requested = command.requested.clone();
    if let Some(IgnoredSetting { file, why, .. }) = requested.withheld.first() {
        let fields = requested.withheld.iter().filter_map(|one| one.key.as_deref());
        let fields = fields.collect::<Vec<_>>().join(" and ");
        warnings.push(format!("{file}: {fields} ignored, {why}; see outlast-security(7)"));
    }
    Ok(ExpandedCommand { prompt, requested, file: command.file.clone(), warnings })
}

fn unknown(name: &str, library: &PromptLibrary) -> String {
    if library.denied.iter().any(|denied| names_skill(name, denied)) {
        return format!("/{name}: a deny rule forbids this skill; take the rule out to use it");
    }
    if let Some((_, hint)) = INTERACTIVE_COMMANDS.iter().find(|(known, _)| *known == name) {
        return format!("/{name} is for interactive use, and outlast does not have it: {hint}");
    }
    let mut near: Vec<(usize, &str)> = library
        .callable()
        .map(|command| (osa_distance(name, &command.name), command.name.as_str()))
        .collect();
    near.sort_unstable();
    near.dedup_by_key(|(_, name)| *name);
    let names: Vec<String> =
        near.iter().take(NAMES_MAX).map(|(_, name)| format!("/{name}")).collect();
    let candidates = match near.first() {
        None => "there are no commands here".to_owned(),
        Some((far, nearest)) if *far <= nearest.chars().count() / 3 => {
            format!("did you mean /{nearest}?")
        }
        Some(_) if near.len() > NAMES_MAX => {
            format!("the nearest of {} are {}", near.len(), names.join(", "))
        }
        Some(_) => format!("there are {}", names.join(", ")),
    };
    format!(
        "unknown command /{name}: {candidates} (if it is not a command, begin with another word, or \
         add --disable-slash-commands){}",
        library.left_out()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_slash_and_a_name_call_a_command() {
        for (prompt, expected) in [
            ("/review", Some(("review", ""))),
            ("  /git:commit  all of it\nnow ", Some(("git:commit", "all of it\nnow"))),
            ("/etc/hosts is wrong", None),
            ("/ is the root", None),
            ("//comment", None),
            ("/* comment */", None),
            ("/^x/ does not match", None),
            ("see /review", None),
            ("/-x", None),
            ("/~user", None),
            ("", None),
        ] {
            assert_eq!(name_of(prompt), expected, "{prompt:?}");
        }
        for (name, expected) in
            [("tmp", true), ("2", true), ("a.txt", true), ("no-such-thing", false)]
        {
            assert_eq!(is_path_or_number(name), expected, "{name}");
        }
    }
}
