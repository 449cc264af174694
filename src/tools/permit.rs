//! Permits: the permission check of a prepared call, and its execution, which takes a permit.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::fs::{self, FileType};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::transcript::{Block, ToolCall};

use super::agents::AgentCall;
use super::catalog::{AGENT, BuiltinTool, TASK, is_agent_tool};
use super::input::{ToolRequest, ToolSearchInput, WebSearchInput};
use super::offered_name::ExternalInput;
use super::outcome::{GrantSource, ToolOutcome, ToolRefusal};
use super::panic_guard::{check_paths, run_guarded, run_read};
use super::paths::{ResolvedPath, WorkFolders};
use super::permission::{Access, Confinement, Denial};
use super::prepared_call::{BuiltinCall, ParsedCall, PreparedCall};
use super::real_paths::RealPaths;
use super::toolbox::{ToolSet, Toolbox};

/// A call that may run. [`Toolbox::authorize`] is the only source of permits, and [`Toolbox::run`]
/// takes nothing else.
///
/// ```no_run
/// use outlast::tools::{GrantSource, Toolbox, ToolOutcome};
/// use outlast::transcript::ToolCall;
/// use tokio_util::sync::CancellationToken;
///
/// async fn run(toolbox: &Toolbox, call: ToolCall) -> Option<ToolOutcome> {
///     let prepared = toolbox.prepare(call);
///     let permit = toolbox.authorize(&prepared, GrantSource::Rules).ok()?;
///     Some(toolbox.run(permit, CancellationToken::new()).await)
/// }
/// ```
///
/// A call that was not checked does not run:
///
/// ```compile_fail,E0308
/// use outlast::tools::{Toolbox, ToolOutcome};
/// use outlast::transcript::ToolCall;
/// use tokio_util::sync::CancellationToken;
///
/// async fn run(toolbox: &Toolbox, call: ToolCall) -> Option<ToolOutcome> {
///     let prepared = toolbox.prepare(call);
///     Some(toolbox.run(prepared, CancellationToken::new()).await)
/// }
/// ```
///
/// Nor does one with a permit of another call:
///
/// ```compile_fail,E0451
/// use std::sync::Arc;
/// use outlast::tools::{Permit, PreparedCall};
///
/// fn of_other_call(permit: Permit, prepared: Arc<PreparedCall>) -> Permit {
///     Permit { prepared, ..permit }
/// }
/// ```
pub struct Permit {
    /// The tools that have checked the call, and run it.
    tools: Arc<ToolSet>,
    prepared: Arc<PreparedCall>,
    source: GrantSource,
    checked: CheckedCall,
}

