//! Lists the recorded sessions, and summarizes each in one pass over its file: only the lines that
//! matter are parsed, and one line is in memory at a time.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use memchr::memmem;
use serde::de::DeserializeOwned;

use crate::process::file_reads::open_regular;
use crate::recovery::{Action, ReplyDisposition, Spending, StopReason, Transition};
use crate::transcript::{Block, Role};

use super::contract::{FirstPrompt, prompt_title};
use super::entry::{LineChecksum, OpenRecord, SpendRecord, VERSION, check_seal};
use super::lease_record::is_held_elsewhere;
use super::line_head::HeadMembers;
use super::lock::is_held;
use super::parsed_line::{JournalEntry, ParsedLine};
use super::past_agents::subagent_files;
use super::raw_lines::{RawLines, buffered};
use super::reader::{RefusalReason, parse};
use super::session_folder::{entries, sort_newest_first};
use super::totals::TurnCounting;
use super::view::JournalView;
use super::{JournalError, SessionFolder, SessionId};

/// The scope of a list of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// The sessions of one working directory.
    Project,
    All,
}

/// The file of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFile {
    pub id: SessionId,
    pub path: PathBuf,
    /// Time of the last write.
    pub written: SystemTime,
}

impl SessionFile {
    /// Finds out whether a path is the file of a session. Also returns the size of the file.
    pub(super) fn at(path: PathBuf) -> Option<(Self, u64)> {
        let id = SessionId::parse(path.file_name()?.to_str()?.strip_suffix(".jsonl")?)?;
        let facts = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
        Some((Self { id, written: facts.modified().ok()?, path }, facts.len()))
    }

    /// The size of the journal, with the journals of sub-agents and the outputs beside it.
    pub fn bytes(&self) -> u64 {
        let journal = fs::symlink_metadata(&self.path).map_or(0, |facts| facts.len());
        journal.saturating_add(bytes_below(&self.path.with_extension("")))
    }

    /// Returns true if a process works on the session.
    pub fn is_running(&self) -> bool {
        open_regular(&self.path).is_ok_and(|file| is_held(&file)) || is_held_elsewhere(&self.path)
    }
}

/// Lists sessions, the last written first.
pub fn list_sessions(sessions: &SessionFolder, scope: ListScope) -> Vec<SessionFile> {
    let paths: Vec<PathBuf> = match scope {
        ListScope::Project => sessions.own_files().collect(),
        ListScope::All => {
            entries(&sessions.projects()).iter().flat_map(|folder| entries(folder)).collect()
        }
    };
    let mut files: Vec<SessionFile> =
        paths.into_iter().filter_map(|path| Some(SessionFile::at(path)?.0)).collect();
    sort_newest_first(&mut files, |file| (file.written, &file.id));
    files
}

/// Finds the file of a session: of this working directory first, then of any.
///
/// # Errors
/// There is no such session.
pub fn locate_session(
    sessions: &SessionFolder,
    id: &SessionId,
) -> Result<SessionFile, JournalError> {
    let path = sessions.find(id)?;
    SessionFile::at(path)
        .map(|(file, _)| file)
        .ok_or_else(|| JournalError::Unknown { id: id.clone(), projects: sessions.projects() })
}

fn bytes_below(folder: &Path) -> u64 {
    let size = |path: PathBuf| match fs::symlink_metadata(&path) {
        Ok(facts) if facts.is_dir() => bytes_below(&path),
        Ok(facts) => facts.len(),
        Err(_) => 0,
    };
    entries(folder).into_iter().map(size).sum()
}

/// The subject, state and cost of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSummary {
    /// The working directory, if recorded.
    pub project: Option<PathBuf>,
    pub started: Option<Timestamp>,
    pub state: SessionState,
    pub turns: u32,
    /// The spending, including that of sub-agents, as far as prices are known.
    pub spent: Spending,
    /// The first words of the first prompt.
    pub prompt: Option<String>,
    /// The name that the user gave it last.
    pub title: Option<String>,
    /// Lines that cannot be read.
    pub damaged_lines: u32,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// A process works on it.
    Running,
    /// The last process recorded its end.
    Ended(StopReason),
    /// The last process did not record its end: it was killed, or its journal was lost.
    Unfinished,
    /// Another program wrote it.
    #[default]
    Foreign,
    /// A newer version of outlast wrote it, so its state is unknown.
    Newer,
}

