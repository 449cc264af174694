//! Finding files, and what is in them.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, PATIENCE, assert_fails_with, text};

use crate::support::stopwatch::Stopwatch;

fn tree() -> Bench {
    let bench = Bench::with(|_| {});
    bench.file(".gitignore", "target/\n*.log\n");
    bench.file("src/main.rs", "fn main() {\n    run();\n}\n");
    bench.file("src/lib/run.rs", "pub fn run() {}\n\n\n// Run it.\n");
    bench.file("web/app.ts", "run()\n");
    bench.file("web/app.tsx", "nothing\n");
    bench.file(".github/ci.yml", "run: cargo test\n");
    bench.file("target/debug/out.rs", "run\n");
    bench.file("noise.log", "run\n");
    bench.file(".git/HEAD", "run\n");
    bench.file("data.bin", b"run\0run\n");
    bench
}

fn sorted(shown: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = shown.lines().collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn globs_find_names_and_skip_what_is_ignored() {
    let bench = tree();
    let table: [(serde_json::Value, &[&str]); 10] = [
        (json!({ "pattern": "**/*.rs" }), &["src/lib/run.rs", "src/main.rs"]),
        (json!({ "pattern": "*.rs" }), &["src/lib/run.rs", "src/main.rs"]),
        (json!({ "pattern": "src/*.rs" }), &["src/main.rs"]),
        (json!({ "pattern": "./src/*.rs" }), &["src/main.rs"]),
        (json!({ "pattern": "*.rs", "path": "src/lib" }), &["src/lib/run.rs"]),
        (json!({ "pattern": "web/*.{ts,tsx}" }), &["web/app.ts", "web/app.tsx"]),
        (json!({ "pattern": "*.yml" }), &[".github/ci.yml"]),
        (json!({ "pattern": "target/*/*.rs" }), &["target/debug/out.rs"]),
        (json!({ "pattern": "noise.log" }), &["noise.log"]),
        (
            json!({ "pattern": "*.log" }),
            &[
                "No files found",
                "[left out, as .gitignore or its like says: noise.log, target/; give one as path \
                 to search it]",
            ],
        ),
    ];
    for (input, expected) in table {
        let outcome = bench.run("Glob", input.clone()).await;
        assert_eq!(sorted(&text(&outcome)), expected, "{input}");
    }
    let absolute = format!("{}/src/**/*.rs", bench.cwd.display());
    let outcome = bench.run("Glob", json!({ "pattern": absolute })).await;
    assert_eq!(sorted(&text(&outcome)), ["src/lib/run.rs", "src/main.rs"]);
    assert_fails_with(
        &bench.run("Glob", json!({ "pattern": "*", "path": "none" })).await,
        "not a folder",
    );
    assert_fails_with(&bench.run("Glob", json!({ "pattern": "/etc/*" })).await, "outside");
}

#[tokio::test]
async fn ignore_files_apply_outside_repositories_too() {
    let bench = Bench::open();
    bench.file(".gitignore", "made/\n");
    bench.file("made/a.rs", "x\n");
    bench.file("b.rs", "x\n");
    assert_eq!(text(&bench.run("Glob", json!({ "pattern": "*.rs" })).await), "b.rs");
    assert_eq!(text(&bench.run("Grep", json!({ "pattern": "x" })).await), "b.rs");
}

#[tokio::test]
async fn the_newest_hundred_files_are_shown() {
    let bench = Bench::open();
    let now = SystemTime::now();
    for number in 0..150_u64 {
        let path = bench.file(&format!("f{number:03}"), "");
        let age = Duration::from_secs(number * 10);
        fs::File::options().write(true).open(path).unwrap().set_modified(now - age).unwrap();
    }
    let outcome = bench.run("Glob", json!({ "pattern": "f*" })).await;
    let shown = text(&outcome);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!((lines[0], lines[99]), ("f000", "f099"));
    assert_eq!(lines[100..], ["[50 more files match; use a narrower pattern]"]);
    assert_eq!(outcome.detail["numFiles"], 150);
    assert!(outcome.detail["durationMs"].is_u64(), "{}", outcome.detail);
}

#[tokio::test]
async fn grep_has_three_output_modes() {
    let bench = tree();
    let grep = |input: serde_json::Value| bench.run("Grep", input);
    assert_eq!(
        text(&grep(json!({ "pattern": "run" })).await),
        ".github/ci.yml\ndata.bin\nsrc/lib/run.rs\nsrc/main.rs\nweb/app.ts"
    );
    for (mode, names) in
        [("files_with_matches", json!(["src/lib/run.rs", "src/main.rs"])), ("count", json!([]))]
    {
        let input = json!({ "pattern": "run", "output_mode": mode, "path": "src" });
        assert_eq!(grep(input).await.detail["filenames"], names);
    }
    assert_eq!(
        text(&grep(json!({ "pattern": "run", "output_mode": "content", "path": "src" })).await),
        "src/lib/run.rs:1:pub fn run() {}\nsrc/main.rs:2:    run();"
    );
    assert_eq!(
        text(&grep(json!({ "pattern": "run", "output_mode": "count", "-i": true })).await),
        ".github/ci.yml:1\ndata.bin:1\nsrc/lib/run.rs:2\nsrc/main.rs:1\nweb/app.ts:1"
    );
    let gnu = text(&grep(json!({ "pattern": r"\(zebra\|run\)", "path": "web" })).await);
    assert!(
        gnu.starts_with("web/app.ts\n[nothing matches") && gnu.ends_with("(zebra|run)]"),
        "{gnu}"
    );
    let plain = text(&grep(json!({ "pattern": r"run\(1\)", "path": "web" })).await);
    assert!(plain.starts_with("No matches found\n[with a backslash"), "{plain}");
    let nothing = text(&grep(json!({ "pattern": "zebra" })).await);
    assert!(nothing.starts_with("No matches found\n[left out"), "{nothing}");
    let nothing = text(&grep(json!({ "pattern": "zebra", "path": "src" })).await);
    assert_eq!(nothing, "No matches found");
}

#[tokio::test]
async fn grep_narrows_by_glob_type_and_file() {
    let bench = tree();
    let files = async |input: serde_json::Value| text(&bench.run("Grep", input).await);
    assert_eq!(files(json!({ "pattern": "run", "glob": "*.{ts,tsx}" })).await, "web/app.ts");
    assert_eq!(
        files(json!({ "pattern": "run", "type": "rust" })).await,
        "src/lib/run.rs\nsrc/main.rs"
    );
    assert_eq!(files(json!({ "pattern": "run", "path": "web/app.ts" })).await, "web/app.ts");
    assert_eq!(
        files(json!({ "pattern": "run", "glob": "!src/**" })).await,
        ".github/ci.yml\ndata.bin\nweb/app.ts"
    );
    assert!(files(json!({ "pattern": "x", "path": "none" })).await.contains("does not exist"));
}

#[tokio::test]
async fn grep_shows_context_and_spans_lines() {
    let bench = Bench::open();
    bench.file("a", "1\n2\nhit\n4\n5\n6\n7\nhit\n9\n");
    let grep = async |input: serde_json::Value| text(&bench.run("Grep", input).await);
    assert_eq!(
        grep(json!({ "pattern": "hit", "output_mode": "content", "-C": 1 })).await,
        "a-2-2\na:3:hit\na-4-4\n--\na-7-7\na:8:hit\na-9-9"
    );
    assert_eq!(
        grep(json!({ "pattern": "hit", "output_mode": "content", "-A": 1, "-n": false })).await,
        "a:hit\na-4\n--\na:hit\na-9"
    );
    assert_eq!(
        grep(json!({ "pattern": "2.hit", "output_mode": "content", "multiline": true })).await,
        "a:2:2\na:3:hit"
    );
    assert_eq!(grep(json!({ "pattern": "2.hit" })).await, "No matches found");
    assert_eq!(grep(json!({ "pattern": "^hit$", "output_mode": "count" })).await, "a:2");
}

#[tokio::test]
async fn grep_output_is_bounded() {
    let bench = Bench::open();
    bench.file("many", "x\n".repeat(1_000));
    let grep = async |input: serde_json::Value| text(&bench.run("Grep", input).await);
    let shown = grep(json!({ "pattern": "x", "output_mode": "content" })).await;
    assert_eq!(shown.lines().count(), 251);
    assert!(shown.ends_with("[there is more; narrow the search or raise head_limit]"));
    let shown = grep(json!({ "pattern": "x", "output_mode": "content", "head_limit": 3 })).await;
    assert_eq!(shown.lines().count(), 4);
    let shown = grep(json!({ "pattern": "x", "output_mode": "content", "head_limit": 0 })).await;
    assert_eq!(shown.lines().count(), 1_000);
    bench.file("wide", format!("{}\n", "y".repeat(100_000)).repeat(100));
    let shown = grep(json!({ "pattern": "y", "output_mode": "content", "head_limit": 0 })).await;
    assert!(shown.chars().count() < 30_200, "{}", shown.chars().count());
    assert!(shown.chars().count() > 29_000, "{}", shown.chars().count());
    assert!(shown.ends_with("[there is more; narrow the search or raise head_limit]"));
    assert!(shown.lines().next().unwrap().len() < 600);
}

/// More files than one thread searches at a time.
#[tokio::test]
async fn files_that_are_searched_in_parallel_are_shown_in_the_order_of_their_names() {
    let bench = Bench::open();
    let name = |number: usize| format!("{number:03}.txt");
    for number in 0..300 {
        let content = if number % 7 == 0 { "nothing" } else { "a needle\nanother needle" };
        bench.file(&name(number), content);
    }
    let grep = async |input: serde_json::Value| text(&bench.run("Grep", input).await);
    let expected: Vec<String> = (0..300).filter(|number| number % 7 != 0).map(name).collect();
    let all = json!({ "pattern": "needle", "head_limit": 0 });
    assert_eq!(grep(all).await.lines().collect::<Vec<_>>(), expected);
    let lines = json!({ "pattern": "needle", "output_mode": "content", "head_limit": 401 });
    let shown = grep(lines).await;
    let mut shown: Vec<&str> = shown.lines().collect();
    assert_eq!(shown.pop(), Some("[there is more; narrow the search or raise head_limit]"));
    let both = |name: &String| [format!("{name}:1:a needle"), format!("{name}:2:another needle")];
    let expected: Vec<String> = expected.iter().flat_map(both).take(401).collect();
    assert_eq!(shown, expected);
    let count = json!({ "pattern": "needle", "output_mode": "count", "head_limit": 0 });
    assert_eq!(grep(count).await.lines().count(), 257);
}

#[tokio::test]
async fn grep_shows_the_match_in_a_long_line() {
    let bench = Bench::open();
    let (before, after) = ("x".repeat(3_000), "y".repeat(3_000));
    bench.file("min.js", format!("{before}needle{after}\nneedle at once{after}\n"));
    bench.file("bar.log", "10%\r50%\rneedle\n");
    let grep = async |input: serde_json::Value| text(&bench.run("Grep", input).await);
    let shown =
        grep(json!({ "pattern": "needle", "output_mode": "content", "path": "min.js" })).await;
    let lines: Vec<&str> = shown.lines().collect();
    let around = format!("{}needle{}", "x".repeat(100), "y".repeat(394));
    assert_eq!(lines[0], format!("min.js:1:[…]{around}[…]"));
    assert!(lines[1].starts_with("min.js:2:needle at once"), "{shown}");
    let shown = grep(json!({ "pattern": "needle", "output_mode": "content", "glob": "*.log" }));
    assert_eq!(shown.await, "bar.log:1:10%\r50%\rneedle");
    bench.file("wide", format!("{}\n", "é".repeat(700)));
    let shown = grep(json!({ "pattern": "(?s)needle.{3000}\ny*needle", "multiline": true,
        "output_mode": "content" }));
    assert!(shown.await.starts_with("min.js:1:[…]"), "the first line of the match");
}

#[tokio::test]
async fn grep_searches_text_in_any_encoding_and_with_any_line_ends() {
    let bench = Bench::open();
    bench.file("sep.ts", b"const TOKEN = 1;\nconst sep = \"\0\";\n");
    bench.file("wide.rc", b"\xff\xfeT\0O\0K\0E\0N\0\r\0\n\0");
    bench.file("cp1251.txt", b"TOKEN \xcf\xf0\xe8\xe2\xe5\xf2 \xec\xe8\xf0\n");
    bench.file("old.txt", "a\rTOKEN\rb\r");
    bench.file("bom.cs", "\u{feff}TOKEN;\r\nend\r\n");
    bench.file("two.css", "/*\r\n*/\r\nint x;\r\n");
    let content = |pattern: &str| json!({ "pattern": pattern, "output_mode": "content" });
    let grep = async |input: serde_json::Value| text(&bench.run("Grep", input).await);
    let expected = "bom.cs:1:TOKEN;\ncp1251.txt:1:TOKEN Привет мир\nold.txt:2:TOKEN\n\
                    sep.ts:1:const TOKEN = 1;\nwide.rc:1:TOKEN";
    assert_eq!(grep(content("TOKEN")).await, expected);
    assert_eq!(grep(content("int x")).await, "two.css:3:int x;");
    assert_eq!(grep(content("Привет")).await, "cp1251.txt:1:TOKEN Привет мир");
    assert_eq!(
        grep(content("^TOKEN;?$")).await,
        "bom.cs:1:TOKEN;\nold.txt:2:TOKEN\nwide.rc:1:TOKEN"
    );
    assert_eq!(grep(json!({ "pattern": r"\r$" })).await, "bom.cs\nold.txt\ntwo.css\nwide.rc");
    assert_eq!(grep(content("sep")).await, "sep.ts:2:const sep = \"\u{2400}\";");
}

#[tokio::test]
async fn binary_files_are_searched_up_to_a_bound() {
    let bench = Bench::open();
    let binary = |text: &str| [&b"\x7fELF\0\0\0\x01\x02"[..], text.as_bytes(), b"\0\0"].concat();
    bench.file("a.txt", "TOKEN\n");
    bench.file("one.bin", binary("TOKEN"));
    let mut large = binary("other");
    large.resize(5 << 20, 0);
    large.extend(b"TOKEN");
    bench.file("two.bin", large);
    let grep = async |input: serde_json::Value| text(&bench.run("Grep", input).await);
    let bound = "[1 binary files are longer than the 4 MB that are searched of one]";
    assert_eq!(
        grep(json!({ "pattern": "TOKEN" })).await,
        format!(
            "a.txt\n[matches also in binary files: one.bin; give one as path to see its lines]\n\
             {bound}"
        )
    );
    let shown = grep(json!({ "pattern": "TOKEN", "path": "one.bin", "output_mode": "content" }));
    let shown = shown.await;
    assert!(shown.contains(":TOKEN\n[one.bin is a binary file]"), "{shown}");
    let shown = grep(json!({ "pattern": "TOKEN", "path": "two.bin" })).await;
    assert_eq!(shown, format!("No matches found\n{bound}"));
}

#[tokio::test]
async fn patterns_find_what_they_name() {
    let bench = Bench::with(|_| {});
    for name in [
        "app/[slug]/page.tsx",
        "{type}/x.tsx",
        "a b/c.ts",
        "lib/x.ts",
        "sub/y.ts",
        "#x.ts",
        "b\\s.txt",
    ] {
        bench.file(name, "export\n");
    }
    std::os::unix::fs::symlink("lib", bench.cwd.join("link")).expect("a link");
    let cwd = bench.cwd.display().to_string();
    let glob = async |pattern: &str, path: &str| {
        text(&bench.run("Glob", json!({ "pattern": pattern, "path": path })).await)
    };
    let grep = async |pattern: &str, path: &str| {
        let input = json!({ "pattern": "export", "glob": pattern, "path": path });
        text(&bench.run("Grep", input).await)
    };
    let rows = [
        ("app/[slug]/*.tsx", ".", "app/[slug]/page.tsx"),
        ("app/[slug]/page.tsx", ".", "app/[slug]/page.tsx"),
        ("**/[slug]/page.tsx", ".", "app/[slug]/page.tsx"),
        ("{type}/*.tsx", ".", "{type}/x.tsx"),
        ("x.ts,y.ts", ".", "lib/x.ts\nsub/y.ts"),
        ("lib/*.ts,sub/*.ts", ".", "lib/x.ts\nsub/y.ts"),
        ("../lib/*", "sub", "lib/x.ts"),
        ("../lib/**/*.ts", "sub", "lib/x.ts"),
        ("lib/**/*.ts", "lib", "lib/x.ts"),
        ("app/[slug]/*", "app", "app/[slug]/page.tsx"),
        ("link/*.ts", ".", "link/x.ts"),
        ("a b/*.ts", ".", "a b/c.ts"),
        ("lib/", ".", "lib/x.ts"),
        ("lib", ".", "lib/x.ts"),
        ("app/[slug]", ".", "app/[slug]/page.tsx"),
        ("app/[slug]/", ".", "app/[slug]/page.tsx"),
        ("lib,sub", ".", "lib/x.ts\nsub/y.ts"),
        ("app/*/", ".", "app/[slug]/page.tsx"),
        ("#x.ts", ".", "#x.ts"),
        ("#*", ".", "#x.ts"),
        ("*.none,#x.ts", ".", "#x.ts"),
        ("b\\s.txt", ".", "b\\s.txt"),
    ];
    for (pattern, path, expected) in rows {
        assert_eq!(sorted(&glob(pattern, path).await).join("\n"), expected, "Glob {pattern}");
        assert_eq!(grep(pattern, path).await, expected, "Grep {pattern}");
    }
    let absolute = format!("{cwd}/app/[slug]/page.tsx");
    assert_eq!(glob(&absolute, ".").await, "app/[slug]/page.tsx");
    assert_eq!(grep(&absolute, "sub").await, "app/[slug]/page.tsx");
    assert_eq!(glob("*.ts", "link").await, "link/x.ts");
    assert_eq!(
        glob("nowhere/*.ts", ".").await,
        format!("No files found\n[there is no folder {cwd}/nowhere]")
    );
    std::os::unix::fs::symlink("lib/x.ts", bench.cwd.join("alias.ts")).expect("a link");
    assert_eq!(glob("alias.*", ".").await, "alias.ts");
    let links = "[links are not followed: alias.ts, link; give one as path to search it]";
    assert_eq!(glob("*.rs", ".").await, format!("No files found\n{links}"));
    assert_eq!(grep("lib", ".").await, "lib/x.ts");
    assert_eq!(
        grep("*.rs", ".").await,
        format!("No matches found\n[no file fits the glob or the type]\n{links}")
    );
    assert_fails_with(&bench.run("Glob", json!({ "pattern": "../*" })).await, "outside");
    assert_fails_with(
        &bench.run("Glob", json!({ "pattern": "*/../x" })).await,
        "behind a wildcard",
    );
    let outside = json!({ "pattern": "x", "glob": "../../**/*.ts" });
    assert_fails_with(&bench.run("Grep", outside).await, "outside");
}

#[tokio::test]
async fn patterns_with_look_around_and_references_are_searched_within_bounds() {
    let bench = Bench::with(|_| {});
    bench.file("a.txt", "foo1\nfoobar\nabab\r\n\u{e9} x\n");
    bench.file("b.bin", [&[0; 600][..], b"\xff\x01foo2\xfffoobaz\n"].concat());
    let grep = async |pattern: &str, path: &str| {
        let input = json!({ "pattern": pattern, "path": path, "output_mode": "content" });
        text(&bench.run("Grep", input).await)
    };
    for (pattern, expected) in [
        ("foo(?!bar)", "a.txt:1:foo1"),
        ("(?<=foo)[a-z]+$", "a.txt:2:foobar"),
        (r"(ab)\1$", "a.txt:3:abab"),
        ("(?<=^\u{e9}) x", "a.txt:4:\u{e9} x"),
        (r"foobar\n(?=abab)", "a.txt:2:foobar"),
        ("foo(?=baz)", "No matches found"),
    ] {
        let found = grep(pattern, "a.txt").await;
        assert_eq!(found.lines().next(), Some(expected), "{pattern}: {found}");
    }
    let binary = grep("foo(?=baz)", ".").await;
    assert!(binary.contains("matches also in binary files: b.bin"), "{binary}");
    assert!(grep("foo(?=1", ".").await.contains("pattern is wrong"));
    bench.file("a.txt", "x".repeat(60));
    let endless = grep(r"(x+x+)+\1y", "a.txt").await;
    assert!(endless.contains("[1 files could not be searched]"), "{endless}");
}

/// A project may be called by characters that are special in a pattern.
#[tokio::test]
async fn a_pattern_that_begins_with_the_working_folder_is_searched_there() {
    for name in ["[a]", "*", "{{slug}}", "{a,b}", "[2024] notes", "a?b", "[!x]", "a[b", "a\\b"] {
        let bench = Bench::with(|settings| {
            settings.cwd.push(name);
            std::fs::create_dir(&settings.cwd).expect("a new folder");
        });
        let cwd = bench.cwd.join(name).display().to_string();
        bench.file(&format!("{name}/src/f.ts"), "export\n");
        bench.file(&format!("{name}/src/sub/g.ts"), "export\n");
        for (pattern, expected) in [
            ("/src/*.ts", &["src/f.ts"][..]),
            ("/**/*.ts", &["src/f.ts", "src/sub/g.ts"]),
            ("/*.ts", &[]),
            ("/src/f.ts", &["src/f.ts"]),
            ("/src", &["src/f.ts", "src/sub/g.ts"]),
            ("", &["src/f.ts", "src/sub/g.ts"]),
        ] {
            let pattern = format!("{cwd}{pattern}");
            let inputs = [
                ("Glob", json!({ "pattern": pattern })),
                ("Glob", json!({ "pattern": pattern, "path": "src" })),
                ("Grep", json!({ "pattern": "export", "glob": pattern })),
                ("Grep", json!({ "pattern": "export", "glob": pattern, "path": "src" })),
            ];
            for (tool, input) in inputs {
                let shown = text(&bench.run(tool, input.clone()).await);
                let found = sorted(&shown);
                let found: Vec<_> = found.into_iter().filter(|it| it.contains(".ts")).collect();
                assert_eq!(found, expected, "{tool} {input}: {shown}");
            }
        }
        let input = json!({ "pattern": "export", "path": format!("{cwd}/src/sub") });
        assert_eq!(text(&bench.run("Grep", input).await), "src/sub/g.ts", "{name}");
        let sibling = json!({ "pattern": format!("{cwd}x/*.ts") });
        assert_fails_with(&bench.run("Glob", sibling).await, "outside");
    }
}

#[tokio::test]
async fn ignore_files_of_a_repository_apply_and_an_ignored_folder_can_be_named() {
    let bench = Bench::with(|_| {});
    bench.file(".git/info/exclude", "/private/\n");
    bench.file(".gitignore", "/build/*\nvendor/\n");
    bench.file("private/a.rs", "x\n");
    bench.file("vendor/lib/b.rs", "x\n");
    bench.file("build/out/c.rs", "x\n");
    bench.file("sub/private/d.rs", "x\n");
    let grep = async |path: &str| {
        text(&bench.run("Grep", json!({ "pattern": "x", "glob": "*.rs", "path": path })).await)
    };
    assert_eq!(text(&bench.run("Glob", json!({ "pattern": "*.rs" })).await), "sub/private/d.rs");
    assert_eq!(grep("private").await, "private/a.rs");
    assert_eq!(grep("vendor/lib").await, "vendor/lib/b.rs");
    assert_eq!(grep("build/out").await, "build/out/c.rs");
    let build = text(&bench.run("Glob", json!({ "pattern": "*.rs", "path": "build" })).await);
    assert!(build.contains("says: build/out/;"), "{build}");
    // A linked work tree has them in the repository that it belongs to. Those above do not apply.
    bench.file("main/.git/info/exclude", "hidden.rs\n");
    bench.file("main/.git/worktrees/tree/commondir", "../..\n");
    let git = bench.cwd.join("main/.git/worktrees/tree");
    bench.file("trees/.gitignore", "*\n");
    bench.file("trees/tree/.git", format!("gitdir: {}\n", git.display()));
    bench.file("trees/tree/.gitignore", "built.rs\n");
    for name in ["hidden", "built", "seen"] {
        bench.file(&format!("trees/tree/{name}.rs"), "x\n");
    }
    let tree = text(&bench.run("Glob", json!({ "pattern": "*.rs", "path": "trees/tree" })).await);
    assert_eq!(tree, "trees/tree/seen.rs");
    assert_eq!(text(&bench.run("Glob", json!({ "pattern": "*.rs" })).await), "sub/private/d.rs");
}

#[tokio::test]
async fn a_name_that_is_not_utf_8_can_be_addressed() {
    use std::os::unix::ffi::OsStrExt;

    let bench = Bench::open();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    let path = bench.cwd.join(name);
    fs::write(&path, "needle\n").unwrap();
    let found = text(&bench.run("Glob", json!({ "pattern": "*.txt" })).await);
    assert_eq!(found, "caf\\xE9.txt");
    assert_eq!(text(&bench.run("Glob", json!({ "pattern": found })).await), found);
    assert_eq!(text(&bench.run("Grep", json!({ "pattern": "needle" })).await), found);
    for name in [found.as_str(), "caf\u{fffd}.txt"] {
        let outcome = bench.read(name).await;
        assert_eq!(text(&outcome), "     1\tneedle");
        assert!(outcome.detail["file"]["filePath"].as_str().unwrap().ends_with(&found));
    }
    let edit = json!({ "file_path": found, "old_string": "needle", "new_string": "thread" });
    assert!(!bench.run("Edit", edit).await.is_error);
    let write = json!({ "file_path": found, "content": "new\n" });
    assert!(!bench.run("Write", write).await.is_error);
    assert_eq!(fs::read_to_string(path).unwrap(), "new\n");
    let call = super::bench::call("Read", json!({ "file_path": found }));
    let seen = bench.toolbox.prepare(call);
    assert_eq!(seen.call().input["file_path"], format!("{}/{found}", bench.cwd.display()));
}

#[tokio::test]
async fn a_cancelled_search_returns_at_once_and_stops_its_work() {
    let bench = Bench::open();
    let path = bench.file("file-0", "some text without what is looked for\n".repeat(200_000));
    // One file under many names: searching them all would take minutes.
    for number in 1..5_000 {
        fs::hard_link(&path, bench.cwd.join(format!("file-{number}"))).unwrap();
    }
    let cancel = CancellationToken::new();
    let searching = bench.run_until("Grep", json!({ "pattern": "needle" }), cancel.clone());
    let stopping = async {
        until(|| is_open_below(&bench.cwd)).await;
        cancel.cancel();
        Stopwatch::start()
    };
    let (outcome, stopped) = tokio::join!(searching, stopping);
    stopped.assert_within(Duration::from_millis(500), "the end of the call");
    assert_fails_with(&outcome, "Interrupted by user");
    until(|| !is_open_below(&bench.cwd)).await;
    stopped.assert_within(Duration::from_secs(5), "the end of the search");
}

/// Whether this process has a file below `folder` open.
fn is_open_below(folder: &Path) -> bool {
    let files = fs::read_dir("/proc/self/fd").expect("Linux");
    files
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .any(|target| target.starts_with(folder))
}

async fn until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "it never came to pass");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn searches_skip_files_that_would_block() {
    let fifo = |path: &Path| {
        let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
        nix::unistd::mkfifo(path, mode).expect("a pipe can be made");
    };
    let bench = Bench::with(|_| {});
    for folder in ["piped", "endless", "large", "circular", "exclude/.git/info", "plain"] {
        bench.file(&format!("{folder}/a.rs"), "run\n");
    }
    fifo(&bench.cwd.join("piped/.ignore"));
    std::os::unix::fs::symlink("/dev/zero", bench.cwd.join("endless/.gitignore")).expect("a link");
    std::os::unix::fs::symlink(".ignore", bench.cwd.join("circular/.ignore")).expect("a link");
    fifo(&bench.cwd.join("exclude/.git/info/exclude"));
    fifo(&bench.cwd.join("commondir"));
    bench.file("plain/.git", format!("gitdir: {}\n", bench.cwd.display()));
    let large = fs::File::create(bench.cwd.join("large/.gitignore")).expect("a file");
    large.set_len(8 << 30).expect("a sparse file");
    bench.file("exclude/a.rs", "run\n");
    for (tool, input) in
        [("Glob", json!({ "pattern": "*.rs" })), ("Grep", json!({ "pattern": "run" }))]
    {
        let shown = text(&bench.run(tool, input).await);
        let (found, note) = shown.split_once("\n[").expect("a note");
        assert_eq!(sorted(found), ["circular/a.rs", "exclude/a.rs", "plain/a.rs"], "{tool}");
        assert!(note.contains("not a regular file: 3;"), "{note}");
    }
    let inside = bench.run("Glob", json!({ "pattern": "*.rs", "path": "piped" })).await;
    let inside = text(&inside);
    assert!(inside.starts_with("piped/a.rs\n[ignored files were searched too"), "{inside}");
}

