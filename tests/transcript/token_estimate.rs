//! The token estimate of a conversation, which must never be too low.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outlast_core::transcript::{
    Block, History, Message, TokenDensity, ToolDefinition, Usage, fixed_bytes,
};
use proptest::prelude::*;
use serde_json::json;

use super::arbitrary::valid_messages;

fn user(text: &str) -> Message {
    Message::user(vec![Block::text(text)])
}

fn usage(input: u64, output: u64) -> Usage {
    Usage {
        input_tokens: input / 2,
        cache_read_input_tokens: input - input / 2,
        output_tokens: output,
        ..Usage::default()
    }
}

#[test]
fn before_the_first_reply_tokens_are_estimated_from_all_bytes() {
    let tool = ToolDefinition {
        name: "Bash".to_owned(),
        description: "d".repeat(700),
        input_schema: json!({ "type": "object" }),
    };
    let fixed = fixed_bytes(&"s".repeat(1_000), &[tool]);
    assert!(fixed >= 1_700);
    let bound = History::new(vec![user(&"x".repeat(5_000))], fixed).upper_bound();
    assert!(bound >= fixed + 5_000, "{bound}");
    assert!(bound < fixed + 5_200, "{bound} is far from tight");
}

#[test]
fn after_a_reply_only_newer_messages_are_estimated() {
    let mut history = History::new(vec![user(&"x".repeat(40_000))], 4_000);
    history
        .push_reply(Message::assistant(vec![Block::text("y".repeat(3_000))]), &usage(10_000, 800));
    let after_reply = history.upper_bound();
    assert!((10_800..11_000).contains(&after_reply), "{after_reply}");
    history.push(user(&"é".repeat(500)));
    let grown = history.upper_bound() - after_reply;
    assert!((1_000..1_200).contains(&grown), "{grown}");
}

#[test]
fn an_edited_history_is_estimated_from_all_bytes_again() {
    let mut history = History::new(vec![user(&"x".repeat(40_000))], 4_000);
    history.push_reply(Message::assistant(vec![Block::text("fine")]), &usage(10_000, 3));
    history.edit(|messages| messages[0] = user(&"z".repeat(60_000)));
    assert!(history.upper_bound() >= 64_004);
    let before = history.upper_bound();
    history.observe_usage(&usage(14_000, 0));
    assert_eq!(history.upper_bound(), 14_000);
    history.edit(|_messages| {});
    assert_eq!(history.upper_bound(), before);
}

#[test]
fn a_reported_token_count_that_is_too_low_is_ignored() {
    let mut history = History::new(vec![user(&"x".repeat(40_000))], 0);
    let before = history.upper_bound();
    for nonsense in [usage(0, 5), usage(40, 5)] {
        history.observe_usage(&nonsense);
        assert_eq!(history.upper_bound(), before);
    }
    history.push_reply(Message::assistant(vec![Block::text("y".repeat(90))]), &usage(40, 5));
    assert!(history.upper_bound() >= before + 90);
}

#[test]
fn json_is_estimated_at_its_longest_serialization() {
    let longest = r#"{"a": "\u00e9\ud83d\ude00", "b": [1, 2.5, null], "\u0001": {"c": false}}"#;
    let input = json!({ "a": "é😀", "b": [1, 2.5, null], "\u{1}": { "c": false } });
    let history = |input| {
        let call = Block::call(String::new(), String::new(), input);
        History::new(vec![Message::assistant(vec![call])], 0).upper_bound()
    };
    let grown = history(input) - history(json!({}));
    assert!(grown + 2 >= longest.len() as u64, "{grown} < {}", longest.len());
}

#[test]
fn an_image_is_estimated_by_its_maximum_not_its_bytes() {
    let image = |bytes: usize| {
        let source = json!({ "type": "base64", "data": "A".repeat(bytes) });
        History::new(vec![Message::user(vec![Block::Image { source }])], 0).upper_bound()
    };
    assert_eq!(image(10), image(1_000_000));
    assert!(image(10) >= 4_784);
}

#[test]
fn the_token_estimate_adapts_to_dense_text() {
    let mut history = History::new(vec![user(&"x".repeat(30_000))], 0);
    let naive = history.estimate();
    assert!((10_000..11_000).contains(&naive), "{naive}");
    history.observe_usage(&usage(15_000, 0));
    history.push(Message::assistant(vec![Block::text("y".repeat(30_000))]));
    let learned = history.estimate() - 15_000;
    assert!((15_000..18_000).contains(&learned), "{learned}");
}

