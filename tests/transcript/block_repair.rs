//! Repair of blocks that the service rejects: no other block changes, and no repair repeats.

use outlast_core::transcript::{
    Block, BlockPath, BlockRepair, Message, RejectedContent, Role, StripTarget,
    can_repair_rejected, lacks_thinking, repair_rejected, strip_media, violations,
};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::arbitrary::{any_messages, valid_messages};
use crate::support::rotation::property_cases;

const COMPLAINTS: [RejectedContent; 4] = [
    RejectedContent::Media,
    RejectedContent::Thinking,
    RejectedContent::Pairs,
    RejectedContent::Block,
];

fn image() -> Block {
    let data = json!({ "type": "base64", "media_type": "image/png", "data": "AAAA" });
    Block::Image { source: data }
}

fn document() -> Block {
    let data = json!({ "type": "base64", "media_type": "application/pdf", "data": "AAAA" });
    Block::document(data)
}

fn call(id: &str) -> Block {
    let input = json!({ "command": "ls" });
    Block::call(id, "Bash", input)
}

fn result(id: &str, content: Vec<Block>) -> Block {
    Block::ToolResult { tool_use_id: id.to_owned(), content, is_error: false }
}

fn thought() -> Block {
    Block::Thinking { thinking: "hm".to_owned(), signature: "c2ln".to_owned() }
}

fn at(message: usize, block: usize) -> BlockPath {
    BlockPath { message, block: Some(block), inner: None }
}

fn within(message: usize, block: usize, inner: usize) -> BlockPath {
    BlockPath { message, block: Some(block), inner: Some(inner) }
}

fn whole(message: usize) -> BlockPath {
    BlockPath { message, block: None, inner: None }
}

/// Two turns, with media in both.
fn talk() -> Vec<Message> {
    vec![
        Message::user(vec![Block::text("look at this"), image()]),
        Message::assistant(vec![thought(), Block::text("I look"), call("a"), call("b")]),
        Message::user(vec![
            result("a", vec![Block::text("the file:"), image(), document()]),
            result("b", vec![Block::text("done")]),
        ]),
        Message::assistant(vec![thought(), call("c")]),
        Message::user(vec![result("c", vec![image()])]),
    ]
}

fn text_at(block: &Block) -> &str {
    if let Block::Text { text } = block { text } else { panic!("no text: {block:?}") }
}

fn inside(block: &Block) -> &[Block] {
    if let Block::ToolResult { content, .. } = block { content } else { panic!("{block:?}") }
}

/// Heals and checks what must hold of every cure.
fn healed(
    messages: &mut Vec<Message>,
    spot: impl Into<Option<BlockPath>>,
    why: RejectedContent,
) -> Option<BlockRepair> {
    let spot = spot.into();
    let before = messages.clone();
    let foretold = can_repair_rejected(messages, spot, why);
    let healed = repair_rejected(messages, spot, why);
    assert_eq!(healed.is_some(), foretold, "{spot:?} {why:?}");
    assert_eq!(*messages != before, foretold, "{spot:?} {why:?}");
    if violations(&before).is_empty() {
        assert_eq!(violations(messages), [], "{spot:?} {why:?}");
    }
    healed
}

fn blocks_replaced(found: Option<BlockRepair>) -> usize {
    if let Some(BlockRepair::Replace(spots)) = found { spots.len() } else { panic!("{found:?}") }
}

/// Whether the two lists differ in this block only.
fn differs_only_in(before: &[Message], after: &[Message], message: usize, block: usize) -> bool {
    let mut restored = after.to_vec();
    restored[message].content[block] = before[message].content[block].clone();
    restored == before && after != before
}

#[test]
fn repair_removes_exactly_the_named_image() {
    let cases = [
        (at(0, 1), 0, 1, "An image"),
        (within(2, 0, 1), 2, 0, "An image"),
        (within(2, 0, 2), 2, 0, "A document"),
        (at(4, 0), 4, 0, "An image"),
    ];
    for (spot, message, block, noun) in cases {
        for why in [RejectedContent::Media, RejectedContent::Block] {
            if why == RejectedContent::Block && spot == at(4, 0) {
                continue;
            }
            let mut messages = talk();
            let found = healed(&mut messages, spot, why);
            assert!(found.is_some(), "{spot:?} {why:?}");
            assert!(differs_only_in(&talk(), &messages, message, block), "{spot:?} {why:?}");
            let block = &messages[message].content[block];
            let note = match spot.inner {
                Some(inner) => &inside(block)[inner],
                None if noun == "An image" && message == 4 => &inside(block)[0],
                None => block,
            };
            assert!(text_at(note).contains(noun), "{note:?}");
        }
    }
}

