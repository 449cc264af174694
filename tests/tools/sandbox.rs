//! The sandbox of commands, with real commands on a real kernel.
//!
//! Without Landlock in the kernel there is no sandbox: then these tests check that this is
//! reported.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use outlast::process::{LandlockSupport, filters_system_calls};
use outlast::tools::{
    BadSettings, Enforced, PermissionMode, Requirement, SandboxError, SandboxMode, ToolOutcome,
    ToolSettings, Toolbox,
};
use outlast::transcript::ToolCall;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::bench::{PATIENCE, call, run_call, text};
use crate::support::python::search_path;
use crate::support::{non_temporary_folder, supervisor};

/// A home, a working tree and an unrelated folder, none of them in a temporary folder: there
/// everything is free.
pub(crate) struct SandboxFixture {
    pub(crate) toolbox: Toolbox,
    pub(crate) root: PathBuf,
    _folder: TempDir,
}

impl SandboxFixture {
    pub(crate) fn open() -> Self {
        Self::with(|_, _| {})
    }

    pub(crate) fn with(arrange: impl FnOnce(&mut ToolSettings, &Path)) -> Self {
        Self::try_with(arrange).map_err(|(error, _)| error).expect("good settings")
    }

    pub(crate) fn try_with(
        arrange: impl FnOnce(&mut ToolSettings, &Path),
    ) -> Result<Self, (BadSettings, PathBuf)> {
        let folder = non_temporary_folder();
        let root = folder.path().canonicalize().expect("it exists");
        for name in ["home/.ssh", "home/.config/gh", "work", "outside", "config/projects"] {
            fs::create_dir_all(root.join(name)).expect("a folder");
        }
        for (name, content) in [
            ("home/.ssh/id_x", "the-secret\n"),
            ("home/.config/gh/hosts.yml", "the-secret\n"),
            ("home/.netrc", "the-secret\n"),
            ("config/projects/other.jsonl", "the-secret\n"),
            ("home/notes", "free\n"),
            ("home/.config/free", "free\n"),
            ("outside/file", "kept\n"),
        ] {
            fs::write(root.join(name), content).expect("a file");
        }
        let scratch = root.join("config/projects/own/tool-results");
        let mut settings = ToolSettings::new(&root.join("work"), &scratch, "a-session");
        settings.supervisor = supervisor();
        settings.permissions.mode = PermissionMode::BypassPermissions;
        settings.sandbox.config_dir = Some(root.join("config"));
        let rustup = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        settings.environment = vec![
            ("PATH".into(), search_path().into()),
            ("HOME".into(), root.join("home").into()),
            ("RUSTUP_HOME".into(), rustup.unwrap_or_else(|| home.join(".rustup")).into()),
            ("GIT_AUTHOR_NAME".into(), "A".into()),
            ("GIT_AUTHOR_EMAIL".into(), "a@example.org".into()),
            ("GIT_COMMITTER_NAME".into(), "A".into()),
            ("GIT_COMMITTER_EMAIL".into(), "a@example.org".into()),
        ];
        settings.home = Some(root.join("home"));
        arrange(&mut settings, &root);
        match Toolbox::new(&settings) {
            Ok(toolbox) => Ok(Self { toolbox, root, _folder: folder }),
            Err(error) => Err((error, root)),
        }
    }

    /// Whether the kernel holds anything. If not, that must be said.
    pub(crate) fn holds(&self) -> bool {
        let (state, kernel) = (self.toolbox.sandbox(), LandlockSupport::probe());
        assert_eq!(state.abi, kernel.abi, "{state:?}");
        if kernel.abi == 0 {
            assert_eq!(state.enforced, Enforced::None, "{state:?}");
            assert!(self.toolbox.sandbox_warning().is_some(), "{state:?}");
        }
        kernel.abi > 0
    }

    pub(crate) async fn call(&self, call: ToolCall) -> ToolOutcome {
        let running = run_call(&self.toolbox, &call, CancellationToken::new());
        tokio::time::timeout(2 * PATIENCE, running).await.expect("every call comes back")
    }

