//! The files and folders that a call is about.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use crate::types::Callback;

use super::catalog::BuiltinTool;
use super::glob_readings::split_folder;
use super::input::{GlobInput, GrepInput, ToolRequest};
use super::outcome::ToolError;
use super::paths::ResolvedPath;
use super::toolbox::ToolSet;
use super::walk::{self, SearchScope};

impl ToolSet {
    /// The files that a call of Glob is about.
    pub(super) fn glob_scope(
        self: &Arc<Self>,
        input: &GlobInput,
        target: &ResolvedPath,
    ) -> Result<SearchScope, ToolError> {
        let (folder, _) = split_folder(&input.pattern);
        self.scope(BuiltinTool::Glob, target, folder, None, None)
    }

    /// The files that a call of Grep is about.
    pub(super) fn grep_scope(
        self: &Arc<Self>,
        input: &GrepInput,
        target: &ResolvedPath,
    ) -> Result<SearchScope, ToolError> {
        let (folder, glob) = self.glob_of(input, &self.shell.folder.path());
        let kind = input.kind.as_deref();
        self.scope(BuiltinTool::Grep, target, folder, glob.as_deref(), kind)
    }

    fn scope(
        self: &Arc<Self>,
        tool: BuiltinTool,
        target: &ResolvedPath,
        pattern_folder: &str,
        globs: Option<&str>,
        kind: Option<&str>,
    ) -> Result<SearchScope, ToolError> {
        let permissions = self.permissions.current().into_owned();
        let missing = || format!("[there is no folder {}]", target.written.display());
        Ok(SearchScope {
            root: target.real.clone(),
            written: target.written.clone(),
            missing_folder: (!pattern_folder.is_empty()).then(missing),
            globs: walk::compile_globs(&target.real, globs)?,
            types: kind.map(walk::find_types).transpose()?,
            hides: Callback(Arc::new(move |path| permissions.hides(tool, path))),
        })
    }

    /// Makes a search below a working folder relative to it. The name of the folder may have
    /// letters that are special in a pattern.
    pub(super) fn split_off_root(&self, request: &mut ToolRequest) {
        let (path, pattern) = if let ToolRequest::Glob(glob) = request {
            (&mut glob.path, &mut glob.pattern)
        } else if let ToolRequest::Grep(GrepInput { path, glob: Some(glob), .. }) = request {
            (path, glob)
        } else {
            return;
        };
        let Some((root, rest)) = self.places.split_off_root(pattern) else { return };
        *path = Some(root);
        *pattern = format!("./{rest}");
    }

    /// Resolves the file or folder that a call is about, including the literal folder of a pattern.
    pub(super) fn place(&self, request: &ToolRequest, cwd: &Path) -> Option<ResolvedPath> {
        let path = path(request)?;
        let folder = if let ToolRequest::Glob(glob) = request {
            split_folder(&glob.pattern).0
        } else if let ToolRequest::Grep(grep) = request {
            self.glob_of(grep, cwd).0
        } else {
            ""
        };
        let is_absolute = folder.starts_with(['/', '~']);
        let base = self.places.resolve(&path, cwd);
        if folder.is_empty() || is_absolute && folder == path {
            return Some(base);
        }
        let of_cwd = self.places.resolve(folder, cwd);
        if is_absolute {
            return Some(of_cwd);
        }
        let below = self.places.resolve(folder, &base.real);
        // Models write patterns relative to the working folder beside a path, as ripgrep takes
        // them.
        let is_other = !below.real.is_dir() && of_cwd.real.is_dir();
        Some(if is_other && of_cwd.real.starts_with(&base.real) { of_cwd } else { below })
    }

    /// Splits the `glob` of a search into its literal folder and the pattern to match below it.
    fn glob_of<'a>(&self, grep: &'a GrepInput, cwd: &Path) -> (&'a str, Option<Cow<'a, str>>) {
        let Some(glob) = grep.glob.as_deref() else { return ("", None) };
        let folder = grep.path.as_deref().unwrap_or(".");
        match split_folder(glob) {
            (_, _) if self.places.resolve(folder, cwd).real.is_file() => ("", Some(glob.into())),
            ("", rest) => ("", Some(rest.into())),
            (folder, "") => (folder, None),
            (folder, rest) => (folder, Some(format!("/{rest}").into())),
        }
    }
}

/// The path of a call, explicit or implied.
pub(super) fn path(request: &ToolRequest) -> Option<String> {
    let folder = |path: &Option<String>| path.clone().unwrap_or_else(|| ".".to_string());
    match request {
        ToolRequest::Read(read) => Some(read.file_path.clone()),
        ToolRequest::Write(write) => Some(write.file_path.clone()),
        ToolRequest::Edit(edit) => Some(edit.file_path.clone()),
        ToolRequest::NotebookEdit(edit) => Some(edit.notebook_path.clone()),
        ToolRequest::Glob(glob) => match split_folder(&glob.pattern).0 {
            root if root.starts_with(['/', '~']) => Some(root.to_string()),
            _ => Some(folder(&glob.path)),
        },
        ToolRequest::Grep(grep) => Some(folder(&grep.path)),
        ToolRequest::Bash(_)
        | ToolRequest::BashOutput(_)
        | ToolRequest::KillShell(_)
        | ToolRequest::WebFetch(_)
        | ToolRequest::WebSearch(_)
        | ToolRequest::ToolSearch(_)
        | ToolRequest::TodoWrite(_) => None,
    }
}
