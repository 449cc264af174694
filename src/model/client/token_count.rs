//! Requests the token count of a request from the service. Costs nothing.

use std::sync::atomic::Ordering;

use reqwest::{Method, Request};
use serde_json::{Map, Value, json};

use super::ModelClient;
use crate::model::request::RequestContent;
use crate::recovery::ConnectionChoice;

/// Maximum size of a response, in bytes.
const ANSWER_MAX: usize = 16 * 1024;

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
        *request.body_mut() = Some(serde_json::to_vec(&self.counted_body(prompt)?).ok()?.into());
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

    /// The body of a token count: the content of a request, and nothing else of it.
    fn counted_body(&self, prompt: &RequestContent<'_>) -> Option<Map<String, Value>> {
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(self.urls.model_id(prompt.model)));
        if !prompt.tools.is_empty() {
            body.insert("tools".to_owned(), serde_json::to_value(prompt.tools).ok()?);
        }
        if !prompt.system.trim().is_empty() {
            body.insert("system".to_owned(), json!(prompt.system));
        }
        body.insert("messages".to_owned(), serde_json::to_value(prompt.messages).ok()?);
        Some(body)
    }
}
