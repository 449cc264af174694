//! Reads settings files.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::unistd::geteuid;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ConfigError;
pub use super::check::ForeignMistakes;
use super::check::{self, FileValue, ValidSettings};
use super::comments::{FILE_BYTES_MAX, is_inline, written_json};
use super::rule_names;
use super::setting::Untrusted;
use super::spans;
use crate::json;
use crate::process::file_reads;
use crate::tools::{RuleList, absolute_rule, anchor_rule, rule_below};

/// The paths of the managed files, lowest precedence first.
pub(super) const MANAGED_FILES: [&str; 2] =
    ["/etc/claude-code/managed-settings.json", "/etc/outlast/managed-settings.json"];

/// A valid settings file, parsed.
#[derive(Clone, Debug)]
pub struct ParsedSettings {
    /// The name of the file, for messages.
    pub name: String,
    /// The settings as written.
    pub value: Value,
    /// The values that the file assigns, in canonical form.
    pub(super) values: Vec<FileValue>,
    /// The original text, to locate positions.
    pub text: String,
    pub warnings: Vec<String>,
    /// The value of `CLAUDE_PROJECT_DIR` for the hooks of the file, if it is not the working
    /// folder.
    pub project: Option<PathBuf>,
}

impl ParsedSettings {
    /// Creates settings from `value`, the part of a text that is used.
    pub fn new(name: String, value: Value, text: String) -> Self {
        Self {
            values: check::values_of(&value),
            name,
            value,
            text,
            warnings: Vec::new(),
            project: None,
        }
    }

    /// Returns the value of a setting, if the file has one.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let found = self.values.iter().find(|value| value.setting.key == key)?;
        serde_json::from_value(found.value.clone()).ok()
    }

    /// Returns the keys of the settings that the file sets, also of those set in another form.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        let set = self.values.iter().filter(|it| !it.setting.is_unset_by(&it.value));
        set.flat_map(|it| [Some(it.setting.key), it.setting.form_of]).flatten()
    }

    /// Removes a setting. Returns true if the file set it.
    pub(super) fn remove(&mut self, key: &str) -> bool {
        let before = self.values.len();
        self.values.retain(|value| value.setting.key != key);
        self.values.len() < before
    }

    /// Resolves path rules for `/x` against the folder of the file. In a deny or ask rule, `/x` is
    /// the absolute path, too.
    #[must_use]
    pub fn anchored(mut self, root: &Path) -> Self {
        let is_list =
            |value: &&mut FileValue| RULES.iter().any(|list| list.key() == value.setting.key);
        for list in self.values.iter_mut().filter(is_list) {
            let is_allow = list.setting.key == RuleList::Allow.key();
            let Some(rules) = list.value.as_array_mut() else { continue };
            let texts = rules.iter().filter_map(Value::as_str);
            let absolute: Vec<Value> =
                texts.filter_map(absolute_rule).filter(|_| !is_allow).map(Value::String).collect();
            for rule in rules.iter_mut() {
                if let Some(text) = rule.as_str() {
                    *rule = Value::String(anchor_rule(text, root));
                }
            }
            rules.extend(absolute);
        }
        self
    }

    /// Resolves the paths of a file above the working folder: `/x` in a rule is below `root`. In
    /// settings that only restrict, `x` and `./x` are below `root` as well as below the working
    /// folder.
    #[must_use]
    pub fn anchored_above(mut self, root: &Path) -> Self {
        for FileValue { setting, value } in &mut self.values {
            let Some(items) = value.as_array_mut() else { continue };
            let texts = items.iter().filter_map(Value::as_str);
            let is_below_root = |path: &str| !path.starts_with(['/', '~']);
            let also: Vec<String> = match setting.untrusted {
                Untrusted::Rules => texts.filter_map(|rule| rule_below(rule, root)).collect(),
                Untrusted::Paths => {
                    let relative = texts.filter(|path| is_below_root(path));
                    relative.map(|path| root.join(path).to_string_lossy().into_owned()).collect()
                }
                Untrusted::Ignored | Untrusted::Only(_) | Untrusted::Stricter(_) => continue,
            };
            if matches!(setting.untrusted, Untrusted::Paths) {
                // A name with such letters counts where it exists, which is below the root.
                let has_letters = |path: &str| path.contains(['[', '*', '?']);
                let stays = |path: &str| !is_below_root(path) || !has_letters(path);
                items.retain(|item| item.as_str().is_none_or(stays));
            }
            items.extend(also.into_iter().map(Value::String));
        }
        self.anchored(root)
    }
}

