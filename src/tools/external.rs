//! External tools, such as those of MCP servers, and how they join the built-in ones.

use std::ffi::OsString;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonschema::Validator;
use jsonschema::error::ValidationError;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::secrets::KnownSecrets;
use crate::transcript::{Block, ToolCall, ToolDefinition};

use super::capture::{OutputCapture, OutputFolder, OutputStream};
use super::catalog::BuiltinTool;
use super::input::invalid_input;
use super::media;
use super::outcome::{GrantSource, ToolError, ToolOutcome, ToolRefusal};
use super::panic_guard::run_guarded;
use super::text::truncated;
use super::toolbox::Toolbox;

/// How many validation errors of an input are reported at once.
const FAULTS_MAX: usize = 5;

/// The maximum length of each, in characters.
const FAULT_CHARS_MAX: usize = 300;

/// Tools that are not built in. The implementation answers every call.
pub trait ExternalTools: Send + Sync {
    /// The current tool definitions, in a fixed order.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Whether this source has a tool of this name.
    fn has_tool(&self, name: &str) -> bool;

    /// The compiled input validator of a tool. `None` if the tool's schema is not valid: its
    /// implementation then reports bad input itself.
    fn validator(&self, name: &str) -> Option<Arc<Validator>>;

    /// Why a tool that seems to belong to this source is unavailable, in a text for the model.
    fn unavailable_reason(&self, name: &str) -> Option<String>;

    /// The permission that a call needs.
    fn permission_for(&self, call: &ToolCall) -> Permission;

    /// Executes a call. Ends soon after it is cancelled.
    fn perform<'a>(
        &'a self,
        call: &'a ToolCall,
        cancel: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ExternalResult> + Send + 'a>>;
}

/// The permission that an external call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// None, unless a rule denies the tool.
    NotNeeded,
    /// An allow rule that matches this name.
    Needed {
        name: String,
        /// A source that the user trusts declares the tool read-only.
        reads_only: bool,
    },
}

/// The raw result of an external call, before it is prepared for the model.
#[derive(Clone, Debug, Default)]
pub struct ExternalResult {
    pub blocks: Vec<Block>,
    /// Content that cannot be shown: a description, and its bytes.
    pub files: Vec<(String, Vec<u8>)>,
    pub is_error: bool,
}

impl Toolbox {
    /// Adds a source of external tools.
    #[must_use]
    pub fn with_external_tools(mut self, foreign: Arc<dyn ExternalTools>) -> Self {
        self.foreign = Some(foreign);
        self
    }

    /// The tool definitions for the model, in a fixed order: the built-in tools, then the current
    /// external ones.
    pub fn all_definitions(&self) -> Vec<ToolDefinition> {
        let foreign = self.foreign.iter().flat_map(|foreign| foreign.definitions());
        let allowed = |tool: &ToolDefinition| {
            self.may_offer_external(&tool.name)
                && !self.tools.permissions.removes_external(&tool.name)
        };
        self.definitions().iter().cloned().chain(foreign.filter(allowed)).collect()
    }

    /// The environment of commands.
    pub fn environment(&self) -> &[(OsString, OsString)] {
        self.tools.shell.environment()
    }

    /// The shell that runs commands.
    pub fn shell(&self) -> &Path {
        &self.tools.shell.program
    }

    /// Adds variables exported by the user's hooks to the environment of later commands. Returns
    /// the names of those rejected as credentials.
    pub fn adopt_exports(&self, exports: Vec<(String, String)>) -> Vec<String> {
        self.tools.shell.environment.add_exports(exports)
    }

    /// The secrets of the run.
    pub fn secrets(&self) -> &KnownSecrets {
        &self.settings.secrets
    }

    /// The source of an external tool.
    pub(super) fn source_of(&self, name: &str) -> Option<&Arc<dyn ExternalTools>> {
        let is_theirs = BuiltinTool::named(name).is_none() && self.may_offer_external(name);
        self.foreign.as_ref().filter(|foreign| is_theirs && foreign.has_tool(name))
    }