    pub(crate) async fn bash(&self, command: &str) -> ToolOutcome {
        self.call(call("Bash", json!({ "command": command, "timeout": 300_000 }))).await
    }

    #[track_caller]
    fn check(command: &str, outcome: &ToolOutcome) {
        assert!(!outcome.is_error, "{command}: {}", text(outcome));
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.root.join(name)).expect("a text file")
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }
}

/// The exposed items, without those that no sandbox of this kernel closes.
pub(crate) fn singled_out(exposed: &[String]) -> Vec<&str> {
    let always = ["arguments of other processes", "System V shared memory", "POSIX shared memory"];
    let is_one = |text: &&str| !always.iter().any(|begin| text.starts_with(begin));
    exposed.iter().map(String::as_str).filter(is_one).collect()
}

#[tokio::test]
async fn the_sandbox_blocks_every_write_outside() {
    let fenced = SandboxFixture::open();
    if !fenced.holds() {
        return;
    }
    let outside = fenced.path("outside");
    symlink(&outside, fenced.root.join("work/old")).expect("a link");
    let ways = [
        "echo gone > $OUT/file",
        ": >> $OUT/file && : > $OUT/file",
        "truncate -s 0 $OUT/file",
        "rm -f $OUT/file",
        "mv $OUT/file taken",
        "mv work-file $OUT/file",
        "cp work-file $OUT/new",
        "mkdir $OUT/new",
        "ln -s /etc $OUT/new",
        "mkfifo $OUT/new",
        "mknod $OUT/new c 1 3",
        "ln $OUT/file hard && echo gone > hard",
        "ln work-file $OUT/new",
        "ln -s $OUT link; echo gone > link/file",
        "echo gone > old/file",
        "echo gone > /proc/self/root$OUT/file",
        "echo gone > /proc/$PPID/root$OUT/file",
        "echo gone > /proc/self/cwd/../outside/file",
        "cd $OUT && echo gone > file",
        "(setsid sh -c \"echo gone > $OUT/file\" &) ; setsid -w sh -c \"echo gone > $OUT/file\"",
        "exec 3<> $OUT/file && echo gone >&3",
        "sed -i s/kept/gone/ $OUT/file",
        "mknod disk b 7 0",
    ];
    for way in ways {
        let command = format!("OUT='{outside}'; echo mine > work-file; {way}");
        let outcome = fenced.bash(&command).await;
        assert!(outcome.is_error, "{way}: {}", text(&outcome));
        assert_eq!(fenced.read("outside/file"), "kept\n", "{way}");
        let left = fs::read_dir(&outside).expect("a folder").count();
        assert_eq!(left, 1, "{way}");
    }
}

#[tokio::test]
async fn the_sandbox_blocks_every_read_of_credentials() {
    let fenced = SandboxFixture::open();
    if !fenced.holds() {
        return;
    }
    symlink(fenced.root.join("home/.ssh"), fenced.root.join("work/old")).expect("a link");
    symlink(fenced.root.join("home/.ssh"), fenced.root.join("home/way")).expect("a link");
    let ways = [
        "cat ~/.ssh/id_x",
        "cat ~/.config/gh/hosts.yml",
        "cat ~/.netrc",
        "cat ../config/projects/other.jsonl",
        "cat old/id_x",
        "cat ~/way/id_x",
        "cp ~/.ssh/id_x here && cat here",
        "ln ~/.ssh/id_x here && cat here",
        "mv ~/.ssh/id_x here && cat here",
        "tar c ~/.ssh | strings",
        "cd ~/.ssh && cat id_x",
        "cat /proc/self/root$HOME/.ssh/id_x",
        "cat /proc/$PPID/root$HOME/.ssh/id_x",
        "grep -r secret ~",
        "tr '\\0' ' ' < /proc/$PPID/environ; cat /proc/1/environ",
        "cat /proc/$PPID/mem",
        "bash ~/.ssh/id_x",
    ];
    for way in ways {
        // From a script, so that it is the kernel that says no.
        fs::write(fenced.root.join("work/way.sh"), way).expect("a file");
        let outcome = fenced.bash("bash -o pipefail way.sh").await;
        assert!(!text(&outcome).contains("the-secret"), "{way}: {}", text(&outcome));
        assert!(outcome.is_error, "{way}: {}", text(&outcome));
    }
    let command = "cat ~/notes ~/.config/free && ls -a ~ ~/.config / >/dev/null";
    let free = fenced.bash(command).await;
    SandboxFixture::check(command, &free);
    assert_eq!(free.detail["stdout"], "free\nfree\n");
    for file in ["environ", "maps", "mem", "root/etc/hostname"] {
        let outcome = fenced.bash(&format!("head -c 9 /proc/$PPID/{file} 2>/dev/null")).await;
        assert_eq!(outcome.detail["stdout"], "", "{file}: {}", text(&outcome));
    }
}

