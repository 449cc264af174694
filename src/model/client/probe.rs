//! Probes a service with requests that cost nothing, to check the connection and the credential.

use std::time::SystemTime;

use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap};
use reqwest::{Method, Request};
use serde_json::json;

use super::ModelClient;
use crate::model::fault::{fault_of_response, fault_without_response};
use crate::model::headers::wall_clock;
use crate::model::request::RequestBody;
use crate::model::service::ServiceKind;
use crate::recovery::{
    ConnectionChoice, ErrorClass, FailureStage, Fault, FaultKind, ReplyMode, classify,
};
use crate::response_body::ResponseBody;

/// Maximum size of a response, in bytes.
const ANSWER_MAX: usize = 16 * 1024;

/// The request for a reply without any fields.
const EMPTY_REQUEST: &str = "POST /v1/messages";

/// The response to a probe request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Method and path, for display.
    pub request: &'static str,
    pub status: u16,
    /// The refusal, or the fault of a successful response.
    pub refusal: Option<ProbeRefusal>,
    /// True if the response is a web page, for example of a login portal, firewall or proxy.
    pub is_web_page: bool,
    /// The service's clock and the local clock when the response arrived.
    pub clocks: Option<(SystemTime, SystemTime)>,
}

/// A response that is not a success.
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
    /// The answer for a service that does not offer the request. The service is not contacted.
    fn unsupported(request: &'static str) -> Self {
        Self { request, status: 404, refusal: None, is_web_page: false, clocks: None }
    }

    /// True if the service does not support the request, so that its response proves nothing.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.status, 404 | 405 | 501)
    }

    /// True if the service does not support the request for a reply, so that no run can succeed.
    pub fn lacks_replies(&self) -> bool {
        self.request == EMPTY_REQUEST && self.is_unsupported()
    }
}

impl ModelClient {
    /// Host and port of the proxy in use.
    pub fn proxy(&self) -> Option<String> {
        self.transport.proxy().map(ToString::to_string)
    }

    /// Requests the list of models. Costs nothing. Only the connect timeout applies. A service
    /// without such a list is not contacted.
    ///
    /// # Errors
    /// The service did not respond, or no credential could be fetched.
    pub async fn list_models(&self) -> Result<ProbeAnswer, Box<Fault>> {
        let name = "GET /v1/models";
        let Some(url) = self.urls.model_list() else { return Ok(ProbeAnswer::unsupported(name)) };
        self.send_probe(name, Request::new(Method::GET, url)).await
    }

    /// Requests the token count of one word for `model`, which tests whether the service offers the
    /// model. Bedrock gets a request for a reply without messages, which it rejects after it has
    /// checked everything else. Otherwise like [`list_models`](Self::list_models).
    ///
    /// # Errors
    /// The service did not respond, or no credential could be fetched.
    pub async fn count_word(&self, model: &str) -> Result<ProbeAnswer, Box<Fault>> {
        let id = self.urls.model_id(model);
        let word = json!({ "model": id, "messages": [{ "role": "user", "content": "Hello" }] });
        let (name, url) = match (self.urls.kind(), self.urls.token_count()) {
            (ServiceKind::Vertex { .. }, Some(url)) => ("POST count-tokens:rawPredict", url),
            (_, Some(url)) => ("POST /v1/messages/count_tokens", url),
            (_, None) => return self.ask_without_message(model, &id).await,
        };
        let mut count = Request::new(Method::POST, url);
        *count.body_mut() = Some(word.to_string().into());
        self.send_probe(name, count).await
    }

    /// Sends a request for a reply without any fields, which the Messages API rejects as invalid,
    /// so that it costs nothing. `None`: the service is the API of a cloud.
    ///
    /// # Errors
    /// The service did not respond, or no credential could be fetched.
    pub async fn ask_nothing(&self) -> Result<Option<ProbeAnswer>, Box<Fault>> {
        match self.urls.kind() {
            ServiceKind::Messages | ServiceKind::Foundry { .. } => {}
            ServiceKind::Bedrock { .. } | ServiceKind::Vertex { .. } => return Ok(None),
        }
        let mut request = Request::new(Method::POST, self.urls.reply("", ReplyMode::Whole));
        *request.body_mut() = Some("{}".into());
        self.send_probe(EMPTY_REQUEST, request).await.map(Some)
    }

    async fn ask_without_message(&self, model: &str, id: &str) -> Result<ProbeAnswer, Box<Fault>> {
        let mut body = RequestBody::empty(1);
        self.urls.adapt(&mut body, &mut HeaderMap::new());
        let url = self.urls.reply(model, ReplyMode::Whole);
        let mut request = Request::new(Method::POST, url);
        *request.body_mut() = Some(json!(body).to_string().into());
        let mut answer = self.send_probe("POST /model/.../invoke", request).await?;
        if let Some(refusal) = &mut answer.refusal {
            if refusal.class == ErrorClass::InvalidRequest {
                answer.refusal = None;
            } else if let FaultKind::Refused { message, .. } = &mut refusal.fault.kind {
                // The service's message does not name the model.
                *message = format!("{model} ({id}): {message}");
            }
        }
        Ok(answer)
    }

    async fn send_probe(
        &self,
        name: &'static str,
        mut request: Request,
    ) -> Result<ProbeAnswer, Box<Fault>> {
        *request.headers_mut() = self.headers.clone();
        let secret = self.credentials.sign(&mut request).await?;
        let reported = |fault: Fault| self.reported(fault, secret.as_ref());
        let http = self.http(ConnectionChoice::Fresh).map_err(|fault| reported(*fault))?;
        let response = match http.execute(request).await {
            Ok(response) => response,
            Err(error) => {
                let route = self.describe_route();
                let fault = fault_without_response(error, &route, FailureStage::Unsent);
                return Err(reported(self.explain_tunnel(fault).await));
            }
        };
        let (status, headers, now) =
            (response.status().as_u16(), response.headers().clone(), wall_clock());
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        let mut body = Vec::new();
        if status >= 300 {
            // The status is valid even if the body breaks off.
            let _ = ResponseBody::new(response).read(&mut body, ANSWER_MAX).await;
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let page = kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/html"));
        let fault = if status >= 300 {
            Some(*reported(fault_of_response(status, &headers, &body, now)))
        } else {
            page.then(|| {
                let detail = "a web page came instead of an answer".to_owned();
                Fault::new(FaultKind::InvalidContent { detail }, FailureStage::Status)
            })
        };
        let clocks = date.map(|date| (date, now));
        let refusal = fault.map(ProbeRefusal::from);
        Ok(ProbeAnswer { request: name, status, refusal, is_web_page: page, clocks })
    }
}
