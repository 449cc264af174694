//! Parses and checks the lines of a journal, and distinguishes a torn end from damage.
//!
//! A process that is killed leaves at most a torn end: broken lines with no intact line after them.
//! Those are dropped. A broken line *before* an intact one is damage: the lines after it cannot be
//! trusted, so the file is refused. A file is also refused if more is broken at its end than one
//! killed process leaves: its records would be lost unnoticed.

use std::io::{self, BufRead};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::json;
use crate::transcript::{Message, Role};

use super::entry::{JournalRecord, LineChecksum, OUR_TYPE, OpenRecord, VERSION, check_seal};
use super::line_head::record_kind;
use super::parsed_line::{JournalEntry, LineFacts, MessageEntry, ParsedLine};
use super::raw_lines::{RawLines, without_return};
use super::sealed_line::parse_sealed;

/// The parsed contents of a file.
#[derive(Debug, Default)]
pub(super) struct JournalContents {
    pub(super) entries: Vec<JournalEntry>,
    /// The number of bytes up to the end of the last intact line.
    pub(super) intact_bytes: u64,
    /// True if the last intact line lacks its newline.
    pub(super) lacks_newline: bool,
    /// The number of torn lines after it.
    pub(super) torn_lines: u32,
    /// The sequence number of our last line; 0 if there is none.
    pub(super) seq: u64,
}

/// The reason that a file cannot be used.
#[derive(Debug)]
pub(super) struct JournalRefusal {
    /// Counted from 1.
    pub(super) line: usize,
    /// The number of bytes of intact lines before it.
    pub(super) intact: u64,
    pub(super) why: RefusalReason,
}

/// The reason that a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    Damaged(String),
    /// A newer version of outlast wrote it.
    Newer(String),
}

/// The reason that the contents of a file are not known.
#[derive(Debug)]
pub(super) enum ParseError {
    /// It cannot be read.
    Io(io::Error),
    /// It can be read, and must not be used.
    Refused(JournalRefusal),
}

impl From<io::Error> for ParseError {
    fn from(cause: io::Error) -> Self {
        Self::Io(cause)
    }
}

/// Reads a journal, with one line in memory besides its contents.
///
/// # Errors
/// It cannot be read, or must not be used.
pub(super) fn parse_journal(mut journal: impl BufRead) -> Result<JournalContents, ParseError> {
    let mut contents = JournalContents::default();
    let mut broken: Option<(usize, String)> = None;
    let mut torn = TornEnd::default();
    let (mut number, mut offset) = (0, 0);
    let mut incomplete: Option<IncompleteGroup> = None;
    let mut chunk = Vec::new();
    while journal.read_until(b'\n', &mut chunk)? > 0 {
        (number, offset) = (number + 1, offset + chunk.len());
        let intact = contents.intact_bytes;
        let refuse = |line, why| ParseError::Refused(JournalRefusal { line, intact, why });
        let (line, ended) = match chunk.strip_suffix(b"\n") {
            Some(line) => (without_return(line), true),
            None => (&chunk[..], false),
        };
        match parse(line) {
            Err(RefusalReason::Damaged(what)) => {
                contents.torn_lines = contents.torn_lines.saturating_add(1);
                torn.add(line, ended);
                broken.get_or_insert((number, what));
            }
            Err(newer) => return Err(refuse(number, newer)),
            Ok(parsed) => {
                if let Some((line, what)) = broken {
                    return Err(refuse(line, RefusalReason::Damaged(what)));
                }
                let before = IncompleteGroup {
                    entries: contents.entries.len(),
                    intact_bytes: intact,
                    seq: contents.seq,
                };
                if let Some(seq) = parsed.seq {
                    if seq != contents.seq + 1 {
                        let what = format!("record {seq} follows record {}", contents.seq);
                        return Err(refuse(number, RefusalReason::Damaged(what)));
                    }
                    contents.seq = seq;
                }
                incomplete = IncompleteGroup::after(incomplete, parsed.group(), before);
                contents.intact_bytes = u64::try_from(offset).unwrap_or(u64::MAX);
                contents.lacks_newline = !ended;
                contents.entries.push(parsed.entry);
            }
        }
        chunk.clear();
    }
    if let Some((line, what)) = broken
        && !torn.is_of_one_process(contents.entries.is_empty())
    {
        let (intact, why) = (contents.intact_bytes, RefusalReason::Damaged(what));
        return Err(ParseError::Refused(JournalRefusal { line, intact, why }));
    }
    if let Some(incomplete) = incomplete {
        incomplete.drop_from(&mut contents);
    }
    Ok(contents)
}

