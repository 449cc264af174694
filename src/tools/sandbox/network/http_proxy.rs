//! The heads of HTTP requests to the relay: `CONNECT`, and plain HTTP with the checked host. Pure.

use reqwest::Url;

use super::body::BodyLength;
use super::destination::Destination;
use super::names::NameTable;
use super::upstream::UpstreamProxy;

/// The longest head of a request, in bytes.
const HEAD_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;

/// Headers that concern the connection to the relay, or are set by it.
const REPLACED_HEADERS: [&str; 9] = [
    "connection",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// Headers that set the length of the body.
const BODY_HEADERS: [&str; 2] = ["content-length", "transfer-encoding"];

#[derive(Debug, PartialEq, Eq)]
pub(super) enum HttpRequest {
    Connect(Destination),
    Forward(ForwardedRequest),
}

/// A request over plain HTTP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ForwardedRequest {
    pub(super) to: Destination,
    method: String,
    /// The minor version of HTTP: a client of 1.0 does not understand chunked answers.
    version: u8,
    /// Path and query.
    path: String,
    /// Names and values, without those that the relay sets.
    headers: Vec<u8>,
    pub(super) body: BodyLength,
}

/// A request that is malformed, or names a host that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadRequest;

/// Parses the head of a request. `None`: it is incomplete. `known` is the destination of a
/// connection that was not made to a proxy, where requests name none.
pub(super) fn parse(
    bytes: &[u8],
    known: Option<&Destination>,
    names: &NameTable,
) -> Result<Option<(usize, HttpRequest)>, BadRequest> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(_) => return Err(BadRequest),
    };
    let (method, target) = (head.method.unwrap_or_default(), head.path.unwrap_or_default());
    if method == "CONNECT" {
        if known.is_some() {
            return Err(BadRequest);
        }
        let to = authority(target, names).ok_or(BadRequest)?;
        return Ok(Some((length, HttpRequest::Connect(to))));
    }
    let (to, path) = match known {
        Some(to) if target.starts_with('/') || target == "*" => (to.clone(), target.to_owned()),
        Some(_) => return Err(BadRequest),
        None => absolute(target, names).ok_or(BadRequest)?,
    };
    let body = body_length(head.headers).ok_or(BadRequest)?;
    let of_connection = connection_headers(head.headers);
    let is_replaced = |name: &str| {
        let mut known = REPLACED_HEADERS.iter().chain(&of_connection);
        known.any(|known| name.eq_ignore_ascii_case(known))
    };
    let forwarded = head.headers.iter().filter(|header| !is_replaced(header.name));
    let mut headers = Vec::new();
    for header in forwarded {
        headers.extend([header.name.as_bytes(), b": ", header.value, b"\r\n"].concat());
    }
    let (method, version) = (method.to_owned(), head.version.unwrap_or(1));
    let request = ForwardedRequest { to, method, version, path, headers, body };
    Ok(Some((length, HttpRequest::Forward(request))))
}

impl ForwardedRequest {
    /// Formats the head for the server, or for the upstream proxy. Each connection carries one
    /// request, so that no second one reaches a host that was not checked.
    pub(super) fn head(&self, proxy: Option<&UpstreamProxy>) -> Vec<u8> {
        let host = self.to.http_host();
        let origin = if proxy.is_some() { format!("http://{host}") } else { String::new() };
        let login = proxy.map_or_else(String::new, UpstreamProxy::authorization);
        let Self { method, version, path, .. } = self;
        let first = format!("{method} {origin}{path} HTTP/1.{version}\r\nHost: {host}\r\n{login}");
        [first.as_bytes(), &self.headers, b"Connection: close\r\n\r\n"].concat()
    }
}

/// Returns the headers that the client names in `Connection`, since they concern the connection to
/// the relay. The headers of the body's length are forwarded with the body in any case.
fn connection_headers<'a>(headers: &[httparse::Header<'a>]) -> Vec<&'a str> {
    let all = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("connection"));
    let lists = all.filter_map(|header| str::from_utf8(header.value).ok());
    let names = lists.flat_map(|list| list.split(',')).map(str::trim);
    let is_of_body = |name: &str| BODY_HEADERS.iter().any(|it| name.eq_ignore_ascii_case(it));
    names.filter(|name| !is_of_body(name)).collect()
}

/// Parses `host:port`.
fn authority(text: &str, names: &NameTable) -> Option<Destination> {
    let (host, port) = text.rsplit_once(':')?;
    Destination::new(host, port.parse().ok().filter(|port| *port > 0)?, names)
}

/// Parses a whole URL. Returns its destination, and its path with the query.
fn absolute(text: &str, names: &NameTable) -> Option<(Destination, String)> {
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "http")?;
    let to = Destination::new(url.host_str()?, url.port_or_known_default()?, names)?;
    let query = url.query().map_or(String::new(), |query| format!("?{query}"));
    Some((to, format!("{}{query}", url.path())))
}

