//! Fetches a page, following redirects within the same site.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use percent_encoding::{AsciiSet, percent_encode};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION,
    REFRESH, RETRY_AFTER, USER_AGENT,
};
use reqwest::{Response, StatusCode, Url};
use tokio::io::AsyncReadExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::io::StreamReader;

use super::super::outcome::ToolError;
use super::address_guard::Private;
use super::unpack::{PackedError, PageBody, unpack};
use super::url_check::{is_same_site, parse_url};

/// The maximum number of redirects within a site.
const REDIRECTS_MAX: usize = 8;
/// The maximum part of a page that is read, in bytes after decompression.
pub(super) const BODY_BYTES_MAX: usize = 10 << 20;
/// The size above which a page is large, in bytes: only one large page at a time is in memory.
const SMALL_BYTES_MAX: usize = 1 << 20;
/// The maximum part of the body of an error response that is read, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The size of the parts in which a body is read, in bytes.
const CHUNK: usize = 16 << 10;
/// The empty set of ASCII characters: only other bytes are encoded.
const BEYOND_ASCII: &AsciiSet = &AsciiSet::EMPTY;

const USER_AGENT_VALUE: &str = concat!("outlast/", env!("CARGO_PKG_VERSION"), " (WebFetch)");
const ACCEPT_VALUE: &str = "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/*;q=0.8, \
     application/json;q=0.8, */*;q=0.5";

#[derive(Debug)]
pub(super) enum FetchResult {
    Page(FetchedPage),
    /// A redirect to another site, which needs permission of its own.
    OtherSite {
        status: StatusCode,
        to: Url,
    },
}

#[derive(Debug)]
pub(super) struct FetchedPage {
    pub(super) url: Url,
    pub(super) status: StatusCode,
    pub(super) content_type: Option<String>,
    pub(super) retry_after: Option<String>,
    /// The header that makes a browser load another page.
    pub(super) refresh: Option<String>,
    pub(super) body: Vec<u8>,
    /// True if the body was longer than the limit.
    pub(super) is_cut: bool,
    /// The permit of a large page: until it is dropped, no other large page is read.
    large_page: Option<OwnedSemaphorePermit>,
}

/// The semaphore that limits the large pages in memory to one.
pub(super) type LargePages = Arc<Semaphore>;

/// The time limit of a fetch, including redirects.
#[derive(Clone, Copy)]
struct Deadline {
    end: Instant,
    timeout: Duration,
}

impl Deadline {
    /// Awaits a step of the fetch. `lateness` begins the error if the step does not end in time.
    async fn limit<T>(self, step: impl Future<Output = T>, lateness: &str) -> Result<T, ToolError> {
        let late = |_| format!("{lateness} within {}s", self.timeout.as_secs_f64());
        Ok(timeout_at(self.end, step).await.map_err(late)?)
    }
}

/// Fetches `url`, following redirects. `send` sends one request.
pub(super) async fn get<F: Future<Output = Result<Response, ToolError>>>(
    mut url: Url,
    timeout: Duration,
    large: &LargePages,
    send: impl Fn(Url) -> F,
) -> Result<FetchResult, ToolError> {
    let deadline = Deadline { end: Instant::now() + timeout, timeout };
    for _ in 0..=REDIRECTS_MAX {
        let response = deadline.limit(send(url.clone()), "the server did not answer").await??;
        let Some(next) = redirect_target(&response, &url)? else {
            return read_page(response, url, deadline, large).await.map(FetchResult::Page);
        };
        if !is_same_site(&url, &next) {
            return Ok(FetchResult::OtherSite { status: response.status(), to: next });
        }
        url = next;
    }
    Err(format!("more than {REDIRECTS_MAX} redirects, the last to {url}").into())
}

/// Sends one request, which identifies only the user agent.
pub(super) async fn send(client: &reqwest::Client, url: Url) -> Result<Response, ToolError> {
    let request = client.get(url).header(USER_AGENT, USER_AGENT_VALUE).header(ACCEPT, ACCEPT_VALUE);
    let request = request.header(ACCEPT_ENCODING, "gzip");
    request.send().await.map_err(|error| explain(&error).into())
}

