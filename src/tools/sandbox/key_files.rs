//! Keys and passwords that the user's settings of ssh and git keep in files of any name. Reads the
//! file system.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::super::real_paths::LinkedPath;
use super::context::SandboxContext;
use crate::process::file_reads::read_regular;

/// The files of settings that may name files with keys.
const SETTINGS: &[&str] = &["~/.ssh/config", "~/.gitconfig", "@config/git/config"];

/// Variables with a command line of ssh.
const VARIABLES: &[&str] = &["GIT_SSH_COMMAND", "RSYNC_RSH"];

/// The words before the name of such a file. Case is ignored.
const BEFORE_FILES: &[&str] = &["identityfile", "-oidentityfile", "-i", "--file"];

/// The maximum size of a file of settings that is read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Finds the files that settings of ssh and git name, if they can be closed to commands.
pub(super) fn find(context: &SandboxContext<'_>, writable: &[PathBuf]) -> Vec<LinkedPath> {
    let files = SETTINGS.iter().flat_map(|place| context.login_paths(place));
    let files = files.filter(|path| context.may_exist(path.real()));
    let files = files.filter_map(|path| read_regular(path.real(), BYTES_MAX).ok());
    let variables = VARIABLES.iter().filter_map(|name| context.variable(name));
    let variables = variables.map(|value| OsString::into_encoded_bytes(value.to_owned()));
    let texts = files.chain(variables);
    let named = texts.flat_map(|text| named_files(&String::from_utf8_lossy(&text), context.home));
    context.closable(named, writable)
}

/// The absolute paths of files that lines about ssh and stores of passwords name.
fn named_files(text: &str, home: Option<&Path>) -> Vec<PathBuf> {
    let is_end = |letter: char| letter.is_whitespace() || "\"'=".contains(letter);
    let mut files = Vec::new();
    for line in text.lines() {
        let lower = line.to_lowercase();
        if !["ssh", "store", "identityfile"].iter().any(|word| lower.contains(word)) {
            continue;
        }
        let mut words = line.split(is_end).filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            let is_before = BEFORE_FILES.contains(&word.to_lowercase().as_str());
            let named = if is_before { words.peek().copied() } else { word.strip_prefix("-i") };
            let in_home = |rest: &str| home.map(|home| home.join(rest));
            let path = named.and_then(|named| {
                let rest = ["~/", "%d/", "$HOME/"].iter().find_map(|it| named.strip_prefix(it));
                rest.map_or_else(|| Some(PathBuf::from(named)), in_home)
            });
            files.extend(path.filter(|path| path.is_absolute()));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_settings_of_ssh_and_git_name_are_found() {
        for (text, files) in [
            ("Host *\n  IdentityFile /k/a\n\tidentityfile=\"~/b\"\n", &["/k/a", "/home/me/b"][..]),
            ("IdentityFile %d/c\nIdentityFile %h/d\nUser -i /k/e", &["/home/me/c"]),
            ("[credential]\n\thelper = store --file /k/cred\n", &["/k/cred"]),
            ("helper = store --file=~/cred", &["/home/me/cred"]),
            ("[core]\n\tsshCommand = \"ssh -i '/k/f' -o X=y\"\n", &["/k/f"]),
            ("ssh -i/k/g -o IdentityFile=/k/h -oIdentityFile=/k/i", &["/k/g", "/k/h", "/k/i"]),
            ("[alias]\n\tx = !sed -i /etc/hosts\n", &[]),
            ("ssh -i relative", &[]),
        ] {
            let found = named_files(text, Some(Path::new("/home/me")));
            let expected: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
