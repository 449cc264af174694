//! The program that runs commands: bash, or `sh` on a machine without it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{find_program, skipped_program};

/// The shell that runs commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellProgram {
    path: PathBuf,
    is_bash: bool,
    /// A bash in the working folder, where commands could have put it.
    skipped: Option<PathBuf>,
}

impl ShellProgram {
    /// Finds it in `path`, a value of `PATH`, outside the working folder.
    pub fn find(path: &OsStr, cwd: &Path) -> Self {
        let found = find_program(&["bash", "/bin/bash", "sh"], path, cwd);
        let mut shell = Self::at(found.unwrap_or_else(|| PathBuf::from("/bin/sh")));
        shell.skipped = if shell.is_bash { None } else { skipped_program("bash", path) };
        shell
    }

    fn at(path: PathBuf) -> Self {
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let is_bash = [&path, &real].iter().any(|path| path.file_name() == Some("bash".as_ref()));
        Self { path, is_bash, skipped: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the shell in its error messages.
    pub(super) fn name(&self) -> &'static str {
        if self.is_bash { "bash" } else { "sh" }
    }

    /// The sentence for the model about a shell that is not bash.
    pub(super) fn model_description(&self) -> Option<String> {
        let path = self.path.display();
        (!self.is_bash).then(|| {
            format!(
                "There is no bash here: commands run in {path}, without arrays, {{1..3}}, \
                 [[ ]] and <(...)."
            )
        })
    }

    /// The warning for the user about a shell that is not bash.
    pub fn warning(&self) -> Option<String> {
        let path = self.path.display();
        let why = self.skipped.as_ref().map_or_else(
            || "there is no bash on PATH".to_owned(),
            |bash| format!("{} is not used, as it is in the working folder", bash.display()),
        );
        (!self.is_bash).then(|| format!("{why}: commands run in {path}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_other_than_bash_is_described() {
        let folder = tempfile::tempdir().unwrap();
        let (bash, sh) = (folder.path().join("bash"), folder.path().join("sh"));
        for (real, is_bash) in [(&bash, true), (&sh, false)] {
            fs::write(real, "").unwrap();
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(real, &link).unwrap();
            for path in [real, &link] {
                let shell = ShellProgram::at(path.clone());
                assert_eq!(shell.name(), if is_bash { "bash" } else { "sh" });
                let shown = path.display().to_string();
                let texts = [shell.model_description(), shell.warning()];
                for text in texts {
                    assert_eq!(
                        text.is_some_and(|text| text.contains(&shown)),
                        !is_bash,
                        "{path:?}"
                    );
                }
            }
            fs::remove_file(link).unwrap();
        }
    }
}
