//! Recognizes the comments that people write as members and as texts, since JSON has none.

/// What such comments begin with.
const MARKS: [&str; 4] = ["//", "/*", "#", "<!--"];

/// Names of members that describe what is beside them.
const DESCRIPTIONS: [&str; 8] =
    ["$comment", "$schema", "comment", "comments", "description", "note", "notes", "title"];

/// True if a text is a comment, or nothing.
pub fn is_comment(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || MARKS.iter().any(|mark| text.starts_with(mark))
}

/// True if a member of this name is a comment, or was taken out by a change of its name: `_comment`,
/// `// hooks`.
pub fn is_comment_name(name: &str) -> bool {
    let is_description =
        DESCRIPTIONS.iter().any(|description| description.eq_ignore_ascii_case(name.trim()));
    is_comment(name) || name.trim().starts_with('_') || is_description
}

/// The name without what makes it that of a comment: the one of the member that was taken out.
pub fn uncommented_name(name: &str) -> &str {
    name.trim_matches(|letter: char| !letter.is_alphanumeric())
}
