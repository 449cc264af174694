//! The tools of a run, and the way every call takes: known, fitting, allowed, run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::secrets::Mask;
use crate::transcript::{Block, ToolCall, ToolDefinition};

use super::acceptance::Demands;
use super::background;
use super::capture::Scratch;
use super::catalog::Tool;
use super::contain::{change, contain, look};
use super::edit;
use super::foreign::ForeignTools;
use super::glob;
use super::grep;
use super::input::{self, Request};
use super::outcome::{Effect, Outcome, Refusal, Warrant};
use super::permission::{Deed, Permissions};
use super::places::{PATH_BYTES_MAX, Place, Places, resolve};
use super::read;
use super::seen::Seen;
use super::settings::{BadSettings, ToolSettings};
use super::shell::{Shell, ShellParts};
use super::todo::Todos;
use super::upkeep::{environment, left, offered, rules, sandbox};
use super::walk::{self, Bounds, Scope};
use super::web::{self, Web};
use super::write;

/// The tools of a run.
pub struct Toolbox {
    pub(super) definitions: Vec<ToolDefinition>,
    pub(super) mask: Mask,
    pub(super) kit: Arc<Kit>,
    pub(super) foreign: Option<Arc<dyn ForeignTools>>,
    /// The only tools of others that are offered, if not all: what each in a line of sub-agents
    /// leaves to the next.
    pub(super) only_foreign: Vec<Vec<String>>,
    /// What it was made with, and what a sub-agent's is made of.
    pub(super) settings: ToolSettings,
    /// Whether it is the run's own, and not a sub-agent's.
    pub(super) is_root: bool,
}

pub(super) struct Kit {
    offered: Vec<Tool>,
    pub(super) permissions: Permissions,
    pub(super) places: Places,
    pub(super) shell: Shell,
    pub(super) demands: Demands,
    web: Option<Web>,
    pub(super) seen: Seen,
    todos: Todos,
    pub(super) output_limit: usize,
    pub(super) foreign_output_limit: usize,
}

