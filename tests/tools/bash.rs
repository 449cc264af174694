//! Output, exit and working directory of commands.

use std::fs;
use std::path::Path;

use outlast::tools::{PermissionMode, Toolbox};
use serde_json::json;

use super::bench::{Bench, assert_fails_with, text};

#[tokio::test]
async fn stdout_and_stderr_keep_their_order() {
    let bench = Bench::open();
    let outcome = bench.bash("echo one; echo two >&2; printf thr; echo ee >&2; echo four").await;
    assert!(!outcome.is_error);
    assert_eq!(text(&outcome), "one\ntwo\nthree\nfour");
    assert_eq!(outcome.detail["stdout"], "one\ntwo\nthree\nfour\n");
    assert_eq!(outcome.detail["stderr"], "");
    assert_eq!(outcome.detail["exit_code"], 0);
    assert_eq!(outcome.detail["timed_out"], false);
    assert_eq!(outcome.detail["interrupted"], false);
}

#[tokio::test]
async fn empty_output_is_reported() {
    let bench = Bench::open();
    assert_eq!(text(&bench.bash("true").await), "(no output)");
}

#[tokio::test]
async fn exit_codes_are_interpreted_by_command() {
    let bench = Bench::open();
    bench.file("a", "x\n");
    bench.file("b", "y\n");
    // command, its code, whether it failed
    let table = [
        ("true", 0, false),
        ("false", 1, true),
        ("exit 3", 3, true),
        ("grep nothing a", 1, false),
        ("cat a | grep nothing", 1, false),
        ("NO_COLOR=1 grep nothing a", 1, false),
        ("grep nothing missing", 2, true),
        ("diff a b", 1, false),
        ("cmp a b", 1, false),
        ("test -f missing", 1, false),
        ("[ -f missing ]", 1, false),
        ("git diff --no-index a b", 1, false),
        ("grep nothing a; false", 1, true),
        ("nosuchcommand", 127, true),
        ("kill -9 $$", 137, true),
        ("if true; then", 2, true),
        ("set -e; false; echo on", 1, true),
        ("trap 'exit 7' EXIT", 7, true),
    ];
    for (command, code, failed) in table {
        let outcome = bench.bash(command).await;
        assert_eq!(outcome.detail["exit_code"], code, "{command}: {outcome:?}");
        assert_eq!(outcome.is_error, failed, "{command}: {outcome:?}");
        if code != 0 {
            let first = text(&outcome).lines().next().unwrap_or_default().to_string();
            assert!(first.starts_with(&format!("Exit code {code}")), "{command}: {first}");
        }
    }
}

#[tokio::test]
async fn long_output_is_cut_in_the_middle_and_kept_in_a_readable_file() {
    let bench = Bench::with(|_| {});
    let outcome = bench.bash("seq 1 20000").await;
    let shown = text(&outcome);
    assert!(shown.starts_with("1\n2\n3\n") && shown.ends_with("\n19999\n20000"), "{shown}");
    assert!(shown.chars().count() < 30_400, "{}", shown.chars().count());
    assert!(shown.chars().count() > 29_900, "{}", shown.chars().count());
    let file = outcome.detail["output_file"].as_str().expect("a file").to_string();
    assert!(shown.contains(&file));
    let numbers: Vec<String> = (1..=20_000).map(|number| number.to_string()).collect();
    assert_eq!(fs::read_to_string(&file).unwrap(), numbers.join("\n") + "\n");
    let read = bench.run("Read", json!({ "file_path": file, "offset": 9_999, "limit": 2 })).await;
    assert_eq!(text(&read).lines().next(), Some("  9999\t9999"));
}

#[tokio::test]
async fn output_just_within_the_limit_is_not_truncated() {
    let bench = Bench::open();
    let whole = bench.bash("head -c 30000 /dev/zero | tr '\\0' x").await;
    assert_eq!(text(&whole), "x".repeat(30_000));
    assert!(whole.detail["output_file"].is_null());
    // Characters count, not bytes.
    let wide = bench.bash("for i in {1..30000}; do printf é; done").await;
    assert_eq!(text(&wide), "é".repeat(30_000));
    let over = bench.bash("head -c 30001 /dev/zero | tr '\\0' x").await;
    assert!(text(&over).contains("left out"), "{}", text(&over));
}

#[tokio::test]
async fn output_is_truncated_between_characters() {
    let bench = Bench::open();
    let outcome = bench.bash("printf 'žluťoučký 🐎 日本\\n'").await;
    assert_eq!(text(&outcome), "žluťoučký 🐎 日本");
    let outcome = bench.bash("for i in {1..20000}; do printf '日🐎'; done").await;
    assert!(!text(&outcome).contains('\u{fffd}'));
    assert!(text(&outcome).contains("left out"));
}

