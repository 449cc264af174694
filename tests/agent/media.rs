//! Rejected images, documents, blocks and signatures cost one refusal each, and never the same one
//! twice.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::{ImageFormat, Rgb, RgbImage};
use lopdf::{Document, Object, dictionary};
use outlast::agent::Prompt;
use outlast::journal::{Journal, OnDamage, SessionFolder, SessionId, read_session};
use outlast::recovery::{ErrorClass, StopReason};
use outlast::rehearsal::{
    AfterLast, MediaRules, ReceivedRequest, RejectedContent, Scenario, ServerRules, Signatures,
};
use outlast::transcript::has_images;
use serde_json::{Value, json};

use super::full_windows::{
    assert_valid_requests, part, refused, summing_requests, summing_up, window,
};
use super::run_fixture::{FinishedRun, RunFixture, opening};
use crate::support::requests::{blocks, messages, texts};

/// A picture of stripes, so that it does not pack to nothing.
fn picture(folder: &Path, name: &str, width: u32, height: u32) {
    let stripes = |x: u32, y: u32| Rgb([(x % 251) as u8, (y % 241) as u8, (x * y % 239) as u8]);
    RgbImage::from_fn(width, height, stripes)
        .save_with_format(folder.join(name), ImageFormat::Png)
        .expect("room");
}

fn document(folder: &Path, name: &str, pages: usize) {
    let mut document = Document::with_version("1.5");
    let tree = document.new_object_id();
    let page = |_| dictionary! { "Type" => "Page", "Parent" => tree };
    let kids: Vec<Object> =
        (0..pages).map(page).map(|page| document.add_object(page).into()).collect();
    let count = i64::try_from(pages).expect("few pages");
    let size: Vec<Object> = [0, 0, 200, 200].map(Object::from).to_vec();
    let pages =
        dictionary! { "Type" => "Pages", "Kids" => kids, "Count" => count, "MediaBox" => size };
    document.objects.insert(tree, Object::Dictionary(pages));
    let catalog = document.add_object(dictionary! { "Type" => "Catalog", "Pages" => tree });
    document.trailer.set("Root", catalog);
    document.save(folder.join(name)).expect("room");
}

pub(crate) fn read(scenario: Scenario, file: &str) -> Scenario {
    scenario.tool("Read", json!({ "file_path": file }))
}

/// The blocks of this kind in the tool results of a request.
fn in_results(request: &ReceivedRequest, kind: &str) -> Vec<Value> {
    let results = blocks(request, "tool_result");
    let contents = results.iter().filter_map(|result| result["content"].as_array()).flatten();
    contents.filter(|block| block["type"] == kind).cloned().collect()
}

fn result_texts(request: &ReceivedRequest) -> Vec<String> {
    let text = |block: &Value| block["text"].as_str().unwrap_or_default().to_owned();
    in_results(request, "text").iter().map(text).collect()
}

fn media(rules: MediaRules) -> ServerRules {
    ServerRules { media: rules, ..ServerRules::default() }
}

/// The media limits of the Messages API.
fn usual() -> MediaRules {
    MediaRules {
        count: Some(100),
        image_bytes: Some(5 << 20),
        image_pixels: Some(8_000),
        many_images_pixels: Some(2_000),
        pdf_pages: Some(100),
    }
}

fn session_folder(folder: &Path) -> SessionFolder {
    SessionFolder::new(&folder.join("config"), folder)
}

async fn look(mut fixture: RunFixture) -> FinishedRun {
    fixture.setup.prompt = Prompt::text("Look at it.");
    // Too large for the stack of its callers.
    Box::pin(fixture.run()).await
}

/// The run has completed, and sent nothing that the service must refuse.
#[track_caller]
fn assert_completed(played: &FinishedRun) {
    assert_eq!(played.ending.reason, StopReason::Completed, "{:?}", played.trace());
    assert_valid_requests(&played.server);
}

/// Each refusal was answered by this repair.
#[track_caller]
fn assert_repaired(played: &FinishedRun, strategy: &str, times: usize) {
    assert_eq!(refused(&played.server).len(), times, "{:?}", played.trace());
    assert_eq!(played.strategy(strategy), times as u64, "{:?}", played.trace());
}

// --- pictures and documents ---------------------------------------------------------------------