/// Summarizes a session.
///
/// # Errors
/// The file cannot be read.
pub fn summarize_session(file: &SessionFile) -> io::Result<SessionSummary> {
    let opened = open_regular(&file.path)?;
    // Checked before the file is read: a process that ends in between has recorded its end.
    let is_running = is_held(&opened) || is_held_elsewhere(&file.path);
    let mut scan = SessionScan::default();
    scan.read(opened)?;
    for (_, journal) in subagent_files(&file.path) {
        let mut agent = SessionScan::default();
        // A missing journal of a sub-agent is one without spending.
        let _unreadable = open_regular(&journal).and_then(|opened| agent.read(opened));
        scan.found.spent += agent.found.spent;
    }
    let state = match scan.ended {
        _ if is_running => SessionState::Running,
        _ if scan.is_newer => SessionState::Newer,
        Some(reason) => SessionState::Ended(reason),
        // A file without any readable line was cut off, as by a power cut.
        None if scan.is_ours || !scan.has_lines => SessionState::Unfinished,
        None => SessionState::Foreign,
    };
    let prompt = scan.found.prompt.or(scan.first_text);
    Ok(SessionSummary { state, prompt, ..scan.found })
}

/// The state of a pass over a file.
#[derive(Default)]
struct SessionScan {
    found: SessionSummary,
    ended: Option<StopReason>,
    is_ours: bool,
    /// True if a line can be read.
    has_lines: bool,
    is_newer: bool,
    counted: TurnCounting,
    first_text: Option<String>,
}

/// The part of a line that has its members after the message.
const TAIL_BYTES: usize = 112;

/// A kind of lines that a summary needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineKind {
    /// One of our own records, apart from steps.
    Record,
    Step,
    Title,
    Reply,
    UserMessage,
}

impl LineKind {
    /// Finds the kind of a line by its head. `None`: the line does not matter.
    fn of(line: &[u8]) -> Option<Self> {
        let mut members = HeadMembers::of(line);
        match members.value(b"type")? {
            br#""outlast""# => match members.value(b"kind")? {
                br#""open""# | br#""prompt""# | br#""spend""# | br#""end""# => Some(Self::Record),
                br#""transition""# => Some(Self::Step),
                _ => None,
            },
            br#""custom-title""# => Some(Self::Title),
            // Other programs write the message first, and a line for each block.
            br#""assistant""# => members.is_before("message").then_some(Self::Reply),
            br#""user""# => Some(Self::UserMessage),
            _ => None,
        }
    }
}

/// The members of a step that a summary needs, up to their values. A step has no text of a user or
/// a model, so these bytes occur nowhere else in it.
const REPLY_MEMBER: &[u8] = br#","edit":{"reply":"#;
const ACTION_MEMBER: &[u8] = br#","action":"#;

/// Reads the disposition of the reply in a step, and the action of the step. Steps are the most
/// frequent records, and the state in them is large, so nothing else in them is parsed. `None`: the
/// line is not in the usual form.
fn step_change(line: &[u8]) -> Option<(ReplyDisposition, Action)> {
    let mut members = HeadMembers::of(line);
    let version: u32 = serde_json::from_slice(members.value(b"v")?).ok()?;
    members.value(b"seq").filter(|_| version == VERSION)?;
    let reply = match memmem::find(line, REPLY_MEMBER) {
        Some(start) => value_at(line, start + REPLY_MEMBER.len())?,
        // The journal leaves the default out.
        None => ReplyDisposition::default(),
    };
    let action = memmem::rfind(line, ACTION_MEMBER)? + ACTION_MEMBER.len();
    Some((reply, value_at(line, action)?))
}

/// Parses the value at a position. More may follow it.
fn value_at<T: DeserializeOwned>(line: &[u8], start: usize) -> Option<T> {
    T::deserialize(&mut serde_json::Deserializer::from_slice(&line[start..])).ok()
}

/// Returns the sessions of all working directories whose ids start with `beginning`, each once, the
/// last written first.
pub fn sessions_beginning(sessions: &SessionFolder, beginning: &str) -> Vec<SessionFile> {
    let mut found: Vec<SessionFile> = Vec::new();
    for file in list_sessions(sessions, ListScope::All) {
        // The same session may have been copied to other projects: the newest counts.
        let is_new = found.iter().all(|known| known.id != file.id);
        let head = file.id.as_str().get(..beginning.len());
        if head.is_some_and(|head| head.eq_ignore_ascii_case(beginning)) && is_new {
            found.push(file);
        }
    }
    found
}

/// Finds the session of this working directory with a name: the last written one.
pub fn session_named(sessions: &SessionFolder, name: &str) -> Option<SessionId> {
    let mut files = list_sessions(sessions, ListScope::Project).into_iter();
    let is_named = |file: &SessionFile| {
        let mut scan = SessionScan::default();
        let read = open_regular(&file.path).and_then(|opened| scan.read(opened));
        read.is_ok() && scan.found.title.as_deref() == Some(name)
    };
    files.find(is_named).map(|file| file.id)
}

impl SessionScan {
    fn read(&mut self, file: File) -> io::Result<()> {
        let mut lines = RawLines::new(buffered(file));
        while let Some((_, line)) = lines.next_line()? {
            match line {
                Ok(line) => self.observe(line),
                Err(_) => self.found.damaged_lines += 1,
            }
        }
        Ok(())
    }

