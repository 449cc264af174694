//! Settings of git for commands that may not read them where they are: those that decide which
//! files git shows as changed, ignored or untracked, and files that the settings of a repository
//! name.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::paths::resolve;
use crate::text::in_home;

/// Lets git work where the user's settings cannot be read: without them, it trusts no working tree
/// of another user. It can change nothing there.
const PLAIN_GIT: [(&str, &str); 5] = [
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("XDG_CONFIG_HOME", "/dev/null"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_CONFIG_COUNT", "0"),
];

const TRUSTED: (&str, &str) = ("safe.directory", "*");

/// Keeps the maintenance that git begins after a commit in the foreground: a command's processes
/// end with it, so in the background it would never be completed.
pub(super) const FOREGROUND: [(&str, &str); 2] =
    [("gc.autoDetach", "false"), ("maintenance.autoDetach", "false")];

/// The arguments with which git lists the settings of the user and the machine, in a folder outside
/// of any repository: a value of a repository could have lines that look like other settings.
pub(super) const OUTER_QUERY: [&str; 5] = [
    "-c",
    "safe.directory=*",
    "config",
    "--get-regexp",
    r"^(core\.(attributesfile|autocrlf|eol|excludesfile|quotepath|safecrlf)|filter\..*\.clean)$",
];

/// The arguments with which git lists the settings of a repository: also the programs that it
/// names.
pub(super) const OWN_QUERY: [&str; 7] = [
    "-c",
    "safe.directory=*",
    "config",
    "--local",
    "--includes",
    "--get-regexp",
    r"^(include(if\..*)?\.path|core\.(alternaterefscommand|attributesfile|autocrlf|eol|excludesfile|fsmonitor|quotepath|safecrlf|sshcommand)|diff\.external|diff\..*\.(command|textconv)|filter\..*\.(clean|process|smudge)|gpg\.(.*\.)?program)$",
];

/// The programs of git-lfs, as its installation names them.
const LFS_PROGRAMS: [&str; 5] = [
    "git-lfs clean -- %f",
    "git-lfs smudge -- %f",
    "git-lfs smudge --skip -- %f",
    "git-lfs filter-process",
    "git-lfs filter-process --skip",
];

/// The sections of the settings that are asked for.
const SECTIONS: [&str; 5] = ["include", "core.", "diff.", "filter.", "gpg."];

/// The maximum size of an included file, in bytes.
const CONFIGURATION_BYTES_MAX: u64 = 1 << 20;

/// Has the output of `git-lfs clean`, which writes to the repository.
const LFS_CLEAN: &str = "if [ ! -s %f ] || head -c 80 %f | grep -q '^version https://git-lfs'; \
                         then cat; else cat > /dev/null; printf \
                         'version https://git-lfs.github.com/spec/v1\\noid sha256:%%s\\nsize %%s\\n' \
                         $(sha256sum < %f | cut -d' ' -f1) $(wc -c < %f); fi";

/// The settings for a command, and the files that it has to read for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GitSettings {
    pub(super) settings: Vec<(String, String)>,
    pub(super) files: Vec<PathBuf>,
}

/// The folders in which users have settings.
pub(super) struct ConfigFolders<'a> {
    pub(super) home: Option<&'a Path>,
    /// The value of `XDG_CONFIG_HOME`.
    pub(super) config: Option<&'a OsStr>,
}

impl ConfigFolders<'_> {
    /// An absolute path of a setting.
    fn path(&self, value: &str) -> Option<PathBuf> {
        let absolute = || Some(PathBuf::from(value)).filter(|path| path.is_absolute());
        in_home(value, self.home).or_else(absolute)
    }

    /// The path that git uses if no setting names another one.
    fn usual(&self, name: &str) -> Option<PathBuf> {
        let config = self.config.map(PathBuf::from).filter(|folder| folder.is_absolute());
        let config = config.or_else(|| Some(self.home?.join(".config")));
        config.map(|folder| folder.join("git").join(name))
    }
}

