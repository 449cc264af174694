//! Compaction: a summary replaces older messages and keeps the task, to-dos and files.

use std::fmt::Write as _;

use outlast_core::transcript::compaction::{
    CompactionInputs, CutPoint, DROPS_MAX, ProgramTexts, RestoredFile, can_shrink, plan, rebuild,
    recently_read, render, restored_bytes, shrink,
};
use outlast_core::transcript::{Block, Message, Role, TokenDensity, violations};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::arbitrary::long_messages;
use crate::support::rotation::property_cases;

const USUAL: TokenDensity = TokenDensity::USUAL;

fn user(text: &str) -> Message {
    Message::user(vec![Block::text(text)])
}

fn says(text: &str) -> Message {
    Message::assistant(vec![Block::text(text)])
}

/// One call and its result.
fn round(id: &str, name: &str, input: Value, result: &str) -> [Message; 2] {
    let call = Block::call(id, name, input);
    [Message::assistant(vec![call]), Message::user(vec![answer(id, result, false)])]
}

fn answer(id: &str, text: &str, is_error: bool) -> Block {
    Block::ToolResult { tool_use_id: id.to_owned(), content: vec![Block::text(text)], is_error }
}

fn bash(id: &str, command: &str, bytes: usize) -> [Message; 2] {
    round(id, "Bash", json!({ "command": command }), &"x".repeat(bytes))
}

fn all_text(message: &Message) -> String {
    let text = |block: &Block| match block {
        Block::Text { text } => Some(text.clone()),
        Block::ToolResult { content, .. } => Some(all_text(&Message::user(content.clone()))),
        Block::ToolUse { .. }
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::Image { .. }
        | Block::Document { .. }
        | Block::Other(_) => None,
    };
    message.content.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}

fn compact(messages: Vec<Message>, room: u64, summary: &str) -> Vec<Message> {
    let cut = plan(&messages, room, USUAL).expect("there is an older part");
    let after = rebuild(messages, &cut, summary, &CompactionInputs::default());
    assert_eq!(violations(&after), []);
    after
}

/// A task and ten rounds of 6 kB each.
fn ten_rounds() -> Vec<Message> {
    let mut messages = vec![user("fix the parser")];
    for n in 0..10 {
        messages.extend(bash(&format!("t{n}"), &format!("step {n}"), 6_000));
    }
    messages
}

#[test]
fn compaction_keeps_at_most_a_quarter_of_the_conversation_verbatim() {
    for room in [25_000, 1_000_000] {
        let messages = ten_rounds();
        let cut = plan(&messages, room, USUAL).expect("there is an older part");
        assert_eq!(cut.kept(&messages), &messages[17..], "two rounds of ten");
        let after = compact(messages.clone(), room, "did things");
        assert_eq!(after[1..], messages[17..]);
        assert!(USUAL.of(&after) < USUAL.of(&messages) / 3);
    }
    let tight = ten_rounds();
    let cut = plan(&tight, 9_000, USUAL).expect("there is an older part");
    assert_eq!(cut.kept(&tight).len(), 2, "a quarter of the room is one round");
    let cut = plan(&tight, 10, USUAL).expect("there is an older part");
    assert_eq!(cut.kept(&tight).len(), 2, "the last round stays, whatever the room");
}

#[test]
fn a_single_round_leaves_nothing_to_summarise() {
    assert_eq!(plan(&[], 1_000, USUAL), None);
    assert_eq!(plan(&[user(&"t".repeat(90_000))], 1_000, USUAL), None);
    let mut messages = vec![user(&"t".repeat(90_000))];
    messages.extend(bash("a", "ls", 90_000));
    assert_eq!(plan(&messages, 1_000, USUAL), None);
    let mut messages = vec![user("t")];
    messages.extend(bash("a", "ls", 100));
    messages.extend(bash("b", "ls", 90_000));
    assert_eq!(plan(&messages, 1_000, USUAL), None, "not worth a call");
}

