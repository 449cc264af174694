//! Path rules, which are gitignore patterns.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::super::glob_limits::check_glob;
use super::super::glob_readings;
use super::super::paths::{PATH_BYTES_MAX, resolve, resolve_links};
use super::rule_error::{RuleError, RuleList};

/// Write permission of a folder's group, and of all others.
const SHARED_WRITE: u32 = 0o022;

/// The paths that a rule matches. A path matches if it fits one of the readings of the pattern.
#[derive(Clone, Debug)]
pub(super) struct PathPattern {
    /// The first is the pattern as written.
    readings: Vec<PathReading>,
}

/// One reading of a pattern.
#[derive(Clone, Debug)]
struct PathReading {
    root: PathBuf,
    /// The literal prefix of all matching paths; matches lie below it or on the way to it.
    literal_prefix: PathBuf,
    /// True if it matches all paths below the prefix.
    is_whole: bool,
    /// True if it takes brackets or braces as characters of names, and not as a class or a choice.
    is_literal: bool,
    pattern: Gitignore,
}

impl PathPattern {
    /// Compiles a pattern. `//x` is absolute, `~/x` in the home folder, `/x` and `./x` in `cwd`.
    /// Any other pattern is relative to `cwd` in an allow rule, and matches at any depth in other
    /// rules. It matches also where the links of its literal prefix lead to, and `[slug]` and
    /// `{id}` match also files of these names.
    pub(super) fn compile(
        spec: &str,
        list: RuleList,
        cwd: &Path,
        home: Option<&Path>,
    ) -> Result<Self, RuleError> {
        check_glob(spec)?;
        let spec = &without_empty_parts(spec);
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
            (cwd, spec.clone())
        } else {
            (Path::new("/"), format!("**/{spec}"))
        };
        if pattern.split('/').any(|part| part == "..") {
            return Err(RuleError::ParentInside);
        }
        let pattern = if pattern == "/" { "/**".to_string() } else { pattern };
        let find_real = |path: &Path| match list {
            RuleList::Allow => behind_fixed_links(path, cwd, home),
            RuleList::Ask | RuleList::Deny => resolve(path),
        };
        let literal = literal_readings(&pattern).into_iter().map(|pattern| (pattern, true));
        let mut readings = Vec::new();
        for (pattern, is_literal) in [(pattern.clone(), false)].into_iter().chain(literal) {
            readings.push(PathReading::compile(root, &pattern, is_literal)?);
            if let Some(real) = behind_links(root, &pattern, find_real) {
                readings.push(PathReading::compile(Path::new("/"), &real, is_literal)?);
            }
        }
        Ok(Self { readings })
    }

    /// True if something below this folder, at any depth, may match.
    pub(super) fn reaches_below(&self, folder: &Path) -> bool {
        let reaches = |prefix: &Path| prefix.starts_with(folder) || folder.starts_with(prefix);
        self.readings.iter().any(|it| reaches(&it.literal_prefix))
    }

    pub(super) fn matches(&self, path: &Path) -> bool {
        self.matches_below(path, |_| true)
    }

    /// True if a reading whose literal prefix fits matches.
    pub(super) fn matches_below(&self, path: &Path, fits: impl Fn(&Path) -> bool) -> bool {
        // Matching every parent folder takes quadratic time in the length. A path that is too long
        // to be opened needs no rule.
        path.as_os_str().len() <= PATH_BYTES_MAX
            && self.readings.iter().any(|it| fits(&it.literal_prefix) && it.matches(path))
    }

    /// True if a reading matches all that is in a folder, at any depth.
    pub(super) fn matches_all_in(&self, folder: &Path) -> bool {
        self.readings.iter().any(|it| it.is_whole && folder == it.literal_prefix)
    }

    /// The literal prefix of the pattern as written.
    pub(super) fn written_prefix(&self) -> &Path {
        &self.readings[0].literal_prefix
    }

    /// The pattern without the readings whose literal prefix is this folder or one above it, if it
    /// has others.
    pub(super) fn not_around(mut self, folder: &Path) -> Option<Self> {
        self.readings.retain(|it| !folder.starts_with(&it.literal_prefix));
        (!self.readings.is_empty()).then_some(self)
    }

    /// The path at or below which all matches are, and true if it and all below it match. If a file
    /// has brackets or braces in its name, a pattern with that name means the file.
    pub(super) fn place(&self) -> (&Path, bool) {
        let exists = |it: &&PathReading| fs::symlink_metadata(&it.literal_prefix).is_ok();
        let mut literal = self.readings.iter().filter(|it| it.is_literal && it.is_whole);
        let reading = literal.find(exists).unwrap_or(&self.readings[0]);
        (&reading.literal_prefix, reading.is_whole)
    }
}

impl PathReading {
    fn compile(root: &Path, pattern: &str, is_literal: bool) -> Result<Self, RuleError> {
        let mut literal_prefix = root.to_path_buf();
        let rest = push_names(&mut literal_prefix, pattern);
        let is_whole = rest.split('/').all(|part| part.is_empty() || part == "**");
        let mut builder = GitignoreBuilder::new(root);
        let wrong = |error: ignore::Error| RuleError::Pattern(error.to_string());
        builder.add_line(None, pattern).map_err(wrong)?;
        let gitignore = builder.build().map_err(wrong)?;
        let root = root.to_path_buf();
        Ok(Self { root, literal_prefix, is_whole, is_literal, pattern: gitignore })
    }