/// The broken lines at the end of a file.
#[derive(Default)]
struct TornEnd {
    /// The number of lines that have their newline.
    ended: u32,
    /// The number of zero bytes.
    zeros: usize,
    /// The first byte.
    first: Option<u8>,
}

impl TornEnd {
    /// The most lines with a newline: a flipped bit can make two of the last one.
    const ENDED_MAX: u32 = 2;
    /// The most zeros that a power cut leaves in place of the last line: a page.
    const ZEROS_MAX: usize = 4_096;

    fn add(&mut self, line: &[u8], ended: bool) {
        self.ended += u32::from(ended);
        self.zeros += memchr::memchr_iter(0, line).count();
        self.first = self.first.or(line.first().copied());
    }

    /// Returns true if one killed process can have left this. `is_all`: no line of the file is
    /// intact, so this has to be the beginning of its first line.
    fn is_of_one_process(&self, is_all: bool) -> bool {
        let is_beginning = self.ended == 0 && self.first == Some(b'{');
        self.ended <= Self::ENDED_MAX && self.zeros <= Self::ZEROS_MAX && (!is_all || is_beginning)
    }
}

/// The state of the contents before a step or a reply that is not complete yet.
struct IncompleteGroup {
    entries: usize,
    intact_bytes: u64,
    seq: u64,
}

impl IncompleteGroup {
    /// Returns the incomplete step or reply after one more line, if there is one. `group` is the
    /// number of that line and of all lines of its step or reply; `before` is the state before that
    /// line.
    fn after(
        incomplete: Option<Self>,
        group: Option<(usize, usize)>,
        before: Self,
    ) -> Option<Self> {
        let (number, of) = group?;
        let incomplete = if number == 1 { Some(before) } else { incomplete };
        incomplete.filter(|_| number < of)
    }

    /// Drops the lines of the step or reply, whose last ones were never written.
    fn drop_from(self, contents: &mut JournalContents) {
        contents.entries.truncate(self.entries);
        (contents.intact_bytes, contents.seq, contents.lacks_newline) =
            (self.intact_bytes, self.seq, false);
        contents.torn_lines = contents.torn_lines.max(1);
    }
}

/// Returns the readable entries of a damaged part.
pub(super) fn parse_readable(bytes: &[u8]) -> Vec<JournalEntry> {
    let lines = bytes.split(|byte| *byte == b'\n');
    let parsed = lines.filter_map(|line| parse(without_return(line)).ok());
    parsed.map(|parsed| parsed.entry).collect()
}

/// The kind of an opening record, as it is written.
const OPEN_KIND: &[u8] = br#""open""#;

/// Returns the last opening record that can be read.
pub(super) fn last_open_record(journal: impl BufRead) -> Option<OpenRecord> {
    let (mut lines, mut last) = (RawLines::new(journal), None);
    while let Ok(Some((_, line))) = lines.next_line() {
        // Only lines of its kind are parsed.
        let Some(line) = line.ok().filter(|line| record_kind(line) == Some(OPEN_KIND)) else {
            continue;
        };
        if let Ok(ParsedLine { entry: JournalEntry::Record(record), .. }) = parse(line)
            && let JournalRecord::Open(open) = *record
        {
            last = Some(*open);
        }
    }
    last
}

/// Returns `Some(true)` if the last process that wrote to a session recorded its end. `None`:
/// outlast did not write to the session.
pub(super) fn is_ended(tail: &[u8]) -> Option<bool> {
    let mut ours = None;
    for line in tail.rsplit(|byte| *byte == b'\n') {
        let Ok(ParsedLine { entry, seq: Some(_), .. }) = parse(without_return(line)) else {
            continue;
        };
        ours = Some(false);
        let JournalEntry::Record(record) = entry else { continue };
        if matches!(*record, JournalRecord::End { .. } | JournalRecord::Open(_)) {
            return Some(matches!(*record, JournalRecord::End { .. }));
        }
    }
    ours
}

