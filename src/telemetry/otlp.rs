//! The JSON form of the OpenTelemetry protocol (OTLP 1.x, `ExportTraceServiceRequest` and
//! `ExportMetricsServiceRequest`).

use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::metrics::{Counter, Distribution, QUANTITIES, RunMetrics};
use super::span::{Attribute, AttributeValue, Span, SpanEvent, SpanKind, TraceId};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;

/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

pub(super) fn trace_request(
    resource: &[(String, String)],
    trace: TraceId,
    spans: &[Span],
) -> Value {
    let spans: Vec<Value> = spans.iter().map(|span| span_value(trace, span)).collect();
    json!({
        "resourceSpans": [{
            "resource": { "attributes": resource_attributes(resource) },
            "scopeSpans": [{ "scope": scope(), "spans": spans }],
        }],
    })
}

pub(super) fn metrics_request(
    resource: &[(String, String)],
    metrics: &RunMetrics,
    (start, end): (SystemTime, SystemTime),
) -> Value {
    let times = (nanos(start), nanos(end));
    let histograms = QUANTITIES.into_iter().filter_map(|quantity| {
        let measured = metrics.distributions.iter().filter(|one| one.quantity == quantity);
        let points: Vec<Value> = measured.map(|one| distribution(one, &times)).collect();
        (!points.is_empty()).then(|| {
            json!({
                "name": quantity.name,
                "unit": quantity.unit,
                "histogram": { "aggregationTemporality": CUMULATIVE, "dataPoints": points },
            })
        })
    });
    let mut sums: Vec<Value> = Vec::new();
    for counter in &metrics.counters {
        let point = sum_point(counter, &times);
        match sums.iter_mut().find(|sum| sum["name"] == counter.name) {
            Some(sum) => {
                if let Some(points) = sum["sum"]["dataPoints"].as_array_mut() {
                    points.push(point);
                }
            }
            None => sums.push(json!({
                "name": counter.name,
                "unit": counter.unit,
                "sum": {
                    "aggregationTemporality": CUMULATIVE,
                    "isMonotonic": true,
                    "dataPoints": [point],
                },
            })),
        }
    }
    let metrics: Vec<Value> = histograms.chain(sums.iter().cloned()).collect();
    json!({
        "resourceMetrics": [{
            "resource": { "attributes": resource_attributes(resource) },
            "scopeMetrics": [{ "scope": scope(), "metrics": metrics }],
        }],
    })
}

fn scope() -> Value {
    json!({ "name": "outlast", "version": env!("CARGO_PKG_VERSION") })
}

fn span_value(trace: TraceId, span: &Span) -> Value {
    let mut object = json!({
        "traceId": trace.hex(),
        "spanId": span.id.hex(),
        "name": span.name,
        "kind": match span.kind { SpanKind::Internal => 1, SpanKind::Client => 3 },
        "startTimeUnixNano": nanos(span.start),
        "endTimeUnixNano": nanos(span.end),
        "attributes": attributes(&span.attributes),
        "events": span.events.iter().map(event).collect::<Vec<_>>(),
        "status": status(span.error.as_deref()),
    });
    if let Some(parent) = span.parent {
        object["parentSpanId"] = json!(parent.hex());
    }
    object
}

fn status(error: Option<&str>) -> Value {
    error.map_or_else(|| json!({}), |error| json!({ "code": ERROR, "message": error }))
}

fn event(event: &SpanEvent) -> Value {
    json!({
        "name": event.name,
        "timeUnixNano": nanos(event.at),
        "attributes": attributes(&event.attributes),
    })
}

fn distribution(one: &Distribution, (start, end): &(String, String)) -> Value {
    json!({
        "attributes": attributes(&one.attributes),
        "startTimeUnixNano": start,
        "timeUnixNano": end,
        "count": one.count.to_string(),
        "sum": one.sum,
        "explicitBounds": one.quantity.bounds,
        "bucketCounts": one.buckets.map(|count| count.to_string()),
    })
}

fn sum_point(counter: &Counter, (start, end): &(String, String)) -> Value {
    json!({
        "attributes": attributes(&counter.attributes),
        "startTimeUnixNano": start,
        "timeUnixNano": end,
        "asDouble": counter.sum,
    })
}

fn resource_attributes(resource: &[(String, String)]) -> Vec<Value> {
    resource.iter().map(|(name, value)| key_value(name, json!({ "stringValue": value }))).collect()
}

fn attributes(attributes: &[Attribute]) -> Vec<Value> {
    attributes.iter().map(|(name, value)| key_value(name, any_value(value))).collect()
}

fn key_value(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([("key".to_owned(), json!(name)), ("value".to_owned(), value)]))
}

/// Returns the `AnyValue` of an attribute. 64-bit integers are strings in OTLP's JSON encoding.
fn any_value(value: &AttributeValue) -> Value {
    let (name, value) = match value {
        AttributeValue::Text(text) => ("stringValue", json!(text)),
        AttributeValue::Number(number) => ("intValue", json!(number.to_string())),
        AttributeValue::Decimal(decimal) => ("doubleValue", json!(decimal)),
        AttributeValue::Flag(flag) => ("boolValue", json!(flag)),
        AttributeValue::List(texts) => {
            let values = texts.iter().map(|text| json!({ "stringValue": text }));
            ("arrayValue", json!({ "values": values.collect::<Vec<_>>() }))
        }
    };
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}

/// Formats a time as nanoseconds since the Unix epoch.
fn nanos(at: SystemTime) -> String {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos()).to_string()
}
