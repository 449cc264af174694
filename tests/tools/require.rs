//! The `--require` command: where it runs, how it ends, and how it is reported.

use std::fs;
use std::time::Duration;

use outlast::tools::{
    BadSettings, PermissionMode, Requirement, RequirementCheck, RequirementEnd, ToolSettings,
    Toolbox,
};
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, PATIENCE, appears, assert_gone};

fn requirement(command: &str) -> Requirement {
    Requirement { command: command.to_owned(), timeout: PATIENCE }
}

/// A run in which nothing at all is allowed.
fn requiring(requirement: Requirement) -> Bench {
    Bench::with(|settings| {
        settings.acceptance.requirement = Some(requirement);
        settings.permissions.mode = PermissionMode::Plan;
        settings.permissions.deny = vec!["Bash".to_owned()];
    })
}

async fn check(bench: &Bench) -> RequirementCheck {
    check_until(bench, CancellationToken::new()).await
}

async fn check_until(bench: &Bench, cancel: CancellationToken) -> RequirementCheck {
    let check = tokio::time::timeout(2 * PATIENCE, bench.toolbox.run_requirement(cancel)).await;
    check.expect("every check comes back").expect("a command must pass")
}

#[tokio::test]
async fn a_requirement_passes_only_with_exit_code_0() {
    // command, its code, how it ended, output
    let table = [
        ("echo fine", Some(0), "passed", "fine\n"),
        ("echo one; echo two >&2; exit 3", Some(3), "ended with exit code 3", "one\ntwo\n"),
        // For the model's own commands these are answers. Here they are failures.
        ("grep nothing /dev/null", Some(1), "ended with exit code 1", ""),
        ("test -f missing", Some(1), "ended with exit code 1", ""),
        ("nosuchcommand 2>/dev/null", Some(127), "ended with exit code 127", ""),
        ("kill -9 $$", Some(137), "was killed by SIGKILL", ""),
        ("if true; then", Some(2), "ended with exit code 2", ""),
    ];
    for (command, code, how, output) in table {
        let bench = requiring(requirement(command));
        let check = check(&bench).await;
        assert_eq!(check.exit_code(), code, "{command}: {check:?}");
        assert_eq!(check.end_phrase(), how, "{command}: {check:?}");
        assert_eq!(check.passed(), code == Some(0), "{command}: {check:?}");
        assert!(check.output.contains(output), "{command}: {check:?}");
        let verified = bench.toolbox.acceptance().requirement.expect("it was run");
        assert_eq!(verified.passed, code == Some(0), "{command}");
        assert_eq!((verified.attempts, verified.exit_code), (1, code), "{command}");
        assert_eq!((verified.command.as_str(), verified.how.as_deref()), (command, Some(how)));
    }
}

#[tokio::test]
async fn a_requirement_runs_in_the_start_folder_with_the_command_environment() {
    let bench = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::BypassPermissions;
        settings.environment.push(("ANTHROPIC_API_KEY".into(), "sk-ant-0123456789".into()));
        let command = "pwd; echo \"key=$ANTHROPIC_API_KEY ci=$OUTLAST\"; cd ..; cat";
        settings.acceptance.requirement = Some(requirement(command));
    });
    bench.bash("mkdir deep; cd deep").await;
    let check = check(&bench).await;
    assert_eq!(check.output, format!("{}\nkey= ci=1\n", bench.cwd.display()), "{check:?}");
    let after = bench.bash("pwd").await;
    assert_eq!(after.detail["stdout"], format!("{}/deep\n", bench.cwd.display()));
}

#[tokio::test]
async fn the_last_requirement_check_counts() {
    let bench = requiring(requirement("cat done"));
    let before = bench.toolbox.acceptance().requirement.expect("a command must pass");
    assert_eq!((before.passed, before.attempts, before.exit_code), (false, 0, None));
    assert!(!check(&bench).await.passed());
    bench.file("done", "yes\n");
    assert!(check(&bench).await.passed());
    let verified = bench.toolbox.acceptance().requirement.expect("a command must pass");
    assert_eq!((verified.passed, verified.attempts), (true, 2));
    fs::remove_file(bench.cwd.join("done")).expect("it is there");
    check(&bench).await;
    assert!(!bench.toolbox.acceptance().requirement.expect("a command must pass").passed);
}

#[tokio::test]
async fn a_requirement_that_times_out_fails_and_is_killed() {
    let limit = Duration::from_millis(4_500);
    let command = "echo $$ > pid; echo begun; trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let bench = requiring(Requirement { command: command.to_owned(), timeout: limit });
    let check = check(&bench).await;
    assert_eq!(check.end, RequirementEnd::TimedOut(limit), "{check:?}");
    assert!(!check.passed(), "exit code 0 after the time is over does not count");
    assert_eq!(check.exit_code(), None);
    assert_eq!(check.end_phrase(), "did not end within 4s 500ms, and was cut off");
    assert!(check.output.starts_with("begun\n"), "{check:?}");
    assert!(check.took >= limit, "{:?}", check.took);
    assert_gone(&appears(&bench.cwd.join("pid")).await).await;
}

