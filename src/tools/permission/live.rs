//! Permissions that a host changes during a run: rules, folders, and the mode.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use serde::Deserialize;

use super::super::added_folders::{AddedFolder, AddedFolders};
use super::rule::{PermissionRule, check_rule};
use super::rule_error::{RuleError, RuleList};
use crate::types::{Callback, PermissionMode};

/// Changes of the permissions since the start. Clones share them: the run, its sub-agents and later
/// turns.
#[derive(Clone, Debug, Default)]
pub struct LivePermissions {
    changes: Arc<RwLock<LiveChanges>>,
    folders: AddedFolders,
    may_bypass: bool,
    /// True if the mode does not change: that of a sub-agent with a mode of its own.
    keeps_mode: bool,
    /// Is called with each new mode.
    listener: Option<Callback<dyn Fn(PermissionMode) + Send + Sync>>,
}

#[derive(Clone, Debug, Default)]
struct LiveChanges {
    /// The number of changes.
    count: u64,
    mode: Option<PermissionMode>,
    rules: Vec<(RuleList, String)>,
}

/// A change that comes with an answer of the host. A `destination` other than the session is
/// ignored: files of the user are not changed during a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum PermissionUpdate {
    AddRules { rules: Vec<RuleText>, behavior: RuleList },
    ReplaceRules { rules: Vec<RuleText>, behavior: RuleList },
    RemoveRules { rules: Vec<RuleText>, behavior: RuleList },
    SetMode { mode: String },
    AddDirectories { directories: Vec<String> },
    RemoveDirectories { directories: Vec<String> },
}

/// A rule, as the name of a tool and the content of the parentheses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleText {
    tool_name: String,
    #[serde(default)]
    rule_content: Option<String>,
}

/// The reason that a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    #[error("the rule {rule:?} is not valid: {why}")]
    Rule { rule: String, why: RuleError },
    #[error("there is no permission mode {0:?}")]
    UnknownMode(String),
    #[error(
        "bypassPermissions cannot be chosen: start outlast with \
         --allow-dangerously-skip-permissions"
    )]
    NoBypass,
    #[error("{} is not a folder", .0.display())]
    NoFolder(PathBuf),
    #[error("the folder {} stays, as it was not added during the session", .0.display())]
    NotAdded(PathBuf),
}

impl RuleText {
    fn text(&self) -> String {
        match self.rule_content.as_deref().filter(|content| !content.is_empty()) {
            Some(content) => format!("{}({content})", self.tool_name),
            None => self.tool_name.clone(),
        }
    }
}

impl LivePermissions {
    /// `may_bypass` is true if the host may choose `bypassPermissions`.
    pub fn new(may_bypass: bool) -> Self {
        Self { may_bypass, ..Self::default() }
    }

    /// Calls the function with each new mode.
    #[must_use]
    pub fn announced_by(self, listener: impl Fn(PermissionMode) + Send + Sync + 'static) -> Self {
        Self { listener: Some(Callback(Arc::new(listener))), ..self }
    }

    /// Returns these permissions for a sub-agent with a mode of its own.
    #[must_use]
    pub(in super::super) fn without_mode(&self) -> Self {
        Self { keeps_mode: true, ..self.clone() }
    }

    /// Sets the mode for all calls from now on.
    ///
    /// # Errors
    /// The run was started without permission for this mode.
    pub fn set_mode(&self, mode: PermissionMode) -> Result<(), UpdateError> {
        if mode == PermissionMode::BypassPermissions && !self.may_bypass {
            return Err(UpdateError::NoBypass);
        }
        self.change(|changes| {
            let before = changes.mode.replace(mode);
            // Before the next change, so that the last announced mode is the one in effect.
            if let Some(announce) = self.listener.as_ref().filter(|_| before != Some(mode)) {
                announce(mode);
            }
        });
        Ok(())
    }

