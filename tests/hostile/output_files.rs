//! Links in place of output files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};
use outlast::cli::output_file::{OutputFile, ResultRetention};
use outlast::rehearsal::Scenario;
use serde_json::json;

use crate::support::{FinishedProcess, RunBuilder, serve};

/// A user that is not the one of the tests.
const STRANGER: u32 = 65_534;

const SESSION: &str = "0190a1b2-0000-7000-8000-000000000001";

/// Makes what has the name of an output file, which is `work/out/file`, beside `victim`.
type Trap = fn(&Path);

/// Links in a checkout, and what else has the name: trap, part of the message.
const TRAPS: [(Trap, &str); 8] = [
    (|work| symlink("../../victim", work.join("out/file")).expect("a link"), "symbolic link"),
    (|work| symlink("../../nothing", work.join("out/file")).expect("a link"), "symbolic link"),
    (|work| symlink("../..", work.join("out/file")).expect("a link"), "symbolic link"),
    (|work| symlink("/dev/null", work.join("out/file")).expect("a link"), "symbolic link"),
    (
        |work| {
            symlink("../../victim", work.join("out/second")).expect("a link");
            symlink("second", work.join("out/file")).expect("a link");
        },
        "symbolic link",
    ),
    (|work| fs::create_dir(work.join("out/file")).expect("a folder"), "is a folder"),
    (|work| mkfifo(&work.join("out/file"), Mode::S_IRWXU).expect("a pipe"), "a device or a pipe"),
    (|work| fs::remove_dir(work.join("out")).expect("an empty folder"), "does not exist"),
];

/// A folder `out` to write to, and a file beside the working folder.
fn prepare(trial: &RunBuilder) {
    fs::create_dir(trial.work().join("out")).expect("a folder");
    fs::write(trial.work().join("../victim"), "untouched").expect("a file");
}

#[track_caller]
fn is_intact(work: &Path) {
    let outside = work.join("..");
    assert_eq!(fs::read_to_string(outside.join("victim")).expect("there"), "untouched");
    assert!(!outside.join("nothing").exists(), "no file is created elsewhere");
}

