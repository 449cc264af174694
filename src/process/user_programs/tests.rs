//! Tests of the confinement of the user's programs, and of the detection of changed ones.

use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;
use crate::job_paths::variable;

/// A folder to which commands can write, and one to which they cannot.
pub(super) struct Folders(TempDir);

impl Folders {
    pub(super) fn new() -> Self {
        let folders = Self(tempfile::tempdir().expect("a folder"));
        for name in ["work/bin", "work/tools", "home"] {
            fs::create_dir_all(folders.at(name)).expect("a folder");
        }
        for name in ["work/guard.sh", "work/tools/own", "home/guard.sh", "home/x.js"] {
            fs::write(folders.at(name), "first").expect("a file");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(folders.at(name), mode).expect("its mode");
        }
        fs::write(folders.at("work/notes"), "first").expect("a file");
        folders
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().expect("it is there").join(name)
    }

    pub(super) fn programs(&self, unconfined: &[&str]) -> UserPrograms {
        let unconfined = unconfined.iter().map(|entry| (*entry).to_owned()).collect();
        let sandbox = Box::new(|| Ok(Some(LandlockPolicy::default())));
        UserPrograms::new(vec![self.at("work")], unconfined, sandbox)
    }

    pub(super) fn job(&self, line: &str, variables: &[(&str, &str)]) -> Job {
        let fixed = [
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("HOME".into(), self.at("home").into()),
            ("CLAUDE_PROJECT_DIR".into(), self.at("work").into()),
        ];
        let own = variables.iter().map(|(name, value)| (name.into(), value.into()));
        Job::shell(line, self.at("work"), fixed.into_iter().chain(own))
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
    "sed '1e tools/late'",
    "sed -n -f tools/late.sed",
    "awk 'BEGIN { system(\"tools/late\") }'",
    "awk -f tools/late",
    "cat tools/late | sh",
    "cat tools/late | xargs -I@ ~/run @",
    "echo tools/late | xargs -n1 env",
    ". <(cat tools/late)",
    "$(jq -r .x tools/late)",
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
    "ls tools/late* | (~/run)",
    "env -S \"$(ls -d tools/late*)\"",
    "echo a # it's\ntools/late\necho b # don't",
    "echo \"$(case a in a) tools/late;; esac)\"",
    "echo a | sed -e'1e tools/late'",
    "\"$(dirname tools/late)\"/late",
    "~/../work/guard.sh",
    "tools/../../home/guard.sh",
    "find . -name 'late*' -exec {} \\;",
    "find -type f -exec sh {} +",
    "find tools -okdir timeout 5 {} \\;",
    "find . -name late | xargs -n 1 env",
    "jq -r .tool_input.command | xargs -I{} timeout 5 {}",
    "jq -r .tool_input.command | xargs -0 bash -c",
    "jq -r .tool_input.command | xargs awk -f",
    "find . -name late | while read f; do \"$f\"; done",
    "find . -name late | (read f; timeout 5 \"$f\")",
    "ls | parallel",
    "run-parts hooks",
    "run-parts \"$CLAUDE_PROJECT_DIR\"/hooks --verbose",
    ". late",
    "[ ! -e late ] || . late # it's there",
    "bash -c 'cd; timeout 5 bash -c \". late\"'",
    "awk -f late",
    "awk -F: -f late notes",
    "env A=b awk -vx=1 -flate; ~/run $X",
    "sed -nf late",
    "sed --file=late",
    "vim -es -S late",
    "ed notes < late",
    "expect late",
    "make -f late",
    "just late",
    "$(echo late)",
    "echo a | parallel echo {} \\; tools/late {}",
    "echo a | parallel echo '{}; tools/late {}'",
    "env --chdir test tools/late",
    "sudo --user date tools/late",
    "find ~/hooks -type f -exec {} \\;",
    "run-parts ~/hooks",
    ".venv/bin/python ~/x.py",
    "bash -c '\"$UNKNOWN\" a'",
    "exec -la echo tools/late",
    "env -iu echo tools/late",
    "perl -Itools/lib ~/x.js",
    "perl -I\"$CLAUDE_PROJECT_DIR\"/lib ~/x.js",
    "perl -I\"$CLAUDE_PROJECT_DIR\"/tools ~/x.js",
    "perl -I$UNKNOWN/lib ~/x.js",
    "ruby -r./tools/x ~/x.js",
    "psql -qftools/x.sql",
    "awk -f\"$CLAUDE_PROJECT_DIR\"/late",
    "awk -f\"$UNKNOWN\" ~/x",
    "curl -K tools/late https://example.com",
    "curl -sS --config late",
    "curl --conf late",
    "curl -sKlate -XPOST https://example.com",
    "curl -K\"$CLAUDE_PROJECT_DIR\"/late",
    "curl \"-K$UNKNOWN\"",
    "jq -r .a | /usr/bin/curl -K -",
    "jq -r .a | xargs -I{} curl -K {}",
    "sudo -u me curl -K late",
    "find ~/logs -exec curl -K late {} +",
    "sed 's/.*/tools\\/late/e'",
    "sed \"s/.*/tools\\/late/e\" ~/log",
    "sed -n -e's|.*|x late|gep;p'",
    "sed -E --expression='/a/!s,(a),\\1,2e'",
    "jq -r .a | sed 1e",
    "timeout -s KILL 5 \"$d/$n\"",
    "sudo -u me \"$d/$n\"",
    "sudo -u me \"$CLAUDE_PROJECT_DIR/$n\"",
    "timeout -s KILL 5 bash -c '. late'",
];

#[test]
fn a_program_is_confined_unless_all_of_it_lies_elsewhere() {
    let folders = Folders::new();
    let programs = folders.programs(&[]);
    for line in CONFINED {
        assert!(confines(&programs, &folders.job(line, &[])), "{line}");
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
        "awk '{print $1\"/\"$2}'; sed -n 's/tools/git/p'",
        "notify-send 'the run needs you'",
        "~/guard.sh",
        "\"$HOME\"/guard.sh $FILE",
        "../home/guard.sh",
        "sh ~/guard.sh --strict",
        "bash -ec 'exec ~/guard.sh'",
        "node --max-old-space-size=99 ~/x.js",
        "test -d \"$CLAUDE_PROJECT_DIR\"",
        "cat >> ~/log # what's in it",
        "grep -q x && ~/notify 'a/b' \"c\"",
        "jq -r .message | xargs -I{} notify-send 'a/b' {}",
        "find ~/logs -name '*.log' -mtime +7 -delete",
        "find ~/logs -mtime +7 -exec gzip {} +; find ~/logs -empty | xargs -r rm -f",
        ". ~/.env; timeout 5 curl -sXPOST -HX-Key:K -d @- \"https://a.b/c?d=$E\"",
        "timeout 5 jq -r '\"a/b\"' | sudo -u me tee -a ~/log",
        "awk -vf=1 -F/ '{print $1}' >> ~/log",
        "exec >> ~/log; command -v jq && env -u A date +%d/%m",
        "awk -f ~/x.awk notes.txt; sed -f ~/x.sed",
        "rsync -a . ~/backup",
        "timeout --foreground -s KILL 5 jq -r '.a/b'; env --chdir=/tmp -iu A date +%d/%m",
        "sudo --user me ~/guard.sh a",
        "jq -r .tool_input.command",
        "jq -r .tool_input.command | grep -qE '^(git push|npm )' && exit 2",
        "jq -r '.tool_name | test(\"node\")' | grep -q true && notify-send 'task done' 'make it'",
        "case $(jq -r .tool_name) in Bash) exit 2;; esac",
        "[ -f tools/late ] && echo \"no tools/late\" >&2",
        "jq -r .a | xargs -I {} notify-send {}",
        "perl -I\"$HOME\"/lib -I/opt/lib -I~/lib ~/x.js",
        "ruby -r~/lib/x -W0 ~/x.js; psql -qf ~/x.sql",
        "gawk -F/ -vOFS=/ '{print $1, $2}' | sed -es/one/two/ -nes/a/b/p >> ~/log",
        "curl -sfHX-Key:K -o /dev/null --connect-timeout 5 -uK:K \"https://a.b/$K?d=tools/x\"",
        "curl -sK ~/.curlrc -d @- https://a.b/c; curl --config /etc/curlrc a.b/c",
        "sed 's/a/e/; /^s.-e/d;s/the/one/g;/ls -e/d;y/s/e/' ~/log | sed -n -e \"s/e/$X/gp\" -e '$!p'",
        "sudo -u me tee -a \"$HOME/log\"; timeout -s KILL 5 ~/guard.sh \"$x\"",
    ] {
        assert!(!confines(&programs, &folders.job(line, &[])), "{line}");
    }
    let bin = format!("{}:/usr/bin", folders.at("work/bin").display());
    let agent = format!("-javaagent:{}=x", folders.at("work/late.jar").display());
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
        (("NODE_OPTIONS", "--openssl-config=late"), true),
        (("NODE_OPTIONS", "--max-old-space-size=4096 --no-warnings"), false),
        (("RUBYOPT", "-rbundler/setup -W0"), false),
        (("APP", "./guard.sh"), false),
    ] {
        let job = folders.job("~/guard.sh", &[variable]);
        assert_eq!(confines(&programs, &job), expected, "{variable:?}");
    }
}

