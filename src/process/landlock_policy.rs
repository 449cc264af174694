//! Landlock policy: the files and the network that a program may use, as serializable data, and its
//! enforcement by the kernel.
//!
//! Landlock only ever allows: access that is not granted is denied to the program and to all of its
//! descendants, for as long as they live. It cannot exclude a part of a granted folder.

use std::ffi::c_ulong;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::egress::{JobEgress, SocketFilter};
use super::own_process::limit_to_raise;
use super::syscall_filter::{CallFilter, NetworkAccess, SyscallFilter, test_in_this_thread};

/// Everything that a program may access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockPolicy {
    /// Rules for paths that do not exist and for symbolic links grant nothing. A process to which
    /// the policy is sent receives the rules as a ruleset.
    #[serde(skip)]
    pub rules: Arc<[PathRule]>,
    pub network: NetworkAccess,
    /// The filter of system calls. Without one, [`NetworkAccess::Off`] is not enforced.
    pub calls: CallFilter,
    /// Decides socket calls, for [`NetworkAccess::Listed`]. It stays in this process.
    #[serde(skip)]
    pub egress: Option<JobEgress>,
    pub capabilities: RootCapabilities,
}

/// The capabilities of programs that root runs. None of them bypasses Landlock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootCapabilities {
    /// Those for files, signals and low ports, which builds and installations need.
    #[default]
    Files,
    /// Also all others: to change users, the clock, the network.
    Kept,
}

/// One file, or a folder and everything below it.
#[derive(Clone, Debug)]
pub struct PathRule {
    pub path: PathBuf,
    pub access: PathAccess,
    /// The inode of the path, if its folder was listed just now.
    pub(super) inode: Option<u64>,
}

/// Two rules are equal if they grant the same access to the same path, regardless of the file
/// there.
impl PartialEq for PathRule {
    fn eq(&self, other: &Self) -> bool {
        // Much faster than a comparison of path components.
        self.access == other.access && self.path.as_os_str() == other.path.as_os_str()
    }
}

impl Eq for PathRule {}

impl PathRule {
    pub fn new(path: impl Into<PathBuf>, access: PathAccess) -> Self {
        Self { path: path.into(), access, inode: None }
    }

    /// A rule for an entry of a folder that was listed just now, with its inode.
    pub fn listed(path: PathBuf, access: PathAccess, inode: u64) -> Self {
        Self { path, access, inode: Some(inode) }
    }
}

/// The access that a rule grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathAccess {
    /// List folders.
    List,
    /// List folders and make folders in them.
    AddFolders,
    /// Read and execute files.
    Read,
    /// Use a device: read, write, ioctl.
    Use,
    /// Everything that [`Self::Change`] grants, except reading.
    Write,
    /// Everything except creating device files.
    Change,
}

/// The Landlock features that this kernel can enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LandlockSupport {
    /// The Landlock ABI version; 0 if Landlock is missing or does not work.
    pub abi: u32,
}

impl LandlockSupport {
    /// Asks the kernel, and verifies it in a trial thread: inside a container Landlock may be
    /// reported and yet be forbidden. The result is cached.
    pub fn probe() -> Self {
        Self::probe_and(|| ())
    }

    /// Like [`Self::probe`], before a call of
    /// [`filters_system_calls`](super::filters_system_calls): one thread tests both.
    pub fn probe_with_filters() -> Self {
        Self::probe_and(test_in_this_thread)
    }

    /// Probes. The trial thread then makes a further test.
    fn probe_and(further: fn()) -> Self {
        static KNOWN: OnceLock<LandlockSupport> = OnceLock::new();
        *KNOWN.get_or_init(|| {
            let abi = kernel::abi();
            // Only the trial thread is restricted, and it ends right away.
            let trial = move || {
                let holds = verify_enforcement().is_ok_and(|holds| holds);
                further();
                holds
            };
            let tried = || std::thread::Builder::new().spawn(trial);
            let works = abi > 0 && tried().is_ok_and(|trial| trial.join().unwrap_or(false));
            Self { abi: if works { abi } else { 0 } }
        })
    }

    /// Returns true if all file access is restricted: since ABI 3 that includes truncation.
    pub fn restricts_files(self) -> bool {
        self.abi >= 3
    }

    pub fn restricts_tcp(self) -> bool {
        self.abi >= 4
    }

    /// Returns true if a sandboxed process cannot reach processes outside by signals or abstract
    /// sockets.
    pub fn restricts_signals(self) -> bool {
        self.abi >= 6
    }
}

/// Returns true if a thread without any grant is really denied access.
fn verify_enforcement() -> io::Result<bool> {
    // Capabilities are not dropped: Landlock does not depend on them.
    kernel::enter(&LandlockPolicy::default().open_ruleset()?)?;
    let listed = std::fs::read_dir("/");
    Ok(listed.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied))
}

/// A Landlock ruleset that is ready to be enforced, and a filter for system calls.
#[derive(Debug)]
pub struct LandlockRuleset {
    files: OwnedFd,
    calls: Option<SyscallFilter>,
    sockets: Option<SocketFilter>,
    /// The numbers of the capabilities that are dropped.
    dropped: Vec<c_ulong>,
}

