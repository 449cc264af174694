//! Elicitation: questions of a server to the user, which the host of the run answers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::types::{Elicitation, ElicitationMode, HostChannel, HostRequest};

use super::rpc::{INVALID_PARAMS, RpcError};

/// The maximum number of open questions of a connection. Further ones are cancelled.
const OPEN_MAX: usize = 16;

/// The maximum number of pages of a connection whose completion is reported to the host.
const PAGES_MAX: usize = 100;

/// The field in which a server gives the form of a question.
const DISPLAY: &str = "anthropic/permissionDisplay";

/// Asks the host in the name of a server, over one connection.
pub(super) struct Elicitor {
    /// `None`: every question is declined.
    host: Option<Arc<dyn HostChannel>>,
    server: String,
    /// Time limit of an answer.
    limit: Duration,
    questions: Mutex<Questions>,
    /// The number of the server's requests whose questions are open at the host. A withdrawn
    /// question counts until the host has been notified.
    open_requests: watch::Sender<usize>,
}

#[derive(Default)]
struct Questions {
    next: u64,
    open: HashMap<u64, OpenQuestion>,
    /// The pages that the user was asked to open, by the server's identifiers.
    pages: HashSet<String>,
}

struct OpenQuestion {
    /// The identifier of the server's request. `None`: the answer is part of a repeated call.
    id: Option<Value>,
    withdraw: oneshot::Sender<Withdrawal>,
}

/// The reason that a question is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Withdrawal {
    /// The server no longer needs the answer.
    ByServer,
    /// The request that the question could belong to has ended.
    WithoutCall,
}

/// A question that is open until it is dropped.
pub(super) struct Question {
    elicitor: Arc<Elicitor>,
    number: u64,
    request: Elicitation,
    withdrawn: oneshot::Receiver<Withdrawal>,
    is_of_request: bool,
}

impl Elicitor {
    pub(super) fn new(host: Option<Arc<dyn HostChannel>>, server: &str, limit: Duration) -> Self {
        let (questions, open_requests) = (Mutex::default(), watch::Sender::default());
        Self { host, server: server.to_owned(), limit, questions, open_requests }
    }

    /// The capability declared to the server. `None`: the server may not ask questions.
    pub(super) fn capability(&self) -> Option<Value> {
        self.host.as_ref().map(|_| json!({ "form": {}, "url": {} }))
    }

    /// True while the host is being asked.
    pub(super) fn is_asking(&self) -> bool {
        !self.questions.lock().open.is_empty()
    }

    /// Reads the parameters of `elicitation/create`.
    pub(super) fn read(&self, params: &Value) -> Result<Elicitation, RpcError> {
        let text = |name: &str| params[name].as_str().map(str::to_owned);
        let invalid =
            |what: &str| Err(RpcError::new(INVALID_PARAMS, format!("elicitation/create: {what}")));
        let Some(message) = text("message") else { return invalid("there is no message") };
        let mode = match params["mode"].as_str().unwrap_or("form") {
            "form" => {
                let schema = &params["requestedSchema"];
                let requested_schema = Some(schema).filter(|schema| schema.is_object()).cloned();
                let property_order = schema["properties"].as_object().map(property_order);
                ElicitationMode::Form { requested_schema, property_order }
            }
            "url" => {
                let Some(url) = text("url") else { return invalid("there is no url") };
                ElicitationMode::Url { url, elicitation_id: text("elicitationId") }
            }
            mode => return invalid(&format!("the mode {mode:?} is not supported")),
        };
        let display = |name: &str| params["_meta"][DISPLAY][name].as_str().map(str::to_owned);
        Ok(Elicitation {
            mcp_server_name: self.server.clone(),
            message,
            mode,
            title: display("title"),
            display_name: display("displayName"),
            description: display("description"),
        })
    }

