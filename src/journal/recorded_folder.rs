//! The working directory that a session was started in, according to its file.

use std::io::BufReader;
use std::path::Path;

use serde::Deserialize;

use crate::process::file_reads::open_regular;

use super::raw_lines::RawLines;

/// The maximum number of lines that are searched. Other programs write a few lines before the first
/// one with the working directory.
const LINES_MAX: usize = 200;

/// The member of a line that has the working directory.
#[derive(Deserialize)]
struct LineFolder {
    cwd: Option<String>,
}

/// Reads the working directory of the first line that records one.
pub(super) fn recorded_folder(path: &Path) -> Option<String> {
    let mut lines = RawLines::new(BufReader::new(open_regular(path).ok()?));
    for _ in 0..LINES_MAX {
        let (_, line) = lines.next_line().ok()??;
        let folder = line.ok().and_then(|line| serde_json::from_slice::<LineFolder>(line).ok());
        if let Some(LineFolder { cwd: Some(folder) }) = folder {
            return Some(folder);
        }
    }
    None
}