#[test]
fn an_edited_history_keeps_the_learned_token_density() {
    let mut history = History::new(vec![user(&"x".repeat(30_000)), user("y")], 0);
    history.observe_usage(&usage(15_000, 0));
    assert!(history.density() > TokenDensity::USUAL);
    history.edit(|messages| messages[0] = user(&"z".repeat(20_000)));
    let estimate = history.estimate();
    assert!((10_500..11_500).contains(&estimate), "{estimate}");
}

#[test]
fn a_token_count_replaces_the_estimate_until_something_changes() {
    let mut history = History::new(vec![user(&"word ".repeat(20_000))], 0);
    assert!(!history.is_counted() && history.upper_bound() > 100_000);
    history.record_count(25_000);
    assert_eq!((history.upper_bound(), history.estimate()), (25_000, 25_000));
    assert!(history.is_counted());
    history.push(user("More."));
    assert!(!history.is_counted() && history.upper_bound() < 25_200, "only that is estimated");
    history.edit(|messages| messages.truncate(1));
    assert!(!history.is_counted() && history.upper_bound() > 100_000);
}

#[test]
fn a_token_count_does_not_contradict_what_replies_have_shown() {
    let reply = |block| Message::assistant(vec![block]);
    let mut history = History::new(vec![user("Say all you know.")], 0);
    history.push_reply(reply(Block::text("All of it.")), &usage(196_000, 8_000));
    history.record_count(50);
    assert_eq!(history.estimate(), 204_000);
    let thought = Block::Thinking { thinking: "Hm.".to_owned(), signature: "s".to_owned() };
    history.push_reply(reply(thought), &usage(204_000, 9_000));
    history.record_count(50);
    assert_eq!(history.estimate(), 204_000, "thinking may be left out of the next request");
}

#[test]
fn media_do_not_distort_the_learned_token_density() {
    let mut history = History::new(vec![user(&"x".repeat(30_000))], 0);
    history.observe_usage(&usage(15_000, 0));
    let learned = history.density();
    let image = Block::Image { source: json!({ "type": "base64", "data": "QQ==" }) };
    history.push(Message::user(vec![image]));
    history.observe_usage(&usage(16_200, 0));
    assert_eq!(history.density(), learned, "the image was counted at its most, and cost less");
}

/// Kinds of text that tools return, with the most tokens that any of three tokenizers in use
/// makes of them.
const COUNTED: [(&str, u64, &str); 15] = [
    (
        "prose",
        57,
        "The service counts what it was sent, and says so in its reply. What came a\
            fter that no\
            body has counted yet, so it is estimated, rather too high than too low, until the \
            next reply says what it was. A conversation that is too long is refused as a whole.",
    ),
    (
        "rust",
        75,
        "    let Some(asked) = messages.iter().rposition(|message| message.role == \
            Role::Assistant) else {\n        return Vec::new();\n    };\n    let answe\
            rs = messages.get(asked + 1);\n    let answered: HashSet<&str> = answers.i\
            nto_iter().flat_map(results).collect();\n",
    ),
    (
        "json",
        59,
        "{\"id\":\"a1\",\"type\":\"tool_use\",\"name\":\"Read\",\"input\":{\"file_p\
            ath\":\"/srv/app/main.py\",\"offset\":120,\"limit\":40}},{\"id\":\"a2\",\"\
            type\":\"text\",\"ok\":true,\"n\":3.25}",
    ),
    (
        "log",
        69,
        "2024-03-18T09:41:07.221Z INFO  worker[4]: job 58213 finished in 1841 ms (e\
            xit 0)\n2024-03-18T09:41:09.007Z WARN  worker[2]: job 58214 retried: conne\
            ction reset by peer\n",
    ),
    (
        "ls",
        71,
        "-rw-r--r-- 1 root root   14183 Mar 18 09:41 repair.rs\n-rw-r--r-- 1 root r\
            oot    9021 Mar 18 09:38 validity.rs\ndrwxr-xr-x 3 root root    4096 Mar 1\
            7 22:10 transcript\n",
    ),
    (
        "paths",
        66,
        "/usr/lib/python3.11/site-packages/urllib3/util/retry.py\n/usr/lib/python3.\
            11/site-packages/urllib3/util/ssl_.py\n/usr/share/doc/libgcc-s1/changelog.\
            Debian.gz\n",
    ),
    (
        "hashes",
        83,
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n60303ae2\
            2b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752\n",
    ),
    (
        "hexdump",
        90,
        "00000010  03 00 3e 00 01 00 00 00  a0 67 00 00 00 00 00 00  |..>......g...\
            ...|\n00000020  40 00 00 00 00 00 00 00  38 a1 00 00 00 00 00 00  |@......\
            .8.......|\n",
    ),
    (
        "base64",
        83,
        "MIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJRTESMBAGA1\
            UEChMJQmFsdGltb3JlMRMwEQYDVQQLEwpDeWJlclRydXN0MSIwIAYD",
    ),
    (
        "numbers",
        59,
        "0.4871 0.9302 0.1175 0.6640\n0.0298 0.7716 0.3349 0.5083\n12.75 1044.2 -3.\
            1416 88.0001\n",
    ),
    (
        "minified",
        71,
        "function a(b,c){var d=b[c]||{};return d.e?d.e(function(f){return f&&f.g(1,\
            !0)}):null}var h=[],i=0;for(;i<9;i++)h.push(a(i,h));",
    ),
    (
        "chinese",
        61,
        "这个程序在没有人看着的时候让语言模型完成任务，每次运行都以一份真实的记录结束。出错的时候它会等待、重试，或者说明为什么不行。",
    ),
    (
        "german",
        47,
        "Das Programm lässt ein Sprachmodell unbeaufsichtigt arbeiten. Geht etwas s\
            chief, so wartet es, versucht es erneut oder sagt, warum es nicht weiterge\
            ht.",
    ),
    (
        "russian",
        64,
        "Программа запускает языковую модель без присмотра. Если что-то пошло не та\
            к, она ждёт, пробует ещё раз или объясняет, почему не вышло.",
    ),
    ("emoji", 33, "✅ build passed 🎉\n❌ deploy failed 😱 retry 🚀\n⚠️ flaky 🤷 skipped 💤\n"),
];

