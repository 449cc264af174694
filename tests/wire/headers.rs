//! Headers of responses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast::model::fault::fault_of_response;
use outlast::model::headers::{RateLimits, parse_retry_after, parse_retry_hint};
use outlast::recovery::{RetryAfter, RetryAfterSource, RetryHint};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::recorded;

/// 2026-11-21 21:00:00 UTC.
const NOW: u64 = 1_795_294_800;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// Headers, and the wait in seconds that they ask for.
type Case<'a> = (&'a [(&'a str, &'a str)], Option<f64>);

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        let name: HeaderName = name.parse().expect("a name");
        (name, HeaderValue::from_str(value).expect("a value"))
    };
    pairs.iter().map(pair).collect()
}

fn parsed_retry_after(status: u16, pairs: &[(&str, &str)]) -> Option<(f64, RetryAfterSource)> {
    let wish = parse_retry_after(&headers(pairs), status, "", now())?;
    Some((wish.wait.as_secs_f64(), wish.source))
}

#[test]
fn retry_after_is_read_in_all_its_forms() {
    use RetryAfterSource::RetryAfter;

    let cases: &[Case<'_>] = &[
        (&[("retry-after", "7")], Some(7.0)),
        (&[("retry-after", " 1.5 ")], Some(1.5)),
        (&[("retry-after", "Sat, 21 Nov 2026 21:00:03 GMT")], Some(3.0)),
        (&[("retry-after-ms", "300"), ("retry-after", "5")], Some(0.3)),
        (&[("retry-after-ms", "x"), ("retry-after", "5")], Some(5.0)),
        (&[("llm_provider-retry-after", "9")], Some(9.0)),
        (&[("retry-after", "1e9")], Some(1e9)),
        (&[("retry-after", "inf")], None),
        // Two headers, joined by a proxy.
        (&[("retry-after", "3, 3")], Some(3.0)),
        (&[("retry-after", "3s")], Some(3.0)),
        (&[("retry-after", "\"3\"")], Some(3.0)),
        (&[("retry-after", "Sat, 21 Nov 2026 22:00:03 +0100")], Some(3.0)),
        (&[("retry-after", "1m30.5s")], Some(90.5)),
        (&[("retry-after", "1795294804")], Some(4.0)),
        (&[("retry-after", "1795294804500")], Some(4.5)),
        (&[("retry-after", "1795294799")], None),
        (&[("retry-after", "2026-11-21T21:00:04Z")], Some(4.0)),
        (&[("retry-after", "2026-11-21T20:00:04Z")], None),
        (&[("retry-after", "-3s")], None),
        (&[("retry-after", "0")], None),
        (&[("retry-after", "-1")], None),
        (&[("retry-after", "NaN")], None),
        (&[("retry-after", "soon")], None),
        (&[("retry-after", "Sat, 21 Nov 2026 20:59:59 GMT")], None),
        (&[], None),
    ];
    for (pairs, expected) in cases {
        let (pairs, expected) = (*pairs, *expected);
        for status in [408, 429, 500, 529] {
            let expected = expected.map(|seconds| (seconds, RetryAfter));
            assert_eq!(parsed_retry_after(status, pairs), expected, "{pairs:?}");
        }
    }
}

#[test]
fn a_rate_limit_waits_for_its_reset() {
    use RetryAfterSource::Reset;

    let unified = [("anthropic-ratelimit-unified-reset", "1795295400")];
    assert_eq!(parsed_retry_after(429, &unified), Some((600.0, Reset)));
    assert_eq!(parsed_retry_after(529, &unified), None, "only a 429 is about limits");
    for (value, seconds) in [("1795295399.5", 600.0), ("1795295400000", 600.0)] {
        let unified = [("anthropic-ratelimit-unified-reset", value)];
        assert_eq!(parsed_retry_after(429, &unified), Some((seconds, Reset)), "{value}");
    }
    let minute = [
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "2026-11-21T21:00:10Z"),
        ("anthropic-ratelimit-tokens-remaining", "0"),
        ("anthropic-ratelimit-tokens-reset", "2026-11-21T21:00:29.2Z"),
        ("anthropic-ratelimit-input-tokens-remaining", "17"),
        ("anthropic-ratelimit-input-tokens-reset", "2026-11-21T21:00:59Z"),
    ];
    assert_eq!(
        parsed_retry_after(429, &minute),
        Some((30.0, Reset)),
        "the last of those that ran out"
    );
    let past = [("anthropic-ratelimit-unified-reset", "1795294800")];
    assert_eq!(parsed_retry_after(429, &past), None);
    let both = [unified[0], ("retry-after", "5")];
    assert_eq!(parsed_retry_after(429, &both), Some((5.0, RetryAfterSource::RetryAfter)));
}

