//! Finds the session that a user names: by its id, the beginning of its id, its name, or as
//! `latest`.

use crate::journal::{
    SessionFile, SessionFolder, SessionId, latest, locate_session, session_named,
    sessions_beginning,
};

use super::output::one_line;
use super::usage::UsageError;
use crate::text::listed;

/// The number of sessions that an error lists.
const NAMED_MAX: usize = 5;

/// The length of an unknown name in an error, in characters.
const SHOWN_MAX: usize = 60;

/// Finds the file of a session, first among those of this working directory.
///
/// # Errors
/// There is none, or there are several.
pub(super) fn find(place: &SessionFolder, named: &str) -> Result<SessionFile, UsageError> {
    let named = named.trim();
    if named.is_empty() {
        return Err(UsageError::new("the name of the session is empty; is its variable not set?"));
    }
    // The path of a journal, as lists and hooks name it.
    let path = named.strip_suffix(".jsonl").and_then(|path| path.rsplit('/').next());
    let named = path.unwrap_or(named);
    let unknown = |id: &SessionId| UsageError::new(format!("there is no session {}", id.as_str()));
    if named == "latest" {
        let id = latest(place)
            .map_err(|error| UsageError::new(format!("{error}; {}", error.hint())))?
            .ok_or_else(|| none_recorded(place))?;
        return locate_session(place, &id).map_err(|_gone| unknown(&id));
    }
    let whole = SessionId::parse(named);
    if let Some(file) = whole.and_then(|id| locate_session(place, &id).ok()) {
        return Ok(file);
    }
    if let Some(id) = session_named(place, named) {
        return locate_session(place, &id).map_err(|_gone| unknown(&id));
    }
    let mut found = sessions_beginning(place, named);
    let count = found.len();
    match (found.pop(), count) {
        (Some(file), 1) => Ok(file),
        (None, _) => Err(UsageError::new(format!(
            "there is no session {}: it is neither an id, nor the beginning of one, nor the name of a \
             session of this folder; outlast sessions --all-projects lists them",
            shortened(named)
        ))),
        (Some(last), _) => {
            found.push(last);
            let ids: Vec<&str> = found.iter().map(|it| it.id.as_str()).collect();
            Err(UsageError::new(format!(
                "{count} sessions begin with {}: {}; give more of the id",
                shortened(named),
                listed(&ids, NAMED_MAX)
            )))
        }
    }
}

/// Returns the error for a working directory without a session.
fn none_recorded(place: &SessionFolder) -> UsageError {
    UsageError::new(format!(
        "no session was recorded in {}; outlast sessions --all-projects lists those of other folders",
        place.cwd().display()
    ))
}

fn shortened(text: &str) -> String {
    one_line(&text.chars().take(SHOWN_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_session_is_found_by_the_beginning_of_its_id_or_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = SessionFolder::new(folder.path(), folder.path());
        let ids = ["0aaa1111-0000-4000-8000-000000000001", "0aaa2222-0000-4000-8000-000000000002"];
        let projects = place.folder();
        fs::create_dir_all(&projects).expect("a folder");
        for id in ids {
            let line = format!("{{\"type\":\"custom-title\",\"customTitle\":\"of {id}\"}}\n");
            fs::write(projects.join(format!("{id}.jsonl")), line).expect("a file");
        }
        let found = |named: &str| find(&place, named).map(|file| file.id.to_string());
        let upper = ids[1].to_ascii_uppercase();
        let path = projects.join(format!("{}.jsonl", ids[1])).display().to_string();
        for named in [ids[1], "0aaa2", "0AAA2", &upper, &format!("of {}\n", ids[1]), &path] {
            assert_eq!(found(named).expect(named), ids[1]);
        }
        let error = found("nope").expect_err("no such session").to_string();
        assert!(error.starts_with("there is no session nope: it is neither an id"), "{error}");
        let error = found("0aaa").expect_err("two sessions").to_string();
        assert!(error.starts_with("2 sessions begin with 0aaa: "), "{error}");
        let error = found(" ").expect_err("a variable that is not set").to_string();
        assert!(error.starts_with("the name of the session is empty"), "{error}");
    }
}
