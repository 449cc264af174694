//! Reading files of every kind.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use nix::sys::stat::Mode;
use outlast::transcript::Block;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, assert_fails_with, text};

#[tokio::test]
async fn lines_are_numbered() {
    let bench = Bench::with(|_| {});
    bench.file("a.txt", "one\r\ntwo\n\nfour");
    let outcome = bench.read("a.txt").await;
    assert_eq!(text(&outcome), "     1\tone\n     2\ttwo\n     3\t\n     4\tfour");
    assert_eq!(outcome.detail["file"]["numLines"], 4);
}

#[tokio::test]
async fn offset_and_limit_select_lines_and_the_rest_is_reported() {
    let bench = Bench::open();
    bench.file("a", "1\n2\n3\n4\n5\n");
    let part =
        |offset: u64, limit: u64| json!({ "file_path": "a", "offset": offset, "limit": limit });
    let outcome = bench.run("Read", part(2, 2)).await;
    assert_eq!(
        text(&outcome),
        "     2\t2\n     3\t3\n[more lines follow line 3: continue with offset]"
    );
    let outcome = bench.run("Read", part(4, 9)).await;
    assert_eq!(text(&outcome), "     4\t4\n     5\t5");
    let outcome = bench.run("Read", part(5, 1)).await;
    assert_eq!(text(&outcome), "     5\t5");
    assert_fails_with(&bench.run("Read", part(6, 1)).await, "has only 5 lines");
    assert_eq!(text(&bench.run("Read", part(0, 1)).await).lines().next(), Some("     1\t1"));
}

#[tokio::test]
async fn two_thousand_lines_are_the_default() {
    let bench = Bench::open();
    bench.file("long", "x\n".repeat(2_001));
    let outcome = bench.read("long").await;
    assert!(
        text(&outcome).ends_with("  2000\tx\n[more lines follow line 2000: continue with offset]")
    );
}

#[tokio::test]
async fn long_lines_and_long_files_are_truncated() {
    let bench = Bench::open();
    bench.file("wide", format!("{}\nnext\n", "é".repeat(5_000)));
    let outcome = bench.read("wide").await;
    let shown = text(&outcome);
    let mut lines = shown.lines();
    let first = lines.next().unwrap();
    assert!(first.starts_with(&format!("     1\t{}[… ", "é".repeat(2_000))), "{first}");
    assert_eq!(lines.next(), Some("     2\tnext"));
    bench.file("much", format!("{}\n", "x".repeat(1_000)).repeat(1_000));
    let shown = text(&bench.read("much").await);
    assert!(shown.len() < 110_000, "{}", shown.len());
    assert!(shown.contains("more lines follow line 100:"), "{}", &shown[shown.len() - 100..]);
    // The usual limit of results is not for pages; a lower one is.
    let bench = Bench::with(|settings| settings.results.chars = 5_000);
    bench.file("much", format!("{}\n", "x".repeat(1_000)).repeat(1_000));
    let shown = text(&bench.read("much").await);
    assert!(shown.contains("more lines follow line 5:"), "{}", shown.len());
}

#[tokio::test]
async fn a_huge_file_without_line_ends_is_read_in_bounded_memory() {
    let bench = Bench::open();
    let path = bench.file("huge", "");
    // Sparse, so it costs nothing; it begins as text does.
    fs::write(&path, "x".repeat(9_000)).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let cancel = CancellationToken::new();
    let stopping = async {
        tokio::task::yield_now().await;
        cancel.cancel();
    };
    let reading = bench.run_until("Read", json!({ "file_path": "huge" }), cancel.clone());
    let (outcome, ()) = tokio::join!(reading, stopping);
    assert_fails_with(&outcome, "Interrupted");
}

