//! The paths of calls as hooks and rules see them: absolute, and where the tool itself would go.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use outlast::tools::{PermissionMode, ToolRefusal};
use serde_json::{Value, json};

use super::bench::{Bench, call, text};

/// Each tool with a path, the field that names it, and an input without it.
fn tools() -> [(&'static str, &'static str, Value); 5] {
    [
        ("Read", "file_path", json!({})),
        ("Write", "file_path", json!({ "content": "x" })),
        ("Edit", "file_path", json!({ "old_string": "a", "new_string": "b" })),
        ("Glob", "path", json!({ "pattern": "*.txt" })),
        ("Grep", "path", json!({ "pattern": "x" })),
    ]
}

fn resolved(bench: &Bench, tool: &str, input: Value) -> Value {
    bench.toolbox.prepare(call(tool, input)).call().input.clone()
}

#[test]
fn every_path_notation_reaches_hooks_as_the_absolute_path_the_tool_uses() {
    let bench = Bench::open();
    bench.file("secrets/k.txt", "key");
    fs::create_dir_all(bench.cwd.join("sub/deep")).expect("folders");
    symlink("sub/deep", bench.cwd.join("link")).expect("a link");
    symlink("secrets/k.txt", bench.cwd.join("alias")).expect("a link");
    let (cwd, home) = (bench.cwd.display().to_string(), bench.outside().join("home"));
    let home = home.display().to_string();
    let wanted = format!("{cwd}/secrets/k.txt");
    let rows = [
        ("secrets/k.txt".to_owned(), wanted.clone()),
        ("./secrets/k.txt".to_owned(), wanted.clone()),
        ("./secrets/../secrets//k.txt".to_owned(), wanted.clone()),
        ("nowhere/../secrets/./k.txt".to_owned(), wanted.clone()),
        (wanted.clone(), wanted.clone()),
        (format!("{cwd}/../work/secrets/k.txt"), wanted.clone()),
        (format!("/..{wanted}"), wanted.clone()),
        ("~/../work/secrets/k.txt".to_owned(), wanted.clone()),
        ("~/k.txt".to_owned(), format!("{home}/k.txt")),
        ("~".to_owned(), home),
        ("~other/k.txt".to_owned(), format!("{cwd}/~other/k.txt")),
        (".".to_owned(), cwd.clone()),
        // A link stays as it is written, and `..` behind one leads up from where it leads.
        ("alias".to_owned(), format!("{cwd}/alias")),
        ("link/x".to_owned(), format!("{cwd}/link/x")),
        ("link/../x".to_owned(), format!("{cwd}/sub/x")),
        ("link/../../secrets/k.txt".to_owned(), wanted.clone()),
        ("sub/../secrets/new/name".to_owned(), format!("{cwd}/secrets/new/name")),
    ];
    for (tool, field, input) in tools() {
        for (written, wanted) in &rows {
            let mut given = input.clone();
            given[field] = json!(written);
            let seen = resolved(&bench, tool, given.clone());
            given[field] = json!(wanted);
            assert_eq!(seen, given, "{tool} {written}");
            assert_eq!(resolved(&bench, tool, seen.clone()), seen, "{tool} {written}: again");
        }
    }
}

#[test]
fn a_search_without_a_path_reports_its_default_folder() {
    let bench = Bench::open();
    let cwd = bench.cwd.display().to_string();
    let rows = [
        ("Grep", json!({ "pattern": "x" }), cwd.clone()),
        ("Grep", json!({ "pattern": "x", "path": null }), cwd.clone()),
        ("Glob", json!({ "pattern": "*.rs" }), cwd.clone()),
        ("Glob", json!({ "pattern": format!("{cwd}/a/../b/*.rs") }), format!("{cwd}/b")),
    ];
    for (tool, input, wanted) in rows {
        assert_eq!(resolved(&bench, tool, input.clone())["path"], wanted, "{tool} {input}");
    }
}

#[test]
fn inputs_without_a_valid_path_are_left_unchanged() {
    let bench = Bench::open();
    let rows = [
        ("Bash", json!({ "command": "cat secrets/k.txt" })),
        ("mcp__files__read", json!({ "file_path": "secrets/k.txt", "path": "a/../b" })),
        ("Read", json!({ "file_path": [7] })),
        ("Read", json!({ "file_path": "a\0b" })),
        ("Read", json!({ "target": "a/../b" })),
        ("Grep", json!({ "pattern": "a(?<=b", "path": "a/../b" })),
    ];
    for (tool, input) in rows {
        assert_eq!(resolved(&bench, tool, input.clone()), input, "{tool} {input}");
    }
    let long = format!("{}x", "./".repeat(3_000));
    let refusal = bench.toolbox.admit(&call("Read", json!({ "file_path": long })));
    let Err(ToolRefusal::Invalid(outcome)) = refusal else { panic!("{refusal:?}") };
    assert!(text(&outcome).contains("longer than 4096 bytes"), "{}", text(&outcome));
}

#[test]
fn a_symbolic_link_also_has_its_resolved_path() {
    let bench = Bench::open();
    let target = bench.file("secrets/k.txt", "key").display().to_string();
    symlink("secrets/k.txt", bench.cwd.join("alias")).expect("a link");
    symlink("secrets", bench.cwd.join("folder")).expect("a link");
    for (tool, field, mut input) in tools() {
        for (written, wanted) in [
            ("alias", Some(target.clone())),
            ("folder/k.txt", Some(target.clone())),
            ("secrets/k.txt", None),
            ("secrets/new.txt", None),
        ] {
            input[field] = json!(written);
            let prepared = bench.toolbox.prepare(call(tool, input.clone()));
            let real = bench.toolbox.with_real_path(&prepared);
            let real =
                real.map(|real| real.call().input[field].as_str().unwrap_or_default().to_owned());
            assert_eq!(real, wanted, "{tool} {written}");
        }
    }
}