#[test]
fn a_second_compaction_keeps_the_task_and_one_summary() {
    let image = Block::Image { source: json!({ "type": "base64", "data": "QQ==" }) };
    let task = vec![Block::text("fix it\n\n  exactly so"), image];
    let mut messages = vec![Message::user(task.clone())];
    for n in 0..4 {
        for step in 0..6 {
            messages.extend(bash(&format!("t{n}-{step}"), "make", 6_000));
        }
        messages = compact(messages, 12_000, &format!("summary {n} {}", "s".repeat(3_000)));
        assert_eq!(messages[0].content[1..3], task[..]);
        let root = all_text(&messages[0]);
        assert!(root.contains(&format!("summary {n} ")), "{root}");
        assert_eq!(root.matches("summary ").count(), 1, "{root}");
        assert!(root.len() < 5_000, "{}", root.len());
    }
}

#[test]
fn the_previous_summary_is_part_of_the_next_summary_request() {
    let mut messages = compact(ten_rounds(), 12_000, "the lexer was wrong");
    messages.push(says("on with it"));
    messages.push(user("and document it"));
    let text = render(&messages, 40_000, USUAL, 0);
    for part in ["# The task\nfix the parser\n", "the lexer was wrong", "# User\nand document it"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("[outlast]"), "our frame is not the model's business: {text}");
}

#[test]
fn work_facts_survive_compaction_and_merge_with_earlier_ones() {
    let todo = |content: &str, status: &str| json!({ "content": content, "status": status });
    let todos = json!({ "todos": [todo("write the docs", "pending"), todo("old", "completed")] });
    let file = |path: &str| json!({ "file_path": path });
    let mut messages = vec![user("task")];
    messages.extend(round("1", "TodoWrite", todos, "kept"));
    messages.extend(round("2", "Edit", file("/w/a.rs"), "done"));
    messages.extend(round("3", "Read", file("/w/a.rs"), "text"));
    messages.extend(round("4", "Read", file("/w/b.rs"), "text"));
    let denied = Block::call("5", "Write", file("/w/denied.rs"));
    messages.push(Message::assistant(vec![denied]));
    messages.push(Message::user(vec![answer("5", "not allowed", true)]));
    messages.extend(bash("6", "a", 9_000));
    messages.extend(bash("7", "b", 9_000));
    let mut messages = compact(messages, 8_000, "nothing much");
    let facts = all_text(&messages[0]);
    let facts: String = facts.split_whitespace().collect::<Vec<_>>().join(" ");
    let files = r#""files": [ { "path": "/w/a.rs", "state": "edited" }, { "path": "/w/b.rs", "state": "read" } ]"#;
    assert!(facts.contains(files), "{facts}");
    let open = r#""open_todos": [ { "content": "write the docs", "status": "pending" } ]"#;
    assert!(facts.contains(open), "{facts}");
    let failed = r#"{ "call": "Write `/w/denied.rs`", "error": "not allowed" }"#;
    assert!(facts.contains(failed), "{facts}");

    messages.extend(round("8", "Write", file("/w/b.rs"), "done"));
    messages.extend(bash("9", "c", 9_000));
    messages.extend(bash("10", "d", 9_000));
    let mut messages = compact(messages, 8_000, "nothing much");
    let facts = all_text(&messages[0]);
    assert!(facts.contains("write the docs") && facts.contains("not allowed"), "{facts}");
    assert!(facts.contains("/w/a.rs"), "{facts}");
    assert!(facts.ends_with("not repeat what is done."), "{facts}");
    let (at, state) = (facts.find("/w/b.rs").unwrap_or(0), "\"state\": \"written\"");
    assert!(facts[at..].contains(state), "{facts}");

    messages.extend(bash("11", "e", 9_000));
    messages.extend(bash("12", "f", 9_000));
    let done = json!({ "todos": [todo("write the docs", "completed")] });
    messages.extend(round("13", "TodoWrite", done, "kept"));
    let messages = compact(messages, 8_000, "nothing much");
    let facts = all_text(&messages[0]);
    assert!(!facts.contains("write the docs"), "the kept part shows the new list: {facts}");
}