#[tokio::test]
async fn colours_and_overwritten_lines_are_removed_from_output() {
    let bench = Bench::open();
    let outcome = bench
        .bash(r"printf '\033[31mred\033[0m\r\n10%%\r50%%\r100%%\n\033]0;title\007end\n'")
        .await;
    assert_eq!(text(&outcome), "red\n100%\nend");
}

#[tokio::test]
async fn binary_output_is_described_not_shown() {
    let bench = Bench::open();
    let outcome = bench.bash("head -c 5000 /dev/urandom").await;
    let told = text(&outcome);
    assert!(
        told.starts_with("[5000 bytes of binary output are not shown; all of it is in "),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(outcome.detail["stdout"].as_str().unwrap().len() < 300);
}

#[tokio::test]
async fn binary_data_between_text_is_not_shown() {
    let bench = Bench::open();
    let commands = [
        "head -c 200000 /dev/urandom; seq 100".to_string(),
        "seq 10000; head -c 200000 /dev/urandom".to_string(),
        r"printf '\200%.0s' {1..50}".to_string(),
        "head -c 3000 /dev/urandom >&2".to_string(),
    ];
    for command in commands {
        let outcome = bench.bash(&command).await;
        let shown = text(&outcome);
        assert!(shown.contains("bytes of binary output are not shown"), "{command}: {shown}");
        for words in [shown.as_str(), outcome.detail["stdout"].as_str().unwrap()] {
            let is_clean = |letter: char| letter == '\n' || !letter.is_control();
            assert!(words.chars().all(is_clean), "{command}: {words:?}");
            assert!(!words.contains('\u{fffd}'), "{command}: {words:?}");
        }
    }
}

#[tokio::test]
async fn a_nul_or_another_encoding_does_not_hide_output() {
    let bench = Bench::open();
    let outcome = bench.bash(r"printf 'one\0two\0'; echo end").await;
    let file = outcome.detail["output_file"].as_str().expect("a file");
    let note = format!("[NUL bytes are shown as \u{2400}; all of it is in {file}]");
    assert_eq!(text(&outcome), format!("one\u{2400}two\u{2400}end\n{note}"));
    assert_eq!(fs::read(file).unwrap(), b"one\0two\0end\n");
    let long = bench.bash(r"seq 20000; printf '\0\0'; echo FAILED 3 tests").await;
    assert!(text(&long).contains("\u{2400}\u{2400}FAILED 3 tests"), "{}", text(&long));
    let wide = bench.bash(r"printf '\377\376h\0i\0'").await;
    assert_eq!(text(&wide), "hi");
    let russian = bench.bash(r"printf '\317\360\350\342\345\362 \354\350\360\n'").await;
    assert_eq!(text(&russian), "Привет мир");
}

#[tokio::test]
async fn terminal_image_sequences_are_removed_from_output() {
    let bench = Bench::open();
    let script = r"printf 'a\033_Gf=100;iVBORw0KGgo=\033\\b\033Pq#0~~@@\033\\c\033^x\007d'";
    assert_eq!(text(&bench.bash(script).await), "abcd");
    let script = r"printf 'cut \033_Gf=100;iVBO\nnext\n'";
    assert_eq!(text(&bench.bash(script).await), "cut \nnext");
}

#[tokio::test]
async fn the_working_directory_carries_over_and_variables_do_not() {
    let bench = Bench::open();
    fs::create_dir(bench.cwd.join("sub dir's")).unwrap();
    bench.bash("cd \"sub dir's\" && export COLOUR=blue").await;
    let outcome = bench.bash("pwd; echo \"[$COLOUR]\"").await;
    assert_eq!(text(&outcome), format!("{}/sub dir's\n[]", bench.cwd.display()));
    // Also after a failure, and for files named from there.
    bench.bash("cd ..; false").await;
    assert_eq!(text(&bench.bash("pwd").await), bench.cwd.display().to_string());
    bench.bash("mkdir deep; cd deep; echo x > here").await;
    assert!(!bench.read("here").await.is_error);
}

/// Scripts that a command sources look at its arguments.
#[tokio::test]
async fn a_command_runs_in_the_folder_of_its_call_and_later_ones_do_not() {
    let bench = Bench::open();
    let (sub, home) = (bench.cwd.join("sub"), bench.cwd.display().to_string());
    fs::create_dir(&sub).unwrap();
    for command in ["pwd", "false || pwd", "```bash\npwd\n```"] {
        let there = bench.run("Bash", json!({ "command": command, "workdir": "sub" })).await;
        assert_eq!(text(&there), sub.display().to_string(), "{command}");
        assert_eq!(text(&bench.bash("pwd").await), home);
    }
    let missing = json!({ "command": "touch x & touch y; touch z || touch a", "cwd": "none" });
    assert_fails_with(&bench.run("Bash", missing).await, "none: No such file or directory");
    assert!(["x", "y", "z", "a"].iter().all(|name| !bench.cwd.join(name).exists()));
}

#[tokio::test]
async fn a_command_has_no_arguments_and_begins_at_line_one() {
    let bench = Bench::open();
    bench.file("setup.sh", "[ $# = 0 ] && FOUND=${1:-none}\n");
    let outcome = bench.bash("echo \"[$@]\"; . ./setup.sh; echo $FOUND\necho $LINENO").await;
    assert_eq!(text(&outcome), "[]\nnone\n2");
}

#[tokio::test]
async fn leaving_the_working_directories_is_reverted_and_reported() {
    let bench = Bench::open();
    let outcome = bench.bash("cd / && echo there").await;
    let shown = text(&outcome);
    assert!(shown.starts_with("there\n/ is outside the working directories"), "{shown}");
    assert_eq!(text(&bench.bash("pwd").await), bench.cwd.display().to_string());
}

/// Finds the file that the shell is to tell its folder in, and keeps it from doing so.
const FINDING_THE_REPORT: &str =
    r#"p=$(trap -p EXIT | grep -o "/[^' ]*cwd-[^' ;]*" | head -1); trap - EXIT; rm -f "$p"; "#;

/// Runs what tampers with that file, and returns what the model is shown. It went on as before.
async fn tampering(bench: &Bench, how: &str) -> String {
    let outcome = bench.bash(&format!("{FINDING_THE_REPORT}{how} && echo done")).await;
    let shown = text(&outcome);
    assert!(shown.starts_with("done"), "the report was not found: {shown}");
    assert_eq!(text(&bench.bash("pwd").await), bench.cwd.display().to_string());
    shown
}

#[tokio::test]
async fn a_link_in_place_of_the_cwd_report_is_not_followed() {
    let bench = Bench::open();
    let secret = bench.outside().join("key");
    fs::write(&secret, "/the/secret/itself").unwrap();
    let shown = tampering(&bench, &format!("ln -s {} \"$p\"", secret.display())).await;
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn a_pipe_in_place_of_the_cwd_report_does_not_block() {
    tampering(&Bench::open(), "mkfifo \"$p\"").await;
}

#[tokio::test]
async fn an_endless_device_in_place_of_the_cwd_report_is_not_read() {
    tampering(&Bench::open(), "ln -s /dev/zero \"$p\"").await;
}

#[tokio::test]
async fn commands_that_report_their_folder_share_a_file_while_its_name_leads_to_it() {
    let bench = Bench::open();
    let find = FINDING_THE_REPORT.replace("trap - EXIT; rm -f \"$p\"; ", "");
    let file = |shown: &str| shown.lines().next().expect("a path").to_owned();
    let find_file = async || file(&text(&bench.bash(&format!("{find} echo \"$p\"")).await));
    let first = find_file().await;
    assert_eq!(find_file().await, first);
    assert!(fs::read(&first).unwrap().iter().all(|byte| *byte == 0), "the report is removed");
    // With a second name, the next report would be written to a file of the command.
    bench.bash(&format!("{find} ln \"$p\" kept; mkdir sub")).await;
    bench.bash("cd sub").await;
    let kept = fs::read_to_string(bench.cwd.join("kept")).unwrap();
    assert_eq!(kept, format!("{}\n", bench.cwd.display()));
    assert!(!Path::new(&first).exists());
    assert_eq!(text(&bench.bash("pwd").await), bench.cwd.join("sub").display().to_string());
    // Nor is a link followed that is put in its place between two commands.
    let linked = find_file().await;
    fs::remove_file(&linked).unwrap();
    std::os::unix::fs::symlink(bench.cwd.join("kept"), &linked).unwrap();
    bench.bash("cd ..").await;
    assert_eq!(fs::read_to_string(bench.cwd.join("kept")).unwrap(), kept);
    assert_eq!(text(&bench.bash("pwd").await), bench.cwd.display().to_string());
    let second = find_file().await;
    drop(bench);
    assert!(!Path::new(&second).exists());
}

#[tokio::test]
async fn a_cwd_report_that_is_not_a_folder_is_ignored() {
    let bench = Bench::open();
    // Into the file itself, which this time stays.
    let find = FINDING_THE_REPORT.replace("rm -f \"$p\"; ", "");
    for flood in ["/etc/passwd", "no/path", "/$(head -c 1000000 /dev/zero | tr '\\0' /)"] {
        let outcome = bench.bash(&format!("{find} echo \"{flood}\" >| \"$p\"")).await;
        let shown = text(&outcome);
        assert!(shown.contains("The final directory of the command is unknown"), "{shown:.200}");
        assert!(shown.len() < 1_000 && !shown.contains("passwd"), "{shown:.200}");
    }
    assert_eq!(text(&bench.bash("pwd").await), bench.cwd.display().to_string());
}

#[tokio::test]
async fn an_added_folder_is_a_working_directory_too() {
    let more = tempfile::tempdir().unwrap();
    let more = more.path().canonicalize().unwrap();
    let bench = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::BypassPermissions;
        settings.permissions.additional_directories = vec![more.clone()];
    });
    bench.bash(&format!("cd {}", more.display())).await;
    assert_eq!(text(&bench.bash("pwd").await), more.display().to_string());
}