#[test]
fn a_program_without_a_shell_is_confined_by_the_files_of_its_options() {
    let folders = Folders::new();
    let programs = folders.programs(&[]);
    for (words, expected) in [
        (["curl", "-sK", "late"], true),
        (["curl", "-d", "tools/late"], false),
        (["timeout", "5", "/usr/bin/curl"], false),
        (["timeout", "curl", "-Klate"], true),
        (["awk", "-f", "late"], true),
        (["awk", "-F/", "-f/opt/x"], false),
        (["sed", "-n", "s/a/b/e"], true),
        (["psql", "-q", "-ftools/x"], true),
    ] {
        let mut job = folders.job("", &[]);
        job.program = words[0].into();
        job.arguments = words[1..].iter().map(Into::into).collect();
        assert_eq!(confines(&programs, &job), expected, "{words:?}");
    }
}

#[test]
fn a_program_is_confined_if_a_variable_of_its_own_names_what_it_may_run() {
    let folders = Folders::new();
    let programs = folders.programs(&[]);
    let (work, late) = (folders.at("work").display().to_string(), folders.at("work/late"));
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
        (folders.at("home/x.js").display().to_string(), false),
        ("tools".to_owned(), false),
        ("owner/name".to_owned(), false),
        ("https://example.com/tools/late".to_owned(), false),
    ] {
        let mut job = folders.job("~/guard.sh", &[("SETTING", &value)]);
        assert!(!confines(&programs, &job), "{value}: a variable of all programs");
        job.terms.own_variables = vec!["SETTING".to_owned()];
        assert_eq!(confines(&programs, &job), expected, "{value}");
    }
}

