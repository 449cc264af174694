//! The tags around a failed tool result, by which models recognise it.

const BEGIN: &str = "<tool_use_error>";
const END: &str = "</tool_use_error>";

/// Returns an error for the model, with the tags of an error.
pub fn with_error_tags(error: &str) -> String {
    format!("{BEGIN}{error}{END}")
}

/// Returns the text of a failed result without the tags of an error.
pub fn without_error_tags(text: &str) -> &str {
    text.trim_start_matches(BEGIN).trim_end_matches(END)
}
