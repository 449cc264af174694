//! Adapts requests to each service: the URL, and the fields and headers that differ.

use std::borrow::Cow;

use reqwest::Url;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};

use super::kind::ServiceKind;
use super::model_id::model_id;
use crate::model::base_url::{BaseUrl, EndpointError};
use crate::model::request::{Marked, OfferedTool, RequestBody, ToolField};
use crate::model::web_search::use_basic_version;
use crate::recovery::ReplyMode;

const BETA: &str = "anthropic-beta";
const VERSION: &str = "anthropic-version";
/// The versions that the clouds document.
const BEDROCK_VERSION: &str = "bedrock-2023-05-31";
const VERTEX_VERSION: &str = "vertex-2023-10-16";

#[derive(Clone, Debug)]
pub(in super::super) struct ServiceUrls {
    kind: ServiceKind,
    base: Url,
}

impl ServiceUrls {
    pub(in super::super) fn new(kind: ServiceKind, base_url: &str) -> Result<Self, EndpointError> {
        let base = match kind {
            ServiceKind::Messages | ServiceKind::Foundry { .. } => {
                BaseUrl::parse(base_url)?.messages_url()
            }
            // The paths of these services are appended to any base URL.
            ServiceKind::Bedrock { .. } | ServiceKind::Vertex { .. } => {
                BaseUrl::parse_whole(base_url)?.whole_url()
            }
        };
        Ok(Self { kind, base })
    }

    pub(in super::super) fn kind(&self) -> &ServiceKind {
        &self.kind
    }

    /// The name of a model at the service.
    pub(in super::super) fn model_id<'a>(&self, model: &'a str) -> Cow<'a, str> {
        model_id(&self.kind, model)
    }

    /// A URL of the service, for its host.
    pub(in super::super) fn base(&self) -> &Url {
        &self.base
    }

    /// The URL of a request for a reply of `model`.
    pub(in super::super) fn reply(&self, model: &str, mode: ReplyMode) -> Url {
        let streams = mode == ReplyMode::Streaming;
        let model = model_id(&self.kind, model);
        match &self.kind {
            ServiceKind::Messages | ServiceKind::Foundry { .. } => self.base.clone(),
            ServiceKind::Bedrock { .. } => {
                let action = if streams { "invoke-with-response-stream" } else { "invoke" };
                self.below(&["model", &model, action])
            }
            ServiceKind::Vertex { region, project } => {
                let action = if streams { "streamRawPredict" } else { "rawPredict" };
                self.of_vertex(region, project, &format!("{model}:{action}"))
            }
        }
    }

    /// The URL at which the tokens of a prompt are counted. `None` if the service has none that
    /// every identity may use.
    pub(in super::super) fn token_count(&self) -> Option<Url> {
        match &self.kind {
            ServiceKind::Messages | ServiceKind::Foundry { .. } => {
                Some(self.sibling("messages/count_tokens"))
            }
            ServiceKind::Bedrock { .. } => None,
            ServiceKind::Vertex { region, project } => {
                Some(self.of_vertex(region, project, "count-tokens:rawPredict"))
            }
        }
    }

    /// The URL of the list of models. `None` if there is none.
    pub(in super::super) fn model_list(&self) -> Option<Url> {
        matches!(self.kind, ServiceKind::Messages).then(|| self.sibling("models"))
    }

    fn of_vertex(&self, region: &str, project: &str, model: &str) -> Url {
        let publisher = ["publishers", "anthropic", "models", model];
        self.below(&[["projects", project, "locations", region], publisher].concat())
    }

    fn below(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// The URL of another API path than the one for messages.
    fn sibling(&self, end: &str) -> Url {
        let mut url = self.base.clone();
        let path = url.path().trim_end_matches("messages").to_owned() + end;
        url.set_path(&path);
        url
    }

    pub(in super::super) fn has_fast_mode(&self) -> bool {
        matches!(self.kind, ServiceKind::Messages)
    }

    /// Adapts the fields and headers of a request for the Messages API to this service.
    pub(in super::super) fn adapt(&self, body: &mut RequestBody<'_>, headers: &mut HeaderMap) {
        match self.kind {
            ServiceKind::Messages | ServiceKind::Foundry { .. } => {}
            ServiceKind::Vertex { .. } => {
                body.model = None;
                body.anthropic_version = Some(VERTEX_VERSION);
                for tool in &mut body.tools {
                    if let ToolField::Offered(Marked {
                        part: OfferedTool::Search(search), ..
                    }) = tool
                    {
                        use_basic_version(search);
                    }
                }
                headers.remove(VERSION);
            }
            ServiceKind::Bedrock { .. } => {
                body.model = None;
                body.stream = None;
                body.anthropic_version = Some(BEDROCK_VERSION);
                headers.remove(VERSION);
                let betas = headers.remove(BETA);
                let betas = betas.as_ref().and_then(|betas| betas.to_str().ok());
                body.anthropic_beta = betas
                    .map(|betas| betas.split(',').map(|beta| beta.trim().to_owned()).collect());
                headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
            }
        }
    }
}
