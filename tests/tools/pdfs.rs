//! PDFs: whole ones and pages of them, long, heavy, locked and damaged ones.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lopdf::{
    Document, EncryptionState, EncryptionVersion, Object, Permissions, SaveOptions, Stream,
    dictionary,
};
use outlast::tools::ToolOutcome;
use outlast::transcript::{Block, visible_pages};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::bench::{Bench, assert_fails_with, text};

/// A document whose pages say `this is page N.`, with bookmarks to all of them and as much else
/// as they are. Their font and size are those of the tree.
fn document(pages: usize) -> Document {
    let mut document = Document::with_version("1.5");
    let tree = document.new_object_id();
    let font = document.add_object(dictionary! {
        "Type" => "Font", "Subtype" => "Type1", "BaseFont" => "Courier",
    });
    let mut kids: Vec<Object> = Vec::new();
    for page in 1..=pages {
        let words = format!("BT /F1 24 Tf 72 700 Td (this is page {page}.) Tj ET");
        let contents = document.add_object(Stream::new(dictionary! {}, words.into_bytes()));
        let page = dictionary! { "Type" => "Page", "Parent" => tree, "Contents" => contents };
        kids.push(document.add_object(page).into());
    }
    let marks: Vec<Object> = kids.clone();
    let count = i64::try_from(pages).expect("few pages");
    document.objects.insert(
        tree,
        Object::Dictionary(dictionary! {
            "Type" => "Pages", "Kids" => kids, "Count" => count,
            "Resources" => dictionary! { "Font" => dictionary! { "F1" => font } },
            "MediaBox" => vec![0.into(), 0.into(), 595.into(), 842.into()],
        }),
    );
    let rest = document.add_object(Stream::new(dictionary! {}, vec![b' '; 200 * pages]));
    let catalog = document.add_object(dictionary! {
        "Type" => "Catalog", "Pages" => tree, "Marks" => marks, "Else" => rest,
    });
    document.trailer.set("Root", catalog);
    document
}

fn saved(mut document: Document) -> Vec<u8> {
    let mut data = Vec::new();
    document.save_to(&mut data).expect("a sound document");
    data
}

#[track_caller]
fn sent(outcome: &ToolOutcome) -> (Vec<u8>, Option<String>) {
    let (source, remark) = match outcome.content.as_slice() {
        [Block::Document { source, .. }] => (source, None),
        [Block::Document { source, .. }, Block::Text { text }] => (source, Some(text.clone())),
        other => panic!("no document: {other:?}"),
    };
    assert_eq!(source["type"], "base64");
    assert_eq!(source["media_type"], "application/pdf");
    (STANDARD.decode(source["data"].as_str().expect("base64")).expect("base64"), remark)
}

/// The text of each page.
fn words(data: &[u8]) -> Vec<String> {
    let document = Document::load_mem(data).expect("a sound document");
    let pages = document.get_pages();
    pages
        .values()
        .map(|id| {
            let fonts = document.get_page_fonts(*id).expect("a sound page");
            assert!(fonts.contains_key(b"F1".as_slice()), "the page lost its font");
            let content = String::from_utf8(document.get_page_content(*id)).expect("text");
            content.split(['(', ')']).nth(1).expect("a text").to_owned()
        })
        .collect()
}

async fn read_pages(bench: &Bench, pages: &str) -> ToolOutcome {
    bench.run("Read", json!({ "file_path": "a.pdf", "pages": pages })).await
}

#[tokio::test]
async fn a_short_pdf_is_sent_unchanged() {
    let bench = Bench::open();
    let data = saved(document(20));
    bench.file("a.pdf", &data);
    let outcome = bench.read("a.pdf").await;
    assert_eq!(sent(&outcome), (data.clone(), None));
    assert_eq!(outcome.detail["file"]["numPages"], 20);
    for all in ["", "1-20", "1-", "11-20,1-10"] {
        assert_eq!(sent(&read_pages(&bench, all).await), (data.clone(), None), "{all}");
    }
}

#[tokio::test]
async fn a_long_pdf_requires_a_page_range() {
    let bench = Bench::open();
    bench.file("a.pdf", saved(document(21)));
    let outcome = bench.read("a.pdf").await;
    assert_fails_with(&outcome, "it has 21 pages, and at most 20");
    assert_fails_with(&outcome, "pages: \"1-20\"");
    assert_fails_with(&outcome, "pdftotext -layout '");
    assert_fails_with(&read_pages(&bench, "1-21").await, "at most 20 pages");
    assert_fails_with(&read_pages(&bench, "22").await, "it has only 21 pages");
    assert_fails_with(&read_pages(&bench, "two").await, "`two` is not a range of pages");
    let (data, remark) = sent(&read_pages(&bench, "20-30").await);
    assert_eq!(words(&data), ["this is page 20.", "this is page 21."]);
    assert_eq!(remark.as_deref(), Some("(pages 20-21 of 21)"));
}

#[tokio::test]
async fn extracted_pdf_pages_include_only_their_own_resources() {
    let bench = Bench::open();
    let whole = saved(document(300));
    bench.file("a.pdf", &whole);
    let (data, remark) = sent(&read_pages(&bench, "2-3,7").await);
    assert_eq!(words(&data), ["this is page 2.", "this is page 3.", "this is page 7."]);
    assert_eq!(remark.as_deref(), Some("(pages 2-3, 7 of 300)"));
    assert!(data.len() < whole.len() / 30, "{} of {} bytes", data.len(), whole.len());
    assert_eq!(visible_pages(&data), 3);
}

