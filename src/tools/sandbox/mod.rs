//! The sandbox for commands: the paths that they may write to or may not read, and the extent to
//! which the kernel enforces that.
//!
//! [`policy`] decides the paths; `process` applies them with Landlock. Landlock cannot exclude a
//! path from a folder that it grants, so a credential inside a writable folder stays readable. It
//! is then listed in the result and in a warning, and with `required` the run does not start.

mod context;
mod control_sockets;
mod denied_paths;
mod exposure;
mod key_files;
mod known_paths;
mod login_entries;
mod login_folders;
mod logins;
mod mounts;
mod named_secrets;
mod network;
mod path_grants;
mod plain;
mod policy;
mod repository;
mod settings;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use clap::ValueEnum;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::process::{
    CallFilter, LandlockPolicy, LandlockSupport, NetworkAccess, PathRule, Refusal,
    RootCapabilities, Supervisor, looks_denied,
};
use crate::types::SandboxMode;

use super::credentials::CredentialSet;

pub(super) use context::SandboxContext;
pub use context::{SandboxError, is_sandbox_path};
pub(super) use denied_paths::{DeniedPlaces, RuleDenial};
use exposure::{Exposure, filters_calls, kernel_gap, least_network};
use network::refusal_note;
pub use network::{
    ChooseProxy, DomainLists, Egress, EgressGap, EgressOptions, InvalidEntry, ProbeFailure,
    ProxyScheme, UpstreamProxy,
};
pub use path_grants::TerminalAccess;
use path_grants::grant_reading_all;
pub(super) use plain::{Hides, PlainScope, program_places};
use policy::SandboxPolicy;
pub(super) use repository::repository_folders;
pub use repository::{SettingsFolders, owns_git_directory, settings_folders};
pub use settings::SandboxSettings;

/// The effective sandbox, for the init message and the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SandboxState {
    /// The requested mode.
    #[schemars(schema_with = "modes")]
    pub mode: SandboxMode,
    /// The extent to which the kernel enforces it.
    pub enforced: Enforced,
    /// The version of the kernel's Landlock; 0 if it is not available.
    pub abi: u32,
    /// The network access of commands: `open`, `no_tcp`, `allowlist`, or `off` (no sockets at all).
    pub network: &'static str,
    /// The lists in force, with `allowlist`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_domains: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied_domains: Vec<String>,
    /// The network of commands, with `allowlist`.
    #[serde(skip)]
    pub egress: Option<Egress>,
    /// Signals to processes that a command did not start: `open` if it can send them, or
    /// `own_only`.
    pub signals: &'static str,
    /// Limits, priorities and CPU affinity of processes that a command did not start: `open` if it
    /// can change them, or `own_only`.
    pub processes: &'static str,
    /// Access that should be denied to commands but is not: paths inside a granted folder, sockets
    /// of services, and permission rules for paths that are patterns.
    pub exposed: Vec<String>,
}

impl SandboxState {
    fn new(
        settings: &SandboxSettings,
        landlock: LandlockSupport,
        enforced: Enforced,
        network: NetworkAccess,
        exposed: Vec<String>,
    ) -> Self {
        let is_on = enforced != Enforced::None;
        let own_only = |is_restricted: bool| if is_restricted { "own_only" } else { "open" };
        let egress = settings.egress.as_ref().filter(|_| network == NetworkAccess::Listed);
        Self {
            mode: settings.mode,
            enforced,
            abi: landlock.abi,
            network: match network {
                NetworkAccess::Open => "open",
                NetworkAccess::NoTcp => "no_tcp",
                NetworkAccess::Listed => "allowlist",
                NetworkAccess::Off => "off",
            },
            allowed_domains: egress.map_or_else(Vec::new, |it| it.lists().allowed().to_vec()),
            denied_domains: egress.map_or_else(Vec::new, |it| it.lists().denied().to_vec()),
            egress: egress.cloned(),
            signals: own_only(is_on && landlock.restricts_signals()),
            processes: own_only(is_on && filters_calls(landlock)),
            exposed,
        }
    }
}

/// The gaps of the sandbox of a run on this machine, in words with the remedies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxGaps {
    /// The features that the kernel lacks.
    pub kernel: Option<String>,
    /// Denied paths and sockets that commands can still reach.
    pub exposed: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Enforced {
    Full,
    Partial,
    None,
}

