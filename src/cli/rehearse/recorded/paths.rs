//! Replaces the recorded working folder in texts, so that tools work in the scratch folder.

use serde_json::Value;

/// The placeholder of the scratch folder in a scenario.
const CWD: &str = "${cwd}";

/// The recorded working folder.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathMask<'a> {
    folder: Option<&'a str>,
}

impl<'a> PathMask<'a> {
    /// Creates a mask. A top-level folder such as `/tmp` is ignored: too many other paths contain
    /// it.
    pub(super) fn new(folder: Option<&'a str>) -> Self {
        let is_deep = |folder: &&str| folder.matches('/').count() > 1 && !folder.ends_with('/');
        Self { folder: folder.filter(is_deep) }
    }

    /// Replaces the folder where it is a whole path or the beginning of a path.
    pub(super) fn hide(&self, text: &str) -> String {
        let Some(folder) = self.folder else { return text.to_owned() };
        let (mut hidden, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find(folder) {
            let (before, after) = (&rest[..at], &rest[at + folder.len()..]);
            hidden.push_str(before);
            hidden.push_str(if continues_name(after) { folder } else { CWD });
            rest = after;
        }
        hidden + rest
    }

    /// Replaces the folder in all strings of a value.
    pub(super) fn hide_in(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.hide(text)),
            Value::Array(items) => items.iter().map(|item| self.hide_in(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, field)| (name.clone(), self.hide_in(field)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// Returns the longest part of a text without the folder.
    pub(super) fn part_without<'t>(&self, text: &'t str) -> &'t str {
        let Some(folder) = self.folder else { return text };
        text.split(folder).max_by_key(|part| part.len()).unwrap_or_default()
    }
}

/// Returns true if this text continues the file name before it.
fn continues_name(after: &str) -> bool {
    let mut letters = after.chars();
    match letters.next() {
        Some('.') => letters.next().is_some_and(char::is_alphanumeric),
        Some(one) => one.is_alphanumeric() || matches!(one, '-' | '_'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_replaced_as_a_path_and_not_within_a_name() {
        let paths = PathMask::new(Some("/home/u/app"));
        let text =
            "cd /home/u/app && cat /home/u/app/a /home/u/app2 /home/u/app.bak. In /home/u/app.";
        let hidden = "cd ${cwd} && cat ${cwd}/a /home/u/app2 /home/u/app.bak. In ${cwd}.";
        assert_eq!(paths.hide(text), hidden);
        assert_eq!(PathMask::new(Some("/tmp")).hide("/tmp/a"), "/tmp/a");
        assert_eq!(paths.part_without("In /home/u/app do this."), " do this.");
    }
}
