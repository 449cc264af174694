//! Both spellings, both forms, lists, repeats, and the version.

use std::time::{Duration, Instant};

use outlast::cli::args::{self, CliRequest, OutputFormat, RunArgs};
use outlast::cli::version;
use outlast::mcp::ServerAddress;
use outlast::model::ThinkingMode;
use outlast::types::{Effort, PermissionMode};

use super::binary_fixture::BinaryFixture;
use super::settings::resolve;

use crate::support::stopwatch::Stopwatch;

fn parse(words: &[&str]) -> RunArgs {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let request = args::parse(&words).expect("a good command line");
    let CliRequest::Run(run) = request else { panic!("{words:?} became {request:?}") };
    *run
}

#[test]
fn flags_have_two_spellings_and_two_forms() {
    for words in [
        &["--max-turns", "3", "--allowed-tools", "Read", "hi"][..],
        &["--maxTurns", "3", "--allowedTools", "Read", "hi"],
        &["--max-turns=3", "--allowedTools=Read", "hi"],
        &["--maxTurns=3", "hi", "--allowed-tools=Read"],
        &["run", "hi", "--maxTurns=3", "--allowed-tools=Read"],
        &["-p", "--max-turns", "3", "--allowed-tools=Read", "--", "hi"],
    ] {
        let run = parse(words);
        assert_eq!(run.flags.texts("max-turns"), ["3"], "{words:?}");
        assert_eq!(run.flags.texts("allowed-tools"), ["Read"], "{words:?}");
        assert_eq!(run.prompt.as_deref(), Some("hi"), "{words:?}");
    }
}

#[test]
fn text_that_begins_like_a_flag_is_the_prompt_or_the_value_of_the_flag_before_it() {
    for text in [
        "- fix the bug",
        "---\nname: x\n---\nDo it",
        "--version is broken, fix it",
        "-h \t",
        "--a b=c",
    ] {
        for words in [
            &[text, "--max-turns", "3"][..],
            &["-p", text, "--max-turns=3"],
            &["--max-turns", "3", "--verbose", text],
            &["--allowedTools", "Read", text, "--max-turns", "3"],
            &["run", "--max-turns=3", text],
            &["--max-turns", "3", "--", text],
        ] {
            let run = parse(words);
            assert_eq!(run.prompt.as_deref(), Some(text), "{words:?}");
            assert_eq!(run.flags.texts("max-turns"), ["3"], "{words:?}");
        }
        for words in [
            &["hi", "--append-system-prompt", text][..],
            &["--appendSystemPrompt", text, "hi"],
            &["run", "--append-system-prompt", text, "--", "hi"],
        ] {
            let run = parse(words);
            assert_eq!(run.prompt.as_deref(), Some("hi"), "{words:?}");
            assert_eq!(run.model.append_system_prompt.as_deref(), Some(text), "{words:?}");
        }
    }
    let two: Vec<String> = ["- one", "- two"].iter().map(ToString::to_string).collect();
    assert!(args::parse(&two).is_err());
}

#[test]
fn values_are_read_in_the_spellings_of_other_programs() {
    let flags = ["hi", "--permission-mode", "accept-edits", "--effort", "HIGH", "--tools", "*"];
    let flags =
        [&flags[..], &["--output-format", "Stream_JSON", "--thinking", "Disabled"]].concat();
    let user = r#"{"permissions": {"deny": "Read(./a b)", "disableBypassPermissionsMode": true,
        "allow": ["Edit"]}, "onDenied": "FAIL", "sandbox": {"filesystem": {"denyWrite": "/a b"}}}"#;
    let settings = resolve(&flags, &[], user).expect("settings");
    let config = &settings.config;
    assert_eq!(config.permissions.mode, PermissionMode::AcceptEdits);
    assert_eq!(config.reasoning.effort, Some(Effort::High));
    assert_eq!(settings.tools.only, None, "all tools");
    assert_eq!(settings.output.format, OutputFormat::StreamJson);
    assert_eq!(config.reasoning.thinking, ThinkingMode::Off);
    assert_eq!(config.permissions.deny, ["Read(./a b)"]);
    assert_eq!(config.sandbox.deny_write, ["/a b"]);
    let why = resolve(&["hi", "--dangerously-skip-permissions"], &[], user).expect_err("forbidden");
    assert!(why.contains("disableBypassPermissionsMode"), "{why}");
    for user in [r#"{"onDenied": "failed"}"#, r#"{"permissions": {"deny": 7}}"#] {
        resolve(&["hi"], &[], user).expect_err(user);
    }
}

#[test]
fn an_entry_of_a_server_may_name_the_folder_of_the_run() {
    let servers = r#"{"mcpServers": {"s": {"command": "x", "args": ["${CLAUDE_PROJECT_DIR}/a"],
        "envFile": ".env", "includeTools": ["a"]}}}"#;
    let args = |variables: &[(&str, &str)]| {
        let settings =
            resolve(&["hi", "--mcp-config", servers], variables, "{}").expect("settings");
        let warnings = settings.warnings.join("\n") + &settings.mcp.warnings.join("\n");
        for key in ["envFile", "includeTools"] {
            assert!(warnings.contains(&format!("{key:?} of the MCP server")), "{warnings}");
        }
        let ServerAddress::Program { arguments, .. } = &settings.mcp.servers[0].place else {
            panic!("no program")
        };
        (arguments.clone(), settings.cwd.join("a").display().to_string())
    };
    let (arguments, wanted) = args(&[]);
    assert_eq!(arguments, [wanted]);
    assert_eq!(args(&[("CLAUDE_PROJECT_DIR", "/b")]).0, ["/b/a"]);
}

