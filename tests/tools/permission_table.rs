//! The conventions of permissions as one table: `tests/data/permissions.tsv`.
//!
//! Its columns are the mode, the rules (`allow X ;; deny Y`, or `-`), the tool, its command or
//! path, and whether it is allowed. `\n` is a line's end and `\\` a backslash in a here-document's
//! row, `@OUT` the folder around the working directory, `@LONG` too much; `Bash&` runs in the
//! background.

use std::fs;
use std::os::unix::fs::symlink;

use outlast::tools::{PermissionMode, ToolRefusal};
use serde_json::json;

use super::bench::{Bench, call};

const TABLE: &str = include_str!("../data/permissions.tsv");

fn bench(mode: &str, rules: &str) -> Bench {
    let bench = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::parse(mode).expect("a mode");
        let root = settings.cwd.parent().expect("it is in a folder").display().to_string();
        for rule in rules.split(" ;; ").filter(|rule| *rule != "-") {
            let (list, rule) = rule.split_once(' ').expect("a list and a rule");
            let rule = rule.replace("@OUT", &format!("/{root}"));
            match list {
                "allow" => settings.permissions.allow.push(rule),
                "ask" => settings.permissions.ask.push(rule),
                "deny" => settings.permissions.deny.push(rule),
                other => panic!("no list: {other}"),
            }
        }
    });
    bench.file("src/a.rs", "a\n");
    bench.file(".env", "A=1\n");
    fs::create_dir(bench.outside().join("home")).expect("a new folder");
    fs::write(bench.outside().join("secret"), "x").expect("a new file");
    symlink(bench.outside().join("secret"), bench.cwd.join("link-out")).expect("a new link");
    symlink(bench.outside(), bench.cwd.join("folder-out")).expect("a new link");
    symlink("src/a.rs", bench.cwd.join("link-in")).expect("a new link");
    bench
}

fn is_allowed(bench: &Bench, row: &[&str]) -> bool {
    let [_, _, tool, argument, _] = row else { panic!("five columns: {row:?}") };
    let long = "x".repeat(10_000);
    let command = argument.replace("@LONG", &long).replace("\\\\", "\0");
    let command = command.replace("\\n", "\n").replace('\0', "\\");
    let (name, input) = match *tool {
        "Bash" => ("Bash", json!({ "command": command })),
        "Bash&" => ("Bash", json!({ "command": command, "run_in_background": true })),
        "Read" => ("Read", json!({ "file_path": argument })),
        "Write" => ("Write", json!({ "file_path": argument, "content": "x" })),
        "Edit" => ("Edit", json!({ "file_path": argument, "old_string": "a", "new_string": "b" })),
        other => (other, json!({ "pattern": "x", "path": argument })),
    };
    match bench.toolbox.admit(&call(name, input)) {
        Ok(_) => true,
        Err(ToolRefusal::Denied { outcome, reason }) => {
            assert!(outcome.is_error, "{row:?}");
            assert!(!reason.is_empty(), "{row:?}");
            false
        }
        Err(ToolRefusal::Invalid(outcome)) => panic!("{row:?}: {outcome:?}"),
    }
}

#[test]
fn permissions_match_the_table_of_calls() {
    let rows = TABLE.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    let mut rows: Vec<(usize, Vec<&str>)> =
        rows.map(|(at, line)| (at + 1, line.split('\t').collect())).collect();
    // Those with one mode and the same rules share a bench.
    rows.sort_by_key(|(_, row)| (row[0], row[1]));
    assert!(rows.len() >= 1500, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for rows in rows.chunk_by(|(_, one), (_, next)| one[..2] == next[..2]) {
        let bench = bench(rows[0].1[0], rows[0].1[1]);
        let odd = |row: &[&str]| is_allowed(&bench, row) != (row.last() == Some(&"yes"));
        let odd = rows.iter().filter(|(_, row)| odd(row));
        wrong.extend(odd.map(|(line, row)| format!("line {line}: {}", row.join(" | "))));
    }
    assert!(wrong.is_empty(), "{} rows are judged otherwise\n{}", wrong.len(), wrong.join("\n"));
}
