//! Credentials of programs: which variables and login files belong to which program. Pure.
//!
//! One table serves the environment of commands, their sandbox and the notes about withheld
//! credentials. A permission rule that allows a program passes the program's own credentials to
//! lines that consist of such programs.

mod table;

use super::shell_lexer::{self, ShellWord, base_name};
use super::shell_wrappers::inner_command;

pub(super) use table::CREDENTIALS;

/// The credentials of a program, or of several programs that share them.
#[derive(Debug)]
pub(super) struct CredentialSet {
    /// The names of the programs. Empty for credentials that do not belong to a command.
    pub(super) programs: &'static [&'static str],
    /// The subcommands that use the credentials.
    verbs: Verbs,
    /// The variables that hold them: names, or prefixes followed by `*`.
    variables: &'static [&'static str],
    /// Login files and folders: `~/` begins in the home folder, `@config/` in `XDG_CONFIG_HOME`,
    /// `@data/`, `@cache/` and `@runtime/` likewise, `$NAME` is the path in a variable.
    pub(super) places: &'static [&'static str],
    /// The folders among them that the programs also write to.
    pub(super) state: &'static [&'static str],
}

/// The subcommands of a program that use its credentials. Others may run code of the checkout.
#[derive(Debug)]
enum Verbs {
    All,
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

/// Secrets in files that no program of the table owns.
pub(super) static UNOWNED_SECRETS: CredentialSet =
    CredentialSet { programs: &[], verbs: Verbs::All, variables: &[], places: &[], state: &[] };

impl CredentialSet {
    /// The name in notes and rules.
    pub(super) fn name(&self) -> Option<&'static str> {
        self.programs.first().copied()
    }

    /// True if a variable holds one of these credentials, or names a file with one.
    pub(super) fn has_variable(&self, name: &str) -> bool {
        let names_file = |place: &str| {
            let variable = place.strip_prefix('$').and_then(|rest| rest.split('/').next());
            variable == Some(name)
        };
        let is_match = |variable: &str| match variable.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == variable,
        };
        self.variables.iter().any(|variable| is_match(variable))
            || self.places.iter().any(|place| names_file(place))
    }

    /// True if a simple command uses these credentials.
    fn is_used_by(&self, words: &[ShellWord]) -> bool {
        let Some((first, arguments)) = words.split_first() else { return false };
        let name = program_name(&first.plain);
        if !first.is_literal() || !name.is_some_and(|name| self.programs.contains(&name)) {
            return false;
        }
        match self.verbs {
            Verbs::All => true,
            Verbs::Only(verbs) => verb(arguments).is_some_and(|verb| verbs.contains(&verb)),
            Verbs::AllBut(verbs) => arguments
                .iter()
                .all(|word| word.is_literal() && !verbs.contains(&word.plain.as_str())),
        }
    }
}

/// The credentials that a simple command uses.
pub(super) fn used_by(words: &[ShellWord]) -> impl Iterator<Item = &'static CredentialSet> {
    CREDENTIALS.iter().filter(move |set| set.is_used_by(words))
}

/// The credentials that a line of commands uses, judged by its words: a program may be named within
/// `sh -c`, too.
pub(super) fn used_in(line: &str) -> Vec<&'static CredentialSet> {
    let parts = shell_lexer::split(line).unwrap_or_default();
    let is_part = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    let is_named = |set: &CredentialSet| {
        line.split(|letter| !is_part(letter)).any(|word| set.programs.contains(&word))
    };
    let is_used = |set: &CredentialSet| {
        parts.iter().any(|part| set.is_used_by(inner_command(&part.words)))
            || matches!(set.verbs, Verbs::All) && is_named(set)
    };
    CREDENTIALS.iter().filter(|set| is_used(set)).collect()
}

/// The program whose rule passes a variable to commands.
pub(super) fn owner_of(variable: &str) -> Option<&'static str> {
    CREDENTIALS.iter().filter(|set| set.has_variable(variable)).find_map(CredentialSet::name)
}

