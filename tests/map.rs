//! Keeps the map of the source and the contributor's guide true: what they name exists, and no
//! module or folder is missing.

use std::fs;
use std::path::{Path, PathBuf};

const MAP: &str = "src/README.md";
const GUIDE: &str = ".github/CONTRIBUTING.md";
const MAP_LINES_MAX: usize = 200;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("the document is in the repository")
}

/// The texts between backticks, outside of code blocks.
fn quoted(text: &str) -> Vec<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Whether a quoted text is a path: one word with a slash or the ending of a file.
fn is_path(text: &str) -> bool {
    let file = text.split("::").next().unwrap_or(text);
    let has_ending = Path::new(file)
        .extension()
        .is_some_and(|end| ["rs", "md", "txt"].iter().any(|it| end == *it));
    !text.contains(char::is_whitespace) && file != "//!" && (file.contains('/') || has_ending)
}

/// The file or folder that a quoted path means: below `src` or the root of the repository.
fn locate(file: &str) -> Option<PathBuf> {
    [root().join("src").join(file), root().join(file)].into_iter().find(|path| path.exists())
}

/// Whether a source text declares an item of this name.
fn declares(source: &str, name: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    ["fn ", "struct ", "enum ", "trait ", "const ", "type "].iter().any(|keyword| {
        source.match_indices(&format!("{keyword}{name}")).any(|(at, found)| {
            !source[at + found.len()..].starts_with(is_name) && !source[..at].ends_with(is_name)
        })
    })
}

/// The missing paths and items that a document names.
fn broken_names(text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for path in quoted(text).into_iter().filter(|text| is_path(text)) {
        let (file, item) = path.split_once("::").map_or((path, None), |(a, b)| (a, Some(b)));
        if file == "file.rs" {
            continue;
        }
        let Some(found) = locate(file) else {
            broken.push(format!("{path}: no such file"));
            continue;
        };
        if let Some(item) = item
            && !fs::read_to_string(&found).is_ok_and(|source| declares(&source, item))
        {
            broken.push(format!("{path}: no such item"));
        }
    }
    broken
}

/// Folders directly below a folder, by name.
fn folders(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("the folder can be read");
    let folders = entries.map(|entry| entry.expect("the folder can be read").path());
    let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    folders.filter(|path| path.is_dir()).filter_map(name).collect()
}

/// Modules and their folders that a map does not name.
fn missing(map: &str) -> Vec<String> {
    let mut wanted = Vec::new();
    for member in ["", "core/"] {
        let source = root().join("src").join(member);
        for module in folders(&source) {
            let within = folders(&source.join(&module));
            wanted.extend(within.iter().map(|it| format!("{member}{module}/{it}/")));
            wanted.push(format!("{member}{module}/"));
        }
        for entry in fs::read_dir(&source).expect("the source can be read") {
            let path = entry.expect("the source can be read").path();
            let name = path.file_name().expect("an entry has a name").to_string_lossy();
            if name.ends_with(".rs") {
                wanted.push(format!("{member}{name}"));
            }
        }
    }
    let named = quoted(map);
    wanted.retain(|path| !named.contains(&path.as_str()));
    wanted
}

#[test]
fn the_map_names_every_module_and_folder() {
    assert_eq!(missing(&read(MAP)), Vec::<String>::new(), "add a line to {MAP}");
}

#[test]
fn a_module_without_a_line_on_the_map_is_found() {
    let without = read(MAP).replace("`mcp/`", "").replace("`tools/web/`", "");
    assert_eq!(missing(&without).len(), 2);
}

#[test]
fn what_the_map_and_the_guide_name_exists() {
    for document in [MAP, GUIDE] {
        assert_eq!(broken_names(&read(document)), Vec::<String>::new(), "{document}");
    }
}

#[test]
fn a_wrong_path_or_item_in_a_document_is_found() {
    let text =
        "`agent/drive.rs::drive` `agent/none.rs` `agent/drive.rs::driv` `cargo test` `ci/none`";
    assert_eq!(
        broken_names(text),
        [
            "agent/none.rs: no such file",
            "agent/drive.rs::driv: no such item",
            "ci/none: no such file"
        ]
    );
}

#[test]
fn the_map_fits_on_a_few_screens() {
    assert!(read(MAP).lines().count() <= MAP_LINES_MAX, "{MAP} is too long");
}