/// Returns the JSON Schema of a mode. The type is in a crate without schemas.
fn modes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": SandboxMode::value_variants() })
}

const PLAIN_HINT: &str = "[No permission rule allows this command, so it could read only what Read \
                          may read, write only the files that it names (with acceptEdits), and use \
                          no network. Only the user can add a rule.]";

const SIGNING_HINT: &str = "[This may be the sandbox, which closes signing keys to commands. \
                            `git commit --no-gpg-sign` commits without a signature. Only the user \
                            can open a key, with sandbox.filesystem.allowRead, and for GnuPG \
                            allowWrite of ~/.gnupg.]";

const SIGNAL_HINT: &str = "[A command cannot signal processes that it did not start. KillShell ends \
                           what was started with run_in_background.]";

/// The beginnings of messages about a process that could not be signalled, after the names of the
/// programs that print them.
const SIGNAL_REFUSALS: [&str; 4] =
    ["kill: ", "killing pid ", "Could not kill process", "killall: "];

/// Refusals of servers and of programs that check users themselves.
const SERVER_REFUSALS: [&str; 2] = ["Permission denied (", "permission denied for "];

/// Messages about a commit or tag that git could not sign.
const SIGNING_FAILURES: [&str; 2] = ["gpg failed to sign the data", "Couldn't load public key"];

#[derive(Debug)]
pub(super) enum CommandScope {
    /// The sandbox of the run, if it is on. The command may read the login files of these programs.
    Sandbox(Vec<&'static CredentialSet>),
    /// Like `Sandbox`, but read-only.
    Reading,
    /// The confinement of a command that needs no permission rule.
    Plain(PlainScope),
}

/// The sandbox of a run.
#[derive(Debug)]
pub(super) struct Sandbox {
    policy: Arc<SandboxPolicy>,
    state: SandboxState,
    landlock: LandlockSupport,
    network: NetworkAccess,
    capabilities: RootCapabilities,
    gaps: SandboxGaps,
    warning: Option<String>,
    caches: Once,
}

impl Sandbox {
    /// Creates the policy and queries the kernel. Changes nothing.
    ///
    /// # Errors
    /// A path cannot be used, or the sandbox is required but not enforced.
    pub(super) fn new(
        settings: &SandboxSettings,
        context: &SandboxContext<'_>,
    ) -> Result<Self, SandboxError> {
        let policy = SandboxPolicy::new(settings, context)?;
        let mode = settings.mode;
        let is_wanted = mode != SandboxMode::Off;
        let landlock = if is_wanted {
            LandlockSupport::probe_with_filters()
        } else {
            LandlockSupport::probe()
        };
        let is_on = is_wanted && landlock.abi > 0;
        let has_lists = is_wanted && !settings.no_network && settings.egress.is_some();
        if has_lists && !(is_on && filters_calls(landlock)) {
            let gap = "this kernel or container has no working Landlock and seccomp".to_owned();
            return Err(SandboxError::NoEgress { gap });
        }
        let network = if has_lists {
            NetworkAccess::Listed
        } else if is_on && settings.no_network {
            least_network(landlock)
        } else {
            NetworkAccess::Open
        };
        let mut exposure = if is_wanted { policy.exposure(context) } else { Exposure::default() };
        if is_on && matches!(network, NetworkAccess::Open | NetworkAccess::NoTcp) {
            exposure.sockets = control_sockets::reachable(context);
        }
        let gaps = SandboxGaps {
            kernel: if is_wanted { kernel_gap(landlock, settings.no_network) } else { None },
            exposed: exposure.gap(),
        };
        let gap = gaps.kernel.clone().or_else(|| gaps.exposed.clone());
        let enforced = match (is_on, &gap) {
            (false, _) => Enforced::None,
            (true, None) => Enforced::Full,
            (true, Some(_)) => Enforced::Partial,
        };
        if let Some(gap) = gap.as_ref().filter(|_| mode.is_required()) {
            return Err(SandboxError::NotEnforced { gap: gap.clone() });
        }
        // Exposure in temporary folders only is reported in the result, without a warning.
        let needs_warning = gaps.kernel.is_some()
            || policy.exposes_in_tree(&exposure)
            || !exposure.sockets.is_empty();
        let warning = gap.filter(|_| needs_warning);
        let mut exposed = exposure.list();
        if is_on {
            exposed.extend(policy.always_open(filters_calls(landlock)));
            exposed.extend(context.open_step_files(policy.writable()));
        } else {
            exposed.extend(settings.own_logins());
        }
        Ok(Self {
            policy: Arc::new(policy),
            state: SandboxState::new(settings, landlock, enforced, network, exposed),
            landlock,
            network,
            capabilities: settings.capabilities,
            gaps,
            warning: warning.map(|gap| format!("the sandbox is not enforced: {gap}")),
            caches: Once::new(),
        })
    }