/// Says why a tool may not do something.
type Judge<'a> = &'a dyn Fn(Tool, &Deed<'_>) -> Result<(), String>;

/// A call that was found good.
struct Errand {
    request: Request,
    /// Where its path leads, if it has one.
    place: Option<Place>,
}

impl Toolbox {
    /// Makes the tools. Looks at the file system, and changes nothing.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn new(settings: &ToolSettings) -> Result<Self, BadSettings> {
        let environment = environment(settings);
        let home = settings.home.clone().filter(|home| home.is_absolute());
        let roots = [settings.cwd.clone()].into_iter().chain(settings.additional_dirs.clone());
        let roots: Vec<PathBuf> = roots.map(|root| settings.cwd.join(root)).collect();
        if let Some(path) = roots.iter().find(|root| !root.is_dir()) {
            return Err(BadSettings::NoFolder { path: path.clone() });
        }
        let places = Places::new(&roots, &settings.scratch, home).reading(&settings.readable);
        let home = places.home.as_deref();
        let permissions = rules(settings, places.cwd(), home)?;
        let sandbox = sandbox(settings, &roots, home)?;
        let permissions = permissions.guarding(sandbox.secrets());
        let demands = Demands::new(settings)?;
        let offered = offered(&settings.offered)?;
        let told = |tool: &Tool| tool.define(settings, sandbox.briefing().as_deref());
        let there = |tool: &&Tool| **tool != Tool::WebFetch || settings.reaches_web();
        let left = left(&offered, &permissions);
        let definitions = left.iter().filter(there).map(told).chain(demands.define()).collect();
        let scratch = Scratch::new(&settings.scratch, &settings.secrets);
        let web = Web::of(settings, &scratch)?;
        let shell = Shell::new(ShellParts {
            environment,
            timeout: settings.bash_timeout.min(settings.bash_timeout_max),
            timeout_max: settings.bash_timeout_max,
            lifetime: settings.background_lifetime,
            output_limit: settings.output_limit,
            scratch,
            cwd: places.cwd().to_path_buf(),
            supervisor: settings.supervisor.clone(),
            sandbox,
        });
        let kit = Kit {
            offered,
            permissions,
            places,
            shell,
            demands,
            web,
            seen: Seen::default(),
            todos: Todos::default(),
            output_limit: settings.output_limit,
            foreign_output_limit: settings.foreign_output_limit,
        };
        let mask = Mask::toward_model(settings.secrets.clone());
        Ok(Self {
            definitions,
            mask,
            kit: Arc::new(kit),
            foreign: None,
            only_foreign: Vec::new(),
            settings: settings.clone(),
            is_root: true,
        })
    }

    /// What the model is told of the built-in tools, in a fixed order.
    pub fn definitions(&self) -> &[ToolDefinition] {
        &self.definitions
    }

    /// What this call may do. An unknown tool is taken for the worst.
    pub fn effect(&self, call: &ToolCall) -> Effect {
        Tool::named(&call.name).map_or(Effect::Changes, Tool::effect)
    }

    /// Whether this call can run beside others of its reply: it changes nothing, as the tool is
    /// made or as the kernel holds its command to. All others run alone and in order.
    pub fn runs_beside_others(&self, call: &ToolCall) -> bool {
        if self.effect(call).changes_nothing() {
            return true;
        }
        let request = Tool::named(&call.name).map(|tool| input::parse(tool, &call.input));
        matches!(request, Some(Ok(Request::Bash(bash))) if self.kit.shell.is_held_to_reading(&bash))
    }

    /// Checks that the tool exists, its input fits and the call is allowed. Has no effect.
    ///
    /// # Errors
    /// What to tell the model instead.
    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    pub fn admit(&self, call: &ToolCall) -> Result<(), Refusal> {
        self.admit_by(call, Warrant::Rules)
    }

    /// The same for a call that a hook may have allowed.
    ///
    /// # Errors
    /// What to tell the model instead.
    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    pub fn admit_by(&self, call: &ToolCall, warrant: Warrant) -> Result<(), Refusal> {
        // An answer is checked when it is taken: a misfit counts, and nothing is counted here.
        if self.kit.demands.answers(&call.name).is_some() {
            return Ok(());
        }
        if self.knows_agents(&call.name) {
            return self.admit_agent(call);
        }
        if let Some(foreign) = self.owner(&call.name) {
            return self.admit_foreign(foreign.as_ref(), call, warrant);
        }
        if let Some(why) = self.absent(&call.name) {
            return Err(Refusal::invalid(why));
        }
        self.kit.admit(call, warrant).map(drop)
    }

    /// The same call with the path that it names, or means by naming none, made absolute: as hooks,
    /// rules and the tool itself are to see it, wherever commands stand by then. What is no path
    /// stays as it is.
    #[must_use]
    pub fn with_absolute_path(&self, call: &ToolCall) -> ToolCall {
        self.kit
            .with_path(call, |kit, path| Some(kit.places.absolute(path, &kit.shell.cwd())))
            .unwrap_or_else(|| call.clone())
    }

    /// The same call with the path that its absolute path really leads to, if links lead elsewhere.
    pub fn with_real_path(&self, call: &ToolCall) -> Option<ToolCall> {
        self.kit.with_path(call, |_, path| {
            let real = resolve(Path::new(path));
            (real != Path::new(path)).then_some(real)
        })
    }

    /// Whether a permission rule speaks of this call. Where nobody can tell, it does.
    pub fn covers(&self, rule: &str, call: &ToolCall) -> bool {
        if Tool::named(&call.name).is_none() {
            return self.kit.permissions.covers_foreign(rule, &call.name);
        }
        self.kit.covers(rule, call)
    }

    /// Runs an admitted call. Never fails: every failure, a panic included, is an outcome.
    pub async fn run(&self, call: &ToolCall, cancel: CancellationToken) -> Outcome {
        self.run_by(call, Warrant::Rules, cancel).await
    }

    /// The same for a call that somebody else than the rules may have admitted.
    pub async fn run_by(
        &self,
        call: &ToolCall,
        warrant: Warrant,
        cancel: CancellationToken,
    ) -> Outcome {
        if let Some(foreign) = self.owner(&call.name) {
            return self.masked(self.run_foreign(Arc::clone(foreign), call, cancel).await);
        }
        let (kit, name, call) = (Arc::clone(&self.kit), call.name.clone(), call.clone());
        let outcome =
            contain(&name, async move { kit.perform(&call, warrant, cancel).await }).await;
        self.masked(outcome)
    }

    /// What comes of a call, without the secrets of the run: nothing that the model reads can
    /// talk it into sending them anywhere.
    pub(super) fn masked(&self, mut outcome: Outcome) -> Outcome {
        for block in &mut outcome.content {
            if let Block::Text { text } = block {
                self.mask.hide_in(text);
            }
        }
        self.mask.hide_json(&mut outcome.detail);
        outcome
    }
}

