//! Commands that would wait forever for a terminal, an editor, input or a child process.

use std::fs;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, appears, assert_fails_with, assert_gone, is_alive, run_call, text};

use crate::support::stopwatch::Stopwatch;

/// Far less than any of the commands here would take on its own.
const SOON: Duration = Duration::from_secs(25);

async fn soon(bench: &Bench, command: &str) -> outlast::tools::ToolOutcome {
    let start = Stopwatch::start();
    let outcome = bench.run("Bash", json!({ "command": command, "timeout": 120_000 })).await;
    start.assert_within(SOON, format_args!("{command}: {outcome:?}"));
    assert_ne!(outcome.detail["timed_out"], true, "{command}: {outcome:?}");
    outcome
}

#[tokio::test]
async fn a_rebase_that_wants_an_editor_goes_on_without_one() {
    let bench = Bench::open();
    let conflict = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
         GIT_COMMITTER_EMAIL=a@b; git init -q -b main . && echo 0 > f && git add f && \
         git commit -qm zero && git checkout -qb side && echo 1 > f && git commit -qam one && \
         git checkout -q main && echo 2 > f && git commit -qam two && git checkout -q side; \
         git rebase main; echo 3 > f; git add f; git rebase --continue && git log --format=%s";
    let outcome = soon(&bench, conflict).await;
    assert!(text(&outcome).contains("one\ntwo\nzero"), "{}", text(&outcome));
    assert!(!outcome.is_error);
}

#[tokio::test]
async fn an_interactive_commit_message_fails_at_once() {
    let bench = Bench::open();
    let outcome =
        soon(&bench, "git init -q . && git -c user.name=a -c user.email=a@b commit --allow-empty")
            .await;
    assert_fails_with(&outcome, "empty commit message");
}

#[tokio::test]
async fn pagers_print_without_waiting() {
    let bench = Bench::open();
    bench.bash("seq 1 500 > numbers").await;
    for command in
        ["less numbers", "git -c core.pager=less --paginate help -a >/dev/null; cat numbers"]
    {
        let outcome = soon(&bench, command).await;
        assert!(text(&outcome).contains("\n499\n500"), "{command}: {}", text(&outcome));
    }
}

#[tokio::test]
async fn prompts_meet_an_empty_stdin_and_no_terminal() {
    let bench = Bench::open();
    assert_eq!(soon(&bench, "read answer").await.detail["exit_code"], 1);
    assert_fails_with(&soon(&bench, "head -c1 /dev/tty").await, "/dev/tty");
    assert_eq!(text(&soon(&bench, "test -t 0 || echo no terminal; cat").await), "no terminal");
    let password = "python3 -c 'import getpass; getpass.getpass()'";
    assert!(soon(&bench, password).await.is_error);
}

