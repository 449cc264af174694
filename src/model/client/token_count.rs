//! Requests the token count of a request from the service. Costs nothing.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use reqwest::{Method, Request};
use serde::Serialize;
use serde_json::Value;

use super::ModelClient;
use crate::model::request::RequestContent;
use crate::recovery::ConnectionChoice;
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
    /// The input tokens of a request, as the service counts them. `None` if it does not report
    /// them. A service without token counts is asked only once.
    pub async fn count_tokens(&self, prompt: &RequestContent<'_>) -> Option<u64> {
        if self.lacks_token_count.load(Ordering::Relaxed) {
            return None;
        }
        let url = self.urls.token_count()?;
        let mut request = Request::new(Method::POST, url);
        *request.headers_mut() = self.headers.clone();
        *request.body_mut() = Some(serde_json::to_vec(&self.counted_body(prompt)).ok()?.into());
        self.keyring.sign(&mut request).await.ok()?;
        let http = self.transport.client(ConnectionChoice::Pooled).ok()?;
        let mut response = http.execute(request).await.ok()?;
        let status = response.status().as_u16();
        if status != 200 {
            // A rate limit or an outage is temporary.
            let lacks = (300..500).contains(&status) && status != 429;
            self.lacks_token_count.store(lacks, Ordering::Relaxed);
            return None;
        }
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_MAX {
                return None;
            }
        }
        let answer: Value = serde_json::from_slice(&body).ok()?;
        answer["input_tokens"].as_u64().filter(|tokens| *tokens > 0)
    }

    fn counted_body<'a>(&'a self, prompt: &RequestContent<'a>) -> CountedBody<'a> {
        CountedBody {
            model: self.urls.model_id(prompt.model),
            tools: prompt.tools,
            system: Some(prompt.system).filter(|system| !system.trim().is_empty()),
            messages: prompt.messages,
        }
    }
}
