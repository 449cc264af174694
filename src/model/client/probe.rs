//! Probes a service with requests that cost nothing, to check the connection and the credential.

use std::time::SystemTime;

use reqwest::header::{CONTENT_TYPE, DATE};
use reqwest::{Method, Request, Url};
use serde_json::json;

use super::ModelClient;
use crate::model::fault::{fault_of_response, fault_without_response, redacted};
use crate::model::headers::wall_clock;
use crate::recovery::{ConnectionChoice, ErrorClass, FailureStage, Fault, FaultKind, classify};

/// Maximum size of a response, in bytes.
const ANSWER_MAX: usize = 16 * 1024;

/// The response to a probe request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Method and path, for display.
    pub request: &'static str,
    pub status: u16,
    /// The refusal, or what is wrong with a successful response.
    pub refusal: Option<ProbeRefusal>,
    /// Whether the response is a web page, for example of a login portal, firewall or proxy.
    pub is_web_page: bool,
    /// The service's clock and the local clock when the response arrived.
    pub clocks: Option<(SystemTime, SystemTime)>,
}

/// A response that is no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeRefusal {
    pub fault: Fault,
    pub class: ErrorClass,
}

impl From<Fault> for ProbeRefusal {
    fn from(fault: Fault) -> Self {
        let class = classify(&fault).class;
        Self { fault, class }
    }
}

impl ProbeAnswer {
    /// Whether the service does not support the request, so that its response proves nothing.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.status, 404 | 405 | 501)
    }
}

impl ModelClient {
    /// Host and port of the proxy in use.
    pub fn proxy(&self) -> Option<String> {
        self.transport.proxy().map(ToString::to_string)
    }

    /// Requests the list of models. Costs nothing. Only the connect timeout applies.
    ///
    /// # Errors
    /// The service did not respond, or no credential could be fetched.
    pub async fn list_models(&self) -> Result<ProbeAnswer, Box<Fault>> {
        self.send_probe("GET /v1/models", Request::new(Method::GET, self.sibling_url("models")))
            .await
    }

    /// Requests the token count of one word for `model`, which tests whether the service knows the
    /// model. Otherwise like [`list_models`](Self::list_models).
    ///
    /// # Errors
    /// The same.
    pub async fn count_word(&self, model: &str) -> Result<ProbeAnswer, Box<Fault>> {
        let mut count = Request::new(Method::POST, self.sibling_url("messages/count_tokens"));
        let word = json!({ "model": model, "messages": [{ "role": "user", "content": "Hello" }] });
        *count.body_mut() = Some(word.to_string().into());
        self.send_probe("POST /v1/messages/count_tokens", count).await
    }

    /// The URL of another API path than that for messages.
    fn sibling_url(&self, end: &str) -> Url {
        let mut url = self.url.clone();
        let path = url.path().trim_end_matches("messages").to_owned() + end;
        url.set_path(&path);
        url
    }

    async fn send_probe(
        &self,
        asked: &'static str,
        mut request: Request,
    ) -> Result<ProbeAnswer, Box<Fault>> {
        *request.headers_mut() = self.headers.clone();
        let secret = self.keyring.sign(&mut request).await?;
        let hidden =
            |fault: Fault| Box::new(redacted(self.attribute_to_proxy(fault), secret.as_ref()));
        let http = self.transport.client(ConnectionChoice::Fresh).map_err(|error| {
            let detail = error.to_string();
            hidden(Fault::new(FaultKind::Certificate { detail }, FailureStage::Unsent))
        })?;
        let sent = http.execute(request).await;
        let mut response = sent.map_err(|error| {
            hidden(fault_without_response(error, &self.describe_route(), FailureStage::Unsent))
        })?;
        let (status, headers, now) =
            (response.status().as_u16(), response.headers().clone(), wall_clock());
        let theirs = headers.get(DATE).and_then(|date| date.to_str().ok());
        let theirs = theirs.and_then(|date| httpdate::parse_http_date(date).ok());
        let mut body = Vec::new();
        while body.len() < ANSWER_MAX
            && status >= 300
            && let Ok(Some(chunk)) = response.chunk().await
        {
            body.extend_from_slice(&chunk);
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let page = kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/html"));
        let fault = if status >= 300 {
            Some(*hidden(fault_of_response(status, &headers, &body, now)))
        } else {
            page.then(|| {
                let detail = "a web page came instead of an answer".to_owned();
                Fault::new(FaultKind::InvalidContent { detail }, FailureStage::Status)
            })
        };
        let clocks = theirs.map(|theirs| (theirs, now));
        let refusal = fault.map(ProbeRefusal::from);
        Ok(ProbeAnswer { request: asked, status, refusal, is_web_page: page, clocks })
    }
}