#[tokio::test]
async fn a_relative_path_is_resolved_in_the_shells_working_directory() {
    let bench = Bench::open();
    bench.file("secrets/k.txt", "key");
    bench.run("Bash", json!({ "command": "cd secrets", "description": "Go" })).await;
    let seen = resolved(&bench, "Read", json!({ "file_path": "k.txt" }));
    assert_eq!(seen["file_path"], bench.cwd.join("secrets/k.txt").display().to_string());
    let seen = resolved(&bench, "Grep", json!({ "pattern": "x" }));
    assert_eq!(seen["path"], bench.cwd.join("secrets").display().to_string());
}

/// A home folder `hl` that is a link, `data` beside it that is one, and the answers to reads of
/// paths beside the working directory.
fn answers(allow: &[&str], deny: &[&str], paths: &[&str]) -> Vec<bool> {
    let mut root = String::new();
    let bench = Bench::with(|settings| {
        let outside = settings.cwd.parent().expect("it is in a folder").to_path_buf();
        fs::create_dir_all(outside.join("real/u/notes")).expect("folders");
        fs::create_dir_all(outside.join("shared")).expect("a folder");
        fs::set_permissions(outside.join("shared"), Permissions::from_mode(0o777)).expect("ours");
        for (link, target) in [
            ("hl", "real/u"),
            ("data", "real/u/notes"),
            ("shared/data", "../real/u/notes"),
            ("work/data", "../real/u/notes"),
            ("real/u/data", "notes"),
        ] {
            symlink(target, outside.join(link)).expect("a link");
        }
        fs::write(outside.join("real/u/notes/n.txt"), "x").expect("a file");
        root = outside.display().to_string();
        let rules = |rules: &[&str]| -> Vec<String> {
            rules.iter().map(|rule| rule.replace('@', &format!("/{root}"))).collect()
        };
        settings.home = Some(outside.join("hl"));
        (settings.permissions.allow, settings.permissions.deny) = (rules(allow), rules(deny));
        if allow.is_empty() {
            settings.permissions.mode = PermissionMode::BypassPermissions;
        }
    });
    let read = |path: &&str| {
        let path = path.replace('@', &root);
        bench.toolbox.admit(&call("Read", json!({ "file_path": path }))).is_ok()
    };
    paths.iter().map(read).collect()
}

#[test]
fn a_deny_rule_holds_where_its_own_links_lead() {
    let paths = ["@/hl/notes/n.txt", "@/real/u/notes/n.txt", "@/data/n.txt", "~/notes/n.txt"];
    for rule in [
        "Read(~/notes/**)",
        "Read(~/notes/*.txt)",
        "Read(~/notes/n.txt)",
        "Read(@/hl/notes/**)",
        "Read(@/data/**)",
        "Read(./data/*.txt)",
    ] {
        assert_eq!(answers(&[], &[rule], &paths), [false; 4], "{rule}");
        let real = ["Read(@/real/u/**)"];
        assert_eq!(answers(&real, &[rule], &paths), [false; 4], "{rule}");
    }
    assert_eq!(answers(&[], &["Read(~/notes2/**)"], &paths), [true; 4]);
}

#[test]
fn an_allow_rule_follows_its_own_links_only_where_no_command_can_make_them() {
    let paths = ["@/hl/notes/n.txt", "@/real/u/notes/n.txt", "@/real/u/x"];
    for rule in ["Read(~/notes/**)", "Read(@/hl/notes/**)", "Read(@/real/u/notes/*)"] {
        assert_eq!(answers(&[rule], &[], &paths), [true, true, false], "{rule}");
    }
    let outer = ["@/data/n.txt", "@/real/u/notes/n.txt"];
    assert_eq!(answers(&["Read(@/data/**)"], &[], &outer), [true; 2]);
    for rule in ["Read(./data/**)", "Read(@/shared/data/**)", "Read(~/data/**)"] {
        let inner = ["data/n.txt", "@/shared/data/n.txt", "~/data/n.txt", "@/real/u/notes/n.txt"];
        assert_eq!(answers(&[rule], &[], &inner), [false; 4], "{rule}");
    }
}

#[test]
fn an_allow_rule_covers_the_working_directory_by_a_path_with_a_link_above_it() {
    let bench = Bench::with(|settings| settings.permissions.allow = vec!["Edit(src/**)".into()]);
    symlink(&bench.cwd, bench.outside().join("link")).expect("a link");
    bench.file("src/a.txt", "x");
    bench.file("b.txt", "x");
    symlink("src/a.txt", bench.cwd.join("alias")).expect("a link");
    symlink("../b.txt", bench.cwd.join("src/out")).expect("a link");
    let folder = bench.outside().join("link").display().to_string();
    for (path, wanted) in [
        ("src/a.txt", true),
        ("src/new/b.txt", true),
        ("b.txt", false),
        ("alias", false),
        ("src/out", false),
    ] {
        let input = json!({ "file_path": format!("{folder}/{path}"), "content": "y" });
        assert_eq!(bench.toolbox.admit(&call("Write", input)).is_ok(), wanted, "{path}");
    }
}