#[tokio::test]
async fn a_deleted_working_directory_is_replaced() {
    let bench = Bench::open();
    bench.bash("mkdir gone; cd gone").await;
    fs::remove_dir(bench.cwd.join("gone")).unwrap();
    let outcome = bench.bash("pwd").await;
    assert!(text(&outcome).starts_with(&bench.cwd.display().to_string()), "{outcome:?}");
    assert!(text(&outcome).contains("is gone"));
}

#[tokio::test]
async fn a_timeout_is_an_error_with_the_output_so_far() {
    let bench = Bench::open();
    let input = json!({ "command": "echo begun; sleep 600", "timeout": 4_500 });
    let outcome = bench.run("Bash", input).await;
    assert_fails_with(
        &outcome,
        "Timed out after 4s 500ms: the command was stopped. What needs longer",
    );
    assert!(text(&outcome).contains("run_in_background.\nbegun"), "{outcome:?}");
    assert_eq!(outcome.detail["timed_out"], true);
}

#[tokio::test]
async fn the_configured_timeout_applies_when_the_call_names_none() {
    let bench = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::BypassPermissions;
        settings.commands.timeout = std::time::Duration::from_millis(200);
    });
    assert_fails_with(&bench.bash("sleep 60").await, "Timed out after 200ms");
}

