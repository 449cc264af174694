//! Work that a reply leaves open.

use crate::text::words_joined;

/// The maximum number of open to-dos that are named, and the maximum length of each text, in bytes.
const NAMED: usize = 5;
const TEXT_MAX: usize = 120;

/// Work that the last reply left open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOpen {
    pub(super) todos: Vec<String>,
    /// The end of a text that announces more.
    pub(super) announcement: Option<String>,
}

impl LeftOpen {
    pub(super) fn is_nothing(&self) -> bool {
        self.todos.is_empty() && self.announcement.is_none()
    }

    /// Returns a description of the open work, for the model and for the user.
    pub(super) fn describe(&self) -> String {
        let todos = (!self.todos.is_empty()).then(|| {
            let named = self.todos.iter().take(NAMED).map(|todo| quoted(todo));
            let more = self.todos.len().saturating_sub(NAMED);
            let more = (more > 0).then(|| format!("{more} more"));
            let list = named.chain(more).collect::<Vec<_>>().join(", ");
            format!("to-dos are open: {list}")
        });
        let announced = self.announcement.as_deref();
        let announced = announced.map(|text| format!("its text announces more: {}", quoted(text)));
        todos.into_iter().chain(announced).collect::<Vec<_>>().join("; ")
    }
}

fn quoted(text: &str) -> String {
    let text = words_joined(text);
    let end = text.floor_char_boundary(TEXT_MAX);
    if end < text.len() { format!("\"{} ...\"", &text[..end]) } else { format!("\"{text}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_named_and_cut_to_a_length() {
        let mut open = LeftOpen {
            todos: vec!["Run the tests".to_owned()],
            announcement: Some("Now let me see:".to_owned()),
        };
        let all =
            "to-dos are open: \"Run the tests\"; its text announces more: \"Now let me see:\"";
        assert_eq!(open.describe(), all);
        open.todos = (0..8).map(|nth| format!("step {nth}\n{}", "x".repeat(200))).collect();
        open.announcement = None;
        let text = open.describe();
        assert!(text.contains("\"step 4 xx") && text.ends_with(", 3 more"), "{text}");
        assert!(text.len() < 800, "{text}");
    }
}