    /// Makes a change, for all calls from now on. Rules are checked for these folders. `resolve`
    /// returns the real path of a folder.
    ///
    /// # Errors
    /// The change is not valid or not allowed; nothing was changed.
    pub(in super::super) fn apply(
        &self,
        update: &PermissionUpdate,
        (cwd, home): (&Path, Option<&Path>),
        resolve: impl Fn(&str) -> PathBuf,
    ) -> Result<(), UpdateError> {
        let checked = |rules: &[RuleText], list| checked(rules, list, cwd, home);
        match update {
            PermissionUpdate::AddRules { rules, behavior } => {
                let rules = checked(rules, *behavior)?;
                self.change(|changes| changes.rules.extend(rules));
            }
            PermissionUpdate::ReplaceRules { rules, behavior } => {
                let (list, rules) = (*behavior, checked(rules, *behavior)?);
                self.change(|changes| {
                    changes.rules.retain(|(known, _)| *known != list);
                    changes.rules.extend(rules);
                });
            }
            PermissionUpdate::RemoveRules { rules, behavior } => {
                let gone = checked(rules, *behavior)?;
                self.change(|changes| changes.rules.retain(|rule| !gone.contains(rule)));
            }
            PermissionUpdate::SetMode { mode } => {
                let known = PermissionMode::parse(mode);
                self.set_mode(known.ok_or_else(|| UpdateError::UnknownMode(mode.clone()))?)?;
            }
            PermissionUpdate::AddDirectories { directories } => {
                let open = |folder: &String| {
                    let folder = resolve(folder);
                    AddedFolder::open(&folder).ok_or(UpdateError::NoFolder(folder))
                };
                let folders = directories.iter().map(open).collect::<Result<_, _>>()?;
                self.change(|_| self.folders.add(folders));
            }
            PermissionUpdate::RemoveDirectories { directories } => {
                // A link may have taken its place.
                let find = |folder: &String| {
                    let as_added = Some(PathBuf::from(folder)).filter(|it| self.folders.has(it));
                    as_added.unwrap_or_else(|| resolve(folder))
                };
                let folders: Vec<PathBuf> = directories.iter().map(find).collect();
                if let Some(other) = folders.iter().find(|folder| !self.folders.has(folder)) {
                    return Err(UpdateError::NotAdded(other.clone()));
                }
                self.change(|_| self.folders.remove(&folders));
            }
        }
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut LiveChanges)) {
        let mut changes = self.changes.write();
        changes.count += 1;
        change(&mut changes);
    }

    /// The folders that were added. Clones share them.
    pub(in super::super) fn folders(&self) -> &AddedFolders {
        &self.folders
    }

    /// The folders that were added and still exist, as real paths.
    pub fn existing_folders(&self) -> Vec<PathBuf> {
        self.folders.existing()
    }

    /// The number of changes that were made.
    pub(super) fn count(&self) -> u64 {
        self.changes.read().count
    }

    /// The mode, if it was changed.
    pub fn mode(&self) -> Option<PermissionMode> {
        let changes = self.changes.read();
        changes.mode.filter(|_| !self.keeps_mode)
    }

    /// The mode, if it was changed, and the rules that were added.
    pub(super) fn changes(
        &self,
        cwd: &Path,
        home: Option<&Path>,
    ) -> (Option<PermissionMode>, Vec<PermissionRule>) {
        let changes = self.changes.read();
        let parse = |(list, text): &(RuleList, String)| {
            // Rules were checked when they were added.
            PermissionRule::parse_all(text, *list, cwd, home).unwrap_or_default()
        };
        let mode = changes.mode.filter(|_| !self.keeps_mode);
        (mode, changes.rules.iter().flat_map(parse).collect())
    }
}

/// The rules as texts, each valid.
fn checked(
    rules: &[RuleText],
    list: RuleList,
    cwd: &Path,
    home: Option<&Path>,
) -> Result<Vec<(RuleList, String)>, UpdateError> {
    let check = |rule: &RuleText| {
        let rule = rule.text();
        match check_rule(&rule, list, cwd, home) {
            Ok(()) => Ok((list, rule)),
            Err(why) => Err(UpdateError::Rule { rule, why }),
        }
    };
    rules.iter().map(check).collect()
}
