//! Charges for an attempt, for every part that can arrive of it, and every usage count.

use outlast::model::assemble::{AssemblyStep, ReplyAssembly};
use outlast::model::{
    Bounds, Counts, OutputCount, Prices, Received, StreamProgress, model_facts, settle,
    web_search_price,
};
use outlast::recovery::Money;
use outlast::sse::SseParser;
use outlast::transcript::{Block, Usage};
use serde_json::{Value, json};

use super::recorded;

const BOUNDS: Bounds = Bounds { input: 10_000, window: 200_000, cap: 8_192, searches: 0 };

fn prices() -> Prices {
    model_facts("claude-sonnet-5-5").prices.expect("it is in the list")
}

/// The usage received in the first `count` events of a stream.
fn received(events: &[Value], count: usize) -> Option<Received> {
    let (mut frames, mut assembly) = (SseParser::default(), ReplyAssembly::default());
    let mut latest = None;
    for event in &events[..count] {
        let mut ready = Vec::new();
        let bytes =
            format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type"));
        frames.push(bytes.as_bytes(), &mut ready).expect("a small event");
        for frame in ready {
            let told = &mut |progress| {
                if let StreamProgress::Received(received) = progress {
                    latest = Some(received);
                }
            };
            let step: Result<AssemblyStep, _> = assembly.process_event(&frame, told);
            let error = event["type"] == "error";
            assert_eq!(step.is_err(), error, "{event}");
        }
    }
    latest
}

/// A reply of a known cost, event by event.
fn events() -> Vec<Value> {
    let text = |text: &str| json!({ "type": "text_delta", "text": text });
    let json = |part: &str| json!({ "type": "input_json_delta", "partial_json": part });
    let delta = |index: u64, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let open = |index: u64, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
    vec![
        json!({ "type": "ping" }),
        json!({ "type": "message_start", "message": { "id": "m", "model": "m",
            "usage": { "input_tokens": 700, "output_tokens": 3 } } }),
        open(0, json!({ "type": "text", "text": "" })),
        delta(0, text("Now the tests run.")),
        json!({ "type": "content_block_stop", "index": 0 }),
        open(1, json!({ "type": "tool_use", "id": "t", "name": "Bash", "input": {} })),
        delta(1, json("{\"command\":")),
        delta(1, json("\"make test\"}")),
        json!({ "type": "content_block_stop", "index": 1 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" },
            "usage": { "output_tokens": 40 } }),
    ]
}

/// Wherever a stream breaks, or an error comes in it: nothing before a message has begun, then the
/// input that was reported and at most the bytes that came, and in the end what was counted.
#[test]
fn an_attempt_costs_what_it_received_wherever_it_broke() {
    let (prices, events) = (prices(), events());
    let input = prices.rates.input * 700;
    let mut last = Money::ZERO;
    for count in 0..=events.len() {
        let mut overloaded = events[..count].to_vec();
        overloaded.push(json!({ "type": "error", "error": { "type": "overloaded_error",
            "message": "Overloaded" } }));
        let came = received(&events, count);
        assert_eq!(received(&overloaded, count + 1), came, "an error after {count} events");
        if count < 2 {
            assert_eq!(came, None, "no message has begun after {count} events");
            continue;
        }
        let came = came.expect("a message has begun");
        let settled = settle(Some(&prices), &BOUNDS, &came);
        let total = settled.total().expect("there is a price");
        assert!(total >= input && total <= BOUNDS.worst_case(Some(&prices)), "{count}: {total}");
        if count == events.len() {
            assert_eq!(total, input + prices.rates.output * 40, "the end says what it was");
            assert_eq!(settled.uncounted, Money::ZERO);
        } else {
            assert!(total >= last, "{count}: {total} after {last}");
            assert!(total <= input + prices.rates.output * (3 + came.bytes), "{count}: {total}");
            last = total;
        }
    }
    let bytes =
        received(&events, 4).expect("begun").bytes - received(&events, 3).expect("begun").bytes;
    assert_eq!(bytes, "Now the tests run.".len() as u64);
}

