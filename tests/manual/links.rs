//! Links of the manual: to files that exist, and to headings in them.

use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::pages::{PAGES, documents, read};

fn links(markdown: &str) -> Vec<String> {
    let mut links = Vec::new();
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        if let Event::Start(Tag::Link { dest_url, .. }) = event {
            links.push(dest_url.into_string());
        }
    }
    links
}

/// The anchors of the headings, as web sites form them.
fn anchors(markdown: &str) -> Vec<String> {
    let (mut anchors, mut heading) = (Vec::new(), None);
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        if let Event::Start(Tag::Heading { .. }) = event {
            heading = Some(String::new());
        } else if let Event::End(TagEnd::Heading(_)) = event {
            anchors.extend(heading.take().map(|text| slug(&text)));
        } else if let (Event::Text(text) | Event::Code(text), Some(heading)) = (event, &mut heading)
        {
            heading.push_str(&text);
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = |one: &char| one.is_alphanumeric() || matches!(one, ' ' | '-' | '_');
    heading
        .to_lowercase()
        .chars()
        .filter(kept)
        .map(|one| if one == ' ' { '-' } else { one })
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut count = 0;
    for (path, text) in documents() {
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let folder = Path::new(&path).parent().unwrap_or(Path::new(""));
            let target = if file.is_empty() { PathBuf::from(&path) } else { folder.join(file) };
            let found = Path::new(env!("CARGO_MANIFEST_DIR")).join(&target);
            assert!(found.exists(), "{path}: {link}");
            if !anchor.is_empty() {
                let anchors = anchors(&read(&target.display().to_string()));
                assert!(anchors.iter().any(|known| known == anchor), "{path}: {link}: {anchors:?}");
            }
            count += 1;
        }
    }
    assert!(count > 40, "only {count} links");
}

/// The pages that a text names and that do not exist.
fn unknown_pages(text: &str) -> Vec<&str> {
    let letters = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '(' | ')');
    let words = text.split(|one| !letters(one)).filter(|word| word.starts_with("outlast"));
    words
        .filter(|word| {
            let name = word.split_once('(').and_then(|(name, rest)| {
                let (section, _) = rest.split_once(')')?;
                Some((name, section.parse().ok()?))
            });
            name.is_some_and(|name: (&str, u8)| !PAGES.contains(&name))
        })
        .collect()
}

fn texts_below(folder: &Path, texts: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("the source is readable") {
        let path = entry.expect("the source is readable").path();
        if path.is_dir() {
            texts_below(&path, texts);
        } else {
            let text = fs::read_to_string(&path).expect("the source is text");
            texts.push((path.display().to_string(), text));
        }
    }
}

#[test]
fn every_page_that_the_manual_or_a_message_names_exists() {
    let mut texts = documents();
    texts_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut texts);
    for (path, text) in texts {
        let unknown = unknown_pages(&text);
        assert!(unknown.is_empty(), "{path}: {unknown:?}");
    }
    assert_eq!(unknown_pages("see outlast-x(7), outlast(1)"), ["outlast-x(7)"]);
}

#[test]
fn the_readme_leads_to_every_page() {
    let links = links(&read("README.md"));
    for (name, section) in PAGES {
        let page = format!("man/{name}.{section}.md");
        assert!(links.iter().any(|link| link.starts_with(&page)), "{page}");
    }
}