#[tokio::test]
async fn file_tools_refuse_credentials_too() {
    let secret = |fenced: &SandboxFixture| fenced.path("home/.ssh/id_x");
    let shut = SandboxFixture::with(|settings, root| {
        settings.permissions.mode = PermissionMode::AcceptEdits;
        settings.permissions.allow = vec!["Read".into(), "Write".into(), "Bash".into()];
        settings.permissions.additional_directories = vec![root.join("home")];
    });
    for request in [
        call("Read", json!({ "file_path": secret(&shut) })),
        call("Write", json!({ "file_path": secret(&shut), "content": "x" })),
        call("Grep", json!({ "pattern": "secret", "path": shut.path("home/.ssh") })),
        call("Glob", json!({ "pattern": "*", "path": shut.path("home/.ssh") })),
        call("Bash", json!({ "command": "cat ~/.ssh/id_x" })),
    ] {
        let name = request.name.clone();
        let outcome = shut.call(request).await;
        assert!(outcome.is_error, "{name}: {}", text(&outcome));
        assert!(text(&outcome).contains("allowRead"), "{name}: {}", text(&outcome));
    }
    let found =
        shut.call(call("Grep", json!({ "pattern": "free|secret", "path": shut.path("home") })));
    let found = text(&found.await);
    assert!(found.contains("notes") && !found.contains("id_x"), "{found}");

    let by_rule = SandboxFixture::with(|settings, _| {
        settings.permissions.mode = PermissionMode::Default;
        settings.permissions.allow = vec!["Read(~/.ssh/**)".into()];
    });
    let by_setting = SandboxFixture::with(|settings, _| {
        settings.permissions.mode = PermissionMode::Default;
        settings.permissions.allow = vec!["Read".into()];
        settings.sandbox.allow_read = vec!["~/.ssh".into()];
    });
    let lifted = SandboxFixture::with(|settings, _| {
        settings.permissions.mode = PermissionMode::Default;
        settings.permissions.allow = vec!["Read".into()];
        settings.sandbox.mode = SandboxMode::Off;
    });
    for open in [by_rule, by_setting, lifted] {
        let outcome = open.call(call("Read", json!({ "file_path": secret(&open) }))).await;
        assert!(text(&outcome).contains("the-secret"), "{}", text(&outcome));
    }
}

