//! Path rules, which are gitignore patterns.

use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::super::glob_limits::check_glob;
use super::super::paths::PATH_BYTES_MAX;
use super::rule_error::{RuleError, RuleList};

#[derive(Clone, Debug)]
pub(super) struct PathPattern {
    root: PathBuf,
    /// The literal prefix of all matching paths; matches lie below it or on the way to it.
    pub(super) literal_prefix: PathBuf,
    /// True if it matches all paths below the prefix.
    pub(super) is_whole: bool,
    pattern: Gitignore,
}

impl PathPattern {
    /// Compiles a pattern. `//x` is absolute, `~/x` in the home folder, `/x` and `./x` in `cwd`.
    /// Any other pattern is relative to `cwd` in an allow rule, and matches at any depth in other
    /// rules.
    pub(super) fn compile(
        spec: &str,
        list: RuleList,
        cwd: &Path,
        home: Option<&Path>,
    ) -> Result<Self, RuleError> {
        check_glob(spec)?;
        let (root, pattern) = if let Some(rest) = spec.strip_prefix("//") {
            (Path::new("/"), format!("/{rest}"))
        } else if let Some(rest) = spec.strip_prefix("~/").or((spec == "~").then_some("")) {
            (home.ok_or(RuleError::NoHome)?, format!("/{rest}"))
        } else if let Some((root, rest)) = resolve_parent_prefix(spec, cwd) {
            (root, format!("/{rest}"))
        } else if let Some(rest) = spec.strip_prefix("./").or_else(|| spec.strip_prefix('/')) {
            (cwd, format!("/{rest}"))
        } else if spec.starts_with(['!', '#']) {
            return Err(RuleError::PatternStart);
        } else if list == RuleList::Allow {
            (cwd, spec.to_string())
        } else {
            (Path::new("/"), format!("**/{spec}"))
        };
        if pattern.split('/').any(|part| part == "..") {
            return Err(RuleError::ParentInside);
        }
        let pattern = if pattern == "/" { "/**".to_string() } else { pattern };
        let is_name = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
        let mut parts = pattern.split('/').filter(|part| !part.is_empty()).peekable();
        let mut begin = root.to_path_buf();
        begin.extend(std::iter::from_fn(|| parts.next_if(is_name)));
        let is_whole = parts.all(|part| part == "**");
        let mut builder = GitignoreBuilder::new(root);
        let wrong = |error: ignore::Error| RuleError::Pattern(error.to_string());
        builder.add_line(None, &pattern).map_err(wrong)?;
        let pattern = builder.build().map_err(wrong)?;
        Ok(Self { root: root.to_path_buf(), literal_prefix: begin, is_whole, pattern })
    }

    /// True if something below this folder, at any depth, may match.
    pub(super) fn reaches_below(&self, folder: &Path) -> bool {
        self.literal_prefix.starts_with(folder) || folder.starts_with(&self.literal_prefix)
    }

    pub(super) fn matches(&self, path: &Path) -> bool {
        // Matching every parent folder takes quadratic time in the length. A path that is too long
        // to be opened needs no rule.
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return false;
        }
        let Ok(inner) = path.strip_prefix(&self.root) else { return false };
        if inner.as_os_str().is_empty() {
            return false;
        }
        // A pattern with a trailing slash matches only folders; the path itself may be one.
        self.pattern.matched_path_or_any_parents(inner, false).is_ignore()
            || self.pattern.matched(inner, true).is_ignore()
    }
}

/// Splits `../x` and `.` into the base folder and the rest.
fn resolve_parent_prefix<'a>(spec: &'a str, cwd: &'a Path) -> Option<(&'a Path, &'a str)> {
    let (mut root, mut rest, mut climbs) = (cwd, spec, false);
    loop {
        if let Some(below) = rest.strip_prefix("./").or((rest == ".").then_some("")) {
            climbs |= rest == ".";
            rest = below;
        } else if let Some(below) = rest.strip_prefix("../").or((rest == "..").then_some("")) {
            (root, rest, climbs) = (root.parent().unwrap_or(root), below, true);
        } else {
            return climbs.then_some((root, rest));
        }
    }
}