/// The globs of a small file may take a thousand times its size of memory.
#[tokio::test]
async fn folders_whose_ignore_files_have_too_many_wildcards_are_not_searched() {
    let bench = Bench::with(|_| {});
    let lines = |count: usize| format!("?{}\n", "a".repeat(999)).repeat(count);
    // Together, the files of `a` and `a/b` are beyond the limit; each by itself is within it.
    for (folder, ignored) in [
        ("a", lines(40)),
        ("a/b", lines(40)),
        ("beside", lines(40)),
        ("many", lines(80)),
        ("names", format!("{}\n", "a".repeat(4_000)).repeat(100)),
    ] {
        bench.file(&format!("{folder}/kept.rs"), "run\n");
        bench.file(&format!("{folder}/.gitignore"), ignored);
    }
    let shown = text(&bench.run("Glob", json!({ "pattern": "*.rs" })).await);
    let (found, note) = shown.split_once("\n[").expect("a note");
    assert_eq!(sorted(found), ["a/kept.rs", "beside/kept.rs", "names/kept.rs"], "{note}");
    assert!(note.contains("too many wildcards") && note.contains(": 2;"), "{note}");
    let inside = text(&bench.run("Glob", json!({ "pattern": "*.rs", "path": "a/b" })).await);
    assert!(inside.starts_with("a/b/kept.rs\n[ignored files were searched too"), "{inside}");
}
