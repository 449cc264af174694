//! Gaps in the enforcement of the sandbox on this machine, and the remedies.

use std::path::PathBuf;

use crate::process::{LandlockSupport, NetworkAccess, filters_system_calls};

/// Access that stays open to commands, as named in the result.
pub(super) const OPEN_ARGUMENTS: &str = "arguments of other processes (/proc/PID/cmdline)";
pub(super) const OPEN_SHARED_OBJECTS: &str =
    "System V shared memory, semaphores and message queues, and POSIX message queues";
pub(super) const OPEN_SHARED_MEMORY: &str = "POSIX shared memory and semaphores (/dev/shm)";

/// Tests the kernel at the first call: a run without restricted commands needs no test.
pub(super) fn filters_calls(landlock: LandlockSupport) -> bool {
    landlock.abi > 0 && filters_system_calls()
}

/// Returns the most restricted network access that this kernel can enforce.
pub(super) fn least_network(landlock: LandlockSupport) -> NetworkAccess {
    if filters_calls(landlock) {
        NetworkAccess::Off
    } else if landlock.restricts_tcp() {
        NetworkAccess::NoTcp
    } else {
        NetworkAccess::Open
    }
}

/// The reason that commands are not restricted as required, apart from single paths. `None` if
/// the restrictions are complete.
pub(super) fn kernel_gap(landlock: LandlockSupport, no_network: bool) -> Option<String> {
    let abi = landlock.abi;
    if abi == 0 {
        let gap = "this kernel or container has no working Landlock, so no command runs without a \
                   rule";
        return Some(gap.to_owned());
    }
    if !landlock.restricts_files() {
        return Some(format!(
            "this kernel's Landlock (version {abi}) cannot keep files from being emptied, \
             which takes version 3, so no command runs without a rule"
        ));
    }
    let network = if no_network { ", and use the network" } else { "" };
    (!filters_calls(landlock)).then(|| {
        format!(
            "this kernel or container cannot filter system calls (seccomp): commands can \
             change limits and priorities of other processes{network}"
        )
    })
}

/// Paths, rules and sockets that should be closed to commands, but are not.
#[derive(Debug, Default)]
pub(super) struct Exposure {
    /// Paths inside a folder that is granted.
    pub(super) paths: Vec<PathBuf>,
    /// Permission rules for paths that are patterns, or cover paths that commands need.
    pub(super) rules: Vec<String>,
    /// Sockets of services that act for the user outside of the sandbox.
    pub(super) sockets: Vec<PathBuf>,
}

impl Exposure {
    pub(super) fn list(&self) -> Vec<String> {
        let paths = self.paths.iter().chain(&self.sockets).map(|path| path.display().to_string());
        paths.chain(self.rules.iter().cloned()).collect()
    }

    /// Describes all gaps, with the remedies. `None` if there are none.
    pub(super) fn gap(&self) -> Option<String> {
        let join = |paths: &[PathBuf]| {
            let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            names.join(", ")
        };
        let paths = (!self.paths.is_empty()).then(|| {
            format!(
                "{} cannot be kept from commands, being in a folder that they may write to; work \
                 in another folder, or allow it in sandbox.filesystem",
                join(&self.paths)
            )
        });
        let rules = (!self.rules.is_empty()).then(|| {
            format!(
                "commands are not kept from what {} denies; name files or folders instead of a \
                 pattern, outside the working directories",
                self.rules.join(", ")
            )
        });
        let sockets = (!self.sockets.is_empty()).then(|| {
            format!(
                "commands can reach services that act outside of the sandbox ({}); use \
                 --sandbox-network off, or keep these sockets from this user",
                join(&self.sockets)
            )
        });
        let gaps: Vec<String> = [paths, rules, sockets].into_iter().flatten().collect();
        (!gaps.is_empty()).then(|| gaps.join("; "))
    }
}