#[test]
fn the_estimate_of_uncounted_text_errs_high_for_every_kind() {
    for (kind, counted, text) in COUNTED {
        let estimate = TokenDensity::USUAL.of_text(text);
        assert!(estimate * 100 >= counted * 97, "{kind}: {estimate} for {counted}");
        assert!(estimate * 2 <= counted * 3, "{kind}: {estimate} for {counted} is far too high");
    }
}

#[test]
fn the_token_estimate_stays_close_above_the_count_in_a_conversation() {
    let mut history = History::new(vec![user("go")], 3_000);
    // The service wraps each message in a few tokens, and the fixed part is prose.
    let mut counted = 800;
    for (turn, (kind, tokens, text)) in COUNTED.iter().cycle().take(60).enumerate() {
        let estimate = history.estimate();
        assert!(estimate >= counted, "{turn}: {estimate} for {counted}");
        assert!(turn == 0 || estimate <= counted * 13 / 10 + 300, "{turn}: {estimate}/{counted}");
        let id = format!("t{turn}");
        let (name, input) = ("Read".to_owned(), json!({ "file_path": kind }));
        let call = Block::call(id.clone(), name, input);
        history.push_reply(Message::assistant(vec![call]), &usage(counted, 40));
        let times = 10 + turn % 7 * 5;
        let content = vec![Block::text(text.repeat(times))];
        let result = Block::ToolResult { tool_use_id: id, content, is_error: false };
        history.push(Message::user(vec![result]));
        counted += 40 + 12 + tokens * times as u64;
    }
    let before = history.estimate();
    history.edit(|_messages| {});
    assert!(history.estimate() >= counted, "measured anew it is still no less");
    assert!(history.estimate() <= before * 3 / 2, "{} and {before}", history.estimate());
}

/// Sixty images, each counted by the service as far less than the largest image.
fn with_images() -> Vec<Message> {
    let image = || Block::Image { source: json!({ "type": "base64", "data": "" }) };
    vec![
        user("Look."),
        Message::assistant(vec![Block::text("Which?")]),
        Message::user((0..60).map(|_| image()).collect()),
        Message::assistant(vec![Block::text("I see.")]),
        user("Go on."),
    ]
}

