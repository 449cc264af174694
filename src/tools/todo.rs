//! The `TodoWrite` tool: the model's own list of steps.

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::input::TodoInput;
use super::outcome::ToolOutcome;

#[derive(Debug, Default)]
pub(super) struct TodoList {
    list: Mutex<Value>,
}

impl TodoList {
    /// The steps that are not completed.
    pub(super) fn open(&self) -> Vec<String> {
        let list = self.list.lock();
        let items = list.as_array().map_or(&[][..], Vec::as_slice);
        let open = items.iter().filter(|item| item["status"] != "completed");
        open.filter_map(|item| Some(item["content"].as_str()?.to_owned())).collect()
    }

    pub(super) fn replace(&self, input: &TodoInput) -> ToolOutcome {
        let count = |status: &str| {
            let items = input.todos.as_array().map_or(&[][..], Vec::as_slice);
            items.iter().filter(|item| item["status"] == status).count()
        };
        let text = format!(
            "List kept: {} completed, {} in progress, {} pending.",
            count("completed"),
            count("in_progress"),
            count("pending"),
        );
        let mut list = self.list.lock();
        let old = std::mem::replace(&mut *list, input.todos.clone());
        let old = if old.is_null() { json!([]) } else { old };
        ToolOutcome::text(text, json!({ "oldTodos": old, "newTodos": *list }))
    }
}