#[tokio::test]
async fn what_is_no_file_of_the_user_is_refused_before_the_first_request() {
    let server = serve(Scenario::new());
    for flag in ["--result-file", "--heartbeat-file"] {
        for (trap, part) in TRAPS {
            let trial = RunBuilder::against(&server).args(["Do it.", flag, "out/file"]);
            prepare(&trial);
            trap(&trial.work());
            let victim = fs::metadata(trial.work().join("../victim")).expect("there");
            let ended = trial.run().await;
            let error = ended.result()["errors"][0].as_str().expect("a text").to_owned();
            assert_eq!(ended.code, Some(2), "{ended:?}");
            assert!(error.starts_with(&format!("{flag} out/file: ")), "{error}");
            assert!(error.contains(part) && error.contains("; "), "{error}");
            assert_eq!(ended.stderr, format!("outlast: {error}\n"));
            is_intact(&ended.work());
            let later = fs::metadata(ended.work().join("../victim")).expect("there");
            assert_eq!(later.modified().ok(), victim.modified().ok(), "{flag}");
        }
    }
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_mistake_elsewhere_in_the_command_line_is_not_told_through_a_link() {
    let server = serve(Scenario::new());
    let flags = ["Do it.", "--result-file", "out/file", "--max-turns", "none"];
    for (trap, _) in &TRAPS[..5] {
        let trial = RunBuilder::against(&server).args(flags);
        prepare(&trial);
        trap(&trial.work());
        let ended = trial.run().await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        is_intact(&ended.work());
    }
}

/// Runs a command that prepares an attack on the result file, and then ends.
async fn attack(command: &str) -> FinishedProcess {
    let server = serve(Scenario::new().tool("Bash", json!({ "command": command })).reply("Done."));
    let trial = RunBuilder::against(&server).args(["Do it.", "--result-file", "out/file"]);
    let trial = trial.args(["--heartbeat-file", "out/alive"]);
    prepare(&trial);
    fs::create_dir(trial.work().join("../elsewhere")).expect("a folder");
    let ended = trial.run().await;
    is_intact(&ended.work());
    let elsewhere = fs::read_dir(ended.work().join("../elsewhere")).expect("a folder");
    assert_eq!(elsewhere.count(), 0, "{command}");
    ended
}

#[tokio::test]
async fn what_a_command_puts_in_place_of_the_result_is_replaced() {
    for command in [
        "ln -s ../../victim out/file",
        "ln -s ../../nothing out/file",
        "ln -s ../../elsewhere out/file",
        "ln ../victim out/file",
        "mkfifo out/file",
        // The heartbeat file was opened before.
        "rm out/alive; ln -s ../../nothing out/alive",
        "mkdir x; ln -s ../../victim x/file; mv -T out y; mv -T x z; mv -T y out; mv z/file out",
    ] {
        let ended = attack(command).await;
        assert_eq!(ended.code, Some(0), "{command}: {ended:?}");
        let file = ended.work().join("out/file");
        assert!(fs::symlink_metadata(&file).expect("there").is_file(), "{command}");
        assert_eq!(fs::read_to_string(&file).expect("a text"), ended.stdout, "{command}");
    }
}

#[tokio::test]
async fn a_result_that_is_not_where_the_user_looks_for_it_is_no_success() {
    // command, part of the message
    let table = [
        ("mv out moved; ln -s ../elsewhere out", "moved or replaced"),
        ("mv out moved; mkdir out; echo '{}' > out/file", "moved or replaced"),
        ("mv out moved", "moved or replaced"),
        ("rm -r out", "its folder was removed"),
        ("rm -r out; ln -s ../elsewhere out", "its folder was removed"),
        ("mkdir out/file", "could not be moved there"),
    ];
    for (command, part) in table {
        let ended = attack(command).await;
        let result = ended.result();
        assert_eq!(ended.code, Some(1), "{command}: {ended:?}");
        assert_eq!(result["terminal_reason"], "output_failed", "{command}");
        assert_eq!(result["partial_result"], "Done.", "{command}");
        let error = result["errors"][0].as_str().expect("a text");
        assert!(error.contains("out/file") && error.contains(part), "{command}: {error}");
        assert_eq!(ended.stderr.matches(part).count(), 1, "{command}: {}", ended.stderr);
        let moved = ended.work().join("moved/file");
        assert!(!moved.exists(), "{command}: a success stays where the run has failed");
    }
}

#[tokio::test]
async fn saved_output_does_not_follow_a_link_in_place_of_its_folder() {
    let swap =
        "mv \"$TMPDIR\"/outlast-* ../old && ln -s \"$PWD\"/../elsewhere \"$TMPDIR\"/outlast-";
    let swap = format!("{swap}{SESSION}");
    let server = serve(
        Scenario::new()
            .tool("Bash", json!({ "command": swap }))
            .tool("Bash", json!({ "command": "seq 20000" }))
            .reply("Done."),
    );
    let trial = RunBuilder::against(&server).args(["Do it.", "--no-session-persistence"]);
    let outside = trial.work().join("..");
    fs::create_dir(outside.join("elsewhere")).expect("a folder");
    fs::create_dir(outside.join("tmp")).expect("a folder");
    let temporary = outside.join("tmp").display().to_string();
    let ended = trial.args(["--session-id", SESSION]).env("TMPDIR", &temporary).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let outside = ended.work().join("..");
    assert!(outside.join("old").is_dir(), "the folder was moved: {ended:?}");
    assert_eq!(fs::read_dir(outside.join("elsewhere")).expect("a folder").count(), 0);
}

#[test]
fn a_hard_link_is_not_touched_as_a_heartbeat_and_only_its_name_is_replaced_as_a_result() {
    let folder = tempfile::tempdir().expect("a folder");
    let (victim, name) = (folder.path().join("victim"), folder.path().join("name"));
    fs::write(&victim, "untouched").expect("a file");
    fs::hard_link(&victim, &name).expect("a link");
    let place = OutputFile::open(&name).expect("a file of the user");
    assert!(place.append().is_err_and(|error| error.to_string().contains("hard link")));
    place.remove().expect("it can be removed");
    assert_eq!(fs::metadata(&victim).expect("there").nlink(), 1);
    assert!(place.append().is_ok(), "it has one name");
}

#[test]
fn a_link_that_takes_the_place_after_the_check_is_not_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = OutputFile::open(&folder.path().join("alive")).expect("no file yet");
    for target in ["nothing", "/dev/null", "."] {
        symlink(target, folder.path().join("alive")).expect("a link");
        assert!(place.append().is_err_and(|error| error.to_string().contains("symbolic link")));
        place.remove().expect("the link can be removed");
    }
    assert!(!folder.path().join("nothing").exists());
}

