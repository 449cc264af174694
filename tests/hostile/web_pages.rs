//! Pages that are small on the wire and large in memory.

use serde_json::json;

use crate::support::rotation::rotating_part;
use crate::tools::bench::text;
use crate::tools::web::{LONG, bench_with};
use crate::tools::web_server::{Site, page, response};

const BYTES: usize = 20_000;

#[tokio::test]
async fn a_page_of_any_byte_is_read_and_its_text_is_bounded() {
    let site = Site::start(|request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        let mut parts = path.trim_start_matches('/').split('/');
        let kind = if parts.next() == Some("html") { "text/html" } else { "text/plain" };
        let byte: u8 = parts.next().and_then(|byte| byte.parse().ok()).unwrap_or_default();
        page(kind, vec![byte; BYTES])
    })
    .await;
    let bench = bench_with(LONG, &["127.0.0.1"]);
    for kind in ["html", "plain"] {
        for byte in rotating_part(0..=255_u8, 8) {
            let url = site.url(&format!("/{kind}/{byte}"));
            let outcome = bench.run("WebFetch", json!({ "url": url, "prompt": "x" })).await;
            assert!(!outcome.is_error, "{kind} {byte}: {outcome:?}");
            let length = text(&outcome).len();
            assert!(length < 4 * BYTES + (64 << 10), "{kind} {byte}: {length}");
        }
    }
}

#[tokio::test]
async fn several_large_pages_at_once_are_all_read() {
    let site = Site::start(|request| {
        let byte = if request.contains("nul") { b'\0' } else { b'<' };
        response("200 OK", "content-type: text/html\r\n", vec![byte; 2 << 20])
    })
    .await;
    let bench = bench_with(LONG, &["127.0.0.1"]);
    let one = |path: &str| {
        let url = site.url(path);
        let bench = &bench;
        async move { bench.run("WebFetch", json!({ "url": url, "prompt": "x" })).await }
    };
    let (a, b, c, d) = tokio::join!(one("/nul"), one("/lt"), one("/nul?2"), one("/lt?2"));
    for outcome in [a, b, c, d] {
        assert!(!outcome.is_error, "{outcome:?}");
        assert_eq!(outcome.detail["bytes"], 2 << 20);
    }
}