#[tokio::test]
async fn sandbox_settings_allow_and_deny_paths() {
    let fenced = SandboxFixture::with(|settings, root| {
        let at = |name: &str| root.join(name).display().to_string();
        fs::create_dir_all(root.join("outside/shut")).expect("a folder");
        fs::write(root.join("outside/shut/file"), "the-secret\n").expect("a file");
        settings.sandbox.allow_read = vec!["~/.ssh/**".into()];
        settings.sandbox.allow_write = vec!["../outside".into(), "~/made".into()];
        settings.sandbox.deny_read = vec!["~/notes".into(), "~/[a]*/**".into()];
        settings.sandbox.deny_write = vec![at("outside")];
        fs::create_dir(root.join("home/made")).expect("a folder");
        // A name with the letters of a pattern.
        for folder in ["home/[a]*", "home/ab"] {
            fs::create_dir(root.join(folder)).expect("a folder");
            fs::write(root.join(folder).join("file"), "text").expect("a file");
        }
    });
    if !fenced.holds() {
        return;
    }
    let table = [
        ("cat ~/.ssh/id_x", true),
        ("cat ~/.netrc", false),
        ("cat ~/notes", false),
        ("cat ~/'[a]*'/file", false),
        ("cat ~/ab/file", true),
        ("echo x > ~/made/new && mv ~/made/new ./new && mv ./new ~/made/", true),
        ("echo x > ../outside/new", false),
    ];
    for (command, works) in table {
        let outcome = fenced.bash(command).await;
        assert_eq!(!outcome.is_error, works, "{command}: {}", text(&outcome));
    }
    for pattern in ["~/*.pem", "", "a?b"] {
        let bad = SandboxFixture::try_with(|settings, _| {
            settings.sandbox.deny_read = vec![pattern.to_owned()];
        });
        let Err((BadSettings::Sandbox { why }, _)) = bad else { panic!("{pattern}") };
        assert_eq!(why, SandboxError::Pattern(pattern.to_owned()));
    }
}

#[tokio::test]
async fn paths_that_cannot_be_denied_are_named_and_required_mode_fails() {
    let in_home = |mode| {
        SandboxFixture::try_with(move |settings: &mut ToolSettings, root: &Path| {
            settings.cwd = root.join("home");
            settings.sandbox.mode = mode;
            // The network would expose the sockets of the machine's services.
            settings.sandbox.no_network = true;
        })
    };
    let fenced = in_home(SandboxMode::Workspace).map_err(|(error, _)| error).expect("it begins");
    let required = in_home(SandboxMode::Required);
    let Err((BadSettings::Sandbox { why }, root)) = required else { panic!("it must not begin") };
    if !fenced.holds() {
        assert!(why.to_string().contains("Landlock"), "{why}");
        return;
    }
    assert!(why.to_string().contains(&root.join("home/.ssh").display().to_string()), "{why}");
    let state = fenced.toolbox.sandbox();
    assert_eq!(state.enforced, Enforced::Partial);
    let exposed: Vec<String> =
        [".config/gh", ".netrc", ".ssh"].map(|name| fenced.path(&format!("home/{name}"))).into();
    assert_eq!(singled_out(&state.exposed), exposed);
    let doubts = fenced.toolbox.sandbox_warning().expect("a warning");
    assert!(doubts.contains(".ssh"), "{doubts}");
    SandboxFixture::check("making files at home", &fenced.bash("echo x > new").await);

    let whole = SandboxFixture::with(|settings, _| {
        settings.sandbox.mode = SandboxMode::Required;
        settings.sandbox.no_network = true;
    });
    assert_eq!(whole.toolbox.sandbox().enforced, Enforced::Full);
    assert_eq!(whole.toolbox.sandbox_warning(), None);
    let off = SandboxFixture::with(|settings, _| settings.sandbox.mode = SandboxMode::Off);
    assert_eq!(off.toolbox.sandbox().enforced, Enforced::None);
    assert_eq!(off.toolbox.sandbox_warning(), None);
    SandboxFixture::check("off", &off.bash("echo x > ../outside/new && cat ~/.ssh/id_x").await);
}