impl Kit {
    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    fn admit(&self, call: &ToolCall, warrant: Warrant) -> Result<Errand, Refusal> {
        let judge =
            |tool: Tool, deed: &Deed<'_>| self.permissions.judge(tool, &call.input, deed, warrant);
        self.judge(call, &judge)
    }

    /// The call with another path in the place of its own. `None`: it has no path, or is not valid.
    fn with_path(
        &self,
        call: &ToolCall,
        change: impl FnOnce(&Self, &str) -> Option<PathBuf>,
    ) -> Option<ToolCall> {
        let tool = Tool::named(&call.name)?;
        let field = tool.path_field()?;
        let request = input::parse(tool, &call.input).ok()?;
        self.check(&request).ok()?;
        let changed = change(self, &path(&request)?)?;
        let mut call = call.clone();
        call.input.as_object_mut()?.insert(field.to_owned(), changed.to_str()?.into());
        Some(call)
    }

    fn covers(&self, rule: &str, call: &ToolCall) -> bool {
        let judge =
            |tool: Tool, deed: &Deed<'_>| self.permissions.checks(rule, tool, &call.input, deed);
        self.judge(call, &judge).is_err()
    }

    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    fn judge(&self, call: &ToolCall, judge: Judge<'_>) -> Result<Errand, Refusal> {
        let Some(tool) = Tool::named(&call.name).filter(|tool| self.offered.contains(tool)) else {
            return Err(Refusal::invalid(format!("No such tool available: {}", call.name)));
        };
        let request = input::parse(tool, &call.input).map_err(Refusal::invalid)?;
        self.check(&request).map_err(Refusal::invalid)?;
        let cwd = self.shell.cwd();
        let place = path(&request).map(|path| self.places.find(&path, &cwd));
        let find = |path: &str, base: &Path| self.places.find(path, base);
        let deed = match (&request, &place) {
            (Request::Bash(bash), _) => {
                Deed::Command { command: &bash.command, cwd: &cwd, find: &find }
            }
            (Request::Write(_) | Request::Edit(_), Some(place)) => Deed::Change(place.clone()),
            (Request::Read(_) | Request::Glob(_) | Request::Grep(_), Some(place)) => {
                Deed::Look(place.clone())
            }
            (Request::WebFetch(fetch), _) => web::deed(self.web.as_ref(), fetch)?,
            (_, None)
            | (Request::TodoWrite(_) | Request::BashOutput(_) | Request::KillShell(_), _) => {
                Deed::Note
            }
        };
        judge(tool, &deed).map_err(Refusal::denied)?;
        Ok(Errand { request, place })
    }

    /// What only the tool itself knows to be wrong.
    fn check(&self, request: &Request) -> Result<(), String> {
        if path(request).is_some_and(|path| path.contains('\0')) {
            return Err("the path contains a NUL character".to_string());
        }
        if path(request).is_some_and(|path| path.len() > PATH_BYTES_MAX) {
            return Err(format!("the path is longer than {PATH_BYTES_MAX} bytes"));
        }
        match request {
            Request::Bash(bash) => self.shell.check(bash),
            Request::Edit(edit) => edit::check(edit),
            Request::Glob(glob) => glob::matcher(glob).map(drop),
            Request::Grep(grep) => {
                grep.kind.as_deref().map_or(Ok(()), |kind| walk::types(kind).map(drop))?;
                grep::matcher(grep).map(drop)
            }
            Request::BashOutput(look) => background::filter(look).map(drop),
            Request::Read(_)
            | Request::Write(_)
            | Request::WebFetch(_)
            | Request::TodoWrite(_)
            | Request::KillShell(_) => Ok(()),
        }
    }

