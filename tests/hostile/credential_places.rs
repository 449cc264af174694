//! Places of credentials: known ones, those that variables name, and those that come to be while a
//! command runs.

use std::fs;
use std::path::Path;

use outlast::tools::PermissionMode;

use crate::support::programs::write_program;
use crate::support::scratch::write_file;
use crate::tools::bench::{appears, search_first, text};
use crate::tools::sandbox::SandboxFixture;

/// Relative to the home folder.
const PLACES: [&str; 44] = [
    "snap/firefox/common/.mozilla/firefox/p/logins.json",
    "snap/chromium/common/chromium/Default/Cookies",
    ".var/app/org.mozilla.firefox/.mozilla/firefox/p/key4.db",
    ".var/app/com.google.Chrome/config/google-chrome/Default/Cookies",
    ".claude/history.jsonl",
    ".claude/projects/p/s.jsonl",
    ".claude/shell-snapshots/s.sh",
    ".codex/history.jsonl",
    ".codex/sessions/2026/s.jsonl",
    ".gemini/oauth_creds.json",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".terraformrc",
    ".terraform.d/credentials.tfrc.json",
    ".config/composer/auth.json",
    ".Xauthority",
    ".config/Code/User/globalStorage/state.vscdb",
    ".config/Slack/Cookies",
    ".local/share/TelegramDesktop/tdata/key_datas",
    ".local/share/keyrings/login.keyring",
    ".subversion/auth/x",
    ".config/helm/registry/config.json",
    ".config/argocd/config",
    ".config/pypoetry/auth.toml",
    ".sbt/.credentials",
    ".msmtprc",
    ".local/share/atuin/history.db",
    ".local/share/fish/fish_history",
    ".bash_history",
    ".docker/config.json",
    ".docker/contexts/tls/x/key.pem",
    ".kube/config",
    ".aws/credentials",
    ".azure/msal_token_cache.json",
    ".config/gcloud/credentials.db",
    ".config/glab-cli/config.yml",
    ".git-credentials",
    ".config/git/credentials",
    ".cargo/credentials.toml",
    ".pypirc",
    ".curlrc",
    ".gnupg/private-keys-v1.d/x.key",
    ".password-store/x.gpg",
    ".vault-token",
];

/// A variable, and the file below what it names.
const NAMED: [(&str, &str); 20] = [
    ("KUBECONFIG", ""),
    ("NETRC", ""),
    ("DOCKER_CONFIG", "/config.json"),
    ("PIP_CONFIG_FILE", ""),
    ("AWS_SHARED_CREDENTIALS_FILE", ""),
    ("AWS_CONFIG_FILE", ""),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", ""),
    ("GOOGLE_APPLICATION_CREDENTIALS", ""),
    ("CLOUDSDK_CONFIG", "/credentials.db"),
    ("AZURE_CONFIG_DIR", "/tokens.json"),
    ("NPM_CONFIG_USERCONFIG", ""),
    ("CARGO_HOME", "/credentials.toml"),
    ("GH_CONFIG_DIR", "/hosts.yml"),
    ("HF_HOME", "/token"),
    ("HF_TOKEN_PATH", ""),
    ("PGPASSFILE", ""),
    ("GNUPGHOME", "/private"),
    ("TF_CLI_CONFIG_FILE", ""),
    ("REGISTRY_AUTH_FILE", ""),
    ("HISTFILE", ""),
];

fn plant(path: &Path) {
    write_file(path, format!("planted {}\n", path.display()));
}