#[tokio::test]
async fn read_only_mode_allows_writes_only_in_temporary_folders() {
    let fenced = SandboxFixture::with(|settings, _| settings.sandbox.mode = SandboxMode::ReadOnly);
    if !fenced.holds() {
        return;
    }
    fs::write(fenced.root.join("work/file"), "kept\n").expect("a file");
    for command in ["echo x > new", "echo x > file", "rm file", "echo x > ~/.cache/x"] {
        assert!(fenced.bash(command).await.is_error, "{command}");
    }
    for command in
        ["cat file", "f=$(mktemp) && echo x > $f && rm $f", "echo x > /dev/null", "sort file"]
    {
        SandboxFixture::check(command, &fenced.bash(command).await);
    }
    let write = json!({ "file_path": fenced.path("work/file"), "content": "x" });
    assert!(fenced.call(call("Write", write)).await.is_error);
    assert_eq!(fenced.read("work/file"), "kept\n");

    // A tree among temporary things is kept all the same, and so there is another place for them.
    // One of these folders is in `/dev`, which is closed.
    let places = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
    for place in places.iter().filter(|place| place.is_dir()) {
        let folder = tempfile::tempdir_in(place).expect("a folder");
        let cwd = folder.path().canonicalize().expect("it exists");
        fs::write(cwd.join("file"), "kept\n").expect("a file");
        let inside = SandboxFixture::with(|settings, _| {
            settings.cwd.clone_from(&cwd);
            settings.sandbox.mode = SandboxMode::ReadOnly;
        });
        assert!(inside.bash("echo x > new").await.is_error);
        for command in ["cat file", "f=$(mktemp) && echo x > $f && rm $f"] {
            SandboxFixture::check(command, &inside.bash(command).await);
        }
    }
}

#[tokio::test]
async fn sandboxed_commands_cannot_signal_outside_processes() {
    let fenced = SandboxFixture::open();
    if fenced.holds() && LandlockSupport::probe().restricts_signals() {
        let command = format!("kill -0 {} || kill -0 $PPID", std::process::id());
        assert!(fenced.bash(&command).await.is_error);
    }
    let own = "sleep 100 & kill $! && ! wait $!";
    SandboxFixture::check(own, &fenced.bash(own).await);
}

#[tokio::test]
async fn the_sandbox_allows_network_access_unless_denied() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let command = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let open = SandboxFixture::open();
    SandboxFixture::check(&command, &open.bash(&command).await);
    let shut = SandboxFixture::with(|settings, _| settings.sandbox.no_network = true);
    if !shut.holds() || !filters_system_calls() {
        let kernel = LandlockSupport::probe();
        let network = if kernel.restricts_tcp() { "no_tcp" } else { "open" };
        assert_eq!(shut.toolbox.sandbox().network, network);
        assert!(shut.toolbox.sandbox_warning().is_some());
        return;
    }
    assert_eq!(shut.toolbox.sandbox().network, "off");
    let outcome = shut.bash(&command).await;
    assert!(outcome.is_error && text(&outcome).contains("or use the network"), "{outcome:?}");
}

#[tokio::test]
async fn the_model_is_told_of_the_sandbox_and_why_a_command_failed() {
    let fenced = SandboxFixture::open();
    let about = |fenced: &SandboxFixture| {
        let definitions = fenced.toolbox.definitions();
        let bash = definitions.iter().find(|tool| tool.name == "Bash").expect("it is offered");
        bash.description.clone()
    };
    assert_eq!(about(&fenced).contains("sandboxed"), fenced.holds());
    let off = SandboxFixture::with(|settings, _| settings.sandbox.mode = SandboxMode::Off);
    assert!(!about(&off).contains("sandboxed"));
    if !fenced.holds() {
        return;
    }
    assert!(about(&fenced).contains(&fenced.path("work")), "{}", about(&fenced));
    let table = [
        ("echo x > ../outside/new", true),
        ("echo Permission denied >&2; exit 3", true),
        ("echo Permission denied >&2", false),
        ("touch ../outside/new 2>&1 | tail -3", true),
        ("touch ../outside/new || true", true),
        ("touch ../outside/new; echo \"exit: $?\"", true),
        ("echo nothing of that kind >&2; exit 3", false),
        ("echo 'git@host: Permission denied (publickey).' >&2; exit 128", false),
        ("echo 'ERROR: permission denied for table users' >&2; exit 1", false),
    ];
    for (command, hinted) in table {
        let shown = text(&fenced.bash(command).await);
        assert_eq!(shown.contains("This may be the sandbox"), hinted, "{command}: {shown}");
    }
    if LandlockSupport::probe().restricts_signals() {
        for command in ["kill -0 $PPID", "kill -0 $PPID 2>&1 | cat", "kill -0 $PPID || true"] {
            let shown = text(&fenced.bash(command).await);
            assert!(shown.contains("KillShell") && !shown.contains("widen"), "{shown}");
        }
    }
}

