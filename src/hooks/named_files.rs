//! The files that the tool call of a hook's input names. Reads the file system.
//!
//! A hook that prints such a file, as one that shows a script or keeps a copy does, prints text of
//! the checkout or of the model.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::iter;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::json;
use crate::process::file_reads::open_regular;

/// The number of bytes that are compared beyond the first piece of each file, in all files of a
/// call.
const FURTHER_BYTES: u64 = 8 << 20;

/// The size of the pieces in which a file is read, and their overlap, in bytes.
const PIECE_BYTES: u64 = 1 << 20;
const OVERLAP: usize = 64 << 10;

/// The most folders that a call names and may change into.
const FOLDERS_MAX: usize = 4;

/// The most files of a folder in which a pattern of file names is looked for.
const FOLDER_FILES_MAX: usize = 1000;

/// The longest path that the kernel takes.
const PATH_MAX: usize = 4096;

/// Reads the files that the tool call of a hook's input names, in pieces that overlap.
pub(super) fn texts(input: &Value) -> impl Iterator<Item = String> {
    let files = paths(input).into_iter().filter_map(|path| open_regular(&path).ok());
    let mut left = FURTHER_BYTES;
    files.flat_map(move |file| {
        let size = file.metadata().map_or(0, |known| known.len());
        let further = size.saturating_sub(PIECE_BYTES).min(left);
        left -= further;
        pieces(file, PIECE_BYTES + further)
    })
}

fn pieces(file: File, size: u64) -> impl Iterator<Item = String> {
    let (mut rest, mut bytes) = (file.take(size), Vec::new());
    iter::from_fn(move || {
        bytes.drain(..bytes.len().saturating_sub(OVERLAP));
        let read = rest.by_ref().take(PIECE_BYTES).read_to_end(&mut bytes).ok()?;
        (read > 0).then(|| json::decode(&bytes).into_owned())
    })
}

/// The paths that a tool call may mean, whether or not they exist.
fn paths(input: &Value) -> BTreeSet<PathBuf> {
    let call = &input["tool_input"];
    let folder = Path::new(input["cwd"].as_str().unwrap_or_default());
    let workdir = call["workdir"].as_str().map(|workdir| folder.join(workdir));
    let mut folders: Vec<PathBuf> = workdir.into_iter().chain([folder.to_path_buf()]).collect();
    let mut words = BTreeSet::new();
    collect(call, &mut |word| {
        words.insert(word.to_owned());
    });
    // `cd sub && ...`
    let joined = |word| folders.iter().map(move |folder: &PathBuf| folder.join(word));
    let named = words.iter().flat_map(joined).filter(|path| path.is_dir());
    let named: Vec<PathBuf> = named.take(FOLDERS_MAX).collect();
    folders.extend(named);
    let mut paths = BTreeSet::new();
    for word in &words {
        for path in folders.iter().map(|folder| folder.join(word)) {
            if let Some(folder) = path.parent().filter(|_| word.contains(['*', '?', '['])) {
                paths.extend(files_of(folder));
            }
            paths.insert(path);
        }
    }
    paths
}

fn files_of(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(FOLDER_FILES_MAX);
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// Passes the texts of a value to `take`: each as a whole, between quotes, and word by word.
fn collect(value: &Value, take: &mut dyn FnMut(&str)) {
    let is_part = |letter: char| letter.is_whitespace() || "\"'`<>|&;(){}=,:@".contains(letter);
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => {
            let quoted = text.split(['"', '\'']);
            let words = text.split(is_part);
            let all = [text.as_str()].into_iter().chain(quoted).chain(words);
            all.filter(|word| (1..PATH_MAX).contains(&word.len())).for_each(take);
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, take)),
        Value::Object(members) => members.values().for_each(|value| collect(value, take)),
    }
}
