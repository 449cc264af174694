//! Environment variables of commands.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

use outlast::tools::{ChildEnvironment, PermissionMode, ToolSettings};

use super::bench::{Bench, text};
use crate::support::programs::write_program;

const OWN: &[(&str, &str)] = &[
    ("ANTHROPIC_API_KEY", "the-key-itself-0123456789"),
    ("ANTHROPIC_AUTH_TOKEN", "the-token-itself"),
    ("ANTHROPIC_CUSTOM_HEADERS", "x-auth: yes"),
    ("ANTHROPIC_BASE_URL", "https://me:pw@gateway.invalid"),
    ("CLAUDE_CODE_OAUTH_TOKEN", "oauth-0123456789"),
    ("INNOCENT", "prefix the-key-itself-0123456789 suffix"),
    ("LOOKS_FINE", "sk-ant-api03-zzz"),
    ("ANTHROPIC_MODEL", "some-model"),
    ("MAX_THINKING_TOKENS", "4000"),
    ("GITHUB_TOKEN", "gh"),
    ("DB_PASSWORD", "pw"),
    ("MY_APIKEY", "k"),
    ("aws_secret_access_key", "s"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "/f"),
    ("NPM_TOKEN", "npm"),
    ("TOKENIZERS_PARALLELISM", "false"),
    ("KEYBOARD", "us"),
    ("SONAR_PROJECT_KEY", "acme-web"),
    ("S3_OBJECT_KEY", "key-0123456789abcdef"),
    ("LOOKUP_KEYS", "name,email"),
    ("TOKEN_URL", "https://login.test/oauth"),
    ("COLORTERM", "truecolor"),
    ("CI", "true"),
    ("TERM", "xterm-256color"),
    ("EDITOR", "vim"),
    ("OTEL_SERVICE_NAME", "outlast"),
    ("LC_ALL", "C.UTF-8"),
    ("FAVOURITE", "blue"),
];

fn own(settings: &mut ToolSettings) {
    settings.permissions.mode = PermissionMode::BypassPermissions;
    settings.environment.extend(OWN.iter().map(|(name, value)| (name.into(), value.into())));
}

async fn seen(bench: &Bench) -> BTreeMap<String, String> {
    let outcome = bench.bash("env -0 | tr '\\0' '\\n'").await;
    text(&outcome)
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

const CREDENTIALS: [&str; 7] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "INNOCENT",
    "LOOKS_FINE",
];

const SECRETS: [&str; 8] = [
    "GITHUB_TOKEN",
    "DB_PASSWORD",
    "MY_APIKEY",
    "aws_secret_access_key",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "NPM_TOKEN",
    "S3_OBJECT_KEY",
    "LOOKUP_KEYS",
];

#[tokio::test]
async fn environment_scrubbing_drops_only_secrets() {
    let bench = Bench::with(own);
    let seen = seen(&bench).await;
    for name in CREDENTIALS.iter().chain(&SECRETS) {
        assert!(!seen.contains_key(*name), "{name} is seen");
        assert!(bench.toolbox.dropped_variables().iter().any(|dropped| dropped == name), "{name}");
    }
    for name in [
        "ANTHROPIC_MODEL",
        "TOKENIZERS_PARALLELISM",
        "KEYBOARD",
        "COLORTERM",
        "FAVOURITE",
        "MAX_THINKING_TOKENS",
        "SONAR_PROJECT_KEY",
        "TOKEN_URL",
    ] {
        assert!(seen.contains_key(name), "{name} is missing");
    }
    for name in ["CARGO", "CARGO_MANIFEST_DIR", "USER", "HOSTNAME", "DEBIAN_VERSION"] {
        assert!(!seen.contains_key(name), "{name} is this process's, not what was given");
    }
    assert!(!seen.contains_key("OTEL_SERVICE_NAME"));
    assert!(!bench.toolbox.dropped_variables().iter().any(|name| name == "OTEL_SERVICE_NAME"));
}