#[tokio::test]
async fn ordinary_commands_work_in_the_sandbox() {
    let fenced = SandboxFixture::open();
    let commands = [
        "echo x > /dev/null; echo x > /dev/stdout; echo x > /dev/stderr; head -c4 /dev/urandom >/dev/null",
        "f=$(mktemp) && echo x > $f && rm $f; d=$(mktemp -d) && rmdir $d; echo x > /dev/shm/$$ && rm /dev/shm/$$",
        "cat > doc <<'END'\nhere\nEND\ngrep -q here doc && cat <(echo there) >/dev/null",
        "seq 400000 -1 1 | sort -n -S 1M > sorted && test $(head -1 sorted) = 1",
        "test -n \"$(cat /proc/self/stat)\" && ls /proc/self/fd >/dev/null && test -r /proc/meminfo",
        "mkdir -p a/b && mv a c && ln -s c d && ln doc e && chmod +x doc && cp -a c f && rm -r c d f",
        "mkfifo pipe && (echo x > pipe &) && read x < pipe && test $x = x",
        "printf 'all:\\n\\t@echo made > made\\n' > Makefile && make -s && cat made",
        "printf '#!/bin/sh\\necho ran\\n' > run && chmod +x run && ./run",
        "ps aux > /dev/null; uname -a; id; df . >/dev/null; getent passwd root",
    ];
    for command in commands {
        SandboxFixture::check(command, &fenced.bash(command).await);
    }
    let python = "import os, socket, multiprocessing, tempfile, asyncio\n\
        s = socket.socket(socket.AF_UNIX); s.bind('sock'); s.listen()\n\
        c = socket.socket(socket.AF_UNIX); c.connect('sock')\n\
        multiprocessing.Lock()\n\
        tempfile.NamedTemporaryFile().write(b'x')\n\
        async def run(): await (await asyncio.create_subprocess_exec('true')).wait()\n\
        asyncio.run(run())\n";
    fs::write(fenced.root.join("work/t.py"), python).expect("a file");
    let command = "if command -v python3 >/dev/null; then python3 t.py; fi";
    SandboxFixture::check(command, &fenced.bash(command).await);
}

