//! The SDK, with the same variables and files.

use std::sync::{Arc, Mutex};

use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_sdk_bedrockruntime::Client;
use aws_sdk_bedrockruntime::primitives::Blob;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_types::os_shim_internal::Env;

use super::Outcome;
use super::services::Services;

/// Reaches loopback only, and keeps the names of other hosts.
#[derive(Clone, Debug)]
struct LoopbackClient {
    inner: SharedHttpClient,
    remote: Arc<Mutex<Vec<String>>>,
}

impl HttpClient for LoopbackClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(LoopbackConnector { inner, remote: Arc::clone(&self.remote) })
    }
}

#[derive(Debug)]
struct LoopbackConnector {
    inner: SharedHttpConnector,
    remote: Arc<Mutex<Vec<String>>>,
}

impl HttpConnector for LoopbackConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        if request.uri().starts_with("http://127.0.0.1:") {
            return self.inner.call(request);
        }
        let (_, rest) = request.uri().split_once("://").expect("a URI has a scheme");
        let host = rest.split(['/', '?']).next().unwrap_or_default().to_owned();
        self.remote.lock().expect("no thread panicked").push(host);
        HttpConnectorFuture::ready(Err(ConnectorError::user("only loopback".into())))
    }
}

pub(crate) async fn outcome(
    services: &Services,
    variables: &[(String, String)],
) -> (Outcome, String) {
    let remote: Arc<Mutex<Vec<String>>> = Arc::default();
    let http = LoopbackClient {
        inner: aws_smithy_http_client::Builder::new().build_http(),
        remote: Arc::clone(&remote),
    };
    let pairs: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let config = aws_config::defaults(BehaviorVersion::latest())
        .env(Env::from_slice(&pairs))
        .http_client(http)
        .retry_config(RetryConfig::disabled())
        .load()
        .await;
    let request = Client::new(&config).invoke_model().model_id("m").body(Blob::new("{}"));
    // The server refuses every request; what it was asked is what counts.
    let error = request.send().await.expect_err("no request is accepted");
    let remote = remote.lock().expect("no thread panicked").iter().cloned().collect();
    (Outcome { asked: services.asked(), remote }, format!("{error:?}"))
}
