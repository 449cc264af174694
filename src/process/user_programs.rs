//! The user's own programs that lie where commands of the model can write: hooks, key helpers,
//! servers. They run inside the sandbox of commands, so that a program that a command has changed
//! can do no more than the command itself, and only as long as their files have not changed since
//! the run began.
//!
//! A program is also confined if it is not certain that everything it runs lies elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::code_programs::{INTERPRETERS, RUNNERS, SHELLS, is_command_flag, program_name};
use super::code_variables::{loaded_paths, own_paths, without_working_folder};
use super::job::Job;
use super::job_paths::{absolute, joined, variable};
use super::landlock_policy::{LandlockPolicy, PathRule};
use super::program_files::{KnownEntry, ProgramChange, UsedFiles, compare, is_runnable};
use super::program_words::ProgramWords;
use super::programs::absolute_path;
use super::writable_folders::WritableFolders;

/// The most folders in which the words of a job are looked up.
const STARTS_MAX: usize = 8;

/// Returns the current sandbox of commands. `None` if commands have none.
pub type CommandSandbox = Box<dyn Fn() -> io::Result<Option<LandlockPolicy>> + Send + Sync>;

/// The programs of a run's user.
pub struct UserPrograms {
    writable: WritableFolders,
    /// Programs that the user allows without the sandbox: names of servers, words and paths of
    /// commands.
    unconfined: Vec<String>,
    sandbox: CommandSandbox,
    entries: Mutex<BTreeMap<PathBuf, KnownEntry>>,
    /// The folders of a `PATH` that commands can write to.
    open_paths: Mutex<BTreeMap<OsString, Vec<PathBuf>>>,
}

impl fmt::Debug for UserPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserPrograms").field("writable", &self.writable).finish_non_exhaustive()
    }
}

/// A job that may run.
#[derive(Debug)]
pub(super) struct AdmittedJob {
    pub(super) job: Job,
    pub(super) files: UsedFiles,
}

/// The programs of a job.
#[derive(Debug)]
struct JobPrograms {
    /// The paths that it names and commands can write to.
    named: Vec<PathBuf>,
    /// The files among them that it certainly runs, whatever their names are.
    run: Vec<PathBuf>,
    /// True if it must run inside the sandbox.
    is_confined: bool,
}

impl UserPrograms {
    /// `writable` are the folders that commands can write to, as real paths.
    pub fn new(writable: Vec<PathBuf>, unconfined: Vec<String>, sandbox: CommandSandbox) -> Self {
        let (entries, open_paths) = (Mutex::default(), Mutex::default());
        Self { writable: WritableFolders(writable), unconfined, sandbox, entries, open_paths }
    }

    /// Records the current state of a job's program files, unless it is recorded already. Blocks.
    pub fn remember(&self, job: &Job) {
        let words = ProgramWords::of(job);
        let folders = words.all().map(|word| absolute(&job.cwd, word, job));
        let folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
        let open = folders.into_iter().filter(|path| self.writable.can_change(path));
        self.entries.lock().extend(open.map(|path| (path, KnownEntry::Folder)));
        let JobPrograms { named, run, .. } = self.find(&words, job);
        let bare = self.bare_paths(&words, job);
        let bare = bare.into_iter().filter(|path| path.is_file() && self.writable.can_change(path));
        let found: Vec<PathBuf> = named.into_iter().chain(bare).collect();
        let mut known = self.entries.lock();
        for path in found {
            if !known.contains_key(&path) {
                let is_program = is_runnable(&path) || run.contains(&path);
                let entry = KnownEntry::read(&path, is_program);
                known.extend(entry.map(|entry| (path, entry)));
            }
        }
    }

    /// Returns true if a job runs inside the sandbox of commands, provided that they have one.
    /// Blocks.
    pub fn confines(&self, job: &Job) -> bool {
        self.remember(job);
        self.find(&ProgramWords::of(job), job).is_confined
    }

