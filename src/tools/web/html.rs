//! Converts HTML to Markdown with bounded time, memory and depth.

use std::rc::Rc;
use std::thread;
use std::time::Duration;

use htmd::HtmlToMarkdown;
use htmd::options::{BulletListMarker, Options};
use html5ever::tendril::StrTendril;
use markup5ever_rcdom::{Handle, Node, NodeData};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::super::outcome::ToolError;
use super::bounded_tree::{HtmlTree, parse_bounded};

/// The time limit for one conversion.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(20);
/// The limit on simultaneous conversions, including those that timed out but still run.
const CONVERSIONS_MAX: usize = 4;
/// The converter is recursive, so deeper levels are flattened.
const LEVELS_MAX: usize = 200;
/// Enough for that many levels in a debug build. Unused stack costs no memory.
const STACK_BYTES: usize = 64 << 20;

/// Elements without text for readers.
const SKIPPED: [&str; 8] =
    ["script", "style", "template", "svg", "iframe", "object", "canvas", "head"];

/// A page as Markdown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConvertedPage {
    pub(super) text: String,
    pub(super) title: Option<String>,
    /// Why its end is missing, if it is.
    pub(super) cut: Option<&'static str>,
}

/// Converts pages, a few at a time.
#[derive(Debug)]
pub(super) struct PageConverter(std::sync::Arc<Semaphore>);

impl Default for PageConverter {
    fn default() -> Self {
        Self(std::sync::Arc::new(Semaphore::new(CONVERSIONS_MAX)))
    }
}

impl PageConverter {
    /// Converts a page on its own thread, which is left behind if it takes too long or the run
    /// ends.
    ///
    /// # Errors
    /// Why there is no text.
    pub(super) async fn convert(&self, html: String) -> Result<ConvertedPage, ToolError> {
        let stop = CancellationToken::new();
        let _stops_when_dropped = stop.clone().drop_guard();
        let work = async {
            let permit = std::sync::Arc::clone(&self.0).acquire_owned().await;
            let (tell, told) = oneshot::channel();
            let body = move || {
                // The receiver may have been dropped.
                let _ = tell.send(to_markdown(&html, &stop));
                drop(permit);
            };
            let named = thread::Builder::new().name("html".to_owned()).stack_size(STACK_BYTES);
            named.spawn(body).map_err(|error| format!("no thread can be started: {error}"))?;
            told.await.map_err(|_| "the converter failed on it".into())
        };
        let end = tokio::time::timeout(CONVERSION_TIMEOUT, work).await;
        end.unwrap_or_else(|_| {
            Err(format!("that takes longer than {}s", CONVERSION_TIMEOUT.as_secs()).into())
        })
    }
}

fn to_markdown(html: &str, stop: &CancellationToken) -> ConvertedPage {
    let HtmlTree { document, cut } = parse_bounded(html, stop);
    flatten_deep_elements(&document);
    let title = title(&document);
    let options = Options {
        bullet_list_marker: BulletListMarker::Dash,
        ul_bullet_spacing: 1,
        ..Options::default()
    };
    let converter = HtmlToMarkdown::builder().options(options).skip_tags(SKIPPED.to_vec()).build();
    let text = converter.tree_to_markdown(&document);
    ConvertedPage { text, title, cut }
}

/// Replaces elements that are nested too deep by their text.
fn flatten_deep_elements(document: &Handle) {
    let mut open = vec![(Rc::clone(document), 0)];
    while let Some((node, level)) = open.pop() {
        if level < LEVELS_MAX {
            let children = node.children.borrow();
            open.extend(children.iter().map(|child| (Rc::clone(child), level + 1)));
        } else if !node.children.borrow().is_empty() {
            let text = text_within(&node);
            let leaf = Node::new(NodeData::Text { contents: StrTendril::from_slice(&text).into() });
            node.children.replace(vec![leaf]);
        }
    }
}