    /// Opens a question. `id` identifies the server's request, if the question is one. `None`: too
    /// many are open.
    pub(super) fn open(
        self: &Arc<Self>,
        id: Option<Value>,
        request: Elicitation,
    ) -> Option<Question> {
        let (withdraw, withdrawn) = oneshot::channel();
        let mut questions = self.questions.lock();
        if questions.open.len() >= OPEN_MAX {
            return None;
        }
        let number = questions.next;
        questions.next += 1;
        let is_of_request = id.is_some();
        questions.open.insert(number, OpenQuestion { id, withdraw });
        self.open_requests.send_modify(|count| *count += usize::from(is_of_request));
        if let ElicitationMode::Url { elicitation_id: Some(page), .. } = &request.mode
            && questions.pages.len() < PAGES_MAX
        {
            questions.pages.insert(page.clone());
        }
        drop(questions);
        Some(Question { elicitor: Arc::clone(self), number, request, withdrawn, is_of_request })
    }

    /// Withdraws the question of a request that the server has cancelled.
    pub(super) fn withdraw(&self, id: &Value) {
        self.withdraw_all(Withdrawal::ByServer, |question| question.id.as_ref() == Some(id));
    }

    /// Withdraws the questions of the server's requests, since no request to the server is in
    /// progress.
    pub(super) fn withdraw_without_call(&self) {
        self.withdraw_all(Withdrawal::WithoutCall, |question| question.id.is_some());
    }

    /// Waits until the host has been notified that the questions of the server's requests are
    /// withdrawn.
    pub(super) async fn withdrawn(&self) {
        // Never an error, since the sender exists.
        let _ = self.open_requests.subscribe().wait_for(|count| *count == 0).await;
    }

    fn withdraw_all(&self, why: Withdrawal, applies: impl Fn(&OpenQuestion) -> bool) {
        for (_, question) in self.questions.lock().open.extract_if(|_, question| applies(question))
        {
            // The answer may have just come.
            let _ = question.withdraw.send(why);
        }
    }

    /// Notifies the host that the user has completed a page of the server, if a question named the
    /// page.
    pub(super) fn complete(&self, id: &str) {
        let is_known = self.questions.lock().pages.remove(id);
        if let Some(host) = self.host.as_ref().filter(|_| is_known) {
            host.elicitation_complete(&self.server, id);
        }
    }
}

impl Question {
    /// Asks the host. Returns the result for the server; `None`: the server no longer needs one. If
    /// the host cannot be asked, fails, or does not support these requests, the question is
    /// declined.
    pub(super) async fn answer(mut self) -> Option<Value> {
        let elicitor = Arc::clone(&self.elicitor);
        let Some(host) = &elicitor.host else { return Some(decline()) };
        let request = HostRequest::Elicitation(self.request.clone());
        tokio::select! {
            biased;
            withdrawn = &mut self.withdrawn => match withdrawn {
                Ok(Withdrawal::ByServer) => None,
                Ok(Withdrawal::WithoutCall) | Err(_) => Some(cancel()),
            },
            reply = timeout(elicitor.limit, host.request(request)) => Some(match reply {
                Ok(Ok(reply)) => read_reply(reply),
                Ok(Err(_)) => decline(),
                Err(_) => cancel(),
            }),
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.elicitor.questions.lock().open.remove(&self.number);
        let count = usize::from(self.is_of_request);
        self.elicitor.open_requests.send_modify(|open| *open -= count);
    }
}

/// The result of a question without an answer.
pub(super) fn cancel() -> Value {
    json!({ "action": "cancel" })
}

fn decline() -> Value {
    json!({ "action": "decline" })
}

/// Reads the reply of the host. Anything but a clear answer declines.
fn read_reply(mut reply: Value) -> Value {
    match reply["action"].as_str() {
        Some("accept") => {
            let mut result = json!({ "action": "accept" });
            if reply["content"].is_object() {
                result["content"] = reply["content"].take();
            }
            result
        }
        Some("cancel") => cancel(),
        _ => decline(),
    }
}

/// The names of the properties in the order of a JavaScript object, as hosts expect: names that are
/// indices of an array come first.
fn property_order(properties: &Map<String, Value>) -> Vec<String> {
    let index = |name: &str| {
        let index: u32 = name.parse().ok()?;
        (index != u32::MAX && index.to_string() == name).then_some(index)
    };
    let mut names: Vec<String> = properties.keys().cloned().collect();
    names.sort_by_key(|name| index(name).map_or((1, 0), |index| (0, index)));
    names
}