/// The members that identify a line, ours or another program's.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LineHead {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    seq: Option<u64>,
    v: Option<u32>,
    uuid: Option<String>,
    parent_uuid: Option<String>,
    cwd: Option<String>,
    #[serde(default)]
    is_sidechain: bool,
    #[serde(default)]
    is_meta: bool,
    #[serde(default)]
    is_api_error_message: bool,
    team_name: Option<String>,
    part: Option<(usize, usize)>,
    step: Option<(usize, usize)>,
    /// Present in lines that another program copied from one of our sessions to its own.
    forked_from: Option<IgnoredAny>,
}

/// Parses a line.
pub(super) fn parse(line: &[u8]) -> Result<ParsedLine, RefusalReason> {
    if line.trim_ascii().is_empty() {
        let (entry, facts) = (JournalEntry::Other, LineFacts::default());
        return Ok(ParsedLine { entry, seq: None, step: None, facts });
    }
    let seal = check_seal(line);
    if seal == LineChecksum::Broken {
        return Err(RefusalReason::Damaged("its checksum is wrong".to_owned()));
    }
    if seal == LineChecksum::Intact
        && let Some(parsed) = parse_sealed(line)
    {
        return Ok(parsed);
    }
    parse_any(line, seal)
}

/// Parses a line of any form, ours or another program's.
fn parse_any(line: &[u8], seal: LineChecksum) -> Result<ParsedLine, RefusalReason> {
    let damaged = |what: &str| RefusalReason::Damaged(what.to_owned());
    let mut value: Value =
        json::read(line).map_err(|error| RefusalReason::Damaged(format!("not JSON: {error}")))?;
    let mut head = LineHead::deserialize(&value).map_err(|_error| damaged("not a record"))?;
    if seal == LineChecksum::Absent && head.forked_from.is_some() {
        head.seq = None;
    }
    let seq = match (seal, head.seq) {
        (LineChecksum::Intact, Some(seq)) => Some(seq),
        (LineChecksum::Absent, None) => None,
        (LineChecksum::Intact, None) => return Err(damaged("it has no number")),
        (LineChecksum::Absent | LineChecksum::Broken, _) => {
            return Err(damaged("its checksum is missing"));
        }
    };
    let step = head.step.filter(|_| seq.is_some());
    let mut facts = LineFacts::of(&value);
    let entry = match head.kind.as_deref() {
        Some(OUR_TYPE) => our_record(&head, &value)?,
        Some("user") => message_entry(Role::User, head, &mut value, &mut facts),
        Some("assistant") => message_entry(Role::Assistant, head, &mut value, &mut facts),
        Some("system" | "attachment" | "progress") => link_entry(head),
        Some("custom-title") => title_entry(&value),
        Some(_) | None => JournalEntry::Other,
    };
    Ok(ParsedLine { entry, seq, step, facts })
}

fn our_record(head: &LineHead, value: &Value) -> Result<JournalEntry, RefusalReason> {
    const KINDS: [&str; 8] =
        ["open", "contract", "transition", "intent", "spend", "repair", "rewrite", "end"];
    let version = head.v.unwrap_or_default();
    if version != VERSION {
        return Err(RefusalReason::Newer(format!("version {version} of the journal")));
    }
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    match JournalRecord::deserialize(value) {
        Ok(record) => Ok(JournalEntry::Record(Box::new(record))),
        // Transitions may change with each version; spending and ends must be understood.
        Err(_) if kind == "transition" => Ok(JournalEntry::UnreadTransition),
        Err(_) if !KINDS.contains(&kind) => Ok(JournalEntry::Other),
        Err(error) => Err(RefusalReason::Newer(format!("{kind}: {error}"))),
    }
}

fn title_entry(value: &Value) -> JournalEntry {
    let title = value["customTitle"].as_str().filter(|title| !title.is_empty());
    title.map_or(JournalEntry::Other, |title| JournalEntry::Title(title.to_owned()))
}

fn link_entry(head: LineHead) -> JournalEntry {
    match head.uuid {
        Some(uuid) => JournalEntry::Link { uuid, parent: head.parent_uuid },
        None => JournalEntry::Other,
    }
}

