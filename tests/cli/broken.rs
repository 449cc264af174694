//! Broken settings files: each mistake is reported with its file and line, without delay.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo};
use outlast::config::file::parse_text;
use serde_json::{Value, json};

use super::binary_fixture::BinaryFixture;
use crate::support::stopwatch::processor_time;

const USER: &str = "home/.outlast/settings.json";

/// The mistakes that `outlast config` reports, without the folders in front.
fn mistakes(world: &BinaryFixture, flags: &[&str]) -> Vec<String> {
    let ended = world.run(&[&["config", "--json", "--"], flags].concat());
    let object: Value = serde_json::from_str(&ended.stdout).expect("an object");
    let errors = object["errors"].as_array().expect("a list");
    assert_eq!(ended.code, if errors.is_empty() { 0 } else { 2 }, "{ended:?}");
    let home = world.home().display().to_string();
    let work = world.work().display().to_string();
    let short =
        |error: &Value| error.as_str().expect("text").replace(&home, "~").replace(&work, ".");
    errors.iter().map(short).collect()
}

#[track_caller]
fn are(found: &[String], wanted: &[&str]) {
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(found.starts_with(wanted), "{found:?} does not begin with {wanted:?}");
        assert!(!found.contains('\n') && !found.contains("hush"), "{found}");
    }
}

const MANY: &str = r#"{
  "maxTurns": "ten",
  "permisions": {},
  "maxTurns": 3,
  "wrapUpAt": 1.5,
  "permissions": {
    "allow": ["Read", "Bash(ls"],
    "deny": ["WebFetch", 7, "Read(!x)"],
    "ask": {"x": 1}
  },
  "prices": {"m": {"input": 1}, "n": {"input": "x", "output": 2}, "o": {"input": -1, "output": 1}},
  "env": {"A": "a", "B": 2, "C": {"hush": "hush"}},
  "hooks": {
    "Stop": [{"hooks": [{"type": "command"}, {"type": "command", "command":"x", "timeout": "hush"}]}],
    "PreToolUse": 4
  },
  "trustedProjects": ["/a", "b"],
  "contextWindow": {"m": 5}
}"#;