/// Returns the length of the body. `None`: it is malformed or ambiguous, so programs could disagree
/// about it.
fn body_length(headers: &[httparse::Header<'_>]) -> Option<BodyLength> {
    let values = |name: &str| {
        let matching = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        matching
            .map(|header| str::from_utf8(header.value).unwrap_or("?").trim())
            .collect::<Vec<_>>()
    };
    let [length, coding] = BODY_HEADERS.map(values);
    match (&length[..], &coding[..]) {
        ([], []) => Some(BodyLength::Bytes(0)),
        ([length], []) => {
            let is_plain = !length.is_empty() && length.bytes().all(|it| it.is_ascii_digit());
            length.parse().ok().filter(|_| is_plain).map(BodyLength::Bytes)
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Some(BodyLength::Chunked),
        (_, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::upstream::ProxyScheme;
    use super::*;

    fn parsed(text: &str, known: Option<&Destination>) -> Result<HttpRequest, BadRequest> {
        let found = parse(text.as_bytes(), known, &NameTable::default())?;
        let (length, request) = found.expect("the head is whole");
        assert_eq!(length, text.find("\r\n\r\n").expect("it has an end") + 4);
        Ok(request)
    }

    fn destination(host: &str, port: u16) -> Destination {
        Destination { host: host.to_owned(), port }
    }

    #[test]
    fn connect_names_a_host_and_a_port() {
        let connect = |target: &str| {
            parsed(&format!("CONNECT {target} HTTP/1.1\r\nHost: other.example\r\n\r\n"), None)
        };
        let to = |host, port| Ok(HttpRequest::Connect(destination(host, port)));
        assert_eq!(connect("A.example:443"), to("a.example", 443));
        assert_eq!(connect("[2001:db8::1]:22"), to("[2001:db8::1]", 22));
        for wrong in ["a.example", "a.example:", "a.example:0", "a.example:x", ":443", "a/b:1"] {
            assert_eq!(connect(wrong), Err(BadRequest), "{wrong}");
        }
    }

    #[test]
    fn plain_http_gets_the_checked_host_and_one_request() {
        let text = "POST http://a.example:8080/x?y=1 HTTP/1.1\r\nHost: b.example\r\nHOST: c\r\n\
                    Accept: */*\r\nProxy-Authorization: Basic x\r\nConnection: keep-alive\r\n\
                    Content-Length: 3\r\n\r\n";
        let Ok(HttpRequest::Forward(request)) = parsed(text, None) else { panic!("it is plain") };
        assert_eq!(request.to, destination("a.example", 8080));
        assert_eq!(request.body, BodyLength::Bytes(3));
        let head = |proxy| String::from_utf8(request.head(proxy)).expect("text");
        assert_eq!(
            head(None),
            "POST /x?y=1 HTTP/1.1\r\nHost: a.example:8080\r\nAccept: */*\r\n\
             Content-Length: 3\r\nConnection: close\r\n\r\n"
        );
        let proxy = UpstreamProxy {
            scheme: ProxyScheme::Http,
            host: "proxy.example".to_owned(),
            port: 3128,
            login: Some(("u".to_owned(), "p".to_owned())),
        };
        let expected = "POST http://a.example:8080/x?y=1 HTTP/1.1\r\nHost: a.example:8080\r\n\
                        Proxy-Authorization: Basic dTpw\r\nAccept";
        assert!(head(Some(&proxy)).starts_with(expected), "{}", head(Some(&proxy)));
    }

    #[test]
    fn headers_that_the_client_names_in_connection_are_not_forwarded() {
        let text = "POST http://a.example/ HTTP/1.1\r\nconnection: Close,X-Hop ,,Content-Length\r\n\
                    Accept: */*\r\nx-hop: 1\r\nX-Hop-2: 2\r\nUpgrade: h2c\r\n\
                    Connection: x-other\r\nX-Other: 3\r\nContent-Length: 0\r\n\r\n";
        let Ok(HttpRequest::Forward(request)) = parsed(text, None) else { panic!("it is plain") };
        let head = String::from_utf8(request.head(None)).expect("text");
        assert_eq!(
            head,
            "POST / HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nX-Hop-2: 2\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_connection_without_a_proxy_keeps_its_destination() {
        let known = destination("a.example", 80);
        for version in ["HTTP/1.1", "HTTP/1.0"] {
            let text = format!("GET /x {version}\r\nHost: b.example\r\n\r\n");
            let Ok(HttpRequest::Forward(request)) = parsed(&text, Some(&known)) else {
                panic!("it is plain")
            };
            let head = String::from_utf8(request.head(None)).expect("text");
            let expected =
                format!("GET /x {version}\r\nHost: a.example\r\nConnection: close\r\n\r\n");
            assert_eq!(head, expected);
        }
        for wrong in ["CONNECT b.example:443", "GET http://b.example/"] {
            let text = format!("{wrong} HTTP/1.1\r\n\r\n");
            assert_eq!(parsed(&text, Some(&known)), Err(BadRequest), "{wrong}");
        }
    }

    #[test]
    fn a_body_with_two_lengths_is_refused() {
        let with = |headers: &str| {
            parsed(&format!("POST http://a.example/ HTTP/1.1\r\n{headers}\r\n"), None)
        };
        for wrong in [
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length:\r\n",
        ] {
            assert_eq!(with(wrong), Err(BadRequest), "{wrong}");
        }
        assert!(with("Transfer-Encoding: Chunked\r\n").is_ok());
        for wrong in ["GET /x", "GET https://a.example/", "GET a.example", "GET ftp://a/"] {
            assert_eq!(parsed(&format!("{wrong} HTTP/1.1\r\n\r\n"), None), Err(BadRequest));
        }
    }

    #[test]
    fn a_head_is_waited_for_but_not_for_ever() {
        let names = NameTable::default();
        assert_eq!(parse(b"GET http://a.example/ HT", None, &names), Ok(None));
        let endless =
            [b"GET http://a.example/ HTTP/1.1\r\nA: ", &vec![b'a'; HEAD_MAX][..]].concat();
        assert_eq!(parse(&endless, None, &names), Err(BadRequest));
    }
}
