//! Runs the built-in tools, for calls that have a permit.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::transcript::ToolCall;
use crate::types::Callback;

use super::background;
use super::catalog::BuiltinTool;
use super::edit;
use super::glob;
use super::grep;
use super::input::ToolRequest;
use super::notebook_edit;
use super::outcome::{Effect, ToolError, ToolOutcome};
use super::panic_guard::{run_change, run_read};
use super::paths::{PathScope, ResolvedPath, resolve};
use super::permission::Confinement;
use super::prepared_call::BuiltinCall;
use super::read;
use super::sandbox::{CommandScope, Hides, PlainScope, program_places};
use super::toolbox::ToolSet;
use super::walk::SearchBounds;
use super::web;
use super::write;

impl ToolSet {
    pub(super) async fn run_without_path(
        self: Arc<Self>,
        call: &ToolCall,
        built_in: &BuiltinCall,
        confinement: Confinement,
        cancel: CancellationToken,
    ) -> ToolOutcome {
        let outcome = match &built_in.request {
            ToolRequest::Bash(bash) => {
                let scope = self.command_scope(confinement, built_in);
                if bash.run_in_background {
                    self.shell.start_in_background(&call.id, bash, scope, &self.places).await
                } else {
                    self.shell.run(bash, scope, &self.places, &cancel).await
                }
            }
            ToolRequest::BashOutput(look) => {
                background::read_output(&self.shell.background, look, &cancel).await
            }
            ToolRequest::KillShell(which) => background::kill(&self.shell.background, which).await,
            ToolRequest::TodoWrite(todo) => Ok(self.todos.replace(todo)),
            ToolRequest::WebFetch(fetch) => Ok(web::fetch(self.web.as_ref(), fetch, &cancel).await),
            // The run performs these.
            ToolRequest::WebSearch(_) | ToolRequest::ToolSearch(_) => {
                Err("nothing can be searched here".into())
            }
            ToolRequest::Read(_)
            | ToolRequest::Write(_)
            | ToolRequest::Edit(_)
            | ToolRequest::NotebookEdit(_)
            | ToolRequest::Glob(_)
            | ToolRequest::Grep(_) => Err("the call names no path".into()),
        };
        outcome.unwrap_or_else(ToolOutcome::from)
    }

    pub(super) async fn run_with_path(
        self: Arc<Self>,
        built_in: Arc<BuiltinCall>,
        target: ResolvedPath,
        cancel: CancellationToken,
    ) -> ToolOutcome {
        let effect = built_in.tool.effect();
        let work = move |stop: &CancellationToken| {
            let outcome = self.run_file_tool(&built_in.request, &target, stop);
            outcome.unwrap_or_else(ToolOutcome::from)
        };
        match effect {
            Effect::ReadOnly | Effect::Network => run_read(cancel, work).await,
            Effect::Notes | Effect::Changes => run_change(cancel, work).await,
        }
    }

    fn command_scope(
        self: &Arc<Self>,
        confinement: Confinement,
        built_in: &BuiltinCall,
    ) -> CommandScope {
        let (named, changed, may_move, runs_git) = match confinement {
            Confinement::Sandbox => {
                let commands = built_in.commands.as_deref().unwrap_or_default();
                return CommandScope::Sandbox(self.permissions.granted_credentials(commands));
            }
            Confinement::SandboxReading => return CommandScope::Reading,
            Confinement::Plain { named, changed, may_move, runs_git } => {
                (named, changed, may_move, runs_git)
            }
        };
        let permissions = self.permissions.current().into_owned();
        let mut folders = self.places.readable_folders();
        if runs_git {
            folders.extend_from_slice(self.permissions.repositories());
        }
        let hides_below = |folder: &PathBuf| {
            let target = ResolvedPath {
                written: folder.clone(),
                real: folder.clone(),
                scope: PathScope::Inside,
            };
            permissions.hides_below(&target)
        };
        let hides_some = folders.iter().chain(&named).any(&hides_below);
        // A program in a folder of the run could be one that a command has put there.
        let path = self.shell.environment.get("PATH").unwrap_or_default();
        let writable = self.shell.sandbox.writable();
        let is_safe = |folder: &PathBuf| {
            let real = resolve(folder);
            !writable.iter().chain(&folders).any(|root| real.starts_with(root))
        };
        let safe = std::env::join_paths(std::env::split_paths(path).filter(is_safe));
        let path = safe.unwrap_or_else(|_| path.to_owned());
        let libraries = self.shell.environment.get("LD_LIBRARY_PATH");
        let mut programs = program_places(&path, libraries, self.places.home.as_deref());
        programs.retain(|folder| !hides_below(folder));
        let hides: Hides =
            Callback(Arc::new(move |path| permissions.hides(BuiltinTool::Read, path)));
        CommandScope::Plain(PlainScope {
            folders,
            named,
            outputs: Vec::new(),
            changed,
            may_move,
            hides: hides_some.then(|| hides.clone()),
            path,
            programs,
            git: runs_git.then_some(hides),
        })
    }

    /// Runs the part of a call that accesses files. Blocks.
    fn run_file_tool(
        self: Arc<Self>,
        request: &ToolRequest,
        target: &ResolvedPath,
        stop: &CancellationToken,
    ) -> Result<ToolOutcome, ToolError> {
        let base = self.shell.folder.path();
        let known = (&self.seen, self.history.as_ref());
        match request {
            ToolRequest::Read(read) => {
                read::run(read, target, &base, (&self.seen, self.results.page()), stop)
            }
            ToolRequest::Write(write) => write::run(write, target, known, stop),
            ToolRequest::Edit(edit) => edit::run(edit, target, &base, known, stop),
            ToolRequest::NotebookEdit(edit) => notebook_edit::run(edit, target, &base, known, stop),
            ToolRequest::Glob(input) => {
                let matcher = glob::compile(input)?;
                let scope = self.glob_scope(input, target)?;
                glob::run(&matcher, &scope, &base, &SearchBounds::new(stop))
            }
            ToolRequest::Grep(input) => {
                let matcher = grep::compile(input)?;
                let scope = self.grep_scope(input, target)?;
                let bounds = SearchBounds::new(stop);
                grep::run(input, &matcher, &scope, &base, self.results.built_in(), &bounds)
            }
            ToolRequest::Bash(_)
            | ToolRequest::BashOutput(_)
            | ToolRequest::KillShell(_)
            | ToolRequest::WebFetch(_)
            | ToolRequest::WebSearch(_)
            | ToolRequest::ToolSearch(_)
            | ToolRequest::TodoWrite(_) => Err("the call touches no files".into()),
        }
    }
}
