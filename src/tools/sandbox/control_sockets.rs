//! Sockets of services that start programs, or use keys, on behalf of any process of the user.
//!
//! Landlock does not restrict connections to sockets in the file system (before ABI 9), so with the
//! network on these are ways out of the sandbox.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, Uid, access};

use super::super::paths::resolve;
use super::context::SandboxContext;

/// Sockets of containers, virtual machines and the service manager. Most are open to some users
/// only.
const OF_THE_MACHINE: &[&str] = &[
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/libvirt/libvirt-sock",
    "/run/systemd/private",
    "/var/lib/incus/unix.socket",
    "/var/lib/lxd/unix.socket",
];

/// The system bus, whose services accept requests of root only.
const OF_ROOT: &str = "/run/dbus/system_bus_socket";

/// Sockets relative to the runtime folder of the user.
const OF_THE_USER: &[&str] = &[
    "bus",
    "docker.sock",
    "emacs/server",
    "gnupg/S.gpg-agent",
    "keyring/control",
    "keyring/ssh",
    "podman/podman.sock",
    "systemd/private",
    "wayland-0",
];

/// Sockets relative to the home folder.
const AT_HOME: &[&str] =
    &[".docker/desktop/docker.sock", ".docker/run/docker.sock", ".gnupg/S.gpg-agent"];

/// Variables that name a socket.
const VARIABLES: &[&str] =
    &["CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "SSH_AUTH_SOCK", "TMUX"];

/// Returns the sockets that exist and that the user may connect to.
pub(super) fn reachable(around: &SandboxContext<'_>) -> Vec<PathBuf> {
    let uid = Uid::current();
    let runtime = around.variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.unwrap_or_else(|| format!("/run/user/{uid}").into());
    let named = VARIABLES.iter().filter_map(|name| around.variable(name)?.to_str());
    let mut sockets: Vec<PathBuf> = OF_THE_MACHINE
        .iter()
        .copied()
        .chain(uid.is_root().then_some(OF_ROOT))
        .map(PathBuf::from)
        .chain(OF_THE_USER.iter().map(|name| runtime.join(name)))
        .chain(around.home.iter().flat_map(|home| AT_HOME.iter().map(|name| home.join(name))))
        .chain([format!("/tmp/tmux-{uid}/default").into()])
        .chain(named.filter_map(socket_of))
        .filter(|path| is_open(path))
        .map(|path| resolve(&path))
        .collect();
    sockets.sort_unstable();
    sockets.dedup();
    sockets
}

/// The path in `/path`, `unix:///path`, `unix:path=/path,guid=1` and `/path,1,2`.
fn socket_of(value: &str) -> Option<PathBuf> {
    let value = value.strip_prefix("unix:path=").or(value.strip_prefix("unix://")).unwrap_or(value);
    let path = Path::new(value.split(',').next()?);
    path.is_absolute().then(|| path.to_path_buf())
}

fn is_open(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|facts| facts.file_type().is_socket())
        && access(path, AccessFlags::W_OK).is_ok()
}