#[test]
fn a_moment_is_measured_by_the_clock_of_the_answer() {
    let date = ("date", "Sat, 21 Nov 2026 22:00:00 GMT");
    let moments = [
        ("retry-after", "Sat, 21 Nov 2026 22:00:02 GMT"),
        ("retry-after", "1795298402"),
        ("anthropic-ratelimit-unified-reset", "2026-11-21T22:00:02Z"),
    ];
    for moment in moments {
        let wait = |pairs: &[_]| parsed_retry_after(429, pairs).map(|(wait, _)| wait);
        assert_eq!(wait(&[date, moment]), Some(2.0), "{moment:?}");
        assert_eq!(wait(&[moment]), Some(3_602.0), "{moment:?}: by the own clock");
        assert_eq!(wait(&[("date", "today"), moment]), Some(3_602.0), "{moment:?}");
    }
}

/// Other runs on the host learn how long a window lasts.
#[test]
fn the_time_until_a_reset_is_measured_by_the_clock_of_the_answer() {
    let reset = ("anthropic-ratelimit-unified-reset", "2000-01-01T00:00:09Z");
    let limits = |pairs: &[_]| RateLimits::parse(&headers(pairs)).expect("there are some");
    let then = limits(&[reset, ("date", "Sat, 01 Jan 2000 00:00:00 GMT")]);
    let wait = then.time_until(then.reset.expect("it was read"));
    assert_eq!(wait, Some(Duration::from_secs(9)));
    let now = limits(&[reset]);
    assert_eq!(now.time_until(now.reset.expect("it was read")), None, "long ago");
}

