//! OpenTelemetry spans and their attributes.

use std::time::SystemTime;

use uuid::Uuid;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributeValue {
    Text(String),
    Number(i64),
    Decimal(f64),
    Flag(bool),
    List(Vec<String>),
}

/// An attribute: a name from the semantic conventions, or one that begins with `outlast.`, and its
/// value.
pub(super) type Attribute = (&'static str, AttributeValue);

pub(super) fn text(name: &'static str, value: impl Into<String>) -> Attribute {
    (name, AttributeValue::Text(value.into()))
}

/// Builds an attribute with a number. A number that is too large becomes the largest `i64`.
pub(super) fn number(name: &'static str, value: u64) -> Attribute {
    (name, AttributeValue::Number(i64::try_from(value).unwrap_or(i64::MAX)))
}

/// Identifies a span within its trace. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanId(u64);

impl SpanId {
    pub(super) fn random() -> Self {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        // The version and variant bits of the two halves are at different places.
        Self((high ^ low.rotate_left(32)).max(1))
    }

    /// Reads 16 hexadecimal digits, which must not all be zero.
    pub(super) fn parse(hex: &str) -> Option<Self> {
        u64::from_str_radix(hex, 16).ok().filter(|id| *id != 0 && hex.len() == 16).map(Self)
    }

    pub(super) fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// Identifies a trace. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceId(u128);

impl TraceId {
    pub(super) fn random() -> Self {
        Self(Uuid::new_v4().as_u128())
    }

    /// Reads 32 hexadecimal digits, which must not all be zero.
    pub(super) fn parse(hex: &str) -> Option<Self> {
        u128::from_str_radix(hex, 16).ok().filter(|id| *id != 0 && hex.len() == 32).map(Self)
    }

    pub(super) fn hex(self) -> String {
        format!("{:032x}", self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    /// Work in this process.
    Internal,
    /// A request to a server.
    Client,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct SpanEvent {
    pub(super) name: &'static str,
    pub(super) at: SystemTime,
    pub(super) attributes: Vec<Attribute>,
}

/// A span. It is exported after its end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) start: SystemTime,
    pub(super) end: SystemTime,
    pub(super) attributes: Vec<Attribute>,
    pub(super) events: Vec<SpanEvent>,
    /// The class of the error that ended it. `None`: no error did.
    pub(super) error: Option<String>,
}

impl Span {
    pub(super) fn begin(
        name: String,
        kind: SpanKind,
        parent: Option<SpanId>,
        start: SystemTime,
        attributes: Vec<Attribute>,
    ) -> Self {
        Self {
            id: SpanId::random(),
            parent,
            name,
            kind,
            start,
            end: start,
            attributes,
            events: Vec::new(),
            error: None,
        }
    }
}