#[test]
fn a_failed_todo_list_in_the_kept_part_does_not_replace_the_open_todos() {
    let todos = |content: &str| json!({ "todos": [{ "content": content, "status": "pending" }] });
    let mut messages = vec![user("task")];
    messages.extend(round("1", "TodoWrite", todos("write the docs"), "kept"));
    messages.extend(bash("2", "a", 9_000));
    messages.extend(bash("3", "b", 9_000));
    let failing = Block::call("4", "TodoWrite", todos("write the tests"));
    let failed = [
        Message::assistant(vec![failing]),
        Message::user(vec![answer("4", "it was interrupted", true)]),
    ];
    messages.extend(failed.clone());
    let after = compact(messages, 8_000, "nothing much");
    assert!(after.ends_with(&failed), "the failed call is in the kept part");
    let root = all_text(&after[0]);
    assert!(root.contains("write the docs"), "{root}");
}

#[test]
fn compaction_keeps_later_user_messages_but_not_nudges() {
    let mut messages = vec![user("first task"), says("done"), user("second task")];
    for n in 0..10 {
        messages.extend(bash(&format!("t{n}"), "make", 6_000));
    }
    let nudge = "Go on, says the nudge.\n\nAnd what follows it.";
    messages.splice(13..13, [says("stopping here"), user(nudge)]);
    let cut = plan(&messages, 25_000, USUAL).expect("there is an older part");
    let after = rebuild(messages, &cut, "so far", &program_texts());
    assert!(after[0].content.contains(&Block::text("second task")), "{:?}", after[0]);
    assert!(!all_text(&after[0]).contains("says the nudge"));
    let twice = compact([after, ten_rounds()[1..].to_vec()].concat(), 25_000, "so far");
    assert!(twice[0].content.contains(&Block::text("second task")), "{:?}", twice[0]);
}

/// Inputs with a nudge and a note of a hook.
fn program_texts() -> CompactionInputs<'static> {
    let program_texts = ProgramTexts { own: &["Go on, says the nudge."], notes: &["A hook says"] };
    CompactionInputs { program_texts, ..CompactionInputs::default() }
}

/// `prompt` after a first task and six rounds, with six rounds between it and the kept part.
fn with_second_prompt(prompt: Vec<Block>) -> Vec<Message> {
    let mut messages = vec![user("first task")];
    let rounds = (0..14).flat_map(|n| bash(&format!("t{n}"), "make", 6_000));
    messages.extend(rounds);
    messages[12].content.extend(prompt);
    messages
}

#[test]
fn the_latest_prompt_is_kept_whole_beside_tool_results_with_its_notes_and_media() {
    let image = Block::Image { source: json!({ "type": "base64", "data": "QQ==" }) };
    let long = format!("second task {} end", "t".repeat(12_000));
    let prompt = [Block::text(long), image, Block::text("A hook says: use tabs")];
    let own = [Block::text("A hook says: read"), Block::text("Go on, says the nudge. Loop.")];
    let mut messages = with_second_prompt([own.to_vec(), prompt.to_vec()].concat());
    messages[14].content.extend(own);
    for time in 0..3 {
        let cut = plan(&messages, 25_000, USUAL).expect("there is an older part");
        messages = rebuild(messages, &cut, "so far", &program_texts());
        assert_eq!(violations(&messages), []);
        let root = &messages[0].content;
        let holds = root.windows(prompt.len()).any(|blocks| blocks == prompt);
        assert!(holds && root.contains(&Block::text("first task")), "{time}: {root:?}");
        let text = all_text(&messages[0]);
        assert!(!text.contains("nudge") && !text.contains("hook says: read"), "{time}: {text}");
        let read = render(&messages, 40_000, USUAL, 0);
        assert!(read.contains("# User\nsecond task") && !read.contains("[outlast]"), "{read}");
        let rounds = (0..8).flat_map(|n| bash(&format!("u{time}-{n}"), "make", 6_000));
        messages.extend(rounds);
    }
    messages.push(says("done"));
    messages.push(user("third task"));
    messages.extend((0..14).flat_map(|n| bash(&format!("v{n}"), "make", 6_000)));
    let after = compact(messages, 50_000, "so far");
    let text = all_text(&after[0]);
    let [second, third] = ["second task ttt", "third task"].map(|prompt| text.find(prompt));
    assert!(second.is_some() && second < third, "{text}");
    assert!(!after[0].content.contains(&prompt[1]), "only the latest prompt keeps its images");
}