    /// Returns the job, inside the sandbox if it belongs there. Blocks.
    ///
    /// # Errors
    /// A [`ProgramChange`] if one of its programs has changed since the run began; or the sandbox
    /// cannot be made.
    pub(super) fn admit(&self, mut job: Job) -> io::Result<AdmittedJob> {
        let JobPrograms { named, run, is_confined } = self.find(&ProgramWords::of(&job), &job);
        let mut files = UsedFiles::default();
        let known = self.entries.lock();
        for path in named {
            match known.get(&path) {
                Some(KnownEntry::Data | KnownEntry::Folder) => {}
                Some(KnownEntry::Program { real, length, sha256 }) => {
                    let mark = compare(&path, real, *length, sha256).map_err(io::Error::other)?;
                    files.0.push((path, mark));
                }
                None if is_runnable(&path) || (run.contains(&path) && path.is_file()) => {
                    return Err(io::Error::other(ProgramChange::Appeared(path)));
                }
                None => {}
            }
        }
        drop(known);
        if job.landlock.is_none() && is_confined {
            job.landlock = (self.sandbox)()?.map(|policy| with_grants(policy, &job.terms.grants));
        } else {
            job.environment = without_working_folder(&job);
        }
        Ok(AdmittedJob { job, files })
    }

    fn find(&self, words: &ProgramWords, job: &Job) -> JobPrograms {
        let starts = self.starts(words, job);
        let mut run = run_files(words, &starts, job);
        run.retain(|path| self.writable.can_change(path));
        let mut named = self.on_path(words, job);
        for start in &starts {
            named.extend(words.all().filter_map(|word| self.locate(start, word, job)));
        }
        let bare = self.bare_paths(words, job);
        let may_run = ProgramWords::that_may_run(job);
        let may_be_put: BTreeSet<PathBuf> = starts
            .iter()
            .flat_map(|start| may_run.all().filter_map(|word| self.locate(start, word, job)))
            .collect();
        let known = self.entries.lock();
        named.extend(bare.into_iter().filter(|path| known.contains_key(path)));
        let is_code = |path: &PathBuf| match known.get(path) {
            Some(KnownEntry::Folder) => false,
            Some(KnownEntry::Data | KnownEntry::Program { .. }) => true,
            None => may_be_put.contains(path) || fs::symlink_metadata(path).is_ok(),
        };
        let names_code = named.iter().any(is_code);
        drop(known);
        named.extend(run.iter().cloned());
        named.sort_unstable();
        named.dedup();
        let is_lifted =
            job.terms.name.iter().chain(words.written()).any(|word| self.lifts(word, job));
        let is_confined = job.terms.is_confined
            || (!is_lifted
                && (names_code
                    || !self.open_folders(job).is_empty()
                    || self.loads_open_code(job)
                    || self.may_run_open_code(&may_run, job)));
        JobPrograms { named, run, is_confined }
    }

    /// The folders in which words of a job are looked up: its working directory, and the recorded
    /// folders that it names, into which it may change.
    fn starts(&self, words: &ProgramWords, job: &Job) -> Vec<PathBuf> {
        let known = self.entries.lock();
        let named = words.all().map(|word| absolute(&job.cwd, word, job));
        let folders = named.filter(|path| matches!(known.get(path), Some(KnownEntry::Folder)));
        let mut starts = vec![job.cwd.clone()];
        for folder in folders {
            if starts.len() < STARTS_MAX && !starts.contains(&folder) {
                starts.push(folder);
            }
        }
        starts
    }

    /// The paths of words without a slash, in each folder where the job may be.
    fn bare_paths(&self, words: &ProgramWords, job: &Job) -> Vec<PathBuf> {
        let starts = self.starts(words, job);
        let bare = || words.written().filter(|word| !word.contains('/'));
        starts.iter().flat_map(|start| bare().map(move |word| start.join(word))).collect()
    }

    /// Returns true if the user allows this word's program without the sandbox.
    fn lifts(&self, word: &str, job: &Job) -> bool {
        self.unconfined.iter().any(|entry| {
            let path = |text| absolute(&job.cwd, text, job);
            entry == word || (entry.contains('/') && path(entry) == path(word))
        })
    }

    /// The path of a word with a slash, if commands can write to it or to a folder on the way.
    fn locate(&self, start: &Path, word: &str, job: &Job) -> Option<PathBuf> {
        let word = word.split_once('=').filter(|_| word.starts_with('-')).map_or(word, |it| it.1);
        let is_open = word.contains('/') && self.writable.can_change(&joined(start, word, job));
        is_open.then(|| absolute(start, word, job))
    }

    /// The programs that words name in those folders of `PATH` that commands can write to.
    fn on_path(&self, words: &ProgramWords, job: &Job) -> Vec<PathBuf> {
        let folders = self.open_folders(job);
        let in_order = || words.in_order.iter().chain(&words.of_scripts);
        let bare = || in_order().filter(|word| !word.contains('/'));
        let named = folders.iter().flat_map(|folder| bare().map(|word| folder.join(word)));
        let known = self.entries.lock();
        named.filter(|path| path.is_file() || known.contains_key(path)).collect()
    }