/// All text below a node, in document order.
fn text_within(node: &Handle) -> String {
    let mut text = String::new();
    let mut open = vec![Rc::clone(node)];
    while let Some(node) = open.pop() {
        match &node.data {
            NodeData::Text { contents } => {
                text.push_str(&contents.borrow());
                text.push(' ');
            }
            NodeData::Element { name, .. } if SKIPPED.contains(&&*name.local) => {}
            NodeData::Document
            | NodeData::Doctype { .. }
            | NodeData::Comment { .. }
            | NodeData::Element { .. }
            | NodeData::ProcessingInstruction { .. } => {
                open.extend(node.children.borrow().iter().rev().cloned());
            }
        }
    }
    text
}

/// The title of the page.
fn title(document: &Handle) -> Option<String> {
    let mut place = Rc::clone(document);
    for tag in ["html", "head", "title"] {
        let is_it = |node: &&Handle| match &node.data {
            NodeData::Element { name, .. } => &*name.local == tag,
            NodeData::Document
            | NodeData::Doctype { .. }
            | NodeData::Text { .. }
            | NodeData::Comment { .. }
            | NodeData::ProcessingInstruction { .. } => false,
        };
        let found = place.children.borrow().iter().find(is_it).cloned()?;
        place = found;
    }
    let title = text_within(&place).split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = title.chars().take(200).collect();
    Some(short).filter(|title| !title.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn convert(html: impl Into<String>) -> ConvertedPage {
        PageConverter::default().convert(html.into()).await.expect("every page can be converted")
    }

    #[tokio::test]
    async fn a_page_becomes_markdown_without_scripts_and_styles() {
        let page = "<!doctype html><html><head><title>A \n page</title><style>p{}</style></head>\
                    <body><h1>Head</h1><script>alert(1)</script><p>One <b>two</b> \
                    <a href=\"/x\">three</a>.</p><ul><li>a<li>b</ul><noscript>plain</noscript>\
                    <pre><code>let x = 1;\n  y</code></pre></body></html>";
        let page = convert(page).await;
        assert_eq!(page.title.as_deref(), Some("A page"));
        assert_eq!(page.cut, None);
        for part in ["# Head", "One **two** [three](/x).", "- a\n- b", "plain", "let x = 1;\n  y"] {
            assert!(page.text.contains(part), "no {part:?} in:\n{}", page.text);
        }
        for part in ["alert", "p{}", "A page"] {
            assert!(!page.text.contains(part), "{part:?} in:\n{}", page.text);
        }
    }

    #[tokio::test]
    async fn text_below_the_levels_that_are_converted_is_kept() {
        let depth = LEVELS_MAX + 100;
        let page = format!("{}deep<i>er</i>{}after", "<div>".repeat(depth), "</div>".repeat(depth));
        let page = convert(page).await;
        assert_eq!(page.cut, None);
        assert!(page.text.contains("deep er"), "{}", page.text);
        assert!(page.text.ends_with("after"), "{}", page.text);
    }

    #[tokio::test]
    async fn a_deeply_nested_page_neither_overflows_the_stack_nor_times_out() {
        for tag in ["<div>", "<b>", "<table><td>", "<svg><g>", "<template>", "<object>"] {
            let page = convert(format!("<p>first</p>{}", tag.repeat((1 << 20) / tag.len()))).await;
            assert!(page.text.contains("first"), "{tag}");
            assert!(page.cut.is_some(), "{tag}");
        }
    }

    #[tokio::test]
    async fn a_page_with_unclosed_elements_is_truncated() {
        let open =
            (0..400).fold(String::new(), |open, number| open + &format!("<font color={number}>"));
        let page = convert(format!("{open}{}", "<p>x".repeat(500_000))).await;
        assert!(page.cut.is_some());
    }

    #[tokio::test]
    async fn the_maximum_number_of_siblings_is_converted_in_time() {
        let page = convert("<b>x</b>".repeat(99_000)).await;
        assert!(page.text.contains("xxx"));
        let page = convert("<!---->".repeat(200_000)).await;
        assert!(page.cut.is_some());
    }
}
