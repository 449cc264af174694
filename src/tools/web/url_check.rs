//! Validates URLs for `WebFetch`. Pure.

use std::net::IpAddr;

use reqwest::Url;

use super::super::domain::host_of;
use super::super::outcome::ToolError;

const URL_BYTES_MAX: usize = 8192;

/// Parses a URL as the model writes it.
pub(super) fn parse_url(text: &str) -> Result<Url, ToolError> {
    if text.len() > URL_BYTES_MAX {
        return Err(format!("the url is longer than {URL_BYTES_MAX} bytes").into());
    }
    let text = text.trim();
    let mut url = without_scheme(text).map_or_else(|| Url::parse(text), Ok).map_err(|error| {
        format!(
            "the url is not an address ({error}); write it whole, like https://example.com/page"
        )
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("only http and https are fetched, not {}", url.scheme()).into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the url holds a user name or password; pages are fetched without".into());
    }
    if host_of(&url).is_empty() {
        return Err("the url names no host".into());
    }
    url.set_fragment(None);
    Ok(url)
}

/// Parses an address that begins with its host: `example.com/x`, `localhost:8080`. Hosts without a
/// dot may as well be schemes or names of files.
fn without_scheme(text: &str) -> Option<Url> {
    let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
    let is_port = |end: &str| !end.is_empty() && end.bytes().all(|digit| digit.is_ascii_digit());
    let host = authority.rsplit_once(':').filter(|(_, end)| is_port(end));
    let host = host.map_or(authority, |(host, _)| host);
    let is_name = host.contains('.') && host.split('.').all(|label| !label.is_empty());
    let is_v6 = host.starts_with('[') && host.ends_with(']');
    let is_local = host.eq_ignore_ascii_case("localhost");
    if host.contains('@') || !is_v6 && (host.contains(':') || !is_name && !is_local) {
        return None;
    }
    let url = Url::parse(&format!("https://{text}")).ok()?;
    let address = host_of(&url).trim_matches(['[', ']']).parse::<IpAddr>();
    let is_this_machine = is_local || address.is_ok_and(|address| address.is_loopback());
    if is_this_machine { Url::parse(&format!("http://{text}")).ok() } else { Some(url) }
}

/// True if a permission for `from` also covers a redirect to `to`: with equal host and port, or as
/// an upgrade from http to https on the default ports. Never from https to http.
pub(super) fn is_same_site(from: &Url, to: &Url) -> bool {
    let is_same_port = from.port_or_known_default() == to.port_or_known_default();
    let is_same_service = from.scheme() == to.scheme() && is_same_port;
    let has_default_ports = from.port().is_none() && to.port().is_none();
    let is_upgrade = from.scheme() == "http" && to.scheme() == "https" && has_default_ports;
    host_of(from) == host_of(to) && (is_same_service || is_upgrade)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_http_urls_are_accepted() {
        for text in [
            "",
            "page",
            "page:80/x",
            "/page",
            "../page.html",
            "good.com@evil.com/",
            "good.com:x@evil.com:80/",
            "mailto:me@example.com",
            "file:///etc/passwd",
            "ftp://example.com/",
            "data:,x",
            "javascript:1",
            "http://",
            "http://./",
            "https://good.com@evil.com/",
            &format!("https://:{}@example.com", "secret"),
            "http://exa mple.com/",
            "http://example.com:99999/",
        ] {
            assert!(parse_url(text).is_err(), "{text}");
        }
        assert!(parse_url(&format!("http://example.com/{}", "a".repeat(9000))).is_err());
        let url = parse_url(" https://Example.com/a?b#c ").expect("an address");
        assert_eq!(url.as_str(), "https://example.com/a?b");
        for (text, whole) in [
            ("example.com", "https://example.com/"),
            (" www.Example.com/x?u=http://a.com#c", "https://www.example.com/x?u=http://a.com"),
            ("example.com:8443/x", "https://example.com:8443/x"),
            ("10.0.0.1/x", "https://10.0.0.1/x"),
            ("localhost", "http://localhost/"),
            ("Localhost:8080/x", "http://localhost:8080/x"),
            ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
            ("[::1]:8080/x", "http://[::1]:8080/x"),
        ] {
            assert_eq!(parse_url(text).expect(text).as_str(), whole);
        }
    }

    #[test]
    fn same_site_means_same_host_and_port_or_upgrade_to_https() {
        let same = |from: &str, to: &str| {
            is_same_site(&Url::parse(from).unwrap(), &Url::parse(to).unwrap())
        };
        assert!(same("http://a.com/1", "http://a.com/2"));
        assert!(same("http://a.com/", "https://A.com./"));
        assert!(same("http://a.com:8080/", "http://a.com:8080/x"));
        assert!(!same("https://a.com/", "http://a.com/"));
        assert!(!same("http://a.com/", "http://a.com:22/"));
        assert!(!same("http://a.com:8080/", "https://a.com/"));
        assert!(!same("http://a.com/", "http://www.a.com/"));
        assert!(!same("http://a.com/", "http://a.com.evil.com/"));
    }
}