/// The headers of `OpenAI` and Groq, `OpenRouter`, Kong.
#[test]
fn the_reset_of_an_exhausted_limit_of_other_services_is_read() {
    let reset = |pairs: &[_]| parsed_retry_after(429, pairs);
    let exhausted = ("x-ratelimit-remaining", "0");
    let cases: &[Case<'_>] = &[
        (&[exhausted, ("x-ratelimit-reset", "1795334400000")], Some(39_600.0)),
        (&[exhausted, ("x-ratelimit-reset", "1795294860")], Some(60.0)),
        (&[("ratelimit-remaining", "0"), ("ratelimit-reset", "12")], Some(12.0)),
        (
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "11h0m0s"),
                ("x-ratelimit-remaining-tokens", "17"),
                ("x-ratelimit-reset-tokens", "20h"),
            ],
            Some(39_600.0),
        ),
        (&[("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "60")], None),
        (&[("x-ratelimit-reset", "60")], None),
    ];
    for (pairs, expected) in cases {
        let expected = expected.map(|wait| (wait, RetryAfterSource::Reset));
        assert_eq!(reset(pairs), expected, "{pairs:?}");
        assert_eq!(parsed_retry_after(500, pairs), None, "only a 429 is about limits");
    }
}

/// The bodies of Google, alone and quoted, of `OpenRouter`, `OpenAI`, `LiteLLM` and Azure.
#[test]
fn a_wait_that_only_the_body_names_is_read() {
    let cases = [
        (
            r#"{"error":{"details":[{"@type":"x.RetryInfo","retryDelay":"39600s"}]}}"#,
            Some(39_600.0),
        ),
        (r#"{"error":{"message":"{\"retryDelay\": \"34.5s\"}"}}"#, Some(34.5)),
        (
            r#"{"error":{"metadata":{"headers":{"X-RateLimit-Reset":"1795334400000"}}}}"#,
            Some(39_600.0),
        ),
        (r#"{"metadata":{"headers":{"X-RateLimit-Reset":1795294860}}}"#, Some(60.0)),
        ("Limit 100, Used 100. Please try again in 11h0m0s. See more", Some(39_600.0)),
        ("Please try again in 7m12.5s", Some(432.5)),
        ("No deployments available. Try again in 5 seconds. Passed model=x", Some(5.0)),
        ("Please retry after 2 seconds.", Some(2.0)),
        ("Please retry in 359ms.", Some(0.359)),
        ("Try again in a few minutes. Or try again in 3s", Some(3.0)),
        ("Please upgrade your plan or wait 3 seconds for your limit to reset.", Some(3.0)),
        ("Please wait before you try again, or wait 2m", Some(120.0)),
        (r#"{"error":{"message":"slow","retry_after":2}}"#, Some(2.0)),
        (r#"{"retryAfter": "3"}"#, Some(3.0)),
        (r#"{"retry_after_seconds":4,"retry_after":null}"#, Some(4.0)),
        (r#"{"retry-after": 2}"#, Some(2.0)),
        ("Please try again after 3 seconds.", Some(3.0)),
        ("Your quota will reset after 20h30m.", Some(73_800.0)),
        ("The limit resets in 2 minutes", Some(120.0)),
        ("Please try again in about 3 seconds", Some(3.0)),
        (r#"{"retry_after_ms":4000}"#, None),
        ("try again in -3s", None),
        ("Please try again later", None),
    ];
    for (body, expected) in cases {
        let wait = |status| {
            let wish = parse_retry_after(&HeaderMap::new(), status, body, now());
            wish.map(|wish| wish.wait.as_secs_f64())
        };
        assert_eq!([429, 503, 529].map(wait), [expected; 3], "{body}");
        assert_eq!([400, 500].map(wait), [None; 2], "{body}");
    }
    let headers = headers(&[("retry-after", "5")]);
    let wish = parse_retry_after(&headers, 429, cases[0].0, now());
    assert_eq!(wish.map(|wish| wish.wait), Some(Duration::from_secs(5)), "the header is first");
}

/// z.ai names no time zone: that of Beijing, unless that time is over.
#[test]
fn a_reset_without_a_time_zone_is_the_next_one() {
    let wait = |hours: u64, zone: i64| {
        let then = jiff::Timestamp::try_from(now() + Duration::from_secs(hours * 3_600));
        let then = then.expect("a time") + jiff::SignedDuration::from_hours(zone);
        let then = then.strftime("%Y-%m-%d %H:%M:%S");
        let body = format!(r#"{{"message":"Your limit will reset at {then}"}}"#);
        let wish = parse_retry_after(&HeaderMap::new(), 429, &body, now());
        wish.map(|wish| wish.wait.as_secs().div_ceil(3_600))
    };
    assert_eq!((wait(3, 8), wait(3, 0), wait(12, 0)), (Some(3), Some(3), Some(4)));
}

#[test]
fn a_reset_that_is_only_in_the_text_is_found() {
    let fault =
        fault_of_response(429, &HeaderMap::new(), &recorded("bodies/litellm-429-key.json"), now());
    let wait = Duration::from_secs(8 * 60 + 23);
    assert_eq!(fault.retry_after, Some(RetryAfter { wait, source: RetryAfterSource::Reset }));
}

#[test]
fn the_should_retry_header_is_parsed() {
    let verdict = |value| parse_retry_hint(&headers(&[("x-should-retry", value)]));
    assert_eq!(verdict("true"), Some(RetryHint::Retry));
    assert_eq!(verdict("False"), Some(RetryHint::Stop));
    assert_eq!(verdict("maybe"), None);
}

#[test]
fn limits_are_read_when_there_are_any() {
    assert_eq!(RateLimits::parse(&headers(&[("retry-after", "7")])), None);
    let limits = RateLimits::parse(&headers(&[
        ("anthropic-ratelimit-unified-representative-claim", "five_hour"),
        ("anthropic-ratelimit-unified-reset", "1795295400"),
        ("anthropic-ratelimit-unified-overage-status", "rejected"),
        ("anthropic-ratelimit-unified-overage-disabled-reason", "out_of_credits"),
        ("anthropic-ratelimit-output-tokens-limit", "8000"),
        ("anthropic-ratelimit-output-tokens-remaining", "7999"),
        ("anthropic-ratelimit-output-tokens-reset", "2026-11-21T22:00:00+01:00"),
    ]))
    .expect("there are some");
    assert_eq!(limits.claim.as_deref(), Some("five_hour"));
    assert_eq!(limits.reset, Some(NOW + 600));
    assert_eq!(limits.overage_status.as_deref(), Some("rejected"));
    assert_eq!(limits.overage_disabled_reason.as_deref(), Some("out_of_credits"));
    let window = &limits.windows[0];
    assert_eq!(
        (window.name, window.limit, window.remaining),
        ("output-tokens", Some(8000), Some(7999))
    );
    assert_eq!(window.reset, Some(NOW));
}

#[test]
fn a_refusal_carries_what_the_headers_said() {
    let headers = headers(&[
        ("request-id", "req_9"),
        ("x-should-retry", "false"),
        ("retry-after", "2"),
        ("anthropic-ratelimit-unified-overage-disabled-reason", "no_limits_configured"),
    ]);
    let fault = fault_of_response(529, &headers, b"", now());
    assert_eq!(fault.request_id.as_deref(), Some("req_9"));
    assert_eq!(fault.retry_hint, Some(RetryHint::Stop));
    assert_eq!(fault.retry_after.map(|wish| wish.wait), Some(Duration::from_secs(2)));
    assert_eq!(fault.overage_disabled.as_deref(), Some("no_limits_configured"));
}
