//! Sessions that are resumed in another folder than before. Their changes stay in the earlier
//! folder.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::args::{GivenFlags, Profile};
use super::settings::Settings;
use super::usage::{UsageError, UsageErrorKind};
use crate::checkout::Worktree;
use crate::journal::{RestoredSession, SessionId, recorded_path};
use crate::recovery::LeftOff;
use crate::secrets::Redactor;
use crate::text::quoted_word;

/// Returns the command that resumes, from any folder, a session that works in `cwd`. `flags` are
/// repeated flags, each after a blank.
pub fn resume_command(
    session_id: &str,
    cwd: Option<&Path>,
    profile: Option<Profile>,
    flags: &str,
) -> String {
    let worktree = cwd.and_then(Worktree::name_of).map(|name| format!(" --worktree={name}"));
    let folder = cwd.map(|cwd| Worktree::repository_of(cwd).unwrap_or(cwd));
    let folder = folder.map(|path| format!(" -C {}", quoted_path(path)));
    let profile = profile.map(|profile| format!(" --profile {}", profile.name()));
    let [folder, worktree, profile] = [folder, worktree, profile].map(Option::unwrap_or_default);
    format!("outlast{folder} --resume {session_id}{worktree}{profile}{flags}")
}

/// The terms of a run that the command to resume it repeats.
#[derive(Clone, Copy, Debug)]
pub struct RepeatedTerms<'a> {
    /// The working folder of the run.
    pub cwd: &'a Path,
    /// The folder of settings and sessions, if the command has to name it.
    pub config_dir: Option<&'a Path>,
    /// The restrictions of `--profile`, which a session does not keep.
    pub profile: Option<Profile>,
    /// The other flags of the command line that a session does not keep.
    pub given: &'a GivenFlags,
    /// Redacts the secrets in these flags.
    pub redactor: &'a Redactor,
}

impl RepeatedTerms<'_> {
    /// Returns the command that resumes the session with these terms. It also works without a
    /// shell.
    pub fn resume_command(&self, session_id: &str) -> String {
        let flags = self.given.as_command_line(self.redactor);
        let command = resume_command(session_id, Some(self.cwd), self.profile, &flags);
        match self.config_dir {
            Some(folder) => format!("env OUTLAST_CONFIG_DIR={} {command}", quoted_path(folder)),
            None => command,
        }
    }
}

/// Quotes a path for a shell: in the form `$'...'` if it is not UTF-8.
fn quoted_path(path: &Path) -> String {
    if let Some(path) = path.to_str() {
        return quoted_word(path);
    }
    let mut quoted = String::from("$'");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'\\' | b'\'' => quoted.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => quoted.push(char::from(*byte)),
            // Exactly three digits, so that a digit may follow.
            _ => drop(write!(quoted, "\\{byte:03o}")),
        }
    }
    quoted.push('\'');
    quoted
}

/// A resumed session, with the facts that decide whether its folder may change.
pub(super) struct ResumedFolder<'a> {
    pub(super) id: &'a SessionId,
    pub(super) restored: &'a RestoredSession,
    /// True if there is a new prompt.
    pub(super) has_prompt: bool,
    /// True if the session may continue in another folder: the user named one, or the session is a
    /// fork.
    pub(super) may_move: bool,
}

impl ResumedFolder<'_> {
    /// Returns the folder that the session worked in, if it is another one than that of the run.
    ///
    /// # Errors
    /// The session cannot be resumed here: its folder still exists, or there is nothing left to do.
    pub(super) fn earlier_folder(self, settings: &Settings) -> Result<Option<PathBuf>, UsageError> {
        let Self { id, restored, has_prompt, may_move } = self;
        let here = &settings.cwd;
        let before = restored.contract.cwd.as_deref().filter(|before| !is_same(before, here));
        let Some(before) = before else { return Ok(None) };
        let left_off = restored.conversation.left_off.and_then(LeftOff::end);
        let (is_done, is_there) = (!has_prompt && left_off.is_some(), before.is_dir());
        // The journal contains the name with U+FFFD, so it is not known whether the folder exists.
        let is_unknown = before.to_string_lossy().contains(char::REPLACEMENT_CHARACTER);
        if may_move || !(is_done || is_there || is_unknown) {
            return Ok(Some(before.to_owned()));
        }
        let (was, now) = (before.display(), here.display());
        let line = if is_unknown && !is_there {
            format!(
                "session {id} works in {was}, whose name is not UTF-8, and this is {now}; name its \
                 folder with -C (with -C . it goes on here, without its changes)"
            )
        } else if is_there {
            let command = resume_command(id.as_str(), Some(before), settings.tools.profile, "");
            format!(
                "session {id} works in {was}, and this is {now}; go on there with: {command} (with \
                 -C . it goes on here, without its changes)"
            )
        } else {
            format!(
                "session {id} is done, and its changes were made in {was}, which is not there any \
                 more; start a new one here, or print its answer with: outlast sessions show {id}"
            )
        };
        Err(UsageError::of(UsageErrorKind::NotResumable, line))
    }
}

fn is_same(before: &Path, now: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    // Journals of other programs contain U+FFFD in names that are not UTF-8.
    let is_recorded =
        |name: &str| name == recorded_path(now) || name == now.to_string_lossy().as_ref();
    let is_equal = before == now || before.to_str().is_some_and(is_recorded);
    is_equal || real(before).is_some_and(|before| real(now) == Some(before))
}

/// Warns about a session that is resumed in another folder than before.
pub(super) fn moved_warning(id: &SessionId, before: &Path, now: &Path) -> String {
    format!(
        "session {id} worked in {} so far, and goes on in {}: its changes are where they were made",
        before.display(),
        now.display()
    )
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_folder_is_the_same_if_its_name_is_not_utf_8() {
        let now = Path::new(OsStr::from_bytes(b"/srv/caf\xe9"));
        for (before, expected) in [
            ("/srv/caf\u{fffd}e9", true),
            ("/srv/caf\u{fffd}", true),
            ("/srv/caf\u{fffd}e8", false),
            ("/srv/caf", false),
        ] {
            assert_eq!(is_same(Path::new(before), now), expected, "{before}");
        }
    }

    #[test]
    fn the_resume_command_names_the_folder_where_it_works() {
        let rows: [(&[u8], _, _, &str); 4] = [
            (b"/srv/app", None, " --bare", "outlast -C /srv/app --resume ID --bare"),
            (b"/srv/my app", None, "", "outlast -C '/srv/my app' --resume ID"),
            (b"/srv/it's caf\xe95", None, "", r"outlast -C $'/srv/it\'s caf\3515' --resume ID"),
            (
                b"/srv/app/.claude/worktrees/fix",
                Some(Profile::Untrusted),
                "",
                "outlast -C /srv/app --resume ID --worktree=fix --profile untrusted",
            ),
        ];
        for (cwd, profile, flags, command) in rows {
            let cwd = Path::new(OsStr::from_bytes(cwd));
            assert_eq!(resume_command("ID", Some(cwd), profile, flags), command);
        }
    }
}
