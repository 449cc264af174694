//! Tools that somebody else performs, and how they join those that are built in.

use std::ffi::OsString;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::transcript::{Block, ToolCall, ToolDefinition};

use super::capture::{Capture, Scratch, Stream};
use super::catalog::Tool;
use super::contain::contain;
use super::outcome::{Outcome, Refusal};
use super::toolbox::Toolbox;

/// Tools that are not built in. Whoever performs them answers every call.
pub trait ForeignTools: Send + Sync {
    /// What the model is told of them just now, in a fixed order.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Whether a tool of this name is theirs.
    fn knows(&self, name: &str) -> bool;

    /// Performs a call. Ends soon once it is cancelled.
    fn perform<'a>(
        &'a self,
        call: &'a ToolCall,
        cancel: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = Brought> + Send + 'a>>;
}

/// What came of a foreign call, before it is made fit to be read.
#[derive(Clone, Debug, Default)]
pub struct Brought {
    pub blocks: Vec<Block>,
    /// What cannot be shown: what it is, and its bytes.
    pub files: Vec<(String, Vec<u8>)>,
    pub is_error: bool,
}

impl Toolbox {
    /// Adds tools that somebody else performs.
    pub fn joined_by(mut self, foreign: Arc<dyn ForeignTools>) -> Self {
        self.foreign = Some(foreign);
        self
    }

    /// What the model is told, in a fixed order: the built-in tools, and then those of others as
    /// they are just now.
    pub fn all_definitions(&self) -> Vec<ToolDefinition> {
        let foreign = self.foreign.iter().flat_map(|foreign| foreign.definitions());
        let allowed = |tool: &ToolDefinition| !self.kit.permissions.removes_foreign(&tool.name);
        self.definitions().iter().cloned().chain(foreign.filter(allowed)).collect()
    }

    /// The environment that commands see.
    pub fn environment(&self) -> &[(OsString, OsString)] {
        self.kit.shell.environment()
    }

    /// Who performs a tool that is not built in.
    pub(super) fn owner(&self, name: &str) -> Option<&Arc<dyn ForeignTools>> {
        self.foreign.as_ref().filter(|foreign| Tool::named(name).is_none() && foreign.knows(name))
    }

    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    pub(super) fn admit_foreign(&self, name: &str) -> Result<(), Refusal> {
        self.kit.permissions.judge_foreign(name).map_err(Refusal::denied)
    }

    /// Runs an admitted call of somebody else's tool, by the rules as they are.
    pub(super) async fn run_foreign(
        &self,
        foreign: Arc<dyn ForeignTools>,
        call: &ToolCall,
        cancel: CancellationToken,
    ) -> Outcome {
        let (kit, name, call) = (Arc::clone(&self.kit), call.name.clone(), call.clone());
        let performed = async move {
            let brought = foreign.perform(&call, cancel).await;
            fit(brought, kit.foreign_output_limit, kit.shell.scratch()).await
        };
        contain(&name, performed).await
    }
}

/// Makes an outcome of what came: long text is cut in the middle and saved whole, and so is what
/// cannot be shown.
async fn fit(brought: Brought, limit: usize, scratch: &Arc<Scratch>) -> Outcome {
    let Brought { blocks, files, is_error } = brought;
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for block in blocks {
        match block {
            Block::Text { text } => texts.push(text),
            other => others.push(other),
        }
    }
    for (what, bytes) in files {
        texts.push(match scratch.keep("file", &bytes).await {
            Ok(path) => format!("[{what}, {} bytes, is in {}]", bytes.len(), path.display()),
            Err(error) => format!("[{what} could not be saved: {error}]"),
        });
    }
    if texts.iter().map(|text| text.chars().count()).sum::<usize>() > limit {
        let mut capture = Capture::new(limit, Arc::clone(scratch));
        capture.push(Stream::Out, texts.join("\n").as_bytes()).await;
        texts = vec![capture.finish().await.out];
    }
    let words = texts.join("\n");
    let mut content: Vec<Block> = texts.into_iter().map(Block::text).collect();
    content.extend(others);
    let detail = if is_error {
        Value::String(format!("Error: {words}"))
    } else {
        serde_json::to_value(&content).unwrap_or_default()
    };
    Outcome { content, is_error, detail }
}
