//! Stripping of media, one by one or all together.

use outlast_core::transcript::{
    Block, BlockPath, Medium, Message, Role, StripTarget, StrippedMedia, drop_citations, has_media,
    has_uneven_citations, media_bytes, strip_media, violations, visible_pages,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::arbitrary::{any_messages, valid_messages};
use crate::support::rotation::property_cases;

fn image(bytes: usize) -> Block {
    let data = "A".repeat(bytes);
    Block::Image { source: json!({ "type": "base64", "media_type": "image/png", "data": data }) }
}

fn pdf(bytes: usize) -> Block {
    let data = "A".repeat(bytes);
    let source = json!({ "type": "base64", "media_type": "application/pdf", "data": data });
    Block::document(source)
}

fn words() -> Block {
    let source = json!({ "type": "text", "media_type": "text/plain", "data": "words" });
    Block::document(source)
}

fn spot(message: usize, block: usize, inner: Option<usize>) -> BlockPath {
    BlockPath { message, block: Some(block), inner }
}

/// A prompt with an image, and a reply's calls with what came of them.
fn conversation(calls: Vec<(&str, serde_json::Value, Vec<Block>)>) -> Vec<Message> {
    let (mut asks, mut answers) = (Vec::new(), Vec::new());
    for (index, (name, input, content)) in calls.into_iter().enumerate() {
        let id = format!("toolu_{index}");
        asks.push(Block::call(id.clone(), name.to_owned(), input));
        answers.push(Block::ToolResult { tool_use_id: id, content, is_error: false });
    }
    let prompt = Message::user(vec![Block::text("look"), image(4_000)]);
    vec![prompt, Message::assistant(asks), Message::user(answers)]
}

fn reads() -> Vec<Message> {
    let input = |path: &str| json!({ "file_path": path });
    conversation(vec![
        ("Read", input("a b's.png"), vec![image(400), Block::text("(shown at 2x2 pixels)")]),
        ("Read", input("long.pdf"), vec![pdf(2_000_000)]),
        ("mcp__eyes__shot", json!({}), vec![image(8_000), words()]),
    ])
}

fn spots(stripped: &[StrippedMedia]) -> Vec<BlockPath> {
    stripped.iter().map(|stripped| stripped.spot).collect()
}

fn block_at(messages: &[Message], spot: BlockPath) -> &Block {
    match (&messages[spot.message].content[spot.block.expect("a block")], spot.inner) {
        (Block::ToolResult { content, .. }, Some(inner)) => &content[inner],
        (block, _) => block,
    }
}

fn text_at(messages: &[Message], spot: BlockPath) -> &str {
    let Block::Text { text } = block_at(messages, spot) else { panic!("no text at {spot:?}") };
    text
}

const PROMPT: BlockPath = BlockPath { message: 0, block: Some(1), inner: None };
const PICTURE: BlockPath = BlockPath { message: 2, block: Some(0), inner: Some(0) };
const PDF: BlockPath = BlockPath { message: 2, block: Some(1), inner: Some(0) };
const SHOT: BlockPath = BlockPath { message: 2, block: Some(2), inner: Some(0) };

#[test]
fn each_strip_target_removes_the_media_it_names() {
    let named = |message, block, inner| StripTarget::At(BlockPath { message, block, inner });
    let table: [(StripTarget, &[BlockPath]); 15] = [
        (StripTarget::All, &[PROMPT, PICTURE, PDF, SHOT]),
        (StripTarget::Images, &[PROMPT, PICTURE, SHOT]),
        (StripTarget::Documents, &[PDF]),
        (StripTarget::ImagesBut { newest: 1 }, &[PROMPT, PICTURE]),
        (StripTarget::ImagesBut { newest: 9 }, &[PROMPT, PICTURE]),
        (StripTarget::ImagesBut { newest: 0 }, &[PROMPT, PICTURE, SHOT]),
        (StripTarget::DownTo { bytes: 12_400 }, &[PDF]),
        (StripTarget::DownTo { bytes: 12_399 }, &[PDF, SHOT]),
        (StripTarget::DownTo { bytes: 4_399 }, &[PROMPT, PDF, SHOT]),
        (StripTarget::DownTo { bytes: u64::MAX }, &[PDF]),
        (StripTarget::DownTo { bytes: 0 }, &[PROMPT, PICTURE, PDF, SHOT]),
        (named(2, None, None), &[PICTURE, PDF, SHOT]),
        (named(2, Some(0), Some(0)), &[PICTURE]),
        (named(2, Some(1), None), &[PDF]),
        (named(2, Some(0), Some(1)), &[]),
    ];
    for (which, expected) in table {
        let mut messages = reads();
        assert_eq!(spots(&strip_media(&mut messages, which)), expected, "{which:?}");
        assert_eq!(violations(&messages), [], "{which:?}");
    }
}

#[test]
fn the_replacement_text_describes_the_media_and_how_to_get_it() {
    let mut messages = reads();
    assert_eq!(media_bytes(&messages), 4_000 + 400 + 2_000_000 + 8_000);
    let stripped = strip_media(&mut messages, StripTarget::All);
    assert_eq!(
        text_at(&messages, PICTURE),
        "[An image (image/png, 300 bytes) from a b's.png was here and is left out: the service \
         would not take the request with it. To see it, scale a copy down, for example with \
         `convert 'a b'\\''s.png' -resize 1000x1000 small.png`, and Read that.]"
    );
    let document = text_at(&messages, PDF);
    let begin = "[A document (application/pdf, 1.5 MB) from long.pdf was here";
    assert!(document.starts_with(begin), "{document}");
    assert!(document.contains("`pdftotext -layout 'long.pdf' -`"), "{document}");
    let shot = text_at(&messages, SHOT);
    assert!(shot.starts_with("[An image (image/png, 6 kB) from mcp__eyes__shot was"), "{shot}");
    let prompt = text_at(&messages, PROMPT);
    assert!(prompt.starts_with("[An image (image/png, 3 kB) was here"), "{prompt}");
    assert_eq!(stripped[1].file.as_deref(), Some("a b's.png"));
    assert_eq!(stripped[1].tool.as_deref(), Some("Read"));
    assert_eq!((stripped[2].medium, stripped[2].bytes), (Medium::Document, 2_000_000));
}

#[test]
fn linked_and_broken_media_are_stripped_too() {
    for source in [json!({ "type": "url", "url": "https://localhost/a.png" }), json!(null)] {
        let blocks = vec![Block::Image { source: source.clone() }, Block::document(source)];
        let mut messages = vec![Message::user(blocks)];
        assert!(has_media(&messages));
        assert_eq!(strip_media(&mut messages, StripTarget::All).len(), 2);
        let told = text_at(&messages, spot(0, 0, None));
        assert!(told.starts_with("[An image was here"), "{told}");
        assert_eq!(violations(&messages), []);
    }
}

#[test]
fn text_documents_are_kept_and_image_documents_count_as_images() {
    let content = |kind: &str| {
        let source = json!({ "type": "content", "content": [{ "type": kind }] });
        vec![Message::user(vec![Block::document(source)])]
    };
    for mut messages in [content("text"), vec![Message::user(vec![words()])]] {
        assert!(!has_media(&messages));
        let before = messages.clone();
        assert_eq!(strip_media(&mut messages, StripTarget::All), []);
        assert_eq!(messages, before);
    }
    for which in [StripTarget::Images, StripTarget::Documents] {
        assert_eq!(strip_media(&mut content("image"), which).len(), 1, "{which:?}");
    }
}

#[test]
fn a_block_path_that_does_not_exist_strips_nothing() {
    for which in [spot(9, 0, None), spot(0, 9, None), spot(2, 0, Some(9)), spot(1, 0, None)] {
        let mut messages = reads();
        assert_eq!(strip_media(&mut messages, StripTarget::At(which)), [], "{which:?}");
        assert_eq!(messages, reads());
    }
    let loose = spot(0, 1, Some(3));
    assert_eq!(spots(&strip_media(&mut reads(), StripTarget::At(loose))), [PROMPT]);
}

#[test]
fn pdf_pages_are_counted_when_readable() {
    let seen = b"/Type /Pages /Type/Page>> /Type\n/Page\n /Type /PageLabel /Type/Page/Parent /Type";
    assert_eq!(visible_pages(seen), 3);
    assert_eq!(visible_pages(b"/Type/Page"), 1);
    assert_eq!(visible_pages(b""), 0);
}

/// The limit of a service may be far below the one that is assumed.
#[test]
fn stripping_down_to_a_size_removes_at_least_half_of_the_media() {
    let input = json!({ "file_path": "a.png" });
    let mut messages =
        conversation((0..3).map(|_| ("Read", input.clone(), vec![image(4_000)])).collect());
    let which = StripTarget::DownTo { bytes: u64::MAX };
    let left: Vec<u64> = (0..3)
        .map(|_| {
            strip_media(&mut messages, which);
            media_bytes(&messages)
        })
        .collect();
    assert_eq!(left, [8_000, 4_000, 0]);
}

fn any_strip() -> impl Strategy<Value = StripTarget> {
    let inner = proptest::option::of(0..3_usize);
    prop_oneof![
        Just(StripTarget::All),
        Just(StripTarget::Images),
        Just(StripTarget::ImagesOfAnySize),
        Just(StripTarget::Documents),
        (0..3_usize).prop_map(|newest| StripTarget::ImagesBut { newest }),
        (0..200_u64).prop_map(|bytes| StripTarget::DownTo { bytes }),
        (0..8_usize).prop_map(|message| StripTarget::From { message }),
        (0..8_usize, proptest::option::of(0..5_usize), inner).prop_map(
            |(message, block, inner)| StripTarget::At(BlockPath { message, block, inner })
        ),
    ]
}

/// Puts media into results and behind them.
fn with_media() -> impl Strategy<Value = Vec<Message>> {
    let media = proptest::collection::vec((0..4_usize, 0..90_usize, any::<bool>()), 0..9);
    (valid_messages(), media).prop_map(|(mut messages, media)| {
        let users = messages.len().div_ceil(2);
        for (index, (kind, bytes, is_inside)) in media.into_iter().enumerate() {
            let block = match kind {
                0 => pdf(bytes),
                1 => words(),
                _ => image(bytes),
            };
            let content = &mut messages[2 * (index * 7 % users)].content;
            match content.first_mut() {
                Some(Block::ToolResult { content, .. }) if is_inside => content.insert(0, block),
                _ => content.push(block),
            }
        }
        messages
    })
}

/// Everything, results taken apart.
fn leaves(messages: &[Message]) -> Vec<(BlockPath, &Block)> {
    let mut leaves = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        for (index, block) in message.content.iter().enumerate() {
            leaves.push((spot(at, index, None), block));
            if let Block::ToolResult { content, .. } = block {
                let content = content.iter().enumerate();
                leaves.extend(content.map(|(inner, block)| (spot(at, index, Some(inner)), block)));
            }
        }
    }
    leaves
}

