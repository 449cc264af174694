//! What a server says and asks without being asked: progress, news of its tools, where we work.
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

use super::servers::ServerEnvironment;

/// What a server says unasked.
#[derive(Clone)]
pub(super) struct NotificationHandler(Arc<ServerNotices>);

struct ServerNotices {
    /// The folders that the run works in.
    roots: Vec<Root>,
    /// Who waits for progress, by token.
    progress: Mutex<HashMap<NumberOrString, Arc<Notify>>>,
    tools_changed: Notify,
}

impl NotificationHandler {
    pub(super) fn new(around: &ServerEnvironment) -> Self {
        let folders = [&around.cwd].into_iter().chain(&around.folders);
        // A path that is no address is none that a server could use.
        let roots = folders.filter_map(|path| Url::from_file_path(path).ok()).map(Root::new);
        Self(Arc::new(ServerNotices {
            roots: roots.collect(),
            progress: Mutex::default(),
            tools_changed: Notify::new(),
        }))
    }

    /// Waits for word that the tools are others now.
    pub(super) async fn wait_for_tool_change(&self) {
        self.0.tools_changed.notified().await;
    }

    /// Has a request's progress told.
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
        // Nobody is there to be asked, and no other model: so no elicitation, no sampling. A
        // server that asks all the same is told so by the library.
        abilities.roots = Some(RootsCapabilities::default());
        // The newest that begins with a handshake; the library would offer one that does not.
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