    /// Checks that this machine can limit commands to the lists of domains, if there are any.
    /// Blocks.
    pub(super) fn verify_egress(&self, supervisor: &Supervisor) -> Result<(), SandboxError> {
        let verified =
            self.state.egress.as_ref().map_or(Ok(()), |egress| egress.verify(supervisor));
        verified.map_err(|gap| SandboxError::NoEgress { gap: gap.to_string() })
    }

    pub(super) fn state(&self) -> &SandboxState {
        &self.state
    }

    /// The restrictions that also apply to file tools, with or without kernel support. Empty if the
    /// sandbox is off.
    pub(super) fn secrets(&self) -> Arc<DeniedPlaces> {
        if self.state.mode == SandboxMode::Off {
            Arc::default()
        } else {
            Arc::clone(&self.policy.secrets)
        }
    }

    /// The paths that commands may write to; in any mode, as commands without a sandbox write there
    /// first.
    pub(super) fn writable(&self) -> &[PathBuf] {
        self.policy.writable()
    }

    pub(super) fn gaps(&self) -> &SandboxGaps {
        &self.gaps
    }

    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    fn is_on(&self) -> bool {
        self.state.enforced != Enforced::None
    }

    /// Returns true if commands of this scope are not restricted: there are no rules to make.
    pub(super) fn is_off_for(&self, scope: &CommandScope) -> bool {
        !self.is_on() && matches!(scope, CommandScope::Sandbox(_))
    }

    /// The rules for the next command, from the current file system. `None` if it is not
    /// restricted. Blocks.
    ///
    /// # Errors
    /// The relay of commands that are limited to a list of domains cannot be started.
    pub(super) fn rules(&self, scope: &CommandScope) -> io::Result<Option<LandlockPolicy>> {
        let narrow = match scope {
            CommandScope::Sandbox(logins) => return self.command_rules(logins),
            CommandScope::Reading => self.reading_rules()?,
            CommandScope::Plain(plain) => self.plain_rules(plain)?,
        };
        if narrow.is_some() { Ok(narrow) } else { self.command_rules(&[]) }
    }

    fn command_rules(&self, logins: &[&CredentialSet]) -> io::Result<Option<LandlockPolicy>> {
        if !self.is_on() {
            return Ok(None);
        }
        // A new home folder has no cache folders.
        self.caches.call_once(|| self.policy.prepare_folders());
        let calls = self.policy.command_calls();
        self.with_grants(self.policy.grants(logins), self.network, calls).map(Some)
    }

    fn with_grants(
        &self,
        rules: Arc<[PathRule]>,
        network: NetworkAccess,
        calls: CallFilter,
    ) -> io::Result<LandlockPolicy> {
        let calls = if filters_calls(self.landlock) { calls } else { CallFilter::Nothing };
        let egress = self.state.egress.as_ref().filter(|_| network == NetworkAccess::Listed);
        let egress = egress.map(|egress| egress.job(self.policy.writable())).transpose()?;
        Ok(LandlockPolicy { rules, network, calls, egress, capabilities: self.capabilities })
    }

    /// True if the kernel can restrict a command to reading. Independent of the mode, as the
    /// restriction does not affect a read-only command.
    pub(super) fn can_hold_readers(&self) -> bool {
        self.landlock.restricts_files()
    }

    /// The rules for a read-only command. `None` if the kernel cannot enforce the rules. Blocks.
    fn reading_rules(&self) -> io::Result<Option<LandlockPolicy>> {
        if !self.can_hold_readers() {
            return Ok(None);
        }
        let is_on = self.is_on();
        let grants = if is_on { self.policy.reading_grants() } else { grant_reading_all() };
        self.with_grants(grants.into(), self.network, CallFilter::Readers).map(Some)
    }

