//! Whatever a service says of an error, it has exactly one meaning.

use std::time::{Duration, SystemTime};

use super::Tape;
use outlast::model::RateLimits;
use outlast::model::fault::fault_of_response;
use outlast::recovery::{ErrorClass, classify};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

const HEADERS: [&str; 10] = [
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "request-id",
    "content-type",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-unified-reset",
    "anthropic-ratelimit-unified-status",
    "anthropic-ratelimit-tokens-remaining",
    "date",
];

pub fn run(data: &[u8]) {
    let mut tape = Tape(data);
    let status = 100 + (u16::from(tape.byte()) << 1 | u16::from(tape.byte() & 1)) % 500;
    let mut headers = HeaderMap::new();
    for _ in 0..tape.below(4) {
        let name = HeaderName::from_static(tape.pick::<&str>(&HEADERS));
        if let Ok(value) = HeaderValue::from_bytes(tape.take(40)) {
            headers.insert(name, value);
        }
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
    let _ = RateLimits::parse(&headers);
    let fault = fault_of_response(status, &headers, tape.0, now);
    let failure = classify(&fault);
    assert!(ErrorClass::ALL.contains(&failure.class));
    assert!(fault.detail().len() < 4_096, "an error text without end");
}