#[tokio::test]
async fn git_works_in_working_trees_and_submodules_elsewhere() {
    let fenced = SandboxFixture::open();
    let commands = [
        "git init -q -b main . && git config user.name B && echo a > a && git add a",
        "git commit -qm one && git checkout -qb side && echo b >> a && git commit -qam two",
        "git checkout -q main && git merge -q side && git stash list && git gc -q && git log --oneline",
        "mkdir deep && cd deep && echo c > c && git add c && git commit -qm three",
        "cd .. && git clone -q . clone && git -C clone log -1 && rm -rf clone",
    ];
    for command in commands {
        SandboxFixture::check(command, &fenced.bash(command).await);
    }
    // The same repository from a folder of it, from a linked tree, and as a submodule.
    let root = fenced.root.clone();
    let git = |folder: &str, words: &[&str]| {
        let ran = std::process::Command::new("git")
            .args(["-c", "protocol.file.allow=always", "-c", "user.name=C", "-c", "user.email=c@c"])
            .args(words)
            .current_dir(root.join(folder))
            .output()
            .expect("git is installed");
        assert!(ran.status.success(), "{words:?}: {ran:?}");
    };
    git("work", &["worktree", "add", "-q", "-b", "tree", "../tree"]);
    git("outside", &["init", "-q", "super"]);
    git("outside/super", &["submodule", "--quiet", "add", "../../work", "sub"]);
    let commit = "echo d > d && git add d && git commit -qm four && git log -1 --format=%s";
    for folder in ["work/deep", "tree", "outside/super/sub"] {
        let there = SandboxFixture::with(|settings, _| settings.cwd = fenced.root.join(folder));
        let outcome = there.bash(commit).await;
        SandboxFixture::check(folder, &outcome);
        assert_eq!(outcome.detail["stdout"], "four\n", "{folder}");
    }
    if !fenced.holds() {
        return;
    }
    // Without a rule, too, and not what a rule hides.
    for folder in ["work", "work/deep", "tree", "outside/super/sub"] {
        let there = SandboxFixture::with(|settings, _| {
            settings.cwd = fenced.root.join(folder);
            settings.permissions.mode = PermissionMode::Default;
        });
        let outcome = there.bash("git status --short && git log --format=%s -1").await;
        SandboxFixture::check(folder, &outcome);
        assert!(outcome.detail["stdout"].to_string().contains("four"), "{folder}: {outcome:?}");
        let hidden = SandboxFixture::with(|settings, _| {
            settings.cwd = fenced.root.join(folder);
            settings.permissions.mode = PermissionMode::Default;
            let rule = format!("Read(/{}/**/a)", fenced.root.display());
            settings.permissions.deny.push(rule);
        });
        assert!(hidden.bash("git log -p").await.is_error, "{folder}");
    }
    // Any checkout can name any place. It is only believed if the place names the checkout.
    for name in ["outside", "work/.git", "outside/super/.git/modules/sub"] {
        let bait = fenced.root.join("bait");
        fs::create_dir_all(&bait).expect("a folder");
        fs::write(bait.join(".git"), format!("gitdir: {}\n", fenced.path(name))).expect("a file");
        let there = SandboxFixture::with(|settings, _| settings.cwd.clone_from(&bait));
        let command = format!("echo x > '{}/planted'", fenced.path(name));
        assert!(there.bash(&command).await.is_error, "{name}");
    }
}

/// A CI checkout has its token in a file that the settings of the repository include.
#[tokio::test]
async fn git_without_a_rule_reads_included_files_and_shows_what_the_users_git_shows() {
    let arrange = |settings: &mut ToolSettings, root: &Path| {
        let at = |name: &str| root.join(name);
        let run = |line: &str| {
            let mut shell = std::process::Command::new("sh");
            let ran = shell.args(["-c", line]).current_dir(at("work")).env("HOME", at("home"));
            assert!(ran.status().expect("there is a shell").success(), "{line}");
        };
        fs::create_dir_all(at("home")).expect("a folder");
        fs::write(at("token.config"), "[http]\n\textraheader = \"a: b\"\n").expect("a file");
        run("git config --global core.autocrlf input; git config --global core.eol crlf; \
             git config --global core.excludesFile '~/ignored'; echo '*.swp' > ~/ignored; \
             git config --global filter.own.clean 'sed s/^/kept:/'");
        run("git init -q -b main . && git config core.eol lf && git config user.name B && \
             git config user.email b@b && echo '*.bin filter=own' > .gitattributes && \
             printf 'one\\n' > t.txt && printf 'two\\n' > a.bin && git add . && \
             git commit -qm first && printf 'one\\r\\n' > t.txt && git add t.txt && touch -d '1 hour ago' a.bin && \
             echo > x.swp && git config \"includeIf.gitdir:$PWD/.git.path\" \"$PWD/../token.config\"");
        settings.cwd = at("work");
        settings.permissions.mode = PermissionMode::Default;
        fs::write(at("other.config"), "[core]\n\tpager = less\n").expect("a file");
        let command = "git config include.path \"$PWD/../other.config\"".to_owned();
        settings.acceptance.requirement = Some(Requirement { command, timeout: PATIENCE });
    };
    let fenced = SandboxFixture::with(arrange);
    if !fenced.holds() {
        return;
    }
    for command in ["git status --short", "git diff --stat", "git status --short"] {
        let outcome = fenced.bash(command).await;
        SandboxFixture::check(command, &outcome);
        assert_eq!(outcome.detail["stdout"], "", "{command}: {outcome:?}");
    }
    let outcome = fenced.bash("git log --format=%s").await;
    assert_eq!(outcome.detail["stdout"], "first\n", "{outcome:?}");
    // A command of the user can change the settings, too.
    let check = fenced.toolbox.run_requirement(CancellationToken::new()).await;
    assert!(check.expect("a command must pass").passed());
    let outcome = fenced.bash("git status --short").await;
    SandboxFixture::check("git status after git config", &outcome);
    // Reading of the file may be denied.
    let hidden = SandboxFixture::with(|settings, root| {
        arrange(settings, root);
        settings.permissions.deny.push(format!("Read(/{}/token.config)", root.display()));
    });
    let outcome = hidden.bash("git status --short").await;
    assert!(outcome.is_error && text(&outcome).contains("bad config line"), "{outcome:?}");
}