#[tokio::test]
async fn commands_get_a_non_interactive_environment() {
    let bench = Bench::with(own);
    let seen = seen(&bench).await;
    for (name, value) in [
        ("CI", "true"),
        ("TERM", "dumb"),
        ("EDITOR", "true"),
        ("GIT_EDITOR", "true"),
        ("GIT_SEQUENCE_EDITOR", "true"),
        ("VISUAL", "true"),
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("MANPAGER", "cat"),
        ("LESS", "-FRX"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("SSH_ASKPASS", "/bin/false"),
        ("SUDO_ASKPASS", "/bin/false"),
        ("DEBIAN_FRONTEND", "noninteractive"),
        ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
        ("CLAUDECODE", "1"),
        ("OUTLAST", "1"),
        ("CLAUDE_CODE_SESSION_ID", "a-session"),
    ] {
        assert_eq!(seen.get(name).map(String::as_str), Some(value), "{name}");
    }
    // It would outrank the program that the user's settings name.
    assert!(!seen.contains_key("GIT_ASKPASS"));
}

#[tokio::test]
async fn the_shell_of_commands_is_in_their_environment_unless_the_user_names_another() {
    let shell_of = async |bench: Bench| seen(&bench).await.remove("SHELL").unwrap_or_default();
    let shell = shell_of(Bench::with(own)).await;
    assert!(shell.starts_with('/') && shell.ends_with("/bash"), "{shell}");
    let named = |settings: &mut ToolSettings| {
        own(settings);
        settings.environment.push(("SHELL".into(), "/bin/fish".into()));
    };
    assert_eq!(shell_of(Bench::with(named)).await, "/bin/fish");
}

#[tokio::test]
async fn a_passed_variable_is_visible_unless_it_is_the_models_credential() {
    let bench = Bench::with(|settings| {
        own(settings);
        settings.commands.pass_env =
            vec!["GITHUB_TOKEN".to_string(), "ANTHROPIC_API_KEY".to_string()];
    });
    let seen = seen(&bench).await;
    assert_eq!(seen.get("GITHUB_TOKEN").map(String::as_str), Some("gh"));
    assert!(!seen.contains_key("ANTHROPIC_API_KEY"));
    assert!(!seen.contains_key("NPM_TOKEN"));
}

/// Another service's key may have any name.
#[tokio::test]
async fn a_variable_that_holds_a_credential_is_hidden_under_any_name() {
    for policy in [ChildEnvironment::Scrub, ChildEnvironment::Inherit, ChildEnvironment::Allowlist]
    {
        let bench = Bench::with(|settings| {
            own(settings);
            let more = [("NIGHT_GATE", "gate-0123456789"), ("COPY", "see gate-0123456789 there")];
            settings.environment.extend(more.map(|(name, value)| (name.into(), value.into())));
            settings.credentials = vec!["NIGHT_GATE".to_string()];
            settings.commands.pass_env = vec!["NIGHT_GATE".to_string(), "COPY".to_string()];
            settings.commands.child_environment = policy;
        });
        let seen = seen(&bench).await;
        for name in ["NIGHT_GATE", "COPY"] {
            assert!(!seen.contains_key(name), "{name} is seen: {policy:?}");
            let dropped = bench.toolbox.dropped_variables();
            assert!(dropped.iter().any(|known| known == name), "{dropped:?}");
        }
    }
}

/// CI systems put one token into several variables.
#[tokio::test]
async fn a_scrubbed_secret_is_hidden_under_other_names_unless_passed() {
    let more = [
        ("CI_JOB_TOKEN", "job-0123456789"),
        ("CI_REPOSITORY_URL", "https://ci:job-0123456789@git.invalid/x"),
        ("CI_JOB_JWT_V2", "e"),
        ("MYSQL_PWD", "p"),
        ("NEXUS_PSW", "p"),
        ("LDAP_BIND_PW", "p"),
        ("AUTHORIZATION", "Bearer p"),
        ("PROXY_AUTH_HEADER", "Bearer p"),
        ("FASTLANE_SESSION", "p"),
        ("DATABASE_URL", "postgres://me:pw@localhost/test"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("OLDPWD", "/"),
    ];
    let bench = Bench::with(|settings| {
        own(settings);
        settings.environment.extend(more.map(|(name, value)| (name.into(), value.into())));
    });
    let shown = seen(&bench).await;
    for name in ["CI_JOB_TOKEN", "CI_REPOSITORY_URL", "CI_JOB_JWT_V2", "MYSQL_PWD"]
        .into_iter()
        .chain(["NEXUS_PSW", "LDAP_BIND_PW", "AUTHORIZATION", "PROXY_AUTH_HEADER"])
        .chain(["FASTLANE_SESSION"])
    {
        assert!(!shown.contains_key(name), "{name} is seen");
    }
    for name in ["DATABASE_URL", "SSH_AUTH_SOCK"] {
        assert!(shown.contains_key(name), "{name} is missing");
    }
    let bench = Bench::with(|settings| {
        own(settings);
        settings.environment.extend(more.map(|(name, value)| (name.into(), value.into())));
        settings.commands.pass_env = vec!["CI_REPOSITORY_URL".to_string()];
    });
    let shown = seen(&bench).await;
    assert!(shown.contains_key("CI_REPOSITORY_URL") && !shown.contains_key("CI_JOB_TOKEN"));
}

/// outlast may run in a hook of git, which names its repository to all that it starts.
#[tokio::test]
async fn a_repository_that_git_names_and_what_changes_the_shell_do_not_reach_commands() {
    let git = std::process::Command::new("git").args(["rev-parse", "--local-env-vars"]).output();
    let names = String::from_utf8(git.expect("git runs").stdout).expect("it is text");
    // A setting of the user, which git does not hand on by itself.
    let names = names.lines().filter(|name| *name != "GIT_CONFIG_COUNT");
    let of_shells = [
        "CDPATH",
        "GLOBIGNORE",
        "SHELLOPTS",
        "BASHOPTS",
        "BASH_ENV",
        "ENV",
        "EXECIGNORE",
        "PS4",
        "POSIXLY_CORRECT",
        "GIT_EXTERNAL_DIFF",
        "GREP_OPTIONS",
        "LESSOPEN",
        "RIPGREP_CONFIG_PATH",
    ];
    // Set by git for the hooks of a push and of a rebase.
    let of_hooks = ["GIT_QUARANTINE_PATH", "GIT_NAMESPACE", "GIT_REFLOG_ACTION"];
    let of_make = ["MAKELEVEL", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES"];
    let names: Vec<&str> = names.chain(of_shells).chain(of_hooks).chain(of_make).collect();
    for policy in [ChildEnvironment::Scrub, ChildEnvironment::Inherit] {
        let bench = Bench::with(|settings| {
            own(settings);
            settings.commands.child_environment = policy;
            let more = names.iter().map(|name| (name.into(), "/elsewhere".into()));
            settings.environment.extend(more);
        });
        let seen = seen(&bench).await;
        for name in &names {
            let is_elsewhere = seen.get(*name).is_some_and(|value| value == "/elsewhere");
            assert!(!is_elsewhere, "{name} is seen: {policy:?}");
        }
    }
}

/// Git fails when its settings are there in part.
#[tokio::test]
async fn git_config_variables_are_kept_or_dropped_together() {
    let settings_of = |header: &'static str| {
        [
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "http.extraheader"),
            ("GIT_CONFIG_VALUE_0", header),
        ]
    };
    for (header, there) in [("X-Build: 12", true), ("AUTHORIZATION: basic eDp5ejEyMzQ1Ng==", false)]
    {
        let bench = Bench::with(|settings| {
            own(settings);
            let more = settings_of(header).map(|(name, value)| (name.into(), value.into()));
            settings.environment.extend(more);
        });
        let seen = seen(&bench).await;
        let value = |name: &str| seen.get(name).map(String::as_str);
        let keys = ["GIT_CONFIG_KEY_0", "GIT_CONFIG_KEY_1", "GIT_CONFIG_KEY_2"].map(value);
        // What git would do in the background would be stopped with the command.
        let own = [Some("gc.autoDetach"), Some("maintenance.autoDetach"), None];
        if there {
            assert_eq!(keys, [Some("http.extraheader"), own[0], own[1]], "{header}");
            assert_eq!(
                [value("GIT_CONFIG_COUNT"), value("GIT_CONFIG_VALUE_0")],
                [Some("3"), Some(header)]
            );
        } else {
            assert_eq!(keys, own, "{header}");
            assert_eq!(value("GIT_CONFIG_COUNT"), Some("2"));
        }
    }
}

/// The flag outranks what is dropped for commands in other repositories.
#[tokio::test]
async fn variables_of_a_repository_reach_commands_by_name() {
    for policy in [ChildEnvironment::Scrub, ChildEnvironment::Inherit] {
        let bench = Bench::with(|settings| {
            own(settings);
            settings.commands.child_environment = policy;
            settings.commands.pass_env = ["GIT_INDEX_FILE", "BASH_ENV"].map(Into::into).to_vec();
            let more = ["GIT_INDEX_FILE", "GIT_DIR", "BASH_ENV", "MAKEFLAGS"];
            settings.environment.extend(more.map(|name| (name.into(), "/elsewhere".into())));
        });
        let seen = seen(&bench).await;
        let is_seen = ["GIT_INDEX_FILE", "GIT_DIR", "BASH_ENV"].map(|name| seen.contains_key(name));
        assert_eq!(is_seen, [true, false, false], "{policy:?}");
        // Outside of a recipe of make, its flags are a choice of the user.
        assert!(seen.contains_key("MAKEFLAGS"), "{policy:?}");
    }
}

#[tokio::test]
async fn inheriting_the_environment_still_hides_the_models_credentials() {
    let bench = Bench::with(|settings| {
        own(settings);
        settings.commands.child_environment = ChildEnvironment::Inherit;
    });
    let seen = seen(&bench).await;
    for name in SECRETS {
        assert!(seen.contains_key(name), "{name} is missing");
    }
    for name in CREDENTIALS {
        assert!(!seen.contains_key(name), "{name} is seen");
    }
}

#[tokio::test]
async fn an_allow_list_passes_only_what_it_names() {
    let bench = Bench::with(|settings| {
        own(settings);
        settings.commands.child_environment = ChildEnvironment::Allowlist;
        settings.commands.pass_env = vec!["COLORTERM".to_string(), "DB_PASSWORD".to_string()];
    });
    let seen = seen(&bench).await;
    for name in ["PATH", "HOME", "CI", "LC_ALL", "COLORTERM", "DB_PASSWORD", "OUTLAST"] {
        assert!(seen.contains_key(name), "{name} is missing");
    }
    for name in ["FAVOURITE", "KEYBOARD", "NPM_TOKEN", "ANTHROPIC_API_KEY"] {
        assert!(!seen.contains_key(name), "{name} is seen");
    }
}

#[tokio::test]
async fn a_user_defined_git_ssh_command_is_kept() {
    let bench = Bench::with(|settings| {
        own(settings);
        settings.environment.push(("GIT_SSH_COMMAND".into(), "ssh -i key".into()));
    });
    assert_eq!(seen(&bench).await.get("GIT_SSH_COMMAND").unwrap(), "ssh -i key");
}

#[tokio::test]
async fn without_path_commands_are_found_in_default_folders() {
    let bench = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::BypassPermissions;
        settings.environment.clear();
    });
    assert_eq!(text(&bench.bash("basename /a/b").await), "b");
}

