//! The prompts that a server lists.

use serde_json::{Map, Value};

use super::remote_tool::{call_prefixes, sanitize_name, tool_name_prefix};

/// The most prompts of a server that are listed.
const MOST_PROMPTS: usize = 500;

/// A prompt of a server, as its listing describes it.
#[derive(Debug, PartialEq)]
pub(super) struct RemotePrompt {
    /// The server's own name for it.
    pub(super) name: String,
    /// The name of its command.
    pub(super) command: String,
    /// The names of its arguments, in order.
    arguments: Vec<String>,
}

/// Converts a listing. Entries without a name are left out.
pub(super) fn convert_prompts(server: &str, listed: &[Value]) -> Vec<RemotePrompt> {
    let prefix = tool_name_prefix(server);
    let prompt = |prompt: &Value| {
        let name = prompt["name"].as_str().filter(|name| !name.is_empty())?;
        let arguments = prompt["arguments"].as_array().into_iter().flatten();
        let arguments = arguments.filter_map(|argument| argument["name"].as_str());
        Some(RemotePrompt {
            name: name.to_owned(),
            command: format!("{prefix}{}", sanitize_name(name)),
            arguments: arguments.map(ToOwned::to_owned).collect(),
        })
    };
    listed.iter().take(MOST_PROMPTS).filter_map(prompt).collect()
}

impl RemotePrompt {
    /// Returns true if a call names the prompt by the server's own name for it, with its special
    /// characters.
    pub(super) fn has_own_command(&self, server: &str, is_called: impl Fn(&str) -> bool) -> bool {
        call_prefixes(server).iter().any(|prefix| is_called(&format!("{prefix}{}", self.name)))
    }

    /// Assigns the words of a call to the named arguments. Surplus words belong to the last
    /// argument, if there is one.
    pub(super) fn assign(&self, words: &[String]) -> Value {
        let mut assigned = Map::new();
        for (index, name) in self.arguments.iter().enumerate().take(words.len()) {
            let is_last = index + 1 == self.arguments.len();
            let value = if is_last { words[index..].join(" ") } else { words[index].clone() };
            assigned.insert(name.clone(), value.into());
        }
        assigned.into()
    }

    /// Appends the words of a call to the text of a prompt that takes no arguments.
    pub(super) fn with_surplus(&self, text: String, words: &[String]) -> String {
        if self.arguments.is_empty() && !words.is_empty() {
            format!("{text}\n\n{}", words.join(" "))
        } else {
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_words_of_a_call_are_the_arguments_in_order() {
        let listed = [
            json!({ "name": "re view", "arguments": [{ "name": "file" }, { "name": "focus" }] }),
            json!({ "description": "no name" }),
            json!({ "name": "plain" }),
        ];
        let prompts = convert_prompts("my server", &listed);
        let names: Vec<&str> = prompts.iter().map(|prompt| prompt.command.as_str()).collect();
        assert_eq!(names, ["mcp__my_server__re_view", "mcp__my_server__plain"]);
        for (words, wanted) in [
            (&[][..], json!({})),
            (&["a"], json!({ "file": "a" })),
            (&["a", "b", "c d"], json!({ "file": "a", "focus": "b c d" })),
        ] {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert_eq!(prompts[0].assign(&words), wanted);
            assert_eq!(prompts[1].assign(&words), json!({}));
            let text = |prompt: &RemotePrompt| prompt.with_surplus("Look.".to_owned(), &words);
            assert_eq!(text(&prompts[0]), "Look.");
            let rest =
                if words.is_empty() { String::new() } else { format!("\n\n{}", words.join(" ")) };
            assert_eq!(text(&prompts[1]), format!("Look.{rest}"));
        }
    }
}