    fn matches(&self, path: &Path) -> bool {
        let Ok(inner) = path.strip_prefix(&self.root) else { return false };
        if inner.as_os_str().is_empty() {
            return false;
        }
        // A pattern with a trailing slash matches only folders; the path itself may be one.
        self.pattern.matched_path_or_any_parents(inner, false).is_ignore()
            || self.pattern.matched(inner, true).is_ignore()
    }
}

/// A pattern without the parts that name no folder: `//$HOME/x` begins with three slashes if the
/// value begins with one, and a pattern with an empty part or `.` inside matches no path.
fn without_empty_parts(spec: &str) -> String {
    let begin = if spec.starts_with("//") {
        "//"
    } else if spec.starts_with('/') {
        "/"
    } else {
        ""
    };
    // The first part of a relative pattern says where it begins: `./x` is not `x`.
    let named = |(place, part): &(usize, &str)| !part.is_empty() && (*part != "." || *place == 0);
    let parts: Vec<&str> = spec.split('/').enumerate().filter(named).map(|it| it.1).collect();
    let names_folder = spec.ends_with('/') || spec.ends_with("/.");
    let end = if names_folder && !parts.is_empty() { "/" } else { "" };
    format!("{begin}{}{end}", parts.join("/"))
}

/// Escapes a path so that, as a pattern, it matches only itself.
pub(super) fn escaped(path: &str) -> String {
    glob_readings::escaped(path, &['*', '?', '[', ']', '{', '}', '\\', '!', '#'])
}

/// Adds the first parts of a pattern to a folder, as far as they are names. Returns the others.
fn push_names<'a>(folder: &mut PathBuf, pattern: &'a str) -> &'a str {
    let mut rest = pattern.trim_start_matches('/');
    while !rest.is_empty() {
        let (part, after) = rest.split_once('/').unwrap_or((rest, ""));
        let Some(name) = literal_name(part) else { break };
        folder.push(name);
        rest = after.trim_start_matches('/');
    }
    rest
}

/// The name that is the only match of a part of a pattern.
fn literal_name(part: &str) -> Option<String> {
    let (mut letters, mut name) = (part.chars(), String::new());
    while let Some(letter) = letters.next() {
        match letter {
            '*' | '?' | '[' | '{' => return None,
            '\\' => name.push(letters.next()?),
            plain => name.push(plain),
        }
    }
    Some(name)
}

/// The pattern with its brackets, its braces, or both as characters of names, as far as it has
/// them. Frameworks for the web name folders `[slug]` and `[...all]`, templates `{{name}}`.
fn literal_readings(pattern: &str) -> Vec<String> {
    let mut readings: Vec<String> = Vec::new();
    for letters in [&['['][..], &['{', '}'], &['[', '{', '}']] {
        let literal = with_literal(pattern, letters);
        if literal != pattern && !readings.contains(&literal) {
            readings.push(literal);
        }
    }
    readings
}

/// Escapes these letters where they are not escaped.
fn with_literal(pattern: &str, letters: &[char]) -> String {
    let (mut literal, mut is_escaped) = (String::new(), false);
    for letter in pattern.chars() {
        if letters.contains(&letter) && !is_escaped {
            literal.push('\\');
        }
        is_escaped = letter == '\\' && !is_escaped;
        literal.push(letter);
    }
    literal
}

/// The absolute pattern with the real path of its literal prefix, if that is another one.
fn behind_links(
    root: &Path,
    pattern: &str,
    find_real: impl Fn(&Path) -> PathBuf,
) -> Option<String> {
    // A name alone matches in every folder.
    if !pattern.trim_end_matches('/').contains('/') {
        return None;
    }
    let mut prefix = root.to_path_buf();
    let rest = push_names(&mut prefix, pattern);
    let real = find_real(&prefix);
    let end = if rest.is_empty() && !pattern.ends_with('/') { "" } else { "/" };
    (real != prefix).then(|| format!("{}{end}{rest}", escaped(&real.to_string_lossy())))
}

/// Resolves the links that no command of a run can have made: those of the home folder, and those
/// in folders above it that only their owner changes. An allow rule follows no other ones.
fn behind_fixed_links(path: &Path, cwd: &Path, home: Option<&Path>) -> PathBuf {
    let Some(home) = home else { return path.to_path_buf() };
    let real_home = resolve(home);
    let below = path.strip_prefix(home);
    let path = below.map_or_else(|_| path.to_path_buf(), |below| real_home.join(below));
    resolve_links(&path, |link| {
        link.parent().is_some_and(|folder| {
            let is_closed = |facts: fs::Metadata| facts.permissions().mode() & SHARED_WRITE == 0;
            real_home != folder
                && real_home.starts_with(folder)
                && !folder.starts_with(cwd)
                && fs::metadata(folder).is_ok_and(is_closed)
        })
    })
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