#[test]
fn every_mistake_in_a_settings_file_is_reported_in_text_order() {
    let world = BinaryFixture::new().file(USER, MANY);
    let wanted = [
        "2:15: \"maxTurns\" takes a whole number, at least 1; found string \"ten\"",
        "3:3: unknown setting \"permisions\"; did you mean \"permissions\"?",
        "4:3: duplicate key \"maxTurns\", which line 2 has already",
        "5:15: \"wrapUpAt\" takes a number above 0 and at most 1; found 1.5",
        "8:26: \"permissions.deny.1\": integer `7`, expected a string",
        "8:29: \"permissions.deny\": `Read(!x)` is not a rule",
        "9:12: \"permissions.ask\" takes a list of permission rules; found map",
        "11:19: \"prices.m\": missing field `output`",
        "11:48: \"prices.n.input\": string \"x\", expected f64",
        "11:72: \"prices\" has no price in US dollars per million tokens for \"o\"",
        "12:34: \"env.C\": map, expected a text",
        "14:25: \"hooks.Stop[0].hooks[0]\": has no command",
        "14:46: \"hooks.Stop[0].hooks[1]\": the timeout is not a number of seconds",
        "15:5: \"hooks.PreToolUse\": must be a list",
        "17:29: \"trustedProjects.1\": \"b\" is not an absolute path",
        "18:26: \"contextWindow\" must be at least 1024 tokens",
    ];
    let wanted: Vec<String> =
        wanted.iter().map(|line| format!("~/.outlast/settings.json:{line}")).collect();
    are(&mistakes(&world, &[]), &wanted.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_run_names_the_first_and_counts_the_others_of_all_files() {
    let world = BinaryFixture::new()
        .file(USER, "{\"maxTurns\": 0, \"fast\": 1}")
        .file("work/.claude/settings.json", "{\n\"fast\": 2}")
        .file("work/.mcp.json", "{\n\n 7");
    let ended = world.run(&["--trust-project", "--output-format", "json", "hi"]);
    assert_eq!(ended.code, 2, "{ended:?}");
    let line = ended.line();
    assert!(line.contains("settings.json:1:14: \"maxTurns\" takes"), "{line}");
    assert!(line.ends_with("(and 3 more: outlast doctor lists them)"), "{line}");
    let errors = ended.result()["errors"].clone();
    assert_eq!(errors.as_array().map(Vec::len), Some(4), "{errors:#}");
    let found = mistakes(&world, &["--trust-project"]);
    let wanted = [
        "~/.outlast/settings.json:1:14: ",
        "~/.outlast/settings.json:1:25: \"fast\" takes true or false; found integer `1`",
        "./.claude/settings.json:2:9: \"fast\" takes",
        "./.mcp.json:3:2: not valid JSON",
    ];
    are(&found, &wanted);
    assert_eq!(mistakes(&world, &["--trust-project", "--strict-mcp-config"]).len(), 3);
    assert_eq!(mistakes(&world, &[]).len(), 2, "mistakes in untrusted files are ignored");
}

#[test]
fn many_mistakes_are_counted() {
    let rules: Vec<Value> = (0..100).map(Value::from).collect();
    let file = json!({ "permissions": { "deny": rules } });
    let found = mistakes(&BinaryFixture::new().file(USER, file.to_string()), &[]);
    assert_eq!(found.len(), 21, "{found:?}");
    assert!(found[20].ends_with("80 more mistakes are not listed; correct these first"));
}

#[test]
fn large_settings_files_are_checked_quickly() {
    let rules: Vec<Value> = (0..3_000).map(Value::from).collect();
    let mut wrong = json!({ "permissions": { "deny": rules } });
    for n in 0..3_000 {
        wrong[format!("key{n}")] = n.into();
    }
    let rules: Vec<String> = (0..3_000).map(|n| format!("Bash(command-{n} *)")).collect();
    let variables = (0..3_000).map(|n| (format!("V{n}"), Value::from(n.to_string())));
    let nested = format!("{}1{}", "[".repeat(100), ",1".repeat(100_000) + &"]".repeat(100));
    let right = format!(
        "{{\"permissions\": {{\"deny\": {}}}, \"statusLine\": {nested}, \"env\": {}}}",
        json!(rules),
        json!(variables.collect::<serde_json::Map<_, _>>())
    );
    for (text, is_right) in [(wrong.to_string(), false), (right, true)] {
        let before = processor_time();
        assert_eq!(parse_text("settings.json", &text).is_ok(), is_right);
        let took = processor_time().saturating_sub(before);
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
}

#[test]
fn settings_files_that_are_not_utf_8_are_described() {
    let wide: Vec<u8> = "\u{feff}{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let deep = format!("{{\"x\": {}", "[".repeat(100_000));
    let rows: [(&[u8], &str); 8] = [
        (b"", "1:1: not valid JSON: the file is empty; write {}, or take it away"),
        (b" \r\n", "2:1: not valid JSON: the file is empty"),
        (&wide, "1:1: this is UTF-16, and not UTF-8; save the file as UTF-8"),
        (b"{\r\n \"fast\": \xe9}", "2:10: not valid UTF-8; save the file as UTF-8"),
        (b"\xef\xbb\xbf{\r\n \"fast\": \"yes\"}", "2:10: \"fast\" takes true or false"),
        (deep.as_bytes(), "1:13"),
        (
            b"{\"maxTurns\": \"5\"}",
            "1:14: \"maxTurns\" takes a whole number, at least 1; found string",
        ),
        (b"{\"fast\": \"\x00\"}", "1:1"),
    ];
    for (content, wanted) in rows {
        let found = mistakes(&BinaryFixture::new().file(USER, content), &[]);
        let wanted = format!("~/.outlast/settings.json:{wanted}");
        are(&found, &[&wanted]);
    }
}

#[test]
fn settings_paths_that_are_not_regular_files_do_not_block() {
    type Make = fn(&Path);
    let rows: [(&str, Make); 6] = [
        ("it is not a regular file", |path| {
            mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
        }),
        ("it is not a regular file", |path| symlink("/dev/zero", path).expect("a link")),
        ("it is not a regular file", |path| fs::create_dir(path).expect("a folder")),
        ("Too many levels of symbolic links", |path| symlink(path, path).expect("a link")),
        ("it is a symbolic link to what does not exist", |path| {
            symlink("dotfiles/settings.json", path).expect("a link");
        }),
        ("Permission denied", |path| {
            fs::write(path, "{}").expect("a file");
            fs::set_permissions(path, fs::Permissions::from_mode(0o0)).expect("ours");
        }),
    ];
    for (why, make) in rows {
        if why == "Permission denied" && Uid::effective().is_root() {
            continue;
        }
        let world = BinaryFixture::new().file("home/.outlast/other", "");
        make(&world.home().join(".outlast/settings.json"));
        let wanted = format!("~/.outlast/settings.json: cannot be read: {why}");
        let found = mistakes(&world, &[]);
        are(&found, &[&wanted]);
        assert!(found[0].contains("; make ") && found[0].ends_with(" away"), "{found:?}");
        let ended = world.run(&["run", "hi"]);
        assert!(ended.code == 2 && ended.line().contains(why), "{ended:?}");
    }
}