#[test]
fn variables_of_programs_elsewhere_do_not_lead_to_the_working_folder() {
    let folders = Folders::new();
    let variables = [
        ("PATH", ":bin:/usr/bin:"),
        ("PYTHONPATH", ":/usr/share::"),
        ("PHP_INI_SCAN_DIR", ":/opt/conf.d"),
        ("X", "a:"),
    ];
    let job = folders.programs(&[]).admit(folders.job("~/guard.sh", &variables));
    let job = job.expect("nothing was changed").job;
    let value = |name| variable(&job, name).and_then(|value| value.to_str());
    let expected = ["/usr/bin", "/usr/share", ":/opt/conf.d", "a:"].map(Some);
    assert_eq!(variables.map(|(name, _)| value(name)), expected);
}

#[test]
fn a_script_elsewhere_is_confined_by_an_interpreter_that_commands_can_write() {
    let folders = Folders::new();
    let write = |name: &str, text: &str| {
        fs::write(folders.at(name), text).expect("a file");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folders.at(name), mode).expect("its mode");
    };
    write("home/through", &format!("#!{}\n", folders.at("home/script").display()));
    let bin = format!("{}:/usr/bin", folders.at("home").display());
    let own = folders.at("work/tools/own");
    let at = own.display().to_string();
    for (line, expected) in [
        (format!("#!{at}"), true),
        (format!("#! {at} -u\r"), true),
        (format!("#!/usr/bin/env {at}"), true),
        (format!("#!/usr/bin/env -S A=b '{at}' -u"), true),
        (format!("#!/bin/sh\n'''exec' \"{at}\" \"$0\" \"$@\""), true),
        (format!("#!/bin/sh\n'''exec' {at} \"$0\" \"$@\""), true),
        (format!("#!/bin/sh\n'''exec' '{at}' \"$0\" \"$@\""), true),
        ("#!/bin/sh\n'''exec' '/usr/bin/python3' \"$0\" \"$@\"".to_owned(), false),
        ("#!tools/own".to_owned(), true),
        ("#!/usr/bin/env -S npx tsx".to_owned(), true),
        ("#!/usr/bin/env -S python3 -m guard".to_owned(), true),
        ("#!/usr/bin/env -S node --import=late".to_owned(), true),
        ("#!/usr/bin/env -S node --require late".to_owned(), true),
        ("#!/usr/bin/env -S python3 -X pycache_prefix=late".to_owned(), true),
        ("#!/usr/bin/env -S bash -o pipefail -c late".to_owned(), true),
        ("#!/usr/bin/env -S node --no-warnings".to_owned(), false),
        ("#!/usr/bin/env -S node --disable-warning=Experimental --a-size=4096".to_owned(), false),
        ("#!/usr/bin/env -S A=b python3 -W ignore -X utf8=1 -u".to_owned(), false),
        ("#!/usr/bin/env -S bash -euo pipefail".to_owned(), false),
        ("#!/usr/bin/env python3".to_owned(), false),
        ("#!/bin/bash -e".to_owned(), false),
        (format!("# #!{at}"), false),
    ] {
        write("home/script", &format!("{line}\n"));
        for hook in ["~/script", "script | cat", "~/through", "cat | bash -c ~/script"] {
            let (programs, job) = (folders.programs(&[]), folders.job(hook, &[("PATH", &bin)]));
            assert_eq!(confines(&programs, &job), expected, "{hook}: {line}");
            write("work/tools/own", "other");
            let is_held = programs.admit(job).is_err();
            assert_eq!(is_held, expected && line.contains("tools/own"), "{hook}: {line}");
            write("work/tools/own", "first");
        }
    }
}