/// Whatever lies in the folder, what is sent is a picture that the service takes, or words.
#[tokio::test]
async fn images_are_scaled_before_they_are_sent() {
    let mut scenario = Scenario::new().rules(media(usual()));
    for name in ["small.png", "wide.png", "cut.png", "empty.png", "lies.png"] {
        scenario = read(scenario, name);
    }
    let fixture = RunFixture::of(scenario.reply("Seen."));
    let work = fixture.folder.path().to_owned();
    picture(&work, "small.png", 30, 20);
    picture(&work, "wide.png", 9_000, 30);
    let whole = fs::read(work.join("small.png")).expect("it is there");
    fs::write(work.join("cut.png"), &whole[..whole.len() / 2]).expect("room");
    fs::write(work.join("empty.png"), "").expect("room");
    fs::write(work.join("lies.png"), "This is no picture at all.\n").expect("room");
    let played = look(fixture).await;
    let server = &played.server;
    assert_completed(&played);
    assert_eq!(refused(server).len(), 0);
    let last = server.requests().pop().expect("there were requests");
    let shown = in_results(&last, "image");
    assert_eq!(shown.len(), 2, "of five files two are pictures");
    for (image, widest) in shown.iter().zip([30, 2_000]) {
        let data = image["source"]["data"].as_str().expect("base64");
        let image =
            image::load_from_memory(&STANDARD.decode(data).expect("base64")).expect("sound");
        assert_eq!(image.width(), widest);
    }
    let told = result_texts(&last).join("\n");
    for words in ["cut.png cannot be shown", "empty.png is empty", "This is no picture at all."] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

/// More than twenty, where the service becomes stricter.
#[tokio::test]
async fn many_images_are_scaled_to_the_stricter_limit() {
    let mut scenario = Scenario::new().rules(media(usual())).empty();
    for _ in 0..25 {
        scenario = scenario.and_tool("Read", json!({ "file_path": "wide.png" }));
    }
    let fixture = RunFixture::of(scenario.reply("Seen."));
    picture(fixture.folder.path(), "wide.png", 2_600, 10);
    let played = look(fixture).await;
    let server = &played.server;
    assert_completed(&played);
    assert_eq!(refused(server).len(), 0);
    let last = server.requests().pop().expect("there were requests");
    assert_eq!(in_results(&last, "image").len(), 25);
}

/// A service with a limit of its own: the picture at fault becomes words, the others stay.
#[tokio::test]
async fn a_rejected_oversized_image_is_replaced_by_text() {
    let rules = media(MediaRules { image_pixels: Some(100), ..MediaRules::default() });
    let scenario = Scenario::new()
        .rules(rules)
        .tool("Read", json!({ "file_path": "small.png" }))
        .and_tool("Read", json!({ "file_path": "it's large.png" }))
        .and_tool("Bash", json!({ "command": "echo beside it" }))
        .tool("Read", json!({ "file_path": "it's large.png" }))
        .reply("Seen.");
    let fixture = RunFixture::of(scenario);
    picture(fixture.folder.path(), "small.png", 30, 20);
    picture(fixture.folder.path(), "it's large.png", 300, 20);
    let played = look(fixture).await;
    let server = &played.server;
    assert_completed(&played);
    // Once a turn: the model may well try it again.
    assert_repaired(&played, "media_strip_retry", 2);
    let requests = server.requests();
    assert_eq!(requests[1].step, None);
    let after = &requests[2];
    assert_eq!(in_results(after, "image").len(), 1, "the small one stays");
    let told = result_texts(after).join("\n");
    assert!(told.contains("beside it"), "{told}");
    assert!(told.contains("from it's large.png was here and is left out"), "{told}");
    assert!(told.contains(r"convert 'it'\''s large.png' -resize"), "how to see it: {told}");
    assert_eq!(blocks(after, "tool_result").len(), 3, "every call stays answered");
}

/// The service names one picture at a time: each becomes words in its turn.
#[tokio::test]
async fn images_rejected_one_by_one_are_all_replaced_by_text() {
    let names = |call: u32| {
        format!(
            "messages.2.content.{call}.tool_result.content.0.image.source.base64: image exceeds 5 \
             MB maximum: 5300000 bytes > 5242880 bytes"
        )
    };
    let scenario = read(Scenario::new(), "a.png");
    let scenario = scenario.and_tool("Read", json!({ "file_path": "b.png" }));
    let scenario = scenario.and_tool("Read", json!({ "file_path": "c.png" }));
    let refuse = |scenario: Scenario, call: u32| {
        scenario.status(400).error("invalid_request_error", &names(call), None)
    };
    let scenario = (0..3).fold(scenario, refuse).reply("Seen.");
    let fixture = RunFixture::of(scenario);
    for name in ["a.png", "b.png", "c.png"] {
        picture(fixture.folder.path(), name, 30, 20);
    }
    let played = look(fixture).await;
    let server = &played.server;
    assert_completed(&played);
    let left: Vec<usize> =
        server.requests().iter().map(|request| in_results(request, "image").len()).collect();
    assert_eq!(left, [0, 3, 2, 1, 0]);
    assert_eq!(played.strategy("media_strip_retry"), 3);
}

/// More pictures than the service takes: the oldest go, as many as it says.
#[tokio::test]
async fn excess_images_are_removed_oldest_first() {
    for limit in [1, 5, 24] {
        let rules = media(MediaRules { count: Some(limit), ..MediaRules::default() });
        let mut scenario = Scenario::new().rules(rules).empty();
        for number in 0..26 {
            scenario = scenario.and_tool("Read", json!({ "file_path": format!("{number}.png") }));
        }
        let fixture = RunFixture::of(scenario.reply("Seen."));
        for number in 0..26 {
            picture(fixture.folder.path(), &format!("{number}.png"), 10 + number, 10);
        }
        let played = look(fixture).await;
        let server = &played.server;
        assert_eq!(played.ending.reason, StopReason::Completed, "{limit}");
        assert_valid_requests(server);
        assert_eq!(refused(server).len(), 1, "{limit}: {:?}", played.trace());
        let last = server.requests().pop().expect("there were requests");
        let left = in_results(&last, "image");
        assert_eq!(left.len(), limit.min(20), "{limit}");
        let told = result_texts(&last).join("\n");
        assert!(told.contains("from 0.png was here"), "{limit}: {told}");
        assert!(!told.contains("from 25.png was here"), "{limit}: {told}");
    }
}

/// A refusal that names what is not there does not lead to the same request again.
#[tokio::test]
async fn an_image_error_without_images_does_not_repeat_the_request() {
    let rules = media(MediaRules { count: Some(1), ..MediaRules::default() });
    let scenario = Scenario::new()
        .rules(rules)
        .tool("Read", json!({ "file_path": "a.pdf" }))
        .and_tool("Read", json!({ "file_path": "b.pdf" }))
        .reply("Seen.");
    let fixture = RunFixture::of(scenario);
    document(fixture.folder.path(), "a.pdf", 1);
    document(fixture.folder.path(), "b.pdf", 1);
    let played = look(fixture).await;
    let server = &played.server;
    assert_completed(&played);
    assert_eq!(refused(server).len(), 1);
}

#[tokio::test]
async fn a_document_with_too_many_pages_is_replaced_by_text() {
    let rules = media(MediaRules { pdf_pages: Some(10), ..MediaRules::default() });
    let scenario = Scenario::new()
        .rules(rules)
        .tool("Read", json!({ "file_path": "long.pdf" }))
        .tool("Read", json!({ "file_path": "long.pdf", "pages": "1-9" }))
        .reply("Seen.");
    let fixture = RunFixture::of(scenario);
    document(fixture.folder.path(), "long.pdf", 12);
    let played = look(fixture).await;
    let server = &played.server;
    assert_completed(&played);
    assert_repaired(&played, "media_strip_retry", 1);
    let last = server.requests().pop().expect("there were requests");
    assert_eq!(in_results(&last, "document").len(), 1, "the nine pages are there");
    let told = result_texts(&last).join("\n");
    assert!(told.contains("pdftotext -layout 'long.pdf' -"), "how to read it: {told}");
}

/// Nothing is left to take out: the run says so, after as many requests as there were ways.
#[tokio::test]
async fn a_service_that_rejects_every_image_ends_the_run() {
    let words = "messages.2.content.0.tool_result.content.0.image.source.base64: image exceeds 5 \
                 MB maximum: 5300000 bytes > 5242880 bytes";
    let refuses =
        |scenario: Scenario| scenario.status(400).error("invalid_request_error", words, None);
    let with_picture = refuses(read(Scenario::new(), "small.png")).after(AfterLast::RepeatLast);
    let without = refuses(Scenario::new()).after(AfterLast::RepeatLast);
    for (scenario, requests) in [(with_picture, 3), (without, 1)] {
        let fixture = RunFixture::of(scenario);
        picture(fixture.folder.path(), "small.png", 30, 20);
        let played = look(fixture).await;
        assert_eq!(played.ending.reason, StopReason::ImageError);
        assert_eq!(played.server.requests().len(), requests, "{:?}", played.trace());
        assert_valid_requests(&played.server);
    }
}

/// A picture cannot be brought back as text, so nothing stands in its place.
#[tokio::test]
async fn a_removed_image_is_not_restored_after_compaction() {
    let scenario = Scenario::new()
        .rules(window(60_000))
        .tool("Read", json!({ "file_path": "wide.png" }))
        .tool("Read", json!({ "file_path": "notes.txt" }))
        .tool("Bash", part(250))
        .times(5)
        .reply("Seen.");
    let fixture = RunFixture::of(summing_up(scenario));
    picture(fixture.folder.path(), "wide.png", 3_000, 10);
    fs::write(fixture.folder.path().join("notes.txt"), "A note.\n").expect("room");
    let played = look(fixture.window(60_000)).await;
    let server = &played.server;
    assert_completed(&played);
    let asked = summing_requests(server);
    assert!(!asked.is_empty() && asked.iter().all(|request| blocks(request, "image").is_empty()));
    let last = server.requests().pop().expect("there were requests");
    let root = texts(&messages(&last)[0]);
    assert!(root.iter().any(|text| text.starts_with("File notes.txt:")), "{root:#?}");
    assert!(!root.iter().any(|text| text.starts_with("File wide.png:")), "{root:#?}");
    assert!(root.iter().any(|text| text.contains(r#""path": "wide.png""#)), "{root:#?}");
}

// --- blocks that the service cannot read ---------------------------------------------------------

pub(crate) fn poison(contains: &str) -> RejectedContent {
    RejectedContent { contains: contains.to_owned(), message: None }
}

/// The block that is named goes, and no other. Two of them are two refusals in two places.
#[tokio::test]
async fn only_the_rejected_block_is_removed() {
    let rules = ServerRules { rejected_content: vec![poison("CURSED")], ..ServerRules::default() };
    let echo = |words: &str| json!({ "command": format!("echo {words} >> log; echo {words}") });
    // Only what is printed holds the word: a call that does is healed as well, at its input.
    let cursed = json!({ "command": "echo one >> log; printf 'CUR%s\\n' SED" });
    let scenario = Scenario::new()
        .rules(rules)
        .tool("Bash", echo("first"))
        .and_tool("Bash", cursed.clone())
        .and_tool("Bash", echo("third"))
        .and_tool("Bash", cursed.clone())
        .tool("Bash", cursed)
        .reply("Read.");
    let played = look(RunFixture::of(scenario)).await;
    let server = &played.server;
    assert_completed(&played);
    assert_repaired(&played, "block_repair_retry", 3);
    let last = server.requests().pop().expect("there were requests");
    let told = result_texts(&last);
    assert_eq!(told.len(), 5);
    assert_eq!((told[0].trim(), told[2].trim()), ("first", "third"), "the others are as they were");
    for at in [1, 3, 4] {
        assert!(told[at].contains("content that the service could not take"), "{told:?}");
    }
    let log = played.file("log");
    assert_eq!(log.lines().count(), 5, "nothing was run again: {log}");
}

/// A rejection that cannot be repaired ends the run at the first refusal.
#[tokio::test]
async fn a_rejection_that_cannot_be_repaired_is_final() {
    // The task itself; a block that is not there; and no place at all, which is doubted once.
    let poisoned = Scenario::new()
        .rules(ServerRules {
            rejected_content: vec![poison("Look at it.")],
            ..ServerRules::default()
        })
        .reply("Never said.");
    let refuses = |words: &str| {
        Scenario::new()
            .tool("Bash", json!({ "command": "true" }))
            .status(400)
            .error("invalid_request_error", words, None)
            .after(AfterLast::RepeatLast)
    };
    let nowhere = refuses("messages.17.content.3: the content of this block cannot be processed");
    let vague = refuses("Your request was malformed in some way.");
    for (scenario, requests) in [(poisoned, 1), (nowhere, 3), (vague, 3)] {
        let played = look(RunFixture::of(scenario)).await;
        assert_eq!(played.ending.reason, StopReason::ModelError(ErrorClass::InvalidRequest));
        assert_eq!(played.server.requests().len(), requests, "{:?}", played.trace());
        assert_valid_requests(&played.server);
    }
}

/// The request before was accepted, so what was added since is suspect, whatever the words of the
/// refusal: the image is left out, then long results are shortened. The conversation keeps both
/// unless the service accepts the request without them.
#[tokio::test]
async fn what_was_added_is_left_out_after_an_unexplained_refusal() {
    let words = "This content is not what was expected.";
    let refused_once =
        |scenario: Scenario| scenario.status(400).error("invalid_request_error", words, None);
    // The first refusal may have passed, so the request is repeated as it is.
    let refused = |scenario: Scenario| refused_once(refused_once(scenario));
    let long = json!({ "command": "seq 5000" });
    let id = SessionId::generate();
    let played = |scenario: Scenario| {
        let mut fixture = RunFixture::of(scenario);
        let place = session_folder(fixture.folder.path());
        fixture.setup.journal = Journal::create(&place, &id, &opening()).expect("it can be made");
        picture(fixture.folder.path(), "old.png", 30, 20);
        picture(fixture.folder.path(), "new.png", 30, 20);
        look(fixture)
    };
    let recorded = |played: &FinishedRun| {
        let place = session_folder(played.folder.path());
        let session = read_session(&place, &id, OnDamage::Refuse).expect("the journal is whole");
        session.conversation.messages
    };
    let scenario = refused(read(read(Scenario::new(), "old.png"), "new.png"));
    let scenario = refused(scenario.tool("Bash", long.clone()).tool("Bash", long.clone()));
    let answered = played(scenario.reply("Seen.")).await;
    assert_eq!(answered.ending.reason, StopReason::Completed, "{:?}", answered.trace());
    let requests = answered.server.requests();
    assert_eq!(requests.len(), 9, "{:?}", answered.trace());
    let last = requests.last().expect("there were requests");
    assert_eq!(in_results(last, "image").len(), 1, "the image that was accepted stays");
    let outputs = |request: &ReceivedRequest| -> Vec<usize> {
        let texts = result_texts(request);
        texts.iter().filter(|text| text.contains("5000")).map(String::len).collect()
    };
    let (before, after) = (outputs(&requests[7]), outputs(last));
    assert!(before.len() == 2 && before.iter().all(|length| *length > 20_000), "{before:?}");
    assert!(after[0] == before[0] && after[1] < 9_000, "only what was added: {after:?}");
    let kept = serde_json::to_string(&recorded(&answered)).expect("messages are JSON");
    assert_eq!(kept.matches("\"type\":\"image\"").count(), 1, "the session has what was answered");
    // Refused without it, too: the reason is another one, and nothing is lost.
    let scenario = refused_once(refused(read(Scenario::new(), "new.png")));
    let ended = played(scenario.reply("Never said.")).await;
    assert_eq!(ended.ending.reason, StopReason::ModelError(ErrorClass::InvalidRequest));
    let requests = ended.server.requests();
    let images: Vec<usize> =
        requests.iter().map(|request| in_results(request, "image").len()).collect();
    assert_eq!(images, [0, 1, 1, 0]);
    assert!(has_images(&recorded(&ended)), "the session keeps the image");
}

/// Each service says it in its own words; the model is not told to scale the image down.
#[tokio::test]
async fn a_model_that_takes_no_images_goes_on_without_them() {
    let error = json!({ "error": { "code": 500, "type": "server_error",
        "message": "image input is not supported - hint: you may need to provide the mmproj" } });
    let scenario = read(Scenario::new(), "small.png").status(500);
    let scenario = scenario.body("application/json", &error.to_string());
    let fixture = RunFixture::of(read(scenario, "other.png").reply("Seen."));
    picture(fixture.folder.path(), "small.png", 30, 20);
    picture(fixture.folder.path(), "other.png", 30, 20);
    let played = look(fixture).await;
    assert_eq!(played.ending.reason, StopReason::Completed, "{:?}", played.trace());
    let last = played.server.requests().pop().expect("there were requests");
    assert_eq!(in_results(&last, "image"), Vec::<Value>::new());
    let told = result_texts(&last).join("\n");
    assert_eq!(told.matches("takes no images for this model").count(), 2, "{told}");
    assert_eq!(played.server.requests().len(), 4, "one request is refused, for one of the images");
}

/// Bytes that are no text are described, not sent.
#[tokio::test]
async fn binary_data_is_never_sent_as_text_or_as_an_image() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "cat raw.bin" }))
        .and_tool("Bash", json!({ "command": "cat raw.bin >&2; exit 1" }))
        .and_tool("Read", json!({ "file_path": "raw.bin" }))
        .and_tool("Read", json!({ "file_path": "raw.png" }))
        .and_tool("Grep", json!({ "pattern": "[^x]", "output_mode": "content" }))
        .and_tool("Bash", json!({ "command": "printf 'a\\033[31mred\\007\\010 words\\n'" }))
        .reply("Seen.");
    let fixture = RunFixture::of(scenario);
    let bytes: Vec<u8> = (0..40_000_u32).map(|at| (at * at % 255) as u8).collect();
    fs::write(fixture.folder.path().join("raw.bin"), &bytes).expect("room");
    fs::write(fixture.folder.path().join("raw.png"), [b"\x89PNG\r\n\x1a\n", &bytes[..]].concat())
        .expect("room");
    let played = look(fixture).await;
    let server = &played.server;
    assert_completed(&played);
    let last = server.requests().pop().expect("there were requests");
    assert_eq!(in_results(&last, "image").len(), 0);
    let told = result_texts(&last);
    assert_eq!(told.len(), 6, "{told:?}");
    for text in &told {
        let odd = |letter: char| letter == '\u{fffd}' || (letter.is_control() && letter != '\n');
        let odd = text.chars().filter(|letter| odd(*letter)).count();
        assert_eq!(odd, 0, "{text:?}");
    }
    assert!(told[0].contains("binary") && told[1].contains("binary"), "{told:?}");
    assert!(told[2].contains("binary"), "{told:?}");
    assert!(told[5].contains("ared words"), "{told:?}");
}