impl GitSettings {
    /// Selects from the output of the queries the settings that are not in the repository, and the
    /// files. `may_read` decides whether a command may read a file, a real path.
    pub(super) fn parse(
        (outer, own): (&str, &str),
        folders: &ConfigFolders<'_>,
        may_read: impl Fn(&Path) -> bool,
    ) -> Self {
        let mut found = Self::default();
        let (mut own_keys, mut runs_programs) = (BTreeSet::new(), false);
        for (key, value) in own.lines().filter_map(parse_line) {
            if key.starts_with("include") {
                found.files.extend(folders.path(value));
                continue;
            }
            let is_program = !["core.", "filter."].iter().any(|section| key.starts_with(section))
                || ["command", "fsmonitor", "clean", "process", "smudge"]
                    .iter()
                    .any(|end| key.ends_with(end));
            runs_programs |= is_program && !LFS_PROGRAMS.contains(&value);
            own_keys.insert(key);
        }
        // They could print what git reads, which must not be any file of the user.
        if runs_programs {
            found.files.clear();
        }
        // The last value counts.
        let mut last: BTreeMap<&str, &str> = outer.lines().filter_map(parse_line).collect();
        let is_readable = |path: &PathBuf| {
            let real = resolve(path);
            is_users_file(&real) && may_read(&real)
        };
        found.files.retain(|path| is_readable(path) && is_configuration(path));
        for (key, name) in [("core.attributesfile", "attributes"), ("core.excludesfile", "ignore")]
        {
            let path = match last.remove(key) {
                // Any file can be one of patterns: a checkout must not name one of the user.
                _ if own_keys.contains(key) => None,
                Some(value) => folders.path(value),
                None => folders.usual(name),
            };
            if let Some(path) = path.filter(&is_readable) {
                found.settings.push((key.to_owned(), path.display().to_string()));
                found.files.push(path);
            }
        }
        let outer = last.into_iter().filter(|(key, _)| !own_keys.contains(key));
        found.settings.extend(outer.map(|(key, value)| {
            let is_lfs = key.starts_with("filter.") && value.starts_with("git-lfs clean");
            (key.to_owned(), if is_lfs { LFS_CLEAN.to_owned() } else { value.to_owned() })
        }));
        for file in &mut found.files {
            *file = resolve(file);
        }
        found
    }

    /// Adds variables for a command that reads these settings and no others of the user.
    pub(super) fn add_to(&self, environment: &mut Vec<(OsString, OsString)>) {
        environment.extend(PLAIN_GIT.map(|(name, value)| (name.into(), value.into())));
        add_settings(environment, &[TRUSTED]);
        let settings = self.settings.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        add_settings(environment, &settings.collect::<Vec<_>>());
    }
}

/// The key and the value of a setting.
fn parse_line(line: &str) -> Option<(&str, &str)> {
    // A name between the dots of a key may contain blanks.
    let is_known = SECTIONS.iter().any(|section| line.starts_with(section));
    let named = is_known && !line.starts_with("core.");
    let ends: &[&str] = if named {
        &[
            ".path ",
            ".clean ",
            ".process ",
            ".smudge ",
            ".command ",
            ".textconv ",
            ".external ",
            ".program ",
        ]
    } else {
        &[" "]
    };
    let end = ends.iter().filter_map(|end| Some(line.find(end)? + end.len())).min()?;
    is_known.then(|| (line[..end].trim_end(), &line[end..]))
}

/// True for a file of this user, or of root.
fn is_users_file(path: &Path) -> bool {
    let is_users = |uid| uid == geteuid().as_raw() || uid == 0;
    fs::symlink_metadata(path).is_ok_and(|facts| facts.is_file() && is_users(facts.uid()))
}

/// True for a file that git would take for its settings, at least at the beginning.
fn is_configuration(path: &Path) -> bool {
    if !fs::metadata(path).is_ok_and(|facts| facts.len() <= CONFIGURATION_BYTES_MAX) {
        return false;
    }
    let bytes = fs::read(path).unwrap_or_default();
    let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with(b"#"));
    first.is_none_or(|line| line.starts_with(b"["))
}