/// A work tree with programs of its own under common names, which leave a trace.
fn with_impostors(settings: &mut ToolSettings) {
    settings.permissions.mode = PermissionMode::BypassPermissions;
    let bin = settings.cwd.join("bin");
    for name in ["bash", "sh", "ls"] {
        write_program(&bin.join(name), "#!/bin/sh\ntouch it-ran\n");
    }
}

fn set_path(settings: &mut ToolSettings, path: &str) {
    settings.environment.retain(|(name, _)| name != "PATH");
    settings.environment.push(("PATH".into(), path.into()));
}

#[tokio::test]
async fn relative_path_entries_are_ignored() {
    for path in ["bin:./bin:/usr/bin:/bin:", "bin", ":", "bin:.:/usr/bin:/bin"] {
        let bench = Bench::with(|settings| {
            with_impostors(settings);
            set_path(settings, path);
        });
        let outcome = bench.bash("ls; cd bin; ls").await;
        assert!(!outcome.is_error, "{path}: {outcome:?}");
        assert_eq!(text(&outcome), "bin\nbash\nls\nsh", "{path}");
        let seen = seen(&bench).await;
        assert!(seen["PATH"].split(':').all(|folder| folder.starts_with('/')), "{path}");
    }
}

#[tokio::test]
async fn the_shell_is_never_taken_from_the_work_tree() {
    let bench = Bench::with(|settings| {
        with_impostors(settings);
        let link = settings.cwd.join("link");
        symlink(settings.cwd.join("bin"), &link).expect("a link");
        let bin = settings.cwd.join("bin");
        set_path(settings, &format!("{}:{}:/usr/bin:/bin", bin.display(), link.display()));
    });
    let outcome = bench.bash("echo $0 here").await;
    assert_eq!(text(&outcome), "bash here", "{outcome:?}");
}