#[test]
fn a_resumed_history_has_the_size_that_the_last_reply_reported() {
    let mut history = History::resume(with_images(), Some(usage(14_000, 50)));
    for fixed in [9_000, 12_000] {
        history.set_fixed_bytes(fixed);
        let most = 14_000 + 50 + fixed / 2 + 500;
        assert!((14_050..most).contains(&history.estimate()), "{fixed}: {}", history.estimate());
        assert!(history.upper_bound() >= 14_050 + fixed, "the tools may be others");
    }
    history.push(user(&"x".repeat(30_000)));
    assert!(history.estimate() >= 24_000, "what is new is added: {}", history.estimate());
    let changes: [fn(&mut History); 2] = [
        |it| it.edit(|_messages| {}),
        |it| {
            *it = History::resume(with_images(), None);
        },
    ];
    for change in changes {
        let mut history = History::resume(with_images(), Some(usage(14_000, 50)));
        change(&mut history);
        history.set_fixed_bytes(9_000);
        assert!(history.estimate() >= 300_000, "{}", history.estimate());
    }
}

#[test]
fn the_count_of_an_earlier_process_never_raises_the_bound() {
    let messages = vec![user("Go."), Message::assistant(vec![Block::text("Gone.")])];
    let measured = History::new(messages.clone(), 40_000);
    let mut resumed = History::resume(messages, Some(usage(10_000, 5)));
    resumed.set_fixed_bytes(40_000);
    assert_eq!(resumed.upper_bound(), measured.upper_bound());
    assert_eq!(resumed.counted(), None);
}

proptest! {
    #[test]
    fn incremental_and_full_measurement_agree(messages in valid_messages()) {
        let mut grown = History::new(vec![], 77);
        for message in messages.clone() {
            grown.push(message);
        }
        let whole = History::new(messages.clone(), 77);
        prop_assert_eq!(grown.messages(), &messages[..]);
        prop_assert_eq!(grown.upper_bound(), whole.upper_bound());
        prop_assert!(grown.estimate() <= grown.upper_bound());
        prop_assert_eq!(grown.estimate(), whole.estimate());
    }

    #[test]
    fn no_tokenizer_exceeds_the_token_bound(
        messages in valid_messages(),
        bytes_per_token in 1u64..5,
        cut in 0usize..9,
    ) {
        let tokens = |messages: &[Message]| -> u64 {
            let bytes = |block: &Block| match block {
                Block::Text { text } => text.len(),
                Block::Thinking { thinking, signature } => thinking.len() + signature.len(),
                Block::ToolUse { id, name, input, .. } => {
                    id.len() + name.len() + input.to_string().len()
                }
                Block::ToolResult { .. }
                | Block::RedactedThinking { .. }
                | Block::Image { .. }
                | Block::Document { .. }
                | Block::Other(_) => 64,
            };
            let sum: usize = messages.iter().flat_map(|message| &message.content).map(bytes).sum();
            (sum as u64).div_ceil(bytes_per_token)
        };
        let cut = cut.min(messages.len());
        let mut history = History::new(messages[..cut].to_vec(), 0);
        history.observe_usage(&usage(tokens(&messages[..cut]), 0));
        for message in &messages[cut..] {
            history.push(message.clone());
        }
        prop_assert!(history.upper_bound() >= tokens(&messages));
    }
}

#[test]
fn a_pdf_is_estimated_by_its_pages_not_its_bytes() {
    let history = |pages: usize, bytes: usize| {
        let mut pdf = "<< /Type /Page >>".repeat(pages).into_bytes();
        pdf.resize(pdf.len() + bytes, b' ');
        let source = json!({ "type": "base64", "data": STANDARD.encode(pdf) });
        History::new(vec![Message::user(vec![Block::document(source)])], 0)
    };
    assert_eq!(history(3, 9).upper_bound(), history(3, 3_000_000).upper_bound());
    let (bound, estimate) = (history(10, 0).upper_bound(), history(10, 0).estimate());
    assert!((100_000..160_000).contains(&bound), "{bound}");
    assert!((40_000..60_000).contains(&estimate), "{estimate}");
    assert!(history(0, 10_000_000).upper_bound() >= 1_000_000, "100 pages may be out of sight");
    assert!(history(0, 40_000).upper_bound() < 250_000, "but not in so few bytes");
}

#[test]
fn a_low_reported_count_for_a_large_pdf_is_accepted() {
    let source = json!({ "type": "base64", "data": "A".repeat(8_000_000) });
    let mut history = History::new(vec![Message::user(vec![Block::document(source)])], 0);
    history.observe_usage(&usage(24_000, 0));
    assert_eq!(history.upper_bound(), 24_000);
}