#[tokio::test]
async fn ssh_and_git_credential_prompts_fail_at_once() {
    let bench = Bench::open();
    let outcome = soon(&bench, "ssh -p 1 -o ConnectTimeout=2 guest@127.0.0.1").await;
    assert_fails_with(&outcome, "Exit code 255");
    let outcome = soon(&bench, "git ls-remote ssh://guest@127.0.0.1:1/none").await;
    assert!(outcome.is_error, "{outcome:?}");
    if bench.bash("command -v sudo").await.detail["exit_code"] == 0 {
        // As root it works; for others it must not ask.
        soon(&bench, "sudo -k; sudo true").await;
    }
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_does_not_block_and_is_killed() {
    let bench = Bench::open();
    let outcome = soon(&bench, "sleep 1000 & echo $!").await;
    let shown = text(&outcome);
    assert!(!outcome.is_error, "{shown}");
    assert!(shown.contains("left running were stopped"), "{shown}");
    assert_gone(shown.lines().next().unwrap()).await;
}

#[tokio::test]
async fn a_silent_grandchild_is_killed_too() {
    let bench = Bench::open();
    let outcome = soon(&bench, "sleep 1000 >/dev/null 2>&1 & echo $!").await;
    assert!(!is_alive(text(&outcome).lines().next().unwrap()));
}

#[tokio::test]
async fn a_silent_grandchild_that_ignores_sigterm_is_killed_too() {
    let bench = Bench::open();
    let command = "(trap '' TERM; echo $BASHPID > child; while :; do sleep 1; done) \
                   >/dev/null 2>&1 & until [ -s child ]; do sleep 0.01; done";
    soon(&bench, command).await;
    assert_gone(&bench.content("child")).await;
}

#[tokio::test]
async fn a_grandchild_receives_sigterm_before_it_is_killed() {
    let bench = Bench::open();
    let command = "[ -p ready ] || mkfifo ready; \
                   (trap 'echo ended > noted; exit' TERM; sleep 1000 & echo > ready; wait) \
                   >/dev/null 2>&1 & read -r line < ready";
    // A busy machine may not let it run within the time that it has.
    for _ in 0..20 {
        soon(&bench, command).await;
        if bench.cwd.join("noted").exists() {
            return;
        }
    }
    panic!("SIGTERM never came first");
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_and_writes_forever_is_killed() {
    let bench = Bench::open();
    let outcome = soon(&bench, "(trap '' TERM; echo $BASHPID; while :; do echo y; done) &").await;
    assert_gone(text(&outcome).lines().next().unwrap()).await;
}

#[tokio::test]
async fn a_process_that_left_the_group_is_found_by_its_environment_tag() {
    let bench = Bench::open();
    let daemon = "setsid bash -c 'echo $$ > daemon; exec sleep 1000' & \
                  until [ -s daemon ]; do sleep 0.01; done";
    let outcome = soon(&bench, daemon).await;
    assert!(!outcome.is_error, "{outcome:?}");
    assert_gone(&bench.content("daemon")).await;
}

#[tokio::test]
async fn a_silent_daemon_ends_with_the_command_that_started_it() {
    let bench = Bench::open();
    let daemon = "(setsid bash -c 'echo $$ > daemon; exec sleep 1000' >/dev/null 2>&1 &) ; \
                  until [ -s daemon ]; do sleep 0.01; done";
    let outcome = soon(&bench, daemon).await;
    assert!(!is_alive(&bench.content("daemon")), "{outcome:?}");
    assert!(text(&outcome).contains("left running were stopped"), "{outcome:?}");
}

#[tokio::test]
async fn a_timeout_ends_the_whole_group_even_if_it_ignores_sigterm() {
    let command = "trap '' TERM; sleep 1000 & echo $! > child; echo $$ > leader; \
                   while :; do wait; done";
    // A busy machine may not let it run within the time that it has.
    for seconds in [1, 4, 16] {
        let bench = Bench::open();
        let start = Stopwatch::start();
        let timeout = Duration::from_secs(seconds);
        let outcome =
            bench.run("Bash", json!({ "command": command, "timeout": seconds * 1_000 })).await;
        assert_fails_with(&outcome, &format!("Timed out after {seconds}s: the command was "));
        let has_begun = std::fs::metadata(bench.cwd.join("leader")).is_ok_and(|it| it.len() > 0);
        if !has_begun || text(&outcome).contains("has not ended yet") {
            continue;
        }
        assert!(text(&outcome).contains(" was stopped."), "{outcome:?}");
        assert_eq!(outcome.detail["exit_code"], 137);
        assert!(start.elapsed() > timeout + Duration::from_secs(2), "SIGTERM comes first");
        start.assert_within(timeout + SOON, "the end of the group");
        assert!(!is_alive(&bench.content("leader")));
        assert_gone(&bench.content("child")).await;
        return;
    }
    panic!("the command was never started and ended in time");
}

#[tokio::test]
async fn a_cancel_ends_the_whole_group_and_returns_at_once() {
    let bench = Bench::open();
    let cancel = CancellationToken::new();
    let command = "sleep 1000 & echo $! > child; setsid sleep 1000 & echo $! > escaped; \
                   echo begun; echo $$ > leader; wait";
    let running = bench.run_until("Bash", json!({ "command": command }), cancel.clone());
    let stopping = async {
        appears(&bench.cwd.join("leader")).await;
        cancel.cancel();
        Stopwatch::start()
    };
    let (outcome, stopped) = tokio::join!(running, stopping);
    stopped.assert_within(Duration::from_secs(2), "the end of the call");
    assert_fails_with(&outcome, "Interrupted by user: the command was stopped.\nbegun");
    assert_eq!(outcome.detail["interrupted"], true);
    for name in ["leader", "child", "escaped"] {
        assert_gone(&bench.content(name)).await;
    }
}

#[tokio::test]
async fn an_already_cancelled_call_starts_no_process() {
    let bench = Bench::open();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = bench.run_until("Bash", json!({ "command": "touch started" }), cancel).await;
    assert_fails_with(&outcome, "Interrupted");
    assert!(!bench.cwd.join("started").exists());
}

#[tokio::test]
async fn dropping_a_call_ends_its_processes() {
    let bench = Bench::open();
    let command = json!({ "command": "sleep 1000 & echo $! > child; echo $$ > leader; wait" });
    let call = super::bench::call("Bash", command);
    let leader = bench.cwd.join("leader");
    tokio::select! {
        _ = run_call(&bench.toolbox, &call, CancellationToken::new()) => panic!("it cannot end"),
        _ = appears(&leader) => {}
    }
    assert_gone(&bench.content("leader")).await;
    assert_gone(&bench.content("child")).await;
}

#[tokio::test]
async fn a_large_output_is_kept_only_in_part() {
    let bench = Bench::open();
    let outcome = soon(&bench, "head -c 70000000 /dev/zero; echo end").await;
    let shown = text(&outcome);
    assert!(shown.contains("70000004 bytes of binary output are not shown"), "{shown}");
    assert!(shown.contains("its first part is in"), "{shown}");
    let file = outcome.detail["output_file"].as_str().expect("a file");
    assert_eq!(fs::metadata(file).unwrap().len(), 64 << 20);
}

#[tokio::test]
async fn concurrent_commands_do_not_share_output() {
    let bench = Bench::open();
    // Each waits for the other's file: they end only if both run.
    let (one, other) = tokio::join!(
        soon(&bench, "touch one; until [ -e two ]; do sleep 0.01; done; echo first"),
        soon(&bench, "touch two; until [ -e one ]; do sleep 0.01; done; echo second"),
    );
    assert_eq!((text(&one), text(&other)), ("first".to_string(), "second".to_string()));
}