/// The lists of permission rules.
const RULES: [RuleList; 3] = [RuleList::Allow, RuleList::Ask, RuleList::Deny];

/// Removes the rules of a list that have no effect.
fn remove_ineffective(value: &mut FileValue) {
    let list = RULES.into_iter().find(|list| list.key() == value.setting.key);
    if let (Some(list), Some(rules)) = (list, value.value.as_array_mut()) {
        rules.retain(|rule| rule.as_str().is_none_or(|rule| rule_names::has_effect(rule, list)));
    }
}

/// Reads one file. `None`: it is missing. Does not block on a pipe.
///
/// # Errors
/// The mistakes in it, one line each.
pub fn read_file(path: &Path) -> Result<Option<ParsedSettings>, Vec<String>> {
    let shown = path.display().to_string();
    read_content(path)?.map(|bytes| parse_bytes(&shown, &bytes)).transpose()
}

/// Returns true if a path is in a folder of managed files.
fn is_managed(path: &Path) -> bool {
    let folders = MANAGED_FILES.iter().filter_map(|file| Path::new(file).parent());
    folders.into_iter().any(|folder| path.starts_with(folder))
}

/// Reads the bytes of one file. `None`: it is missing. Does not block on a pipe.
///
/// # Errors
/// One line with the reason that it cannot be read.
pub fn read_content(path: &Path) -> Result<Option<Vec<u8>>, Vec<String>> {
    match file_reads::read_regular(path, FILE_BYTES_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_absent(path, &error) => Ok(None),
        Err(error) => {
            // No other home folder would help with managed files.
            let closed = file_reads::closed_part(path, geteuid()).filter(|_| !is_managed(path));
            let link = dangling_link(path).filter(|_| is_missing(&error));
            let why = match (closed, link) {
                (Some(why), _) => why,
                (None, Some(link)) => {
                    let it = if link == path { "it".into() } else { link.to_string_lossy() };
                    format!(
                        "{it} is a symbolic link to what does not exist; make that available, \
                         or take the link away"
                    )
                }
                (None, None) => format!("{error}; make it a readable file, or take it away"),
            };
            Err(vec![format!("{}: cannot be read: {why}", path.display())])
        }
    }
}

/// Returns true if an error means that there is no file, rather than that it cannot be read.
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Reads JSON that a flag gives, or the file or pipe that the flag names. Returns the name for
/// messages, and the text.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub fn inline_or_file(
    flag: &str,
    given: &str,
    bytes_max: u64,
) -> Result<(String, String), ConfigError> {
    if is_inline(given) {
        return Ok((flag.to_owned(), given.trim_start().to_owned()));
    }
    if given.trim().is_empty() {
        return Err(ConfigError::new(format!(
            "{flag} is empty; give JSON, or the name of a file of it"
        )));
    }
    let bytes = file_reads::read_named(Path::new(given), bytes_max).map_err(|error| {
        ConfigError::new(format!(
            "{flag} {given}: cannot be read: {error}; give JSON, or the name of a file of it"
        ))
    })?;
    Ok((given.to_owned(), utf8(given, &bytes)?.to_owned()))
}

/// Returns true if an error of reading a file means that there is no file. A target of a dangling
/// link does not count as absent: its disk may not be mounted, and the file may contain deny rules.
pub fn is_absent(path: &Path, error: &io::Error) -> bool {
    is_missing(error) && (is_missing_without_links(path) || dangling_link(path).is_none())
}

