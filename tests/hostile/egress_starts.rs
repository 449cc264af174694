//! The start of a network that is held to a list of hosts, where something is in its way.

use std::collections::HashSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use outlast::process::{PROBE_ARGUMENT, Supervisor};
use outlast::tools::{Egress, EgressGap, ProbeFailure};

use crate::support::programs::write_program;
use crate::support::supervisor;
use crate::tools::bench::{PATIENCE, assert_gone};

/// The test that is run in a child, and the variable that makes it act there.
const CHILD: &str = "hostile::egress_starts::child_with_few_files";
const IN_CHILD: &str = "OUTLAST_TEST_FEW_FILES";

/// The limit for a trial that hangs.
const HANGS_FOR: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_trial_that_hangs_is_ended_and_the_next_one_counts() {
    if Egress::missing(&supervisor()).is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (program, hangs) = (folder.path().join("program"), folder.path().join("hangs"));
    // It shows its process in its name, since it may write nothing.
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = {PROBE_ARGUMENT} ] && [ -e {} ] && exec tail -f {}\nexec {} \"$@\"\n",
        hangs.display(),
        hangs.display(),
        env!("CARGO_BIN_EXE_outlast"),
    );
    write_program(&program, script);
    fs::write(&hangs, "").expect("a file");
    let supervisor = Supervisor::with_binary(&program);
    let missing = Egress::missing_within(&supervisor, HANGS_FOR).expect("the trial hangs");
    let no_result = EgressGap::Kernel { failure: ProbeFailure::NoResult };
    assert_eq!(missing.to_string(), no_result.to_string());
    for pid in processes_with(&hangs.display().to_string()) {
        assert_gone(&pid).await;
    }
    fs::remove_file(&hangs).expect("it is there");
    let missing = Egress::missing_within(&supervisor, PATIENCE);
    assert!(missing.is_none(), "{missing:?}");
}

/// The processes that have this text among their arguments.
fn processes_with(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("it is mounted").flatten();
    let pids = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let has_text = |pid: &String| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    pids.filter(has_text).collect()
}

#[test]
fn a_start_without_free_descriptors_says_so_and_the_next_one_succeeds() {
    let child = Command::new(std::env::current_exe().expect("this test"))
        .args([CHILD, "--exact", "--nocapture"])
        .env(IN_CHILD, "1")
        .output()
        .expect("it starts");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

fn is_open(descriptor: u64) -> bool {
    fs::symlink_metadata(format!("/proc/self/fd/{descriptor}")).is_ok()
}

/// Tries each number of free descriptors from none to enough.
#[test]
fn child_with_few_files() {
    if std::env::var_os(IN_CHILD).is_none() {
        return;
    }
    let supervisor = supervisor();
    if Egress::missing(&supervisor).is_some() {
        return;
    }
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let descriptors = fs::read_dir("/proc/self/fd").expect("it is mounted").flatten();
    let open: HashSet<u64> = descriptors
        .filter_map(|descriptor| descriptor.file_name().to_string_lossy().parse().ok())
        .collect();
    // The folder that was read is closed again.
    let open: HashSet<u64> = open.into_iter().filter(|it| is_open(*it)).collect();
    let mut refused = 0;
    for free in 0..64 {
        let limit = (0..).filter(|it| !open.contains(it)).nth(free).expect("there are enough");
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard).expect("it is lower");
        let missing = Egress::missing(&supervisor);
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("it was so");
        println!("{free}: {missing:?}");
        let Some(missing) = missing else { break };
        assert!(missing.to_string().contains("too few files"), "{free} free: {missing}");
        refused += 1;
    }
    assert!((5..64).contains(&refused), "{refused} tries were refused");
    let missing = Egress::missing(&supervisor);
    assert!(missing.is_none(), "{missing:?}");
}