#[test]
fn the_latest_prompt_has_the_first_claim_to_the_room_of_prompts() {
    let [task, prompt] =
        ["first", "second"].map(|name| format!("{name} {} end", name.repeat(10_000)));
    let mut messages = with_second_prompt(vec![Block::text(&prompt)]);
    messages[0] = user(&task);
    let sizes = |room: u64| {
        let after = compact(messages.clone(), room, "so far");
        let text = |start: &str| {
            let mut texts = after[0].content.iter().filter_map(Block::as_text);
            texts.find(|text| text.starts_with(start)).expect("it is kept").to_owned()
        };
        [text("first f"), text("second s")].map(|text| USUAL.of_text(&text))
    };
    let [first, second] = sizes(32_000);
    assert!((2_000..=4_000).contains(&first) && (10_000..=12_000).contains(&second));
    assert_eq!(sizes(200_000), [task, prompt].map(|text| USUAL.of_text(&text)));
}

#[test]
fn only_a_task_that_fills_the_window_loses_its_middle() {
    let task = format!("begin {} end", "t".repeat(60_000));
    let mut messages = ten_rounds();
    messages[0] = user(&task);
    let after = compact(messages.clone(), 30_000, "s");
    let Block::Text { text } = &after[0].content[1] else { unreachable!() };
    assert!(text.starts_with("begin ttt") && text.ends_with("ttt end"));
    assert!(text.contains("bytes left out here") && USUAL.tokens(text.len() as u64) < 15_000);
    let after = compact(messages, 60_000, "s");
    assert_eq!(after[0].content[1], Block::text(task));
}

#[test]
fn files_are_restored_newest_first_unless_the_kept_part_shows_them() {
    let file = |path: &str| json!({ "file_path": path });
    let mut messages = vec![user("task")];
    for n in 0..7 {
        messages.extend(round(&format!("r{n}"), "Read", file(&format!("/w/{n}")), "text"));
    }
    let part = json!({ "file_path": "/w/0", "offset": 40, "limit": 20 });
    messages.extend(round("again", "Read", part, "text"));
    messages.extend(round("e", "Edit", file("/w/5"), "done"));
    messages.extend(bash("a", "make", 9_000));
    messages.extend(bash("b", "make", 9_000));
    messages.extend(round("shown", "Read", file("/w/6"), "text"));
    messages.extend(round("changed", "Edit", file("/w/4"), "done"));
    let cut = plan(&messages, 20_000, USUAL).expect("there is an older part");
    let readings = recently_read(&messages, &cut);
    let paths: Vec<&str> = readings.iter().map(|reading| reading.path.as_str()).collect();
    assert_eq!(paths, ["/w/5", "/w/0", "/w/4", "/w/3", "/w/2"]);
    assert_eq!((readings[1].offset, readings[1].limit), (Some(40), Some(20)));
    assert_eq!((readings[0].offset, readings[0].limit), (None, None));
}

