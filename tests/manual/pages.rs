//! The pages of the manual, and what is common to all of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{roff, tables};
use crate::cli::golden;

/// Name and section of each page. `man/NAME.SECTION.md` is the source of `man/NAME.SECTION`.
pub(super) const PAGES: [(&str, u8); 19] = [
    ("outlast", 1),
    ("outlast-scenario", 5),
    ("outlast-settings", 5),
    ("outlast-agents", 7),
    ("outlast-ci", 7),
    ("outlast-batch", 7),
    ("outlast-clouds", 7),
    ("outlast-compatibility", 7),
    ("outlast-hooks", 7),
    ("outlast-mcp", 7),
    ("outlast-recovery", 7),
    ("outlast-host", 7),
    ("outlast-network", 7),
    ("outlast-recipes", 7),
    ("outlast-rehearse", 7),
    ("outlast-report", 7),
    ("outlast-result", 7),
    ("outlast-security", 7),
    ("outlast-sessions", 7),
];

/// A page may have this many lines that are not generated: a few screens.
const LINES_MAX: usize = 250;

/// The README introduces the program. The reference is in the pages.
const README_LINES_MAX: usize = 150;

pub(super) fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The paths of the Markdown sources.
pub(super) fn sources() -> impl Iterator<Item = String> {
    PAGES.iter().map(|(name, section)| format!("man/{name}.{section}.md"))
}

/// The pages and the README, each with its path.
pub(super) fn documents() -> Vec<(String, String)> {
    let paths = std::iter::once("README.md".to_owned()).chain(sources());
    paths.map(|path| (path.clone(), read(&path))).collect()
}

#[test]
fn each_page_holds_the_tables_of_the_program_and_has_its_roff_form() {
    for (name, section) in PAGES {
        let path = format!("man/{name}.{section}.md");
        golden::compare(&path, &tables::fill(&read(&path)));
        golden::compare(&format!("man/{name}.{section}"), &roff::page(&read(&path)));
    }
}

#[test]
fn the_folder_holds_these_pages_and_no_others() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    let entries = fs::read_dir(folder).expect("the folder of the manual");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut found: Vec<_> =
        entries.map(|entry| name(entry).into_string().expect("UTF-8")).collect();
    let sources = PAGES.iter().map(|(name, section)| format!("{name}.{section}"));
    let mut wanted: Vec<_> = sources.flat_map(|page| [format!("{page}.md"), page]).collect();
    wanted.push("images".to_owned());
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
}

#[test]
fn no_page_is_longer_than_a_few_screens() {
    for path in sources() {
        let lines = tables::without_tables(&read(&path)).lines().count();
        assert!(lines <= LINES_MAX, "{path} has {lines} lines; at most {LINES_MAX}");
    }
    let lines = read("README.md").lines().count();
    assert!(lines <= README_LINES_MAX, "the README has {lines} lines");
}

#[test]
fn the_first_screen_of_the_readme_has_both_commands() {
    let readme = read("README.md");
    let screen: Vec<&str> = readme.lines().take(30).collect();
    for command in ["cargo run -- rehearse outage", "cargo test"] {
        assert!(screen.contains(&command), "{command} is not on the first screen");
    }
}

/// Checked only if `groff` is installed.
#[test]
fn the_formatter_of_man_pages_warns_of_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    for (name, section) in PAGES {
        let page = folder.join(format!("{name}.{section}"));
        let formatted =
            Command::new("groff").args(["-man", "-ww", "-Kutf8", "-Tutf8"]).arg(page).output();
        let Ok(formatted) = formatted else { return };
        let warnings = String::from_utf8_lossy(&formatted.stderr);
        assert!(formatted.status.success() && warnings.is_empty(), "{name}: {warnings}");
    }
}
