//! Reads the standard environment variables of OpenTelemetry.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};

use crate::secrets::Variables;

use super::span::{SpanId, TraceId};

/// Default timeout of one export.
const TIMEOUT: Duration = Duration::from_secs(10);

const DISABLED: &str = "OTEL_SDK_DISABLED";
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SERVICE: &str = "OTEL_SERVICE_NAME";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const TRACE_PARENT: &str = "TRACEPARENT";

/// An OpenTelemetry signal: traces or metrics.
struct Signal {
    /// The part of variable names that denotes the signal.
    name: &'static str,
    path: &'static str,
}

const TRACES: Signal = Signal { name: "TRACES", path: "v1/traces" };
const METRICS: Signal = Signal { name: "METRICS", path: "v1/metrics" };

/// The endpoint that receives one signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Collector {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) timeout: Duration,
}

/// The span of the calling program, which is the parent of the run's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParentSpan {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
}

/// The collectors of traces and metrics, and the data that every export has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportSettings {
    pub(super) traces: Option<Collector>,
    pub(super) metrics: Option<Collector>,
    /// Resource attributes, which describe this process in every export.
    pub(super) resource: Vec<(String, String)>,
    pub(super) parent: Option<ParentSpan>,
    /// A file with additional certificates to trust.
    pub certificate: Option<PathBuf>,
}

impl ExportSettings {
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.traces.iter().chain(&self.metrics).map(|collector| collector.url.as_str())
    }

    /// Returns the values of the collectors' headers, which may be secret.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let collectors = self.traces.iter().chain(&self.metrics);
        collectors.flat_map(|collector| &collector.headers).map(|(_, value)| value.as_str())
    }
}

/// The export that the environment variables configure, and warnings about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportSetup {
    /// `None`: nothing is exported.
    pub settings: Option<ExportSettings>,
    /// Variables without effect, with the reasons.
    pub warnings: Vec<String>,
}

pub fn read_settings(variables: &Variables) -> ExportSetup {
    let mut reader = VariableReader { variables, warnings: Vec::new() };
    let settings = reader.read();
    ExportSetup { settings, warnings: reader.warnings }
}

struct VariableReader<'a> {
    variables: &'a Variables,
    warnings: Vec<String>,
}

