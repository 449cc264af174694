//! Server rules: each refuses with the real service's error and records no violation.

use std::num::NonZeroU64;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use outlast_rehearsal::{
    AfterLast, MediaRules, RehearsalServer, RejectedContent, Scenario, ServerOptions, ServerRules,
    Signatures,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::client::{
    ask, complaint, connect, parse, read_all, respond, respond_to, start, unstreamed,
};
use super::request_validator::TOO_LARGE;

fn serve(rules: ServerRules) -> RehearsalServer {
    start(Scenario::new().reply("Fine.").after(AfterLast::RepeatLast).rules(rules))
}

fn saying(content: &Value) -> Value {
    let mut body = unstreamed();
    body["messages"][0]["content"] = content.clone();
    body
}

fn block(kind: &str, media_type: &str, bytes: &[u8]) -> Value {
    let data = STANDARD.encode(bytes);
    json!({ "type": kind, "source": { "type": "base64", "media_type": media_type, "data": data } })
}

/// The beginning of a PNG, which is all that tells its size.
fn png(width: u32, height: u32) -> Vec<u8> {
    let head = *b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    [&head[..], &width.to_be_bytes(), &height.to_be_bytes()].concat()
}

fn image(width: u32, height: u32) -> Value {
    block("image", "image/png", &png(width, height))
}

fn pdf(pages: usize) -> Value {
    let text = format!("%PDF-1.4 /Type /Pages {}", "<< /Type /Page /Parent 1 >> ".repeat(pages));
    block("document", "application/pdf", text.as_bytes())
}

/// A conversation whose tool result holds these blocks.
fn result_with(blocks: &[Value]) -> Value {
    let mut body = unstreamed();
    body["messages"] = json!([
        { "role": "user", "content": "Look." },
        { "role": "assistant", "content": [
            { "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": { "command": "ls" } },
        ] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "toolu_1", "content": blocks },
        ] },
    ]);
    body
}

// --- tokens --------------------------------------------------------------------------------------

fn token_limit(tokens: u64) -> ServerRules {
    ServerRules { token_limit: NonZeroU64::new(tokens), ..ServerRules::default() }
}

/// The number of tokens that the server counts for a request.
async fn counted(body: &Value) -> u64 {
    let server = serve(token_limit(1_000_000));
    let usage = respond(&server, body).await.json()["usage"].clone();
    let parts = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
    parts.iter().map(|part| usage[part].as_u64().expect("a number")).sum()
}

#[tokio::test]
async fn three_and_a_half_bytes_of_text_count_as_a_token() {
    let bare = counted(&saying(&json!("x"))).await;
    assert_eq!(counted(&saying(&json!("x".repeat(7_001)))).await, bare + 2_000);
    let mut body = saying(&json!("x"));
    body["system"] = json!("y".repeat(3_500));
    assert_eq!(counted(&body).await, bare + 1_000);
    body["tools"][0]["description"] = json!("z".repeat(3_500 - "description".len()));
    assert_eq!(counted(&body).await, bare + 2_000);
    body["metadata"] = json!({ "user_id": "u".repeat(7_000) });
    assert_eq!(counted(&body).await, bare + 2_000, "only what the model reads counts");
}

#[tokio::test]
async fn media_tokens_depend_on_dimensions_and_pages() {
    let bare = counted(&saying(&json!([{ "type": "text", "text": "x" }]))).await;
    let with = async |block: Value| {
        counted(&saying(&json!([{ "type": "text", "text": "x" }, block]))).await - bare
    };
    for (block, tokens) in [
        (image(300, 250), 100),
        (image(4_000, 3_000), 1_600),
        (block("image", "image/png", b"who knows"), 1_600),
        (pdf(3), 6_000),
    ] {
        let counted = with(block).await;
        // Its names count, too.
        assert!((tokens..tokens + 12).contains(&counted), "{counted} and not {tokens}");
    }
}

#[tokio::test]
async fn cache_usage_splits_the_input_count_without_adding_to_it() {
    let server = serve(token_limit(1_000_000));
    let mut body = unstreamed();
    let cache = json!({ "type": "ephemeral" });
    let text = json!({ "type": "text", "text": "x".repeat(70_000), "cache_control": cache });
    // Its bytes are many more than its tokens.
    let heavy = block("image", "image/png", &vec![0; 300_000]);
    body["messages"][0]["content"] = json!([heavy, text]);
    let all = counted(&body).await;
    let mut bare = body.clone();
    bare["messages"][0]["content"][1].as_object_mut().unwrap().remove("cache_control");
    assert_eq!(counted(&bare).await, all, "the mark itself is no text");
    for (read, created) in [(false, true), (true, false)] {
        let usage = respond(&server, &body).await.json()["usage"].clone();
        let part = |name: &str| usage[name].as_u64().expect("a number");
        let (reads, creates) =
            (part("cache_read_input_tokens"), part("cache_creation_input_tokens"));
        assert_eq!(part("input_tokens") + reads + creates, all);
        assert_eq!((reads > 1_000, creates > 1_000), (read, created), "{usage}");
    }
}

