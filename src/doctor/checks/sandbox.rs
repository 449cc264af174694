//! Checks the sandbox of the configured run, and each protection of `--profile untrusted`.

use super::super::finding::Finding;
use super::super::{ProfileFacts, ResolvedConfig};

/// Remedies for missing kernel features, and for protected paths in folders that commands may write
/// to.
const KERNEL_FIX: &str =
    "use Linux 6.2 or later, with Landlock and seccomp, and do not forbid them in the container";
const EXPOSED_FIX: &str = "give the run a HOME and an OUTLAST_CONFIG_DIR that are not below a temporary folder, and see \
     outlast help security";

/// Reports paths that the sandbox of a run would not protect although the kernel could, and a key
/// helper that a run starts inside the sandbox.
pub fn check_run_sandbox(config: &ResolvedConfig) -> Vec<Finding> {
    let finding = config.exposed.as_ref().map(|exposed| {
        Finding::warning(
            "sandbox",
            format!("the sandbox of a run would be partial: {exposed}"),
            "commands with a permission rule can read or change it; --sandbox required does not begin",
            EXPOSED_FIX,
        )
    });
    let confined = config.helper_is_confined.then(|| {
        Finding::warning(
            "credentials",
            "a run starts the API key helper inside the sandbox of commands, as commands can write \
             to a file that its line names, or to a folder of PATH",
            "there it cannot read logins and outlast's own folder: a run may end with exit code 77 \
             though the key is found here",
            "keep such folders off the PATH of outlast, and the helper out of them, or name it in \
             unconfinedPrograms; see outlast help programs-that-commands-can-write",
        )
    });
    finding.into_iter().chain(confined).collect()
}

/// A protection that the profile promises.
struct Promise {
    /// The protected resource, such as `network`.
    name: &'static str,
    /// The mechanism that enforces it, or the reason why it is not enforced.
    state: Result<String, String>,
}

impl Promise {
    fn line(&self) -> String {
        match &self.state {
            Ok(how) => format!("{}: holds: {how}", self.name),
            Err(gap) => format!("{}: not enforced: {gap}", self.name),
        }
    }
}

/// Reports each protection of `--profile untrusted` on this machine. `None`: no run at all can be
/// set up, which another check reports.
pub fn check_profile(config: &ResolvedConfig) -> Option<Finding> {
    let facts = match config.profile.as_ref()? {
        Ok(facts) => facts,
        Err(why) => return Some(unusable(why)),
    };
    let promises = promises(facts);
    let lines = promises.iter().map(Promise::line);
    let broken: Vec<&str> =
        promises.iter().filter(|it| it.state.is_err()).map(|it| it.name).collect();
    let finding = if broken.is_empty() {
        Finding::ok("profile", "--profile untrusted holds on this machine")
    } else {
        let is_exposed = facts.gaps.kernel.is_none() && facts.no_egress.is_none();
        Finding::warning(
            "profile",
            format!("--profile untrusted is not enforced on this machine: {}", broken.join(", ")),
            "a run with it ends with exit code 2 before anything is sent",
            if is_exposed { EXPOSED_FIX } else { KERNEL_FIX },
        )
    };
    Some(finding.with(lines))
}

fn unusable(why: &str) -> Finding {
    Finding::warning(
        "profile",
        format!("--profile untrusted cannot be used: {}", why.lines().next().unwrap_or_default()),
        "a run with it ends with exit code 2 before anything is sent",
        "correct it, or see outlast help security",
    )
    .with(why.lines().skip(1).map(str::to_owned))
}

fn promises(facts: &ProfileFacts) -> [Promise; 4] {
    let ProfileFacts { sandbox, gaps, no_egress, missing_limits, no_price } = facts;
    let abi = sandbox.abi;
    let gap = gaps.kernel.as_ref().or(gaps.exposed.as_ref());
    let files = match gap {
        Some(gap) => Err(gap.clone()),
        None => Ok(format!(
            "commands write to temporary folders only and read no credentials (Landlock, version \
             {abi}, and seccomp)"
        )),
    };
    let hosts = sandbox.allowed_domains.join(", ");
    let network = match (no_egress, sandbox.network) {
        (Some(gap), _) => Err(gap.clone()),
        (None, "off") => {
            Ok("commands have none (seccomp); WebFetch and WebSearch are off".to_owned())
        }
        (None, "allowlist") => Ok(format!(
            "commands and WebFetch reach {hosts} only (seccomp notification); WebSearch is off"
        )),
        (None, _) => Err(gaps.kernel.clone().unwrap_or_else(|| "it is open".to_owned())),
    };
    let checkout = "none of its settings, memory files, agents, skills and servers is used";
    let missing = missing_limits.iter().map(|flag| format!("without --{flag}"));
    let missing: Vec<String> = missing.chain(no_price.clone()).collect();
    let limits = match &missing[..] {
        [] => "the settings set a budget and a time limit".to_owned(),
        missing => format!("a run does not begin: {}", missing.join("; ")),
    };
    [
        ("sandbox", files),
        ("network", network),
        ("checkout", Ok(checkout.to_owned())),
        ("limits", Ok(limits)),
    ]
    .map(|(name, state)| Promise { name, state })
}