#[test]
fn restored_files_stay_within_their_share_and_yield_to_the_summary() {
    let file = |n: usize, bytes: usize| RestoredFile {
        path: format!("/w/{n}"),
        content: format!("start of {n}{}", "c".repeat(bytes)),
    };
    let files: Vec<RestoredFile> = (0..7).map(|n| file(n, 40_000)).collect();
    let mut messages = vec![user("task")];
    for n in 0..60 {
        messages.extend(bash(&format!("t{n}"), "make", 12_000));
    }
    let cut = plan(&messages, 400_000, USUAL).expect("there is an older part");
    let carried = CompactionInputs { restored: &files, ..CompactionInputs::default() };
    let after = rebuild(messages.clone(), &cut, "so far", &carried);
    let files_of = |after: &[Message]| -> Vec<String> {
        let texts = after[0].content.iter().filter_map(|block| {
            if let Block::Text { text } = block { Some(text.clone()) } else { None }
        });
        texts.filter(|text| text.starts_with("File /w/")).collect()
    };
    let restored = files_of(&after);
    assert_eq!(restored.len(), 5);
    assert!(restored[0].starts_with("File /w/0:\nstart of 0ccc"), "{}", &restored[0][..50]);
    assert!(restored.iter().all(|text| USUAL.tokens(text.len() as u64) <= 5_000));
    assert_eq!(restored_bytes(&cut), USUAL.bytes(5_000));

    let cut = plan(&messages, 16_000, USUAL).expect("there is an older part");
    let after = rebuild(messages, &cut, "so far", &carried);
    let restored = files_of(&after);
    assert_eq!(restored.len(), 1, "an eighth of the room is 2,000 tokens");
    assert_eq!(restored_bytes(&cut), USUAL.bytes(2_000));

    let cut = plan(&ten_rounds(), 24_000, USUAL).expect("there is an older part");
    let after = rebuild(ten_rounds(), &cut, &"s".repeat(100_000), &carried);
    assert_eq!(files_of(&after), [""; 0], "the summary took what the older part left");
}

#[test]
fn the_summary_input_has_calls_and_results_but_no_thinking_or_media() {
    let thinking =
        Block::Thinking { thinking: "secret doubt".to_owned(), signature: "c2ln".to_owned() };
    let call = Block::call("a", "Bash", json!({ "command": "cargo test", "timeout": 9 }));
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "QkFTRTY0" });
    let content = vec![Block::text("2 failed"), Block::Image { source }];
    let result = Block::ToolResult { tool_use_id: "a".to_owned(), content, is_error: true };
    let text = render(
        &[
            user("fix it"),
            Message::assistant(vec![thinking, Block::text("I try."), call]),
            Message::user(vec![result]),
        ],
        4_000,
        USUAL,
        0,
    );
    let expected = "# The task\nfix it\n\n# Assistant\nI try.\n\n# Assistant calls Bash \
                    `cargo test`\n{\"command\":\"cargo test\",\"timeout\":9}\n\n# Result of Bash \
                    `cargo test` (failed)\n2 failed\n[image, image/png: not shown]\n";
    assert_eq!(text.trim_end(), expected.trim_end());
}

#[test]
fn large_results_are_cut_before_text_and_small_results() {
    let mut messages = vec![user("fix it")];
    messages.extend(bash("a", "big", 50_000));
    messages.push(says(&"w".repeat(5_000)));
    messages.push(user("go on"));
    messages.extend(bash("b", "small", 1_000));
    let text = render(&messages, USUAL.tokens(12_000), USUAL, 0);
    assert!(text.len() > 11_000, "{}", text.len());
    assert!(text.contains(&"w".repeat(5_000)) && text.contains(&"x".repeat(1_000)));
    assert!(text.contains("bytes left out here"));
}

#[test]
fn dense_text_is_cut_by_tokens_not_bytes() {
    let digits = "0.4871 9302 ".repeat(6_000);
    let mut messages = vec![user("fix it")];
    messages.extend(round("a", "Bash", json!({ "command": "numbers" }), &digits));
    let text = render(&messages, 10_000, USUAL, 0);
    let tokens = USUAL.of_text(&text);
    assert!((8_500..=10_000).contains(&tokens), "{tokens}");
    assert!(text.len() < 25_000, "it would take three bytes a token if it were prose");
    shrink(&mut messages, 20_000, USUAL);
    let tokens = USUAL.of(&messages);
    assert!((8_500..=10_100).contains(&tokens), "{tokens}");
}

