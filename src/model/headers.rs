//! Parses response headers: `retry-after`, `x-should-retry` and rate limits.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::Serialize;

use crate::recovery::{RetryAfter, RetryAfterSource, RetryHint};

/// The service's rate limits, as its last response reported them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RateLimits {
    /// The subscription's window that is closest to exhaustion: `five_hour`, `seven_day`.
    pub claim: Option<String>,
    /// Time at which that window resets, in seconds since the Unix epoch.
    pub reset: Option<u64>,
    /// The status of use beyond the subscription: `allowed`, `rejected` and so on.
    pub overage_status: Option<String>,
    pub overage_disabled_reason: Option<String>,
    /// The per-minute limits that the response reported.
    pub windows: Vec<RateWindow>,
    /// The clock of the response, by which its times are measured.
    #[serde(skip)]
    date: Option<SystemTime>,
}

/// One per-minute limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RateWindow {
    /// `requests`, `tokens`, `input-tokens` or `output-tokens`.
    pub name: &'static str,
    pub limit: Option<u64>,
    pub remaining: Option<u64>,
    /// Time at which the limit is reset, in seconds since the Unix epoch.
    pub reset: Option<u64>,
}

const PREFIX: &str = "anthropic-ratelimit";
const WINDOWS: [&str; 4] = ["requests", "tokens", "input-tokens", "output-tokens"];

impl RateLimits {
    /// Parses the headers. `None` if the response reports no limits.
    pub fn parse(headers: &HeaderMap) -> Option<Self> {
        // Most responses of gateways have none of these headers.
        if !headers.keys().any(|name| name.as_str().contains(PREFIX)) {
            return None;
        }
        let unified = |name: &str| header_text(headers, &format!("{PREFIX}-unified-{name}"));
        let windows = WINDOWS.iter().filter_map(|name| RateWindow::parse(headers, name)).collect();
        let limits = Self {
            claim: unified("representative-claim"),
            reset: unified("reset").and_then(|reset| parse_unix_seconds(&reset)),
            overage_status: unified("overage-status"),
            overage_disabled_reason: unified("overage-disabled-reason"),
            windows,
            date: None,
        };
        (limits != Self::default()).then(|| Self { date: date_of(headers), ..limits })
    }

    /// The time until `reset`, if the response has just arrived.
    pub fn time_until(&self, reset: u64) -> Option<Duration> {
        duration_until(reset, self.date.unwrap_or_else(wall_clock))
    }

    /// Time at which the exhausted window resets, in seconds since the Unix epoch.
    fn reset_time(&self) -> Option<u64> {
        let exhausted = self.windows.iter().filter(|window| window.remaining == Some(0));
        self.reset.or_else(|| exhausted.filter_map(|window| window.reset).max())
    }
}

impl RateWindow {
    fn parse(headers: &HeaderMap, name: &'static str) -> Option<Self> {
        let field = |field: &str| header_text(headers, &format!("{PREFIX}-{name}-{field}"));
        let count = |value: Option<String>| value.and_then(|value| value.parse().ok());
        let window = Self {
            name,
            limit: count(field("limit")),
            remaining: count(field("remaining")),
            reset: field("reset").and_then(|reset| parse_unix_seconds(&reset)),
        };
        let known = window.limit.is_some() || window.remaining.is_some() || window.reset.is_some();
        known.then_some(window)
    }
}

/// Statuses of a refusal for now, whose body may name the wait: of a rate limit, of an overload,
/// and of an error within a reply.
const REFUSED_FOR_NOW: [u16; 4] = [200, 429, 503, 529];

/// Returns the wait that the server requests: `retry-after-ms`, then `retry-after`, then, for a
/// 429, the reset of the exhausted limit, then, for a refusal for now, the wait that the `body`
/// names. Zero, negative, past or invalid values are ignored. Times are compared with the `date` of
/// the response, or with `now` if it has none.
pub fn parse_retry_after(
    headers: &HeaderMap,
    status: u16,
    body: &str,
    now: SystemTime,
) -> Option<RetryAfter> {
    let now = date_of(headers).unwrap_or(now);
    let requested = header_text(headers, "retry-after-ms")
        .and_then(|millis| positive(millis.parse::<f64>().ok()? / 1e3))
        .or_else(|| parse_wait(&header_text(headers, "retry-after")?, now));
    if let Some(wait) = requested {
        return Some(RetryAfter { wait, source: RetryAfterSource::RetryAfter });
    }
    if status == 429
        && let Some(wait) = time_until_reset(headers, body, now)
    {
        return Some(RetryAfter { wait, source: RetryAfterSource::Reset });
    }
    let wait = parse_wait_in_body(body, now).filter(|_| REFUSED_FOR_NOW.contains(&status))?;
    Some(RetryAfter { wait, source: RetryAfterSource::RetryAfter })
}

