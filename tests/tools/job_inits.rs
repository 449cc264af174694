//! The process that looks after a command looks after the next one, unless something was left.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

use outlast::process::{Job, RunningJob, Supervisor};

use crate::support::programs::write_program;
use crate::support::supervisor;

fn job(command: &str, variable: (&str, &str)) -> Job {
    Job::shell(command, "/", [(variable.0.into(), variable.1.into())])
}

/// Runs a command to its end, and returns its output.
async fn output_of(supervisor: &Supervisor, job: Job) -> String {
    let mut running = supervisor.start(&job).await.expect("it starts");
    let mut stdout = running.stdout.take().expect("a pipe");
    let status = running.exit().await.expect("the job init process lives");
    assert!(status.success(), "{status}");
    running.end_leftovers().await;
    let mut output = String::new();
    stdout.read_to_string(&mut output).expect("the pipe is closed");
    output.trim().to_owned()
}

/// Starts a command that prints the process that looks after it, and does not end. Returns that
/// process, too.
async fn start_endless(supervisor: &Supervisor) -> (RunningJob, String) {
    let job = job("echo $PPID; exec sleep 1000", ("PATH", "/usr/bin:/bin"));
    let mut running = supervisor.start(&job).await.expect("it starts");
    let mut line = String::new();
    let stdout = running.stdout.as_mut().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
    (running, line.trim().to_owned())
}

#[tokio::test]
async fn a_job_init_runs_further_commands_while_nothing_is_left_behind() {
    let supervisor = supervisor();
    let path = ("PATH", "/usr/bin:/bin");
    let first = output_of(&supervisor, job("echo $PPID", path)).await;
    assert_eq!(output_of(&supervisor, job("echo $PPID; sleep 0.05", path)).await, first);
    let leaving = "sleep 1000 > /dev/null 2>&1 & echo $PPID";
    assert_eq!(output_of(&supervisor, job(leaving, path)).await, first);
    assert_ne!(output_of(&supervisor, job("echo $PPID", path)).await, first);
}

#[tokio::test]
async fn commands_that_run_at_a_time_have_a_job_init_each() {
    let supervisor = supervisor();
    let (running, first) = start_endless(&supervisor).await;
    let second = output_of(&supervisor, job("echo $PPID", ("A", "1"))).await;
    let (_third, third) = start_endless(&supervisor).await;
    assert!(first != second && second == third, "{first}, {second}, {third}");
    running.kill();
    assert!(!running.end_leftovers().await);
}

#[tokio::test]
async fn a_command_that_cannot_be_started_changes_nothing_for_the_next_one() {
    let supervisor = supervisor();
    for _ in 0..3 {
        let mut missing = job("", ("A", "1"));
        missing.program = "/missing/program".into();
        let error = supervisor.start(&missing).await.expect_err("there is none");
        assert_eq!(error.raw_os_error(), Some(nix::errno::Errno::ENOENT as i32));
        let mut elsewhere = job("pwd", ("A", "1"));
        elsewhere.cwd = "/missing".into();
        let error = supervisor.start(&elsewhere).await.expect_err("there is none");
        assert_eq!(error.raw_os_error(), Some(nix::errno::Errno::ENOENT as i32));
        assert_eq!(output_of(&supervisor, job("echo $A; pwd", ("A", "1"))).await, "1\n/");
    }
}

/// Programs without a folder are searched for in the command's own `PATH`, and a script that names
/// no interpreter is run by `sh`.
#[tokio::test]
async fn a_program_is_found_in_the_path_of_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("a-script");
    write_program(&script, "echo \"$1\" of \"$0\"");
    let path = format!("/missing:{}", folder.path().display());
    let mut found = job("", ("PATH", &path));
    (found.program, found.arguments) = ("a-script".into(), vec!["argument".into()]);
    let supervisor = supervisor();
    let wanted = format!("argument of {}", script.display());
    assert_eq!(output_of(&supervisor, found.clone()).await, wanted);
    // So many that they take more room than a small stack.
    found.arguments.extend((0..100_000).map(|_| "x".into()));
    assert_eq!(output_of(&supervisor, found).await, wanted);
}

/// A later command without a sandbox may read it.
#[tokio::test]
async fn the_variables_of_a_command_do_not_stay_in_the_memory_of_its_job_init() {
    let supervisor = supervisor();
    let secret = format!("a-secret-{}", uuid::Uuid::new_v4().simple());
    let first = output_of(&supervisor, job("echo $PPID", ("TOKEN", &secret))).await;
    let (_running, job_init) = start_endless(&supervisor).await;
    assert_eq!(job_init, first);
    let Ok(memory) = File::open(format!("/proc/{job_init}/mem")) else {
        eprintln!("WARNING: the memory of other processes cannot be read: it is not checked");
        return;
    };
    let maps = fs::read_to_string(format!("/proc/{job_init}/maps")).expect("it lives");
    let (mut found, mut is_control_found) = (Vec::new(), false);
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (range, _) = line.split_once(' ').expect("a range");
        let (start, end) = range.split_once('-').expect("two addresses");
        let [start, end] = [start, end].map(|it| u64::from_str_radix(it, 16).expect("hexadecimal"));
        let mut bytes = vec![0; usize::try_from(end - start).expect("64 bits")];
        if memory.read_exact_at(&mut bytes, start).is_ok() {
            let has = |text: &str| bytes.windows(text.len()).any(|it| it == text.as_bytes());
            found.extend(has(&secret).then(|| line.to_owned()));
            is_control_found |= has("__supervisor");
        }
    }
    assert!(is_control_found, "its own command line is in its memory: {maps}");
    assert_eq!(found, [""; 0]);
}
