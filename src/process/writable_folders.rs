//! The folders that commands of the model can write to.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The most links on the way to a file: the kernel follows no more.
const LINKS_MAX: usize = 40;

/// The folders that commands can write to, as real paths.
#[derive(Debug)]
pub(super) struct WritableFolders(pub(super) Vec<PathBuf>);

impl WritableFolders {
    /// Returns true if commands can change the file that a path leads to: they can write to it, or
    /// to a folder or link on the way, even if `..` leaves that folder again.
    pub(super) fn can_change(&self, path: &Path) -> bool {
        let parts = |path: &Path| -> Vec<OsString> {
            path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
        };
        let (mut rest, mut resolved, mut links) = (parts(path), PathBuf::new(), 0);
        while let Some(part) = rest.pop() {
            if part == ".." {
                resolved.pop();
                continue;
            }
            resolved.push(part);
            if self.0.iter().any(|root| resolved != *root && resolved.starts_with(root)) {
                return true;
            }
            if let Ok(target) = fs::read_link(&resolved) {
                links += 1;
                if links > LINKS_MAX {
                    return false;
                }
                resolved.pop();
                rest.extend(parts(&target));
            }
        }
        self.is_one(&resolved)
    }

    /// Returns true if a path is one of the folders themselves.
    pub(super) fn is_one(&self, path: &Path) -> bool {
        self.0.iter().any(|root| root == path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_changeable_if_commands_can_write_anywhere_on_its_way() {
        let scratch = tempfile::tempdir().expect("a folder");
        let at = |name: &str| scratch.path().canonicalize().expect("it is there").join(name);
        for name in ["work/bin", "home"] {
            fs::create_dir_all(at(name)).expect("a folder");
        }
        fs::write(at("home/tool"), "").expect("a file");
        for (target, link) in [
            (at("work/later"), "home/dangling"),
            (at("home/tool"), "work/bin/tool"),
            ("../work/bin/tool".into(), "home/through"),
            (at("home/through"), "home/twice"),
            (at("work"), "home/tree"),
            ("loop".into(), "home/loop"),
        ] {
            symlink(target, at(link)).expect("a link");
        }
        let folders = WritableFolders(vec![at("work")]);
        for (path, expected) in [
            ("work", true),
            ("work/bin/../x", true),
            ("work/bin/../../home/tool", true),
            ("home/dangling", true),
            ("home/through", true),
            ("home/twice", true),
            ("home/tree", true),
            ("home/tree/late", true),
            ("home/../work/late", true),
            ("home", false),
            ("home/tool", false),
            ("home/late", false),
            ("home/loop", false),
            ("work/../home/tool", false),
            ("workshop", false),
        ] {
            assert_eq!(folders.can_change(&at(path)), expected, "{path}");
        }
    }
}