#[tokio::test]
async fn special_files_are_reported_by_kind_without_hanging() {
    let bench = Bench::open();
    nix::unistd::mkfifo(&bench.cwd.join("pipe"), Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(bench.cwd.join("socket")).unwrap();
    bench.file("empty", "");
    bench.file("binary", b"\x7fELF\0\0\0");
    bench.file("src/a.rs", "");
    assert_fails_with(&bench.read("pipe").await, "a named pipe");
    assert_fails_with(&bench.read("socket").await, "a socket");
    assert_fails_with(&bench.read("/dev/zero").await, "a device");
    assert_fails_with(&bench.read("/dev/tty").await, "a device");
    assert_fails_with(&bench.read("src").await, "a directory, not a file. List it");
    assert_fails_with(&bench.read("binary").await, "a binary file of 7 bytes");
    assert_eq!(text(&bench.read("empty").await), "(the file is empty)");
    assert_fails_with(&bench.read("src/a.rs/x").await, "cannot read");
}

#[tokio::test]
async fn a_missing_file_lists_similar_names() {
    let bench = Bench::open();
    bench.file("src/parser.rs", "");
    bench.file("src/unrelated.txt", "");
    let outcome = bench.read("src/Parsers.rs").await;
    assert_fails_with(&outcome, "does not exist. Did you mean src/parser.rs?");
    assert_fails_with(&bench.read("nowhere/x").await, "nor does its folder");
    assert_fails_with(&bench.read("qqq").await, "The working directory is");
    symlink("gone/far", bench.cwd.join("link")).unwrap();
    let leads = "/gone/far, which does not exist";
    assert_fails_with(&bench.read("link/x").await, leads);
    let edit = json!({ "file_path": "link", "old_string": "a", "new_string": "b" });
    assert_fails_with(&bench.run("Edit", edit).await, leads);
}

#[tokio::test]
async fn text_in_other_encodings_is_shown_and_named() {
    let bench = Bench::open();
    let keep = "Edit and Write keep that";
    for (bytes, expected) in [
        (
            &b"na\xefve caf\xe9 and some more plain text\n"[..],
            format!("     1\tnaïve café and some more plain text\n[windows-1252: {keep}]"),
        ),
        (
            b"\xff\xfea\0\r\0\n\0b\0",
            format!(
                "     1\ta\n     2\tb\n[UTF-16LE with a byte order mark, CRLF line ends: {keep}]"
            ),
        ),
        (b"\xef\xbb\xbfa\n", format!("     1\ta\n[UTF-8 with a byte order mark: {keep}]")),
        (b"a\rb\r", format!("     1\ta\n     2\tb\n[CR line ends: {keep}]")),
        (b"first\rb\r", format!("     1\tfirst\n     2\tb\n[CR line ends: {keep}]")),
        // Line ends are those of the file, not those of its first letters.
        (b"/*\r\n*/\r\n", format!("     1\t/*\n     2\t*/\n[CRLF line ends: {keep}]")),
        (b"//\r\na\nb\nc\n", "     1\t//\n     2\ta\n     3\tb\n     4\tc".to_owned()),
        (b"a\0b\n", "     1\ta\u{2400}b\n[NUL characters are shown as \u{2400}]".to_owned()),
        (
            b"gr\xc3\xbc\xc3\x9fe f\xfcr alle\n",
            "     1\tgr\u{fc}\u{df}e f\u{fffd}r alle".to_owned(),
        ),
    ] {
        bench.file("f", bytes);
        assert_eq!(text(&bench.read("f").await), expected);
    }
}

/// Ids by position count from 0.
const POSITIONS_NOTE: &str = "[cells without an id have one by their position: cell-0 is cell 1]";

#[tokio::test]
async fn notebooks_are_shown_cell_by_cell() {
    let bench = Bench::open();
    let notebook = json!({ "cells": [
        { "cell_type": "markdown", "id": "t", "source": ["# Title\n", "text"] },
        { "cell_type": "code", "source": "print(1)", "outputs": [
            { "output_type": "stream", "text": ["1\n"] },
            { "output_type": "display_data",
              "data": { "text/plain": "<Figure>", "image/png": "AAAA" } },
            { "output_type": "display_data", "data": { "text/plain": "<Plot>", "image/png": [
                "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6\n",
                "kgAAAABJRU5ErkJggg==\n" ] } },
            { "output_type": "error", "ename": "ValueError", "evalue": "bad" },
            { "output_type": "error", "ename": "KeyError", "evalue": "'a'", "traceback": [
                "\u{1b}[0;31mKeyError\u{1b}[0m Traceback", "----> 3 row['a']", "KeyError: 'a'" ] },
        ] },
    ] });
    bench.file("a.ipynb", notebook.to_string());
    let outcome = bench.read("a.ipynb").await;
    assert!(matches!(&outcome.content[1..], [Block::Image { .. }]), "{outcome:?}");
    let Block::Text { text: shown } = &outcome.content[0] else { panic!("{outcome:?}") };
    assert!(
        shown.starts_with("[cell 1: markdown, id t]\n# Title\ntext\n\n[cell 2: code, id cell-1]")
    );
    for part in [
        "[output]\n1\n",
        "<Figure>\n(image/png not shown: of a kind",
        "<Plot>\n(image/png: image 1 below)",
        "ValueError: bad",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    let error = "[output]\nKeyError Traceback\n----> 3 row['a']\nKeyError: 'a'";
    let error = format!("{error}\n\n{POSITIONS_NOTE}");
    assert!(shown.ends_with(&error) && !shown.contains("AAAA"), "{shown}");
    let part = |offset: u64| json!({ "file_path": "a.ipynb", "offset": offset, "limit": 1 });
    let shown = text(&bench.run("Read", part(1)).await);
    let more = "[more cells follow: continue with offset 2]";
    assert_eq!(shown, format!("[cell 1: markdown, id t]\n# Title\ntext\n\n{more}"));
    let shown = bench.run("Read", part(2)).await.visible_text();
    assert!(shown.starts_with("[cell 2: code, id cell-1]\nprint(1)\n"), "{shown}");
    assert!(!shown.contains("more cells"), "{shown}");
    assert_fails_with(&bench.run("Read", part(3)).await, "has only 2 cells");
}

#[tokio::test]
async fn notebooks_of_other_programs_are_shown_and_broken_ones_as_text() {
    let bench = Bench::open();
    let half = r#"{"cells": [{"cell_type": "code", "source": "x = '\ud83d'", "outputs": [
        {"data": {"application/json": NaN}, "text": "y"}]}]}"#;
    bench.file("half.ipynb", half);
    let shown = text(&bench.read("half.ipynb").await);
    let cell = "[cell 1: code, id cell-0]\nx = '\u{fffd}'\n[output]\ny";
    assert_eq!(shown, format!("{cell}\n\n{POSITIONS_NOTE}"));
    let conflict = "{\n<<<<<<< HEAD\n \"cells\": [],\n";
    bench.file("bad.ipynb", conflict);
    let shown = text(&bench.read("bad.ipynb").await);
    assert_eq!(shown, "     1\t{\n     2\t<<<<<<< HEAD\n     3\t \"cells\": [],");
}

#[tokio::test]
async fn binary_data_after_text_is_described_not_shown() {
    let bench = Bench::open();
    let mut data = b"#!/bin/sh\n".to_vec();
    data.extend_from_slice("echo unpack\n".repeat(1_000).as_bytes());
    data.extend_from_slice(b"\x1f\x8b\x08\0\0\n\xff\xd8\xff\0\0\x01bish\n\0\0\0\nend\n");
    bench.file("setup.run", &data);
    let from = |offset: u64| json!({ "file_path": "setup.run", "offset": offset });
    let shown = text(&bench.run("Read", from(1_001)).await);
    let expected = "  1001\techo unpack\n[lines 1002-1004: binary data, not shown]\n  1005\tend";
    assert_eq!(shown, expected);
    let one = json!({ "file_path": "setup.run", "offset": 1_002, "limit": 1 });
    let shown = text(&bench.run("Read", one).await);
    let expected =
        "[line 1002: binary data, not shown]\n[more lines follow line 1002: continue with offset]";
    assert_eq!(shown, expected);
}