    /// The rules for a command that needs no permission rule. `None` if the kernel cannot enforce
    /// them. Blocks.
    fn plain_rules(&self, scope: &PlainScope) -> io::Result<Option<LandlockPolicy>> {
        let is_reader = scope.changed.is_empty();
        let calls = if is_reader { CallFilter::Readers } else { CallFilter::Isolated };
        let rules =
            || self.with_grants(plain::grants(scope).into(), least_network(self.landlock), calls);
        self.can_hold_readers().then(rules).transpose()
    }

    /// The login files of a program that exist and are closed to commands.
    pub(super) fn closed_logins(&self, set: &CredentialSet) -> Vec<&Path> {
        if self.is_on() { self.policy.closed_logins(set) } else { Vec::new() }
    }

    /// The configuration of apt for commands, if they need one.
    pub(super) fn apt_config(&self) -> Option<&Path> {
        self.policy.apt_config.as_deref().filter(|_| self.is_on())
    }

    /// A temporary folder for commands, if they may not use the default one.
    pub(super) fn own_temp(&self) -> Option<&Path> {
        self.policy.own_temp.as_deref().filter(|_| self.is_on())
    }

    /// The description of the sandbox for the model.
    pub(super) fn model_description(&self) -> Option<String> {
        self.is_on().then(|| {
            let network = match (&self.state.egress, self.network) {
                (Some(egress), _) => format!(
                    " They reach the network by TCP only, and only these hosts: {}.",
                    egress.summary()
                ),
                (None, NetworkAccess::Open) => String::new(),
                (None, _) => " They have no network.".to_owned(),
            };
            format!(
                "Commands are sandboxed: they may write only in {}, and may not read \
                 credentials.{network}",
                self.policy.summary()
            )
        })
    }

    /// Returns the note about connections that were refused to a command, for the model.
    pub(super) fn refusal_note(&self, refusals: &[Refusal]) -> Option<String> {
        let hosts = self.state.egress.as_ref().map_or_else(String::new, Egress::summary);
        refusal_note(refusals, &hosts)
    }

    /// A hint for the model if the sandbox may have caused an error that a command printed. A line
    /// has the status of its last program, so messages about system calls count without a failure,
    /// too. `is_plain` is true if the command needed no permission rule.
    pub(super) fn hint(&self, output: &str, failed: bool, is_plain: bool) -> Option<String> {
        let is_server_refusal =
            |line: &&str| SERVER_REFUSALS.iter().any(|words| line.contains(words));
        let is_relevant = |line: &&str| failed || is_system_refusal(line);
        let lines = output.lines().filter(is_relevant).filter(|line| !is_server_refusal(line));
        let is_denied = looks_denied(&lines.collect::<Vec<_>>().join("\n"));
        if is_plain && self.can_hold_readers() {
            return is_denied.then(|| PLAIN_HINT.to_owned());
        }
        if failed && self.is_on() && SIGNING_FAILURES.iter().any(|message| output.contains(message))
        {
            return Some(SIGNING_HINT.to_owned());
        }
        if self.is_on() && output.lines().filter(is_relevant).any(is_about_signal) {
            return Some(SIGNAL_HINT.to_owned());
        }
        (self.is_on() && is_denied).then(|| {
            format!(
                "[This may be the sandbox: commands may write only in {}, and may not read \
                 credentials{}. Only the user can widen that.]",
                self.policy.summary(),
                match self.network {
                    NetworkAccess::Open | NetworkAccess::Listed => "",
                    NetworkAccess::NoTcp | NetworkAccess::Off => " or use the network",
                },
            )
        })
    }
}

/// True for a line that a program or the shell prints about a refused system call: it ends in the
/// text of the error.
fn is_system_refusal(line: &str) -> bool {
    const ERRORS: [&str; 4] = [
        ": Permission denied",
        ": Operation not permitted",
        " - Operation not permitted",
        ": Read-only file system",
    ];
    ERRORS.iter().any(|error| line.trim_end().ends_with(error))
}

fn is_about_signal(line: &str) -> bool {
    line.contains("Operation not permitted")
        && SIGNAL_REFUSALS.iter().any(|words| line.contains(words))
}
