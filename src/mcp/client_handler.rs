//! Handles messages that a server sends on its own: progress, changed tools, `roots/list` requests.
#![expect(deprecated, reason = "roots go with a later protocol; the servers of today ask for them")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::Url;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ErrorData, Implementation, ListRootsResult, NumberOrString,
    ProgressNotificationParam, ProtocolVersion, Root, RootsCapabilities,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};
use tokio::sync::Notify;

use super::environment::ServerEnvironment;

/// The client side's handler for server notifications and requests.
#[derive(Clone)]
pub(super) struct NotificationHandler(Arc<ServerNotices>);

struct ServerNotices {
    /// The folders that the run works in, sent as roots.
    roots: Vec<Root>,
    /// Waiters for progress, by progress token.
    progress: Mutex<HashMap<NumberOrString, Arc<Notify>>>,
    tools_changed: Notify,
}

impl NotificationHandler {
    pub(super) fn new(around: &ServerEnvironment) -> Self {
        let folders = [&around.cwd].into_iter().chain(&around.folders);
        // A path that is not a valid URL is of no use to a server.
        let roots = folders.filter_map(|path| Url::from_file_path(path).ok()).map(Root::new);
        Self(Arc::new(ServerNotices {
            roots: roots.collect(),
            progress: Mutex::default(),
            tools_changed: Notify::new(),
        }))
    }

    /// Waits for a notification that the tools have changed.
    pub(super) async fn wait_for_tool_change(&self) {
        self.0.tools_changed.notified().await;
    }

    /// Notifies `tell` of a request's progress.
    pub(super) fn watch_progress(&self, token: NumberOrString, tell: Arc<Notify>) {
        self.progress().insert(token, tell);
    }

    pub(super) fn unwatch_progress(&self, token: &NumberOrString) {
        self.progress().remove(token);
    }

    fn progress(&self) -> MutexGuard<'_, HashMap<NumberOrString, Arc<Notify>>> {
        self.0.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientHandler for NotificationHandler {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("outlast", env!("CARGO_PKG_VERSION"));
        let mut abilities = ClientCapabilities::default();
        // An unattended run has no user to ask and no model to offer: no elicitation, no sampling.
        // The library rejects such requests.
        abilities.roots = Some(RootsCapabilities::default());
        // The newest version with a handshake; the library would offer one without.
        let version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        ClientConfig::new(abilities, own).with_protocol_version(version)
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(self.0.roots.clone()))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        if let Some(listener) = self.progress().get(&params.progress_token.0) {
            listener.notify_one();
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.tools_changed.notify_one();
    }
}