#[tokio::test]
async fn credentials_are_closed_at_known_places_and_where_variables_say() {
    let fixture = SandboxFixture::with(|settings, root| {
        for place in PLACES {
            plant(&root.join("home").join(place));
        }
        for (variable, below) in NAMED {
            let named = root.join("outside").join(variable);
            plant(Path::new(&format!("{}{below}", named.display())));
            settings.environment.push((variable.into(), named.into()));
        }
        plant(&root.join("home/.cache/tool/data"));
        plant(&root.join("outside/DOCKER_CONFIG/other"));
    });
    if !fixture.holds() {
        return;
    }
    let found = fixture.bash("grep -rhs planted .. ; true").await;
    let found = text(&found);
    let read: Vec<&str> = found.lines().filter_map(|line| line.strip_prefix("planted ")).collect();
    let open = [fixture.path("home/.cache/tool/data"), fixture.path("outside/DOCKER_CONFIG/other")];
    let mut expected: Vec<&str> = open.iter().map(String::as_str).collect();
    expected.sort_unstable();
    let mut read: Vec<&str> = read.into_iter().filter(|line| line.starts_with('/')).collect();
    read.sort_unstable();
    assert_eq!(read, expected, "{found}");
    for place in PLACES {
        // A command that names the place is refused.
        let path = format!("\"{}/$p/{place}\"", fixture.root.display());
        for command in
            [format!("p=home; cat {path}"), format!("p=home; cp {path} copy && cat copy")]
        {
            let outcome = fixture.bash(&command).await;
            assert!(
                outcome.is_error && !text(&outcome).contains("planted"),
                "{command}: {outcome:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_credential_in_a_cache_gets_no_other_name() {
    let fixture = SandboxFixture::with(|_, root| {
        plant(&root.join("home/.cache/huggingface/token"));
        plant(&root.join("home/.cache/huggingface/hub/model"));
    });
    if !fixture.holds() {
        return;
    }
    for command in [
        "mv ~/.cache/huggingface ~/.cache/moved",
        "mv ~/.cache/huggingface/token ~/.cache/huggingface/hub/token",
        "mv ~/.cache/huggingface/token ~/.cache/huggingface/other",
        "ln ~/.cache/huggingface/token ~/.cache/huggingface/other",
        "ln ~/.cache/huggingface/token ~/.cache/huggingface/hub/other",
        "ln ~/.cache/huggingface/token token",
        "cp ~/.cache/huggingface/token token",
        "cat < ~/.cache/huggingface/token > token",
        "ln -s ~/.cache/huggingface/token token && cat token",
        "rm ~/.cache/huggingface/token",
    ] {
        // A command that names the place is refused.
        let command = command.replace("huggingface/token", "huggingface/$t");
        let outcome = fixture.bash(&format!("t=token; {command}")).await;
        assert!(outcome.is_error && outcome.denied.is_none(), "{command}: {outcome:?}");
        let found = text(&fixture.bash("grep -rhs planted ~/.cache . ; true").await);
        assert!(!found.contains("huggingface/token"), "after {command}: {found}");
    }
    assert!(fixture.read("home/.cache/huggingface/token").starts_with("planted"));
    // Caches work.
    for command in [
        "echo x > ~/.cache/huggingface/hub/new && rm ~/.cache/huggingface/hub/new",
        "echo x > ~/.cache/pip/new && cat ~/.cache/pip/new",
        "mkdir ~/.cache/unknown-tool",
        "echo x > ~/.cache/unknown-tool/new && cat ~/.cache/unknown-tool/new",
    ] {
        let outcome = fixture.bash(command).await;
        assert!(!outcome.is_error, "{command}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_login_that_is_made_while_a_command_runs_is_closed_to_it() {
    const LATER: [&str; 10] = [
        ".config/gh/hosts.yml",
        ".docker/config.json",
        ".aws/credentials",
        ".kube/config",
        ".netrc",
        ".git-credentials",
        ".config/gcloud/credentials.db",
        ".claude/.credentials.json",
        ".local/share/keyrings/login.keyring",
        ".cargo/credentials.toml",
    ];
    let fixture = SandboxFixture::with(|_, root| {
        fs::remove_dir_all(root.join("home/.config/gh")).expect("ours");
        fs::remove_file(root.join("home/.netrc")).expect("ours");
        for folder in [".docker", ".local/share", ".cargo"] {
            fs::create_dir_all(root.join("home").join(folder)).expect("a folder");
        }
        let places = LATER.map(|place| root.join("home").join(place).display().to_string());
        fs::write(root.join("work/places"), places.join("\n")).expect("a file");
    });
    if !fixture.holds() {
        return;
    }
    // A command that names them is refused.
    let read = "cat $(cat places) 2>/dev/null";
    let command = format!("echo x > begun; until [ -e ended ]; do {read}; done; {read}");
    let running = fixture.bash(&command);
    let logging_in = async {
        appears(&fixture.root.join("work/begun")).await;
        for place in LATER {
            plant(&fixture.root.join("home").join(place));
        }
        fs::write(fixture.root.join("work/ended"), "").expect("a file");
    };
    let (outcome, ()) = tokio::join!(running, logging_in);
    assert!(!text(&outcome).contains("planted"), "{outcome:?}");
    let read = fixture.bash(read).await;
    assert!(!text(&read).contains("planted"), "{read:?}");
}

#[tokio::test]
async fn a_rule_for_a_program_opens_its_own_login_files_and_no_others() {
    let programs = ["gh", "kubectl", "aws", "docker", "npm", "git"];
    let fixture = SandboxFixture::with(|settings, root| {
        settings.permissions.mode = PermissionMode::Default;
        settings.permissions.allow = programs.map(|program| format!("Bash({program} *)")).to_vec();
        settings.permissions.allow.push("Bash(sh *)".to_owned());
        plant(&root.join("home/.kube/config"));
        plant(&root.join("home/.aws/credentials"));
        let bin = root.join("bin");
        for program in programs {
            write_program(&bin.join(program), "#!/bin/sh\nexec cat \"$HOME/$2\"\n");
        }
        search_first(settings, &bin);
    });
    if !fixture.holds() {
        return;
    }
    // The programs read what their second argument names in the home folder.
    let (gh, kube) = (".config/gh/hosts.yml", ".kube/config");
    let (ssh, aws) = (".ssh/id_x", ".aws/credentials");
    for (command, opens) in [
        (format!("gh auth {gh}"), true),
        (format!("cd . && echo x && gh auth {gh}"), true),
        (format!("kubectl get {kube}"), true),
        (format!("aws s3 {aws}"), true),
        (format!("git push {ssh}"), true),
        (format!("gh auth {kube}"), false),
        (format!("kubectl get {gh}"), false),
        (format!("git status {ssh}"), false),
        (format!("sh -c 'gh auth {gh}'"), false),
        (format!("gh auth {gh} | sh -c cat"), false),
        (format!("npm test {gh}"), false),
        (format!("docker run {aws}"), false),
    ] {
        let outcome = fixture.bash(&command).await;
        assert!(outcome.denied.is_none(), "{command}: {outcome:?}");
        let shown = text(&outcome);
        let is_read = shown.contains("the-secret") || shown.contains("planted");
        assert_eq!(is_read, opens, "{command}: {outcome:?}");
    }
    let note = text(&fixture.bash(&format!("sh -c 'gh auth {gh}'")).await);
    assert!(note.contains("allow Bash(gh *)"), "{note}");
    assert!(!fixture.toolbox.take_warnings().is_empty());
}

/// The user's own denial outranks a rule for the program whose login it is.
#[tokio::test]
async fn a_denied_file_within_a_login_folder_stays_closed_to_its_program() {
    let fixture = SandboxFixture::with(|settings, root| {
        settings.permissions.mode = PermissionMode::Default;
        settings.permissions.allow = vec!["Bash(gh *)".to_owned()];
        plant(&root.join("home/.config/gh/private/x"));
        settings.sandbox.deny_read = vec!["~/.config/gh/private".to_owned()];
        let bin = root.join("bin");
        write_program(&bin.join("gh"), "#!/bin/sh\nexec cat \"$HOME/$2\"\n");
        search_first(settings, &bin);
    });
    if !fixture.holds() {
        return;
    }
    let login = fixture.bash("gh auth .config/gh/hosts.yml").await;
    assert!(text(&login).contains("the-secret"), "{login:?}");
    let denied = fixture.bash("gh auth .config/gh/private/x").await;
    assert!(denied.is_error && !text(&denied).contains("planted"), "{denied:?}");
}