    /// The folders of the job's `PATH` that commands can write to.
    fn open_folders(&self, job: &Job) -> Vec<PathBuf> {
        let path = absolute_path(variable(job, "PATH"));
        let mut known = self.open_paths.lock();
        let find =
            || std::env::split_paths(&path).filter(|it| self.writable.can_change(it)).collect();
        known.entry(path.clone()).or_insert_with(find).clone()
    }

    /// Returns true if a variable names code that commands can write to.
    fn loads_open_code(&self, job: &Job) -> bool {
        // A working folder is more often the subject of a program than its code.
        let is_subject = |path: &PathBuf| *path == job.cwd || self.writable.is_one(path);
        loaded_paths(job).iter().any(|path| self.writable.can_change(path))
            || own_paths(job).iter().any(|it| !is_subject(it) && self.writable.can_change(it))
    }

    /// Returns true if a word may run code that no word names: a runner of packages, or an
    /// interpreter without a script file outside the folders that commands can write to.
    fn may_run_open_code(&self, words: &ProgramWords, job: &Job) -> bool {
        let lies_elsewhere = |word: &String| {
            let path = absolute(&job.cwd, word, job);
            path.is_file() && !self.writable.can_change(&path)
        };
        let mut names =
            words.in_order.iter().chain(&words.of_scripts).map(|word| program_name(word));
        names.any(|name| RUNNERS.contains(&name.as_str()))
            || interpreted(words).any(|script| !script.is_some_and(lies_elsewhere))
    }
}

/// The first operand of each interpreter among the words. A shell with `-c` is left out: its line
/// of commands is cut into words like the others.
fn interpreted(words: &ProgramWords) -> impl Iterator<Item = Option<&String>> {
    [&words.in_order, &words.of_scripts].into_iter().flat_map(|all| {
        all.iter().enumerate().filter_map(move |(place, word)| {
            let (name, rest) = (program_name(word), &all[place + 1..]);
            let is_shell = SHELLS.contains(&name.as_str());
            let runs_line = is_shell && rest.first().is_some_and(|it| is_command_flag(it));
            (INTERPRETERS.contains(&name.as_str()) && !runs_line)
                .then(|| rest.iter().find(|word| !word.starts_with('-')))
        })
    })
}

/// The program itself, and the scripts that interpreters are given, in each of these folders.
fn run_files(words: &ProgramWords, starts: &[PathBuf], job: &Job) -> Vec<PathBuf> {
    let run = [&words.in_order[0]].into_iter().chain(interpreted(words).flatten());
    run.flat_map(|word| starts.iter().map(|start| absolute(start, word, job))).collect()
}

