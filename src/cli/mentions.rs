//! Expands `@path` mentions in a prompt: adds the files as the Read tool would show them.

use std::path::PathBuf;

use crate::agent::Setup;
use crate::tools::{GrantSource, LineRange, NotAttached, prompt_image};
use crate::transcript::Block;

use super::memory::{references, unescaped};

/// Maximum number of files that are shown.
const FILES_MAX: usize = 20;

/// The maximum total size, in bytes as sent to the model. More would crowd out the task.
const BYTES_MAX: usize = 2 << 20;

/// A file that a prompt names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mention<'a> {
    written: &'a str,
    path: &'a str,
    lines: Option<LineRange>,
}

/// Adds the contents of the files that `text` mentions to the prompt, with a warning for each file
/// that cannot be read. `source` permits reading them.
pub(super) fn attach(setup: &mut Setup, text: &str, source: GrantSource) {
    if setup.prompt.content.is_empty() {
        return;
    }
    let (mut shown, mut bytes) = (0, 0);
    for mention in mentions(text) {
        let Mention { written, path, lines } = mention;
        let path = &*unescaped(path);
        if shown == FILES_MAX {
            setup.warnings.push(format!(
                "{written} in the prompt and what follows are not shown to the model: more than \
                 {FILES_MAX} files are named"
            ));
            return;
        }
        let why = match setup.toolbox.attach(path, lines, source) {
            Ok(blocks) => {
                let size = serde_json::to_string(&blocks).map_or(0, |json| json.len());
                if bytes + size <= BYTES_MAX {
                    (shown, bytes) = (shown + 1, bytes + size);
                    let text = blocks.iter().filter_map(Block::as_text).collect();
                    setup.prompt.files.push((path.to_owned(), text));
                    setup.prompt.attached.extend(presented(written, blocks));
                    continue;
                }
                format!("the files together are longer than {} MB", BYTES_MAX >> 20)
            }
            // `@word` without a file of this name, a dot or a slash is ordinary text.
            Err(NotAttached::Missing) if !path.contains(['/', '.']) => continue,
            Err(NotAttached::Missing) => "there is no such file".to_owned(),
            Err(NotAttached::Refused(why)) => why,
        };
        let warning = format!("{written} in the prompt is not shown to the model: {why}");
        setup.warnings.push(warning);
    }
}

/// Adds images to the prompt, with a warning for each image that cannot be read. The user named
/// each image in a flag, so no rule has to allow it.
pub(super) fn attach_images(setup: &mut Setup, images: &[PathBuf]) {
    for image in images {
        let path = image.display().to_string();
        match setup.toolbox.attach(&path, None, GrantSource::Prompt) {
            Ok(blocks) if blocks.iter().any(|block| matches!(block, Block::Image { .. })) => {
                setup.prompt.attached.extend(presented(&path, blocks));
            }
            Ok(_) => {
                setup.warnings.push(format!("--image {path}: it is not an image; use @{path}"));
            }
            Err(NotAttached::Missing) => {
                setup.warnings.push(format!("--image {path}: there is no such file"));
            }
            Err(NotAttached::Refused(why)) => {
                setup.warnings.push(format!("--image {path} is not shown to the model: {why}"));
            }
        }
    }
}

/// Prepares the images of a host's prompt like those of files: their format is determined by their
/// bytes, and images that are too large for the service are scaled down. An image that cannot be
/// prepared is sent unchanged, with a warning.
pub(super) fn prepare_images(setup: &mut Setup) {
    for block in &mut setup.prompt.content {
        let Block::Image { source } = block else { continue };
        match prompt_image(source) {
            Some(Ok(prepared)) => *block = prepared,
            Some(Err(why)) => {
                setup.warnings.push(format!("an image in the prompt may not be shown: {why}"));
            }
            None => {}
        }
    }
}

/// Returns a file's content, preceded by its name.
fn presented(written: &str, mut blocks: Vec<Block>) -> Vec<Block> {
    let head = format!("{written}, which the prompt names, reads:\n\n");
    match blocks.first_mut() {
        Some(Block::Text { text }) => text.insert_str(0, &head),
        Some(_) | None => blocks.insert(0, Block::text(head.trim_end())),
    }
    blocks
}

/// Returns each file that a text names, once.
fn mentions(text: &str) -> Vec<Mention<'_>> {
    let mut mentions: Vec<Mention<'_>> = Vec::new();
    for written in references(text) {
        let (path, lines) = split(&written[1..]);
        if !mentions.iter().any(|known| known.written == written) {
            mentions.push(Mention { written, path, lines });
        }
    }
    mentions
}

/// Splits a mention into a path and the line range of a suffix such as `#L10-20`.
fn split(path: &str) -> (&str, Option<LineRange>) {
    let lines = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.trim_start_matches('L').parse().ok()?);
        (first > 0 && first <= last).then_some(LineRange { first, last })
    };
    match path.rsplit_once("#L") {
        Some((bare, range)) => lines(range).map_or((path, None), |lines| (bare, Some(lines))),
        None => (path, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mentions_are_at_words_outside_of_code() {
        let rows: [(&str, &[&str]); 8] = [
            ("Fix @src/a.rs, and (see) @Makefile.", &["src/a.rs", "Makefile"]),
            ("mail me@example.org or a@b, @ alone", &[]),
            ("`@not/this.md` but @this.md", &["this.md"]),
            ("```\n@not/this.md\n```\n@this.md", &["this.md"]),
            ("@a.rs and @a.rs again", &["a.rs"]),
            ("the folder @src/ here", &["src/"]),
            ("@scope/package@1.0", &[]),
            ("", &[]),
        ];
        for (text, expected) in rows {
            let found: Vec<&str> = mentions(text).iter().map(|mention| mention.path).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn mentions_may_have_line_ranges() {
        let range = |first, last| Some(LineRange { first, last });
        for (path, expected) in [
            ("a.rs#L3", ("a.rs", range(3, 3))),
            ("a.rs#L3-9", ("a.rs", range(3, 9))),
            ("a.rs#L3-L9", ("a.rs", range(3, 9))),
            ("a.rs#L9-3", ("a.rs#L9-3", None)),
            ("a.rs#L0", ("a.rs#L0", None)),
            ("a.md#License", ("a.md#License", None)),
            ("a.rs", ("a.rs", None)),
        ] {
            assert_eq!(split(path), expected, "{path}");
        }
    }
}