// --- signatures ----------------------------------------------------------------------------------

pub(crate) fn thoughts(request: &ReceivedRequest) -> Vec<Value> {
    blocks(request, "thinking")
}

/// Signatures that are no longer good cost one refusal; what is thought later is kept.
#[tokio::test]
async fn expired_signatures_are_stripped_once() {
    let rules = ServerRules {
        signatures: Signatures::Refuse,
        expire_signatures_after: Some(2),
        ..ServerRules::default()
    };
    let call = |scenario: Scenario, thought: &str| {
        scenario.tool("Bash", json!({ "command": "echo ok" })).and_thinking(thought)
    };
    let scenario = call(call(Scenario::new().rules(rules), "First."), "Second.");
    let played =
        look(RunFixture::of(call(call(scenario, "Third."), "Fourth.").reply("Done."))).await;
    let server = &played.server;
    assert_completed(&played);
    assert_repaired(&played, "block_repair_retry", 1);
    let counts: Vec<usize> =
        server.requests().iter().map(|request| thoughts(request).len()).collect();
    assert_eq!(counts, [0, 1, 2, 0, 1, 2], "gone as a whole, and new ones kept");
    let last = server.requests().pop().expect("there were requests");
    assert_eq!(thoughts(&last)[0]["thinking"], "Third.");
}

/// A service that finds fault with thinking where there is none is not argued with.
#[tokio::test]
async fn a_signature_error_without_thinking_ends_the_run() {
    let words = "messages.1.content.0: Invalid `signature` in `thinking` block";
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .and_thinking("Hm.")
        .status(400)
        .error("invalid_request_error", words, None)
        .after(AfterLast::RepeatLast);
    let played = look(RunFixture::of(scenario)).await;
    let server = &played.server;
    assert_eq!(played.ending.reason, StopReason::ModelError(ErrorClass::InvalidRequest));
    assert!(server.requests().len() <= 4, "{:?}", played.trace());
    assert_valid_requests(server);
    assert_eq!(thoughts(&server.requests()[2]).len(), 0, "it was stripped, once");
}
