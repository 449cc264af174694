//! The flags of the command line that a session does not keep, so that the command that resumes it
//! has to repeat them.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

use crate::config::flags::SettingFlags;
use crate::secrets::Redactor;
use crate::text::quoted_word;

/// The flags without a setting, each with true if it takes a value. Flags that a session keeps,
/// that name the session or its folder, or that only change the output are not among them.
const FLAGS: [(&str, bool); 21] = [
    ("settings", true),
    ("managed-settings", true),
    ("setting-sources", true),
    ("bare", false),
    ("safe-mode", false),
    ("restricted", false),
    ("trust-project", false),
    ("no-memory", false),
    ("system-prompt", true),
    ("system-prompt-file", true),
    ("append-system-prompt", true),
    ("append-system-prompt-file", true),
    ("append-subagent-system-prompt", true),
    ("agents", true),
    ("disable-slash-commands", false),
    ("plugin-dir", true),
    ("plugin-dir-no-mcp", true),
    ("mcp-config", true),
    ("strict-mcp-config", false),
    ("permission-prompts", true),
    ("ca-file", true),
];

/// The flags that were given and that a session does not keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenFlags(Vec<GivenFlag>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct GivenFlag {
    /// Without the dashes.
    name: &'static str,
    /// `None`: the flag takes no value.
    value: Option<String>,
}

impl GivenFlags {
    /// Returns the flags as a part of a command line for a shell, each after a blank. Flags whose
    /// value contains a secret are left out.
    pub fn as_command_line(&self, redactor: &Redactor) -> String {
        let printable = self.0.iter().filter(|flag| !flag.is_secret(redactor));
        printable.flat_map(|flag| [" ".to_owned(), flag.word()]).collect()
    }

    /// Warns that the command line for resuming the session lacks flags that contain a secret.
    pub fn loss_warning(&self, redactor: &Redactor) -> Option<String> {
        let lost = names(self.0.iter().filter(|flag| flag.is_secret(redactor)));
        let lost = Some(lost).filter(|lost| !lost.is_empty())?.join(", ");
        Some(format!("the command to go on lacks {lost}, which holds a secret: give it again"))
    }

    /// Returns the values of `--settings`: names of files, or JSON.
    pub fn settings(&self) -> impl Iterator<Item = &str> {
        let given = self.0.iter().filter(|flag| flag.name == "settings");
        given.filter_map(|flag| flag.value.as_deref())
    }

    /// Returns the names of the flags without a setting, each once, with their dashes: they give
    /// the run instructions, guards and tools, while the others mostly tune it.
    pub fn names_without_setting(&self) -> Vec<String> {
        let lacks_setting = |flag: &&GivenFlag| FLAGS.iter().any(|(name, _)| *name == flag.name);
        names(self.0.iter().filter(lacks_setting))
    }
}

fn names<'a>(flags: impl Iterator<Item = &'a GivenFlag>) -> Vec<String> {
    let mut names: Vec<String> = flags.map(|flag| format!("--{}", flag.name)).collect();
    names.dedup();
    names
}

impl GivenFlag {
    fn is_secret(&self, redactor: &Redactor) -> bool {
        self.value.as_ref().is_some_and(|value| redactor.redact(value) != *value)
    }

    fn word(&self) -> String {
        match &self.value {
            Some(value) => format!("--{}={}", self.name, quoted_word(value)),
            None => format!("--{}", self.name),
        }
    }
}

impl Args for GivenFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for GivenFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut given = Vec::new();
        for (name, has_value) in FLAGS {
            let id = name.replace('-', "_");
            let values = matches.try_get_raw(&id).ok().flatten();
            let Some(values) = values else { continue };
            if matches.value_source(&id) != Some(ValueSource::CommandLine) {
                continue;
            }
            if has_value {
                given.extend(values.map(|value| {
                    let value = Some(value.to_string_lossy().into_owned());
                    GivenFlag { name, value }
                }));
            } else {
                given.push(GivenFlag { name, value: None });
            }
        }
        let of_settings = SettingFlags::from_arg_matches(matches)?;
        given.extend(
            of_settings.not_kept().into_iter().map(|(name, value)| GivenFlag { name, value }),
        );
        Ok(Self(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{CliRequest, parse};
    use crate::secrets::KnownSecrets;

    fn given(words: &[&str]) -> GivenFlags {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let parsed = parse(&words);
        let Ok(CliRequest::Run(args)) = parsed else { panic!("{words:?}: {:?}", parsed.err()) };
        args.given
    }

    #[test]
    fn flags_that_a_session_does_not_keep_are_repeated() {
        let redactor = Redactor::new(KnownSecrets::new(["hunter2-hunter2"]));
        let rows: [(&[&str], &str); 10] = [
            (&["go"], ""),
            (&["--settings", r#"{"env": {}}"#, "go"], r#" --settings='{"env": {}}'"#),
            (
                &["--mcp-config", "a.json", "--mcp-config", "b.json", "go"],
                " --mcp-config=a.json --mcp-config=b.json",
            ),
            (&["--effort", "high", "--bare", "go"], " --bare --effort=high"),
            (
                &["--plugin-dir-no-mcp", "b", "--plugin-dir", "a", "go"],
                " --plugin-dir=a --plugin-dir-no-mcp=b",
            ),
            (&["--betas", "x", "--betas", "y z", "go"], " --betas=x --betas='y z'"),
            // Terms of the contract, the session itself, and the output.
            (&["--max-turns", "3", "--model", "m", "--allowed-tools", "Read", "--", "go"], ""),
            (&["--resume", "ID", "--name", "n", "--output-format", "json", "-C", "/srv"], ""),
            (
                &["--dangerously-skip-permissions", "--no-shared-limits", "go"],
                " --no-shared-limits",
            ),
            (&["--system-prompt", "Say hunter2-hunter2", "--bare", "go"], " --bare"),
        ];
        for (words, line) in rows {
            assert_eq!(given(words).as_command_line(&redactor), line, "{words:?}");
        }
        let flags = given(&["--system-prompt", "Say hunter2-hunter2", "--bare", "go"]);
        let warning = flags.loss_warning(&redactor).expect("a loss");
        assert!(warning.contains("--system-prompt") && !warning.contains("bare"), "{warning}");
        assert_eq!(given(&["--bare", "go"]).loss_warning(&redactor), None);
        let flags = given(&["--system-prompt", "Hm.", "--bare", "--max-retries=1", "go"]);
        assert_eq!(flags.names_without_setting(), ["--bare", "--system-prompt"]);
    }

    #[test]
    fn every_flag_of_the_table_exists() {
        let command = crate::cli::args::command();
        for (name, has_value) in FLAGS {
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name));
            let arg = arg.unwrap_or_else(|| panic!("--{name}"));
            assert_eq!(arg.get_action().takes_values(), has_value, "--{name}");
            assert_eq!(arg.get_id().as_str(), name.replace('-', "_"));
        }
    }
}