/// Returns the name of a program that is given by its name or absolute path. `None` for a relative
/// path, which names a file of the checkout.
pub(super) fn program_name(word: &str) -> Option<&str> {
    (word.starts_with('/') || !word.contains('/')).then(|| base_name(word))
}

/// Returns the first word that is neither a flag nor the value of a flag before the subcommand.
fn verb(arguments: &[ShellWord]) -> Option<&str> {
    const WITH_VALUE: [&str; 8] = [
        "-C",
        "-c",
        "--git-dir",
        "--work-tree",
        "--namespace",
        "--prefix",
        "--registry",
        "--config",
    ];
    let mut words = arguments.iter();
    while let Some(word) = words.next().filter(|word| word.is_literal()) {
        if WITH_VALUE.contains(&word.plain.as_str()) {
            words.next().filter(|value| value.is_literal())?;
        } else if !word.plain.starts_with(['-', '+']) {
            return Some(&word.plain);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(line: &str) -> Vec<&'static str> {
        let Ok(parts) = shell_lexer::split(line) else { return Vec::new() };
        used_by(&parts[0].words).filter_map(CredentialSet::name).collect()
    }

    #[test]
    fn a_command_uses_the_credentials_of_its_program_with_subcommands_that_need_them() {
        for (line, used) in [
            ("gh pr create", &["gh"][..]),
            ("/usr/bin/gh api user", &["gh"]),
            ("git push origin main", &["git"]),
            ("git -C sub -c a=b push", &["git"]),
            ("git commit -m push", &[]),
            ("git -C push status", &[]),
            ("npm publish", &["npm"]),
            ("npm ci", &["npm"]),
            ("npm --prefix sub test", &[]),
            ("npm run publish", &[]),
            ("yarn build", &[]),
            ("cargo publish -p x", &["cargo"]),
            ("cargo +nightly publish", &["cargo"]),
            ("cargo test publish", &[]),
            ("pip install x", &["pip"]),
            ("uv run install", &[]),
            ("uv --directory x run y", &[]),
            ("uv $VERB", &[]),
            ("aws s3 ls", &["aws"]),
            ("kubectl get pods", &["kubectl"]),
            ("terraform plan", &["terraform"]),
            ("ssh host", &["ssh"]),
            ("ghx", &[]),
            ("./gh pr list", &[]),
            ("bin/gh pr list", &[]),
            ("echo gh", &[]),
            ("$gh x", &[]),
        ] {
            assert_eq!(sets(line), used, "{line}");
        }
    }

    #[test]
    fn variables_belong_to_programs() {
        for (variable, owner) in [
            ("GH_TOKEN", Some("gh")),
            ("CARGO_REGISTRIES_CORP_TOKEN", Some("cargo")),
            ("NODE_AUTH_TOKEN", Some("npm")),
            ("AWS_SECRET_ACCESS_KEY", Some("aws")),
            ("TF_TOKEN_app_terraform_io", Some("terraform")),
            ("HF_TOKEN", Some("hf")),
            ("MY_TOKEN", None),
            ("GH_TOKEN_2", None),
        ] {
            assert_eq!(owner_of(variable), owner, "{variable}");
        }
    }

    #[test]
    fn entries_of_the_table_are_of_the_forms_that_are_understood() {
        for set in CREDENTIALS {
            for place in set.places {
                let known = ["~/", "@config/", "@data/", "@cache/", "@runtime/", "$", "/"];
                assert!(known.iter().any(|begin| place.starts_with(begin)), "{place}");
            }
            let within = |state: &str| set.places.iter().any(|place| state.starts_with(place));
            assert!(set.state.iter().all(|state| within(state)), "{:?}", set.programs);
            let is_plain = |variable: &str| !variable.trim_end_matches('*').contains('*');
            assert!(set.variables.iter().all(|it| is_plain(it)), "{:?}", set.programs);
        }
    }
}
