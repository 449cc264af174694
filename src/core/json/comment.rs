//! Recognizes the comments that people write as members and as texts, since JSON has none.

/// The beginnings of comments.
const MARKERS: [&str; 4] = ["//", "/*", "#", "<!--"];

/// Names of members that describe the members beside them.
const DESCRIPTIONS: [&str; 8] =
    ["$comment", "$schema", "comment", "comments", "description", "note", "notes", "title"];

/// True if a text is blank or a comment.
pub fn is_comment(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || MARKERS.iter().any(|marker| text.starts_with(marker))
}

/// True if a member of this name is a comment, or was disabled by renaming it: `_comment`,
/// `// hooks`.
pub fn is_comment_name(name: &str) -> bool {
    let is_description =
        DESCRIPTIONS.iter().any(|description| description.eq_ignore_ascii_case(name.trim()));
    is_comment(name) || name.trim().starts_with('_') || is_description
}

/// The original name of a member that was disabled by renaming it: `hooks` for `// hooks`.
pub fn uncommented_name(name: &str) -> &str {
    name.trim_matches(|letter: char| !letter.is_alphanumeric())
}