#[test]
fn a_result_that_its_reader_takes_at_once_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, taken) = (folder.path().join("result"), folder.path().join("taken"));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                // It is there now and then.
                let _ = fs::rename(&path, &taken);
            }
        });
        let place = OutputFile::open(&path).expect("no file yet");
        let written: Vec<_> =
            (0..200).map(|_| place.write("{}", ResultRetention::Synced)).collect();
        ended.store(true, Ordering::Relaxed);
        let lost = written.iter().find_map(|written| written.as_ref().err());
        assert!(lost.is_none(), "{lost:?}");
    });
}

#[test]
fn an_output_file_that_is_a_mount_point_is_written_in_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, outside) = (folder.path().join("result"), folder.path().join("outside"));
    for file in [&path, &outside] {
        fs::write(file, "an older result\n").expect("a file");
    }
    let in_own_mounts = || {
        if unshare(CloneFlags::CLONE_NEWNS).is_err() {
            eprintln!("WARNING: no mount namespace may be made: the mount point is not tried");
            return;
        }
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none).expect("own mounts");
        mount(Some(&outside), &path, none, MsFlags::MS_BIND, none).expect("a mount point");
        let place = OutputFile::open(&path).expect("a file of the user");
        for retention in [ResultRetention::Synced, ResultRetention::AtOnce] {
            place.write("{}", retention).expect("it can be written");
            assert_eq!(fs::read_to_string(&outside).expect("there"), "{}\n");
            place.remove().expect("its content can be removed");
            assert_eq!(fs::read_to_string(&outside).expect("there"), "");
        }
        let names = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(names, 2, "no temporary file is left");
    };
    // Only this thread has the namespace.
    std::thread::scope(|scope| scope.spawn(in_own_mounts).join().expect("no panic"));
}

#[test]
fn files_of_other_users_are_refused() {
    if !geteuid().is_root() {
        // Only root can make such files. An ordinary user has those of root.
        let error = OutputFile::open(Path::new("/etc/passwd")).expect_err("it is root's");
        assert!(error.to_string().contains("another user"), "{error}");
        return;
    }
    // mode of the folder, its owner, the owner of the file, whether it is accepted
    let table = [
        (0o755, 0, STRANGER, false),
        (0o777, 0, STRANGER, false),
        (0o1777, 0, STRANGER, false),
        (0o1777, STRANGER, STRANGER, false),
        (0o755, STRANGER, STRANGER, true),
        (0o755, STRANGER, 0, true),
        (0o1777, STRANGER, 0, true),
        (0o755, STRANGER, STRANGER - 1, false),
    ];
    for (mode, owner, of_file, accepted) in table {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "").expect("a file");
        chown(&path, Some(of_file), None).expect("root may do this");
        chown(folder.path(), Some(owner), None).expect("root may do this");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).expect("a mode");
        let opened = OutputFile::open(&path);
        let case = format!("{mode:o} {owner} {of_file}: {opened:?}");
        match opened {
            Ok(_) => assert!(accepted, "{case}"),
            Err(error) => {
                assert!(!accepted && error.to_string().contains("another user"), "{case}");
            }
        }
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_is_refused_at_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let closed = if geteuid().is_root() {
        // Root may write to every folder of an ordinary disk.
        let Some(read_only) = ["/sys/kernel", "/proc/self/fdinfo"]
            .map(Path::new)
            .into_iter()
            .find(|path| fs::File::create(path.join("outlast-test")).is_err() && path.is_dir())
        else {
            return;
        };
        if nix::unistd::access(read_only, nix::unistd::AccessFlags::W_OK).is_ok() {
            return;
        }
        read_only.to_owned()
    } else {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).expect("a mode");
        folder.path().to_owned()
    };
    let error = OutputFile::open(&closed.join("file")).expect_err("it cannot be written to");
    assert!(error.to_string().contains("cannot be written to"), "{error}");
}
