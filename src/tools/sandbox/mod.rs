//! The sandbox for commands: what they may write, what they may not read, and how far the kernel
//! enforces it.
//!
//! [`policy`] decides the paths; `process` applies them with Landlock. Landlock cannot exclude a
//! path from a folder that it grants, so a credential inside a writable folder stays readable. It
//! is then listed in the result and in a warning, and with `required` the run does not start.

mod context;
mod denied_paths;
mod known_paths;
mod plain;
mod policy;
mod repository;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use serde::Serialize;

use crate::process::{LandlockPolicy, LandlockSupport, NetworkAccess};
use crate::types::SandboxMode;

pub(super) use context::SandboxContext;
pub use context::{SandboxError, is_sandbox_path};
pub(super) use denied_paths::{DeniedPlaces, RuleDenial};
pub(super) use plain::{Hides, PlainScope};
pub use policy::SandboxSettings;
use policy::{PolicyInputs, SandboxPolicy, grants_to_read_all};

/// The effective sandbox, for the init message and the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SandboxState {
    /// The requested mode.
    pub mode: SandboxMode,
    /// How much of it the kernel enforces.
    pub enforced: Enforced,
    /// The version of the kernel's Landlock; 0 if it is not available.
    pub abi: u32,
    /// Whether commands can use TCP: `open` or `no_tcp`.
    pub network: &'static str,
    /// Whether commands can signal processes that they did not start: `open` or `own_only`.
    pub signals: &'static str,
    /// What should be denied to commands and is not: paths inside a granted folder, and permission
    /// rules for paths that are patterns.
    pub exposed: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforced {
    Full,
    Partial,
    None,
}

const PLAIN_HINT: &str = "[No permission rule allows this command, so it could only read the \
                          working directories: no writing, no network. Only the user can add a \
                          rule.]";

/// How a command is confined.
#[derive(Debug)]
pub(super) enum CommandScope {
    /// By the sandbox of the run, if it is on.
    Sandbox,
    /// The same, but nothing is written.
    Reading,
    /// As a command that needs no permission rule.
    Plain(PlainScope),
}