#[test]
fn each_refused_summary_request_drops_a_share_of_the_oldest_rounds() {
    let messages = ten_rounds();
    let whole = render(&messages, 400_000, USUAL, 0);
    let mut before = whole.len();
    assert!(before > 60_000);
    for drops in 1..=DROPS_MAX {
        let text = render(&messages, 400_000, USUAL, drops);
        assert!(text.len() + whole.len() / 5 < before, "{drops}: {} of {before}", text.len());
        assert!(text.contains("fix the parser") && text.contains("step 9"), "{drops}");
        assert!(!text.contains("step 0") && text.contains("(Earlier rounds are left out.)"));
        before = text.len();
    }
    let single = [&[user("t")][..], &bash("a", "one", 30_000)].concat();
    assert!(render(&single, 400_000, USUAL, 1).len() < 24_000);
}

#[test]
fn a_round_larger_than_the_window_has_its_large_results_shrunk() {
    let call = |id: &str| Block::call(id, "Bash", json!({ "command": "cat" }));
    let ids: Vec<String> = (0..14).map(|n| format!("t{n}")).collect();
    let mut results: Vec<Block> =
        ids.iter().map(|id| answer(id, &format!("{id} {}.", "x".repeat(25_000)), false)).collect();
    results[3] = answer("t3", "short", true);
    let mut messages = vec![
        user("read all"),
        Message::assistant(ids.iter().map(|id| call(id)).collect()),
        Message::user(results),
    ];
    let before = USUAL.of(&messages);
    let freed = shrink(&mut messages, 60_000, USUAL);
    assert_eq!(violations(&messages), []);
    assert!((before - freed).abs_diff(USUAL.of(&messages)) <= 1);
    assert!((28_000..=30_100).contains(&USUAL.of(&messages)), "{}", USUAL.of(&messages));
    assert_eq!(messages[2].content[3], answer("t3", "short", true));
    assert!(all_text(&messages[2]).contains("bytes left out here"));
    assert_eq!(shrink(&mut messages, 60_000, USUAL), 0, "once is enough");

    let [asked, mut answered] = bash("a", "shots", 10);
    let Block::ToolResult { content, .. } = &mut answered.content[0] else { unreachable!() };
    let image = Block::Image { source: json!({ "type": "base64", "data": "QQ==" }) };
    content.extend(vec![image; 20]);
    let mut messages = vec![user("look"), asked, answered];
    assert!(shrink(&mut messages, 60_000, USUAL) > 90_000);
    assert_eq!(violations(&messages), []);
    assert!(all_text(&messages[2]).contains("[image: not shown]"));
}

/// The texts of the open to-dos that a reader of `messages` can see.
fn open_todos(messages: &[Message]) -> Vec<String> {
    let failed = |id: &str| {
        messages.iter().flat_map(|message| &message.content).any(|block| {
            matches!(block, Block::ToolResult { tool_use_id, is_error: true, .. } if tool_use_id == id)
        })
    };
    let blocks = messages.iter().rev().flat_map(|message| message.content.iter().rev());
    let mut lists = blocks.filter_map(|block| {
        let Block::ToolUse { id, name, input, .. } = block else { return None };
        (name == "TodoWrite" && !failed(id)).then(|| input["todos"].as_array())
    });
    let items = lists.next().flatten().into_iter().flatten();
    let open = items.filter(|item| item["status"] != "completed");
    open.filter_map(|item| item["content"].as_str().map(str::to_owned)).collect()
}

fn thinking(messages: &[Message]) -> Vec<&Block> {
    let blocks = messages.iter().flat_map(|message| &message.content);
    blocks.filter(|block| matches!(block, Block::Thinking { .. })).collect()
}