impl LandlockPolicy {
    /// Opens a ruleset of the kernel for the rules and the network. Any process can enforce it.
    ///
    /// # Errors
    /// The kernel refuses. The program must then not be started.
    pub(super) fn open_ruleset(&self) -> io::Result<OwnedFd> {
        kernel::build(self)
    }

    /// Creates everything that is enforced, with a ruleset that was opened before: the part that
    /// cannot be done between fork and exec.
    ///
    /// # Errors
    /// The kernel refuses. The program must then not be started.
    pub(super) fn with_ruleset(&self, files: OwnedFd) -> io::Result<LandlockRuleset> {
        let calls = SyscallFilter::build(self.calls, self.network)?;
        let is_listed = self.network == NetworkAccess::Listed;
        let sockets = is_listed.then(SocketFilter::build).transpose()?;
        let dropped = kernel::dropped_capabilities(self.capabilities, self.network);
        Ok(LandlockRuleset { files, calls, sockets, dropped })
    }
}

impl LandlockRuleset {
    /// Restricts the calling thread and what it executes, irrevocably. Makes a few system calls and
    /// does not allocate, so it may run between fork and exec. Returns the listener of socket
    /// calls, if these are decided by another process.
    ///
    /// # Errors
    /// The kernel refuses. Nothing must then be executed.
    pub fn restrict_self(&self) -> io::Result<Option<OwnedFd>> {
        kernel::drop_capabilities(&self.dropped);
        kernel::enter(&self.files)?;
        self.calls.as_ref().map_or(Ok(()), SyscallFilter::restrict_self)?;
        self.sockets.as_ref().map(SocketFilter::restrict_self).transpose()
    }
}

/// Returns true if the output of a program contains an error that the sandbox can cause.
pub fn looks_denied(stderr: &str) -> bool {
    let stderr = stderr.to_lowercase();
    let errors = [
        "permission denied",
        "operation not permitted",
        "eacces",
        "eperm",
        "exdev",
        "bad system call",
        "cross-device link",
        "no new privileges",
        "permissionerror",
        "permission error",
    ];
    errors.iter().any(|error| stderr.contains(error))
}