    fn observe(&mut self, line: &[u8]) {
        let seal = check_seal(line);
        let is_damaged = match seal {
            LineChecksum::Intact => false,
            LineChecksum::Broken => true,
            LineChecksum::Absent => !(line.starts_with(b"{") && line.ends_with(b"}")),
        };
        if is_damaged {
            self.found.damaged_lines = self.found.damaged_lines.saturating_add(1);
            return;
        }
        self.has_lines = true;
        self.is_ours |= seal == LineChecksum::Intact;
        match LineKind::of(line) {
            Some(LineKind::Step) => self.observe_step(line, seal),
            Some(LineKind::Record | LineKind::Title) => self.observe_entry(line),
            Some(LineKind::Reply) => {
                self.ended = None;
                let tail = &line[line.len().saturating_sub(TAIL_BYTES)..];
                let has = |member: &[u8]| memmem::find(tail, member).is_some();
                let continues = has(br#","part":["#) && !has(br#","part":[1,"#);
                if !continues && self.counted.observe_reply() {
                    self.found.turns = self.found.turns.saturating_add(1);
                }
            }
            Some(LineKind::UserMessage) => {
                self.ended = None;
                self.observe_user_message(line);
            }
            None => {}
        }
    }

    fn observe_step(&mut self, line: &[u8], seal: LineChecksum) {
        match step_change(line).filter(|_| seal == LineChecksum::Intact) {
            Some((reply, action)) => self.apply_step(reply, action),
            None => self.observe_entry(line),
        }
    }

    fn apply_step(&mut self, reply: ReplyDisposition, action: Action) {
        self.ended = action.end();
        if self.counted.observe_step(reply) {
            self.found.turns = self.found.turns.saturating_add(1);
        }
    }

    fn observe_entry(&mut self, line: &[u8]) {
        match parse(line) {
            Ok(parsed) => parsed.entry.show(self),
            Err(RefusalReason::Newer(_)) => self.is_newer = true,
            Err(RefusalReason::Damaged(_)) => {
                self.found.damaged_lines = self.found.damaged_lines.saturating_add(1);
            }
        }
    }

    /// Takes the prompt, the start and the working directory from the first text of the user.
    fn observe_user_message(&mut self, line: &[u8]) {
        if self.first_text.is_some() || self.found.prompt.is_some() {
            return;
        }
        let Ok(ParsedLine { entry: JournalEntry::Message(entry), facts, .. }) = parse(line) else {
            return;
        };
        if entry.message.role != Role::User || entry.is_sidechain {
            return;
        }
        let at = || facts.timestamp.and_then(|at| at.parse().ok());
        self.found.started = self.found.started.or_else(at);
        if self.found.project.is_none() {
            self.found.project = entry.cwd.map(PathBuf::from);
        }
        self.first_text = entry.message.content.iter().find_map(Block::as_text).map(prompt_title);
    }
}

impl JournalView<'_> for SessionScan {
    fn open(&mut self, open: &OpenRecord) {
        self.ended = None;
        if self.found.started.is_none() {
            self.found.started = open.since.parse().ok();
        }
        self.found.project = Some(PathBuf::from(&open.cwd));
    }

    fn first_prompt(&mut self, prompt: &FirstPrompt) {
        self.found.prompt.get_or_insert_with(|| prompt.beginning.clone());
    }

    fn transition(&mut self, transition: &Transition) {
        self.apply_step(transition.edit.reply, transition.action);
    }

    fn spend(&mut self, spend: &SpendRecord) {
        self.found.spent += spend.cost.into();
    }

    fn end(&mut self, reason: StopReason, _error: Option<&str>) {
        self.ended = Some(reason);
    }

    fn title(&mut self, title: &str) {
        self.found.title = Some(title.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::recovery::{Event, Limits, Moment, ReplyKind, Run, TokenEstimate};

    #[test]
    fn of_a_step_the_reply_and_the_action_are_read() {
        let limits = Limits::default();
        let (mut run, mut ends) = (Run::new(7, &limits), false);
        let (estimated, answered) = (
            Event::Estimated(TokenEstimate::FREE),
            Event::Replied(ReplyKind::Answer { tokens: 5 }),
        );
        for event in [Event::Begin, estimated, answered] {
            let step = run.step(Moment::default(), event, &limits).expect("in order");
            ends |= step.action.end().is_some();
            let mut line = json!({ "type": "outlast", "v": VERSION, "seq": 3,
                "kind": "transition", "transition": step, "step": [1, 2] });
            let read = |line: &Value| step_change(line.to_string().as_bytes());
            assert_eq!(read(&line), Some((step.edit.reply, step.action)), "{line}");
            line["v"] = json!(VERSION + 1);
            assert_eq!(read(&line), None);
            line["v"] = json!(VERSION);
            line.as_object_mut().expect("an object").remove("seq");
            assert_eq!(read(&line), None);
            run = step.next;
        }
        assert!(ends, "one of the actions ends the run");
    }
}