fn redirect_target(response: &Response, from: &Url) -> Result<Option<Url>, ToolError> {
    let status = response.status().as_u16();
    let Some(location) =
        response.headers().get(LOCATION).filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308))
    else {
        return Ok(None);
    };
    let bad =
        |why: &dyn Display| format!("HTTP {status}: redirect to a URL that is not fetched: {why}");
    // Bytes in another encoding are sent back to the server as they are.
    let location = str::from_utf8(location.as_bytes()).map_or_else(
        |_| percent_encode(location.as_bytes(), BEYOND_ASCII).to_string(),
        ToOwned::to_owned,
    );
    let next = from.join(&location).map_err(|error| bad(&error))?;
    Ok(Some(parse_url(next.as_str()).map_err(|why| bad(&why))?))
}

async fn read_page(
    response: Response,
    url: Url,
    deadline: Deadline,
    large: &LargePages,
) -> Result<FetchedPage, ToolError> {
    let status = response.status();
    let header = |name| header(response.headers(), &name);
    let (content_type, retry_after) = (header(CONTENT_TYPE), header(RETRY_AFTER));
    let (refresh, encoding) = (header(REFRESH), header(CONTENT_ENCODING).unwrap_or_default());
    let chunks = response.bytes_stream().map_err(io::Error::other);
    let packed: PageBody = Box::new(StreamReader::new(Box::pin(chunks)));
    let mut page = FetchedPage {
        url,
        status,
        content_type,
        retry_after,
        refresh,
        body: Vec::new(),
        is_cut: false,
        large_page: None,
    };
    match deadline.limit(unpack(packed, &encoding), "the page did not begin").await? {
        Ok(unpacked) => read_body(unpacked, &mut page, deadline, large).await?,
        // The status of an error response is enough.
        Err(PackedError::UnreadForm(_) | PackedError::TooManyForms(_)) if !status.is_success() => {}
        Err(PackedError::Broken(error)) => return Err(broken(0, &error).into()),
        Err(error) => return Err(error.to_string().into()),
    }
    Ok(page)
}

/// Reads the body of a page, up to the limit of its size.
async fn read_body(
    mut unpacked: PageBody,
    page: &mut FetchedPage,
    deadline: Deadline,
    large: &LargePages,
) -> Result<(), ToolError> {
    let limit = if page.status.is_success() { BODY_BYTES_MAX } else { ERROR_BYTES_MAX };
    let (body, mut chunk) = (&mut page.body, vec![0; CHUNK]);
    while !page.is_cut {
        let so_far = body.len();
        let read = deadline.limit(unpacked.read(&mut chunk), "the page did not end").await;
        let read = read.map_err(|late| format!("{late}; {so_far} bytes of it had come"))?;
        let read = read.map_err(|error| broken(so_far, &error))?;
        if read == 0 {
            break;
        }
        let room = limit.saturating_sub(so_far).min(read);
        if page.large_page.is_none() && so_far + room > SMALL_BYTES_MAX {
            let turn = Arc::clone(large).acquire_owned();
            let permit = deadline.limit(turn, "the page before it did not end").await?;
            // The semaphore is never closed.
            page.large_page = permit.ok();
        }
        if body.capacity() - so_far < room {
            // Growth by doubling would take up to twice as much.
            body.reserve_exact(room.max(SMALL_BYTES_MAX));
        }
        body.extend_from_slice(&chunk[..room]);
        page.is_cut = room < read;
    }
    Ok(())
}

/// The values of a header, joined by commas.
fn header(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values = headers.get_all(name).iter();
    let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// Describes the failure to read a body to its end.
fn broken(so_far: usize, error: &io::Error) -> String {
    let transport = error.get_ref().and_then(|cause| cause.downcast_ref::<reqwest::Error>());
    let why = transport.map_or_else(|| format!("it cannot be unpacked ({error})"), explain);
    format!("the page broke off after {so_far} bytes: {why}")
}

/// Explains an error by its innermost cause, without the library's wrapping.
fn explain(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let (mut innermost, mut is_short) = (None, false);
    for cause in causes {
        let end = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        is_short |= end == Some(io::ErrorKind::UnexpectedEof);
        if let Some(private) = cause.downcast_ref::<Private>() {
            return private.to_string();
        }
        innermost = Some(cause);
    }
    let what = if error.is_timeout() {
        "the connection took too long"
    } else if error.is_connect() {
        "no connection"
    } else if is_short {
        "it ended too early"
    } else {
        "the connection failed"
    };
    innermost.map_or_else(|| what.to_owned(), |cause| format!("{what} ({cause})"))
}