#[tokio::test]
async fn an_oversized_request_is_refused_with_its_exact_token_count() {
    let body = saying(&json!("x".repeat(10_000)));
    let (input, wanted) = (counted(&body).await, 1_000);
    let fits = serve(token_limit(input + wanted));
    assert_eq!(respond(&fits, &body).await.status, 200);
    let wide = serve(token_limit(input + wanted - 1));
    assert_eq!(
        complaint(&wide, &body).await,
        format!(
            "input length and `max_tokens` exceed context limit: {input} + {wanted} > {}, \
             decrease input length or `max_tokens` and try again",
            input + wanted - 1
        )
    );
    let long = serve(token_limit(input - 1));
    let wanted = format!("prompt is too long: {input} tokens > {} maximum", input - 1);
    assert_eq!(complaint(&long, &body).await, wanted);
    for server in [fits, wide, long] {
        assert!(server.violations().is_empty());
    }
}

#[tokio::test]
async fn the_count_endpoint_agrees_with_the_counted_usage() {
    let server = serve(token_limit(10));
    let mut stream = connect(&server).await;
    let body = unstreamed().to_string();
    let head = format!(
        "POST /v1/messages/count_tokens HTTP/1.1\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let answer = parse(&read_all(&mut stream).await.0).json();
    assert_eq!(answer["input_tokens"], counted(&unstreamed()).await);
}

// --- media ---------------------------------------------------------------------------------------

fn media(media: MediaRules) -> RehearsalServer {
    serve(ServerRules { media, ..ServerRules::default() })
}

#[tokio::test]
async fn an_oversized_image_is_refused_with_its_block_path() {
    let server = media(MediaRules {
        image_bytes: Some(5 * 1024 * 1024),
        image_pixels: Some(8_000),
        ..MediaRules::default()
    });
    let fine = image(8_000, 8_000);
    assert_eq!(respond(&server, &saying(&json!([fine]))).await.status, 200);
    for (width, height) in [(8_001, 9), (9, 8_001)] {
        let server = media(MediaRules { image_pixels: Some(8_000), ..MediaRules::default() });
        assert_eq!(
            complaint(&server, &saying(&json!([fine, image(width, height)]))).await,
            "messages.0.content.1.image.source.base64.data: At least one of the image dimensions \
             exceed max allowed size: 8000 pixels"
        );
    }
    let heavy = block("image", "image/png", &vec![0; 3 * 1_310_721]);
    assert_eq!(
        complaint(&server, &result_with(&[fine.clone(), heavy])).await,
        "messages.2.content.0.tool_result.content.1.image.source.base64: image exceeds 5 MB \
         maximum: 5242884 bytes > 5242880 bytes"
    );
    assert_eq!(respond(&server, &result_with(&[fine])).await.status, 200);
    assert!(server.violations().is_empty());
}

#[tokio::test]
async fn requests_with_many_images_have_a_lower_size_limit() {
    let rules = MediaRules { many_images_pixels: Some(2_000), ..MediaRules::default() };
    let server = media(rules);
    let mut images = vec![image(10, 10); 19];
    images.push(image(2_001, 10));
    assert_eq!(respond(&server, &saying(&json!(images))).await.status, 200);
    images.push(image(10, 10));
    assert_eq!(
        complaint(&server, &saying(&json!(images))).await,
        "messages.0.content.19.image.source.base64.data: At least one of the image dimensions \
         exceed max allowed size for many-image requests: 2000 pixels"
    );
}

#[tokio::test]
async fn images_and_documents_are_counted_together() {
    let server = media(MediaRules { count: Some(3), ..MediaRules::default() });
    let mut blocks = vec![image(1, 1), pdf(1), image(1, 1)];
    assert_eq!(respond(&server, &result_with(&blocks)).await.status, 200);
    blocks.push(image(1, 1));
    let message = complaint(&server, &result_with(&blocks)).await;
    assert_eq!(message, "too many images and documents: 3 + 1 > 3");
}

#[tokio::test]
async fn the_page_limit_counts_all_documents() {
    let server = media(MediaRules { pdf_pages: Some(5), ..MediaRules::default() });
    assert_eq!(respond(&server, &saying(&json!([pdf(2), pdf(3)]))).await.status, 200);
    assert_eq!(
        complaint(&server, &saying(&json!([pdf(2), pdf(4)]))).await,
        "messages.0.content.1.pdf.source.base64.data: A maximum of 5 PDF pages may be provided."
    );
    let compressed = block("document", "application/pdf", b"%PDF /Type/Pages /Count 4 /Count 9>>");
    assert!(complaint(&server, &saying(&json!([compressed]))).await.contains("content.0.pdf"));
}

#[tokio::test]
async fn image_dimensions_are_read_from_every_format() {
    let large = [
        png(9, 300),
        b"GIF89a\x2c\x01\x09\x00\0\0\0".to_vec(),
        // A comment, then a frame of 300 x 9.
        b"\xff\xd8\xff\xfe\x00\x04xx\xff\xc2\x00\x11\x08\x00\x09\x01\x2c".to_vec(),
        b"RIFF....WEBPVP8 ....\0\0\0\x9d\x01\x2a\x2c\x01\x09\x00".to_vec(),
        b"RIFF....WEBPVP8L....\x2f\x2b\x01\x00\x00".to_vec(),
        b"RIFF....WEBPVP8X....\0\0\0\0\x2b\x01\x00\x08\x00\x00".to_vec(),
    ];
    for (side, refused) in [(299, true), (300, false)] {
        for bytes in &large {
            let server = media(MediaRules { image_pixels: Some(side), ..MediaRules::default() });
            let body = saying(&json!([block("image", "image/any", bytes)]));
            let status = respond(&server, &body).await.status;
            assert_eq!(status == 400, refused, "{side} {:?}", String::from_utf8_lossy(bytes));
        }
    }
    for length in 0..30 {
        for bytes in &large {
            let server = media(MediaRules { image_pixels: Some(1_000), ..MediaRules::default() });
            let torn = &bytes[..length.min(bytes.len())];
            let body = saying(&json!([block("image", "image/any", torn)]));
            assert_eq!(respond(&server, &body).await.status, 200, "{torn:?}");
        }
    }
}

// --- blocks --------------------------------------------------------------------------------------

fn poisoned(contains: &str, message: Option<&str>) -> RehearsalServer {
    let poison =
        RejectedContent { contains: contains.to_owned(), message: message.map(str::to_owned) };
    serve(ServerRules { rejected_content: vec![poison], ..ServerRules::default() })
}

#[tokio::test]
async fn a_poisoned_block_is_refused_until_it_is_removed() {
    let bad = image(666, 1);
    let data = bad["source"]["data"].as_str().unwrap().to_owned();
    let server = poisoned(&data, None);
    let body = result_with(&[image(1, 1), bad.clone()]);
    assert_eq!(
        complaint(&server, &body).await,
        "messages.2.content.0.tool_result.content.1.image.source.base64.data: Could not process \
         image"
    );
    assert_eq!(respond(&server, &result_with(&[image(1, 1)])).await.status, 200);
    assert!(server.violations().is_empty());
}

#[tokio::test]
async fn every_kind_of_block_can_be_poisoned() {
    let text = json!({ "type": "text", "text": "all of the BAD words" });
    for (body, place) in [
        (saying(&json!("BAD")), "messages.0: "),
        (saying(&json!([text])), "messages.0.content.0: "),
        (result_with(std::slice::from_ref(&text)), "messages.2.content.0.tool_result.content.0: "),
        (
            {
                let mut body = result_with(&[]);
                body["messages"][2]["content"][0]["content"] = json!("BAD");
                body
            },
            "messages.2.content.0: ",
        ),
        (
            {
                let mut body = result_with(&[image(1, 1)]);
                body["messages"][1]["content"][0]["input"]["command"] = json!("BAD");
                body
            },
            "messages.1.content.0: ",
        ),
    ] {
        let server = poisoned("BAD", Some("is bad"));
        assert_eq!(complaint(&server, &body).await, format!("{place}is bad"));
    }
    let server = poisoned("JVBERi0", None);
    assert_eq!(
        complaint(&server, &saying(&json!([pdf(1)]))).await,
        "messages.0.content.0.pdf.source.base64.data: The PDF specified was not valid."
    );
}

// --- signatures ----------------------------------------------------------------------------------

/// A conversation in which what the server said, thinking and all, comes back.
async fn thinking_comes_back(server: &RehearsalServer) -> Value {
    let reply = respond(server, &unstreamed()).await.json();
    let mut body = unstreamed();
    body["messages"] = json!([
        { "role": "user", "content": "Think." },
        { "role": "assistant", "content": reply["content"] },
        { "role": "user", "content": "And?" },
    ]);
    body
}

fn thinker(rules: ServerRules) -> RehearsalServer {
    let script = Scenario::new().reply("Well.").and_thinking("Hm.").after(AfterLast::RepeatLast);
    start(script.rules(rules))
}

const BADLY_SIGNED: &str = "messages.1.content.0: Invalid `signature` in `thinking` block";

#[tokio::test]
async fn foreign_thinking_is_refused_and_a_violation_only_with_one_model() {
    for (signatures, violations) in [(Signatures::Check, 1), (Signatures::Refuse, 0)] {
        let changes: [fn(&mut Value); 3] = [
            |body| body["model"] = json!("claude-haiku-4-5"),
            |body| body["messages"][1]["content"][0]["thinking"] = json!("Hmm."),
            |body| body["messages"][1]["content"][0]["signature"] = json!("Eq8B"),
        ];
        for change in changes {
            let server = thinker(ServerRules { signatures, ..ServerRules::default() });
            let mut body = thinking_comes_back(&server).await;
            assert_eq!(respond(&server, &body).await.status, 200);
            change(&mut body);
            assert_eq!(complaint(&server, &body).await, BADLY_SIGNED);
            assert_eq!(server.violations().len(), violations, "{signatures:?}");
            body["messages"][1]["content"].as_array_mut().unwrap().remove(0);
            assert_eq!(respond(&server, &body).await.status, 200, "healed");
        }
    }
}

#[tokio::test]
async fn signatures_can_expire() {
    let server =
        thinker(ServerRules { expire_signatures_after: Some(2), ..ServerRules::default() });
    let old = thinking_comes_back(&server).await;
    assert_eq!(respond(&server, &old).await.status, 200);
    assert_eq!(complaint(&server, &old).await, BADLY_SIGNED);
    let new = thinking_comes_back(&server).await;
    assert_eq!(respond(&server, &new).await.status, 200);
    assert!(server.violations().is_empty());
}

// --- never the same 400 twice --------------------------------------------------------------------

#[tokio::test]
async fn repeating_a_refused_request_is_a_violation() {
    for stream in [false, true] {
        let server = poisoned("hello", None);
        let first = complaint(&server, &unstreamed()).await;
        let mut again = unstreamed();
        again["stream"] = json!(stream);
        assert!(first.contains("cannot be processed"), "{first}");
        assert!(complaint(&server, &again).await.contains("was refused with a 400 just before"));
        assert_eq!(
            server.violations(),
            ["request 2: the same request was refused with a 400 just before"]
        );
    }
}

#[tokio::test]
async fn a_changed_request_must_not_meet_the_same_refusal() {
    let server = poisoned("hello", None);
    complaint(&server, &unstreamed()).await;
    let mut other = unstreamed();
    other["max_tokens"] = json!(999);
    complaint(&server, &other).await;
    assert_eq!(
        server.violations(),
        ["request 2: the same 400 was provoked again: messages.0: the content of this block \
          cannot be processed"]
    );
}

#[tokio::test]
async fn a_refusal_is_forgotten_after_another_request_succeeded() {
    let server = poisoned("hello", None);
    complaint(&server, &unstreamed()).await;
    assert_eq!(respond(&server, &saying(&json!("Bye."))).await.status, 200);
    complaint(&server, &unstreamed()).await;
    assert!(server.violations().is_empty());
}

#[tokio::test]
async fn a_compaction_does_not_allow_repeating_a_refused_request() {
    let script = Scenario::new().status(400).error("invalid_request_error", TOO_LARGE, None);
    let server = start(script.times(2).compactions(Scenario::new().status(529)));
    let mut statuses = Vec::new();
    for headers in [&[] as &[&str], &[COMPACT], &[]] {
        statuses.push(respond_to(&server, &ask(), headers).await.status);
    }
    assert_eq!(statuses, [400, 529, 400]);
    assert_eq!(server.violations().len(), 1);
}

const COMPACT: &str = "x-outlast-source: compact";

#[test]
fn a_server_cannot_start_without_a_port() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let taken = serve(ServerRules::default());
        let options = ServerOptions { port: taken.port(), ..ServerOptions::default() };
        RehearsalServer::start(Scenario::new().reply("No."), options)
            .expect_err("the port is taken");
    });
}

#[tokio::test]
async fn a_probe_gets_the_next_answer_without_consuming_a_script_step() {
    let server = start(Scenario::new().status(529).reply("Fine."));
    let probe = async || respond_to(&server, &unstreamed(), &["x-outlast-source: probe"]).await;
    assert_eq!((probe().await.status, probe().await.status), (529, 529));
    assert_eq!(respond(&server, &unstreamed()).await.status, 529);
    let answered = probe().await;
    assert_eq!((answered.status, &answered.json()["stop_reason"]), (200, &json!("max_tokens")));
    assert_eq!(respond(&server, &unstreamed()).await.json()["content"][0]["text"], "Fine.");
    assert_eq!((server.probes(), server.requests().len(), server.unrequested_answers()), (3, 2, 0));
    assert_eq!(server.violations(), [""; 0]);
}