#[tokio::test]
async fn pages_in_compressed_object_streams_are_extracted() {
    let bench = Bench::open();
    let mut data = Vec::new();
    let options = SaveOptions { use_object_streams: true, ..SaveOptions::default() };
    document(5).save_with_options(&mut data, options).expect("a sound document");
    assert_eq!(visible_pages(&data), 0, "or this shows nothing");
    bench.file("a.pdf", &data);
    let (data, remark) = sent(&bench.read("a.pdf").await);
    assert_eq!((visible_pages(&data), remark), (5, None));
    assert_eq!(words(&data)[4], "this is page 5.");
}

#[tokio::test]
async fn large_pdf_pages_are_read_a_few_at_a_time() {
    let bench = Bench::open();
    let mut heavy = document(2);
    let page = heavy.get_pages()[&2];
    let ballast = Stream::new(dictionary! { "Type" => "XObject" }, vec![b'x'; 12 << 20]);
    let ballast = heavy.add_object(ballast);
    heavy.get_dictionary_mut(page).expect("a page").set("Thumb", ballast);
    bench.file("a.pdf", saved(heavy));
    assert_fails_with(&bench.read("a.pdf").await, "at most 12582912 can be read at once");
    assert_fails_with(&read_pages(&bench, "2").await, "Ask for fewer");
    let (data, _) = sent(&read_pages(&bench, "1").await);
    assert_eq!(words(&data), ["this is page 1."]);
    let path = bench.file("huge.pdf", "%PDF-1.4\n");
    fs::File::options().write(true).open(&path).unwrap().set_len(33 << 20).unwrap();
    assert_fails_with(&bench.read("huge.pdf").await, "at most 33554432 are read");
}

#[tokio::test]
async fn an_encrypted_pdf_is_sent_decrypted_if_it_opens_without_a_password() {
    let bench = Bench::open();
    for user_password in ["", "secret"] {
        let mut locked = document(3);
        let id = Object::string_literal("0123456789abcdef");
        locked.trailer.set("ID", vec![id.clone(), id]);
        let version = EncryptionVersion::V1 {
            document: &locked,
            owner_password: "owner",
            user_password,
            permissions: Permissions::all(),
        };
        let state = EncryptionState::try_from(version).expect("a sound version");
        locked.encrypt(&state).expect("it can be locked");
        bench.file("a.pdf", saved(locked));
        for (outcome, pages) in [(bench.read("a.pdf").await, 3), (read_pages(&bench, "1").await, 1)]
        {
            if user_password.is_empty() {
                let (data, _) = sent(&outcome);
                assert!(!Document::load_mem(&data).expect("a sound document").was_encrypted());
                assert_eq!(words(&data).len(), pages);
                assert_eq!(words(&data)[0], "this is page 1.");
                continue;
            }
            assert_fails_with(&outcome, "it is encrypted");
            assert_fails_with(&outcome, "qpdf --decrypt");
        }
    }
}

#[tokio::test]
async fn a_pdf_with_other_bytes_before_its_header_is_sent_from_there() {
    let bench = Bench::open();
    let plain = saved(document(1));
    for before in ["\u{feff}", "\n", "Content-Type: application/pdf\r\n\r\n"] {
        let data = [before.as_bytes(), &plain].concat();
        bench.file("a.PDF", &data);
        let (data, _) = sent(&bench.read("a.PDF").await);
        assert_eq!(data, plain, "{before:?}");
    }
    bench.file("a.txt", "See %PDF-1.7\n");
    assert_eq!(text(&bench.read("a.txt").await), "     1\tSee %PDF-1.7");
    bench.file("a.pdf", [" ".repeat(1_024), "%PDF-1.7\n".to_owned()].concat());
    assert!(text(&bench.read("a.pdf").await).contains("%PDF-1.7"));
}

#[tokio::test]
async fn a_file_with_only_a_pdf_header_is_not_sent() {
    let bench = Bench::open();
    bench.file("a.pdf", "%PDF-1.7\nand nothing more");
    assert_fails_with(&bench.read("a.pdf").await, "it is a damaged PDF");
    assert_fails_with(&bench.read("a.pdf").await, "pdftotext");
    bench.file("a.pdf", saved(document(0)));
    assert_fails_with(&bench.read("a.pdf").await, "no pages can be found");
    bench.file("a.txt", "one\n");
    let outcome = bench.run("Read", json!({ "file_path": "a.txt", "pages": "1" })).await;
    assert_eq!(text(&outcome), "     1\tone", "pages mean nothing here");
}

#[test]
fn pdf_extraction_yields_only_complete_pages_for_any_bytes() {
    let bench = Bench::open();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let sound = saved(document(4));
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let harm = (changes, any::<prop::sample::Index>(), any::<bool>(), any::<bool>());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(300));
    let result = runner.run(&harm, |(changes, end, is_cut, by_page)| {
        let mut data = sound.clone();
        for (place, value) in changes {
            let place = place.index(data.len() - 5) + 5;
            data[place] = value;
        }
        if is_cut {
            data.truncate(5 + end.index(data.len() - 5));
        }
        bench.file("a.pdf", &data);
        let pages = if by_page { "2" } else { "" };
        let outcome = runtime.block_on(read_pages(&bench, pages));
        if let Some(Block::Document { .. }) = outcome.content.first() {
            let (data, _) = sent(&outcome);
            let again = Document::load_mem(&data).expect("what is sent can be read");
            prop_assert!(again.xref_recovery.is_none(), "it is sent as damaged as it was");
            let pages = again.get_pages().len();
            prop_assert!(if by_page { pages == 1 } else { (1..=4).contains(&pages) }, "{pages}");
        } else {
            let told = text(&outcome);
            prop_assert!(outcome.is_error && !told.contains("defect"), "{}", told);
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
