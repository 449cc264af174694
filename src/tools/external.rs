//! External tools, such as those of MCP servers, and the conversion of their results.

use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::transcript::{Block, ToolCall, ToolDefinition};
use crate::types::{CallPermission, ToolPolicy};

use super::capture::{OutputCapture, OutputFolder};
use super::media;
use super::outcome::ToolOutcome;

/// Tools that are not built in. The implementation answers every call.
pub trait ExternalTools: Send + Sync {
    /// The current tool definitions, in a fixed order.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// True if this source has a tool of this name.
    fn has_tool(&self, name: &str) -> bool;

    /// The name by which its source calls a tool, for rules.
    fn own_name(&self, _name: &str) -> Option<String> {
        None
    }

    /// The name of the tool that its source calls so.
    fn full_name(&self, _own: &str) -> Option<String> {
        None
    }

    /// The schema of a tool's input, by which the input is repaired but not validated: the
    /// implementation may accept more than its schema says.
    fn input_schema(&self, name: &str) -> Option<Value>;

    /// The reason that a tool that seems to belong to this source is unavailable, in a text for the
    /// model.
    fn unavailable_reason(&self, name: &str) -> Option<String>;

    /// The restriction of a tool by the configuration of its source.
    fn policy(&self, _name: &str) -> Option<ToolPolicy> {
        None
    }

    /// The permission that a call needs.
    fn permission_for(&self, call: &ToolCall) -> CallPermission;

    /// Executes a call. Ends soon after it is cancelled. `may_use` is false for the beginnings of
    /// names of tools that a rule denies.
    fn perform<'a>(
        &'a self,
        call: &'a ToolCall,
        may_use: &'a (dyn Fn(&str) -> bool + Sync),
        cancel: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ExternalResult> + Send + 'a>>;
}

/// The raw result of an external call, before it is prepared for the model.
#[derive(Clone, Debug, Default)]
pub struct ExternalResult {
    pub blocks: Vec<Block>,
    /// Content that cannot be shown: a description, and its bytes.
    pub files: Vec<(String, Vec<u8>)>,
    pub is_error: bool,
}

/// Converts an external result to an outcome: long text is truncated in the middle, and it and
/// content that cannot be shown are saved to files.
pub(super) async fn into_outcome_within(
    brought: ExternalResult,
    limit: usize,
    scratch: &Arc<OutputFolder>,
) -> ToolOutcome {
    let ExternalResult { blocks, files, is_error } = brought;
    let (mut content, mut images) = (Vec::new(), 0);
    for block in blocks {
        images += usize::from(matches!(block, Block::Image { .. }));
        content.push(match prepare_image(block).await {
            Ok(block) => block,
            Err((why, bytes)) => {
                save_to_file(&format!("image {images} ({why})"), &bytes, scratch).await
            }
        });
    }
    for (what, bytes) in files {
        content.push(save_to_file(&what, &bytes, scratch).await);
    }
    let mut words = content.iter().filter_map(Block::as_text).collect::<Vec<_>>().join("\n");
    if words.chars().count() > limit {
        words = truncated(&words, limit, scratch).await;
        content.retain(|block| block.as_text().is_none());
        content.insert(0, Block::text(words.clone()));
    }
    let detail = if is_error {
        Value::String(format!("Error: {words}"))
    } else {
        serde_json::to_value(&content).unwrap_or_default()
    };
    ToolOutcome { content, is_error, detail, denied: None }
}

/// Cuts a text in the middle if it is longer than `limit`, in characters, and saves it whole to a
/// file.
pub(super) async fn truncated(text: &str, limit: usize, scratch: &Arc<OutputFolder>) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut capture = OutputCapture::new(limit, Arc::clone(scratch));
    capture.push(text.as_bytes()).await;
    capture.finish().await.text
}

/// Saves content that cannot be shown to a file, and returns a text with its path.
async fn save_to_file(what: &str, bytes: &[u8], scratch: &Arc<OutputFolder>) -> Block {
    Block::text(match scratch.keep("file", bytes).await {
        Ok(path) => format!("[{what}, {} bytes, is in {}]", bytes.len(), path.display()),
        Err(error) => format!("[{what} could not be saved: {error}]"),
    })
}

/// Converts an image to one that the model API accepts: one that it rejects would fail every later
/// request too. An image that cannot be shown is returned as bytes, with the reason.
async fn prepare_image(block: Block) -> Result<Block, (String, Vec<u8>)> {
    let Block::Image { source } = &block else { return Ok(block) };
    let data = source["data"].as_str().unwrap_or_default();
    let bytes = media::decode_base64(data);
    let looked = tokio::task::spawn_blocking(move || {
        media::image_block(&bytes).map_err(|flaw| (flaw.to_string(), bytes))
    });
    looked.await.unwrap_or_else(|_| Err(("it cannot be read".to_owned(), Vec::new())))
}
