//! Sockets of services that start programs, or use keys, on behalf of any process of the user.
//!
//! Landlock does not restrict connections to sockets in the file system (before ABI 9), so a
//! command with a network can leave the sandbox through them.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, Uid, access};

use super::super::paths::resolve;
use super::context::SandboxContext;

/// Sockets of containers, virtual machines and the service manager. Most are open to some users
/// only.
const MACHINE_SOCKETS: &[&str] = &[
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
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

/// Sockets relative to the runtime folder of the user.
const USER_SOCKETS: &[&str] = &[
    "bus",
    "docker.sock",
    "emacs/server",
    "gnupg/S.gpg-agent",
    "keyring/control",
    "keyring/ssh",
    "podman/podman.sock",
    "systemd/private",
];

/// Prefixes of names in the runtime folder of the user: sockets of editors, terminals, window
/// managers and display servers, or folders that contain them, at most [`FOLDERS_MAX`] deep.
const USER_SOCKET_PREFIXES: &[&str] =
    &["hypr", "i3", "kitty-", "nvim.", "sway-ipc.", "wayland-", "wezterm", "zellij"];

/// Maximum number of folders between a runtime folder and a socket in it.
const FOLDERS_MAX: u32 = 3;

/// Sockets relative to the home folder.
const HOME_SOCKETS: &[&str] =
    &[".docker/desktop/docker.sock", ".docker/run/docker.sock", ".gnupg/S.gpg-agent"];

/// Folders of the home folder with sockets of virtual machines that run containers.
const HOME_FOLDERS: [&str; 3] = [".colima", ".lima", ".rd"];

/// Variables that name a socket.
const VARIABLES: &[&str] = &[
    "CONTAINER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "I3SOCK",
    "KITTY_LISTEN_ON",
    "NVIM",
    "SSH_AUTH_SOCK",
    "SWAYSOCK",
    "TMUX",
    "WEZTERM_UNIX_SOCKET",
];

/// Returns the sockets that exist and that the user may connect to.
pub(super) fn reachable(context: &SandboxContext<'_>) -> Vec<PathBuf> {
    let uid = Uid::current();
    let runtime = context.variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.unwrap_or_else(|| format!("/run/user/{uid}").into());
    let values = VARIABLES.iter().filter_map(|name| context.variable(name)?.to_str());
    let mut sockets: Vec<PathBuf> = MACHINE_SOCKETS
        .iter()
        .copied()
        .chain(uid.is_root().then_some(SYSTEM_BUS))
        .map(PathBuf::from)
        .chain(USER_SOCKETS.iter().map(|name| runtime.join(name)))
        .chain(context.home.iter().flat_map(|home| HOME_SOCKETS.iter().map(|name| home.join(name))))
        .chain(values.filter_map(socket_of))
        .filter(|path| context.may_exist(path) && is_open(path))
        .collect();
    // Nothing is looked for in folders that are known to be missing.
    if context.may_exist(&runtime) {
        collect(&runtime, USER_SOCKET_PREFIXES, FOLDERS_MAX, &mut sockets);
    }
    for folder in folders(context, uid).iter().filter(|folder| context.may_exist(folder)) {
        collect(folder, &[""], 1, &mut sockets);
    }
    for path in &mut sockets {
        *path = resolve(path);
    }
    sockets.sort_unstable();
    sockets.dedup();
    sockets
}

/// Folders with control sockets only.
fn folders(context: &SandboxContext<'_>, uid: Uid) -> Vec<PathBuf> {
    let user = context.variable("USER").unwrap_or_default().to_string_lossy();
    let tmux = context.variable("TMUX_TMPDIR").map(PathBuf::from);
    let below_home = |home: &&Path| HOME_FOLDERS.map(|name| home.join(name));
    let mut folders: Vec<PathBuf> = context.home.iter().flat_map(below_home).collect();
    folders.extend(tmux.map(|folder| folder.join(format!("tmux-{uid}"))));
    let temporary = [
        format!("/tmp/tmux-{uid}"),
        format!("/tmp/emacs{uid}"),
        format!("/tmp/nvim.{user}"),
        format!("/run/screen/S-{user}"),
        "/tmp/.X11-unix".to_owned(),
    ];
    folders.extend(temporary.map(PathBuf::from));
    folders
}

/// Adds the open sockets in a folder, and in folders in it, whose names have one of these prefixes.
fn collect(folder: &Path, prefixes: &[&str], folders_max: u32, sockets: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        if !prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && folders_max > 0 => {
                collect(&path, &[""], folders_max - 1, sockets);
            }
            Ok(kind) if kind.is_socket() && is_open(&path) => sockets.push(path),
            _ => {}
        }
    }
}

/// The path in `/path`, `unix:/path`, `unix:///path`, `unix:path=/path,guid=1` and `/path,1,2`.
fn socket_of(value: &str) -> Option<PathBuf> {
    let schemes = ["unix:path=", "unix://", "unix:"];
    let value = schemes.iter().find_map(|scheme| value.strip_prefix(scheme)).unwrap_or(value);
    let path = Path::new(value.split(',').next()?);
    path.is_absolute().then(|| path.to_path_buf())
}

fn is_open(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|facts| facts.file_type().is_socket())
        && access(path, AccessFlags::W_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_of_programs_that_start_programs_are_found_whatever_their_numbers() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let top = folder.path().canonicalize().expect("it is there");
        let uid = Uid::current();
        let control = [
            "run/bus".to_owned(),
            "run/nvim.4242.0".to_owned(),
            "run/i3/ipc-socket.77".to_owned(),
            "run/hypr/abc/.socket.sock".to_owned(),
            "run/zellij/0.41/main".to_owned(),
            "run/wayland-1".to_owned(),
            "home/.colima/default/docker.sock".to_owned(),
            "home/.rd/docker.sock".to_owned(),
            format!("tmux/tmux-{uid}/work"),
            "elsewhere/kitty".to_owned(),
        ];
        let others = ["run/pipewire-0", "run/speech/sock", "home/.cache/x.sock", "elsewhere/other"];
        let listen = |name: &str| {
            let path = top.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be created");
            UnixListener::bind(path).expect("a socket")
        };
        let _open: Vec<UnixListener> =
            control.iter().map(String::as_str).chain(others).map(listen).collect();
        fs::write(top.join("run/wayland-1.lock"), "").expect("a file");
        let kitty = format!("unix:{}/elsewhere/kitty", top.display());
        let environment = [
            ("XDG_RUNTIME_DIR".into(), top.join("run").into()),
            ("TMUX_TMPDIR".into(), top.join("tmux").into()),
            ("KITTY_LISTEN_ON".into(), kitty.into()),
        ];
        let home = top.join("home");
        let context = SandboxContext::new(&top, Some(&home), &top, &environment);
        let mut found = reachable(&context);
        found.retain(|path| path.starts_with(&top));
        let mut expected: Vec<PathBuf> = control.iter().map(|name| top.join(name)).collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}