/// Returns true if the kernel finds no file of this name, and no link on the way there. One call,
/// where it has the call.
fn is_missing_without_links(path: &Path) -> bool {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(AT_FDCWD, path, how).is_err_and(|error| is_missing(&error.into()))
}

/// Returns the link to nothing at which a path ends, if it does.
fn dangling_link(path: &Path) -> Option<&Path> {
    let mut parts = path.ancestors();
    let (found, facts) = parts.find_map(|part| Some((part, part.symlink_metadata().ok()?)))?;
    let leads_nowhere = || found.metadata().is_err_and(|error| is_missing(&error));
    (facts.is_symlink() && leads_nowhere()).then_some(found)
}

/// Reads the settings that a flag such as `--settings` gives: JSON, or the name of a file or a
/// pipe, which must exist.
///
/// # Errors
/// The mistakes in it, one line each.
pub fn parse_flag(flag: &str, given: &str) -> Result<ParsedSettings, Vec<String>> {
    let (name, text) =
        inline_or_file(flag, given, FILE_BYTES_MAX).map_err(|error| vec![error.to_string()])?;
    parse_text(&name, &text)
}

/// Reads the content of a file.
///
/// # Errors
/// The mistakes in it, one line each.
pub fn parse_bytes(name: &str, bytes: &[u8]) -> Result<ParsedSettings, Vec<String>> {
    let decoded = utf8(name, bytes).map_err(|error| vec![error.to_string()])?;
    parse_text(name, decoded)
}

/// Reads the text of a file.
///
/// # Errors
/// The mistakes in it, one line each.
pub fn parse_text(name: &str, text: &str) -> Result<ParsedSettings, Vec<String>> {
    parse_with(name, text, check::check)
}

fn parse_with<E>(
    name: &str,
    text: &str,
    check: impl Fn(&str, &str) -> Result<ValidSettings, E>,
) -> Result<ParsedSettings, E> {
    let text = written_json(text);
    let ValidSettings { value, mut values, warnings, .. } = check(name, &text)?;
    for list in &mut values {
        remove_ineffective(list);
    }
    Ok(ParsedSettings { name: name.to_owned(), value, values, text, warnings, project: None })
}

/// Reads the text of a file that was written for another program. Invalid values are left out, with
/// a warning for each.
///
/// # Errors
/// Its mistakes, if leaving them out would weaken its restrictions, or if it is not a JSON object.
pub fn parse_foreign(name: &str, text: &str) -> Result<ParsedSettings, ForeignMistakes> {
    parse_with(name, text, check::check_foreign)
}

/// Reads the text of a file that the user wrote for outlast.
///
/// # Errors
/// The position of the first byte that is not UTF-8.
pub fn utf8<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, ConfigError> {
    let wide = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    str::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(bytes.get(..error.valid_up_to()).unwrap_or_default());
        let (line, column) = spans::line_and_column(&before, before.len());
        let what = if wide { "this is UTF-16, and not UTF-8" } else { "not valid UTF-8" };
        ConfigError::new(format!("{name}:{line}:{column}: {what}; save the file as UTF-8"))
    })
}

/// Reads the text of a file that was written for another program, in UTF-8, or UTF-16 with a byte
/// order mark. Invalid parts become U+FFFD, so that the rest of the file applies, such as its deny
/// rules; the second value is a warning that names the first byte that is not UTF-8.
pub fn decode_lossy<'a>(name: &str, bytes: &'a [u8]) -> (Cow<'a, str>, Option<String>) {
    match utf8(name, bytes) {
        Ok(text) => (Cow::Borrowed(text), None),
        Err(error) => {
            let warning = format!("{error} (until then what is invalid is read as U+FFFD)");
            (json::decode(bytes), Some(warning))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_files_and_their_drop_ins_are_managed() {
        for file in MANAGED_FILES.map(Path::new) {
            assert!(is_managed(file) && is_managed(&file.with_extension("d").join("a.json")));
        }
        assert!(!is_managed(Path::new("/home/a/.outlast/settings.json")));
    }
}
