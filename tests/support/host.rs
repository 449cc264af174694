//! A host in the test's own process, which answers requests as a test says.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use outlast::types::{HostChannel, HostError, HostReply, HostRequest};
use serde_json::{Value, json};

use super::with_time_limit;

/// The answer to a request, once the host has it.
pub(crate) type ScriptedReply = Pin<Box<dyn Future<Output = Result<Value, HostError>> + Send>>;

/// A host that answers each request by a function.
pub(crate) struct ScriptedHost {
    answer: Box<dyn Fn(Value) -> ScriptedReply + Send + Sync>,
    requests: Mutex<Vec<Value>>,
    announced: Mutex<Vec<Value>>,
    cancelled: Arc<Mutex<Vec<Value>>>,
}

impl fmt::Debug for ScriptedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptedHost")
    }
}

impl ScriptedHost {
    pub(crate) fn new(
        answer: impl Fn(Value) -> ScriptedReply + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (requests, announced) = (Mutex::default(), Mutex::default());
        let (answer, cancelled) = (Box::new(answer), Arc::default());
        Arc::new(Self { answer, requests, announced, cancelled })
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.requests.lock().expect("no panic while writing").clone()
    }

    /// The messages without a reply so far.
    pub(crate) fn announced(&self) -> Vec<Value> {
        self.announced.lock().expect("no panic while writing").clone()
    }

    /// The requests whose futures were dropped without a reply.
    pub(crate) fn cancelled(&self) -> Vec<Value> {
        self.cancelled.lock().expect("no panic while writing").clone()
    }

    /// Waits until a condition holds for the host.
    pub(crate) async fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        with_time_limit(what, async {
            while !holds(self) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

/// An answer that is there at once.
pub(crate) fn at_once(reply: Result<Value, HostError>) -> ScriptedReply {
    Box::pin(std::future::ready(reply))
}

/// An answer that never comes.
pub(crate) fn never() -> ScriptedReply {
    Box::pin(std::future::pending())
}

impl HostChannel for ScriptedHost {
    fn elicitation_complete(&self, server: &str, id: &str) {
        let message = json!({ "mcp_server_name": server, "elicitation_id": id });
        self.announced.lock().expect("no panic while writing").push(message);
    }

    fn request(&self, request: HostRequest) -> HostReply<'_> {
        let request = json!(request);
        self.requests.lock().expect("no panic while writing").push(request.clone());
        let open = OpenRequest(Some((request.clone(), Arc::clone(&self.cancelled))));
        let reply = (self.answer)(request);
        Box::pin(async move {
            let mut open = open;
            let reply = reply.await;
            open.0 = None;
            reply
        })
    }
}

/// A request without a reply, which is recorded when it is dropped.
struct OpenRequest(Option<(Value, Arc<Mutex<Vec<Value>>>)>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if let Some((request, cancelled)) = self.0.take() {
            cancelled.lock().expect("no panic while writing").push(request);
        }
    }
}