#[tokio::test]
async fn cancelling_a_requirement_ends_all_its_processes() {
    let bench = requiring(requirement("sleep 1000 & echo $! > pid; wait"));
    let cancel = CancellationToken::new();
    let pid = async {
        let pid = appears(&bench.cwd.join("pid")).await;
        cancel.cancel();
        pid
    };
    let (check, pid) = tokio::join!(check_until(&bench, cancel.clone()), pid);
    assert_eq!(check.end, RequirementEnd::Cancelled, "{check:?}");
    assert_gone(&pid).await;
    // And it does not begin any more.
    fs::remove_file(bench.cwd.join("pid")).expect("it was written");
    assert_eq!(check_until(&bench, cancel).await.end, RequirementEnd::Cancelled);
    assert!(!bench.cwd.join("pid").exists());
}

#[tokio::test]
async fn dropping_a_requirement_check_kills_its_command() {
    let bench = requiring(requirement("echo $$ > pid; sleep 1000"));
    let place = bench.cwd.join("pid");
    let pid = tokio::select! {
        _ = bench.toolbox.run_requirement(CancellationToken::new()) => panic!("it sleeps"),
        pid = appears(&place) => pid,
    };
    assert_gone(&pid).await;
}

#[tokio::test]
async fn a_requirement_that_cannot_be_started_fails_with_its_reason() {
    let bench = requiring(requirement("true"));
    fs::remove_dir(&bench.cwd).expect("it is empty");
    let check = check(&bench).await;
    assert!(!check.passed() && check.exit_code().is_none(), "{check:?}");
    assert!(
        check.end_phrase().starts_with("could not be run: failed to start"),
        "{}",
        check.end_phrase()
    );
    assert!(check.end_phrase().contains("does not exist"), "{}", check.end_phrase());
    assert!(!bench.toolbox.acceptance().requirement.expect("it was tried").passed);
}

#[tokio::test]
async fn a_failed_requirement_shows_the_model_command_status_and_output() {
    let bench = requiring(requirement("seq 1 20000; exit 101"));
    let check = check(&bench).await;
    let report = check.report();
    for part in ["seq 1 20000; exit 101", "ended with exit code 101", "\n1\n2\n", "\n19999\n20000"]
    {
        assert!(report.contains(part), "{part:?} in {report}");
    }
    assert!(report.chars().count() < 32_000, "{}", report.chars().count());
    let file = check.output_file.clone().expect("a long output is kept");
    assert!(report.contains(&file.display().to_string()));
    assert!(fs::read_to_string(&file).expect("a text").ends_with("\n19999\n20000\n"));
    let silent = RequirementCheck { output: "\n".to_owned(), ..check };
    assert!(silent.report().contains("(no output)"));
}

#[test]
fn an_invalid_requirement_command_is_rejected_before_it_starts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (command, part) in
        [(" \n", "empty"), ("a\0b", "NUL"), (&"x".repeat(200_000), "200000 bytes")]
    {
        let mut settings = ToolSettings::new(folder.path(), folder.path(), "a-session");
        settings.acceptance.requirement = Some(requirement(command));
        let Some(BadSettings::Requirement { why }) = Toolbox::new(&settings).err() else {
            panic!("{part}: refused")
        };
        assert!(why.to_string().contains(part), "{why}");
    }
}

#[tokio::test]
async fn without_a_requirement_no_command_runs() {
    let bench = Bench::open();
    assert_eq!(bench.toolbox.run_requirement(CancellationToken::new()).await, None);
}

#[test]
fn the_output_tail_of_a_check_has_at_most_20_lines_and_4000_bytes() {
    let lines = |numbers: std::ops::RangeInclusive<u32>| {
        numbers.map(|number| format!("line {number}\n")).collect::<Vec<_>>().concat()
    };
    let wide = "\u{e9}".repeat(3_000);
    for (output, tail) in [
        (String::new(), String::new()),
        ("one\n".to_owned(), "one".to_owned()),
        (lines(1..=20), lines(1..=20).trim_end().to_owned()),
        (lines(1..=21), lines(2..=21).trim_end().to_owned()),
        (lines(1..=500) + "\n\n", lines(481..=500).trim_end().to_owned()),
        (wide.clone(), wide[2_000..].to_owned()),
        (format!("x{wide}y"), wide[2_002..].to_owned() + "y"),
    ] {
        let check = RequirementCheck {
            command: "true".to_owned(),
            end: RequirementEnd::Exited(1),
            output,
            output_file: None,
            took: Duration::ZERO,
        };
        assert_eq!(check.tail(), tail);
    }
}