#[test]
fn the_repair_note_says_how_to_get_the_removed_content() {
    let mut messages = talk();
    repair_rejected(&mut messages, Some(within(2, 0, 2)), RejectedContent::Media);
    assert!(text_at(&inside(&messages[2].content[0])[2]).contains("or for text"));
    repair_rejected(&mut messages, Some(at(0, 1)), RejectedContent::Media);
    assert!(text_at(&messages[0].content[1]).contains("unless a file holds it"));
}

#[test]
fn repair_and_stripping_leave_the_same_replacement_text() {
    let (mut healed, mut stripped) = (talk(), talk());
    repair_rejected(&mut healed, Some(within(2, 0, 1)), RejectedContent::Media);
    strip_media(&mut stripped, StripTarget::At(within(2, 0, 1)));
    assert_eq!(healed, stripped);
    for complaint in [RejectedContent::Media, RejectedContent::Block] {
        assert!(
            !can_repair_rejected(&stripped, Some(within(2, 0, 1)), complaint),
            "it is a note already"
        );
    }
}

#[test]
fn a_block_path_without_media_selects_the_nearest_media() {
    let mut in_the_block = talk();
    let found = healed(&mut in_the_block, within(2, 0, 0), RejectedContent::Media);
    assert_eq!(blocks_replaced(found), 2, "those of the same result");

    let mut in_the_message = talk();
    let found = healed(&mut in_the_message, at(2, 1), RejectedContent::Media);
    assert_eq!(blocks_replaced(found), 2, "those of the same message");
    assert_eq!(in_the_message[4], talk()[4]);

    for nowhere in [None, Some(at(1, 0)), Some(at(99, 0))] {
        let mut messages = talk();
        let found = healed(&mut messages, nowhere, RejectedContent::Media);
        assert_eq!(blocks_replaced(found), 1, "what was never sent before");
        assert_eq!(messages[..4], talk()[..4]);
        let found = healed(&mut messages, nowhere, RejectedContent::Media);
        assert_eq!(blocks_replaced(found), 3, "then all of it");
        assert_eq!(healed(&mut messages, nowhere, RejectedContent::Media), None);
    }
}

#[test]
fn rejected_foreign_thinking_is_removed_all_at_once() {
    for spot in [None, Some(at(1, 0)), Some(at(3, 0)), Some(at(99, 99))] {
        let mut messages = talk();
        let found = healed(&mut messages, spot, RejectedContent::Thinking);
        assert_eq!(found, Some(BlockRepair::Strip));
        let mut expected = talk();
        expected[1].content.remove(0);
        expected[3].content.remove(0);
        assert_eq!(messages, expected);
        assert_eq!(healed(&mut messages, spot, RejectedContent::Thinking), None);
    }
    let mut named = talk();
    let found = healed(&mut named, at(3, 0), RejectedContent::Block);
    assert_eq!(found, Some(BlockRepair::Strip), "thinking is never replaced by words");
}

#[test]
fn a_local_history_rule_violation_is_repaired() {
    let broken = [
        vec![
            Message::user(vec![Block::text("go")]),
            Message::assistant(vec![Block::text(" "), call("a")]),
            Message::user(vec![Block::text("and?")]),
        ],
        vec![
            Message::user(vec![Block::text("go"), Block::text("")]),
            Message::assistant(vec![Block::text("gone")]),
            Message::user(vec![result("x", vec![]), Block::text("and?")]),
        ],
    ];
    for why in [RejectedContent::Pairs, RejectedContent::Block] {
        for (spot, messages) in broken.iter().flat_map(|one| [(Some(at(1, 0)), one), (None, one)]) {
            let mut messages = messages.clone();
            let found = healed(&mut messages, spot, why);
            assert_eq!(found, Some(BlockRepair::Repair), "{messages:?}");
            assert_eq!(violations(&messages), []);
        }
    }
}

