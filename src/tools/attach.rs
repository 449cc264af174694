//! Files named in a prompt, shown as the Read tool shows them and under the same rules.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::transcript::Block;

use super::Toolbox;
use super::catalog::BuiltinTool;
use super::file_names;
use super::input::ReadInput;
use super::outcome::{GrantSource, ToolError, ToolOutcome};
use super::paths::ResolvedPath;
use super::permission::Access;
use super::read;

/// The maximum number of names listed for a folder.
const NAMES_MAX: usize = 200;

/// A range of lines in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// Counted from 1.
    pub first: u64,
    pub last: u64,
}

/// The reason that a file is not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAttached {
    /// The file does not exist.
    Missing,
    /// Reading is not allowed, or failed.
    Refused(String),
}

/// Returns the reason why rules keep a file from the model. `None`: they do not.
pub type ReadDenial = Arc<dyn Fn(&Path) -> Option<String> + Send + Sync>;

impl Toolbox {
    /// Returns the check of files that are shown to the model without a call of a tool.
    pub fn read_denial(&self) -> ReadDenial {
        let permissions = self.tools.permissions.clone();
        Arc::new(move |path| {
            permissions.check_reading_rules(path).err().map(|denial| denial.to_string())
        })
    }

    /// Shows a file as Read does, or lists the names in a folder. Blocks.
    ///
    /// # Errors
    /// The file does not exist, or reading it is not allowed or failed.
    pub fn attach(
        &self,
        path: &str,
        lines: Option<LineRange>,
        source: GrantSource,
    ) -> Result<Vec<Block>, NotAttached> {
        let base = self.tools.shell.folder.path();
        let target = self.tools.places.resolve(path, &base);
        let (input, access) = (json!({ "file_path": path }), Access::Read(target.clone()));
        let judged = self.tools.permissions.check_call(BuiltinTool::Read, &input, &access, source);
        judged.map_err(|denial| NotAttached::Refused(denial.to_string()))?;
        let metadata = fs::metadata(&target.real).map_err(|error| {
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                NotAttached::Missing
            } else {
                NotAttached::Refused(error.to_string())
            }
        })?;
        let shown = if metadata.is_dir() {
            self.list_folder(&target)
        } else {
            let read = ReadInput {
                file_path: path.to_owned(),
                offset: lines.map(|lines| lines.first),
                limit: lines.map(|lines| lines.last.saturating_sub(lines.first) + 1),
                pages: None,
            };
            let page = self.tools.results.page();
            let seen = (&self.tools.seen, page);
            read::run(&read, &target, &base, seen, &CancellationToken::new())
        };
        match shown {
            Ok(outcome) => Ok(self.redacted(outcome).content),
            Err(why) => Err(NotAttached::Refused(self.redactor.redact(&why.to_string()))),
        }
    }

    /// Lists the names in a folder, without those hidden by rules.
    fn list_folder(&self, folder: &ResolvedPath) -> Result<ToolOutcome, ToolError> {
        let entries = fs::read_dir(&folder.real).map_err(|error| error.to_string())?;
        let permissions = self.tools.permissions.current();
        let seen = |path: &Path| !permissions.hides(BuiltinTool::Read, path);
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| seen(&entry.path()))
            .map(|entry| {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let name = file_names::shown(Path::new(&entry.file_name()));
                if is_folder { name + "/" } else { name }
            })
            .collect();
        names.sort_unstable();
        let left = names.len().saturating_sub(NAMES_MAX);
        names.truncate(NAMES_MAX);
        names.extend((left > 0).then(|| format!("(and {left} more)")));
        Ok(ToolOutcome::text(names.join("\n"), json!({})))
    }
}