#[test]
fn new_files_do_not_stop_a_program_that_runs_files_of_any_name() {
    let folders = Folders::new();
    for line in [
        "find . -type f -exec sh -n {} \\;",
        "find tools -exec {} +",
        "jq -r .a | xargs -n1 sh -c 'true'",
        "\"$(command -v jq)\" -r .a",
        "$UNKNOWN jq -r .a",
        "run-parts tools",
    ] {
        let (programs, job) = (folders.programs(&[]), folders.job(line, &[]));
        assert!(confines(&programs, &job), "{line}");
        for name in ["work/x", "work/tools/x"] {
            fs::copy(folders.at("work/guard.sh"), folders.at(name)).expect("a program");
        }
        programs.admit(job).expect(line);
        for name in ["work/x", "work/tools/x"] {
            fs::remove_file(folders.at(name)).expect("it is there");
        }
    }
}

#[test]
fn the_user_lifts_the_confinement_by_name_word_or_path() {
    let folders = Folders::new();
    let path = folders.at("work/guard.sh").display().to_string();
    for entry in ["./guard.sh", path.as_str(), "tracker", "guard.sh"] {
        let mut job = folders.job("sh guard.sh", &[]);
        job.terms.name = Some("tracker".to_owned());
        assert!(!confines(&folders.programs(&[entry]), &job), "{entry}");
    }
    let other = folders.programs(&["other", "./other.sh"]);
    assert!(confines(&other, &folders.job("sh guard.sh", &[])));
}

#[test]
fn a_program_that_was_swapped_while_it_was_started_is_noticed() {
    let folders = Folders::new();
    let (programs, job) = (folders.programs(&[]), folders.job("./guard.sh", &[]));
    programs.remember(&job);
    let (guard, aside) = (folders.at("work/guard.sh"), folders.at("work/aside"));
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
    let folders = Folders::new();
    for line in ["cd tools && ./own", "cd \"$CLAUDE_PROJECT_DIR/tools\"; sh own"] {
        let (programs, job) = (folders.programs(&[]), folders.job(line, &[]));
        let own = folders.at("work/tools/own");
        fs::write(&own, "first").expect("a file");
        programs.remember(&job);
        fs::write(&own, "other").expect("a file");
        let error = programs.admit(job).expect_err(line).to_string();
        assert_eq!(error, ProgramChange::Changed(own).to_string(), "{line}");
    }
}

#[test]
fn a_link_may_not_lead_elsewhere_and_data_may_change() {
    let folders = Folders::new();
    let (link, home) = (folders.at("work/link"), folders.at("home/guard.sh"));
    std::os::unix::fs::symlink(&home, &link).expect("a link");
    let (programs, job) = (folders.programs(&[]), folders.job("./link notes", &[]));
    programs.remember(&job);
    fs::write(folders.at("work/notes"), "second").expect("a file");
    programs.admit(job.clone()).expect("notes are not a program");
    fs::remove_file(&link).expect("it is there");
    std::os::unix::fs::symlink(folders.at("work/guard.sh"), &link).expect("a link");
    let error = programs.admit(job).expect_err("changed").to_string();
    assert_eq!(error, ProgramChange::Changed(link).to_string());
}
