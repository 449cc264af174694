//! Tools that somebody else performs, and how they join those that are built in.

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
use super::contain::run_guarded;
use super::media;
use super::outcome::{ToolOutcome, ToolRefusal, GrantSource};
use super::text::truncated;
use super::toolbox::Toolbox;

/// How many faults of an input the model is told of at once.
const FAULTS_MAX: usize = 5;

/// How long each may be, in characters.
const FAULT_CHARS_MAX: usize = 300;

/// Tools that are not built in. Whoever performs them answers every call.
pub trait ExternalTools: Send + Sync {
    /// What the model is told of them just now, in a fixed order.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Whether a tool of this name is theirs.
    fn has_tool(&self, name: &str) -> bool;

    /// What an input for a tool of theirs is checked against, made ready once. None where their
    /// schema is none: they are left to say so themselves.
    fn validator(&self, name: &str) -> Option<Arc<Validator>>;

    /// Why a tool that seems to be theirs is not there, in words for the model.
    fn unavailable_reason(&self, name: &str) -> Option<String>;

    /// What leave a call takes.
    fn permission_for(&self, call: &ToolCall) -> Permission;

    /// Performs a call. Ends soon once it is cancelled.
    fn perform<'a>(
        &'a self,
        call: &'a ToolCall,
        cancel: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ExternalResult> + Send + 'a>>;
}

/// What leave a foreign call takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// None, unless a rule denies the tool.
    NotNeeded,
    /// A rule that speaks of this name.
    Needed {
        name: String,
        /// Somebody whom the user trusts says that it changes nothing.
        reads_only: bool,
    },
}

/// What came of a foreign call, before it is made fit to be read.
#[derive(Clone, Debug, Default)]
pub struct ExternalResult {
    pub blocks: Vec<Block>,
    /// What cannot be shown: what it is, and its bytes.
    pub files: Vec<(String, Vec<u8>)>,
    pub is_error: bool,
}

impl Toolbox {
    /// Adds tools that somebody else performs.
    #[must_use]
    pub fn with_external_tools(mut self, foreign: Arc<dyn ExternalTools>) -> Self {
        self.foreign = Some(foreign);
        self
    }

    /// What the model is told, in a fixed order: the built-in tools, and then those of others as
    /// they are just now.
    pub fn all_definitions(&self) -> Vec<ToolDefinition> {
        let foreign = self.foreign.iter().flat_map(|foreign| foreign.definitions());
        let allowed = |tool: &ToolDefinition| {
            self.may_offer_external(&tool.name) && !self.tools.permissions.removes_external(&tool.name)
        };
        self.definitions().iter().cloned().chain(foreign.filter(allowed)).collect()
    }

    /// The environment that commands see.
    pub fn environment(&self) -> &[(OsString, OsString)] {
        self.tools.shell.environment()
    }

    /// What runs commands.
    pub fn shell(&self) -> &Path {
        &self.tools.shell.program
    }

    /// Lets later commands see what the user's hooks have exported. Says which of them they do not
    /// see, since they are credentials.
    pub fn adopt_exports(&self, exports: Vec<(String, String)>) -> Vec<String> {
        self.tools.shell.environment.add_exports(exports)
    }

    /// The secrets of the run.
    pub fn secrets(&self) -> &KnownSecrets {
        &self.settings.secrets
    }

    /// Who performs a tool that is not built in.
    pub(super) fn source_of(&self, name: &str) -> Option<&Arc<dyn ExternalTools>> {
        let is_theirs = BuiltinTool::named(name).is_none() && self.may_offer_external(name);
        self.foreign.as_ref().filter(|foreign| is_theirs && foreign.has_tool(name))
    }

    /// What to say to a call of a tool that is not built in and not there.
    pub(super) fn unavailable_message(&self, name: &str) -> Option<String> {
        let may_be_told = BuiltinTool::named(name).is_none()
            && self.may_offer_external(name)
            && !self.tools.permissions.removes_external(name);
        self.foreign.as_ref().filter(|_| may_be_told)?.unavailable_reason(name)
    }

    /// Whether a tool of somebody else may be offered: a sub-agent may have some only, by their
    /// names or their server's.
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

    /// Whether tools may be offered whose names begin with `prefix`.
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
            return Err(ToolRefusal::denied(why));
        }
        check_input(foreign, call).map_err(ToolRefusal::invalid)?;
        match foreign.permission_for(call) {
            Permission::NotNeeded => Ok(()),
            Permission::Needed { name, reads_only } => {
                permissions.check_external(&name, reads_only, warrant).map_err(ToolRefusal::denied)
            }
        }
    }

    /// Runs an admitted call of somebody else's tool, by the rules as they are.
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

/// Whether the input is what whoever performs the tool asks for.
fn check_input(foreign: &dyn ExternalTools, call: &ToolCall) -> Result<(), String> {
    let Some(schema) = foreign.validator(&call.name) else { return Ok(()) };
    let faults: Vec<String> =
        schema.iter_errors(&call.input).take(FAULTS_MAX).map(|error| describe_fault(&error)).collect();
    if faults.is_empty() {
        return Ok(());
    }
    Err(format!("InputValidationError: {}: {}", call.name, faults.join("; ")))
}

fn describe_fault(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
    let what = error.masked_with("the value").to_string();
    format!("{place}{}", truncated(&what, FAULT_CHARS_MAX))
}

/// Makes an outcome of what came: long text is cut in the middle and saved whole, and so is what
/// cannot be shown.
pub(super) async fn into_outcome_within(brought: ExternalResult, limit: usize, scratch: &Arc<OutputFolder>) -> ToolOutcome {
    let ExternalResult { blocks, files, is_error } = brought;
    let (mut content, mut images) = (Vec::new(), 0);
    for block in blocks {
        images += usize::from(matches!(block, Block::Image { .. }));
        content.push(match prepare_image(block).await {
            Ok(block) => block,
            Err((why, bytes)) => save_to_file(&format!("image {images} ({why})"), &bytes, scratch).await,
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

/// Keeps what cannot be shown in a file, and says where.
async fn save_to_file(what: &str, bytes: &[u8], scratch: &Arc<OutputFolder>) -> Block {
    Block::text(match scratch.keep("file", bytes).await {
        Ok(path) => format!("[{what}, {} bytes, is in {}]", bytes.len(), path.display()),
        Err(error) => format!("[{what} could not be saved: {error}]"),
    })
}

/// Makes an image fit to be sent: what the service refuses it would refuse with every later
/// request. What cannot be shown comes back as bytes, with the reason.
async fn prepare_image(block: Block) -> Result<Block, (String, Vec<u8>)> {
    let Block::Image { source } = &block else { return Ok(block) };
    let data = source["data"].as_str().unwrap_or_default();
    let bytes = STANDARD.decode(data).unwrap_or_default();
    let looked =
        tokio::task::spawn_blocking(move || media::image_block(&bytes).map_err(|why| (why, bytes)));
    looked.await.unwrap_or_else(|_| Err(("it cannot be read".to_owned(), Vec::new())))
}