fn is_result(block: &Block) -> bool {
    matches!(block, Block::ToolResult { .. })
}

proptest! {
    #![proptest_config(property_cases(300))]

    #[test]
    fn stripping_changes_only_media_and_keeps_a_valid_list_valid(
        messages in with_media(),
        which in any_strip(),
    ) {
        prop_assert_eq!(violations(&messages), []);
        let mut after = messages.clone();
        let stripped = strip_media(&mut after, which);
        let gone = spots(&stripped);
        prop_assert_eq!(violations(&after), []);
        prop_assert_eq!(has_media(&messages), media_count(&messages) > 0);
        prop_assert_eq!(media_count(&messages), media_count(&after) + gone.len());
        for ((spot, was), (_, is)) in leaves(&messages).into_iter().zip(leaves(&after)) {
            if gone.contains(&spot) {
                let is_text = matches!(is, Block::Text { .. });
                prop_assert!(is_text);
            } else if !is_result(was) {
                prop_assert_eq!(was, is);
            }
        }
        let must_move = match which {
            StripTarget::All | StripTarget::DownTo { .. } => has_media(&messages),
            StripTarget::Images | StripTarget::ImagesOfAnySize | StripTarget::ImagesBut { .. } => {
                leaves(&messages).iter().any(|(_, block)| matches!(block, Block::Image { .. }))
            }
            StripTarget::Documents | StripTarget::At(_) => false,
            StripTarget::From { message } => has_media(&messages[message.min(messages.len())..]),
        };
        prop_assert!(!must_move || !gone.is_empty(), "{:?} took nothing out", which);
        if let StripTarget::DownTo { bytes } = which {
            prop_assert!(media_bytes(&after) <= bytes);
        }
    }

    #[test]
    fn stripping_everything_leaves_no_media_in_any_list(messages in any_messages()) {
        let mut after = messages.clone();
        let stripped = strip_media(&mut after, StripTarget::All);
        prop_assert_eq!(has_media(&messages), !stripped.is_empty());
        prop_assert!(!has_media(&after));
        prop_assert_eq!(media_bytes(&after), 0);
        prop_assert_eq!(strip_media(&mut after.clone(), StripTarget::All), []);
        prop_assert_eq!(after.len(), messages.len());
        for (was, is) in messages.iter().zip(&after).filter(|(was, _)| was.role == Role::Assistant)
        {
            prop_assert_eq!(was, is, "these are not the user's media");
        }
        prop_assert!(violations(&after).len() <= violations(&messages).len());
    }
}