/// A permitted call that is not run by the toolbox but by the run that it belongs to.
#[derive(Clone, Copy, Debug)]
pub enum DelegatedCall<'a> {
    Agent(&'a AgentCall),
    WebSearch(&'a WebSearchInput),
    ToolSearch(&'a ToolSearchInput),
}

/// The result of a permission check, with the state of disk and host that it depends on.
#[derive(Default)]
struct CheckedCall {
    /// The resolved path, if the call has one.
    target: Option<ResolvedPath>,
    /// The confinement, if the call is a command.
    confinement: Confinement,
    /// The working directory of commands.
    cwd: PathBuf,
    /// The paths that were looked up for a command.
    lookups: HashMap<(String, PathBuf), PathLookup>,
    /// The number of changes of permissions that the host had made.
    live_changes: u64,
}

/// The file that a path led to.
#[derive(Clone, PartialEq)]
struct PathLookup {
    target: ResolvedPath,
    kind: Option<FileType>,
}

impl PathLookup {
    /// Looks up a path. `seen` is shared by the words of a command, which have most of their
    /// folders in common.
    fn of(places: &WorkFolders, path: &str, base: &Path, seen: &RealPaths) -> Self {
        let target = places.resolve_by(path, base, |path| seen.resolve(path, &[]));
        let kind = fs::symlink_metadata(&target.real).ok().map(|metadata| metadata.file_type());
        Self { target, kind }
    }
}

impl Permit {
    pub fn call(&self) -> &ToolCall {
        self.prepared.call()
    }

    pub fn prepared(&self) -> &Arc<PreparedCall> {
        &self.prepared
    }

    /// The input of a call that the run performs. A toolbox cannot run it.
    pub fn delegated(&self) -> Option<DelegatedCall<'_>> {
        if let Some(call) = self.prepared.agent_call() {
            return Some(DelegatedCall::Agent(call));
        }
        let Ok(ParsedCall::BuiltIn(built_in)) = &self.prepared.work else { return None };
        if let ToolRequest::WebSearch(search) = &built_in.request {
            return Some(DelegatedCall::WebSearch(search));
        }
        let ToolRequest::ToolSearch(search) = &built_in.request else { return None };
        Some(DelegatedCall::ToolSearch(search))
    }

    /// True if this call can run in parallel with others of its reply.
    pub fn runs_in_parallel(&self) -> bool {
        let is_command = self.call().name == BuiltinTool::Bash.name();
        self.prepared.may_run_in_parallel()
            && (!is_command || self.tools.only_reads(&self.checked.confinement))
    }

    async fn run(self, cancel: CancellationToken) -> ToolOutcome {
        let Self { tools, prepared, source, checked } = self;
        match &prepared.work {
            Ok(ParsedCall::BuiltIn(built_in)) => {
                let rechecking = {
                    let (tools, built_in) = (Arc::clone(&tools), Arc::clone(built_in));
                    let prepared = Arc::clone(&prepared);
                    move || tools.recheck(&built_in, prepared.call(), source, checked)
                };
                let rechecked = tokio::select! {
                    biased;
                    () = cancel.cancelled() => {
                        return ToolOutcome::failure("Interrupted by user; nothing was changed");
                    }
                    rechecked = check_paths(rechecking) => rechecked,
                };
                let checked = match rechecked.and_then(|checked| checked) {
                    Ok(checked) => checked,
                    Err(refusal) => return refusal.into_outcome(),
                };
                let (call, CheckedCall { target, confinement, .. }) = (prepared.call(), checked);
                let mut outcome = match target {
                    Some(target) => tools.run_with_path(Arc::clone(built_in), target, cancel).await,
                    None => tools.run_without_path(call, built_in, confinement, cancel).await,
                };
                if !built_in.notes.is_empty() {
                    let notes = built_in.notes.join("; ");
                    outcome.content.push(Block::text(format!("({notes}.)")));
                }
                outcome
            }
            Ok(ParsedCall::External(foreign)) => {
                tools.run_external(foreign.as_ref(), prepared.call(), cancel).await
            }
            Ok(ParsedCall::Answer(answers)) => {
                let (answers, input) = (Arc::clone(answers), prepared.call().input.clone());
                run_read(cancel, move |stop| answers.validate_and_store(&input, stop)).await
            }
            Ok(ParsedCall::Agent(_)) => ToolOutcome::failure("the run performs this call"),
            Err(refusal) => refusal.clone().into_outcome(),
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &mut formatter.debug_struct("Permit");
        fields.field("call", self.call()).field("source", &self.source).finish_non_exhaustive()
    }
}

impl Toolbox {
    /// Checks the permission of a call that the rules, a hook or a prompt may allow. Has no effect.
    pub fn authorize(
        &self,
        prepared: &Arc<PreparedCall>,
        source: GrantSource,
    ) -> Result<Permit, ToolRefusal> {
        let call = prepared.call();
        let mut checked = CheckedCall::default();
        match &prepared.work {
            Ok(ParsedCall::BuiltIn(built_in)) => {
                checked = self.tools.check_by_source(built_in, call, source)?;
            }
            Ok(ParsedCall::External(foreign)) => {
                self.check_external(foreign.as_ref(), call, source)?;
            }
            Ok(ParsedCall::Agent(wanted)) => self.check_agent(wanted)?,
            Ok(ParsedCall::Answer(_)) => {}
            Err(refusal) => return Err(refusal.clone()),
        }
        let (tools, prepared) = (Arc::clone(&self.tools), Arc::clone(prepared));
        Ok(Permit { tools, prepared, source, checked })
    }

    /// Prepares a call and checks its permission by the rules alone.
    pub fn admit(&self, call: &ToolCall) -> Result<Permit, ToolRefusal> {
        self.authorize(&self.prepare(call.clone()), GrantSource::Rules)
    }

    /// Performs a check of a call on a blocking thread: its paths may be on a file system that does
    /// not answer.
    ///
    /// # Errors
    /// The refusal for the model: the check did not end in time.
    pub async fn check<T: Send + 'static>(
        self: &Arc<Self>,
        check: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ToolRefusal> {
        let toolbox = Arc::clone(self);
        check_paths(move || check(&toolbox)).await
    }

    /// True if a permission rule covers this call, or if that cannot be determined.
    pub fn rule_covers(&self, rule: &str, prepared: &PreparedCall) -> bool {
        let (permissions, call) = (&self.tools.permissions, prepared.call());
        let Ok(ParsedCall::BuiltIn(built_in)) = &prepared.work else {
            let foreign = self.foreign.as_ref();
            let schema = foreign.and_then(|foreign| foreign.input_schema(&call.name));
            let input = ExternalInput { input: &call.input, schema: schema.as_ref() };
            let covers = |name: &str| permissions.rule_covers_external(rule, name, input);
            return BuiltinTool::named(&call.name).is_some()
                || covers(&call.name)
                || is_agent_tool(&call.name) && (covers(AGENT) || covers(TASK));
        };
        let check_rule = |access: &Access<'_>| {
            permissions.check_against_rule(rule, built_in.tool, &call.input, access)
        };
        self.tools.check(built_in, &check_rule).is_err()
    }

    /// Runs a permitted call. Never fails: every failure, including a panic, is an outcome.
    pub async fn run(&self, permit: Permit, cancel: CancellationToken) -> ToolOutcome {
        let name = permit.call().name.clone();
        self.redacted(Box::pin(run_guarded(&name, permit.run(cancel))).await)
    }
}

impl ToolSet {
    fn check_by_source(
        &self,
        built_in: &BuiltinCall,
        call: &ToolCall,
        source: GrantSource,
    ) -> Result<CheckedCall, Denial> {
        let check_call = |access: &Access<'_>| {
            self.permissions.check_call(built_in.tool, &call.input, access, source)
        };
        self.check(built_in, &check_call)
    }

    /// Checks the access that a call requests.
    fn check(
        &self,
        built_in: &BuiltinCall,
        check_access: &dyn Fn(&Access<'_>) -> Result<Confinement, Denial>,
    ) -> Result<CheckedCall, Denial> {
        let (live_changes, cwd) = (self.permissions.live_changes(), self.shell.folder.path());
        let target = self.place(&built_in.request, &cwd);
        let (lookups, seen) = (RefCell::new(HashMap::new()), RealPaths::default());
        let resolve = |path: &str, base: &Path| {
            let mut lookups = lookups.borrow_mut();
            let lookup = lookups
                .entry((path.to_owned(), base.to_owned()))
                .or_insert_with(|| PathLookup::of(&self.places, path, base, &seen));
            lookup.target.clone()
        };
        let access = match (&built_in.request, &target) {
            (ToolRequest::Bash(bash), _) => Access::Command {
                command: &bash.command,
                parts: built_in.commands.as_deref(),
                cwd: &cwd,
                resolve: &resolve,
            },
            (
                ToolRequest::Write(_) | ToolRequest::Edit(_) | ToolRequest::NotebookEdit(_),
                Some(target),
            ) => Access::Change(target.clone()),
            (ToolRequest::Read(_) | ToolRequest::Glob(_) | ToolRequest::Grep(_), Some(target)) => {
                Access::Read(target.clone())
            }
            (ToolRequest::WebFetch(_), _) => Access::Host(built_in.host.clone()),
            (ToolRequest::WebSearch(_), _) => Access::Search,
            (_, None)
            | (
                ToolRequest::TodoWrite(_)
                | ToolRequest::ToolSearch(_)
                | ToolRequest::BashOutput(_)
                | ToolRequest::KillShell(_),
                _,
            ) => Access::Nothing,
        };
        let confinement = check_access(&access)?;
        Ok(CheckedCall { target, confinement, cwd, lookups: lookups.into_inner(), live_changes })
    }

    /// Looks up again what the disk can change, and checks the permission again only if that, or
    /// the host, did change something. A changed disk never adds to what was permitted.
    ///
    /// # Errors
    /// The call is no longer allowed, or one of its paths leads elsewhere.
    fn recheck(
        &self,
        built_in: &BuiltinCall,
        call: &ToolCall,
        source: GrantSource,
        checked: CheckedCall,
    ) -> Result<CheckedCall, ToolRefusal> {
        let (is_command, seen) =
            (matches!(built_in.request, ToolRequest::Bash(_)), RealPaths::default());
        let is_same_host = checked.live_changes == self.permissions.live_changes();
        let is_same_disk = self.place(&built_in.request, &checked.cwd) == checked.target
            && (!is_command || self.shell.folder.path() == checked.cwd)
            && checked.lookups.iter().all(|((path, base), lookup)| {
                PathLookup::of(&self.places, path, base, &seen) == *lookup
            });
        if is_same_host && is_same_disk {
            return Ok(checked);
        }
        let again = self.check_by_source(built_in, call, source)?;
        let is_wider = again.confinement != checked.confinement && !is_same_disk;
        if is_wider || again.target != checked.target {
            return Err(ToolRefusal::invalid(
                "the call was not run, because a path in it has led elsewhere since the call was \
                 checked: make the call again",
            ));
        }
        Ok(again)
    }

    /// True if the kernel keeps a command from every change.
    fn only_reads(&self, confinement: &Confinement) -> bool {
        self.shell.sandbox.can_hold_readers()
            && match confinement {
                Confinement::SandboxReading => true,
                Confinement::Sandbox => false,
                Confinement::Plain { changed, may_move, .. } => changed.is_empty() && !may_move,
            }
    }
}
