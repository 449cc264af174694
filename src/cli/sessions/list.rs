//! `outlast sessions list`.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::journal::{SessionFile, SessionState, SessionSummary, summarize_session};
use crate::recovery::{Money, StopReason};

use super::super::args::ListSessionsArgs;
use super::super::output::one_line;
use super::super::usage::UsageError;
use super::super::version::SCHEMA_VERSION;
use super::parallel::read_in_parallel;
use super::table::{Column, Table, terminal_width};
use super::{ReportWriter, SessionsContext, phrases};

/// Default number of sessions in a table.
const ROWS: usize = 20;
/// Number of sessions whose JSON objects are in memory at the same time.
const GROUP: usize = 256;
/// Maximum length of a folder on a terminal, in characters.
const FOLDER_MAX: usize = 30;

const HEADINGS: [(&str, Column); 8] = [
    ("ID", Column::Left),
    ("LAST USED", Column::Left),
    ("PROJECT", Column::Left),
    ("STATE", Column::Left),
    ("TURNS", Column::Right),
    ("COST", Column::Right),
    ("SIZE", Column::Right),
    ("PROMPT", Column::Left),
];

/// The columns that a narrow terminal leaves out, the least important first.
const SPARE: [&str; 4] = ["SIZE", "TURNS", "COST", "PROJECT"];

pub(super) fn list(context: &SessionsContext, args: &ListSessionsArgs) -> Result<u8, UsageError> {
    let files = context.list(SessionsContext::scope(args.all_projects))?;
    let limit = match args.limit {
        Some(0) => files.len(),
        Some(limit) => limit,
        None if args.json => files.len(),
        None => ROWS,
    };
    let shown = &files[..limit.min(files.len())];
    let mut out = ReportWriter::new();
    if args.json {
        for group in shown.chunks(GROUP) {
            for line in read_in_parallel(group, |file| format!("{}\n", object(file))) {
                out.print(&line)?;
            }
        }
        return Ok(0);
    }
    if files.is_empty() {
        let folder = context.shown_folder(context.place.cwd());
        let hint = format!(" in {folder}; --all-projects lists those of other folders");
        let hint = if args.all_projects { "" } else { &hint };
        out.print(&format!("no session was recorded{hint}\n"))?;
        return Ok(0);
    }
    let width = terminal_width();
    let id_length = width.map(|_| context.unique_length());
    let rows = read_in_parallel(shown, |file| row(context, file, id_length));
    let columns = HEADINGS.map(|(name, column)| (name.to_owned(), column)).to_vec();
    let mut table = Table { columns, rows };
    if let Some(width) = width {
        // The project is the same in all rows without --all-projects.
        let spare = if args.all_projects { SPARE } else { ["PROJECT", "SIZE", "TURNS", "COST"] };
        table.fit(&spare, width);
    }
    out.print(&table.lay_out(width))?;
    if files.len() > limit {
        out.print(&format!("{} more: --limit N\n", files.len() - limit))?;
    }
    Ok(0)
}

fn row(context: &SessionsContext, file: &SessionFile, id_length: Option<usize>) -> Vec<String> {
    let id = file.id.as_str().chars().take(id_length.unwrap_or(usize::MAX)).collect();
    let written = Timestamp::try_from(file.written).unwrap_or(Timestamp::UNIX_EPOCH);
    let (used, size) = (context.shown_time(written), phrases::size(file.bytes()));
    let summary = match summarize_session(file) {
        Ok(summary) => summary,
        Err(error) => {
            let state = one_line(&format!("unreadable: {error}"));
            let none = String::new;
            return vec![id, used, none(), state, none(), none(), size, none()];
        }
    };
    let folder = summary.project.as_deref().map_or_else(String::new, |path| {
        let folder = context.shown_folder(path);
        if id_length.is_some() { end_of(&folder) } else { folder }
    });
    // The name is more informative than the prompt.
    let prompt = summary.title.as_ref().or(summary.prompt.as_ref());
    let prompt = prompt.map(|text| one_line(text)).unwrap_or_default();
    let (turns, spent) = if summary.state == SessionState::Foreign {
        // Other programs record these in other formats.
        (String::new(), "unknown".to_owned())
    } else {
        (summary.turns.to_string(), summary.spent.as_cost())
    };
    vec![id, used, folder, state(&summary), turns, spent, size, prompt]
}

/// Returns the end of a folder's path, which is more informative than its beginning.
fn end_of(folder: &str) -> String {
    let length = folder.chars().count();
    if length <= FOLDER_MAX {
        return folder.to_owned();
    }
    format!("...{}", folder.chars().skip(length - FOLDER_MAX + 3).collect::<String>())
}

fn state(summary: &SessionSummary) -> String {
    let state = match summary.state {
        SessionState::Running => "running".to_owned(),
        SessionState::Ended(reason) => format!("{} ({})", reason.name(), reason.info().exit_code),
        SessionState::Unfinished => "unfinished".to_owned(),
        SessionState::Foreign => "another program's".to_owned(),
        SessionState::Newer => "of a newer outlast".to_owned(),
    };
    if summary.damaged_lines > 0 { state + ", damaged" } else { state }
}

/// Returns the name of a state, for programs.
fn state_name(state: SessionState) -> &'static str {
    match state {
        SessionState::Running => "running",
        SessionState::Ended(_) => "finished",
        SessionState::Unfinished => "unfinished",
        SessionState::Foreign => "foreign",
        SessionState::Newer => "newer",
    }
}

fn object(file: &SessionFile) -> Value {
    let mut object = json!({
        "type": "session",
        "schema_version": SCHEMA_VERSION,
        "session_id": file.id.as_str(),
        "path": file.path.to_string_lossy(),
        "last_used": Timestamp::try_from(file.written).ok().map(|at| at.to_string()),
        "bytes": file.bytes(),
    });
    match summarize_session(file) {
        Ok(summary) => {
            let reason = match summary.state {
                SessionState::Ended(reason) => Some(reason),
                SessionState::Running
                | SessionState::Unfinished
                | SessionState::Foreign
                | SessionState::Newer => None,
            };
            object["state"] = json!(state_name(summary.state));
            object["terminal_reason"] = json!(reason.map(StopReason::name));
            object["exit_code"] = json!(reason.map(|reason| reason.info().exit_code));
            object["project"] = json!(summary.project);
            object["started"] = json!(summary.started.map(|at| at.to_string()));
            // Other programs record these in other formats.
            let is_known = summary.state != SessionState::Foreign;
            let spent = summary.spent.total().filter(|_| is_known).map(Money::as_dollars);
            object["num_turns"] = json!(is_known.then_some(summary.turns));
            object["total_cost_usd"] = json!(spent);
            object["prompt"] = json!(summary.prompt);
            object["name"] = json!(summary.title);
            object["damaged_lines"] = json!(summary.damaged_lines);
        }
        Err(error) => {
            object["state"] = json!("unreadable");
            object["error"] = json!(error.to_string());
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::time::SystemTime;

    use super::*;
    use crate::journal::SessionId;

    #[test]
    fn a_path_that_is_not_text_is_listed_for_programs() {
        let id = SessionId::parse("0aaa1111-0000-4000-8000-000000000001").expect("an id");
        let path = Path::new(OsStr::from_bytes(b"/odd \xff")).join("a.jsonl");
        let file = SessionFile { id, path, written: SystemTime::UNIX_EPOCH };
        assert_eq!(object(&file)["path"], "/odd \u{fffd}/a.jsonl");
    }
}
