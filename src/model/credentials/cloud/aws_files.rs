//! Reads the profiles of AWS: `~/.aws/config` and `~/.aws/credentials`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::super::fault::missing_credential;
use super::super::files::FILE_BYTES_MAX;
use crate::json;
use crate::process::file_reads;
use crate::recovery::Fault;
use crate::secrets::Variables;
use crate::text::in_home;

/// The keys and values of a section. A nested value has the key `name.nested`.
pub(super) type Section = BTreeMap<String, String>;

/// The profiles and SSO sessions of both files.
#[derive(Debug, Default)]
pub(super) struct AwsFiles {
    profiles: BTreeMap<String, Section>,
    sso_sessions: BTreeMap<String, Section>,
    services: BTreeMap<String, Section>,
}

/// The value of a variable that is set and not blank.
pub(super) fn variable(variables: &Variables, name: &str) -> Option<String> {
    let value = variables.get(OsStr::new(name))?.to_str()?.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

/// The name of the profile in use.
pub(super) fn profile_name(variables: &Variables) -> String {
    let named = ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"];
    named.iter().find_map(|name| variable(variables, name)).unwrap_or_else(|| "default".to_owned())
}

impl AwsFiles {
    /// Reads both files. A file that does not exist is empty.
    pub(super) fn read(variables: &Variables, home: Option<&Path>) -> Result<Self, Box<Fault>> {
        let path_of = |name: &str, usual: &str| -> Option<PathBuf> {
            match variable(variables, name) {
                Some(named) => in_home(&named, home).or_else(|| Some(named.into())),
                None => Some(home?.join(".aws").join(usual)),
            }
        };
        let mut files = Self::default();
        if let Some(path) = path_of("AWS_CONFIG_FILE", "config") {
            let sections = sections(&read_text(&path)?);
            let is_long = |title: &str| words(title) == ("profile", Some("default"));
            let has_long = sections.iter().any(|(title, _)| is_long(title));
            for (title, section) in sections {
                match words(&title) {
                    ("profile", Some(name)) => files.add(name, section),
                    ("sso-session", Some(name)) => {
                        files.sso_sessions.insert(name.to_owned(), section);
                    }
                    ("services", Some(name)) => {
                        files.services.insert(name.to_owned(), section);
                    }
                    ("default", None) if !has_long => files.add("default", section),
                    // Sections of other programs, and profiles that AWS does not read either.
                    _ => {}
                }
            }
        }
        if let Some(path) = path_of("AWS_SHARED_CREDENTIALS_FILE", "credentials") {
            for (name, section) in sections(&read_text(&path)?) {
                files.add(&name, section);
            }
        }
        Ok(files)
    }

    pub(super) fn profile(&self, name: &str) -> Option<&Section> {
        self.profiles.get(name)
    }

    pub(super) fn sso_session(&self, name: &str) -> Option<&Section> {
        self.sso_sessions.get(name)
    }

    /// A value of a service in a `services` section. `id` is the name in variables.
    pub(super) fn service_value(&self, section: &str, id: &str, key: &str) -> Option<&str> {
        let section = self.services.get(section)?;
        let id = id.to_ascii_lowercase();
        // AWS documents underscores, and the SDK for Rust reads hyphens.
        let names = [id.clone(), id.replace('_', "-")];
        let values = names.iter().filter_map(|name| section.get(&format!("{name}.{key}")));
        values.map(String::as_str).find(|value| !value.is_empty())
    }

    fn add(&mut self, name: &str, section: Section) {
        self.profiles.entry(name.to_owned()).or_default().extend(section);
    }
}

fn read_text(path: &Path) -> Result<String, Box<Fault>> {
    match file_reads::read_bounded(path, FILE_BYTES_MAX) {
        Ok(bytes) => Ok(json::decode(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => {
            let message = format!("{} cannot be read: {error}", path.display());
            Err(missing_credential("aws_profile_unreadable", message))
        }
    }
}

/// The kind of a section and its name, which follows the kind if there is one. A name with blanks is
/// quoted.
fn words(title: &str) -> (&str, Option<&str>) {
    match title.split_once(char::is_whitespace) {
        Some((kind, name)) => (kind, Some(name.trim().trim_matches(['"', '\'']))),
        None => (title, None),
    }
}

/// The sections of an INI file, in order.
fn sections(text: &str) -> Vec<(String, Section)> {
    let mut sections: Vec<(String, Section)> = Vec::new();
    // The name whose nested values, which are indented, may follow.
    let mut outer = None;
    for line in text.lines() {
        let whole = line.trim();
        if whole.is_empty() || whole.starts_with(['#', ';']) {
            continue;
        }
        if let Some(title) = whole.strip_prefix('[') {
            let title = title.split(']').next().unwrap_or_default().trim();
            sections.push((title.to_owned(), Section::new()));
            outer = None;
        } else if let Some((name, value)) = whole.split_once('=')
            && let Some((_, section)) = sections.last_mut()
        {
            let comment =
                [" #", " ;", "\t#", "\t;"].iter().filter_map(|start| value.find(start)).min();
            let value = value[..comment.unwrap_or(value.len())].trim();
            let name = name.trim().to_ascii_lowercase();
            let name = match &outer {
                _ if !line.starts_with(char::is_whitespace) => {
                    outer = value.is_empty().then(|| name.clone());
                    name
                }
                Some(outer) => format!("{outer}.{name}"),
                None => continue,
            };
            section.insert(name, value.to_owned());
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_read_as_aws_writes_them() {
        let text = "; a comment\n[default]\nregion = eu-west-1 # here\ns3 =\n  max = 3\n\n\
                    [profile ci]\nROLE_ARN=arn:aws:iam::1:role/ci\n[sso-session corp]\na = b=c\n";
        let found = sections(text);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["default", "profile ci", "sso-session corp"]);
        assert_eq!(found[0].1["region"], "eu-west-1");
        assert_eq!(found[0].1.get("max"), None);
        assert_eq!(found[0].1["s3.max"], "3");
        assert_eq!(found[1].1["role_arn"], "arn:aws:iam::1:role/ci");
        assert_eq!(found[2].1["a"], "b=c");
        assert_eq!(words("profile \"my team\""), ("profile", Some("my team")));
    }
}