/// The time until the exhausted limit is reset, as headers or body report it.
fn time_until_reset(headers: &HeaderMap, body: &str, now: SystemTime) -> Option<Duration> {
    let reset = RateLimits::parse(headers).and_then(|limits| limits.reset_time());
    let until = reset.or_else(|| parse_reset_in_body(body));
    let until = until.or_else(|| parse_reset_without_zone(body, now));
    let wait = until.and_then(|reset| duration_until(reset, now));
    wait.or_else(|| reset_of_other_limits(headers, now))
}

/// Parses `x-should-retry`, the server's own advice on retrying.
pub fn parse_retry_hint(headers: &HeaderMap) -> Option<RetryHint> {
    match header_text(headers, "x-should-retry")?.to_ascii_lowercase().as_str() {
        "true" => Some(RetryHint::Retry),
        "false" => Some(RetryHint::Stop),
        _ => None,
    }
}

/// The request id that the service assigned.
pub fn request_id(headers: &HeaderMap) -> Option<String> {
    const NAMES: [&str; 4] = ["request-id", "x-request-id", "x-amzn-requestid", "apim-request-id"];

    NAMES.iter().find_map(|name| header_text(headers, name))
}

/// The wall clock, for comparison with times that a server names. No duration is measured with it.
pub(super) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// The time at which a response was made, by the clock of its server.
fn date_of(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(&header_text(headers, "date")?).ok()
}

/// A header's text. `LiteLLM` forwards the headers of the upstream service with a prefix.
pub(super) fn header_text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name).or_else(|| headers.get(format!("llm_provider-{name}")))?;
    let value = value.to_str().ok()?.trim_matches(['"', ' ', '\t']);
    (!value.is_empty()).then(|| value.to_owned())
}

/// Parses a wait: seconds, a duration such as `3s` or `11h0m0s`, a time in seconds or milliseconds
/// since the Unix epoch, an HTTP date or one of RFC 3339 or RFC 2822. Takes the first item of a
/// list, to which proxies join repeated headers.
fn parse_wait(value: &str, now: SystemTime) -> Option<Duration> {
    let until = |then: SystemTime| positive(then.duration_since(now).ok()?.as_secs_f64());
    if let Ok(seconds) = value.parse::<f64>() {
        return if seconds > MILLIS_SINCE_EPOCH {
            positive(seconds / 1e3).and_then(|millis| until(UNIX_EPOCH + millis))
        } else if seconds > SECONDS_SINCE_EPOCH {
            positive(seconds).and_then(|seconds| until(UNIX_EPOCH + seconds))
        } else {
            positive(seconds)
        };
    }
    if let Ok(date) = httpdate::parse_http_date(value) {
        return until(date);
    }
    let moment = value.parse::<jiff::Timestamp>();
    if let Ok(moment) = moment.or_else(|_| RFC_2822.parse_timestamp(value)) {
        return until(moment.into());
    }
    if let Ok(duration) = value.parse::<jiff::SignedDuration>() {
        return positive(duration.as_secs_f64());
    }
    value.split_once(',').and_then(|(first, _)| parse_wait(first.trim(), now))
}

/// Dates of mails: like those of HTTP, with any time zone.
const RFC_2822: DateTimeParser = DateTimeParser::new();

/// Larger numbers are times since the Unix epoch: no service requests a wait of thirty years.
const SECONDS_SINCE_EPOCH: f64 = 1e9;
const MILLIS_SINCE_EPOCH: f64 = 1e12;

/// Converts a positive number of seconds, capped at a hundred years: more could overflow a
/// [`Duration`].
fn positive(seconds: f64) -> Option<Duration> {
    (seconds > 0.0 && seconds.is_finite()).then(|| Duration::from_secs_f64(seconds.min(3.2e9)))
}

/// The time until the exhausted limits of other services are reset: `OpenAI`, Groq, `OpenRouter`,
/// Kong.
fn reset_of_other_limits(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    const PREFIXES: [&str; 2] = ["x-ratelimit", "ratelimit"];
    const SUFFIXES: [&str; 3] = ["", "-requests", "-tokens"];

    let reset = |prefix: &str, suffix: &str| {
        let remaining = header_text(headers, &format!("{prefix}-remaining{suffix}"))?;
        let reset = header_text(headers, &format!("{prefix}-reset{suffix}"))?;
        (remaining == "0").then(|| parse_wait(&reset, now))?
    };
    let prefixes = PREFIXES.iter();
    prefixes.flat_map(|prefix| SUFFIXES.map(|suffix| reset(prefix, suffix))).flatten().max()
}