impl VariableReader<'_> {
    /// Returns the value of a variable. `None`: it is unset or empty, which the specification does
    /// not distinguish.
    fn value(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(OsStr::new(name))?.to_str()?.trim();
        (!value.is_empty()).then_some(value)
    }

    /// Returns the value for one signal, or else the common value for all signals.
    fn of_signal(&self, signal: &Signal, what: &str) -> Option<&str> {
        self.value(&self.name_for_signal(signal, what))
    }

    /// Returns the name of the variable that [`Self::of_signal`] reads.
    fn name_for_signal(&self, signal: &Signal, what: &str) -> String {
        let specific = format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.name);
        if self.value(&specific).is_some() {
            specific
        } else {
            format!("OTEL_EXPORTER_OTLP_{what}")
        }
    }

    /// Adds a warning, once for a variable that applies to all signals.
    fn warn(&mut self, name: &str, why: &str) {
        let warning = format!("the variable {name} {why}");
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn read(&mut self) -> Option<ExportSettings> {
        if self.value(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let (is_sampled, parent) = self.parent();
        let traces = self.collector(&TRACES).filter(|_| is_sampled);
        let metrics = self.collector(&METRICS);
        if traces.is_none() && metrics.is_none() {
            return None;
        }
        let certificate = self.value(CERTIFICATE).map(PathBuf::from);
        Some(ExportSettings { traces, metrics, resource: self.resource(), parent, certificate })
    }

    fn collector(&mut self, signal: &Signal) -> Option<Collector> {
        let variable = format!("OTEL_{}_EXPORTER", signal.name);
        let specific = self.value(&format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.name));
        let common = self.value("OTEL_EXPORTER_OTLP_ENDPOINT");
        let default = match self.value(&variable) {
            Some("none") => return None,
            Some("otlp") => Some("http://localhost:4318"),
            Some(other) => {
                let why = format!("asks for {other:?}, which is not supported; use otlp or none");
                self.warn(&variable, &why);
                return None;
            }
            // Unlike an SDK, outlast uses the default endpoint only if the exporter is requested:
            // without a collector, each short run would end with failed requests.
            None => None,
        };
        let url = match specific {
            Some(url) => url.to_owned(),
            None => format!("{}/{}", common.or(default)?.trim_end_matches('/'), signal.path),
        };
        let protocol = self.of_signal(signal, "PROTOCOL");
        if protocol == Some("grpc") {
            let name = self.name_for_signal(signal, "PROTOCOL");
            self.warn(&name, "asks for grpc, which is not supported; use http/json");
            return None;
        }
        let is_address = Url::parse(&url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !is_address {
            let name = self.name_for_signal(signal, "ENDPOINT");
            self.warn(&name, "is not an address that begins with http:// or https://");
            return None;
        }
        let timeout = self.of_signal(signal, "TIMEOUT").and_then(|ms| ms.parse().ok());
        let headers = self.headers(signal);
        Some(Collector { url, headers, timeout: timeout.map_or(TIMEOUT, Duration::from_millis) })
    }

    /// Returns the headers for a collector, without those that no request can have: one of them
    /// would make every export fail. Their values may be secret, so warnings do not contain them.
    fn headers(&mut self, signal: &Signal) -> Vec<(String, String)> {
        let mut headers = self.of_signal(signal, "HEADERS").map(pairs).unwrap_or_default();
        let name = self.name_for_signal(signal, "HEADERS");
        headers.retain(|(header, value)| {
            let fault = if HeaderName::from_bytes(header.as_bytes()).is_err() {
                "is not the name of a header"
            } else if HeaderValue::from_str(value).is_err() {
                "has a value that a header cannot have"
            } else {
                return true;
            };
            self.warn(&name, &format!("is used without {header:?}, which {fault}"));
            false
        });
        headers
    }

    fn resource(&self) -> Vec<(String, String)> {
        let mut resource = self.value(RESOURCE).map(pairs).unwrap_or_default();
        let has_name = resource.iter().any(|(name, _)| name == "service.name");
        let service = self.value(SERVICE).or((!has_name).then_some("outlast"));
        if let Some(service) = service {
            resource.retain(|(name, _)| name != "service.name");
            resource.push(("service.name".to_owned(), service.to_owned()));
        }
        resource.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        resource
    }

    /// Returns true if the trace is sampled, and the span of the calling program.
    fn parent(&self) -> (bool, Option<ParentSpan>) {
        let sampler = self.value(SAMPLER).unwrap_or("parentbased_always_on");
        let parsed = self.value(TRACE_PARENT).and_then(parse_parent);
        let parent = parsed.map(|(parent, _)| parent);
        let is_sampled = match (sampler, parsed) {
            ("always_on", _) => true,
            ("always_off", _) | ("parentbased_always_off", None) => false,
            // Sampling ratios are for services with many traces; every run is traced.
            (_, Some((_, is_sampled))) => is_sampled,
            (_, None) => true,
        };
        (is_sampled, parent)
    }
}

/// Parses `name=value` pairs that are separated by commas. Values are percent-encoded.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        Some((name.trim().to_owned(), value.into_owned()))
    };
    text.split(',').filter_map(pair).filter(|(name, _)| !name.is_empty()).collect()
}

