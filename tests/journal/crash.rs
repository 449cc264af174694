//! Kills a writing process wherever it happens to be, again and again.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use outlast::journal::{Journal, LockedSession, MessageMeta, OnDamage, SessionFolder, SessionId};
use outlast::transcript::{Block, HistoryRule, Message, violations};
use serde_json::Value;

use super::session_fixture::{call, calls, opening, reply, result, user};

const FOLDER: &str = "OUTLAST_TEST_CRASH";
const SESSION: &str = "crash";
const EFFECTS: &str = "effects";

fn place(folder: &Path) -> SessionFolder {
    SessionFolder::new(&folder.join("config"), folder)
}

/// The child process of the next test: turns without end, each with one effect that must not happen
/// twice.
#[test]
fn child_that_writes() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (folder, id) = (Path::new(&folder), SessionId::parse(SESSION).expect("a name"));
    let place = place(folder);
    let mut journal = match LockedSession::lock_and_read(&place, &id, OnDamage::Refuse) {
        Ok(held) => held.open(&place, &opening()).0,
        Err(_unknown) => Journal::create(&place, &id, &opening()).expect("created"),
    };
    let mut effects =
        OpenOptions::new().create(true).append(true).open(folder.join(EFFECTS)).expect("opened");
    for turn in 0..100_000 {
        let tool = format!("{}-{turn}", std::process::id());
        journal.message(&user("go"), &MessageMeta::default());
        journal.message(&calls(&[&tool]), &reply());
        println!("\nstep");
        journal.intent(&[(call(&tool), false)]);
        println!("\nstep");
        effects.write_all(format!("{tool}\n").as_bytes()).expect("written");
        println!("\nstep");
        journal.outcome(&result(&tool, "done"), &Value::Null);
    }
}

/// Starts the child and kills it after it said `steps` times that it did something.
fn kill_after(folder: &Path, steps: usize) {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["journal::crash::child_that_writes", "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let seen = lines.map_while(Result::ok).filter(|line| line == "step").take(steps).count();
    assert_eq!(seen, steps, "the child ended by itself");
    child.kill().expect("killed");
    child.wait().expect("gone");
}

#[test]
fn a_session_killed_anywhere_resumes_without_repeating_effects() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let (place, id) = (place(folder.path()), SessionId::parse(SESSION).expect("a name"));
    for round in 1..=12_usize {
        kill_after(folder.path(), 1 + round * 7 % 23);
        let restored = LockedSession::lock_and_read(&place, &id, OnDamage::Refuse)
            .expect("the lock died with its holder");
        let restored = restored.restored();
        assert!(
            restored.totals.unknown_outcomes <= 1 && restored.totals.dropped_records <= 1,
            "{restored:?}"
        );
        for violation in violations(&restored.conversation.messages) {
            assert_eq!(violation.rule, HistoryRule::AssistantCloses, "round {round}");
        }
        let told = results(&restored.conversation.messages);
        let effects = fs::read_to_string(folder.path().join(EFFECTS)).unwrap_or_default();
        let mut seen: HashMap<&str, u32> = HashMap::new();
        for effect in effects.lines() {
            *seen.entry(effect).or_default() += 1;
            let told = told.get(effect).map(String::as_str).unwrap_or_default();
            let honest = told == "done" || told.starts_with("outcome unknown");
            assert!(honest, "round {round}: {effect} happened, the model was told {told:?}");
        }
        assert!(seen.values().all(|times| *times == 1), "round {round}: {seen:?}");
        for (call, told) in told.iter().filter(|(_, told)| *told == "done") {
            assert!(seen.contains_key(call.as_str()), "round {round}: {call} was told {told}");
        }
    }
}

fn results(messages: &[Message]) -> HashMap<String, String> {
    let mut results = HashMap::new();
    for block in messages.iter().flat_map(|message| &message.content) {
        if let Block::ToolResult { tool_use_id, content, .. } = block
            && let [Block::Text { text }] = content.as_slice()
        {
            results.insert(tool_use_id.clone(), text.clone());
        }
    }
    results
}