    /// The error message for a call of an external tool that is unavailable.
    pub(super) fn unavailable_message(&self, name: &str) -> Option<String> {
        let may_be_told = BuiltinTool::named(name).is_none()
            && self.may_offer_external(name)
            && !self.tools.permissions.removes_external(name);
        self.foreign.as_ref().filter(|_| may_be_told)?.unavailable_reason(name)
    }

    /// Whether an external tool may be offered: a sub-agent may be limited to some, by tool or by
    /// server.
    fn may_offer_external(&self, name: &str) -> bool {
        self.only_foreign.iter().all(|only| {
            only.iter().any(|one| {
                let one = one.trim_end_matches('*').trim_end_matches("__");
                one.starts_with("mcp__")
                    && name
                        .strip_prefix(one)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with("__"))
            })
        })
    }

    /// Whether any tools may be offered whose names begin with `prefix`.
    pub fn may_use_server(&self, prefix: &str) -> bool {
        let name = prefix.trim_end_matches('_');
        self.foreign.is_some()
            && self.may_offer_external(name)
            && !self.tools.permissions.removes_external(name)
    }

    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    pub(super) fn admit_external(
        &self,
        foreign: &dyn ExternalTools,
        call: &ToolCall,
        warrant: GrantSource,
    ) -> Result<(), ToolRefusal> {
        let permissions = &self.tools.permissions;
        if let Some(why) = permissions.external_denial(&call.name) {
            return Err(why.into());
        }
        check_input(foreign, call)?;
        match foreign.permission_for(call) {
            Permission::NotNeeded => Ok(()),
            Permission::Needed { name, reads_only } => {
                Ok(permissions.check_external(&name, reads_only, warrant)?)
            }
        }
    }

    /// Runs an admitted call of an external tool, under the current rules.
    pub(super) async fn run_external(
        &self,
        foreign: Arc<dyn ExternalTools>,
        call: &ToolCall,
        cancel: CancellationToken,
    ) -> ToolOutcome {
        let (kit, name, call) = (Arc::clone(&self.tools), call.name.clone(), call.clone());
        let performed = async move {
            let brought = foreign.perform(&call, cancel).await;
            into_outcome_within(brought, kit.foreign_output_limit, kit.shell.scratch()).await
        };
        run_guarded(&name, performed).await
    }
}

/// Checks the input against the schema of the external tool.
fn check_input(foreign: &dyn ExternalTools, call: &ToolCall) -> Result<(), ToolError> {
    let Some(schema) = foreign.validator(&call.name) else { return Ok(()) };
    let faults: Vec<String> = schema
        .iter_errors(&call.input)
        .take(FAULTS_MAX)
        .map(|error| describe_fault(&error))
        .collect();
    if faults.is_empty() {
        return Ok(());
    }
    Err(invalid_input(&call.name, &faults.join("; ")))
}

fn describe_fault(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
    let what = error.masked_with("the value").to_string();
    format!("{place}{}", truncated(&what, FAULT_CHARS_MAX))
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
    let text =
        |block: &Block| if let Block::Text { text } = block { Some(text.clone()) } else { None };
    let mut words = content.iter().filter_map(text).collect::<Vec<String>>().join("\n");
    if words.chars().count() > limit {
        let mut capture = OutputCapture::new(limit, Arc::clone(scratch));
        capture.push(OutputStream::Out, words.as_bytes()).await;
        words = capture.finish().await.out;
        content.retain(|block| text(block).is_none());
        content.insert(0, Block::text(words.clone()));
    }
    let detail = if is_error {
        Value::String(format!("Error: {words}"))
    } else {
        serde_json::to_value(&content).unwrap_or_default()
    };
    ToolOutcome { content, is_error, detail, denied: None }
}

/// Saves content that cannot be shown to a file, and says where.
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
    let bytes = STANDARD.decode(data).unwrap_or_default();
    let looked = tokio::task::spawn_blocking(move || {
        media::image_block(&bytes).map_err(|flaw| (flaw.to_string(), bytes))
    });
    looked.await.unwrap_or_else(|_| Err(("it cannot be read".to_owned(), Vec::new())))
}
