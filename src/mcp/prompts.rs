//! Prompts of servers. The user calls them like commands: `/mcp__SERVER__PROMPT` and arguments.

use std::slice;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::calls::ServerRequest;
use super::content::{ContentPart, convert_item};
use super::remote_prompt::RemotePrompt;
use super::server_task::ServerTask;
use super::servers::Servers;
use crate::transcript::Block;

/// The reason that a prompt cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    #[error("no MCP server has a prompt {command}; there are: {}", known.join(", "))]
    Unknown { command: String, known: Vec<String> },
    #[error("the MCP server {server:?} does not give the prompt: {why}")]
    Refused { server: String, why: String },
}

impl Servers {
    /// The names of the commands for the prompts of all servers.
    pub fn prompt_commands(&self) -> Vec<String> {
        let prompts = self.members().into_iter().map(|member| member.prompts());
        let commands = |prompts: Arc<Vec<RemotePrompt>>| {
            prompts.iter().map(|prompt| prompt.command.clone()).collect::<Vec<_>>()
        };
        prompts.flat_map(commands).collect()
    }

    /// Returns the text of a prompt, by the name of its command and the words of the call.
    ///
    /// # Errors
    /// No connected server has the prompt, or its server refuses.
    pub async fn prompt(
        &self,
        command: &str,
        words: &[String],
        cancel: &CancellationToken,
    ) -> Result<String, PromptError> {
        let members = self.members();
        let find = |fits: &dyn Fn(&str, &RemotePrompt) -> bool| {
            members.iter().find_map(|member| {
                let (server, prompts) = (&member.config.name, member.prompts());
                let index = prompts.iter().position(|prompt| fits(server, prompt))?;
                Some((Arc::clone(member), prompts, index))
            })
        };
        let is_same = |name: &str| name == command;
        let is_alike = |name: &str| name.eq_ignore_ascii_case(command);
        let found = find(&|server, prompt| prompt.has_own_command(server, is_same))
            .or_else(|| find(&|_, prompt| is_same(&prompt.command)))
            .or_else(|| {
                find(&|server, prompt| {
                    is_alike(&prompt.command) || prompt.has_own_command(server, is_alike)
                })
            });
        let Some((member, prompts, index)) = found else {
            let known = self.prompt_commands();
            return Err(PromptError::Unknown { command: command.to_owned(), known });
        };
        self.get_prompt(&member, &prompts[index], words, cancel).await
    }

    async fn get_prompt(
        &self,
        member: &ServerTask,
        prompt: &RemotePrompt,
        words: &[String],
        cancel: &CancellationToken,
    ) -> Result<String, PromptError> {
        let server = member.config.name.clone();
        let params = json!({ "name": prompt.name, "arguments": prompt.assign(words) });
        let request = ServerRequest { method: "prompts/get", params };
        let text = match member.request(&prompt.name, &request, self.timers, cancel).await {
            Ok(result) => text_of(&result),
            Err(why) => return Err(PromptError::Refused { server, why: why.to_string() }),
        };
        if text.trim().is_empty() {
            return Err(PromptError::Refused { server, why: "it holds no text".to_owned() });
        }
        Ok(prompt.with_surplus(text, words))
    }
}

/// The text of the messages of a prompt. Other content is replaced by a note.
fn text_of(result: &Value) -> String {
    let mut texts = Vec::new();
    for message in result["messages"].as_array().into_iter().flatten() {
        let content = &message["content"];
        for item in content.as_array().map_or(slice::from_ref(content), Vec::as_slice) {
            let text = match convert_item(item) {
                ContentPart::Block(Block::Text { text }) => text,
                ContentPart::Block(_) => "[an image is left out]".to_owned(),
                ContentPart::Data { what, .. } => format!("[{what} is left out]"),
            };
            let is_reply = message["role"] == "assistant";
            texts.push(if is_reply { format!("Assistant: {text}") } else { text });
        }
    }
    texts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_prompt_become_one_text() {
        let message = |role: &str, content: Value| json!({ "role": role, "content": content });
        let result = json!({ "messages": [
            message("user", json!({ "type": "text", "text": "Look." })),
            message("assistant", json!({ "type": "text", "text": "I do." })),
            message("user", json!([{ "type": "image", "mimeType": "image/png", "data": "aGk=" }])),
        ] });
        assert_eq!(text_of(&result), "Look.\n\nAssistant: I do.\n\n[an image is left out]");
        assert_eq!(text_of(&json!({})), "");
    }
}