/// Adds settings of git to an environment, after those that it has.
pub(super) fn add_settings(environment: &mut Vec<(OsString, OsString)>, settings: &[(&str, &str)]) {
    let count = environment.iter().rev().find(|(name, _)| name == "GIT_CONFIG_COUNT");
    let count = count.map(|(_, value)| value.to_string_lossy().trim().to_owned());
    let count =
        count.filter(|count| !count.is_empty()).map_or(Ok(0), |count| count.parse::<usize>());
    // git refuses an invalid number, which is the user's.
    let Ok(count) = count else { return };
    for (number, (key, value)) in settings.iter().enumerate() {
        let number = count + number;
        environment.push((format!("GIT_CONFIG_KEY_{number}").into(), key.into()));
        environment.push((format!("GIT_CONFIG_VALUE_{number}").into(), value.into()));
    }
    let count = (count + settings.len()).to_string();
    environment.push(("GIT_CONFIG_COUNT".into(), count.into()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_user_and_files_that_a_repository_names_are_selected() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let home = folder.path().canonicalize().expect("it is there");
        fs::create_dir_all(home.join(".config/git")).expect("a folder");
        for (name, text) in [
            (".config/git/ignore", "*.swp"),
            ("my attributes", "*.bin filter=lfs"),
            ("token", "# a token\n\n[http]\n"),
            ("closed", "[http]\n"),
            ("of-user", "[http]\n"),
            ("notes", "text\n[http]\n"),
        ] {
            fs::write(home.join(name), text).expect("a file");
        }
        std::os::unix::fs::symlink("token", home.join("link")).expect("a link");
        let top = home.display();
        let outer = "core.autocrlf true\ncore.eol crlf\nfilter.lfs.clean git-lfs clean -- %f\n\
                     filter.a b.clean sed s/a/b/\n\
                     core.attributesfile ~/my attributes\nof a value with lines\n";
        let own = format!(
            "core.eol lf\ninclude.path ../in-tree\ninclude.path {top}/missing\n\
             includeif.gitdir:/a b/.path {top}/link\ninclude.path ~/closed\ninclude.path ~/notes\n\
             filter.lfs.process git-lfs filter-process\n"
        );
        let folders = ConfigFolders { home: Some(&home), config: None };
        let may_read = |path: &Path| !path.ends_with("closed");
        let found = GitSettings::parse((outer, &own), &folders, may_read);
        let file = |name: &str| home.join(name);
        let files = [file("token"), file("my attributes"), file(".config/git/ignore")];
        assert_eq!(found.files, files);
        let text = |name: &str| file(name).display().to_string();
        let settings = [
            ("core.attributesfile", text("my attributes")),
            ("core.excludesfile", text(".config/git/ignore")),
            ("core.autocrlf", "true".to_owned()),
            ("filter.a b.clean", "sed s/a/b/".to_owned()),
            ("filter.lfs.clean", LFS_CLEAN.to_owned()),
        ];
        assert_eq!(found.settings, settings.map(|(key, value)| (key.to_owned(), value)));
        let of_checkout = "core.excludesfile ~/notes\ncore.attributesfile ~/notes\n";
        let found = GitSettings::parse(("", of_checkout), &folders, |_| true);
        assert_eq!(found, GitSettings::default());
        // Programs of a checkout could print the files.
        for program in [
            "core.fsmonitor cat token",
            "core.alternaterefscommand cat token",
            "diff.external cat token",
            "diff.a b.textconv cat token",
            "filter.lfs.clean git-lfs clean -- %f; cat token",
            "filter.a.process git-lfs",
            "gpg.program cat",
            "gpg.ssh.program cat",
        ] {
            let own = format!(
                "{program}\ninclude.path ~/token\ncore.excludesfile x\ncore.attributesfile x"
            );
            let found = GitSettings::parse(("", &own), &folders, |_| true);
            assert_eq!(found, GitSettings::default(), "{program}");
        }
        let none = ConfigFolders { home: None, config: None };
        assert_eq!(GitSettings::parse(("", ""), &none, |_| true), GitSettings::default());
    }

    #[test]
    fn settings_of_git_are_added_after_those_of_the_environment() {
        let added = |count: Option<&str>| {
            let own = count.map(|count| ("GIT_CONFIG_COUNT".into(), count.into()));
            let mut environment: Vec<(OsString, OsString)> = own.into_iter().collect();
            add_settings(&mut environment, &[("a.b", "c")]);
            environment.into_iter().skip(usize::from(count.is_some())).collect::<Vec<_>>()
        };
        let expected = |number: &str, count: &str| {
            let pairs = [
                (format!("GIT_CONFIG_KEY_{number}"), "a.b".to_owned()),
                (format!("GIT_CONFIG_VALUE_{number}"), "c".to_owned()),
                ("GIT_CONFIG_COUNT".to_owned(), count.to_owned()),
            ];
            pairs.map(|(name, value)| (OsString::from(name), OsString::from(value))).to_vec()
        };
        assert_eq!(added(None), expected("0", "1"));
        assert_eq!(added(Some("")), expected("0", "1"));
        assert_eq!(added(Some("2")), expected("2", "3"));
        assert!(added(Some("many")).is_empty());
    }
}