    /// Judges the call once more, for the world may have moved since it was admitted, and runs it.
    async fn perform(
        self: Arc<Self>,
        call: &ToolCall,
        warrant: Warrant,
        cancel: CancellationToken,
    ) -> Outcome {
        if let Some(answers) = self.demands.answers(&call.name) {
            let input = call.input.clone();
            return look(cancel, move |stop| answers.take(&input, stop)).await;
        }
        let Errand { request, place } = match self.admit(call, warrant) {
            Ok(errand) => errand,
            Err(refusal) => return refusal.into_outcome(),
        };
        let Some(place) = place else {
            return match request {
                Request::Bash(bash) if bash.run_in_background => {
                    self.shell.begin(&call.id, &bash, &self.places).await
                }
                Request::Bash(bash) => self.shell.run(&bash, &self.places, &cancel).await,
                Request::BashOutput(look) => {
                    background::output(&self.shell.background, &look, &cancel).await
                }
                Request::KillShell(which) => background::kill(&self.shell.background, &which).await,
                Request::TodoWrite(todo) => self.todos.replace(todo),
                Request::WebFetch(fetch) => web::fetch(self.web.as_ref(), &fetch, &cancel).await,
                Request::Read(_)
                | Request::Write(_)
                | Request::Edit(_)
                | Request::Glob(_)
                | Request::Grep(_) => Outcome::failure("the call names no path"),
            };
        };
        let effect = Tool::named(&call.name).map_or(Effect::Changes, Tool::effect);
        let work = move |stop: &CancellationToken| self.work(request, &place, stop);
        match effect {
            Effect::ReadOnly | Effect::Visits => look(cancel, work).await,
            Effect::Changes => change(cancel, work).await,
        }
    }

    /// The part of a call that touches files. Blocks.
    fn work(self: Arc<Self>, request: Request, place: &Place, stop: &CancellationToken) -> Outcome {
        let base = self.shell.cwd();
        match request {
            Request::Read(read) => read::run(&read, place, &base, &self.seen, stop),
            Request::Write(write) => write::run(&write, place, &self.seen, stop),
            Request::Edit(edit) => edit::run(&edit, place, &base, &self.seen, stop),
            Request::Glob(input) => {
                let scope = self.scope(Tool::Glob, place, None, None);
                match (glob::matcher(&input), scope) {
                    (Ok(matcher), Ok(scope)) => {
                        glob::run(&matcher, scope, &base, &Bounds::new(stop))
                    }
                    (Err(why), _) | (_, Err(why)) => Outcome::failure(why),
                }
            }
            Request::Grep(input) => {
                let scope =
                    self.scope(Tool::Grep, place, input.glob.as_deref(), input.kind.as_deref());
                match (grep::matcher(&input), scope) {
                    (Ok(matcher), Ok(scope)) => {
                        let bounds = Bounds::new(stop);
                        grep::run(&input, &matcher, scope, &base, self.output_limit, &bounds)
                    }
                    (Err(why), _) | (_, Err(why)) => Outcome::failure(why),
                }
            }
            Request::Bash(_)
            | Request::BashOutput(_)
            | Request::KillShell(_)
            | Request::WebFetch(_)
            | Request::TodoWrite(_) => Outcome::failure("the call touches no files"),
        }
    }

    fn scope(
        self: &Arc<Self>,
        tool: Tool,
        place: &Place,
        globs: Option<&str>,
        kind: Option<&str>,
    ) -> Result<Scope, String> {
        let kit = Arc::clone(self);
        Ok(Scope {
            root: place.real.clone(),
            globs: walk::globs(&place.real, globs)?,
            types: kind.map(walk::types).transpose()?,
            hides: Box::new(move |path| kit.permissions.hides(tool, path)),
        })
    }
}

/// The path that a call names, or means by naming none.
fn path(request: &Request) -> Option<String> {
    let folder = |path: &Option<String>| path.clone().unwrap_or_else(|| ".".to_string());
    match request {
        Request::Read(read) => Some(read.file_path.clone()),
        Request::Write(write) => Some(write.file_path.clone()),
        Request::Edit(edit) => Some(edit.file_path.clone()),
        Request::Glob(glob) => match glob::split(&glob.pattern) {
            ("", _) => Some(folder(&glob.path)),
            (root, _) => Some(root.to_string()),
        },
        Request::Grep(grep) => Some(folder(&grep.path)),
        Request::Bash(_)
        | Request::BashOutput(_)
        | Request::KillShell(_)
        | Request::WebFetch(_)
        | Request::TodoWrite(_) => None,
    }
}
