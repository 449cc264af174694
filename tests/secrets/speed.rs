//! The processor time of redaction, which the operating system counts: not a test of the core alone.

use outlast::secrets::Redactor;

use crate::support::stopwatch::processor_time;

/// Generous for a debug build; anything quadratic takes minutes.
#[test]
fn redacting_ten_megabytes_of_plain_text_is_fast() {
    let line =
        "2026-01-01T00:00:00Z INFO  worker-17 compiled src/lib.rs in 1.2s (ok: 14, failed: 0)\n";
    let text = line.repeat((10 << 20) / line.len());
    let before = processor_time();
    assert!(Redactor::default().redact(&text) == text);
    let took = processor_time().saturating_sub(before);
    assert!(took.as_secs() < 20, "{took:?}");
    eprintln!("10 MB in {took:?}");
}
