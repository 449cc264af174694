//! What a command sees of outlast's environment. Pure.

use std::ffi::{OsStr, OsString};

use crate::process::absolute_path;

/// Which of outlast's own variables a command sees. The model's credentials: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildEnvironment {
    /// All but names that look like secrets.
    #[default]
    Scrub,
    Inherit,
    /// Only what nearly every program needs, and what is passed by name.
    Allowlist,
}

impl ChildEnvironment {
    /// Reads a `--child-env` value.
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "scrub" => Some(Self::Scrub),
            "inherit" => Some(Self::Inherit),
            "allowlist" => Some(Self::Allowlist),
            _ => None,
        }
    }
}

/// The environment for commands, and what was left out.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) variables: Vec<(OsString, OsString)>,
    /// Names that were dropped because they are, or look like, secrets.
    pub(super) dropped: Vec<String>,
}

/// Nothing that a command starts may wait for a person.
const UNATTENDED: &[(&str, &str)] = &[
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("LESS", "-FRX"),
    ("GIT_ASKPASS", "/bin/false"),
    ("SSH_ASKPASS", "/bin/false"),
    ("SUDO_ASKPASS", "/bin/false"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("TERM", "dumb"),
    ("CLAUDECODE", "1"),
    ("OUTLAST", "1"),
];

/// What a program can hardly do without.
const ESSENTIAL: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "CI", "PWD"];

/// Shorter values are too common to be taken for the credential itself.
const CREDENTIAL_BYTES_MIN: usize = 8;

impl Environment {
    pub(super) fn for_children(
        own: &[(OsString, OsString)],
        policy: ChildEnvironment,
        pass: &[String],
        credentials: &[String],
        session_id: &str,
    ) -> Self {
        let is_credential = |name: &str, value: &OsStr| {
            is_credential(name, value) || credentials.iter().any(|known| known == name)
        };
        let credentials: Vec<&OsStr> = own
            .iter()
            .filter(|(name, value)| {
                is_credential(&name.to_string_lossy(), value) && value.len() >= CREDENTIAL_BYTES_MIN
            })
            .map(|(_, value)| value.as_os_str())
            .collect();
        let mut made = Self { variables: Vec::new(), dropped: Vec::new() };
        for (name, value) in own {
            let shown = name.to_string_lossy();
            let passed = pass.iter().any(|passed| *passed == shown);
            let secret =
                policy == ChildEnvironment::Scrub && !passed && looks_secret(&shown, value);
            if secret || is_credential(&shown, value) || holds(value, &credentials) {
                made.dropped.push(shown.into_owned());
            } else if !shown.starts_with("OTEL_")
                && (policy != ChildEnvironment::Allowlist || passed || is_essential(&shown))
            {
                made.variables.push((name.clone(), value.clone()));
            }
        }
        made.dropped.sort();
        made.make_unattended(session_id);
        made
    }

    pub(super) fn get(&self, wanted: &str) -> Option<&OsStr> {
        self.variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_os_str())
    }

    fn make_unattended(&mut self, session_id: &str) {
        for (name, value) in UNATTENDED {
            self.set(name, *value);
        }
        self.set("CLAUDE_CODE_SESSION_ID", session_id);
        if self.get("GIT_SSH_COMMAND").is_none() {
            self.set("GIT_SSH_COMMAND", "ssh -oBatchMode=yes");
        }
        // What lies in a work tree must not take the place of a command that may run unasked.
        let path = absolute_path(self.get("PATH"));
        self.set("PATH", path);
    }

    fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.variables.retain(|(there, _)| there != name);
        self.variables.push((name.into(), value.into()));
    }
}

fn is_essential(name: &str) -> bool {
    ESSENTIAL.contains(&name) || name.starts_with("LC_")
}

/// Whether this is what the model's service is paid or reached with.
fn is_credential(name: &str, value: &OsStr) -> bool {
    let service = ["ANTHROPIC_", "CLAUDE_CODE_", "OUTLAST_", "AWS_BEARER_TOKEN"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    let text = value.to_string_lossy();
    (service && looks_secret(name, value))
        || name == "ANTHROPIC_CUSTOM_HEADERS"
        || (name == "ANTHROPIC_BASE_URL" && text.contains('@'))
        || text.contains("sk-ant-")
}

fn holds(value: &OsStr, credentials: &[&OsStr]) -> bool {
    let value = value.as_encoded_bytes();
    credentials.iter().any(|credential| {
        let credential = credential.as_encoded_bytes();
        value.windows(credential.len()).any(|window| window == credential)
    })
}

fn looks_secret(name: &str, value: &OsStr) -> bool {
    let name = name.to_uppercase();
    let is_number = value.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    if name.ends_with("TOKENS") && is_number {
        // A limit, such as `MAX_THINKING_TOKENS=4000`.
        return false;
    }
    let telling = ["SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"];
    telling.iter().any(|word| name.contains(word)) || name.split('_').any(is_secret_word)
}

fn is_secret_word(word: &str) -> bool {
    let ends = ["KEY", "KEYS", "TOKEN", "TOKENS", "PASS", "PAT"];
    // A word may be run together: APIKEY, AUTHTOKEN. BYPASS and the like are the price.
    word == "PAT" || ends.iter().filter(|end| **end != "PAT").any(|end| word.ends_with(end))
}