#[tokio::test]
async fn an_unsigned_commit_is_answered_with_a_hint() {
    let fenced = SandboxFixture::open();
    let failed = "echo 'error: gpg failed to sign the data' >&2; exit 128";
    let outcome = fenced.bash(failed).await;
    assert_eq!(text(&outcome).contains("--no-gpg-sign"), fenced.holds(), "{outcome:?}");
}

#[tokio::test]
async fn cargo_npm_and_pytest_work() {
    let fenced = SandboxFixture::open();
    // A workspace of its own: the folder may be below the one of this project.
    let manifest = "[package]\nname = \"tried\"\nedition = \"2024\"\n\n[workspace]\n";
    fs::create_dir(fenced.root.join("work/src")).expect("a folder");
    fs::write(fenced.root.join("work/Cargo.toml"), manifest).expect("a file");
    fs::write(fenced.root.join("work/src/lib.rs"), "#[test]\nfn holds() {}\n").expect("a file");
    let commands = [
        "command -v cargo >/dev/null || exit 0; cargo test -q --offline",
        "command -v npm >/dev/null || exit 0; mkdir n && cd n && npm init -y >/dev/null && \
         npm pkg set scripts.hi='echo hi there' && npm run hi && npm ls",
        "python3 -m venv --without-pip v 2>/dev/null || exit 0; . v/bin/activate && python -c 'import sys'",
        "python3 -c 'import pytest' 2>/dev/null || exit 0; echo 'def test_a(tmp_path): (tmp_path / \"x\").write_text(\"x\")' > test_a.py && python3 -m pytest -q test_a.py",
    ];
    for command in commands {
        SandboxFixture::check(command, &fenced.bash(command).await);
    }
}

#[tokio::test]
async fn the_requirement_command_is_sandboxed_too() {
    let fenced = SandboxFixture::with(|settings, root| {
        let command = format!("echo gone > '{}/file'", root.join("outside").display());
        settings.acceptance.requirement =
            Some(outlast::tools::Requirement { command, timeout: PATIENCE });
    });
    let check = fenced
        .toolbox
        .run_requirement(CancellationToken::new())
        .await
        .expect("a command must pass");
    assert_eq!(check.passed(), !fenced.holds(), "{check:?}");
}

#[test]
fn the_sandbox_state_is_reported_for_programs() {
    let fenced = SandboxFixture::with(|settings, _| settings.sandbox.no_network = true);
    let state = serde_json::to_value(fenced.toolbox.sandbox()).expect("data");
    let keys: Vec<&String> = state.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["mode", "enforced", "abi", "network", "signals", "processes", "exposed"]);
    assert_eq!(state["mode"], "workspace");
    assert_eq!(singled_out(&fenced.toolbox.sandbox().exposed), Vec::<&str>::new());
}