proptest! {
    #![proptest_config(property_cases(48))]

    #[test]
    fn any_conversation_compacts_to_a_smaller_valid_one_with_its_task(
        messages in long_messages(),
        room in 500u64..90_000,
        summary in "[a-z ]{0,3}|[a-z]{9000}",
        contents in proptest::collection::vec(0usize..40_000, 0..7),
    ) {
        let Some(cut) = plan(&messages, room, USUAL) else {
            return Ok(());
        };
        prop_assert_eq!([cut.older(&messages), cut.kept(&messages)].concat(), messages.clone());
        let restored: Vec<RestoredFile> = contents
            .iter()
            .enumerate()
            .map(|(n, bytes)| RestoredFile { path: format!("/w/{n}"), content: "é".repeat(*bytes) })
            .collect();
        let carried = CompactionInputs { restored: &restored, ..CompactionInputs::default() };
        let after = rebuild(messages.clone(), &cut, &summary, &carried);
        prop_assert_eq!(violations(&after), []);
        prop_assert_eq!(&after[0].content[1], &messages[0].content[0], "the task, word for word");
        prop_assert!(USUAL.of(&after) <= USUAL.of(&messages));
        prop_assert_eq!(thinking(&after), thinking(cut.kept(&messages)));
        let shown = open_todos(cut.kept(&messages));
        let root = all_text(&after[0]);
        for todo in open_todos(&messages) {
            let kept = shown.contains(&todo) || root.contains(&json!(todo).to_string());
            prop_assert!(kept, "{} is lost", todo);
        }
    }

    #[test]
    fn repeated_compaction_stays_valid_and_bounded(messages in long_messages()) {
        let mut growing = messages.clone();
        for time in 0..4 {
            let Some(cut) = plan(&growing, 20_000, USUAL) else { return Ok(()) };
            growing = rebuild(growing, &cut, &"so far ".repeat(300), &CompactionInputs::default());
            prop_assert_eq!(violations(&growing), []);
            prop_assert_eq!(&growing[0].content[1], &messages[0].content[0]);
            prop_assert!(USUAL.of(&growing[..1]) <= 6_000, "the root does not pile up");
            growing.extend(messages[1..].iter().map(|message| renamed(message.clone(), time)));
            prop_assert_eq!(violations(&growing), []);
        }
    }

    #[test]
    fn the_summary_input_never_exceeds_its_limit(
        messages in long_messages(),
        room in 0u64..20_000,
        drops in 0u8..5,
    ) {
        let text = render(&messages, room, USUAL, drops);
        prop_assert!(USUAL.of_text(&text) <= room, "{} bytes > {}", text.len(), room);
        prop_assert!(!text.contains("QkFTRTY0"), "no media");
        if room > 1_000 && drops == 0 {
            prop_assert!(text.starts_with("# The task\n"));
        }
    }

    #[test]
    fn shrinking_changes_only_the_results_of_the_last_round(
        messages in long_messages(),
        room in 0u64..40_000,
    ) {
        let mut after = messages.clone();
        let freed = shrink(&mut after, room, USUAL);
        prop_assert_eq!(can_shrink(&messages, room, USUAL), after != messages);
        prop_assert!(!can_shrink(&after, room, USUAL) || freed > 0, "it comes to an end");
        prop_assert_eq!(violations(&after), []);
        let less = USUAL.of(&messages) - USUAL.of(&after);
        prop_assert!(freed.abs_diff(less) <= 1, "{} for {}", freed, less);
        let changed: Vec<usize> =
            (0..messages.len()).filter(|&at| messages[at] != after[at]).collect();
        prop_assert!(changed.is_empty() || changed == [messages.len() - 1], "{:?}", changed);
        prop_assert_eq!(messages.iter().map(|m| m.role).collect::<Vec<Role>>(),
            after.iter().map(|m| m.role).collect::<Vec<Role>>());
    }
}

/// The same message at another time.
fn renamed(mut message: Message, time: usize) -> Message {
    for block in &mut message.content {
        if let Block::ToolUse { id, .. } | Block::ToolResult { tool_use_id: id, .. } = block {
            write!(id, "_{time}").expect("a string takes all");
        }
    }
    message
}

#[test]
fn a_cut_point_of_other_messages_is_harmless() {
    let cut: CutPoint = plan(&ten_rounds(), 25_000, USUAL).expect("there is an older part");
    let short = vec![user("t")];
    assert_eq!(cut.kept(&short), []);
    assert_eq!(recently_read(&short, &cut), []);
    assert_eq!(rebuild(short, &cut, "s", &CompactionInputs::default()).len(), 1);
    assert_eq!(violations(&rebuild(vec![], &cut, " ", &CompactionInputs::default())), []);
}
