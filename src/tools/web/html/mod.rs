//! Converts HTML to Markdown in one pass, with bounded memory and depth.

mod converter;
mod escape;
mod flow;
mod page_targets;
#[cfg(all(test, feature = "html-oracle"))]
mod reference;
mod table;
mod tags;
#[cfg(test)]
mod tests;
mod tokens;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::super::outcome::ToolError;
use converter::to_markdown;
pub(super) use page_targets::{PageTargets, refresh_target};

const CONVERSION_TIMEOUT: Duration = Duration::from_secs(20);
const CONVERSIONS_MAX: usize = 4;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConvertedPage {
    pub(super) text: String,
    pub(super) title: Option<String>,
    /// The pages that browsers show instead of it, or within it.
    pub(super) targets: PageTargets,
    /// The reason that its end is missing, if it is.
    pub(super) cut: Option<&'static str>,
}

/// Converts pages, a few at a time.
#[derive(Debug)]
pub(super) struct PageConverter(Arc<Semaphore>);

impl Default for PageConverter {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CONVERSIONS_MAX)))
    }
}

impl PageConverter {
    /// Converts a page. A conversion that takes too long, or whose run ends, stops.
    pub(super) async fn convert(&self, html: String) -> Result<ConvertedPage, ToolError> {
        let stop = CancellationToken::new();
        let _stops_when_dropped = stop.clone().drop_guard();
        let work = async {
            let permit = Arc::clone(&self.0).acquire_owned().await;
            let converting = spawn_blocking(move || {
                let page = to_markdown(&html, &stop);
                drop(permit);
                page
            });
            converting.await.map_err(|_| "the converter failed on it".into())
        };
        let end = tokio::time::timeout(CONVERSION_TIMEOUT, work).await;
        end.unwrap_or_else(|_| {
            Err(format!("that takes longer than {}s", CONVERSION_TIMEOUT.as_secs()).into())
        })
    }
}
