//! Requests to the host, and their replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::messages::{HostMessage, StreamMessage, SystemMessage};
use crate::types::{Callback, HostChannel, HostError, HostReply, HostRequest};

/// Maximum length of a request, in bytes of JSON: the Python SDK fails on a longer line.
const REQUEST_BYTES_MAX: usize = 1_000_000;

/// Writes a message to the host without redaction: a request has the content that a hook or an MCP
/// server would receive.
pub type FrameWriter = Callback<dyn Fn(HostMessage) + Send + Sync>;

/// Writes a message of the type `system` to the host, with the session that it is about.
pub type SystemWriter = Callback<dyn Fn(SystemMessage) + Send + Sync>;

/// Reports the state of the session.
pub type StateReporter = Callback<dyn Fn(SessionState) + Send + Sync>;

/// The state of the session that is reported to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum SessionState {
    Running,
    /// The turn waits for a permission, or for the answer to a question of an MCP server.
    RequiresAction,
    Idle,
}

/// The requests without a reply. Clones share them.
#[derive(Clone, Debug)]
pub struct PendingRequests {
    write: FrameWriter,
    announce: SystemWriter,
    report: StateReporter,
    open: Arc<Mutex<OpenRequests>>,
}

#[derive(Debug, Default)]
struct OpenRequests {
    waiting: BTreeMap<String, oneshot::Sender<Result<Value, HostError>>>,
    /// Number of open requests for a decision of the user.
    questions: usize,
    /// True if the host has closed its end, so that no reply can arrive.
    is_closed: bool,
}

impl PendingRequests {
    pub fn new(write: FrameWriter, announce: SystemWriter, report: StateReporter) -> Self {
        Self { write, announce, report, open: Arc::default() }
    }

    /// Passes a reply to the request that waits for it. A reply without such a request is dropped,
    /// because its request was cancelled.
    pub fn resolve(&self, id: &str, reply: Result<Value, String>) {
        let waiting = self.open.lock().waiting.remove(id);
        if let Some(waiting) = waiting {
            // The receiver may have just been dropped.
            let _ = waiting.send(reply.map_err(HostError::Refused));
        }
    }

    /// Fails all open and future requests, because the host has closed its end.
    pub fn close(&self) {
        let mut open = self.open.lock();
        open.is_closed = true;
        for (_, waiting) in std::mem::take(&mut open.waiting) {
            let _ = waiting.send(Err(HostError::Closed));
        }
    }

    async fn ask(&self, request: HostRequest) -> Result<Value, HostError> {
        let id = Uuid::new_v4().to_string();
        let is_question = request.is_question();
        let is_hook = matches!(request, HostRequest::HookCallback { .. });
        let request = Box::new(request);
        let message = HostMessage::ControlRequest { request_id: id.clone(), request };
        let bytes = StreamMessage::from(message.clone()).to_value().to_string().len();
        if bytes > REQUEST_BYTES_MAX {
            let why = format!("the request is {bytes} bytes long, and a host reads at most 1 MB");
            return Err(HostError::NotSent(why));
        }
        let (sender, reply) = oneshot::channel();
        {
            let mut open = self.open.lock();
            if open.is_closed {
                drop(open);
                // The host may still read, so its hooks are informed of the event.
                if is_hook {
                    (self.write)(message);
                }
                return Err(HostError::Closed);
            }
            open.waiting.insert(id.clone(), sender);
        }
        let request = OpenRequest { requests: self, id, is_question };
        request.open_question();
        (self.write)(message);
        let reply = reply.await.unwrap_or(Err(HostError::Closed));
        drop(request);
        reply
    }
}

impl HostChannel for PendingRequests {
    fn request(&self, request: HostRequest) -> HostReply<'_> {
        Box::pin(self.ask(request))
    }

    fn elicitation_complete(&self, server: &str, id: &str) {
        (self.announce)(SystemMessage::ElicitationComplete {
            mcp_server_name: server.to_owned(),
            elicitation_id: id.to_owned(),
        });
    }
}

/// A request that was sent. It is cancelled if it is dropped before its reply.
struct OpenRequest<'a> {
    requests: &'a PendingRequests,
    id: String,
    is_question: bool,
}

impl OpenRequest<'_> {
    /// Counts a request for a decision of the user, and reports the first one.
    fn open_question(&self) {
        if self.is_question {
            let mut open = self.requests.open.lock();
            open.questions += 1;
            let is_first = open.questions == 1;
            drop(open);
            if is_first {
                (self.requests.report)(SessionState::RequiresAction);
            }
        }
    }

    /// Counts the end of such a request, and reports that none is left.
    fn close_question(&self) {
        if self.is_question {
            let mut open = self.requests.open.lock();
            open.questions = open.questions.saturating_sub(1);
            let is_last = open.questions == 0;
            drop(open);
            if is_last {
                (self.requests.report)(SessionState::Running);
            }
        }
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.close_question();
        let was_open = self.requests.open.lock().waiting.remove(&self.id).is_some();
        if was_open {
            let request_id = self.id.clone();
            (self.requests.write)(HostMessage::ControlCancelRequest { request_id });
        }
    }
}