mod kernel {
    use std::fs::File;
    use std::os::fd::{AsRawFd, OwnedFd};

    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath,
        Ruleset as Plan, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
    };
    use nix::errno::Errno;
    use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
    use nix::libc;

    use super::{
        LandlockPolicy, NetworkAccess, Path, PathAccess, PathRule, RootCapabilities, io,
        limit_to_raise,
    };

    /// The newest ABI that has been tested. Rights that later ABIs add are not requested.
    const TESTED: ABI = ABI::V7;

    /// Flag that queries the ABI version instead of creating a ruleset.
    const VERSION: libc::c_ulong = 1;

    /// Capabilities with which root bypasses Landlock: they read other processes' memory and
    /// environment, open files by handle, and access disks and the kernel. From linux/capability.h:
    /// `DAC_READ_SEARCH`, `SYS_MODULE`, `SYS_RAWIO`, `SYS_PTRACE`, `SYS_ADMIN`, `SYS_BOOT`,
    /// `MKNOD`, `PERFMON`, `BPF`.
    const BYPASS_CAPABILITIES: [libc::c_ulong; 9] = [2, 16, 17, 19, 21, 22, 27, 38, 39];

    /// The capabilities that commands of root have by default. From linux/capability.h: `CHOWN`,
    /// `DAC_OVERRIDE`, `FOWNER`, `FSETID`, `KILL`, `NET_BIND_SERVICE`.
    const FILE_CAPABILITIES: [libc::c_ulong; 6] = [0, 1, 3, 4, 5, 10];

    /// Network capabilities that commands do not have if they are held to a list of hosts. From
    /// linux/capability.h: `NET_BIND_SERVICE`, `NET_ADMIN`, `NET_RAW`.
    const NETWORK_CAPABILITIES: [libc::c_ulong; 3] = [10, 12, 13];

    /// The end of the capability numbers, above those of any kernel. A kernel refuses numbers that
    /// it does not have, which changes nothing.
    const CAPABILITIES_END: libc::c_ulong = 64;

    pub(super) fn abi() -> u32 {
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: with this flag the call accesses no memory and creates nothing.
        let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, VERSION) };
        u32::try_from(abi).unwrap_or(0)
    }

    pub(super) fn build(policy: &LandlockPolicy) -> io::Result<OwnedFd> {
        let mut shortage = None;
        // One after the other: opening all paths at once could exceed the descriptor limit.
        let opened = policy.rules.iter().map_while(|rule| match open_rule(rule) {
            Ok(opened) => Some(opened),
            Err(error) => {
                shortage = Some(error);
                None
            }
        });
        let rules = opened.flatten().map(|(file, access)| {
            Ok::<_, RulesetError>(
                // Rights that apply to folders only are dropped for files.
                PathBeneath::new(file, access).set_compatibility(CompatLevel::BestEffort),
            )
        });
        let made = base_ruleset(policy.network).and_then(|plan| plan.create()?.add_rules(rules));
        let ruleset: Option<OwnedFd> = made.map_err(io::Error::other)?.into();
        if let Some(error) = shortage {
            return Err(error);
        }
        ruleset.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn base_ruleset(network: NetworkAccess) -> Result<Plan, RulesetError> {
        let plan = Plan::default()
            .handle_access(AccessFs::from_all(TESTED))?
            .scope(Scope::from_all(TESTED))?;
        match network {
            NetworkAccess::Open => Ok(plan),
            NetworkAccess::NoTcp | NetworkAccess::Listed | NetworkAccess::Off => {
                plan.handle_access(AccessNet::from_all(TESTED))
            }
        }
    }

    /// Opens the path of a rule. `None` if it cannot be reached, or is a file although the rule has
    /// rights for folders only: the kernel refuses a rule without a right.
    ///
    /// # Errors
    /// No descriptor is left. Without this rule, the program would be denied what it may access.
    fn open_rule(rule: &PathRule) -> io::Result<Option<(File, BitFlags<AccessFs>)>> {
        let opened = match open_path(&rule.path) {
            Ok(opened) => File::from(opened),
            Err(error) if limit_to_raise(&error).is_some() => return Err(error),
            Err(_) => return Ok(None),
        };
        let is_for_folders = matches!(rule.access, PathAccess::List | PathAccess::AddFolders);
        let has_rights = !is_for_folders || opened.metadata().is_ok_and(|found| found.is_dir());
        Ok(has_rights.then(|| (opened, rights(rule.access))))
    }

    /// Opens a path without following links, not even in its folders: a link of a command would
    /// grant access to its target.
    fn open_path(path: &Path) -> io::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        Ok(openat2(AT_FDCWD, path, how)?)
    }

    fn rights(access: PathAccess) -> BitFlags<AccessFs> {
        let special = make_bitflags!(AccessFs::{MakeChar | MakeBlock});
        match access {
            PathAccess::List => AccessFs::ReadDir.into(),
            PathAccess::AddFolders => make_bitflags!(AccessFs::{ReadDir | MakeDir}),
            PathAccess::Read => make_bitflags!(AccessFs::{ReadFile | Execute}),
            PathAccess::Use => {
                make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev})
            }
            PathAccess::Write => {
                let reading = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
                AccessFs::from_all(TESTED) & !special & !reading
            }
            PathAccess::Change => AccessFs::from_all(TESTED) & !special,
        }
    }

    /// The numbers of the capabilities that a command does not have.
    pub(super) fn dropped_capabilities(
        kept: RootCapabilities,
        network: NetworkAccess,
    ) -> Vec<libc::c_ulong> {
        let is_dropped = |capability: &libc::c_ulong| {
            let is_of_network =
                network == NetworkAccess::Listed && NETWORK_CAPABILITIES.contains(capability);
            is_of_network
                || match kept {
                    RootCapabilities::Files => !FILE_CAPABILITIES.contains(capability),
                    RootCapabilities::Kept => BYPASS_CAPABILITIES.contains(capability),
                }
        };
        (0..CAPABILITIES_END).filter(is_dropped).collect()
    }

    /// Removes capabilities, in ascending order, from the programs that the calling thread
    /// executes.
    pub(super) fn drop_capabilities(capabilities: &[libc::c_ulong]) {
        for capability in capabilities {
            // SAFETY: the call takes two numbers. A failure changes nothing.
            let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, *capability, 0, 0, 0) };
            // Only root has capabilities to drop, and none is above the kernel's last capability.
            if dropped != 0 && matches!(Errno::last(), Errno::EPERM | Errno::EINVAL) {
                break;
            }
        }
    }

    pub(super) fn enter(ruleset: &OwnedFd) -> io::Result<()> {
        nix::sys::prctl::set_no_new_privs()?;
        let flags: libc::c_ulong = 0;
        let fd = ruleset.as_raw_fd();
        // SAFETY: the call takes a descriptor that lives as long as `ruleset`, and no memory.
        match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, fd, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_for_networks_are_dropped_where_a_list_of_hosts_holds() {
        // `CHOWN`, `NET_BIND_SERVICE`, `NET_ADMIN`, `NET_RAW`, `SYS_ADMIN`.
        for (kept, network, dropped) in [
            (RootCapabilities::Files, NetworkAccess::Open, &[12, 13, 21][..]),
            (RootCapabilities::Files, NetworkAccess::Listed, &[10, 12, 13, 21]),
            (RootCapabilities::Kept, NetworkAccess::Off, &[21]),
            (RootCapabilities::Kept, NetworkAccess::Listed, &[10, 12, 13, 21]),
        ] {
            let all = kernel::dropped_capabilities(kept, network);
            let found = [0, 10, 12, 13, 21].into_iter().filter(|number| all.contains(number));
            assert_eq!(found.collect::<Vec<_>>(), dropped, "{kept:?} {network:?}");
        }
    }
}
