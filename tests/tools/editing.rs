//! Changing files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use outlast::tools::{AgentDefinition, ToolOutcome};
use rustix::buffer::spare_capacity;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, assert_fails_with, call, run_call, text};

async fn write(bench: &Bench, path: &str, content: &str) -> ToolOutcome {
    bench.run("Write", json!({ "file_path": path, "content": content })).await
}

async fn edit(bench: &Bench, path: &str, old: &str, new: &str) -> ToolOutcome {
    bench.run("Edit", json!({ "file_path": path, "old_string": old, "new_string": new })).await
}

/// A file that the model has read.
async fn known(bench: &Bench, name: &str, content: &str) {
    bench.file(name, content);
    assert!(!bench.read(name).await.is_error);
}

#[tokio::test]
async fn writing_creates_folders_and_default_permissions() {
    let bench = Bench::open();
    let outcome = write(&bench, "new/deep/a.txt", "hello\n").await;
    assert!(!outcome.is_error, "{outcome:?}");
    assert_eq!(outcome.detail["type"], "create");
    assert_eq!(bench.content("new/deep/a.txt"), "hello\n");
    let plain = bench.file("plain", "");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&bench.cwd.join("new/deep/a.txt")), mode(&plain));
    let left: Vec<_> = fs::read_dir(bench.cwd.join("new/deep")).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing is left beside it");
}

#[tokio::test]
async fn a_file_must_be_read_before_it_is_overwritten() {
    let bench = Bench::open();
    bench.file("a", "old\n");
    assert_fails_with(&write(&bench, "a", "new\n").await, "has not been read yet");
    assert_eq!(bench.content("a"), "old\n");
    bench.read("a").await;
    assert!(!write(&bench, "a", "new\n").await.is_error);
    assert_eq!(bench.content("a"), "new\n");
    // What was written by a tool is known.
    assert!(!edit(&bench, "a", "new", "newer").await.is_error);
    assert!(!edit(&bench, "a", "newer", "newest").await.is_error);
    assert_eq!(bench.content("a"), "newest\n");
    // The conversation of a sub-agent is another one.
    let agent = bench.toolbox.derive_subagent_toolbox(&AgentDefinition::default()).expect("tools");
    let overwrite = call("Write", json!({ "file_path": "a", "content": "x" }));
    let outcome = run_call(&agent, &overwrite, CancellationToken::new()).await;
    assert_fails_with(&outcome, "has not been read yet");
}

#[tokio::test]
async fn a_unique_edit_needs_no_read_and_does_not_count_as_one() {
    let bench = Bench::open();
    bench.file("a", "one\ntwo\none\n");
    // Several places may hold what the model does not know of.
    let all =
        json!({ "file_path": "a", "old_string": "one", "new_string": "1", "replace_all": true });
    assert_fails_with(&bench.run("Edit", all.clone()).await, "has not been read yet");
    assert_fails_with(&edit(&bench, "a", "one", "1").await, "occurs 2 times");
    assert_fails_with(&edit(&bench, "a", "tow", "2").await, "was not found");
    assert_eq!(bench.content("a"), "one\ntwo\none\n");
    let outcome = edit(&bench, "a", "two", "2").await;
    assert!(!outcome.is_error, "{outcome:?}");
    assert_eq!(bench.content("a"), "one\n2\none\n");
    // One place is known, and not the file.
    assert_fails_with(&write(&bench, "a", "new\n").await, "has not been read yet");
    assert_fails_with(&bench.run("Edit", all.clone()).await, "has not been read yet");
    // The same for a file that changed since it was read.
    bench.read("a").await;
    bench.file("a", "one\nthree\none\n");
    assert!(!edit(&bench, "a", "three", "3").await.is_error);
    assert_fails_with(&write(&bench, "a", "new\n").await, "changed since");
    assert_fails_with(&bench.run("Edit", all).await, "changed since");
    assert_eq!(bench.content("a"), "one\n3\none\n");
}