fn duration_until(unix_seconds: u64, now: SystemTime) -> Option<Duration> {
    let then = UNIX_EPOCH.checked_add(Duration::from_secs(unix_seconds))?;
    then.duration_since(now).ok().filter(|wait| !wait.is_zero())
}

/// Parses seconds since the Unix epoch, from a number of seconds or milliseconds or from RFC 3339.
/// Fractions are rounded up, so that no retry comes too early.
fn parse_unix_seconds(value: &str) -> Option<u64> {
    let number = value.parse::<f64>().ok().and_then(|number| {
        let is_millis = number > MILLIS_SINCE_EPOCH;
        positive(if is_millis { number / 1e3 } else { number })
    });
    let moment = || {
        let moment = value.parse::<jiff::Timestamp>().ok()?;
        moment.as_duration().try_into().ok()
    };
    let since_epoch: Duration = number.or_else(moment)?;
    Some(since_epoch.as_secs() + u64::from(since_epoch.subsec_nanos() > 0))
}

/// Parses `Limit resets at: 2026-11-21 21:08:23 UTC`, which `LiteLLM` sends only in the message.
fn parse_reset_in_body(body: &str) -> Option<u64> {
    let (_, rest) = body.split_once("resets at: ")?;
    let (moment, _) = rest.split_once(" UTC")?;
    parse_unix_seconds(&format!("{moment}Z"))
}

/// Parses `Your limit will reset at 2026-11-21 21:08:23`, which z.ai sends without a time zone: it
/// is Beijing time or, if that time is over, UTC.
fn parse_reset_without_zone(body: &str, now: SystemTime) -> Option<u64> {
    let (_, rest) = body.split_once("limit will reset at ")?;
    let moment = rest.get(..19)?;
    let mut resets = ["+08:00", "Z"]
        .into_iter()
        .filter_map(|zone| parse_unix_seconds(&format!("{moment}{zone}")));
    resets.find(|reset| duration_until(*reset, now).is_some())
}

/// Phrases before a wait, in lower case: Google, `OpenRouter`, `OpenAI` and `LiteLLM`, Gemini,
/// Azure, GitHub Copilot; the fields of `Cloudflare`, Discord and others.
#[rustfmt::skip]
const BEFORE_THE_WAIT: [&str; 14] = [
    "\"retrydelay", "x-ratelimit-reset", "try again in ", "retry in ", "retry after ", "wait ",
    "\"retry_after\"", "\"retryafter\"", "\"retry_after_seconds\"", "\"retry-after\"",
    "again after ", "reset after ", "reset in ", "resets in ",
];

/// Parses the wait that a body names, in its fields or in its words. Gateways quote both.
fn parse_wait_in_body(body: &str, now: SystemTime) -> Option<Duration> {
    let body = body.to_ascii_lowercase().replace('\\', "");
    BEFORE_THE_WAIT.iter().find_map(|before| {
        let mut after = body.match_indices(before).map(|(at, _)| &body[at + before.len()..]);
        after.find_map(|after| wait_at(after, now))
    })
}

/// The wait at the start of a text, of at most a few words: `5 seconds`, `11h0m0s.`.
fn wait_at(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim_start_matches(['"', ':', ' ']).trim_start_matches("about ");
    let end = text.find(['"', ',', ';', '(', '}']).unwrap_or(text.len());
    let words: Vec<&str> = text[..end].split_whitespace().take(6).collect();
    let lengths = (1..=words.len()).rev();
    lengths
        .map(|length| words[..length].join(" "))
        .find_map(|wait| parse_wait(wait.trim_end_matches('.'), now))
}

/// The header that names beta features.
pub(super) const BETA: &str = "anthropic-beta";

/// Adds a beta to the configured ones.
pub(super) fn add_beta(headers: &mut HeaderMap, beta: &'static str) {
    let others = headers.get(BETA).and_then(|betas| betas.to_str().ok()).unwrap_or_default();
    let others: Vec<&str> = others.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
    if others.contains(&beta) {
        return;
    }
    let all = [others, vec![beta]].concat().join(",");
    let all = HeaderValue::try_from(all).unwrap_or(HeaderValue::from_static(beta));
    headers.insert(BETA, all);
}
