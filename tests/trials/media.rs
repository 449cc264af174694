//! Rejected blocks and signatures of a session that goes on. What a refusal of an image, a document
//! or a block leads to is tested in [`agent::media`](crate::agent).

use std::fs;

use outlast::rehearsal::{ReceivedRequest, RehearsalServer, Scenario, ServerRules, Signatures};
use serde_json::json;

use super::context::{assert_clean, strategy};
use crate::agent::full_windows::{part, refused, summing_up, window};
use crate::agent::media::{poison, read, thoughts};
use crate::support::{FinishedProcess, RunBuilder, serve};

const SESSION: &str = "5e551011-0000-4000-8000-0000000000ed";

async fn look(trial: RunBuilder) -> FinishedProcess {
    trial.args(["Look at it."]).run().await
}

/// A rejected block of a resumed session is repaired in its journal.
#[tokio::test]
async fn a_session_with_a_rejected_block_is_repaired_permanently() {
    let clean = serve(read(Scenario::new(), "odd.txt").reply("Read."));
    let trial = RunBuilder::against(&clean).args(["--session-id", SESSION]);
    fs::write(trial.work().join("odd.txt"), "CURSED words\n").expect("room");
    let ended = look(trial).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let rules = ServerRules { rejected_content: vec![poison("CURSED")], ..ServerRules::default() };
    let strict = serve(Scenario::new().rules(rules).reply("Healed.").reply("Still healed."));
    let again = |prompt| ["--resume", SESSION, prompt];
    let ended = ended.again(&strict.base_url()).args(again("And now?")).run().await;
    assert_eq!(ended.result()["result"], "Healed.", "{ended:?}");
    let ended = ended.again(&strict.base_url()).args(again("Still?")).run().await;
    assert_eq!(ended.result()["result"], "Still healed.", "{ended:?}");
    assert_clean(&strict, &ended);
    assert_eq!((strict.requests().len(), refused(&strict).len()), (3, 1), "it was written down");
}

const ODD_THOUGHT: &str = "\u{1F914} \"quotes\", \\ and\n\tlines <tags> \u{e9}\u{2028}end ";

fn thinking_twice() -> Scenario {
    Scenario::new()
        .tool("Bash", json!({ "command": "echo ok" }))
        .and_thinking(ODD_THOUGHT)
        .tool("Bash", json!({ "command": "echo ok" }))
        .and_thinking("A second thought.")
        .reply("Done.")
        .and_thinking("A last thought.")
}

/// The thinking blocks of a request, byte for byte.
fn raw_thoughts(request: &ReceivedRequest) -> Vec<String> {
    let raw = String::from_utf8_lossy(&request.raw).into_owned();
    let starts = raw.match_indices(r#"{"type":"thinking""#);
    starts.map(|(at, _)| raw[at..=at + raw[at..].find('}').expect("it ends")].to_owned()).collect()
}

async fn resumed(
    server: &RehearsalServer,
    args: &[&str],
) -> (ReceivedRequest, ReceivedRequest, FinishedProcess) {
    let first = serve(thinking_twice());
    let ended = look(RunBuilder::against(&first).args(["--session-id", SESSION])).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let before = first.requests().pop().expect("there were requests");
    let trial = ended.again(&server.base_url()).args(["--resume", SESSION, "More."]);
    let ended = trial.args(args).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_clean(server, &ended);
    (before, server.requests().remove(0), ended)
}

#[tokio::test]
async fn thinking_is_sent_back_byte_for_byte_after_a_resume() {
    let server = serve(Scenario::new().reply("More it is."));
    let (before, after, _) = resumed(&server, &[]).await;
    let (before, after) = (raw_thoughts(&before), raw_thoughts(&after));
    assert_eq!(before.len(), 2);
    assert_eq!(after[..2], before, "to the byte");
    assert_eq!(after.len(), 3, "and the last reply's");
}

/// Another model, and another account: no block of the old thinking is sent, or it is stripped at
/// the one refusal.
#[tokio::test]
async fn thinking_of_another_model_or_account_is_dropped_as_a_whole() {
    let server = serve(Scenario::new().reply("More it is."));
    let (_, after, _) = resumed(&server, &["--model", "opus"]).await;
    assert_eq!(thoughts(&after).len(), 0, "what another signed is not sent at all");
    let rules = ServerRules {
        signatures: Signatures::Refuse,
        expire_signatures_after: Some(0),
        ..ServerRules::default()
    };
    let server = serve(Scenario::new().rules(rules).reply("More it is."));
    let (_, after, ended) = resumed(&server, &[]).await;
    assert_eq!(thoughts(&after).len(), 3);
    assert_eq!((refused(&server).len(), server.requests().len()), (1, 2), "{ended:?}");
    assert_eq!(thoughts(&server.requests()[1]).len(), 0);
    assert_eq!(strategy(&ended, "block_repair_retry"), 1);
}

/// The signature of a thinking block is invalid after the conversation before it has changed.
#[tokio::test]
async fn a_compaction_drops_all_thinking_and_keeps_what_comes_after() {
    for (model, budget) in [("claude-sonnet-5-5", false), ("claude-sonnet-4-5", true)] {
        let scenario = Scenario::new()
            .rules(window(60_000))
            .tool("Bash", part(250))
            .and_thinking(ODD_THOUGHT)
            .times(6)
            .reply("Done.");
        let server = serve(summing_up(scenario));
        let args = ["--context-window", "60000", "--max-thinking-tokens", "2000", "--model", model];
        let ended = look(RunBuilder::against(&server).args(args)).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_clean(&server, &ended);
        let requests = server.requests();
        let is_summary =
            |request: &ReceivedRequest| request.header("x-outlast-source") == Some("compact");
        let at = requests.iter().position(is_summary).expect("it was compacted");
        assert!(!thoughts(&requests[at - 1]).is_empty());
        assert!(
            !String::from_utf8_lossy(&requests[at].raw).contains("lines <tags>"),
            "nor summed up"
        );
        let after = &requests[at + 1];
        assert_eq!(thoughts(after).len(), 0, "{model}");
        // A model that wants to see the thinking behind its calls must not be asked to think.
        assert_eq!(after.body["thinking"].is_null(), budget, "{model}: {}", after.body["thinking"]);
        let last = &requests[requests.len() - 1];
        assert!(budget || !thoughts(last).is_empty(), "new thinking is kept");
    }
}