/// Every recorded stream, whole: the counts at its end are what is charged.
#[test]
fn recorded_replies_cost_what_their_ends_say() {
    for name in ["text", "thinking_and_tools", "llama_cpp_tool", "server_tool"] {
        let bytes = recorded(&format!("streams/{name}.sse"));
        let (mut frames, mut assembly) = (SseParser::default(), ReplyAssembly::default());
        let (mut ready, mut latest) = (Vec::new(), None);
        frames.push(&bytes, &mut ready).expect("no event is too large");
        for frame in ready {
            let told = &mut |progress| {
                if let StreamProgress::Received(received) = progress {
                    latest = Some(received);
                }
            };
            assembly.process_event(&frame, told).expect("a whole stream");
        }
        let (latest, answer) = (latest.expect("begun"), assembly.finish().expect("whole"));
        assert_eq!((latest.usage, latest.counts), (answer.usage, answer.counts), "{name}");
        let settle_all = |received| settle(Some(&prices()), &BOUNDS, &received).total();
        let whole = Received::whole(answer.usage, answer.counts, &answer.content);
        assert_eq!(settle_all(latest), settle_all(whole), "{name}");
    }
}

/// Every number that a field may hold: what comes of it is possible, and it is said whether it was.
#[test]
fn whatever_is_reported_is_cut_to_what_is_possible() {
    use Counts::{Impossible, Possible};
    type Taken = (u64, Counts);

    let trillion = 1_000_000_000_000_u64;
    // The number, then the input and the output that it is taken for, and whether each can be.
    let table: [(Value, Taken, Taken); 15] = [
        (Value::Null, (0, Possible), (0, Possible)),
        (json!("twelve"), (0, Possible), (0, Possible)),
        (json!("12"), (12, Possible), (12, Possible)),
        (json!("-1"), (0, Impossible), (0, Impossible)),
        (json!(0), (0, Possible), (0, Possible)),
        (json!(1), (1, Possible), (1, Possible)),
        (json!(1.5), (2, Possible), (2, Possible)),
        (json!(8_192), (8_192, Possible), (8_192, Possible)),
        (json!(8_193), (8_193, Possible), (8_192, Impossible)),
        (json!(200_000), (200_000, Possible), (8_192, Impossible)),
        (json!(200_001), (10_000, Impossible), (8_192, Impossible)),
        (json!(trillion), (10_000, Impossible), (8_192, Impossible)),
        (json!(1e30), (10_000, Impossible), (8_192, Impossible)),
        (json!(u64::MAX), (10_000, Impossible), (8_192, Impossible)),
        (json!(-1), (0, Impossible), (0, Impossible)),
    ];
    let prices = prices();
    for (number, input, output) in &table {
        for field in ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"] {
            let (usage, counts) = reported(field, number);
            assert_eq!((usage.input(), counts), *input, "{field}: {number}");
        }
        let (usage, counts) = reported("output_tokens", number);
        assert_eq!((usage.output_tokens, counts), *output, "{number}");
        let came = received(&with_usage("output_tokens", number), 2).expect("begun");
        let total = settle(Some(&prices), &BOUNDS, &came).total().expect("a price");
        assert!(total <= BOUNDS.worst_case(Some(&prices)), "{number}: {total}");
    }
}

fn with_usage(field: &str, number: &Value) -> [Value; 2] {
    [
        json!({ "type": "message_start", "message": { "usage": {} } }),
        json!({ "type": "message_delta", "delta": {}, "usage": { field: number } }),
    ]
}

fn reported(field: &str, number: &Value) -> (Usage, Counts) {
    let came = received(&with_usage(field, number), 2).expect("begun");
    let settled = settle(Some(&prices()), &BOUNDS, &came);
    (settled.usage, settled.counts)
}