/// The policy of commands, with the additional grants of a program. The kernel accepts real paths
/// only.
fn with_grants(policy: LandlockPolicy, grants: &[PathRule]) -> LandlockPolicy {
    let real =
        |grant: &PathRule| Some(PathRule::new(fs::canonicalize(&grant.path).ok()?, grant.access));
    let rules = policy.rules.iter().cloned().chain(grants.iter().filter_map(real)).collect();
    LandlockPolicy { rules, ..policy }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::super::job::ProgramTerms;
    use super::*;

    /// A folder where commands write, and one where they do not.
    struct Ground(TempDir);

    impl Ground {
        fn new() -> Self {
            let ground = Self(tempfile::tempdir().expect("a folder"));
            for name in ["work/bin", "work/tools", "home"] {
                fs::create_dir_all(ground.at(name)).expect("a folder");
            }
            for name in ["work/guard.sh", "work/tools/own", "home/guard.sh", "home/x.js"] {
                fs::write(ground.at(name), "first").expect("a file");
                let mode = fs::Permissions::from_mode(0o755);
                fs::set_permissions(ground.at(name), mode).expect("its mode");
            }
            fs::write(ground.at("work/notes"), "first").expect("a file");
            ground
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().expect("it is there").join(name)
        }

        fn programs(&self, unconfined: &[&str]) -> UserPrograms {
            let unconfined = unconfined.iter().map(|entry| (*entry).to_owned()).collect();
            let sandbox = Box::new(|| Ok(Some(LandlockPolicy::default())));
            UserPrograms::new(vec![self.at("work")], unconfined, sandbox)
        }

        fn job(&self, line: &str, variables: &[(&str, &str)]) -> Job {
            let fixed = [
                ("PATH".into(), "/usr/bin:/bin".into()),
                ("HOME".into(), self.at("home").into()),
                ("CLAUDE_PROJECT_DIR".into(), self.at("work").into()),
            ];
            let own = variables.iter().map(|(name, value)| (name.into(), value.into()));
            Job {
                program: "/bin/sh".into(),
                arguments: vec!["-c".into(), line.into()],
                cwd: self.at("work"),
                environment: fixed.into_iter().chain(own).collect(),
                input: false,
                memory: None,
                landlock: None,
                terms: ProgramTerms::default(),
            }
        }
    }

    fn confines(programs: &UserPrograms, job: &Job) -> bool {
        programs.remember(job);
        programs.admit(job.clone()).expect("nothing was changed").job.landlock.is_some()
    }

    /// Commands with a program, or an input of one, that a command of the run can write.
    const CONFINED: &[&str] = &[
        "./guard.sh",
        "\"$CLAUDE_PROJECT_DIR\"/guard.sh --strict",
        "cd tools && ./own",
        "sh guard.sh",
        "cat notes | tail -1",
        "./late.sh",
        "true; tools/late",
        "echo a/b; tools/late",
        "echo \"a/b $(tools/late)\"",
        "echo `tools/late`",
        "echo <(tools/late)",
        "echo a/b | tools/late",
        "jq -f tools/late.jq",
        "jq . --from-file tools/late.jq",
        "sed '1e tools/late'",
        "sed 's/.*/tools\\/late/e'",
        "sed -n -f tools/late.sed",
        "awk 'BEGIN { system(\"tools/late\") }'",
        "awk -f tools/late",
        "curl --config tools/late",
        "cat tools/late | sh",
        "cat tools/late | xargs -I@ ~/run @",
        "echo tools/late | xargs -n1 env",
        ". <(cat tools/late)",
        "$(jq -r .x tools/late)",
        "~/run \"$(jq -r .x ./late)\"",
        "x=tools/late; echo a && $x",
        "echo 'a/b' 'not closed; tools/late",
        "bash -c 'echo a; tools/late'",
        "if tools/late; then echo a; fi",
        "{ tools/late; }",
        "~/run tools/late",
        "cat <<X | ~/run\ntools/late\nX",
        "/usr/bin/true $CLAUDE_PROJECT_DIR/late",
        "python3 -c 'import json'",
        "python3 -m guard",
        "node",
        "npx -y guard",
        "git status",
        "bash $UNKNOWN",
        "bash -ec 'exec ~/guard.sh'",
        "$UNKNOWN/guard.sh",
        "jest --ci",
        "lint-staged",
        "timeout 5 $(ls -t \"$CLAUDE_PROJECT_DIR\"/tools/*.sh | head -1) || true",
        "timeout 5 $(ls -t tools/late* | tail -1)",
        "for f in $(ls -d tools/late*); do timeout 5 \"$f\"; done",
        "for f in tools/late*; do timeout 5 $f; done",
        "f=$(echo tools/late*); env \"$f\" || true",
        "timeout 5 \"$(printf '%s/%s' tools late)\"",
        "ls -d tools/late* | while read f; do command \"$f\"; done",
        "printf '%s\\n' tools/late* | ~/run",
        "ls tools/late* | (~/run)",
        "env -S \"$(ls -d tools/late*)\"",
        "echo a # it's\ntools/late\necho b # don't",
        "echo \"$(case a in a) tools/late;; esac)\"",
        "echo a | sed -e'1e tools/late'",
        "\"$(dirname tools/late)\"/late",
        "~/../work/guard.sh",
        "tools/../../home/guard.sh",
    ];

    #[test]
    fn a_program_is_confined_unless_all_of_it_lies_elsewhere() {
        let ground = Ground::new();
        let programs = ground.programs(&[]);
        for line in CONFINED {
            assert!(confines(&programs, &ground.job(line, &[])), "{line}");
        }
        for line in [
            "jq -r .tool_input.command >> ~/log",
            "jq -r '\"\\(.a) - \\(.b // \"none\")\"' >> ~/.claude/log.txt",
            "date +%d/%m/%Y >> \"$HOME/log\"",
            "cat | sed s/a/b/g | cut -d/ -f2 | tr '/' _ >> ~/log",
            "sed -e 's/one/two/;/three/d' >> ~/log",
            "echo \"bash/edit in $HOME: $(jq -r '.x // empty')\" >> ~/log",
            "f=$(jq -r '.tool_input.file_path // empty'); [ -z \"$f\" ] || echo \"make/git $f\" >> ~/log",
            "if [ \"`jq -r '.a/2'`\" = a/b ]; then printf '%s/%s' a b; fi | tee -a ~/log 2>&1",
            "[ -e \"$CLAUDE_PROJECT_DIR/late.txt\" ] && date >> ~/log",
            "curl -s -H 'Content-Type: application/json' -d @- https://example.com/a 'http://b.c/d'",
            "bash -c 'jq -r \".x // empty\" >> ~/log'",
            "awk -F/ '{print $1 \"/\" $2}' >> ~/log",
            "notify-send 'the run needs you'",
            "~/guard.sh",
            "\"$HOME\"/guard.sh $FILE",
            "../home/guard.sh",
            "sh ~/guard.sh --strict",
            "node --max-old-space-size=99 ~/x.js",
            "test -d \"$CLAUDE_PROJECT_DIR\"",
        ] {
            assert!(!confines(&programs, &ground.job(line, &[])), "{line}");
        }
        let bin = format!("{}:/usr/bin", ground.at("work/bin").display());
        let agent = format!("-javaagent:{}=x", ground.at("work/late.jar").display());
        for (variable, expected) in [
            (("PATH", bin.as_str()), true),
            (("PYTHONPATH", "lib"), true),
            (("PYTHONPATH", ":/usr/share"), false),
            (("LD_PRELOAD", "./x.so"), true),
            (("LD_PRELOAD", "libx.so"), false),
            (("BASH_ENV", "late"), true),
            (("PERL5OPT", "-Ilate -MX"), true),
            (("JAVA_TOOL_OPTIONS", &agent), true),
            (("NODE_OPTIONS", "-r late"), true),
            (("NODE_OPTIONS", "--import=late"), true),
            (("NODE_OPTIONS", "--max-old-space-size=4096 --no-warnings"), false),
            (("RUBYOPT", "-rbundler/setup -W0"), false),
            (("APP", "./guard.sh"), false),
        ] {
            let job = ground.job("~/guard.sh", &[variable]);
            assert_eq!(confines(&programs, &job), expected, "{variable:?}");
        }
    }

    #[test]
    fn a_program_is_confined_if_a_variable_of_its_own_names_what_it_may_run() {
        let ground = Ground::new();
        let programs = ground.programs(&[]);
        let (work, late) = (ground.at("work").display().to_string(), ground.at("work/late"));
        let late = late.display();
        for (value, expected) in [
            (late.to_string(), true),
            (format!("/opt/x:{late}"), true),
            (format!("-x -I{late} -y"), true),
            (format!("{{\"plugin\": \"{late}\"}}"), true),
            (format!("file://{late}"), true),
            ("./late".to_owned(), true),
            ("tools/late".to_owned(), true),
            ("guard.sh".to_owned(), true),
            (work, false),
            (ground.at("home/x.js").display().to_string(), false),
            ("tools".to_owned(), false),
            ("owner/name".to_owned(), false),
            ("https://example.com/tools/late".to_owned(), false),
        ] {
            let mut job = ground.job("~/guard.sh", &[("SETTING", &value)]);
            assert!(!confines(&programs, &job), "{value}: a variable of all programs");
            job.terms.own_variables = vec!["SETTING".to_owned()];
            assert_eq!(confines(&programs, &job), expected, "{value}");
        }
    }

    #[test]
    fn variables_of_programs_elsewhere_do_not_lead_to_the_working_folder() {
        let ground = Ground::new();
        let variables = [("PATH", ":bin:/usr/bin:"), ("PYTHONPATH", ":/usr/share::"), ("X", "a:")];
        let job = ground.programs(&[]).admit(ground.job("~/guard.sh", &variables));
        let job = job.expect("nothing was changed").job;
        let value = |name| variable(&job, name).and_then(|value| value.to_str());
        let expected = [Some("/usr/bin"), Some("/usr/share"), Some("a:")];
        assert_eq!(["PATH", "PYTHONPATH", "X"].map(value), expected);
    }

    #[test]
    fn a_script_elsewhere_is_confined_by_an_interpreter_that_commands_can_write() {
        let ground = Ground::new();
        let write = |name: &str, text: &str| {
            fs::write(ground.at(name), text).expect("a file");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(ground.at(name), mode).expect("its mode");
        };
        write("home/through", &format!("#!{}\n", ground.at("home/script").display()));
        let bin = format!("{}:/usr/bin", ground.at("home").display());
        let own = ground.at("work/tools/own");
        let at = own.display().to_string();
        for (line, expected) in [
            (format!("#!{at}"), true),
            (format!("#! {at} -u\r"), true),
            (format!("#!/usr/bin/env {at}"), true),
            (format!("#!/usr/bin/env -S A=b '{at}' -u"), true),
            (format!("#!/bin/sh\n'''exec' \"{at}\" \"$0\" \"$@\""), true),
            (format!("#!/bin/sh\n'''exec' {at} \"$0\" \"$@\""), true),
            ("#!tools/own".to_owned(), true),
            ("#!/usr/bin/env -S npx tsx".to_owned(), true),
            ("#!/usr/bin/env -S python3 -m guard".to_owned(), true),
            ("#!/usr/bin/env -S node --no-warnings".to_owned(), false),
            ("#!/usr/bin/env python3".to_owned(), false),
            ("#!/bin/bash -e".to_owned(), false),
            (format!("# #!{at}"), false),
        ] {
            write("home/script", &format!("{line}\n"));
            for hook in ["~/script", "script | cat", "~/through", "cat | bash -c ~/script"] {
                let (programs, job) = (ground.programs(&[]), ground.job(hook, &[("PATH", &bin)]));
                assert_eq!(confines(&programs, &job), expected, "{hook}: {line}");
                write("work/tools/own", "other");
                let is_held = programs.admit(job).is_err();
                assert_eq!(is_held, expected && line.contains("tools/own"), "{hook}: {line}");
                write("work/tools/own", "first");
            }
        }
    }

    #[test]
    fn the_user_lifts_the_confinement_by_name_word_or_path() {
        let ground = Ground::new();
        let path = ground.at("work/guard.sh").display().to_string();
        for entry in ["./guard.sh", path.as_str(), "tracker", "guard.sh"] {
            let mut job = ground.job("sh guard.sh", &[]);
            job.terms.name = Some("tracker".to_owned());
            assert!(!confines(&ground.programs(&[entry]), &job), "{entry}");
        }
        let other = ground.programs(&["other", "./other.sh"]);
        assert!(confines(&other, &ground.job("sh guard.sh", &[])));
    }

    #[test]
    fn a_program_that_was_swapped_while_it_was_started_is_noticed() {
        let ground = Ground::new();
        let (programs, job) = (ground.programs(&[]), ground.job("./guard.sh", &[]));
        programs.remember(&job);
        let (guard, aside) = (ground.at("work/guard.sh"), ground.at("work/aside"));
        let files = programs.admit(job.clone()).expect("it is unchanged").files;
        assert_eq!(files.check(), Ok(()));
        fs::rename(&guard, &aside).expect("moved");
        fs::write(&guard, "other").expect("a file");
        assert_eq!(files.check(), Err(ProgramChange::Changed(guard.clone())));
        fs::rename(&aside, &guard).expect("moved back");
        assert_eq!(files.check(), Err(ProgramChange::Changed(guard.clone())), "its time tells");
        // The original content is restored, so the next use counts.
        programs.admit(job).expect("it is unchanged").files.check().expect("nothing happened");
    }

    #[test]
    fn a_program_is_known_in_the_folder_that_its_line_changes_to() {
        let ground = Ground::new();
        for line in ["cd tools && ./own", "cd \"$CLAUDE_PROJECT_DIR/tools\"; sh own"] {
            let (programs, job) = (ground.programs(&[]), ground.job(line, &[]));
            let own = ground.at("work/tools/own");
            fs::write(&own, "first").expect("a file");
            programs.remember(&job);
            fs::write(&own, "other").expect("a file");
            let error = programs.admit(job).expect_err(line).to_string();
            assert_eq!(error, ProgramChange::Changed(own).to_string(), "{line}");
        }
    }

    #[test]
    fn a_link_may_not_lead_elsewhere_and_data_may_change() {
        let ground = Ground::new();
        let (link, home) = (ground.at("work/link"), ground.at("home/guard.sh"));
        std::os::unix::fs::symlink(&home, &link).expect("a link");
        let (programs, job) = (ground.programs(&[]), ground.job("./link notes", &[]));
        programs.remember(&job);
        fs::write(ground.at("work/notes"), "second").expect("a file");
        programs.admit(job.clone()).expect("notes are no program");
        fs::remove_file(&link).expect("it is there");
        std::os::unix::fs::symlink(ground.at("work/guard.sh"), &link).expect("a link");
        let error = programs.admit(job).expect_err("changed").to_string();
        assert_eq!(error, ProgramChange::Changed(link).to_string());
    }
}
