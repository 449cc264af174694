//! Finds the further paths of a file whose file system is mounted more than once: `/run/host` in a
//! container, `/sysroot` of an image-based system, a bind mount of a home folder.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::process::read_kernel_file;

use super::denied_paths::DeniedPaths;

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The numbers of the device.
    device: String,
    /// The folder of the file system that is mounted.
    root: PathBuf,
    /// The path at which it is mounted.
    point: PathBuf,
}

/// The other paths by which these places are reached, and mounts of folders within them.
pub(super) fn aliases(places: &DeniedPaths) -> Vec<PathBuf> {
    let text = read_kernel_file("/proc/self/mountinfo").unwrap_or_default();
    aliases_among(&parse(&text), places)
}

fn aliases_among(mounts: &[Mount], places: &DeniedPaths) -> Vec<PathBuf> {
    // Of two mounts at one point, the later one is visible.
    let visible: HashMap<&OsStr, &Mount> =
        mounts.iter().map(|mount| (mount.point.as_os_str(), mount)).collect();
    let mut by_device: HashMap<&str, Vec<&Mount>> = HashMap::new();
    for mount in mounts {
        by_device.entry(&mount.device).or_default().push(mount);
    }
    let mut found = Vec::new();
    for current in visible.values() {
        let same_device = by_device.get(current.device.as_str()).map_or(&[][..], Vec::as_slice);
        // Most file systems are mounted once.
        if same_device.len() < 2 {
            continue;
        }
        let within = |mount: &&&Mount| {
            mount.point != current.point && mount.point.starts_with(&current.point)
        };
        let within: Vec<&Path> = visible.values().filter(within).map(|it| &*it.point).collect();
        let is_hidden = |place: &Path| within.iter().any(|point| place.starts_with(point));
        let mut add = |place: &Path, alias: PathBuf| {
            if !is_hidden(place) && !alias.starts_with(place) {
                found.push(alias);
            }
        };
        for other in same_device.iter().filter(|other| !std::ptr::eq(**other, *current)) {
            // The folder of this mount that is at the other point, too, or a folder in that.
            let (shared, alias) = if let Ok(rest) = other.root.strip_prefix(&current.root) {
                (joined(&current.point, rest), other.point.clone())
            } else if let Ok(rest) = current.root.strip_prefix(&other.root) {
                (current.point.clone(), joined(&other.point, rest))
            } else {
                continue;
            };
            for place in places.all_in(&shared) {
                // It is the folder, or below it.
                let rest = place.strip_prefix(&shared).unwrap_or(Path::new(""));
                add(&place, joined(&alias, rest));
            }
            let above = shared.ancestors().skip(1).take_while(|it| it.starts_with(&current.point));
            for place in above.filter(|it| places.contains(it)) {
                add(place, alias.clone());
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Joins without a slash at the end.
fn joined(folder: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { folder.to_path_buf() } else { folder.join(rest) }
}

fn parse(text: &[u8]) -> Vec<Mount> {
    let fields = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = String::from_utf8_lossy(fields.next()?).into_owned();
        Some(Mount { device, root: unescaped(fields.next()?), point: unescaped(fields.next()?) })
    };
    text.split(|byte| *byte == b'\n').filter_map(fields).collect()
}

/// Decodes octal escapes such as `\040`.
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((first, after)) = rest.split_first() {
        let octal = after.first_chunk::<3>().filter(|_| *first == b'\\');
        let value =
            octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 8:2 / /home rw - ext4 /dev/sda2 rw
23 21 8:2 /u /srv/with\\040blank rw - ext4 /dev/sda2 rw
24 21 8:2 /u/.ssh/keys /keys rw - ext4 /dev/sda2 rw
25 21 8:2 /other /other rw - ext4 /dev/sda2 rw
26 21 8:1 / /sysroot ro - ext4 /dev/sda1 rw
27 21 0:5 / /proc rw - proc proc rw
28 21 8:3 / /twice rw - ext4 /dev/sda3 rw
29 21 8:4 /in /twice rw - ext4 /dev/sda4 rw
30 21 8:4 / /whole rw - ext4 /dev/sda4 rw
";

    fn set(places: &[&str]) -> DeniedPaths {
        places.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn all_paths_of_a_place_are_found_by_device_and_folder() {
        let mounts = parse(MOUNTS.as_bytes());
        for (place, expected) in [
            ("/home/u/.ssh", &["/keys", "/srv/with blank/.ssh"][..]),
            ("/home/u", &["/keys", "/srv/with blank"]),
            ("/home/u/.ssh/keys/a", &["/keys/a", "/srv/with blank/.ssh/keys/a"]),
            ("/home/v/.ssh", &[]),
            ("/keys", &["/home/u/.ssh/keys", "/srv/with blank/.ssh/keys"]),
            ("/etc/shadow", &["/sysroot/etc/shadow"]),
            ("/proc/x", &[]),
            ("/twice/x", &["/whole/in/x"]),
            ("relative", &[]),
        ] {
            let found = aliases_among(&mounts, &set(&[place]));
            assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{place}");
        }
        let places = [
            "/etc/a",
            "/etc/b",
            "/home/u/.ssh",
            "/home/v/.ssh",
            "/keys",
            "/other",
            "/proc/x",
            "/twice/x",
        ];
        let each = places.iter().flat_map(|it| aliases_among(&mounts, &set(&[it])));
        let mut each: Vec<PathBuf> = each.collect();
        each.sort_unstable();
        assert_eq!(aliases_among(&mounts, &set(&places)), each);
    }

    #[test]
    fn damaged_lines_are_left_out() {
        for text in ["", "1", "1 2 8:1", "1 2 8:1 /", "\\", "\n\n"] {
            assert_eq!(parse(text.as_bytes()), [], "{text}");
        }
        assert_eq!(unescaped(b"/a\\04x\\134b\\"), Path::new("/a\\04x\\b\\"));
    }
}