/// A service that counts nothing, or only says that a message began, is charged at the most that
/// its reply can have cost; never more than was asked for.
#[test]
fn what_is_not_counted_is_charged_by_its_bytes() {
    let prices = prices();
    let text = |length: usize| vec![Block::text("x".repeat(length))];
    for (usage, content, output) in [
        (Usage::default(), text(100), None),
        (Usage { input_tokens: 5, output_tokens: 1, ..Usage::default() }, text(100), Some(1)),
        (Usage { input_tokens: 5, ..Usage::default() }, text(1_000_000), Some(8_192)),
        (Usage { input_tokens: 5, ..Usage::default() }, Vec::new(), Some(0)),
    ] {
        let came = Received::whole(usage, Counts::Possible, &content);
        let total = settle(Some(&prices), &BOUNDS, &came).total().expect("a price");
        match output {
            Some(tokens) => {
                assert_eq!(total, prices.rates.input * 5 + prices.rates.output * tokens);
            }
            None => assert!(total > prices.max_input_price() * 10_000, "the input counts too"),
        }
    }
    let opening =
        Received { bytes: 50, min_tokens: 1, output: OutputCount::Opening, ..Received::default() };
    let usage = Usage { input_tokens: 5, output_tokens: 3, ..Usage::default() };
    let settled = settle(Some(&prices), &BOUNDS, &Received { usage, ..opening });
    assert_eq!(settled.total(), Some(prices.rates.input * 5 + prices.rates.output * 50));
}

/// The service shows less of the thinking than it bills.
#[test]
fn thinking_that_is_not_counted_is_charged_at_the_whole_cap() {
    let prices = prices();
    let thought = || Block::Thinking { thinking: String::new(), signature: "c2ln".to_owned() };
    let usage = Usage { input_tokens: 5, ..Usage::default() };
    let came = Received::whole(usage, Counts::Possible, &[thought()]);
    let cap = u64::from(BOUNDS.cap);
    let total = settle(Some(&prices), &BOUNDS, &came).total();
    assert_eq!(total, Some(prices.rates.input * 5 + prices.rates.output * cap));
    assert!(total <= Some(BOUNDS.worst_case(Some(&prices))), "no more than was reserved");
    let counted = Usage { output_tokens: 700, ..usage };
    let came = Received::whole(counted, Counts::Possible, &[thought()]);
    let total = settle(Some(&prices), &BOUNDS, &came).total();
    assert_eq!(total, Some(prices.rates.input * 5 + prices.rates.output * 700));
}

/// In a stream that breaks while the model thinks, the text of it may be missing.
#[test]
fn a_stream_that_breaks_while_the_model_thinks_is_charged_at_the_whole_cap() {
    let start = json!({ "type": "message_start", "message": { "usage": { "input_tokens": 5 } } });
    for (kind, tokens) in [("thinking", u64::from(BOUNDS.cap)), ("text", 0)] {
        let block = json!({ "type": kind, "thinking": "", "signature": "", "text": "" });
        let begun = json!({ "type": "content_block_start", "index": 0, "content_block": block });
        let came = received(&[start.clone(), begun], 2).expect("begun");
        let settled = settle(Some(&prices()), &BOUNDS, &came);
        let least = prices().rates.input * 5 + prices().rates.output * tokens;
        assert!(settled.total() >= Some(least), "{kind}: {settled:?}");
        assert_eq!(came.has_thinking, tokens > 0);
    }
}

/// A search of the web is billed beside the tokens, and never more often than was asked for.
#[test]
fn searches_are_charged_by_their_number() {
    let bounds = Bounds { searches: 2, ..BOUNDS };
    for (reported, charged) in [(0, 0), (1, 1), (2, 2), (9, 2)] {
        let usage = Usage { output_tokens: 5, input_tokens: 5, ..Usage::default() };
        let usage = Usage { web_search_requests: reported, ..usage };
        let came = Received::whole(usage, Counts::Possible, &[Block::text("x")]);
        let settled = settle(Some(&prices()), &bounds, &came);
        let tokens = prices().rates.input * 5 + prices().rates.output * 5;
        assert_eq!(settled.total(), Some(tokens + web_search_price() * charged), "{reported}");
        assert_eq!(settled.counts == Counts::Impossible, reported > 2);
        assert!(settled.total() <= Some(bounds.worst_case(Some(&prices()))));
    }
    assert_eq!(web_search_price(), Money::from_pico_dollars(10_000_000_000));
}

#[test]
fn without_a_price_no_cost_is_known() {
    let usage = Usage { input_tokens: 5, output_tokens: 3, ..Usage::default() };
    let settled = settle(None, &BOUNDS, &Received::whole(usage, Counts::Possible, &[]));
    assert_eq!((settled.counted, settled.total(), settled.usage), (None, None, usage));
    assert_eq!(BOUNDS.worst_case(None), Money::ZERO);
}
