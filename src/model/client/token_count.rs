//! Requests the token count of a request from the service. Costs nothing.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use reqwest::{Method, Request};
use serde::Serialize;
use serde_json::Value;

use super::ModelClient;
use crate::model::fault::{fault_of_response, fault_without_response};
use crate::model::headers::wall_clock;
use crate::model::request::RequestContent;
use crate::recovery::{ConnectionChoice, FailureStage, Fault};
use crate::response_body::ResponseBody;
use crate::transcript::{Message, ToolDefinition};

/// Maximum size of a response, in bytes.
const ANSWER_MAX: usize = 16 * 1024;

/// The body of a token count: only the content of a request.
#[derive(Serialize)]
struct CountedBody<'a> {
    model: Cow<'a, str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tools: &'a [ToolDefinition],
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    messages: &'a [Message],
}

impl ModelClient {
    /// Requests the number of input tokens of a request. `None` if the service does not report it.
    /// A service without token counts is contacted only once.
    ///
    /// # Errors
    /// The service did not respond, or its refusal is temporary.
    pub async fn count_tokens(
        &self,
        content: &RequestContent<'_>,
    ) -> Result<Option<u64>, Box<Fault>> {
        if self.lacks_token_count.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (url, body) =
            (self.urls.token_count(), serde_json::to_vec(&self.counted_body(content)));
        let (Some(url), Ok(body)) = (url, body) else { return Ok(None) };
        let mut request = Request::new(Method::POST, url);
        *request.headers_mut() = self.headers.clone();
        *request.body_mut() = Some(body.into());
        let secret = self.credentials.sign(&mut request).await?;
        let reported = |fault: Fault| self.reported(fault, secret.as_ref());
        let http = self.http(ConnectionChoice::Fresh).map_err(|fault| reported(*fault))?;
        let response = http.execute(request).await.map_err(|error| {
            let stage = FailureStage::FreshConnection;
            reported(fault_without_response(error, &self.describe_route(), stage))
        })?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = Vec::new();
        let _ = ResponseBody::new(response).read(&mut body, ANSWER_MAX + 1).await;
        if body.len() > ANSWER_MAX {
            return Ok(None);
        }
        if status != 200 {
            let lacks = (300..500).contains(&status) && status != 429 || status == 501;
            self.lacks_token_count.store(lacks, Ordering::Relaxed);
            let fault = || fault_of_response(status, &headers, &body, wall_clock());
            return if lacks { Ok(None) } else { Err(reported(fault())) };
        }
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        Ok(answer["input_tokens"].as_u64().filter(|tokens| *tokens > 0))
    }

    fn counted_body<'a>(&'a self, content: &RequestContent<'a>) -> CountedBody<'a> {
        CountedBody {
            model: self.urls.model_id(content.model),
            tools: content.tools,
            system: Some(content.system).filter(|system| !system.trim().is_empty()),
            messages: content.messages,
        }
    }
}
