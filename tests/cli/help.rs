//! `outlast help`: the pages of the manual that the binary contains.

use std::fs;
use std::path::{Path, PathBuf};

use outlast::cli::args::{self, CliRequest};

fn help(topic: &[&str]) -> Result<String, String> {
    let words: Vec<String> = ["help"].iter().chain(topic).map(|&word| word.to_owned()).collect();
    match args::parse_process(&words) {
        Ok(CliRequest::Print(text)) => Ok(text),
        Ok(other) => panic!("help prints, and does not {other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            files_below(&path, ending, found);
        } else if path.extension().is_some_and(|end| end == ending) {
            found.push(path);
        }
    }
}

#[test]
fn every_page_of_the_manual_is_listed_and_printed_without_targets_of_links() {
    let mut pages = Vec::new();
    files_below(&root().join("man"), "md", &mut pages);
    assert!(pages.len() > 10, "{pages:?}");
    let list = help(&[]).expect("a list");
    for page in pages {
        let source = fs::read_to_string(&page).expect("it can be read");
        let title = source.lines().next().expect("it has a title");
        let (name, about) = title[2..].split_once(": ").expect("the title says what it is about");
        assert!(list.contains(about), "{about} is not in {list}");
        let bare = name.split('(').next().expect("a name");
        for topic in [name, bare, bare.trim_start_matches("outlast-")] {
            let text = help(&[topic]).expect("a page");
            assert!(text.starts_with(title), "{topic}: {text}");
            assert!(!text.contains("](outlast"), "{topic} has targets of links");
        }
        let sample = source.lines().rev().find(|line| line.len() > 40 && !line.contains("]("));
        let text = help(&[name]).expect("a page");
        assert!(text.contains(sample.expect("a line of text")), "{name} is not whole");
    }
}

#[test]
fn every_page_that_a_message_names_can_be_printed() {
    let mut files = Vec::new();
    files_below(&root().join("src"), "rs", &mut files);
    let mut named = 0;
    for file in files {
        let source = fs::read_to_string(&file).expect("it can be read");
        let ends = source.match_indices('(').filter(|(at, _)| {
            let section = &source.as_bytes()[at + 1..];
            matches!(section, [b'1'..=b'8', b')', ..])
        });
        for (at, _) in ends {
            let letters = |one: char| one.is_ascii_lowercase() || one == '-';
            let start = source[..at].trim_end_matches(letters).len();
            let page = &source[start..at];
            if page == "outlast" || page.starts_with("outlast-") {
                named += 1;
                assert!(help(&[page]).is_ok(), "{}: there is no page {page}", file.display());
            }
        }
    }
    assert!(named > 10, "{named} pages are named");
}

#[test]
fn help_knows_commands_too_and_lists_the_topics_for_others() {
    assert!(help(&["doctor"]).expect("its flags").contains("--offline"));
    let error = help(&["hook"]).expect_err("no such page");
    assert!(error.contains("\"hook\"") && error.contains("hooks, host, mcp"), "{error}");
    assert!(help(&["hooks", "mcp"]).is_err(), "one topic");
}