fn message_entry(
    role: Role,
    head: LineHead,
    value: &mut Value,
    facts: &mut LineFacts,
) -> JournalEntry {
    let ours = head.seq.is_some();
    let structured = facts.detail.as_mut().and_then(|detail| detail.structured_output.take());
    let Some(content) = value.pointer_mut("/message/content").map(Value::take) else {
        return link_entry(head);
    };
    let mut content = if ours && content.is_array() { content } else { normalize_content(content) };
    // Copies of our lines have it, too.
    let added = value.get_mut("addedContent").map(Value::take);
    if let (Some(content), Some(Value::Array(added))) = (content.as_array_mut(), added) {
        content.extend(added);
    }
    let (Ok(content), false) = (serde_json::from_value(content), head.is_api_error_message) else {
        return link_entry(head);
    };
    let Some(uuid) = head.uuid else { return JournalEntry::Other };
    let word = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    JournalEntry::Message(Box::new(MessageEntry {
        uuid,
        parent: head.parent_uuid,
        message: Message { role, content },
        model: word("/message/model").filter(|name| !name.is_empty()),
        stop_reason: word("/message/stop_reason"),
        usage: facts.usage.filter(|_| ours),
        cwd: head.cwd,
        is_sidechain: head.is_sidechain || head.is_meta || head.team_name.is_some(),
        part: head.part.filter(|_| ours),
        structured: structured.filter(|_| ours),
        ours,
    }))
}

/// Converts content that is a string to a list with one text block. Strings occur in prompts, and
/// in messages and tool results of other programs.
fn normalize_content(content: Value) -> Value {
    match content {
        Value::String(text) => serde_json::json!([{ "type": "text", "text": text }]),
        Value::Array(blocks) => blocks.into_iter().map(normalize_block).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => other,
    }
}