#[tokio::test]
async fn an_edit_shows_the_changed_lines() {
    let bench = Bench::open();
    bench.file("a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    let outcome = edit(&bench, "a", "5\n", "five\nand a half\n").await;
    let shown = "     2\t2\n     3\t3\n     4\t4\n     5\tfive\n     6\tand a half\n     7\t6\n     \
                 8\t7\n     9\t8";
    assert!(text(&outcome).ends_with(shown), "{}", text(&outcome));
    bench.file("long", "x\n");
    let lines = (0..500).map(|number| format!("line {number}\n")).collect::<Vec<_>>().concat();
    let outcome = edit(&bench, "long", "x\n", &lines).await;
    assert!(text(&outcome).ends_with("(and so on)"), "{}", text(&outcome));
    assert!(text(&outcome).lines().count() < 50);
}

#[tokio::test]
async fn a_file_that_changed_since_must_be_read_again() {
    let bench = Bench::open();
    known(&bench, "a", "old\n").await;
    bench.file("a", "else\n");
    assert_fails_with(&write(&bench, "a", "new").await, "changed since");
    // Of the same length, but at another time.
    known(&bench, "b", "old\n").await;
    let path = bench.file("b", "eld\n");
    let later = SystemTime::now() + Duration::from_secs(5);
    fs::File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
    assert_fails_with(&write(&bench, "b", "new").await, "changed since");
}

#[tokio::test]
async fn a_replaced_file_keeps_its_mode_links_and_attributes() {
    let bench = Bench::open();
    known(&bench, "tool.sh", "echo 1\n").await;
    let path = bench.cwd.join("tool.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    assert!(!edit(&bench, "tool.sh", "1", "2").await.is_error, "a new mode is no new content");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o750);

    fs::hard_link(&path, bench.cwd.join("twin")).unwrap();
    assert!(!edit(&bench, "tool.sh", "2", "3").await.is_error);
    assert_eq!(bench.content("twin"), "echo 3\n");

    fs::remove_file(bench.cwd.join("twin")).unwrap();
    let tagged = setxattr(&path, "user.tag", b"kept", XattrFlags::empty()).is_ok();
    symlink("tool.sh", bench.cwd.join("alias")).unwrap();
    assert!(!edit(&bench, "alias", "3", "4").await.is_error);
    let mut tag = Vec::with_capacity(8);
    let found = getxattr(&path, "user.tag", spare_capacity(&mut tag));
    assert_eq!(found.is_ok(), tagged, "file systems without such attributes: {found:?}");
    assert!(bench.cwd.join("alias").is_symlink());
    assert_eq!(bench.content("tool.sh"), "echo 4\n");
}

#[tokio::test]
async fn folders_and_devices_are_not_overwritten() {
    let bench = Bench::open();
    fs::create_dir(bench.cwd.join("folder")).unwrap();
    assert_fails_with(&write(&bench, "folder", "x").await, "a directory");
    assert_fails_with(&write(&bench, "/dev/null", "x").await, "a device");
    assert_fails_with(&edit(&bench, "folder", "x", "y").await, "a directory");
    bench.file("file", "");
    assert_fails_with(&write(&bench, "file/below", "x").await, "cannot write");
    assert_fails_with(&write(&bench, "/proc/new", "x").await, "it is in procfs, which has values");
    assert_fails_with(&write(&bench, "/sys/a/new", "x").await, "it is in sysfs, which has values");
}

#[tokio::test]
async fn a_match_must_be_exact_and_unique() {
    let bench = Bench::open();
    known(&bench, "a", "one\ntwo\none\n").await;
    assert_fails_with(&edit(&bench, "a", "one", "1").await, "occurs 2 times (lines 1, 3)");
    assert_eq!(bench.content("a"), "one\ntwo\none\n");
    let outcome = edit(&bench, "a", "one\ntwo", "1\n2").await;
    assert!(text(&outcome).contains("at line 1."), "{}", text(&outcome));
    assert_eq!(bench.content("a"), "1\n2\none\n");
    let lines = json!(["-one", "-two", "+1", "+2", " one"]);
    assert_eq!(outcome.detail["structuredPatch"][0]["lines"], lines);
    let all = json!({ "file_path": "a", "old_string": "n", "new_string": "", "replace_all": true });
    bench.file("a", "nanna");
    bench.read("a").await;
    assert_fails_with(&edit(&bench, "a", "n", "m").await, "occurs 3 times (lines 1).");
    let outcome = bench.run("Edit", all).await;
    assert_eq!(bench.content("a"), "aa");
    assert_eq!(outcome.detail["replacements"], 3);
    // The new text could take more memory than there is.
    let many = "n".repeat(10_000);
    known(&bench, "a", &many).await;
    let new = "m".repeat(6_000);
    let all =
        json!({ "file_path": "a", "old_string": "n", "new_string": new, "replace_all": true });
    assert_fails_with(&bench.run("Edit", all).await, "would become too large");
    assert_eq!(bench.content("a"), many);
    let new = "\n".repeat(201);
    let all =
        json!({ "file_path": "a", "old_string": "n", "new_string": new, "replace_all": true });
    assert_fails_with(&bench.run("Edit", all).await, "would become too large");
    bench.file("a", "\n".repeat(2_000_001));
    assert_fails_with(&edit(&bench, "a", "x", "y").await, "too large to edit here");
}

#[tokio::test]
async fn a_failed_match_suggests_a_similar_place() {
    let bench = Bench::open();
    let file = "fn main() {\n    let total = count(items);\n\tprint(total);\n}\n  say(“it’s – 1”);\n\
                \u{200b}a\u{a0}b\nc\u{ad}\u{2212}d\ncafe\u{301}\nput(\"<b>\\n\") &lt;&amp;&gt;\n";
    known(&bench, "a.rs", file).await;
    for (old, part) in [
        ("let total = count(item);", "The closest line is 2: `let total = count(items);`"),
        ("  let  total = count(items);\n", "Line 2 differs from its first line only in blanks"),
        (
            "\"it's - 1\"",
            "Line 5 has it with other quotes or dashes, blanks or invisible characters (U+2013, \
             U+2019, U+201C, U+201D): `  say(“it’s – 1”);`",
        ),
        (
            "c-d",
            "Line 7 has it with other quotes or dashes, blanks or invisible characters \
             (U+00AD, U+2212): `c\u{ad}\u{2212}d`",
        ),
        (
            "a b",
            "Line 6 has it with other quotes or dashes, blanks or invisible characters \
             (U+00A0, U+200B): `\u{200b}a\u{a0}b`",
        ),
        ("caf\u{e9}", "(U+0301): `cafe\u{301}`"),
        ("print(\u{200b}total)", "(old_string has U+200B): `\tprint(total);`"),
        (
            "    let total = count(items);\n    print(x);",
            "at line 2, but the lines after it differ",
        ),
        ("     2\t    let total = count(items);", "leave those out"),
        (r#"put(\"<b>"#, "The file has it with other escapes: `put(\"<b>`"),
        ("put(\"<b>\n\")", "The file has it with other escapes: `put(\"<b>\\n\")`"),
        ("<&>", "The file has it with other escapes: `&lt;&amp;&gt;`"),
        ("&lt;b&gt;", "The file has it with other escapes: `<b>`"),
        ("zzz qqq", "nor anything like it"),
    ] {
        assert_fails_with(&edit(&bench, "a.rs", old, "new").await, part);
    }
    assert_eq!(bench.content("a.rs"), file);
    assert_fails_with(&edit(&bench, "b.rs", "x", "y").await, "Did you mean a.rs?");
}

#[tokio::test]
async fn edits_preserve_line_endings() {
    let bench = Bench::open();
    // before, old, new, after
    let table = [
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\n", "a", "x\ny", "x\r\ny\r\nb\r\n"),
        ("a\r\nb\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\n"),
        ("a\nb\nc\n", "a\r\nb", "x\r\ny\r\nz", "x\ny\nz\nc\n"),
        ("a\r\nb\nc\n", "b", "x\ny", "a\r\nx\ny\nc\n"),
        ("a\r\nb\nc\n", "a\nb", "x\nb", "x\r\nb\nc\n"),
        ("a\r\nb\nc\r\n", "c", "x\ny", "a\r\nb\nx\r\ny\r\n"),
        ("a\r\nb\nc\r\n", "b\nc", "x\ny\nz", "a\r\nx\ny\nz\r\n"),
        ("a\r\nb\nc\r\n", "c", "x\r\ny\nz", "a\r\nb\nx\r\ny\nz\r\n"),
        ("a\r\nb\nc\r\n", "\nc", "\nx\ny", "a\r\nb\nx\ny\r\n"),
        ("a\r\nb\r\nc\n", "\nb", "\nx\ny", "a\r\nx\r\ny\r\nc\n"),
        ("a\rb\rc\r", "b", "x\ny", "a\rx\ry\rc\r"),
        ("a\nb", "b", "c", "a\nc"),
        ("a\nb\n", "b\n", "c", "a\nc"),
        ("\u{feff}a\n", "a", "b", "\u{feff}b\n"),
    ];
    for (before, old, new, after) in table {
        known(&bench, "f", before).await;
        let outcome = edit(&bench, "f", old, new).await;
        assert!(!outcome.is_error, "{before:?} {old:?}: {outcome:?}");
        assert_eq!(bench.content("f"), after, "{before:?} {old:?} {new:?}");
    }
}

#[tokio::test]
async fn an_edited_file_is_shown_as_read_shows_it() {
    let bench = Bench::open();
    let lines = "at line 2. It reads now:\n     1\tone\n     2\tB\n     3\tC";
    for (before, old, new, shown) in [
        ("one\rb\rc\r", "b\nc", "B\nC", lines),
        ("\u{1b}[31mred\u{1b}[0m\n", "red", "blue", "     1\t\u{1b}[31mblue\u{1b}[0m"),
        ("\u{feff}fab\n", "ab", "cd", ":\n     1\tfcd"),
        ("x\0y\n", "x", "z", "     1\tz\u{2400}y"),
    ] {
        known(&bench, "f", before).await;
        let outcome = edit(&bench, "f", old, new).await;
        assert!(text(&outcome).ends_with(shown), "{before:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn dollars_and_unicode_are_replaced_literally() {
    let bench = Bench::open();
    known(&bench, "a", "price: $1 č\n").await;
    assert!(!edit(&bench, "a", "$1 č", "$0 \\1 🐎").await.is_error);
    assert_eq!(bench.content("a"), "price: $0 \\1 🐎\n");
}

#[tokio::test]
async fn a_file_is_edited_in_its_own_encoding() {
    let bench = Bench::open();
    let table: [(&[u8], &str, &str, &[u8]); 6] = [
        (b"caf\xe9 and other text\n", "café and", "thé or", b"th\xe9 or other text\n"),
        (b"\xff\xfea\0\r\0\n\0b\0", "a\nb", "é", b"\xff\xfe\xe9\0"),
        (b"a\0b\nc\n", "a\u{2400}b", "x\u{2400}y", b"x\0y\nc\n"),
        (b"gr\xc3\xbc\xc3\x9fe\nf\xfcr\n", "größe", "ü", b""),
        (b"gr\xc3\xbc\xc3\x9fe\nf\xfcr\n", "grüße", "ü", b"\xc3\xbc\nf\xfcr\n"),
        (b"a\rb\r", "a\nb", "c\nd", b"c\rd\r"),
    ];
    for (before, old, new, after) in table {
        let path = bench.file("f", before);
        let outcome = edit(&bench, "f", old, new).await;
        assert_eq!(outcome.is_error, after.is_empty(), "{outcome:?}");
        let expected = if after.is_empty() { before } else { after };
        assert_eq!(fs::read(path).unwrap(), expected, "{old}");
    }
    bench.file("f", b"caf\xe9 and other text\n");
    assert_fails_with(&edit(&bench, "f", "and", "→").await, "has no '→' (U+2192)");
    bench.file("f", b"gr\xc3\xbc\xc3\x9fe\nf\xfcr\n");
    assert_fails_with(&edit(&bench, "f", "f\u{fffd}r", "x").await, "line 2 holds bytes");
    assert_fails_with(&edit(&bench, "f", "\u{fffd}x", "y").await, "without it");
    assert_fails_with(&edit(&bench, "f", "r\n", "x").await, "line 2 holds bytes");
    bench.file("f", b"\x7fELF\0\0\0");
    assert_fails_with(&edit(&bench, "f", "ELF", "x").await, "a binary file");
}

#[tokio::test]
async fn a_replaced_file_keeps_its_encoding_and_line_ends() {
    let bench = Bench::open();
    let table: [(&[u8], &str, &[u8], &str); 4] = [
        (b"a\n", "b\n", b"b\n", " (2 bytes)."),
        (
            b"\xef\xbb\xbfusing A;\r\n",
            "using B;\nx\n",
            b"\xef\xbb\xbfusing B;\r\nx\r\n",
            "still UTF-8 with a byte order mark, CRLF line ends.",
        ),
        (b"\xfe\xff\0a", "b\n", b"\xfe\xff\0b\0\n", "still UTF-16BE with a byte order mark."),
        (b"caf\xe9 and more\n", "thé\n", b"th\xe9\n", "still windows-1252."),
    ];
    for (before, content, after, said) in table {
        let path = bench.file("f", before);
        bench.read("f").await;
        let outcome = write(&bench, "f", content).await;
        assert!(text(&outcome).ends_with(said), "{}", text(&outcome));
        assert_eq!(fs::read(path).unwrap(), after);
    }
    assert_fails_with(&write(&bench, "f", "→").await, "has no '→'");
    fs::remove_file(bench.cwd.join("f")).unwrap();
    assert!(!write(&bench, "f", "→").await.is_error);
}

#[tokio::test]
async fn a_file_keeps_its_format_when_a_change_removes_its_last_sign() {
    type Case<'a> = (&'a [u8], &'a [(&'a str, &'a str)], &'a [u8]);

    let bench = Bench::open();
    let table: [Case; 5] = [
        (b"gr\xf6\xdfe\nx\n", &[("größe", "size"), ("size", "größe")], b"gr\xf6\xdfe\nx\n"),
        (b"gr\xf6\xdfe\n", &[("", "size\n"), ("", "größe\n")], b"gr\xf6\xdfe\n"),
        (b"a\r\nb\r\n", &[("", "one line"), ("", "a\nb\n")], b"a\r\nb\r\n"),
        (b"a\r\nb\r\n", &[("a\nb\n", "c"), ("c", "a\nb\n")], b"a\r\nb\r\n"),
        (b"\xef\xbb\xbfa\r\n", &[("", ""), ("", "a\n")], b"\xef\xbb\xbfa\r\n"),
    ];
    for (index, (before, changes, after)) in table.into_iter().enumerate() {
        let name = format!("f{index}");
        let path = bench.file(&name, before);
        for (old, new) in changes {
            bench.read(&name).await;
            let outcome = match *old {
                "" => write(&bench, &name, new).await,
                old => edit(&bench, &name, old, new).await,
            };
            assert!(!outcome.is_error, "{before:?}: {outcome:?}");
        }
        assert_eq!(fs::read(&path).unwrap(), after, "{before:?}");
        // A new file is not written as its predecessor.
        fs::remove_file(&path).unwrap();
        assert!(!write(&bench, &name, "ü\n").await.is_error);
        assert_eq!(fs::read_to_string(&path).unwrap(), "ü\n");
        assert!(!edit(&bench, &name, "ü", "u\nu").await.is_error);
        assert_eq!(fs::read_to_string(&path).unwrap(), "u\nu\n");
    }
}

#[tokio::test]
async fn a_cancelled_change_changes_nothing() {
    let bench = Bench::open();
    known(&bench, "a", "old\n").await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let input = json!({ "file_path": "a", "content": "new\n" });
    let outcome = bench.run_until("Write", input, cancel).await;
    assert_fails_with(&outcome, "nothing was changed");
    assert_eq!(bench.content("a"), "old\n");
}
