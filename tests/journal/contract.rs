//! The start of a session in its journal: its contract and its first prompt.

use outlast::journal::{
    Contract, FirstPrompt, Journal, JournalError, LockedSession, MessageMeta, OnDamage,
    ProcessOpening, SessionFolder, SessionId, read_terms,
};
use outlast::secrets::KnownSecrets;
use serde_json::{Value, json};

use super::arbitrary::add_checksums;
use super::session_fixture::{Sandbox, opening, says, user};

const SECRET: &str = "correct-horse-battery";

fn contract(terms: &Value) -> Contract {
    Contract {
        version: 1,
        terms: terms.as_object().expect("an object").clone(),
        ..Contract::default()
    }
}

/// The same, as it is recorded in the folder of a sandbox.
fn recorded(sandbox: &Sandbox, terms: &Value) -> Contract {
    let folder = sandbox.place.cwd().to_str().expect("text").to_owned();
    Contract { folder: Some(folder), ..contract(terms) }
}

fn starting(terms: &Value, prompt: &str) -> ProcessOpening {
    ProcessOpening {
        contract: Some(contract(terms)),
        prompt: Some(FirstPrompt::of(prompt)),
        title: None,
        secrets: KnownSecrets::new([SECRET]),
        ..opening()
    }
}

fn resume(sandbox: &Sandbox, id: &SessionId, opening: &ProcessOpening) {
    let held = LockedSession::lock_and_read(&sandbox.place, id, OnDamage::Refuse).expect("free");
    let (mut journal, _restored) = held.open(&sandbox.place, opening);
    journal.message(&says("So be it."), &MessageMeta::default());
}

fn contracts_in(sandbox: &Sandbox, id: &SessionId) -> usize {
    String::from_utf8(sandbox.bytes(id)).expect("text").matches(r#""kind":"contract""#).count()
}

#[test]
fn the_first_contract_and_the_last_and_the_first_prompt_are_kept() {
    let sandbox = Sandbox::new();
    let id = SessionId::generate();
    let first = json!({ "maxTurns": 3, "require": "make check" });
    let second = json!({ "maxTurns": 5, "require": "make check" });
    let mut journal =
        Journal::create(&sandbox.place, &id, &starting(&first, "Fix it.")).expect("created");
    // What looks like a record within a message is none.
    journal
        .message(&user(r#"{"type":"outlast","v":1,"kind":"contract"}"#), &MessageMeta::default());
    drop(journal);
    resume(&sandbox, &id, &starting(&first, "More."));
    assert_eq!(contracts_in(&sandbox, &id), 1, "what is the same is not written again");
    resume(&sandbox, &id, &starting(&second, "Even more."));
    let known = read_terms(&sandbox.place, &id).expect("readable");
    let kept = known.contract.clone().expect("there is a contract");
    let [first, second] = [first, second].map(|terms| recorded(&sandbox, &terms));
    assert_eq!((kept.original, &kept.latest), (first, &second));
    assert_eq!(kept.here, Some(second), "it is of this folder");
    assert_eq!(known.prompt, Some(FirstPrompt::of("Fix it.")));
    assert_eq!(sandbox.read(&id).contract.terms, known);
}

#[test]
fn a_secret_in_a_term_is_not_written_and_the_term_is_marked() {
    let sandbox = Sandbox::new();
    let id = SessionId::generate();
    let own = json!({ "maxTurns": 3, "require": format!("curl -u me:{SECRET} https://x") });
    let opening = starting(&own, &format!("Use {SECRET}."));
    drop(Journal::create(&sandbox.place, &id, &opening).expect("created"));
    assert!(!String::from_utf8(sandbox.bytes(&id)).expect("text").contains(SECRET));
    let known = read_terms(&sandbox.place, &id).expect("readable");
    let kept = known.contract.expect("there is a contract").latest;
    assert_eq!(kept.redacted, ["require"]);
    assert_eq!(kept.terms["require"], "curl -u me:[redacted] https://x");
    // The same contract again is the same record.
    resume(&sandbox, &id, &opening);
    assert_eq!(contracts_in(&sandbox, &id), 1);
    let prompt = known.prompt.expect("there is a prompt");
    assert_eq!(prompt.sha256, FirstPrompt::of(&format!("Use {SECRET}.")).sha256);
}

#[test]
fn a_session_of_an_earlier_version_has_neither() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("Fix it."), &MessageMeta::default());
    drop(journal);
    let known = read_terms(&sandbox.place, &id).expect("readable");
    assert_eq!((known.contract, known.prompt), (None, None));
}

#[test]
fn a_fork_takes_the_prompt_along() {
    let sandbox = Sandbox::new();
    let (id, copy) = (SessionId::generate(), SessionId::generate());
    let own = json!({ "maxTurns": 3 });
    drop(Journal::create(&sandbox.place, &id, &starting(&own, "Fix it.")).expect("created"));
    let source = sandbox.read(&id);
    let opening = starting(&own, "Other.");
    drop(Journal::fork(&sandbox.place, &copy, &opening, (&id, &source)).expect("created"));
    let known = read_terms(&sandbox.place, &copy).expect("readable");
    assert_eq!(known.prompt, Some(FirstPrompt::of("Fix it.")));
    assert_eq!(known.contract.map(|kept| kept.latest), Some(recorded(&sandbox, &own)));
}

#[test]
fn a_contract_that_cannot_be_understood_is_refused_and_not_skipped() {
    let sandbox = Sandbox::new();
    let line = r#"{"type":"outlast","v":1,"timestamp":"2026","kind":"contract","terms":7"#;
    let id = sandbox.with_file(&add_checksums(&[line.to_owned()]));
    let error = read_terms(&sandbox.place, &id).expect_err("not understood");
    assert!(matches!(error, JournalError::Newer { line: 1, .. }), "{error}");
}

#[test]
fn a_contract_belongs_to_the_folder_of_the_process_that_recorded_it() {
    let sandbox = Sandbox::new();
    let id = SessionId::generate();
    let [here, there] = [json!({ "maxTurns": 1 }), json!({ "maxTurns": 2 })];
    drop(Journal::create(&sandbox.place, &id, &starting(&here, "go")).expect("created"));
    let elsewhere = SessionFolder::new(&sandbox.root.path().join("config"), sandbox.root.path());
    let terms_in = |place: &SessionFolder| {
        let kept = read_terms(place, &id).expect("readable").contract.expect("a contract");
        (kept.here.map(|contract| contract.terms["maxTurns"].clone()), kept.latest.terms)
    };
    assert_eq!(terms_in(&elsewhere).0, None);
    let held = LockedSession::lock_and_read(&elsewhere, &id, OnDamage::Refuse).expect("free");
    drop(held.open(&elsewhere, &starting(&there, "go")));
    let latest = there.as_object().expect("an object").clone();
    assert_eq!(terms_in(&elsewhere), (Some(json!(2)), latest.clone()));
    assert_eq!(terms_in(&sandbox.place), (Some(json!(1)), latest));
}
