//! The content that all requests of an agent have in common.

use serde_json::value::{RawValue, to_raw_value};

use crate::model::{Reasoning, RequestContent, SerializedParts, WebSearch};
use crate::transcript::{Message, ToolDefinition};

#[derive(Clone)]
pub(in super::super) struct FixedContent {
    pub(in super::super) system: String,
    tools: Vec<ToolDefinition>,
    /// The JSON of the tools, which requests share.
    serialized_tools: Vec<Box<RawValue>>,
    /// The search tool of the service, for an agent that searches the web.
    pub(in super::super) search: Option<WebSearch>,
}

impl FixedContent {
    /// Content without tools.
    pub(super) fn new(system: String) -> Self {
        Self { system, tools: Vec::new(), serialized_tools: Vec::new(), search: None }
    }

    pub(in super::super) fn tools(&self) -> &[ToolDefinition] {
        &self.tools
    }

    pub(super) fn set_tools(&mut self, tools: Vec<ToolDefinition>) {
        // A tool that cannot be serialized fails the request, which serializes it again.
        self.serialized_tools = tools.iter().map_while(|tool| to_raw_value(tool).ok()).collect();
        self.tools = tools;
    }

    /// Returns the content of a request for a reply, without options that only some requests have.
    pub(in super::super) fn content<'a>(
        &'a self,
        model: &'a str,
        messages: &'a [Message],
        reasoning: Reasoning,
    ) -> RequestContent<'a> {
        RequestContent {
            model,
            system: &self.system,
            tools: &self.tools,
            messages,
            reasoning,
            serialized: SerializedParts { tools: &self.serialized_tools, messages: &[] },
            ..RequestContent::default()
        }
    }
}