fn media_count(messages: &[Message]) -> usize {
    let spoken: Vec<Message> =
        messages.iter().filter(|message| message.role == Role::User).cloned().collect();
    let is_medium = |block: &Block| match block {
        Block::Image { .. } => true,
        Block::Document { source, .. } => source["type"] != "text",
        Block::Text { .. }
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::ToolUse { .. }
        | Block::ToolResult { .. }
        | Block::Other(_) => false,
    };
    leaves(&spoken).into_iter().filter(|(_, block)| is_medium(block)).count()
}

#[test]
fn a_model_that_takes_no_images_is_not_told_to_scale_them_down() {
    let mut messages = reads();
    let stripped = strip_media(&mut messages, StripTarget::ImagesOfAnySize);
    assert_eq!(stripped.len(), 3);
    for what in &stripped {
        let note = block_at(&messages, what.spot).as_text().expect("a text");
        assert!(note.contains("takes no images") && !note.contains("resize"), "{note}");
    }
    assert!(has_media(&messages), "the document stays");
}

#[test]
fn citations_of_documents_are_dropped_if_one_has_none() {
    let document = |citations: Value| -> Block {
        let source = json!({ "type": "text", "media_type": "text/plain", "data": "x" });
        let block = json!({ "type": "document", "title": "T", "source": source,
            "citations": citations });
        serde_json::from_value(block).expect("a block")
    };
    let (cited, plain) = (document(json!({ "enabled": true })), document(json!(null)));
    let read = |block: &Block| Block::ToolResult {
        tool_use_id: "a".into(),
        content: vec![block.clone()],
        is_error: false,
    };
    for (blocks, is_uneven) in [
        (vec![cited.clone(), cited.clone()], false),
        (vec![plain.clone(), plain.clone()], false),
        (vec![cited.clone(), plain.clone()], true),
        (vec![cited.clone(), document(json!({ "enabled": false }))], true),
        (vec![cited.clone(), read(&plain)], true),
    ] {
        let mut messages = vec![Message::user(blocks)];
        assert_eq!(has_uneven_citations(&messages), is_uneven, "{messages:?}");
        drop_citations(&mut messages);
        assert!(!has_uneven_citations(&messages));
        assert_eq!(messages[0].content[0], plain, "the title is kept");
    }
}