fn normalize_block(mut block: Value) -> Value {
    if block.get("type").and_then(Value::as_str) == Some("tool_result")
        && let Some(content) = block.get_mut("content")
    {
        let inner = content.take();
        *content =
            if inner.is_null() { Value::Array(Vec::new()) } else { normalize_content(inner) };
    }
    block
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::super::entry::seal;
    use super::super::mirror::JournalMirror;
    use super::super::recorded_prompt::STRUCTURED;
    use super::*;
    use crate::recovery::{Event, Limits, Moment, Run};
    use crate::transcript::Block;

    /// Adds the members of another object.
    fn with_members(mut line: Value, more: &Value) -> Value {
        let more = more.as_object().expect("an object").clone();
        line.as_object_mut().expect("an object").extend(more);
        line
    }

    #[test]
    fn a_copied_line_keeps_the_content_that_was_added_to_a_prompt() {
        let added = json!([{ "type": "text", "text": "of a hook" }]);
        let line = json!({ "type": "user", "uuid": "u", "seq": 4, "addedContent": added,
            "message": { "role": "user", "content": "text" } });
        let (sender, copied) = std::sync::mpsc::channel();
        let mirror = JournalMirror::new(move |_, line| {
            let _ = sender.send(line);
        });
        mirror.copy(Path::new("/the/journal"), &seal(line.to_string().into_bytes()));
        let copy = copied.recv().expect("a copy").to_string();
        let parsed = parse(copy.as_bytes()).expect("it is intact");
        assert_eq!(parsed.seq, None);
        let JournalEntry::Message(entry) = parsed.entry else { panic!("it is a message") };
        assert_eq!(entry.message.content, [Block::text("text"), Block::text("of a hook")]);
    }

    #[test]
    fn both_parsers_return_the_same_for_own_lines() {
        let limits = Limits::default();
        let step = Run::new(7, &limits).step(Moment::default(), Event::Begin, &limits);
        let step = serde_json::to_value(step.expect("a run starts")).expect("it is JSON");
        let mut lines = vec![json!({
            "type": "outlast", "v": VERSION, "kind": "transition", "seq": 3, "step": [1, 2],
            "timestamp": "2026-01-02T03:04:05Z", "transition": step,
        })];
        let reply = json!({ "role": "assistant", "model": "m", "stop_reason": "tool_use",
            "usage": { "input_tokens": 1, "output_tokens": 2 },
            "content": [{ "type": "tool_use", "id": "t", "name": "Bash", "input": { "a": 1 } }] });
        let result = json!({ "role": "user",
            "content": [{ "type": "tool_result", "tool_use_id": "t", "content": "out" }] });
        for (kind, message, more) in [
            ("user", json!({ "content": [{ "type": "text", "text": "text" }] }), json!({})),
            ("user", json!({ "role": "user", "content": "text" }), json!({})),
            (
                "user",
                json!({ "role": "user", "content": "text" }),
                json!({ "addedContent": [{ "type": "text", "text": "of a hook" }] }),
            ),
            ("assistant", reply.clone(), json!({ "part": [2, 3], "cwd": "/w" })),
            ("assistant", reply, json!({ "isSidechain": true, "parentUuid": null })),
            (
                "user",
                result.clone(),
                json!({ "toolUseResult": { "stdout": "out", "exit_code": 1 } }),
            ),
            ("user", result.clone(), json!({ "toolUseResult": { STRUCTURED: { "a": [1] } } })),
            ("user", result.clone(), json!({ "toolUseResult": "an error" })),
            ("user", result.clone(), json!({ "toolUseResult": null, "step": [2, 2] })),
            ("user", result.clone(), json!({ "isMeta": true, "unknown": { "a": [] } })),
            ("user", result.clone(), json!({ "teamName": "t", "timestamp": "no time" })),
            ("user", result.clone(), json!({ "isApiErrorMessage": true })),
            ("user", json!({ "content": [{ "type": "from the future" }] }), json!({})),
            ("user", json!({ "content": 7 }), json!({})),
        ] {
            let line = json!({ "type": kind, "seq": 4, "uuid": "u", "message": message });
            lines.push(with_members(line, &more));
        }
        let usage = json!({ "input_tokens": 1, "output_tokens": 2 });
        for (kind, more) in [
            ("spend", json!({ "cost": 12, "usage": usage, "model": "m" })),
            ("spend", json!({ "cost": null, "usage": usage, "model": "m", "unsettled": true })),
            ("spend", json!({ "cost": "free", "usage": usage, "model": "m" })),
            ("intent", json!({ "calls": [{ "id": "t", "name": "Bash", "changed": { "a": 1 } }] })),
            ("rewrite", json!({ "after": "u", "messages": [result] })),
            ("window", json!({ "model": "m", "tokens": 7, "step": [1, 1] })),
            ("end", json!({ "reason": "completed", "transition": lines[0]["transition"] })),
            ("end", json!({ "reason": "from the future" })),
            ("transition", json!({ "timestamp": 7 })),
            ("from the future", json!({ "timestamp": "2026-01-02T03:04:05Z" })),
        ] {
            let line = json!({ "type": "outlast", "v": VERSION, "seq": 5, "kind": kind });
            lines.push(with_members(line, &more));
        }
        let mut newer = lines[0].clone();
        newer["v"] = json!(VERSION + 1);
        let mut unnumbered = lines[1].clone();
        unnumbered.as_object_mut().expect("an object").remove("seq");
        lines.extend([newer, unnumbered]);
        let mut texts: Vec<String> = lines.iter().map(Value::to_string).collect();
        // A duplicate member, a lone surrogate, and a text that looks like a step.
        texts.push(texts[1].replacen('{', r#"{"cwd":"/a","cwd":"/b","#, 1));
        texts.push(texts[1].replace(r#""text""#, r#""\ud800""#));
        texts.push(texts[1].replace(r#""text""#, r#""\"kind\":\"transition\"""#));
        for (number, line) in texts.iter().enumerate() {
            let line = seal(line.clone().into_bytes());
            let line = line.trim_ascii_end();
            let general = format!("{:?}", parse_any(line, LineChecksum::Intact));
            assert_eq!(format!("{:?}", parse(line)), general, "line {number}");
        }
        let is_of_known_form = |line: &&String| {
            let line = seal(line.as_bytes().to_vec());
            parse_sealed(line.trim_ascii_end()).is_some()
        };
        assert_eq!(texts.iter().filter(is_of_known_form).count(), 17, "both parsers were used");
    }
}