#[tokio::test]
async fn a_missing_working_directory_is_refused_at_once() {
    let settings = outlast::tools::ToolSettings::new(
        Path::new("/nonexistent/work"),
        Path::new("/nonexistent/scratch"),
        "a-session",
    );
    let error = Toolbox::new(&settings).err().expect("refused").to_string();
    assert_eq!(error, "no such folder: /nonexistent/work");
}

#[tokio::test]
async fn without_a_scratch_folder_commands_still_run() {
    let bench = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::BypassPermissions;
        settings.scratch = "/proc/none/scratch".into();
    });
    assert_eq!(text(&bench.bash("echo on").await), "on");
    let long = bench.bash("seq 1 20000").await;
    assert!(text(&long).contains("it could not be saved"), "{}", text(&long));
}

#[tokio::test]
async fn a_folder_that_a_shell_does_not_report_is_named() {
    let bench = Bench::open();
    std::fs::create_dir(bench.cwd.join("sub")).expect("a folder");
    let note = format!("The working directory is {}.", bench.cwd.display());
    for (command, is_noted) in [
        ("trap 'echo bye' EXIT; cd sub", true),
        ("cd sub && exec pwd", true),
        ("trap 'echo bye' EXIT; true", false),
        ("trap 'echo bye' EXIT; cd sub; false", false),
    ] {
        let outcome = bench.bash(command).await;
        assert_eq!(text(&outcome).contains(&note), is_noted, "{command}: {outcome:?}");
    }
    assert_eq!(bench.toolbox.take_new_folder(), None);
}

#[tokio::test]
async fn commands_go_on_in_the_folder_of_an_earlier_process() {
    let bench = Bench::open();
    let sub = bench.cwd.join("sub");
    assert!(!bench.bash("mkdir sub && cd sub").await.is_error);
    assert_eq!(bench.toolbox.take_new_folder(), Some(sub.clone()));
    assert_eq!(bench.toolbox.take_new_folder(), None);
    bench.bash("cd ..").await;
    assert_eq!(bench.toolbox.take_new_folder(), Some(bench.cwd.clone()));
    bench.bash(r"mkdir $'odd\xff' && cd $'odd\xff'").await;
    let odd = bench.toolbox.take_new_folder().expect("a new folder");
    assert_eq!(odd, bench.cwd.join(r"odd\xFF"));
    assert_eq!(bench.toolbox.go_on_in(&odd), None);
    assert_eq!(bench.toolbox.go_on_in(&sub), None);
    assert_eq!(text(&bench.bash("pwd").await), sub.display().to_string());
    for folder in [bench.cwd.join("missing"), bench.outside()] {
        assert_eq!(bench.toolbox.go_on_in(&folder), Some(sub.clone()));
        assert_eq!(bench.toolbox.take_new_folder(), Some(sub.clone()));
    }
}