/// Parses a W3C `traceparent`. Returns the parent span, and true if the trace is sampled.
fn parse_parent(text: &str) -> Option<(ParentSpan, bool)> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_known = version.len() == 2 && version != "ff" && flags.len() == 2;
    let parent = ParentSpan { trace: TraceId::parse(trace)?, span: SpanId::parse(span)? };
    let flags = u8::from_str_radix(flags, 16).ok()?;
    is_known.then_some((parent, flags & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> ExportSetup {
        let variables = variables.iter();
        read_settings(&variables.map(|(name, value)| (name.into(), value.into())).collect())
    }

    fn urls(variables: &[(&str, &str)]) -> Vec<String> {
        let settings = read(variables).settings;
        settings.iter().flat_map(ExportSettings::urls).map(ToOwned::to_owned).collect()
    }

    #[test]
    fn the_variables_decide_what_goes_where() {
        let both = ["http://c:4318/v1/traces", "http://c:4318/v1/metrics"];
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");
        assert_eq!(urls(&[]), [""; 0]);
        assert_eq!(urls(&[base]), both);
        assert_eq!(urls(&[base, ("OTEL_SDK_DISABLED", "TRUE")]), [""; 0]);
        assert_eq!(urls(&[base, ("OTEL_METRICS_EXPORTER", "none")]), both[..1]);
        assert_eq!(urls(&[base, ("OTEL_TRACES_SAMPLER", "always_off")]), both[1..]);
        let specific = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/here");
        assert_eq!(urls(&[specific]), ["https://t/here"]);
        assert_eq!(urls(&[specific, base]), ["https://t/here", both[1]]);
        let exporter = ("OTEL_TRACES_EXPORTER", "otlp");
        assert_eq!(urls(&[exporter]), ["http://localhost:4318/v1/traces"]);
        for refused in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ] {
            let setup = read(&[base, refused]);
            assert_eq!((setup.settings, setup.warnings.len()), (None, 1), "{refused:?}");
            assert!(setup.warnings[0].contains(refused.0), "{:?}", setup.warnings);
        }
        let specific = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://");
        let setup = read(&[base, specific]);
        assert!(setup.warnings[0].contains(specific.0), "{:?}", setup.warnings);
        assert_eq!(urls(&[base, specific]), both[..1]);
        let setup = read(&[base, ("OTEL_TRACES_EXPORTER", "console")]);
        assert!(setup.warnings[0].contains("console"), "{:?}", setup.warnings);
    }

    #[test]
    fn headers_and_the_resource_are_decoded() {
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abc%3D, x-scope = a"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x=1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,team=a%2Cb,broken"),
            ("OTEL_SERVICE_NAME", "nightly"),
        ]);
        let settings = settings.settings.unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let traces = settings.traces.unwrap();
        assert_eq!(traces.headers, [pair("authorization", "Basic abc="), pair("x-scope", "a")]);
        assert_eq!(traces.timeout, Duration::from_millis(250));
        assert_eq!(settings.metrics.unwrap().headers, [pair("x", "1")]);
        assert_eq!(settings.resource[..2], [pair("team", "a,b"), pair("service.name", "nightly")]);
    }

    #[test]
    fn headers_that_no_request_can_have_are_left_out_and_named_once() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
        for (header, named) in
            [("bad name=s3", "bad name"), ("x=s3%0A", "x"), ("\u{e9}=s3", "\u{e9}")]
        {
            let all = format!("{header},good=1");
            let setup = read(&[base, ("OTEL_EXPORTER_OTLP_HEADERS", &all)]);
            let [warning] = setup.warnings.as_slice() else { panic!("{:?}", setup.warnings) };
            let name = format!("OTEL_EXPORTER_OTLP_HEADERS is used without {named:?}");
            assert!(warning.contains(&name) && !warning.contains("s3"), "{warning}");
            let settings = setup.settings.unwrap();
            for collector in [settings.traces, settings.metrics] {
                let good = ("good".to_owned(), "1".to_owned());
                assert_eq!(collector.unwrap().headers, [good], "{header}");
            }
        }
    }

    #[test]
    fn the_callers_span_is_the_parent_and_decides_on_sampling() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let base = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c");
        let with = |parent: &str| read(&[base, (TRACE_PARENT, parent)]).settings;
        let parent = with(&format!("00-{trace}-{span}-01")).unwrap().parent.unwrap();
        assert_eq!((parent.trace.hex(), parent.span.hex()), (trace.to_owned(), span.to_owned()));
        assert_eq!(with(&format!("00-{trace}-{span}-00")), None);
        let zero = "0".repeat(32);
        for bad in [format!("00-{zero}-{span}-01"), format!("ff-{trace}-{span}-01"), "x".into()] {
            assert_eq!(with(&bad).unwrap().parent, None, "{bad}");
        }
    }
}