#[test]
fn tool_call_pairs_rejected_by_the_service_become_text() {
    for spot in [whole(1), at(1, 2), whole(2), at(2, 1)] {
        let mut messages = talk();
        let found = healed(&mut messages, spot, RejectedContent::Pairs);
        assert_eq!(found, Some(BlockRepair::Untie(1)), "{spot:?}");
        assert_eq!(messages[3..], talk()[3..]);
        assert_eq!(messages[1].content[..2], talk()[1].content[..2]);
        assert!(text_at(&messages[1].content[2]).contains(r#"Bash with {"command":"ls"}"#));
        let answers = &messages[2].content;
        assert!(answers.contains(&image()) && answers.contains(&Block::text("done")));
        assert_eq!(healed(&mut messages, spot, RejectedContent::Pairs), None);
    }
    assert_eq!(healed(&mut talk(), None, RejectedContent::Pairs), None);
    assert_eq!(healed(&mut talk(), whole(0), RejectedContent::Pairs), None);
}

#[test]
fn any_other_named_block_is_replaced_and_call_pairs_stay_intact() {
    let cases = [
        (at(1, 1), 1, 1, BlockRepair::Replace(vec![at(1, 1)])),
        (at(1, 2), 1, 2, BlockRepair::Empty { message: 1, block: 2 }),
        (at(2, 1), 2, 1, BlockRepair::Replace(vec![at(2, 1)])),
        (within(2, 0, 0), 2, 0, BlockRepair::Replace(vec![within(2, 0, 0)])),
        (whole(4), 4, 0, BlockRepair::Replace(vec![at(4, 0)])),
    ];
    for (spot, message, block, expected) in cases {
        let mut messages = talk();
        assert_eq!(healed(&mut messages, spot, RejectedContent::Block), Some(expected), "{spot:?}");
        assert!(differs_only_in(&talk(), &messages, message, block), "{spot:?}");
        assert_eq!(healed(&mut messages, spot, RejectedContent::Block), None, "{spot:?} again");
    }
    let mut messages = talk();
    repair_rejected(&mut messages, Some(within(2, 0, 0)), RejectedContent::Block);
    assert_eq!(inside(&messages[2].content[0])[1..], [image(), document()]);
}

#[test]
fn further_fields_are_removed_before_what_has_them() {
    let document = json!({ "type": "document", "title": "T", "source": { "type": "text",
        "media_type": "text/plain", "data": "x" } });
    let call = json!({ "type": "tool_use", "id": "a", "name": "Bash", "input": { "command": "ls" },
        "thought_signature": "Zm9v" });
    let read = |block: &Value| -> Block { serde_json::from_value(block.clone()).expect("a block") };
    let mut messages = vec![
        Message::user(vec![Block::text("go"), read(&document)]),
        Message::assistant(vec![read(&call)]),
        Message::user(vec![result("a", vec![Block::text("x")])]),
    ];
    let was = messages.clone();
    let spots = [
        (at(0, 1), 0, 1, BlockRepair::Reduce { message: 0, block: 1 }),
        (at(1, 0), 1, 0, BlockRepair::Rename),
    ];
    for (spot, message, block, expected) in spots {
        assert_eq!(healed(&mut messages, spot, RejectedContent::Block), Some(expected), "{spot:?}");
        assert_ne!(messages[message].content[block], was[message].content[block]);
    }
    assert!(messages[0].content[1] == Block::document(document["source"].clone()));
    assert!(messages[1].content[0] == Block::call("a", "Bash", call["input"].clone()));
    assert_eq!(messages[2], was[2]);
}

#[test]
fn repair_never_removes_the_task() {
    for spot in [at(0, 0), whole(0), whole(2), at(2, 7), at(9, 0)] {
        let mut messages = talk();
        assert_eq!(healed(&mut messages, spot, RejectedContent::Block), None, "{spot:?}");
    }
    assert_eq!(healed(&mut talk(), None, RejectedContent::Block), None);
}

#[test]
fn a_foreign_call_is_removed_with_its_result() {
    let theirs = |kind: &str, key: &str, id: &str| {
        let mut value = json!({ "type": kind });
        value[key] = Value::from(id);
        Block::Other(value)
    };
    let reply = Message::assistant(vec![
        theirs("server_tool_use", "id", "s1"),
        theirs("advisor_tool_result", "tool_use_id", "s1"),
        theirs("server_tool_use", "id", "s2"),
        Block::text("so"),
    ]);
    let talk = vec![Message::user(vec![Block::text("go")]), reply, Message::user(vec![image()])];
    for why in [RejectedContent::Pairs, RejectedContent::Block] {
        let mut messages = talk.clone();
        assert_eq!(blocks_replaced(healed(&mut messages, at(1, 1), why)), 2);
        let content = &messages[1].content;
        assert!(matches!(content[..2], [Block::Text { .. }, Block::Text { .. }]));
        assert_eq!(content[2..], talk[1].content[2..]);
        assert_eq!(healed(&mut messages, at(1, 1), why), None);
    }
}

#[test]
fn thinking_is_required_only_in_an_open_tool_round() {
    let mut messages = talk();
    assert!(!lacks_thinking(&messages));
    repair_rejected(&mut messages, None, RejectedContent::Thinking);
    assert!(lacks_thinking(&messages));
    messages.push(Message::assistant(vec![Block::text("done")]));
    messages.push(Message::user(vec![Block::text("more")]));
    assert!(!lacks_thinking(&messages), "a new round may begin with thinking");
    assert!(!lacks_thinking(&[]));
}

// --- whatever the conversation, and whatever the service says ------------------------------------

fn spot() -> impl Strategy<Value = Option<BlockPath>> {
    let index = || proptest::option::weighted(0.8, 0..6_usize);
    let spot = (0..8_usize, index(), index()).prop_map(|(message, block, inner)| BlockPath {
        message,
        block,
        inner,
    });
    proptest::option::weighted(0.9, spot)
}

fn complaint() -> impl Strategy<Value = RejectedContent> {
    select(COMPLAINTS.to_vec())
}

/// A conversation that may be sent, with media and foreign blocks in it.
fn rich_messages() -> impl Strategy<Value = Vec<Message>> {
    let extras = proptest::collection::vec((0..12_usize, 0..4_usize, 0..5_u8), 0..8);
    (valid_messages(), extras).prop_map(|(mut messages, extras)| {
        for (message, block, kind) in extras {
            let count = messages.len();
            add(&mut messages[message % count], block, kind);
        }
        messages
    })
}

fn add(message: &mut Message, block: usize, kind: u8) {
    let count = message.content.len();
    let foreign = || Block::Other(json!({ "type": "server_tool_use", "id": "s" }));
    let extra = match (kind, message.role) {
        (0 | 1, Role::User) => image(),
        (2, Role::User) => document(),
        (_, _) => foreign(),
    };
    match &mut message.content[block % count] {
        Block::ToolResult { content, .. } => content.push(extra),
        Block::Text { .. }
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::ToolUse { .. }
        | Block::Image { .. }
        | Block::Document { .. }
        | Block::Other(_) => message.content.push(extra),
    }
}

/// A turn that was paused in a search of the service, and then left for a new prompt.
#[test]
fn a_search_without_its_result_is_removed_wherever_its_message_is_blamed() {
    let search = || Block::Other(json!({ "type": "server_tool_use", "id": "s", "input": {} }));
    let found = || Block::Other(json!({ "type": "web_search_tool_result", "tool_use_id": "s" }));
    let talk = |reply: Vec<Block>| {
        let prompt = |text: &str| Message::user(vec![Block::text(text)]);
        vec![prompt("go"), Message::assistant(reply), prompt("next")]
    };
    for (why, spot) in
        [(RejectedContent::Block, 1), (RejectedContent::Pairs, 1), (RejectedContent::Pairs, 2)]
    {
        let open = talk(vec![Block::text("Looking."), search(), Block::text("So.")]);
        let mut messages = open.clone();
        let outcome = healed(&mut messages, whole(spot), why);
        assert_eq!(outcome, Some(BlockRepair::Replace(vec![at(1, 1)])), "{why:?}");
        assert!(differs_only_in(&open, &messages, 1, 1), "{messages:?}");
        assert_eq!(healed(&mut messages, whole(spot), why), None, "once");
        let mut messages = talk(vec![Block::text("Looking."), search(), found()]);
        assert_eq!(healed(&mut messages, whole(spot), why), None, "it has its result");
    }
}

proptest! {
    #![proptest_config(property_cases(150))]

    #[test]
    fn repair_keeps_a_valid_list_valid_and_is_predicted_correctly(
        messages in rich_messages(), spot in spot(), why in complaint(),
    ) {
        prop_assert_eq!(violations(&messages), []);
        let task = messages[0].content[0].clone();
        let mut cured = messages;
        healed(&mut cured, spot, why);
        prop_assert_eq!(&cured[0].content[0], &task, "the task is still there");
    }

    #[test]
    fn repeating_the_same_rejection_stops_being_repairable(
        messages in prop_oneof![rich_messages(), any_messages()], spot in spot(), why in complaint(),
    ) {
        let mut messages = messages;
        let blocks: usize = messages.iter().map(|message| message.content.len()).sum();
        let bound = 3 + blocks;
        let cures = (0..=bound).take_while(|_| healed(&mut messages, spot, why).is_some()).count();
        prop_assert!(cures <= 4, "{cures} cures of {why:?} at {spot:?}");
    }

    #[test]
    fn any_sequence_of_rejections_ends(
        messages in rich_messages(),
        complaints in proptest::collection::vec((spot(), complaint()), 60),
    ) {
        let mut messages = messages;
        let mut cures = 0;
        for (spot, why) in complaints {
            cures += usize::from(healed(&mut messages, spot, why).is_some());
        }
        let blocks: usize = messages.iter().map(|message| message.content.len()).sum();
        prop_assert!(cures <= 3 * (blocks + 24), "{cures} cures");
        prop_assert_eq!(violations(&messages), []);
    }
}