#[test]
fn arguments_sent_by_the_python_sdk_are_accepted() {
    let run = parse(&[
        "--output-format",
        "stream-json",
        "--verbose",
        "--system-prompt",
        "",
        "--tools",
        "",
        "--allowedTools",
        "Read,Bash(git log:*)",
        "--max-turns",
        "3",
        "--max-budget-usd",
        "0.5",
        "--disallowedTools",
        "WebFetch",
        "--model",
        "model-a",
        "--permission-mode",
        "bypassPermissions",
        "--resume=0190a1b2-0000-7000-8000-000000000001",
        "--settings",
        "{}",
        "--add-dir",
        "/a",
        "--add-dir",
        "/b",
        "--include-partial-messages",
        "--fork-session",
        "--setting-sources=",
        "hi",
    ]);
    assert_eq!(run.output.output_format, Some(OutputFormat::StreamJson));
    assert_eq!(run.model.system_prompt.as_deref(), Some(""));
    assert_eq!(run.tools.tools.as_deref(), Some(&[String::new()][..]));
    assert_eq!(run.session.setting_sources.as_deref(), Some(""));
    assert_eq!(run.flags.texts("add-dir").len(), 2);
    assert_eq!(run.flags.texts("permission-mode"), ["bypassPermissions"]);
    assert_eq!(run.prompt.as_deref(), Some("hi"));
}

#[test]
fn lists_of_paths_and_names_end_where_the_prompt_begins() {
    for words in [
        &["--file", "file_a:doc.txt", "file_b:img.png", "fix"][..],
        &["-p", "fix", "--file", "file_a:doc.txt", "file_b:img.png"],
        // No regular files, like the pipes of `<(command)`.
        &["--mcp-config", "/dev/null", "/dev/null", "fix"],
        &["--add-dir", "usr", "bin", "-C", "/", "--", "fix"],
        &["fix", "-C/", "--add-dir", "usr", "bin"],
    ] {
        assert_eq!(parse(words).prompt.as_deref(), Some("fix"), "{words:?}");
    }
}

#[test]
fn a_list_of_rules_ends_where_the_prompt_begins() {
    let run = parse(&["--allowedTools", "Read", "Bash(git log:*)", "mcp__a__b", "Fix the bug"]);
    assert_eq!(run.flags.texts("allowed-tools"), ["Read,Bash(git log:*),mcp__a__b"]);
    assert_eq!(run.prompt.as_deref(), Some("Fix the bug"));
    let run = parse(&["--allowedTools", "Read", "Fix", "--verbose"]);
    assert_eq!(run.prompt.as_deref(), Some("Fix"));
    let run = parse(&["--allowedTools", "Read", "--allowed-tools=Grep", "hi"]);
    assert_eq!(run.flags.texts("allowed-tools"), ["Read", "Grep"]);
}

#[test]
fn the_last_of_two_contradicting_flags_counts() {
    let run = parse(&["--max-turns", "3", "--max-turns=5", "-p", "-p", "hi"]);
    assert_eq!(run.flags.texts("max-turns").last().map(String::as_str), Some("5"));
}

#[test]
fn a_prompt_after_the_separator_may_look_like_a_flag() {
    assert_eq!(parse(&["-p", "rehearse"]).prompt.as_deref(), Some("rehearse"));
    assert_eq!(parse(&["--", "--max-turns"]).prompt.as_deref(), Some("--max-turns"));
    assert_eq!(parse(&["--", "-1"]).prompt.as_deref(), Some("-1"));
    assert_eq!(parse(&["-"]).prompt.as_deref(), Some("-"));
}

#[test]
fn the_version_is_quick_and_has_its_exact_form() {
    let world = BinaryFixture::new();
    let watch = Stopwatch::start();
    let quickest = (0..5)
        .map(|_| {
            let begun = tokio_now();
            for flag in ["-V", "--version", "version"] {
                let ended = world.run(&[flag]);
                let head = format!("{} (outlast) commit ", env!("CARGO_PKG_VERSION"));
                let rest = ended.stdout.strip_prefix(&head).expect("it begins with the version");
                let commit = rest.strip_suffix(", schema 1\n").expect("it ends with the schema");
                assert_eq!(commit, version::COMMIT);
                assert_eq!(ended.code, 0);
                assert_eq!(ended.stderr, "");
            }
            begun.elapsed() / 3
        })
        .min()
        .unwrap();
    let most = watch.scaled_bound(Duration::from_millis(50));
    assert!(quickest < most, "{quickest:?} of {most:?}");
    // SDKs compare this number, whatever the program's name.
    let of_interface = format!("{} (outlast ", version::REFERENCE_VERSION);
    assert!(world.run(&["-v"]).stdout.starts_with(&of_interface));
}

fn tokio_now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[test]
fn help_is_grouped_and_fits_a_few_screens() {
    for args in [&["--help"][..], &["run", "--help"], &["rehearse", "--help"], &["help"]] {
        let ended = BinaryFixture::new().run(args);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{args:?}");
        assert!(ended.stdout.lines().count() < 220, "{args:?}");
    }
    let help = BinaryFixture::new().run(&["--help"]).stdout;
    for part in ["Limits:", "Tools and permissions:", "--max-turns <N>", "rehearse"] {
        assert!(help.contains(part), "{part}");
    }
}