/// The sandbox of a run.
#[derive(Debug)]
pub(super) struct Sandbox {
    policy: Arc<SandboxPolicy>,
    state: SandboxState,
    kernel: LandlockSupport,
    /// What the warning says, if there is one.
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
        around: &SandboxContext<'_>,
    ) -> Result<Self, SandboxError> {
        let policy = SandboxPolicy::new(&PolicyInputs { settings, around })?;
        Self::with_kernel_support(policy, settings, LandlockSupport::probe())
    }

    fn with_kernel_support(
        policy: SandboxPolicy,
        settings: &SandboxSettings,
        kernel: LandlockSupport,
    ) -> Result<Self, SandboxError> {
        let mode = settings.mode;
        let (wanted, works) = (mode != SandboxMode::Off, kernel.abi > 0);
        let (paths, rules) =
            if wanted { (policy.exposed(), policy.rules_not_held()) } else { (vec![], &[][..]) };
        let exposed: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .chain(rules.iter().cloned())
            .collect();
        let holds = kernel.restricts_files() && (kernel.restricts_tcp() || !settings.no_network);
        let enforced = match (wanted && works, holds && exposed.is_empty()) {
            (false, _) => Enforced::None,
            (true, true) => Enforced::Full,
            (true, false) => Enforced::Partial,
        };
        let gap = (wanted && enforced != Enforced::Full)
            .then(|| describe_gap(kernel, settings.no_network, &paths, rules));
        if let (SandboxMode::Required, Some(gap)) = (mode, &gap) {
            return Err(SandboxError::NotEnforced { gap: gap.clone() });
        }
        let on = wanted && works;
        let closed = on && settings.no_network && kernel.restricts_tcp();
        // Exposure in temporary folders only is reported in the result, without a warning.
        let told = !works || !holds || policy.exposes_in_tree();
        let doubts = gap.filter(|_| told).map(|gap| format!("the sandbox does not hold: {gap}"));
        let state = SandboxState {
            mode,
            enforced,
            abi: kernel.abi,
            network: if closed { "no_tcp" } else { "open" },
            signals: if on && kernel.restricts_signals() { "own_only" } else { "open" },
            exposed,
        };
        Ok(Self { policy: Arc::new(policy), state, kernel, warning: doubts, caches: Once::new() })
    }

    pub(super) fn state(&self) -> &SandboxState {
        &self.state
    }

    /// The restrictions that also apply to file tools, with or without kernel support. Empty if the
    /// sandbox is off.
    pub(super) fn secrets(&self) -> DeniedPlaces {
        match self.state.mode {
            SandboxMode::Off => DeniedPlaces::default(),
            SandboxMode::Workspace | SandboxMode::ReadOnly | SandboxMode::Required => {
                self.policy.secrets().clone()
            }
        }
    }

    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    fn is_on(&self) -> bool {
        self.state.enforced != Enforced::None
    }

    /// The rules for the next command, from the current file system. `None` if it is not
    /// restricted. Blocks.
    pub(super) fn rules(&self, scope: &CommandScope) -> Option<LandlockPolicy> {
        match scope {
            CommandScope::Sandbox => self.command_rules(),
            CommandScope::Reading => self.reading_rules().or_else(|| self.command_rules()),
            CommandScope::Plain(plain) => self.plain_rules(plain).or_else(|| self.command_rules()),
        }
    }

    fn command_rules(&self) -> Option<LandlockPolicy> {
        if !self.is_on() {
            return None;
        }
        // A tool that cannot create its cache fails, and a fresh home folder has none.
        self.caches.call_once(|| self.policy.make_caches());
        Some(LandlockPolicy { rules: self.policy.grants(), network: self.network() })
    }

    fn network(&self) -> NetworkAccess {
        match self.state.network {
            "no_tcp" => NetworkAccess::NoTcp,
            _ => NetworkAccess::Open,
        }
    }

    /// Whether the kernel can restrict a command to reading. Independent of the mode, as a
    /// read-only command loses nothing by it.
    pub(super) fn can_hold_readers(&self) -> bool {
        self.kernel.restricts_files()
    }

    /// The rules for a read-only command. `None` if the kernel cannot enforce them. Blocks.
    fn reading_rules(&self) -> Option<LandlockPolicy> {
        if !self.can_hold_readers() {
            return None;
        }
        let is_on = self.is_on();
        let grants = if is_on { self.policy.reading_grants() } else { grants_to_read_all() };
        Some(LandlockPolicy { rules: grants, network: self.network() })
    }

    /// The rules for a command that needs no permission rule. `None` if the kernel cannot enforce
    /// them. Blocks.
    fn plain_rules(&self, scope: &PlainScope) -> Option<LandlockPolicy> {
        let rules =
            || LandlockPolicy { rules: plain::grants(scope), network: NetworkAccess::NoTcp };
        self.can_hold_readers().then(rules)
    }

    /// A temporary folder for commands, if they may not use the default one.
    pub(super) fn own_temp(&self) -> Option<&Path> {
        self.policy.own_temp().filter(|_| self.is_on())
    }

    /// The description of the sandbox for the model.
    pub(super) fn model_description(&self) -> Option<String> {
        self.is_on().then(|| {
            let network =
                if self.state.network == "no_tcp" { " They have no network." } else { "" };
            format!(
                "Commands are sandboxed: they may write only in {}, and may not read \
                 credentials.{network}",
                self.policy.summary()
            )
        })
    }

    /// A hint for the model after a failed command, if the sandbox may be the cause. `is_plain`: the
    /// command needed no permission rule.
    pub(super) fn hint(&self, stderr: &str, is_plain: bool) -> Option<String> {
        if is_plain && self.can_hold_readers() {
            return looks_denied(stderr).then(|| PLAIN_HINT.to_owned());
        }
        (self.is_on() && looks_denied(stderr)).then(|| {
            format!(
                "[This may be the sandbox: commands may write only in {}, and may not read \
                 credentials{}. Only the user can widen that.]",
                self.policy.summary(),
                if self.state.network == "no_tcp" { " or use the network" } else { "" },
            )
        })
    }
}

/// What is not enforced, and the remedy.
fn describe_gap(
    kernel: LandlockSupport,
    no_network: bool,
    exposed: &[PathBuf],
    rules: &[String],
) -> String {
    if kernel.abi == 0 {
        return "this kernel or container has no working Landlock".to_string();
    }
    if !kernel.restricts_files() {
        return format!(
            "this kernel's Landlock (version {}) cannot keep files from being emptied; it takes \
             version 3",
            kernel.abi
        );
    }
    if no_network && !kernel.restricts_tcp() {
        return format!(
            "this kernel's Landlock (version {}) cannot take the network away; it takes version 4",
            kernel.abi
        );
    }
    let paths: Vec<String> = exposed.iter().map(|path| path.display().to_string()).collect();
    let paths = (!paths.is_empty()).then(|| {
        format!(
            "{} cannot be kept from commands, being in a folder that they may write to; work in \
         another folder, or allow it in sandbox.filesystem",
            paths.join(", ")
        )
    });
    let rules = (!rules.is_empty()).then(|| {
        format!(
            "commands are not kept from what {} denies; name files or folders instead of a \
             pattern, outside the working directories",
            rules.join(", ")
        )
    });
    [paths, rules].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Whether the output of a program contains an error that the sandbox can cause.
fn looks_denied(stderr: &str) -> bool {
    let stderr = stderr.to_lowercase();
    let words = ["permission denied", "operation not permitted", "eacces", "eperm", "exdev"];
    let more = ["cross-device link", "no new privileges", "permissionerror", "permission error"];
    words.iter().chain(&more).any(|words| stderr.contains(words))
}
